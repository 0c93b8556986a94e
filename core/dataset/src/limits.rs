//! Whether more may be written: quotas, reservations, and what the pool has left.
//!
//! # Problem
//! How much room a write takes is known when its group is stored, seconds after the writer was told that it went well. By then it
//! is too late to refuse, so a writer is asked for before, by estimate.
//!
//! # Mechanism
//! An estimate is the worst case: what is written, times what copies, parity, pointers and gang blocks may make of it
//! (`inflation`). Each directory keeps the sum of its estimates for groups not yet stored, in memory. Who writes the same place over and over
//! asks each time, so the sum counts for no more than the worst case of what is dirty in the pool, and of what may be asked for and not yet dirty. At the root,
//! where a wrong estimate would cost the pool and not a quota, the dirty blocks in memory are a second estimate. A
//! writer asks for leave on the way from its dataset's directory up to the root, as far as no reservation pays for it:
//!
//! - what is *stored* is over a quota: refused, once all that was changed before he asked is stored: it may have been removed;
//! - what is stored and what is in flight is over the quota by more than a 32nd: the writer waits for the next group, after which
//!   estimates have become facts, and asks again;
//! - otherwise it may write. So quotas are exceeded by a little, and never by what was not asked for.
//!
//! Where there is plenty of room, a writer is given more leave than he asked for, and those who come after him take
//! from that without a question, as long as the group is open.
//!
//! A file system's `refquota` is asked first, without that margin. At the root stands the pool: its size less slop, less
//! what was freed and cannot be used yet.
//!
//! What a `refreservation` holds free is only for the head itself; for everyone else it counts as used.
//!
//! # Invariants
//! - Estimates of a group are dropped when the group is stored, not before: between, space may be counted twice, never not at
//!   all.
//! - Nobody who asks holds a transaction: he may have to wait for his own group.

use crate::error::DatasetError;
use crate::namespace::{DEPTH_MAX, Namespace};
use crate::properties::inherit::number_in;
use crate::stored::Reading;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_host::lock::Mutex;
use tarn_object::AssignError;
use tarn_ondisk as ondisk;
use tarn_ondisk::dataset_dir::DatasetDirectory;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::Operation;

/// What a byte may take on devices without parity, at worst: three copies, twice over for blocks of pointers and
/// dnodes.
const INFLATION: u64 = 6;

/// What parity may add to that: a raidz that stores single sectors with three of parity.
const PARITY_INFLATION: u64 = 4;

/// What a byte of a dirty block may take, at worst. A guess: most blocks shrink.
const DIRTY_INFLATION: u64 = 2;

/// What writers have leave for and have not written yet, at most: 64 threads of front ends, a MiB each.
const UNDER_WAY_BYTES: u64 = 64 << 20;

/// The deflate ratio of a vdev all of whose room is data.
const WITHOUT_PARITY: u64 = 512;

/// Estimates may exceed a quota by this part of it, as a power of two.
const MARGIN_SHIFT: u32 = 5;

/// So much leave is given beyond what was asked for, where there is room for [`ADVANCE_PART`] times as much.
const ADVANCE_BYTES: u64 = 1 << 20;

/// See [`ADVANCE_BYTES`].
const ADVANCE_PART: u64 = 16;

/// How often a writer waits for a group before he is refused. A guess: others may use up again what he waited for.
const WAITS_MAX: usize = 64;

/// Why no more may be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdmitRefusal {
    /// A quota of the dataset or of one above it leaves nothing (`EDQUOT`).
    #[error("the quota of the dataset is used up")]
    QuotaExceeded,
    /// The pool has nothing left (`ENOSPC`).
    #[error("no space left in the pool")]
    NoSpace,
    /// The pool does not store anything now.
    #[error(transparent)]
    Stopped(#[from] AssignError),
    /// The dataset could not be read (`EIO`).
    #[error(transparent)]
    Dataset(#[from] DatasetError),
}

/// What may be about to be written, by directory and group.
pub(crate) struct InFlight {
    estimates: Mutex<BTreeMap<ObjectId, BTreeMap<Txg, u64>>>,
    /// Leave that was given to heads and is not taken yet, and the group it is for. In bytes as writers ask for them.
    advances: Mutex<BTreeMap<ObjectId, (Txg, u64)>>,
    /// What a byte may take, and how often the devices had changed when that was found out, plus one.
    inflation: AtomicU64,
    inflation_known_at: AtomicU64,
}

impl InFlight {
    /// Nothing.
    pub(crate) fn new() -> InFlight {
        InFlight {
            estimates: Mutex::new(crate::ranks::IN_FLIGHT, BTreeMap::new()),
            advances: Mutex::new(crate::ranks::ADVANCES, BTreeMap::new()),
            inflation: AtomicU64::new(0),
            inflation_known_at: AtomicU64::new(0),
        }
    }

    /// What is estimated for a directory in groups after the one that is stored.
    fn of(&self, directory: ObjectId, stored: Txg) -> u64 {
        let mut table = self.estimates.lock();
        let Some(groups) = table.get_mut(&directory) else {
            return 0;
        };
        groups.retain(|txg, _| *txg > stored);
        if groups.is_empty() {
            table.remove(&directory);
            return 0;
        }
        groups
            .values()
            .fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Takes from what the head was given in advance. Says whether that sufficed.
    fn take_advance(&self, head: ObjectId, open: Txg, bytes: u64) -> bool {
        let mut advances = self.advances.lock();
        match advances.get_mut(&head) {
            Some((txg, left)) if *txg == open && *left >= bytes => {
                *left -= bytes;
                true
            }
            _ => false,
        }
    }

    /// Leave for later writers to this head. What was left of an earlier one is forgotten: it stays estimated.
    fn give_advance(&self, head: ObjectId, open: Txg, bytes: u64) {
        let mut advances = self.advances.lock();
        advances.retain(|_, (txg, _)| *txg == open);
        advances.insert(head, (open, bytes));
    }

    fn add(&self, directory: ObjectId, txg: Txg, bytes: u64) {
        let mut table = self.estimates.lock();
        let estimate = table.entry(directory).or_default().entry(txg).or_default();
        *estimate = estimate.saturating_add(bytes);
    }
}

/// What is asked for.
struct Asking {
    head: ObjectId,
    bytes: u64,
    inflation: u64,
    /// So much more, where there is plenty of room.
    advance: u64,
    /// The group that was open when it was first asked.
    since: Txg,
}

/// What comes of asking once.
enum Answer {
    Yes,
    /// Not before what is in flight is stored.
    Later,
}

impl Namespace {
    /// Asks whether the head of this number may be given so many more bytes in the open group. May wait for a group
    /// to be stored.
    ///
    /// # Errors
    /// When a quota or the pool leaves no room.
    #[doc(alias = "dsl_dir_tempreserve_space")]
    pub fn admit(
        &self,
        head: ObjectId,
        bytes: u64,
        operation: &Operation,
    ) -> Result<(), AdmitRefusal> {
        if bytes == 0 {
            return Ok(());
        }
        let txgs = &self.mos().env().txgs;
        let since = txgs.open_txg();
        if self.in_flight().take_advance(head, since, bytes) {
            return Ok(());
        }
        let inflation = self.inflation();
        let asking = Asking {
            head,
            bytes: bytes.saturating_mul(inflation),
            inflation,
            advance: ADVANCE_BYTES * inflation,
            since,
        };
        for _ in 0..WAITS_MAX {
            let open = txgs.open_txg();
            match self.ask(&asking, open, operation)? {
                Answer::Yes => return Ok(()),
                Answer::Later => txgs.wait_stored(txgs.stored_txg().next(), operation)?,
            }
        }
        Err(AdmitRefusal::NoSpace)
    }

    fn ask(
        &self,
        asking: &Asking,
        open: Txg,
        operation: &Operation,
    ) -> Result<Answer, AdmitRefusal> {
        let reading = Reading {
            set: self.mos(),
            operation,
        };
        let txgs = &self.mos().env().txgs;
        let stored_txg = txgs.stored_txg();
        let in_flight_max = txgs
            .dirty_bytes()
            .saturating_add(UNDER_WAY_BYTES)
            .saturating_mul(asking.inflation);
        let dataset: ondisk::dataset::Dataset = reading.bonus_of(asking.head)?;
        let mut granted = Vec::new();
        let mut has_plenty = true;
        let (mut id, mut wanted) = (dataset.directory, asking.bytes);
        let mut of_head = Some(&dataset);
        for _ in 0..DEPTH_MAX {
            let directory: DatasetDirectory = reading.bonus_of(id)?;
            let in_flight = self.in_flight().of(id, stored_txg).min(in_flight_max);
            let mut used = directory.used.get();
            let mut paid = 0;
            if let Some(dataset) = of_head.take() {
                let asked = HeadLimits::read(reading, dataset, &directory)?;
                // What a reservation pays is counted to the byte.
                has_plenty = asked.quota == 0 && asked.reserved == 0;
                if let Some(answer) = asked.refuse(in_flight) {
                    return answer.or_else(|refusal| self.last_word(asking, refusal));
                }
                let unused = asked.reserved.saturating_sub(asked.unique);
                used = used.saturating_sub(unused);
                paid = asked.paid_by_reservation(wanted, in_flight);
            }
            if let Some(answer) = self.over_limit(&directory, used, in_flight) {
                return answer.or_else(|refusal| self.last_word(asking, refusal));
            }
            has_plenty &= directory.reservation.get() == 0
                && self.has_plenty(&directory, used, in_flight, asking.advance);
            granted.push((id, wanted));
            if directory.parent.is_zero() {
                break;
            }
            let before = u128::from(used) + u128::from(in_flight);
            let after = before + u128::from(wanted - paid);
            let reserved = u128::from(directory.reservation.get());
            let felt = after.max(reserved) - before.max(reserved);
            if felt == 0 {
                break;
            }
            wanted = u64::try_from(felt).unwrap_or(u64::MAX);
            id = directory.parent;
        }
        let more = if has_plenty { asking.advance } else { 0 };
        for (id, bytes) in granted {
            self.in_flight().add(id, open, bytes.saturating_add(more));
        }
        if has_plenty {
            self.in_flight()
                .give_advance(asking.head, open, ADVANCE_BYTES);
        }
        Ok(Answer::Yes)
    }

    /// Whether a directory has room for much more than is given in advance.
    fn has_plenty(
        &self,
        directory: &DatasetDirectory,
        used: u64,
        in_flight: u64,
        advance: u64,
    ) -> bool {
        let mut limit = match directory.quota.get() {
            0 => u64::MAX,
            quota => quota,
        };
        if directory.parent.is_zero() {
            let room = self.adjusted_bytes().saturating_sub(self.deferred_bytes());
            limit = limit.min(room);
        }
        let taken = used.saturating_add(in_flight);
        limit.saturating_sub(taken) > advance.saturating_mul(ADVANCE_PART)
    }

    /// Puts a refusal off until all that was changed before the question is stored: a file may have been removed, and its
    /// room is counted until then. What others dirty in the dataset's pool counts for the pool only.
    fn last_word(&self, asking: &Asking, refusal: AdmitRefusal) -> Result<Answer, AdmitRefusal> {
        let txgs = &self.mos().env().txgs;
        let mut txg = txgs.stored_txg().next();
        while txg <= asking.since {
            let sets = txgs.dirty_sets(txg);
            let is_concerned = match refusal {
                AdmitRefusal::NoSpace => !sets.is_empty(),
                _ => sets.iter().any(|set| set.id() == asking.head),
            };
            if is_concerned {
                return Ok(Answer::Later);
            }
            txg = txg.next();
        }
        Err(refusal)
    }

    /// The answer of a directory that has no room, for now or at all.
    fn over_limit(
        &self,
        directory: &DatasetDirectory,
        used: u64,
        in_flight: u64,
    ) -> Option<Result<Answer, AdmitRefusal>> {
        let mut limit = match directory.quota.get() {
            0 => u64::MAX,
            quota => quota,
        };
        let mut deferred = None;
        let mut in_flight = in_flight;
        if directory.parent.is_zero() {
            let dirty = self.mos().env().txgs.dirty_bytes();
            in_flight = in_flight.max(dirty.saturating_mul(DIRTY_INFLATION));
            let is_near = used.saturating_add(in_flight) >= self.adjusted_bytes() / 2;
            let freed = if is_near { self.deferred_bytes() } else { 0 };
            let available = self.adjusted_bytes().saturating_sub(freed);
            if available < limit {
                limit = available;
                deferred = Some(freed);
            }
        }
        if limit == u64::MAX {
            return None;
        }
        if used >= limit {
            return Some(match deferred {
                Some(freed) if used - limit < freed => Ok(Answer::Later),
                Some(_) => Err(AdmitRefusal::NoSpace),
                None => Err(AdmitRefusal::QuotaExceeded),
            });
        }
        let margin = limit >> MARGIN_SHIFT;
        let is_tight = used.saturating_add(in_flight) >= limit.saturating_add(margin);
        is_tight.then_some(Ok(Answer::Later))
    }

    /// What a byte may take on the devices, at worst.
    #[doc(alias = "spa_asize_inflation")]
    fn inflation(&self) -> u64 {
        let vdevs = self.mos().env().cache.io().vdevs();
        let (known, changes) = (self.in_flight(), vdevs.change_count() + 1);
        if known.inflation_known_at.load(Ordering::Acquire) == changes {
            return known.inflation.load(Ordering::Relaxed);
        }
        let mut tops = vdevs.top_levels().into_iter();
        let inflation = match tops.any(|top| top.deflate_ratio < WITHOUT_PARITY) {
            true => INFLATION * PARITY_INFLATION,
            false => INFLATION,
        };
        known.inflation.store(inflation, Ordering::Relaxed);
        known.inflation_known_at.store(changes, Ordering::Release);
        inflation
    }

    /// What was freed, and cannot be used before more groups are stored.
    fn deferred_bytes(&self) -> u64 {
        self.mos().env().cache.io().deferred_size().get()
    }
}

/// The limits of a head itself.
struct HeadLimits {
    referenced: u64,
    unique: u64,
    quota: u64,
    reserved: u64,
}

impl HeadLimits {
    fn read(
        reading: Reading<'_>,
        dataset: &ondisk::dataset::Dataset,
        directory: &DatasetDirectory,
    ) -> Result<HeadLimits, DatasetError> {
        let number = |name| number_in(reading, directory.properties, name);
        Ok(HeadLimits {
            referenced: dataset.referenced.get(),
            unique: dataset.unique.get(),
            quota: number("refquota")?.unwrap_or(0),
            reserved: number("refreservation")?.unwrap_or(0),
        })
    }

    /// The answer of a refquota that leaves no room.
    fn refuse(&self, in_flight: u64) -> Option<Result<Answer, AdmitRefusal>> {
        if self.quota == 0 || self.referenced.saturating_add(in_flight) < self.quota {
            return None;
        }
        let may_change = in_flight > 0 || self.referenced < self.quota;
        Some(if may_change {
            Ok(Answer::Later)
        } else {
            Err(AdmitRefusal::QuotaExceeded)
        })
    }

    /// How much of what is wanted comes out of the refreservation.
    fn paid_by_reservation(&self, wanted: u64, in_flight: u64) -> u64 {
        if self.reserved <= self.unique {
            return 0;
        }
        let after = self
            .unique
            .saturating_add(wanted)
            .saturating_add(in_flight)
            .max(self.reserved);
        let beyond = after - self.unique.max(self.reserved);
        wanted - wanted.min(beyond)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(referenced: u64, quota: u64, reserved: u64) -> HeadLimits {
        HeadLimits {
            referenced,
            unique: referenced,
            quota,
            reserved,
        }
    }

    #[test]
    fn a_refquota_refuses_when_what_is_stored_reaches_it() {
        assert!(head(99, 100, 0).refuse(0).is_none());
        assert!(matches!(
            head(100, 100, 0).refuse(0),
            Some(Err(AdmitRefusal::QuotaExceeded))
        ));
    }

    #[test]
    fn a_refquota_waits_for_what_is_in_flight() {
        assert!(matches!(
            head(50, 100, 0).refuse(60),
            Some(Ok(Answer::Later))
        ));
        assert!(matches!(
            head(100, 100, 0).refuse(1),
            Some(Ok(Answer::Later))
        ));
    }

    #[test]
    fn a_refreservation_pays_for_what_it_holds_free() {
        assert_eq!(head(10, 0, 100).paid_by_reservation(50, 0), 50);
        assert_eq!(head(10, 0, 100).paid_by_reservation(100, 0), 90);
        assert_eq!(head(10, 0, 100).paid_by_reservation(50, 60), 30);
        assert_eq!(head(100, 0, 100).paid_by_reservation(50, 0), 0);
    }

    #[test]
    fn estimates_go_with_their_group() {
        let in_flight = InFlight::new();
        let directory = ObjectId::new(5);
        in_flight.add(directory, Txg::from(7), 10);
        in_flight.add(directory, Txg::from(8), 20);
        assert_eq!(in_flight.of(directory, Txg::from(6)), 30);
        assert_eq!(in_flight.of(directory, Txg::from(7)), 20);
        assert_eq!(in_flight.of(directory, Txg::from(8)), 0);
    }
}
