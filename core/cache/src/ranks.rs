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
