//! Free space and objects, as `statvfs` shows them.

use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::ZnodeFlags;
use tarn_probe::Operation;

use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::types::SpaceFacts;

/// The size of a dnode slot: the available objects are the available space divided by it.
const SLOT_BYTES: u64 = 512;

impl FileSystem {
    /// The space at this file or directory: in a directory that passes its project on, within the
    /// quotas of that project.
    ///
    /// # Errors
    /// `NotFound`, or what could not be read.
    #[doc(alias = "zfs_statvfs")]
    pub fn space_at(&self, id: ObjectId, operation: &Operation) -> Result<SpaceFacts, PosixError> {
        let mut space = self.space();
        if self.control_entry(id).is_some() {
            return Ok(space);
        }
        let facts = self.node(id, operation)?.facts();
        if !facts.flags.has(ZnodeFlags::INHERIT_PROJECT) || facts.project == 0 {
            return Ok(space);
        }
        let room = self.room_of_project(facts.project, operation)?;
        if let Some((quota, left)) = room.bytes {
            (space.total_bytes, space.available_bytes) = (quota, left);
        }
        if let Some((quota, left)) = room.objects {
            (space.total_objects, space.available_objects) = (quota, left);
        }
        Ok(space)
    }

    /// The space of the dataset.
    pub fn space(&self) -> SpaceFacts {
        let totals = (self.space.totals)();
        let properties = self.properties();
        let used = self.set.object_count();
        let available = totals.available_bytes / SLOT_BYTES;
        SpaceFacts {
            total_bytes: totals.total_bytes,
            available_bytes: totals.available_bytes,
            total_objects: used.saturating_add(available),
            available_objects: available,
            block_size: u32::try_from(properties.record_size.get()).unwrap_or(u32::MAX),
            name_bytes_max: u32::try_from(properties.name_bytes_max()).unwrap_or(u32::MAX),
            id: self.set.id().get(),
        }
    }
}
