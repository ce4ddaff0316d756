//! burn's errors.

use std::fmt;

macro_rules! codes {
    ($($name:ident = $number:literal,)*) => {
        /// Why a call failed: gRPC's canonical codes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        #[non_exhaustive]
        pub enum Code {$( $name = $number, )*}

        impl Code {
            /// The code of a number of C; Unknown for one that is none.
            pub(crate) fn of(number: i32) -> Self {
                match number {$( $number => Self::$name, )* _ => Self::Unknown }
            }
        }
    };
}

codes! {
    Cancelled = 1, Unknown = 2, InvalidArgument = 3, DeadlineExceeded = 4, NotFound = 5,
    AlreadyExists = 6, PermissionDenied = 7, ResourceExhausted = 8, FailedPrecondition = 9,
    Aborted = 10, OutOfRange = 11, Unimplemented = 12, Internal = 13, Unavailable = 14,
    DataLoss = 15, Unauthenticated = 16,
}

/// What every error carries.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// Why.
    pub code: Code,
    /// burn's name of the error, what failed, where, and what to do about it.
    pub message: String,
    /// The process to blame, as a rank of the group; None: none is.
    pub rank: Option<u32>,
    /// The name of the host to blame; None: none is.
    pub host: Option<String>,
}

macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// An error of burn's name. A mistake of one peer is the same error for all.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Error {$(
            $(#[$doc])*
            $name(Failure),
        )*}

        impl Error {
            /// Code, message, and the process or host to blame.
            pub fn failure(&self) -> &Failure {
                match self {$( Self::$name(failure) => failure, )*}
            }

            fn named(name: &str, failure: Failure) -> Option<Self> {
                match name {
                    $( stringify!($name) => Some(Self::$name(failure)), )*
                    _ => None,
                }
            }
        }
    };
}

errors! {
    /// The config cannot work, or a text is no strategy.
    InvalidConfig,
    /// The peer is registered already.
    MultipleRegister,
    /// Another config than the first peer's, or more peers than num_devices.
    RegisterParamsMismatch,
    /// The peer has finished already.
    MultipleUnregister,
    /// The peer, or the root of a reduce, is not registered.
    RegisterNotFirstOperation,
    /// Peers give all_reduce() other shapes or dtypes.
    AllReduceShapeMismatch,
    /// Peers give all_reduce() other operations.
    AllReduceOperationMismatch,
    /// Peers give reduce() other shapes or dtypes.
    ReduceShapeMismatch,
    /// Peers give reduce() other operations.
    ReduceOperationMismatch,
    /// Peers give reduce() other roots.
    ReduceRootMismatch,
    /// No peer gives broadcast() a tensor.
    BroadcastNoTensor,
    /// Several peers give broadcast() a tensor.
    BroadcastMultipleTensors,
    /// The collective was reset meanwhile.
    LocalServerMissing,
    /// A failure between processes; the message begins with "Global(PeerLost(3))" where rank 3 is
    /// gone.
    Global,
    /// Peers that do not come in time, a peer in two calls at once, and wrong arguments.
    Other,
}

impl Error {
    /// Why.
    pub fn code(&self) -> Code {
        self.failure().code
    }

    /// burn's name of the error, what failed, where, and what to do about it.
    pub fn message(&self) -> &str {
        &self.failure().message
    }

    /// The error that `message` begins with the name of; Other if that is none.
    pub(crate) fn of(code: Code, message: &str, rank: Option<u32>, host: Option<String>) -> Self {
        let failure = Failure { code, message: message.to_string(), rank, host };
        let name = message.split([':', '(']).next().unwrap_or("");
        Self::named(name, failure.clone()).unwrap_or_else(|| {
            Self::Other(Failure { message: format!("Other: {message}"), ..failure })
        })
    }

    /// The error that `message` begins with the name of, about a wrong argument.
    pub(crate) fn invalid(message: &str) -> Self {
        Self::of(Code::InvalidArgument, message, None, None)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        write!(to, "{} ({:?})", self.message(), self.code())
    }
}

impl std::error::Error for Error {}
