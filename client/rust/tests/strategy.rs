//! burn's enumerations and config as values.

use std::collections::HashSet;
use tutti::{AllReduceStrategy, Code, CollectiveConfig, Error, Group};

use AllReduceStrategy::{Centralized, Ring, Tree};

const ALL: [(AllReduceStrategy, &str, &str); 4] = [
    (Centralized, "centralized", r#""Centralized""#),
    (Tree(1), "tree:1", r#"{"Tree":1}"#),
    (Tree(u32::MAX), "tree:4294967295", r#"{"Tree":4294967295}"#),
    (Ring, "ring", r#""Ring""#),
];

#[test]
fn strategies_are_texts_and_json_both_ways() {
    for (strategy, text, json) in ALL {
        assert_eq!((strategy.to_string(), strategy.to_json()), (text.into(), json.into()));
        assert_eq!(text.parse(), Ok(strategy));
        assert_eq!(AllReduceStrategy::from_json(json), Ok(strategy));
    }
    assert_eq!(AllReduceStrategy::from_json(" { \"Tree\"\t:\n2 } "), Ok(Tree(2)));
    assert_eq!(ALL.iter().map(|(strategy, ..)| *strategy).collect::<HashSet<_>>().len(), 4);
    assert_eq!(format!("{:?}", Tree(2)), "Tree(2)");
}

#[test]
fn other_texts_are_refused() {
    for text in ["", "mesh", "Ring", "tree", "tree:", "tree:0", "tree:-1", "tree:+2", "tree: 2"] {
        let error = text.parse::<AllReduceStrategy>().unwrap_err();
        assert!(matches!(error, Error::InvalidConfig(_)), "{error}");
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains(&format!("{text:?} is none of")), "{error}");
    }
    let wrong = r#"|"Mesh"|Ring|"ring"|{}|{"Tree"}|{"Tree":}|{"Tree":0}|{"Tree":2.0}|{"Tree":"2"}|
        {"Tree":02}|{"Ring":2}|{"Tree":2,"Ring":1}|
        {"Tree":4294967296}|{"Tree":2|[2]|"Centralized""Ring""#;
    for text in wrong.split('|') {
        assert!(AllReduceStrategy::from_json(text).is_err(), "{text}");
    }
}

#[test]
fn configs_have_burns_defaults() {
    let config = CollectiveConfig::new();
    assert_eq!(config, CollectiveConfig::default());
    assert_eq!((config.num_devices, config.num_nodes), (1, None));
    assert_eq!(config.local_all_reduce_strategy, Tree(2));
    assert_eq!(config.global_all_reduce_strategy, Some(Ring));
    let other = config.clone().with_num_devices(3).with_global_all_reduce_strategy(None);
    assert_eq!((other.num_devices, other.global_all_reduce_strategy), (3, None));
    assert_ne!(config, other);
}

#[test]
fn configs_are_checked() {
    let config = CollectiveConfig::new();
    let nodes = config
        .clone()
        .with_num_nodes(2)
        .with_global_address("ws://a:1".to_string())
        .with_node_address("ws://b:2".to_string())
        .with_data_service_port(3);
    assert!(config.is_valid() && nodes.is_valid());
    assert!(config.clone().with_global_all_reduce_strategy(Centralized).is_valid());
    for wrong in [
        config.clone().with_num_devices(0),
        config.clone().with_num_devices(241),
        config.clone().with_num_devices(usize::MAX),
        config.clone().with_num_nodes(2),
        config.clone().with_local_all_reduce_strategy(Tree(0)),
        config.clone().with_local_reduce_strategy(Ring),
        config.clone().with_local_broadcast_strategy(Ring),
        config.clone().with_global_all_reduce_strategy(Tree(0)),
        config.clone().with_global_reduce_strategy(Ring),
        config.with_global_broadcast_strategy(Ring),
        nodes.clone().with_num_nodes(None),
        nodes.clone().with_num_nodes(0),
        nodes.clone().with_global_address(None),
        nodes.clone().with_global_address("a\0b".to_string()),
        nodes.clone().with_node_address(None),
        nodes.with_data_service_port(None),
    ] {
        assert!(!wrong.is_valid(), "{wrong:?}");
    }
}

#[test]
fn joining_without_an_agent_is_global() {
    const NAME: &str = "joining_without_an_agent_is_global";
    if std::env::var("TUTTI_SOCKET").as_deref() == Ok("/nowhere/tuttid.sock") {
        let error = Group::join().unwrap_err();
        assert!(matches!(error, Error::Global(_)), "{error}");
        assert_eq!((error.code(), error.failure().rank), (Code::Unavailable, None));
        assert!(error.message().starts_with("Global(Server): "), "{error}");
        assert!(error.message().contains("/nowhere/tuttid.sock"), "{error}");
        return;
    }
    let mut own = std::process::Command::new(std::env::current_exe().unwrap());
    let variables = [("TUTTI_SOCKET", "/nowhere/tuttid.sock"), ("TUTTI_JOB", "a")];
    own.args(["--exact", NAME])
        .envs(variables)
        .envs([("TUTTI_RANK", "0"), ("TUTTI_WORLD_SIZE", "1")]);
    let done = own.output().unwrap();
    let printed = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && printed.contains("1 passed"), "{printed}");
}
