//! Charges space to directories: a change of one changes every ancestor, as far as no reservation
//! covers it.
//!
//! # Mechanism
//! A directory's `used` changes by the allocated or freed bytes. Its parent counts the directory as
//! the larger of its used and its reserved space, so the parent's `used` changes by the difference
//! of that; and so on up to the root. In the parent the change is split: `children` by the child's
//! used space, and `child_reservations` by the rest. Sizes before and after compression are added
//! unchanged.
//!
//! # Invariants
//! - The five parts of a directory add up to its `used`.
//! - No part goes below zero, unless the pool came with wrong sums.

use crate::error::DatasetError;
use crate::stored_tree::DEPTH_MAX;
use crate::writing::Writing;
use tarn_block::BlockIo;
use tarn_ondisk as ondisk;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::dataset_dir::{DatasetDirectory, UsedBy};
use tarn_ondisk::units::{AllocatedSize, LogicalSize, ObjectId, PhysicalSize};

/// A change of space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SpaceChange {
    /// Deflated bytes allocated.
    pub(crate) used: i128,
    /// Bytes after compression.
    pub(crate) compressed: i128,
    /// Bytes before compression.
    pub(crate) uncompressed: i128,
}

impl SpaceChange {
    /// A change of `used` alone: of reservations.
    pub(crate) fn of_used(used: i128) -> SpaceChange {
        SpaceChange {
            used,
            ..SpaceChange::default()
        }
    }

    /// All that a directory uses.
    pub(crate) fn all_of(directory: &DatasetDirectory) -> SpaceChange {
        SpaceChange {
            used: i128::from(directory.used.get()),
            compressed: i128::from(directory.compressed.get()),
            uncompressed: i128::from(directory.uncompressed.get()),
        }
    }

    /// What a block takes.
    pub(crate) fn of_block(io: &BlockIo, pointer: &BlockPointer) -> SpaceChange {
        SpaceChange {
            used: i128::from(io.deflated_size(pointer).get()),
            compressed: i128::from(pointer.physical_size().get()),
            uncompressed: i128::from(pointer.uncompressed_size()),
        }
    }

    /// This change and another.
    pub(crate) fn add(&mut self, change: SpaceChange) {
        self.used += change.used;
        self.compressed += change.compressed;
        self.uncompressed += change.uncompressed;
    }

    /// The opposite change.
    pub(crate) fn negated(self) -> SpaceChange {
        SpaceChange {
            used: -self.used,
            compressed: -self.compressed,
            uncompressed: -self.uncompressed,
        }
    }
}

/// A part of what a directory uses.
#[doc(alias = "dd_used_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// What the head alone refers to.
    Head,
    /// What snapshots hold.
    Snapshots,
    /// What children use.
    Children,
    /// What children reserve beyond that.
    ChildReservations,
    /// What the head's refreservation sets aside.
    RefReservation,
}

/// By how much the parent's `used` changes when a directory's does.
#[doc(alias = "parent_delta")]
pub(crate) fn felt_by_parent(directory: &DatasetDirectory, change: i128) -> i128 {
    let used = i128::from(directory.used.get());
    let reserved = i128::from(directory.reservation.get());
    let felt = (used + change).max(reserved) - used.max(reserved);
    assert!(
        felt.abs() <= change.abs() && felt.signum() * change.signum() >= 0,
        "a reservation takes from a change, and never turns it"
    );
    felt
}

/// Charges a directory and its ancestors.
#[doc(alias = "dsl_dir_diduse_space")]
pub(crate) fn charge(
    writing: Writing<'_>,
    directory: ObjectId,
    part: Part,
    change: SpaceChange,
) -> Result<(), DatasetError> {
    charge_parts(writing, directory, change, &[(part, change.used)])
}

/// Charges a directory and its ancestors, where the change moves something between two parts: `to`
/// grows by `moved`, and `from` takes the rest of the change.
#[doc(alias = "dsl_dir_diduse_transfer_space")]
pub(crate) fn charge_moving(
    writing: Writing<'_>,
    directory: ObjectId,
    change: SpaceChange,
    moved: i128,
    from: Part,
    to: Part,
) -> Result<(), DatasetError> {
    assert_ne!(from, to, "space moves between two parts");
    let parts = [(from, change.used - moved), (to, moved)];
    charge_parts(writing, directory, change, &parts)
}

/// Moves space from one part of a directory to another; its ancestors feel nothing.
#[doc(alias = "dsl_dir_transfer_space")]
pub(crate) fn move_between(
    writing: Writing<'_>,
    directory: ObjectId,
    moved: i128,
    from: Part,
    to: Part,
) -> Result<(), DatasetError> {
    assert_ne!(from, to, "space moves between two parts");
    if moved == 0 {
        return Ok(());
    }
    writing.change(directory, |stored: &mut DatasetDirectory| {
        add_to_parts(stored, &[(from, -moved), (to, moved)]);
    })?;
    Ok(())
}

fn charge_parts(
    writing: Writing<'_>,
    directory: ObjectId,
    change: SpaceChange,
    parts: &[(Part, i128)],
) -> Result<(), DatasetError> {
    let (mut id, mut change) = (directory, change);
    let mut parts = parts.to_vec();
    for _ in 0..DEPTH_MAX {
        assert_eq!(
            parts.iter().map(|(_, part)| part).sum::<i128>(),
            change.used,
            "the parts of a change are the change"
        );
        let mut felt = 0;
        let stored = writing.change(id, |stored: &mut DatasetDirectory| {
            felt = felt_by_parent(stored, change.used);
            add(stored, change);
            add_to_parts(stored, &parts);
        })?;
        if stored.parent.is_zero() {
            return Ok(());
        }
        parts = vec![
            (Part::ChildReservations, felt - change.used),
            (Part::Children, change.used),
        ];
        change.used = felt;
        id = stored.parent;
    }
    Err(DatasetError::Inconsistent {
        object: directory,
        why: "its chain of parents does not end",
    })
}

fn add(stored: &mut DatasetDirectory, change: SpaceChange) {
    stored.used = AllocatedSize::from(sum(stored.used.get(), change.used));
    stored.compressed = PhysicalSize::from(sum(stored.compressed.get(), change.compressed));
    stored.uncompressed = LogicalSize::from(sum(stored.uncompressed.get(), change.uncompressed));
}

fn add_to_parts(stored: &mut DatasetDirectory, parts: &[(Part, i128)]) {
    if stored.flags & ondisk::dataset_dir::DatasetDirectory::HAS_USED_BREAKDOWN == 0 {
        return;
    }
    for (part, change) in parts {
        let size = part_of(&mut stored.used_by, *part);
        *size = AllocatedSize::from(sum(size.get(), *change));
    }
}

fn part_of(used_by: &mut UsedBy, part: Part) -> &mut AllocatedSize {
    match part {
        Part::Head => &mut used_by.head,
        Part::Snapshots => &mut used_by.snapshots,
        Part::Children => &mut used_by.children,
        Part::ChildReservations => &mut used_by.child_reservations,
        Part::RefReservation => &mut used_by.ref_reservation,
    }
}

/// A sum of space. A pool may come with wrong sums, of another program or a damaged disk: they stay
/// wrong, and nothing stops for them. Ours are added up by the tests, after each step and after
/// each cut of power.
fn sum(size: u64, change: i128) -> u64 {
    let sum = i128::from(size) + change;
    u64::try_from(sum.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_pays_before_the_parent_does() {
        let directory = DatasetDirectory {
            used: AllocatedSize::from(100),
            reservation: AllocatedSize::from(150),
            ..DatasetDirectory::default()
        };
        assert_eq!(felt_by_parent(&directory, 50), 0);
        assert_eq!(felt_by_parent(&directory, 70), 20);
        assert_eq!(felt_by_parent(&directory, -100), 0);
    }

    #[test]
    fn without_a_reservation_the_parent_feels_everything() {
        let directory = DatasetDirectory {
            used: AllocatedSize::from(100),
            ..DatasetDirectory::default()
        };
        assert_eq!(felt_by_parent(&directory, 50), 50);
        assert_eq!(felt_by_parent(&directory, -30), -30);
    }
}
