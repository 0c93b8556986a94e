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
        if stored.flags & DatasetDirectory::HAS_USED_BREAKDOWN == 0 {
            continue;
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
        for (what, sum, field, said) in compared {
            if sum != said.get() {
                findings.push(format!(
                    "directory {id} ({name}): {what} is {sum}, and it says of {field} {said}"
                ));
            }
        }
    }
    Ok(findings)
}
