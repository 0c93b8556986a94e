//! The table of temporary holds, which an import releases.

use crate::error::DatasetError;
use crate::namespace::View;
use crate::task::TaskContext;
use tarn_object::zap::ZapValue;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::{POOL_DIRECTORY, TEMPORARY_HOLDS};
use tarn_ondisk::units::ObjectId;

/// The table of temporary holds, once there was one.
pub(super) fn table(view: View<'_>) -> Result<Option<ObjectId>, DatasetError> {
    let found = view.mos().number(POOL_DIRECTORY, TEMPORARY_HOLDS)?;
    Ok(found.map(ObjectId::new))
}

/// As OpenZFS writes it: the number of the snapshot in hexadecimal, and the tag.
pub(super) fn key(snapshot: ObjectId, tag: &str) -> String {
    format!("{:x}-{tag}", snapshot.get())
}

/// The number and the tag of a key.
pub(super) fn parse_key(key: &str) -> Option<(ObjectId, &str)> {
    let (number, tag) = key.split_once('-')?;
    let number = u64::from_str_radix(number, 16).ok()?;
    Some((ObjectId::new(number), tag))
}

/// Notes a hold as temporary.
pub(super) fn note_hold(
    context: &TaskContext<'_>,
    snapshot: ObjectId,
    tag: &str,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let table = match table(context.view())? {
        Some(table) => table,
        None => {
            let made = writing.create_zap(ObjectType::UserHolds)?;
            let entry = ZapValue::word(made.get());
            writing.put(POOL_DIRECTORY, TEMPORARY_HOLDS, &entry)?;
            made
        }
    };
    debug_assert_eq!(
        parse_key(&key(snapshot, tag)),
        Some((snapshot, tag)),
        "a key says which hold it is"
    );
    let time = ZapValue::word(context.now_s);
    writing.put(table, &key(snapshot, tag), &time)
}

/// A hold was taken off, which may have been temporary.
pub(super) fn forget_hold(
    context: &TaskContext<'_>,
    snapshot: ObjectId,
    tag: &str,
) -> Result<(), DatasetError> {
    if let Some(table) = table(context.view())? {
        context.writing().remove(table, &key(snapshot, tag))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As OpenZFS writes them.
    #[test]
    fn a_key_is_the_number_of_the_snapshot_and_the_tag() {
        assert_eq!(key(ObjectId::new(0x1f3), "%zfs-diff-7"), "1f3-%zfs-diff-7");
        let parsed = parse_key("1f3-%zfs-diff-7");
        assert_eq!(parsed, Some((ObjectId::new(0x1f3), "%zfs-diff-7")));
        assert_eq!(parse_key("tag"), None);
    }
}
