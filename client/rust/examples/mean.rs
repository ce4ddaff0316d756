//! Two peers on each rank of a job.

use std::{sync::Arc, thread};
use tutti::*;

fn work(node: &Collective, config: &CollectiveConfig, peer: u32) -> Result<(), Error> {
    node.register(peer, config)?; // Waits for the other peers of the process.
    let mean = node.all_reduce(peer, &[peer as f32], ReduceOperation::Mean)?;
    let own = [7, 8];
    let shared = node.broadcast(peer, (peer == 3).then(|| TensorView::from(&own)))?;
    println!("peer {peer}: mean {:?}, shared {:?}", mean.values, shared.values);
    node.finish_collective(peer)
}

fn main() -> Result<(), Error> {
    let group = Arc::new(Group::join()?); // The nodes: here 4, with 2 peers each.
    let first = 2 * group.rank();
    let node = Collective::new(Options { group: Some(group), ..Default::default() })?;
    let config = CollectiveConfig::new()
        .with_num_devices(2)
        .with_local_all_reduce_strategy(AllReduceStrategy::Tree(2));
    thread::scope(|scope| {
        let other = scope.spawn(|| work(&node, &config, first + 1));
        work(&node, &config, first)?;
        other.join().expect("work() does not panic")
    })
}
