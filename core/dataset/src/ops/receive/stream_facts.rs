//! The facts in the first record of a stream.

use crate::properties::value::Kinds;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::stream::StreamFeatures;

/// The facts in the first record of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamFacts {
    /// The guid of the snapshot.
    pub to_guid: u64,
    /// The guid of the snapshot before it; zero for a full stream.
    pub from_guid: u64,
    /// The full name of the snapshot at the sender.
    pub to_name: String,
    /// When it was taken there, in seconds since 1970.
    pub creation_time_s: u64,
    /// What it is a snapshot of.
    pub objset_type: ObjsetType,
    /// The snapshot is the first of a clone.
    pub is_clone: bool,
    /// A full stream says what is free, so that it can become a clone.
    pub has_free_records: bool,
    /// Names are not told apart by case.
    pub is_case_insensitive: bool,
    /// What a receiver must know.
    pub features: StreamFeatures,
}

impl StreamFacts {
    pub(super) fn kinds(&self) -> Kinds {
        match self.objset_type {
            ObjsetType::Zvol => Kinds::VOLUME,
            _ => Kinds::FILESYSTEM,
        }
    }
}
