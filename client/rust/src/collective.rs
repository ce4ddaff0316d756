//! burn's collective.

use crate::ffi::{self, Call};
use crate::{Code, CollectiveConfig, Element, Error, Group, ReduceOperation, Tensor, TensorView};
use std::{sync::Arc, time::Duration};

/// What a collective is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// The processes. None: as the config says, and this process alone without global parameters.
    pub group: Option<Arc<Group>>,
    /// How long a call waits for other peers, and twice that for other processes: 1 ms to 2^31 - 1
    /// ms, or the nearer of these; 30 s unless given.
    pub timeout: Duration,
    /// Whether reductions among processes are the same bits on any number of hosts. None: as
    /// TUTTI_REPRODUCIBLE says.
    pub reproducible: Option<bool>,
}

impl Default for Options {
    fn default() -> Self {
        Self { group: None, timeout: Duration::from_secs(30), reproducible: None }
    }
}

/// The peers of a process. Each calls from a thread of its own, all in the same order, with a
/// number that no other peer has. A call waits for the other peers. Where calls differ, and where
/// one is refused, all peers get the same error, and the next call works.
#[derive(Debug)]
pub struct Collective(ffi::Collective);

impl Collective {
    /// Other, FAILED_PRECONDITION: the library is of another version.
    pub fn new(options: Options) -> Result<Self, Error> {
        let millis = options.timeout.as_millis().clamp(1, i32::MAX as u128) as i32;
        let choice = options.reproducible.map_or(0, |yes| if yes { 1 } else { -1 });
        ffi::Collective::new(options.group, millis, choice).map(Self)
    }

    /// Registers a peer, which must come first, and waits for the others of `num_devices`.
    ///
    /// InvalidConfig; MultipleRegister: the peer is registered; RegisterParamsMismatch: another
    /// config than the first peer's, or all are there already; Other: others do not come; Global:
    /// the processes cannot join.
    pub fn register(&self, peer: u32, config: &CollectiveConfig) -> Result<(), Error> {
        self.0.register(peer, config)
    }

    /// The sum, or the mean, over all peers, of the tensor's shape.
    ///
    /// AllReduceShapeMismatch, AllReduceOperationMismatch; RegisterNotFirstOperation; Other, among
    /// them means of integers.
    pub fn all_reduce<'a, T: Element>(
        &self,
        peer: u32,
        tensor: impl Into<TensorView<'a, T>>,
        op: ReduceOperation,
    ) -> Result<Tensor<T>, Error> {
        required(self.0.run(peer, Call::AllReduce(op), Some(tensor.into())))
    }

    /// The same for the peer `root`; None for the others.
    ///
    /// ReduceShapeMismatch, ReduceOperationMismatch, ReduceRootMismatch; RegisterNotFirstOperation,
    /// also of the root; Other.
    pub fn reduce<'a, T: Element>(
        &self,
        peer: u32,
        tensor: impl Into<TensorView<'a, T>>,
        op: ReduceOperation,
        root: u32,
    ) -> Result<Option<Tensor<T>>, Error> {
        self.0.run(peer, Call::Reduce(op, root), Some(tensor.into()))
    }

    /// The tensor of the one peer that gives one.
    ///
    /// BroadcastNoTensor, BroadcastMultipleTensors; RegisterNotFirstOperation; Other, among them,
    /// for this peer alone, elements of another type than `T`.
    ///
    /// ```
    /// let node = tutti::Collective::new(Default::default())?;
    /// node.register(0, &Default::default())?;
    /// let shared = node.broadcast(0, Some(tutti::TensorView::new(&[7, 8], &[2, 1])))?;
    /// assert_eq!((shared.values, shared.shape), (vec![7, 8], vec![2, 1]));
    /// # Ok::<(), tutti::Error>(())
    /// ```
    pub fn broadcast<T: Element>(
        &self,
        peer: u32,
        tensor: Option<TensorView<'_, T>>,
    ) -> Result<Tensor<T>, Error> {
        required(self.0.run(peer, Call::Broadcast, tensor))
    }

    /// Unregisters a peer. An operation for which only this peer is missing goes on without it.
    ///
    /// MultipleUnregister: the peer is not registered; RegisterNotFirstOperation: no peer ever was;
    /// Other: the peer is in a call.
    pub fn finish_collective(&self, peer: u32) -> Result<(), Error> {
        self.0.finish(peer)
    }

    /// Forgets all peers; what waits for others is LocalServerMissing.
    pub fn reset_collective(&self) -> Result<(), Error> {
        self.0.reset()
    }
}

/// The result of a call that has one for each peer.
fn required<T>(result: Result<Option<T>, Error>) -> Result<T, Error> {
    result?.ok_or_else(|| Error::of(Code::Internal, "the call returned nothing", None, None))
}
