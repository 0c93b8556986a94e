//! The order in which this crate takes its locks.
//!
//! Those of ZAPs and of the allocator of object numbers may be held across a wait for a device,
//! since they serialise long operations; all others are short, and none of them is held when
//! `cache` is called.

use tarn_host::lock::Rank;
use tarn_host::ranks::OBJECT as FIRST;

/// One ZAP: one change at a time, or many that read.
pub(crate) const ZAP: Rank = Rank::new(FIRST, "zap").multi().across_waits();
/// Giving out object numbers, one at a time, however long the dnodes take to read.
pub(crate) const NUMBERS: Rank = Rank::new(FIRST + 10, "object numbers").across_waits();
/// The state of one object.
pub(crate) const OBJECT: Rank = Rank::new(FIRST + 20, "object");
/// What is kept with one object for others.
pub(crate) const COMPANION: Rank = Rank::new(FIRST + 30, "object companion");
/// The policy of an object set.
pub(crate) const POLICY: Rank = Rank::new(FIRST + 40, "object set policy");
/// Numbers taken or freed, and not stored yet.
pub(crate) const TAKEN: Rank = Rank::new(FIRST + 50, "taken object numbers");
/// One part of the table of objects.
pub(crate) const TABLE: Rank = Rank::new(FIRST + 60, "object table");
/// Objects kept though they are not used.
pub(crate) const RECENT: Rank = Rank::new(FIRST + 70, "recent objects");
/// The dirty objects of an object set.
pub(crate) const DIRTY: Rank = Rank::new(FIRST + 80, "dirty objects");
/// The head of an object set.
pub(crate) const HEAD: Rank = Rank::new(FIRST + 90, "object set head");
/// How blocks of dnodes are to be sealed.
pub(crate) const SEALING: Rank = Rank::new(FIRST + 95, "sealing of dnodes");
/// The blocks of zeros of a pool.
pub(crate) const ZEROS: Rank = Rank::new(FIRST + 100, "zeros");
/// What groups of a set take that are not stored yet.
pub(crate) const IN_FLIGHT: Rank = Rank::new(FIRST + 105, "what is in flight");
/// The transaction groups of a pool.
pub(crate) const TXG: Rank = Rank::new(FIRST + 110, "txg");
