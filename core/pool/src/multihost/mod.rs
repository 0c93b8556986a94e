//! Multihost (MMP): one host at a time uses a pool whose devices several hosts reach.
//!
//! # Problem
//! Two hosts that write a pool destroy it. The host in the labels does not tell whether it is
//! alive, and `zpool import -f` says that it is not, wrongly at times.
//!
//! # Mechanism
//! A host that uses a pool with the property `multihost` writes a [`heartbeat`] every interval, as
//! OpenZFS does: the uberblock of the newest txg, with another time or sequence number. An import
//! [`watch`]es the pool first, for at least twice as long as its host may be silent. Then it
//! [`claim`]s the pool: it writes a heartbeat of its own, waits once more, and goes on only if that
//! is still the newest uberblock. So of two hosts that import at the same time at most one goes on.
//! No option of `zpool import` skips that.
//!
//! A host must stop before another may begin. Its devices have a lease
//! ([`WriteLease`](tarn_host::WriteLease)), which a heartbeat extends from the moment in which its
//! write began, for as long as the host may be silent. When no heartbeat succeeds in that time,
//! nothing is written any more, and the pool is suspended. `zpool clear` watches and claims it
//! anew.
//!
//! # How long it takes
//! The interval and the number of missed ones after which the lease ends are properties of the
//! pool, [`INTERVAL`] (100 ms to 100 s, 1 s unless set) and [`FAIL_INTERVALS`] (2 to 100, 10 unless
//! set); uberblocks have both. Let `lease` be their product. A watch takes twice the lease and up
//! to a quarter more, a claim half a lease: so a takeover takes up to three leases, 3 s with
//! intervals of 100 ms. Between the end of one host's lease and the first write of another host,
//! OpenZFS or Tarn, is at least one lease: a request that was checked in time may be delayed that
//! long on its way to the device.
//!
//! # Invariants
//! - A host writes to the devices of a pool with `multihost` only while its lease is valid, but for
//!   claims, which change nothing that is stored.
//! - The lease of a host ends before another host that watched the pool writes to it.

pub(crate) mod claim;
pub(crate) mod heartbeat;
pub mod settings;
pub(crate) mod show;
pub(crate) mod take_over;
pub(crate) mod watch;

pub use settings::{FAIL_INTERVALS, INTERVAL, PROPERTY};
