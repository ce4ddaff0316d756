//! Peers as threads of one process: values, and mistakes that are the same error for all.

use std::time::{Duration, Instant};
use tutti::{AllReduceStrategy, Code, Collective, CollectiveConfig, Error, Options};
use tutti::{ReduceOperation, Tensor, TensorView, BF16, F16};

use AllReduceStrategy::{Centralized, Ring, Tree};
use ReduceOperation::{Mean, Sum};

const STRATEGIES: [AllReduceStrategy; 5] = [Centralized, Tree(1), Tree(2), Tree(5), Ring];

fn node_of(timeout_ms: u64) -> Collective {
    let timeout = Duration::from_millis(timeout_ms);
    Collective::new(Options { timeout, ..Default::default() }).unwrap()
}

/// Registers the peers of a config, calls `body` for each on a thread of its own, finishes them,
/// and returns the results by peer.
fn on_peers<R: Send>(
    node: &Collective,
    config: &CollectiveConfig,
    body: impl Fn(u32) -> R + Sync,
) -> Vec<R> {
    let run = |peer| {
        node.register(peer, config).unwrap();
        let result = body(peer);
        node.finish_collective(peer).unwrap();
        result
    };
    std::thread::scope(|scope| {
        let peers = 0..config.num_devices as u32;
        let threads: Vec<_> = peers.map(|peer| scope.spawn(move || run(peer))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn config_of(peers: usize) -> CollectiveConfig {
    CollectiveConfig::new().with_num_devices(peers)
}

#[test]
fn sums_and_means_under_every_strategy() {
    for strategy in STRATEGIES {
        let node = node_of(20_000);
        let config = config_of(4).with_local_all_reduce_strategy(strategy);
        for (sum, mean) in on_peers(&node, &config, |peer| {
            let r = peer as f32;
            let values = [r, r + 1., r + 2., r + 3.];
            let tensor = TensorView::new(&values, &[2, 2]);
            let sum = node.all_reduce(peer, tensor, Sum).unwrap();
            (sum, node.all_reduce(peer, tensor, Mean).unwrap())
        }) {
            assert_eq!(sum, Tensor { values: vec![6., 10., 14., 18.], shape: vec![2, 2] });
            assert_eq!(mean, Tensor { values: vec![1.5, 2.5, 3.5, 4.5], shape: vec![2, 2] });
        }
    }
}

#[test]
fn uneven_tiny_and_empty_sizes() {
    for (peers, shape) in [
        (1, vec![3]),
        (3, vec![]),
        (3, vec![0]),
        (3, vec![0, 5]),
        (4, vec![1]),
        (4, vec![3]),
        (8, vec![9]),
        (3, vec![7, 5, 2]),
        (2, vec![100_003]),
    ] {
        let count = shape.iter().product::<usize>() as u64;
        for strategy in STRATEGIES {
            let node = node_of(20_000);
            let config = config_of(peers).with_local_all_reduce_strategy(strategy);
            let n = peers as u64;
            let wanted: Vec<f64> = (0..count).map(|i| (i * n + n * (n - 1) / 2) as f64).collect();
            for sum in on_peers(&node, &config, |peer| {
                let values: Vec<f64> = (0..count).map(|i| (i + u64::from(peer)) as f64).collect();
                node.all_reduce(peer, TensorView::new(&values, &shape), Sum).unwrap()
            }) {
                assert_eq!((&sum.values, &sum.shape), (&wanted, &shape), "{strategy}");
            }
        }
    }
}

#[test]
fn every_element_type() {
    let node = node_of(20_000);
    macro_rules! twice {
        ($peer:expr, $($name:literal: $one:expr => $two:expr),*) => {$(
            assert_eq!(node.all_reduce($peer, &[$one], Sum).unwrap().values, [$two]);
            let uneven = &[$one; 2][$peer as usize..];
            let error = node.all_reduce($peer, uneven, Sum).unwrap_err();
            assert!(error.message().contains(concat!(" ", $name, "[2]")), "{error}");
        )*};
    }
    on_peers(&node, &config_of(2), |peer| {
        twice!(peer, "f32": 1.5f32 => 3.0, "f64": 1.5f64 => 3.0, "f16": F16(0x3e00) => F16(0x4200),
               "bf16": BF16(0x3fc0) => BF16(0x4040), "i8": 100i8 => -56, "u8": 200u8 => 144,
               "i16": 20_000i16 => -25_536, "u16": 40_000u16 => 14_464, "i32": i32::MAX => -2,
               "u32": u32::MAX => u32::MAX - 1, "i64": i64::MAX => -2,
               "u64": u64::MAX => u64::MAX - 1);
    });
}

#[test]
fn reduce_gives_the_root_alone() {
    let node = node_of(20_000);
    let results = on_peers(&node, &config_of(3), |peer| {
        let tensor = Tensor { values: vec![i64::from(peer), 1], shape: vec![1, 2] };
        node.reduce(peer, &tensor, Sum, 2).unwrap()
    });
    assert_eq!(results, [None, None, Some(Tensor { values: vec![3, 3], shape: vec![1, 2] })]);
}

#[test]
fn broadcast_gives_all_the_one_tensor() {
    let node = node_of(20_000);
    for shared in on_peers(&node, &config_of(4), |peer| {
        let none = node.broadcast(peer, (peer == 0).then(|| TensorView::from(&[0.5f32; 0])));
        assert_eq!(none.unwrap().shape, [0]);
        node.broadcast(peer, (peer == 3).then(|| (&[7u8, 8]).into())).unwrap()
    }) {
        assert_eq!(shared, Tensor { values: vec![7, 8], shape: vec![2] });
    }
}

/// Each of two peers makes its call, gets this error, and then is in step with the other one.
macro_rules! expect {
    ($name:ident, $code:ident, $text:expr, |$node:ident, $peer:ident| $call:expr) => {{
        let $node = node_of(20_000);
        on_peers(&$node, &config_of(2), |$peer| {
            let error: Error = $call.map(|_| ()).unwrap_err();
            assert!(matches!(error, Error::$name(_)), "{error}");
            assert_eq!(error.code(), Code::$code);
            assert!(error.message().starts_with(concat!(stringify!($name), ": ")), "{error}");
            assert!(error.to_string().contains($text), "{error}");
            assert_eq!($node.all_reduce($peer, &[1], Sum).unwrap().values, [2]);
        });
    }};
}

#[test]
fn mismatches_are_errors_of_all() {
    let (ops, five) = ([Sum, Mean], [0f32; 5]);
    expect!(AllReduceShapeMismatch, InvalidArgument, "f32[5]", |node, peer| node.all_reduce(
        peer,
        &five[peer as usize..],
        Sum
    ));
    expect!(AllReduceOperationMismatch, InvalidArgument, "MEAN", |node, peer| node.all_reduce(
        peer,
        &[1.0f32],
        ops[peer as usize]
    ));
    expect!(ReduceShapeMismatch, InvalidArgument, "f32[5]", |node, peer| node.reduce(
        peer,
        &five[peer as usize..],
        Sum,
        0
    ));
    expect!(ReduceOperationMismatch, InvalidArgument, "MEAN", |node, peer| node.reduce(
        peer,
        &[1.0f32],
        ops[peer as usize],
        0
    ));
    expect!(ReduceRootMismatch, InvalidArgument, "root=1", |node, peer| node.reduce(
        peer,
        &[1.0f32],
        Sum,
        peer
    ));
    expect!(RegisterNotFirstOperation, FailedPrecondition, "root peer 9", |node, peer| node
        .reduce(peer, &[1.0f32], Sum, 9));
    expect!(BroadcastNoTensor, InvalidArgument, "exactly one", |node, peer| node
        .broadcast::<f32>(peer, None));
    expect!(BroadcastMultipleTensors, InvalidArgument, "peer 0 and peer 1", |node, peer| node
        .broadcast(peer, Some((&[peer]).into())));
    expect!(Other, InvalidArgument, "MEAN needs", |node, peer| node.all_reduce(peer, &[1], Mean));
}

#[test]
fn a_wrong_shape_of_one_is_an_error_of_all() {
    let huge = [3_074_457_345_618_258_603, 3, 2]; // 2 modulo 2^64.
    for (wrong, shown) in [(&[3][..], "[3]"), (&[], "[]"), (&[0], "[0]"), (&huge, "3, 2]")] {
        let own = |peer| if peer == 1 { wrong } else { &[2] };
        expect!(
            Other,
            InvalidArgument,
            &format!("{shown} does not hold 2 values"),
            |node, peer| { node.all_reduce(peer, TensorView::new(&[1.0f32, 2.0], own(peer)), Sum) }
        );
    }
}

#[test]
fn a_broadcast_of_another_type_is_an_error_of_its_reader() {
    let node = node_of(20_000);
    on_peers(&node, &config_of(2), |peer| {
        if peer == 0 {
            assert_eq!(node.broadcast(0, Some((&[7i64]).into())).unwrap().values, [7]);
        } else {
            let error = node.broadcast::<f32>(1, None).unwrap_err();
            assert!(error.message().contains("of i64, not of f32"), "{error}");
            assert_eq!(error.code(), Code::InvalidArgument);
        }
        assert_eq!(node.all_reduce(peer, &[1], Sum).unwrap().values, [2]);
    });
}

fn name_of<T>(result: Result<T, Error>) -> String {
    let error = result.err().expect("an error");
    error.message().split(':').next().unwrap_or("").to_string()
}

#[test]
fn the_order_of_calls() {
    let (node, one) = (node_of(20_000), config_of(1));
    for result in [node.all_reduce(0, &[1], Sum), node.broadcast(0, None)] {
        assert_eq!(name_of(result), "RegisterNotFirstOperation");
    }
    assert_eq!(name_of(node.finish_collective(0)), "RegisterNotFirstOperation");
    node.register(0, &one).unwrap();
    assert_eq!(name_of(node.register(0, &one)), "MultipleRegister");
    assert_eq!(name_of(node.register(1, &one)), "RegisterParamsMismatch");
    assert_eq!(name_of(node.register(1, &config_of(2))), "RegisterParamsMismatch");
    node.finish_collective(0).unwrap();
    assert_eq!(name_of(node.finish_collective(0)), "MultipleUnregister");
    assert_eq!(name_of(node.register(0, &one.with_num_nodes(2))), "InvalidConfig");
}

#[test]
fn missing_peers_are_named_at_the_deadline() {
    let begin = Instant::now();
    let error = node_of(50).register(0, &config_of(2)).unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    assert!(matches!(error, Error::Other(_)), "{error}");
    assert_eq!(error.code(), Code::DeadlineExceeded);
    assert!(error.message().contains("1 of num_devices=2 peers"), "{error}");
}

#[test]
fn a_reset_ends_what_waits() {
    let node = node_of(60_000);
    on_peers(&node, &config_of(1), |_| ());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| node.register(0, &config_of(2)));
        while !waits.is_finished() {
            node.reset_collective().unwrap();
            std::thread::yield_now();
        }
        assert_eq!(name_of(waits.join().unwrap()), "LocalServerMissing");
    });
    on_peers(&node, &config_of(2), |peer| {
        assert_eq!(node.all_reduce(peer, &[1], Sum).unwrap().values, [2]);
    });
}
