//! The locks of this layer, in the order in which they are taken.

use tarn_host::lock::Rank;
use tarn_host::ranks::CACHE;

/// The readers being watched.
pub(crate) const PREFETCH: Rank = Rank::new(CACHE, "cache prefetch");
/// The queue of the workers.
pub(crate) const QUEUE: Rank = Rank::new(CACHE + 1, "cache queue");
/// How much of the budget is lent. Shards are told under it.
pub(crate) const LENT: Rank = Rank::new(CACHE + 2, "cache lent");
/// A shard.
pub(crate) const SHARD: Rank = Rank::new(CACHE + 3, "cache shard");
/// Blocks as they were before they were written in place.
pub(crate) const REWRITTEN: Rank = Rank::new(CACHE + 5, "cache rewritten");
/// A read under way.
pub(crate) const FLIGHT: Rank = Rank::new(CACHE + 4, "cache flight");
/// A round of feeding the second level, or a device that joins or leaves it.
pub(crate) const FEEDING: Rank = Rank::new(CACHE, "cache feeding").across_waits();
/// What is on the devices of the second level.
pub(crate) const SECOND_INDEX: Rank = Rank::new(CACHE + 6, "cache second level");
/// Blocks that wait to be written there.
pub(crate) const OFFERED: Rank = Rank::new(CACHE + 6, "cache offered");
/// What statistics have of the second level.
pub(crate) const PUBLISHED: Rank = Rank::new(CACHE + 6, "cache second level statistics");
/// Which object sets use the second level.
pub(crate) const ELIGIBILITY: Rank = Rank::new(CACHE + 6, "cache eligibility");
/// The thread that feeds the second level.
pub(crate) const FEEDER: Rank = Rank::new(CACHE, "cache feeder").across_waits();
