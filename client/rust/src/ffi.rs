//! The C ABI, and all unsafe code: what other modules see of it is safe.

use crate::tensor::dtype_name;
use crate::{AllReduceStrategy, Code, CollectiveConfig, Element, Error};
use crate::{ReduceOperation, Tensor, TensorView};
use std::ffi::{c_void, CStr, CString};
use std::os::raw::{c_char, c_int};
use std::{mem, ptr, sync::Arc};

// As in client/tutti.h, client/faces/frameworks/c_api.h and client/faces/burn/c_api.h.

#[repr(C)]
struct ErrorView {
    code: c_int,
    rank: i32,
    host: Text,
    message: Text,
}

#[repr(C)]
struct View {
    data: *const c_void,
    shape: *const i64,
    rank: usize,
    dtype: i32,
}

#[repr(C)]
struct Component {
    elements: View,
    is_sparse: i32,
    indices: View,
    dense_shape: *const i64,
    dense_rank: usize,
    device: Text,
}

#[repr(C)]
struct Config {
    num_devices: i64,
    local_strategies: [Text; 3], // all_reduce, reduce, broadcast.
    num_nodes: i64,
    addresses: [Text; 2], // global_address, node_address.
    data_service_port: i64,
    global_strategies: [Text; 3],
}

type Handle = *mut c_void;
type Text = *const c_char;
type In = *const View;
type Out = *mut Handle;

extern "C" {
    fn tutti_join(options: *const c_void, group: Out) -> c_int;
    fn tutti_last_error() -> *const ErrorView;
    fn tutti_rank(group: Handle) -> i32;
    fn tutti_world_size(group: Handle) -> i32;
    fn tutti_group_free(group: Handle);
    fn tutti_frameworks_version() -> Text;
    fn tutti_frameworks_last_error() -> *const ErrorView;
    fn tutti_results_size(results: Handle) -> usize;
    fn tutti_results_get(results: Handle, value: usize, part: usize, to: *mut Component) -> c_int;
    fn tutti_results_free(results: Handle);
    fn tutti_burn_config_check(config: *const Config) -> c_int;
    fn tutti_burn_create(group: Handle, timeout_ms: i32, reproducible: i32, made: Out) -> c_int;
    fn tutti_burn_free(own: Handle);
    fn tutti_burn_register(own: Handle, peer: u32, config: *const Config) -> c_int;
    fn tutti_burn_all_reduce(own: Handle, peer: u32, x: In, op: Text, results: Out) -> c_int;
    fn tutti_burn_reduce(own: Handle, peer: u32, x: In, op: Text, root: u32, to: Out) -> c_int;
    fn tutti_burn_broadcast(own: Handle, peer: u32, x: In, results: Out) -> c_int;
    fn tutti_burn_refuse(own: Handle, peer: u32, message: Text) -> c_int;
    fn tutti_burn_finish(own: Handle, peer: u32) -> c_int;
    fn tutti_burn_reset(own: Handle) -> c_int;
}

/// A text of the library, which never passes NULL here.
fn text_of(text: Text) -> String {
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The error that the last call on this thread left; `prefix` before its message.
fn error_of(view: *const ErrorView, prefix: &str) -> Error {
    let view = unsafe { &*view };
    let host = Some(text_of(view.host)).filter(|host| !host.is_empty());
    let message = prefix.to_string() + &text_of(view.message);
    Error::of(Code::of(view.code), &message, u32::try_from(view.rank).ok(), host)
}

fn check(code: c_int) -> Result<(), Error> {
    match code {
        0 => Ok(()),
        _ => Err(error_of(unsafe { tutti_frameworks_last_error() }, "")),
    }
}

/// The processes that work together, each a rank of a job.
#[derive(Debug)]
pub struct Group(Handle);

// tutti.h: any function may be called from any thread, concurrently on one handle.
unsafe impl Send for Group {}
unsafe impl Sync for Group {}

impl Group {
    /// Joins the job through the agent of this host, and waits for the other ranks. Everything is
    /// from the environment: TUTTI_RANK, TUTTI_WORLD_SIZE and TUTTI_JOB, or the launcher's. Global,
    /// with code and message of `tutti_join` in tutti.h.
    pub fn join() -> Result<Self, Error> {
        let mut made = ptr::null_mut();
        match unsafe { tutti_join(ptr::null(), &mut made) } {
            0 => Ok(Self(made)),
            _ => Err(error_of(unsafe { tutti_last_error() }, "Global(Server): ")),
        }
    }

    /// This rank, from 0.
    pub fn rank(&self) -> u32 {
        unsafe { tutti_rank(self.0) as u32 }
    }

    /// The number of ranks.
    pub fn world_size(&self) -> u32 {
        unsafe { tutti_world_size(self.0) as u32 }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        unsafe { tutti_group_free(self.0) }
    }
}

/// The texts of a config, which the one for C points to: strategies by the order of its fields, and
/// the addresses.
struct Texts([Option<CString>; 8]);

impl Texts {
    fn of(config: &CollectiveConfig) -> Result<Self, Error> {
        use AllReduceStrategy::{Ring, Tree};
        let addresses = [&config.global_address, &config.node_address];
        let strategies = [
            config.local_all_reduce_strategy,
            config.local_reduce_strategy,
            config.local_broadcast_strategy,
            config.global_all_reduce_strategy.unwrap_or(Ring),
            config.global_reduce_strategy.unwrap_or(Tree(2)),
            config.global_broadcast_strategy.unwrap_or(Tree(2)),
        ];
        let texts = strategies.iter().map(|strategy| Some(strategy.to_string()));
        let mut own = Self(Default::default());
        for (to, text) in own.0.iter_mut().zip(texts.chain(addresses.into_iter().cloned())) {
            *to = text.map(CString::new).transpose().map_err(|error| {
                Error::invalid(&format!("InvalidConfig: an address has a zero byte: {error}"))
            })?;
        }
        Ok(own)
    }

    fn pointers<const N: usize>(&self, first: usize) -> [Text; N] {
        let mut texts = self.0[first..].iter();
        [(); N].map(|_| texts.next().and_then(Option::as_ref).map_or(ptr::null(), |t| t.as_ptr()))
    }
}

/// Calls `call` with the config for C, which is valid until that returns.
fn with_config(
    config: &CollectiveConfig,
    call: impl FnOnce(*const Config) -> c_int,
) -> Result<(), Error> {
    let texts = Texts::of(config)?;
    check(call(&Config {
        num_devices: i64::try_from(config.num_devices).unwrap_or(i64::MAX),
        local_strategies: texts.pointers(0),
        num_nodes: config.num_nodes.map_or(i64::MIN, i64::from),
        addresses: texts.pointers(6),
        data_service_port: config.data_service_port.map_or(i64::MIN, i64::from),
        global_strategies: texts.pointers(3),
    }))
}

pub fn check_config(config: &CollectiveConfig) -> Result<(), Error> {
    with_config(config, |config| unsafe { tutti_burn_config_check(config) })
}

fn name_of(op: ReduceOperation) -> Text {
    match op {
        ReduceOperation::Sum => b"SUM\0".as_ptr().cast(),
        ReduceOperation::Mean => b"MEAN\0".as_ptr().cast(),
    }
}

/// What a call returned.
struct Results(*mut c_void);

impl Results {
    /// The result, of which there is one or none.
    fn tensor<T: Element>(&self) -> Result<Option<Tensor<T>>, Error> {
        if unsafe { tutti_results_size(self.0) } == 0 {
            return Ok(None);
        }
        let mut component: Component = unsafe { mem::zeroed() };
        check(unsafe { tutti_results_get(self.0, 0, 0, &mut component) })?;
        let View { data, shape, rank, dtype } = component.elements;
        if dtype != T::DTYPE {
            let (wanted, given) = (dtype_name(T::DTYPE), dtype_name(dtype));
            let message = format!("the tensor is of {given}, not of {wanted}; ask for its type");
            return Err(Error::invalid(&message));
        }
        let shape: Vec<usize> =
            copy::<i64>(shape.cast(), rank).iter().map(|s| *s as usize).collect();
        let values = copy(data, shape.iter().product());
        Ok(Some(Tensor { values, shape }))
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        unsafe { tutti_results_free(self.0) }
    }
}

/// A copy of `count` elements of the library, which need not be aligned.
fn copy<T: Element>(from: *const c_void, count: usize) -> Vec<T> {
    let mut values = Vec::with_capacity(count);
    if count > 0 {
        unsafe {
            let bytes = count * mem::size_of::<T>();
            ptr::copy_nonoverlapping(from.cast(), values.as_mut_ptr() as *mut u8, bytes);
            values.set_len(count); // All bits are values of an Element.
        }
    }
    values
}

/// What the peers do together.
pub enum Call {
    AllReduce(ReduceOperation),
    Reduce(ReduceOperation, u32),
    Broadcast,
}

#[derive(Debug)]
pub struct Collective {
    handle: Handle,
    _group: Option<Arc<Group>>, // Outlives the handle, which drop() frees before it drops fields.
}

// The calls are for threads: each peer is one.
unsafe impl Send for Collective {}
unsafe impl Sync for Collective {}

impl Collective {
    pub fn new(group: Option<Arc<Group>>, timeout_ms: i32, choice: i32) -> Result<Self, Error> {
        let own = env!("CARGO_PKG_VERSION");
        let version = text_of(unsafe { tutti_frameworks_version() });
        if version != own {
            let message = format!("libtutti_frameworks.so is of version {version}, not of {own}");
            return Err(Error::of(Code::FailedPrecondition, &message, None, None));
        }
        let given = group.as_ref().map_or(ptr::null_mut(), |group| group.0);
        let mut handle = ptr::null_mut();
        check(unsafe { tutti_burn_create(given, timeout_ms, choice, &mut handle) })?;
        Ok(Self { handle, _group: group })
    }

    pub fn register(&self, peer: u32, config: &CollectiveConfig) -> Result<(), Error> {
        with_config(config, |config| unsafe { tutti_burn_register(self.handle, peer, config) })
    }

    /// The result of this peer, if it has one. A tensor that is wrong is refused for all peers, so
    /// that none is a call ahead.
    pub fn run<T: Element>(
        &self,
        peer: u32,
        call: Call,
        tensor: Option<TensorView<T>>,
    ) -> Result<Option<Tensor<T>>, Error> {
        let sizes = match tensor.map_or(Ok(Vec::new()), |tensor| tensor.sizes()) {
            Ok(sizes) => sizes,
            Err(message) => return Err(self.refuse(peer, message)),
        };
        let view = tensor.map(|tensor| View {
            data: tensor.values().as_ptr().cast(),
            shape: sizes.as_ptr(),
            rank: sizes.len(),
            dtype: T::DTYPE,
        });
        let mut results = Results(ptr::null_mut());
        check(self.start(peer, call, view.as_ref().map_or(ptr::null(), |x| x), &mut results.0))?;
        results.tensor()
    }

    fn start(&self, peer: u32, call: Call, x: In, to: Out) -> c_int {
        let own = self.handle;
        match call {
            Call::AllReduce(op) => unsafe { tutti_burn_all_reduce(own, peer, x, name_of(op), to) },
            Call::Reduce(op, root) => unsafe {
                tutti_burn_reduce(own, peer, x, name_of(op), root, to)
            },
            Call::Broadcast => unsafe { tutti_burn_broadcast(own, peer, x, to) },
        }
    }

    fn refuse(&self, peer: u32, message: String) -> Error {
        let text = CString::new(message).unwrap_or_default();
        check(unsafe { tutti_burn_refuse(self.handle, peer, text.as_ptr()) })
            .err()
            .unwrap_or_else(|| Error::invalid(&text.to_string_lossy()))
    }

    pub fn finish(&self, peer: u32) -> Result<(), Error> {
        check(unsafe { tutti_burn_finish(self.handle, peer) })
    }

    pub fn reset(&self) -> Result<(), Error> {
        check(unsafe { tutti_burn_reset(self.handle) })
    }
}

impl Drop for Collective {
    fn drop(&mut self) {
        unsafe { tutti_burn_free(self.handle) }
    }
}
