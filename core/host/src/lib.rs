//! The `host` layer: what the machine gives us, and the only door to it.
//!
//! # Problem
//! A file system that calls the machine from everywhere can be tested only on that machine, and a
//! failure that needed a certain order of threads or a power cut at a certain write is never seen
//! again.
//!
//! # Mechanism
//! A [`Host`] is handed to code that needs devices (`device.rs`), threads (`threads.rs`), all
//! processors at once (`compute.rs`), time (`clock.rs`), entropy, or one of the few files of our
//! own (`file.rs`). Locks (`lock.rs`), channels (`channel.rs`), buffers (`buffer.rs`) and
//! descriptors of commands (`pipe.rs`) need no handle. There are two hosts: the machine, and a
//! simulation (`sim/`) in which a seed decides which thread runs, how long a disk takes, and what
//! survives a power cut. Code above this layer cannot tell them apart.
//!
//! # Invariants
//! - Nothing above this layer uses `std::thread`, `std::time`, `std::fs` or a lock of another
//!   crate.
//! - Locks are taken in the order of their ranks (checked in debug builds) and not held while
//!   waiting.
//! - A flush is believed once: see `device.rs`.
//!
//! # Knows nothing about
//! pools, blocks, or what the bytes on a device mean.

mod accounts;
mod apart;
pub mod background;
mod batch;
pub mod buffer;
pub mod caller;
pub mod canary;
pub mod channel;
mod clock;
mod compute;
mod credentials;
pub mod device;
mod device_threads;
mod error;
mod file;
mod file_device;
mod file_lock;
mod flushes;
pub mod gss;
mod gss_library;
mod host;
mod identity;
mod in_threads;
mod layers;
mod lease;
pub mod lock;
mod lock_holder;
pub mod loop_device;
mod machine_counters;
mod memory;
mod network_names;
mod pipe;
mod plan;
mod project;
mod quick_clock;
pub mod ranks;
mod repeating_thread;
pub mod sim;
mod slow;
mod system;
mod threads;
mod uring;
mod waiting;
mod write_turns;

pub use accounts::{Account, AccountKind, account_name, account_of_user, find_account};
pub use apart::{call_apart, open_apart};
pub use batch::{Batch, Completion, Lateness};
pub use buffer::Buffer;
pub use clock::{UnixTime, lease_clock_ns, monotonic_ns, operation_clock_ns};
pub use compute::Compute;
pub use credentials::{Actor, actor_of_process, groups_of_peer, groups_of_process};
pub use device::{Device, DeviceIdentity, DeviceInfo, OpenMode, Request, WriteData};
pub use error::{Action, DeviceError, Errno, FileError, OpenError, words_of};
pub use file::{DirectoryEntry, FileKind};
pub use file_device::Backend;
pub use file_lock::FileLock;
pub use host::{BadOption, Host, RealOptions};
pub use identity::{HostIdentity, effective_uid};
pub use layers::DeviceNumber;
pub use lease::WriteLease;
pub use lock::{Condvar, Mutex, Rank, RwLock};
pub use lock_holder::LockHolder;
pub use machine_counters::{
    DiskCounters, InterfaceCounters, MachineCounters, MachineMemory, ProcessorTimes,
};
pub use network_names::{is_in_netgroup, machine_name};
pub use pipe::{Pipe, PipeEnd, PipeStopper};
pub use project::FileProject;
pub use repeating_thread::{End, RepeatingThread, ThreadPlace};
pub use sim::{SimHost, SimOptions};
pub use slow::SlowDevices;
pub use threads::{JoinHandle, ThreadPanicked};
pub use waiting::{call_before_waits, lock_waits, wait_as_for_lock};
