//! What `statvfs` shows.

use crate::filesystem::FileSystem;
use crate::types::SpaceFacts;

/// A dnode takes a slot of 512 bytes: so many more objects fit in so much space.
const SLOT_BYTES: u64 = 512;

impl FileSystem {
    /// How much room there is.
    pub fn space(&self) -> SpaceFacts {
        let facts = (self.space.facts)();
        let properties = self.properties();
        let used = self.set.object_count();
        let available = facts.available_bytes / SLOT_BYTES;
        SpaceFacts {
            total_objects: used.saturating_add(available),
            available_objects: available,
            block_size: u32::try_from(properties.record_size.get()).unwrap_or(u32::MAX),
            name_bytes_max: u32::try_from(properties.name_bytes_max()).unwrap_or(u32::MAX),
            ..facts
        }
    }
}
