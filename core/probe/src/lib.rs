//! The `probe` layer: named measuring points and the story of every operation.
//!
//! # Problem
//! An administrator asks "why is it slow?" after the fact. Counters that were not kept, and
//! operations that were not recorded, cannot answer. Yet what is always on must cost next to
//! nothing.
//!
//! # Mechanism
//! A front end makes an [`Operation`] where a request enters; every layer below gets it by
//! reference and adds the time of its stage and what happened (`operation.rs`). At its end it
//! becomes one 64-byte [`OperationRecord`] in a ring of the finishing thread (`recorder.rs`), and
//! is counted in the log-linear histograms of its kind and its dataset (`statistics.rs`,
//! `histogram.rs`). Rings take records only while a collector drains them. The clients and datasets
//! that records name by number have their names in two tables (`client_table.rs`,
//! `dataset_table.rs`), and so have names that were asked for in vain (`missing_names.rs`). What
//! layers count besides hangs in a tree `module:instance:name:statistic` (`registry.rs`), which
//! `tarn kstat` prints. Devices have their own set of histograms (`vdev_statistics.rs`), from which
//! `zpool iostat -w -r -q` is drawn; a request to a device has a record of its own
//! (`device_io.rs`).
//!
//! # Invariants
//! - Counters only grow. A rate is the difference of two readings, so nothing is ever reset or
//!   lost.
//! - Nothing here waits or does I/O. Locks are taken when something is registered or read, never
//!   when it is counted.
//! - A full ring drops the newest record and counts the drop: losses are seen.
//!
//! # Knows nothing about
//! the machine: time is handed in as a [`Clock`], a plain function.

mod client_id;
mod client_table;
mod dataset_statistics;
mod dataset_table;
mod device_io;
mod device_table;
mod error_code;
mod histogram;
mod kind;
mod missing_names;
mod operation;
mod pattern;
mod record;
mod recorder;
mod registry;
mod request;
mod served_counts;
mod statistics;
mod usdt;
mod vdev_statistics;

pub use client_id::ClientId;
pub use client_table::{FrontEnd, NamedClient, add_client_alias, client_number, named_clients};
pub use dataset_statistics::{DatasetStatistics, UnlinkedCounts};
pub use dataset_table::{
    DatasetId, DatasetPlace, NamedDataset, dataset_number, named_dataset, named_datasets,
};
pub use device_io::DeviceIo;
pub use device_table::{DeviceNumber, device_number, named_devices};
pub use error_code::ErrorCode;
pub use histogram::{BUCKET_COUNT, Histogram, HistogramSnapshot, SUB_BITS};
pub use kind::{OperationKind, Outcome, Protocol, Stage};
pub use missing_names::{MISSING_NAME, MissingName, missing_name, missing_number};
pub use operation::{Clock, LockWaits, Operation, StageTimer};
pub use record::{OperationRecord, RECORD_BYTES, pack_stage_ns, unpack_stage_ns};
pub use recorder::{Collector, Recorder, RecorderTotals, recorder};
pub use registry::{Counter, Gauge, Instance, Registry, Snapshot, Value, registry};
pub use request::{HolderId, What, Who};
pub use statistics::{KindStatistics, OperationStatistics};
pub use vdev_statistics::{
    FinishedIo, IoKind, IoPriority, IoTotals, VdevStatistics, VdevStatisticsSnapshot,
};
