//! `volsize`, while the volume is served or not.

use crate::engine::OpenPool;
use std::sync::Arc;
use tarn_dataset::namespace::View;
use tarn_dataset::ops::volume_size::{VolumeSizeError, set_volume_size};
use tarn_object::ObjectSet;

impl OpenPool {
    /// Whether a dataset is in use otherwise than by front ends that serve it as a volume.
    pub fn is_in_other_use(&self, set: tarn_ondisk::units::ObjectId) -> bool {
        let served = usize::from(self.served_volumes.is_served(set));
        self.pool.namespace().use_count(set) > served
    }

    /// Sets the size of a volume, and waits until that is stored. Where it is served, no change of
    /// it is made meanwhile, and its watchers hear of the new size.
    ///
    /// # Errors
    /// As [`set_volume_size`].
    pub fn resize_volume(
        &self,
        view: View<'_>,
        name: &str,
        set: &Arc<ObjectSet>,
        bytes: u64,
    ) -> Result<(), VolumeSizeError> {
        let Some(served) = self.served_volumes.find(set.id()) else {
            return set_volume_size(view, name, set, bytes);
        };
        let volume = served.volume();
        let before = volume.size_bytes();
        let store = || set_volume_size(view, name, set, bytes);
        volume.resize(bytes, store)?;
        if before != bytes {
            served.tell(|watcher| watcher.size_changed(bytes));
        }
        Ok(())
    }
}
