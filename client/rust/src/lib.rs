//! The API of [burn](https://burn.dev)'s burn-collective over Tutti, with its
//! `AllReduceStrategy`. A *peer* is a thread; the peers of a process, and of several processes,
//! reduce and broadcast tensors.
//!
//! ```
//! use tutti::{AllReduceStrategy, Collective, CollectiveConfig, Error, ReduceOperation};
//!
//! fn mean_of(node: &Collective, config: &CollectiveConfig, peer: u32) -> Result<f32, Error> {
//!     node.register(peer, config)?; // Waits for the other peers.
//!     let mean = node.all_reduce(peer, &[peer as f32], ReduceOperation::Mean)?;
//!     node.finish_collective(peer)?;
//!     Ok(mean.values[0])
//! }
//!
//! let node = Collective::new(Default::default())?;
//! let config = CollectiveConfig::new()
//!     .with_num_devices(4)
//!     .with_local_all_reduce_strategy(AllReduceStrategy::Tree(2));
//! std::thread::scope(|scope| {
//!     for peer in 0..4 {
//!         let (node, config) = (&node, &config);
//!         scope.spawn(move || assert_eq!(mean_of(node, config, peer), Ok(1.5)));
//!     }
//! });
//! # Ok::<(), Error>(())
//! ```
//!
//! The crate links `libtutti_frameworks.so` of the same version of Tutti. `build.rs` takes the
//! folder of `TUTTI_LIB_DIR`, else pkg-config's, else the system's. Outside the system's folders
//! programs find the libraries by `LD_LIBRARY_PATH`, or by an rpath of their own:
//! `RUSTFLAGS="-C link-arg=-Wl,-rpath,FOLDER"`.
#![deny(missing_docs, unsafe_code)]

mod collective;
mod config;
mod error;
#[allow(unsafe_code)]
mod ffi;
mod strategy;
mod tensor;

pub use collective::{Collective, Options};
pub use config::CollectiveConfig;
pub use error::{Code, Error, Failure};
pub use ffi::Group;
pub use strategy::{AllReduceStrategy, BroadcastStrategy, ReduceOperation, ReduceStrategy};
pub use tensor::{Element, Tensor, TensorView, BF16, F16};
