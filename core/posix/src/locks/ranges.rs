//! The byte-range locks of one file.
//!
//! # Mechanism
//! A list of ranges, each with its owner, ordered by their first bytes. An owner's ranges do not
//! overlap: setting one replaces the owner's ranges there, and joins adjacent ones of the same
//! kind, as POSIX requires of `fcntl`. Files have few locks, so a list is searched from its start.
//!
//! # Invariants
//! - Ranges of one owner are disjoint, and those of one kind do not touch.
//! - An exclusive range overlaps no range of another owner.

use super::{LockKind, LockOwner, LockRange, LockRequest};

/// A range that is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub owner: LockOwner,
    pub range: LockRange,
    pub kind: LockKind,
    pub process: u32,
}

/// All ranges of a file that are locked.
#[derive(Debug, Default)]
pub(super) struct RangeLocks {
    held: Vec<Held>,
}

impl RangeLocks {
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The ranges of others that keep a request from being granted, in their order.
    pub fn conflicts<'a>(
        &'a self,
        request: &'a LockRequest,
        range: LockRange,
    ) -> impl Iterator<Item = &'a Held> + 'a {
        self.held.iter().filter(move |held| {
            held.owner != request.owner
                && held.range.overlaps(range)
                && !held.kind.goes_with(request.kind)
        })
    }

    /// Sets the owner's lock on a range, in place of earlier ones there.
    pub fn set(&mut self, request: &LockRequest, range: LockRange) {
        assert!(
            range.first <= range.last,
            "a range that is locked has bytes"
        );
        debug_assert!(self.conflicts(request, range).next().is_none());
        self.clear(request.owner, range);
        let mut joined = range;
        self.held.retain(|held| {
            let is_joined = held.owner == request.owner
                && held.kind == request.kind
                && held.range.touches(range);
            if is_joined {
                joined.first = joined.first.min(held.range.first);
                joined.last = joined.last.max(held.range.last);
            }
            !is_joined
        });
        let at = (self.held).partition_point(|held| held.range.first <= joined.first);
        let held = Held {
            owner: request.owner,
            range: joined,
            kind: request.kind,
            process: request.process,
        };
        self.held.insert(at, held);
        debug_assert!(self.is_normal_at(request.owner, joined));
    }

    /// Whether locks are in the order of their first bytes, and this range has at most one lock of
    /// the owner.
    fn is_normal_at(&self, owner: LockOwner, range: LockRange) -> bool {
        let own = self.held.iter().filter(|held| held.owner == owner);
        self.held.is_sorted_by_key(|held| held.range.first)
            && own.filter(|held| held.range.overlaps(range)).count() <= 1
    }

    /// Removes the owner's locks on a range.
    pub fn clear(&mut self, owner: LockOwner, range: LockRange) {
        let mut rests = Vec::new();
        self.held.retain(|held| {
            let is_cut = held.owner == owner && held.range.overlaps(range);
            if is_cut {
                let rest = |first, last| Held {
                    range: LockRange { first, last },
                    ..*held
                };
                if held.range.first < range.first {
                    rests.push(rest(held.range.first, range.first - 1));
                }
                if held.range.last > range.last {
                    rests.push(rest(range.last + 1, held.range.last));
                }
            }
            !is_cut
        });
        for rest in rests {
            assert!(
                rest.range.first <= rest.range.last,
                "a range that is locked has bytes"
            );
            let at = (self.held).partition_point(|held| held.range.first <= rest.range.first);
            self.held.insert(at, rest);
        }
        debug_assert!(
            !(self.held.iter()).any(|held| held.owner == owner && held.range.overlaps(range)),
            "no lock of the owner is left in the range"
        );
    }

    /// Removes all ranges of these owners.
    pub fn remove(&mut self, goes: impl Fn(LockOwner) -> bool) {
        self.held.retain(|held| !goes(held.owner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::LockScope;
    use proptest::prelude::*;
    use tarn_probe::HolderId;

    const BYTES: u64 = 24;
    const OWNERS: u64 = 3;

    fn owner(number: u64) -> LockOwner {
        LockOwner {
            holder: HolderId(1 + number % 2),
            number,
        }
    }

    /// For each byte, what each owner has of it.
    type Model = [[Option<LockKind>; OWNERS as usize]; BYTES as usize];

    fn index(number: u64) -> usize {
        usize::try_from(number).unwrap()
    }

    proptest! {
        #[test]
        fn each_byte_is_locked_as_by_a_table_of_bytes(
            steps in prop::collection::vec((0..OWNERS, 0..BYTES, 0..BYTES, 0..3_u8), 1..120)
        ) {
            let (mut locks, mut model) = (RangeLocks::default(), Model::default());
            for (number, one, other, what) in steps {
                let range = LockRange { first: one.min(other), last: one.max(other) };
                let kind = if what == 0 { LockKind::Shared } else { LockKind::Exclusive };
                let request = LockRequest {
                    owner: owner(number),
                    scope: LockScope::Range(range),
                    kind,
                    process: 7,
                };
                let bytes = index(range.first)..=index(range.last);
                if what == 2 {
                    locks.clear(owner(number), range);
                    model[bytes].iter_mut().for_each(|byte| byte[index(number)] = None);
                } else {
                    let is_free = model[bytes.clone()].iter().all(|byte| {
                        (0..OWNERS).filter(|other| *other != number).all(|other| {
                            byte[index(other)].is_none_or(|other| other.goes_with(kind))
                        })
                    });
                    prop_assert_eq!(locks.conflicts(&request, range).next().is_none(), is_free);
                    if is_free {
                        locks.set(&request, range);
                        model[bytes].iter_mut().for_each(|byte| byte[index(number)] = Some(kind));
                    }
                }
                for (at, byte) in (0..).zip(&model) {
                    for number in 0..OWNERS {
                        let here: Vec<&Held> = locks.held.iter()
                            .filter(|held| held.owner == owner(number))
                            .filter(|held| held.range.first <= at && at <= held.range.last)
                            .collect();
                        prop_assert!(here.len() <= 1);
                        prop_assert_eq!(here.first().map(|held| held.kind), byte[index(number)]);
                    }
                }
                let firsts: Vec<u64> = locks.held.iter().map(|held| held.range.first).collect();
                prop_assert!(firsts.is_sorted());
                for (at, held) in locks.held.iter().enumerate() {
                    let is_apart = |other: &Held| other.owner != held.owner
                        || other.kind != held.kind
                        || !other.range.touches(held.range);
                    prop_assert!(locks.held[at + 1..].iter().all(is_apart));
                }
            }
        }
    }
}
