//! Adding up what directories of datasets say they use.
//!
//! # Invariants
//! Of a pool that only we wrote, in every group that is stored:
//! - the five parts of what a directory uses add up to its `used`;
//! - `children` is what its children use, and `child_reservations` what they reserve beyond that.

use tarn_engine::inspect::{InspectError, Inspection};
use tarn_ondisk::dataset_dir::DatasetDirectory;
use tarn_ondisk::pool_directory::ROOT_DATASET;
use tarn_ondisk::units::ObjectId;

/// What does not add up, from the root of the datasets downward.
///
/// # Errors
/// A directory that cannot be read.
pub fn wrong_sums(inspection: &Inspection) -> Result<Vec<String>, InspectError> {
    let directory = inspection.directory();
    let mut findings = Vec::new();
    let mut left = vec![("root".to_string(), directory.require(ROOT_DATASET)?)];
    while let Some((name, id)) = left.pop() {
        let stored: DatasetDirectory = directory.bonus(id)?;
        let (mut children, mut reserved) = (0, 0);
        for (child, value) in directory.entries(stored.children)? {
            let id = ObjectId::new(value.to_words().first().copied().unwrap_or(0));
            let below: DatasetDirectory = directory.bonus(id)?;
            let used = below.used.get();
            children += used;
            reserved += below.reservation.get().max(used) - used;
            left.push((format!("{name}/{child}"), id));
        }
        let wrong = wrong_fields(&stored, children, reserved);
        findings.extend(
            wrong
                .into_iter()
                .map(|what| format!("directory {id} ({name}): {what}")),
        );
    }
    Ok(findings)
}

/// What does not add up in a directory whose children use so much, and reserve so much beyond that.
fn wrong_fields(stored: &DatasetDirectory, children: u64, reserved: u64) -> Vec<String> {
    if stored.flags & DatasetDirectory::HAS_USED_BREAKDOWN == 0 {
        return Vec::new();
    }
    let by = stored.used_by;
    let parts = [
        by.head,
        by.snapshots,
        by.children,
        by.child_reservations,
        by.ref_reservation,
    ];
    let sum: u64 = parts.iter().map(|part| part.get()).sum();
    let compared = [
        ("the sum of its parts", sum, "used", stored.used),
        ("what its children use", children, "children", by.children),
        (
            "what they reserve beyond that",
            reserved,
            "child_reservations",
            by.child_reservations,
        ),
    ];
    let wrong = compared
        .into_iter()
        .filter(|(_, sum, _, said)| *sum != said.get());
    wrong
        .map(|(what, sum, field, said)| format!("{what} is {sum}, and it says of {field} {said}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_ondisk::dataset_dir::UsedBy;
    use tarn_ondisk::units::AllocatedSize;

    #[test]
    fn each_field_that_is_off_is_found() {
        let size = AllocatedSize::new;
        let right = DatasetDirectory {
            flags: DatasetDirectory::HAS_USED_BREAKDOWN,
            used: size(31),
            used_by: UsedBy {
                head: size(1),
                snapshots: size(2),
                children: size(4),
                child_reservations: size(8),
                ref_reservation: size(16),
            },
            ..DatasetDirectory::default()
        };
        assert_eq!(wrong_fields(&right, 4, 8), Vec::<String>::new());
        let unmeasured = DatasetDirectory {
            flags: 0,
            used: size(7),
            ..right
        };
        assert_eq!(wrong_fields(&unmeasured, 5, 9), Vec::<String>::new());

        let mut wrong = right;
        wrong.used = size(30);
        let expected = "the sum of its parts is 31, and it says of used 30";
        assert_eq!(wrong_fields(&wrong, 4, 8), [expected]);
        // What children use and reserve is known beside: two fields that are off the other way are
        // found.
        wrong = right;
        wrong.used_by.children = size(5);
        wrong.used_by.child_reservations = size(7);
        assert_eq!(wrong_fields(&wrong, 4, 8).len(), 2);
        wrong = right;
        wrong.used_by.head = size(2);
        assert_eq!(wrong_fields(&wrong, 4, 8).len(), 1);
        assert_eq!(wrong_fields(&right, 3, 8).len(), 1);
    }
}
