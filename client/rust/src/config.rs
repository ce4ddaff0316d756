//! burn's config.

use crate::{ffi, AllReduceStrategy, BroadcastStrategy, ReduceStrategy};

/// How the peers work together; the same for all of a process. `num_nodes`, `global_address`,
/// `node_address` and `data_service_port` must be given all or none: with them, `num_nodes`
/// processes work together.
///
/// ```
/// use tutti::CollectiveConfig;
/// let config = CollectiveConfig::new().with_num_devices(4);
/// assert!(config.is_valid());
/// assert!(!config.with_num_nodes(2).is_valid()); // Without an address.
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectiveConfig {
    /// Peers of this process, 1 to 240. 1 unless given.
    pub num_devices: usize,
    /// The order of association. Tree(2) unless given, as the next two.
    pub local_all_reduce_strategy: AllReduceStrategy,
    /// The same, but not a ring.
    pub local_reduce_strategy: ReduceStrategy,
    /// The same, but not a ring.
    pub local_broadcast_strategy: BroadcastStrategy,
    /// Processes, of which this is the one of TUTTI_RANK.
    pub num_nodes: Option<u32>,
    /// Names the job of the processes, unless TUTTI_JOB does.
    pub global_address: Option<String>,
    /// Not used.
    pub node_address: Option<String>,
    /// Not used.
    pub data_service_port: Option<u16>,
    /// Between processes. None: Ring.
    pub global_all_reduce_strategy: Option<AllReduceStrategy>,
    /// Between processes, not a ring. None: Tree(2).
    pub global_reduce_strategy: Option<ReduceStrategy>,
    /// Between processes, not a ring. None: Tree(2).
    pub global_broadcast_strategy: Option<BroadcastStrategy>,
}

impl Default for CollectiveConfig {
    fn default() -> Self {
        Self {
            num_devices: 1,
            local_all_reduce_strategy: AllReduceStrategy::Tree(2),
            local_reduce_strategy: ReduceStrategy::Tree(2),
            local_broadcast_strategy: BroadcastStrategy::Tree(2),
            num_nodes: None,
            global_address: None,
            node_address: None,
            data_service_port: None,
            global_all_reduce_strategy: Some(AllReduceStrategy::Ring),
            global_reduce_strategy: Some(ReduceStrategy::Tree(2)),
            global_broadcast_strategy: Some(BroadcastStrategy::Tree(2)),
        }
    }
}

macro_rules! builders {
    ($($with:ident, $field:ident: $given:ty;)*) => {$(
        #[doc = concat!("The config with this `", stringify!($field), "`.")]
        pub fn $with(self, $field: $given) -> Self {
            Self { $field: $field.into(), ..self }
        }
    )*};
}

impl CollectiveConfig {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    builders! {
        with_num_devices, num_devices: usize;
        with_local_all_reduce_strategy, local_all_reduce_strategy: AllReduceStrategy;
        with_local_reduce_strategy, local_reduce_strategy: ReduceStrategy;
        with_local_broadcast_strategy, local_broadcast_strategy: BroadcastStrategy;
        with_num_nodes, num_nodes: impl Into<Option<u32>>;
        with_global_address, global_address: impl Into<Option<String>>;
        with_node_address, node_address: impl Into<Option<String>>;
        with_data_service_port, data_service_port: impl Into<Option<u16>>;
        with_global_all_reduce_strategy,
            global_all_reduce_strategy: impl Into<Option<AllReduceStrategy>>;
        with_global_reduce_strategy, global_reduce_strategy: impl Into<Option<ReduceStrategy>>;
        with_global_broadcast_strategy,
            global_broadcast_strategy: impl Into<Option<BroadcastStrategy>>;
    }

    /// Whether registering with this config can succeed; the error of `register` says why not.
    pub fn is_valid(&self) -> bool {
        ffi::check_config(self).is_ok()
    }
}
