//! DSL datasets: a file system or volume as of now, or as of a snapshot.
//!
//! A dataset is an object of the MOS with a bonus of [`Dataset`]. A directory's head dataset and
//! its snapshots form a chain by `previous_snapshot` and `next_snapshot`, newest first; each has a
//! list of the blocks that died since the one before it ([`deadlist`](crate::deadlist)), which is
//! what makes destroying a snapshot cost as much as it frees. What does not fit the fixed structure
//! is in a ZAP that the object's own data become when it is needed, under the names below.

use crate::block_pointer::BlockPointer;
use crate::declare::Reserved;
use crate::on_disk;
use crate::units::{AllocatedSize, Guid, LogicalSize, ObjectId, PhysicalSize, Txg};

on_disk! {
    /// A file system or volume as of now, or as of a snapshot. Zero for an object means there is
    /// none.
    #[doc(alias = "dsl_dataset_phys_t")]
    #[derive(Copy, Default)]
    pub struct Dataset [320 bytes] {
        0   => directory: ObjectId,
        8   => previous_snapshot: ObjectId,
        16  => previous_snapshot_txg: Txg,
        /// For a snapshot, the next one, or the head.
        24  => next_snapshot: ObjectId,
        /// ZAP: snapshot names to datasets. None for a snapshot.
        32  => snapshot_names: ObjectId,
        /// For a snapshot, how many datasets point at it as their previous one. Zero for a head.
        40  => child_count: u64,
        /// Seconds since 1970, UTC.
        48  => creation_time_s: u64,
        56  => creation_txg: Txg,
        64  => deadlist: ObjectId,
        /// The space it refers to, shared with other datasets or not.
        72  => referenced: AllocatedSize,
        80  => compressed: PhysicalSize,
        88  => uncompressed: LogicalSize,
        /// What nothing else refers to.
        96  => unique: AllocatedSize,
        /// 56 bits that name the mounted file system; may change to avoid a collision.
        104 => fsid: Guid,
        /// Never changes.
        112 => guid: Guid,
        /// See [`DatasetFlags`].
        120 => flags: DatasetFlags,
        /// The object set.
        128 => root: BlockPointer,
        /// ZAP: for a snapshot, datasets whose origin it is.
        256 => next_clones: ObjectId,
        /// ZAP: property values set on a snapshot.
        264 => snapshot_properties: ObjectId,
        /// ZAP: holds on a snapshot.
        272 => user_holds: ObjectId,
        280 => reserved: Reserved<40>,
    }
}

/// The flags of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DatasetFlags(pub u64);

impl DatasetFlags {
    /// Half received or half destroyed: not to be mounted.
    #[doc(alias = "DS_FLAG_INCONSISTENT")]
    pub const INCONSISTENT: DatasetFlags = DatasetFlags(1);
    /// Not to be promoted.
    #[doc(alias = "DS_FLAG_NOPROMOTE")]
    pub const NO_PROMOTE: DatasetFlags = DatasetFlags(2);
    /// `unique` is right.
    #[doc(alias = "DS_FLAG_UNIQUE_ACCURATE")]
    pub const UNIQUE_ACCURATE: DatasetFlags = DatasetFlags(4);
    /// A snapshot that goes with its last hold or clone.
    #[doc(alias = "DS_FLAG_DEFER_DESTROY")]
    pub const DEFER_DESTROY: DatasetFlags = DatasetFlags(8);
    /// Names are looked up without regard to case.
    #[doc(alias = "DS_FLAG_CI_DATASET")]
    pub const CASE_INSENSITIVE: DatasetFlags = DatasetFlags(1 << 16);

    /// True when all of `flags` are set.
    pub const fn contains(self, flags: DatasetFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These and `flags`.
    pub const fn with(self, flags: DatasetFlags) -> DatasetFlags {
        DatasetFlags(self.0 | flags.0)
    }

    /// These but `flags`.
    pub const fn without(self, flags: DatasetFlags) -> DatasetFlags {
        DatasetFlags(self.0 & !flags.0)
    }
}

impl crate::declare::Stored for DatasetFlags {
    const SIZE: usize = 8;
    const NAME: &'static str = "DatasetFlags";

    fn decode(reader: &mut crate::declare::Reader<'_>) -> Result<Self, crate::declare::Corrupt> {
        reader.u64().map(DatasetFlags)
    }

    fn encode(&self, writer: &mut crate::declare::Writer<'_>) {
        writer.u64(self.0);
    }
}

impl Dataset {
    /// True for a snapshot, which is what has no snapshots of its own.
    pub const fn is_snapshot(&self) -> bool {
        self.snapshot_names.is_zero()
    }
}

/// ZAP of bookmarks (feature `bookmarks`).
#[doc(alias = "DS_FIELD_BOOKMARK_NAMES")]
pub const BOOKMARK_NAMES: &str = "com.delphix:bookmarks";
/// There may be dnodes larger than a slot (feature `large_dnode`).
#[doc(alias = "DS_FIELD_LARGE_DNODE")]
pub const LARGE_DNODE: &str = "org.zfsonlinux:large_dnode";
/// Blocks that device removal moved, and that died since.
#[doc(alias = "DS_FIELD_REMAP_DEADLIST")]
pub const REMAP_DEADLIST: &str = "com.delphix:remap_deadlist";
/// Which set of IVs an encrypted snapshot uses.
#[doc(alias = "DS_FIELD_IVSET_GUID")]
pub const IVSET_GUID: &str = "com.datto:ivset_guid";
/// Interrupted receive: guid of the snapshot the stream starts from.
#[doc(alias = "DS_FIELD_RESUME_FROMGUID")]
pub const RESUME_FROM_GUID: &str = "com.delphix:resume_fromguid";
/// Interrupted receive: name of the snapshot the stream ends at.
#[doc(alias = "DS_FIELD_RESUME_TONAME")]
pub const RESUME_TO_NAME: &str = "com.delphix:resume_toname";
/// Interrupted receive: guid of the snapshot the stream ends at.
#[doc(alias = "DS_FIELD_RESUME_TOGUID")]
pub const RESUME_TO_GUID: &str = "com.delphix:resume_toguid";
/// Interrupted receive: the object to continue at.
#[doc(alias = "DS_FIELD_RESUME_OBJECT")]
pub const RESUME_OBJECT: &str = "com.delphix:resume_object";
/// Interrupted receive: the offset to continue at.
#[doc(alias = "DS_FIELD_RESUME_OFFSET")]
pub const RESUME_OFFSET: &str = "com.delphix:resume_offset";
/// Interrupted receive: how many bytes came.
#[doc(alias = "DS_FIELD_RESUME_BYTES")]
pub const RESUME_BYTES: &str = "com.delphix:resume_bytes";
/// Interrupted receive: the stream has large blocks.
#[doc(alias = "DS_FIELD_RESUME_LARGEBLOCK")]
pub const RESUME_LARGE_BLOCK: &str = "com.delphix:resume_largeblockok";
/// Interrupted receive: the stream has embedded blocks.
#[doc(alias = "DS_FIELD_RESUME_EMBEDOK")]
pub const RESUME_EMBEDDED: &str = "com.delphix:resume_embedok";
/// Interrupted receive: the stream has compressed blocks.
#[doc(alias = "DS_FIELD_RESUME_COMPRESSOK")]
pub const RESUME_COMPRESSED: &str = "com.delphix:resume_compressok";
/// Interrupted receive: the stream is raw.
#[doc(alias = "DS_FIELD_RESUME_RAWOK")]
pub const RESUME_RAW: &str = "com.datto:resume_rawok";
/// Interrupted receive: the snapshots of the redaction bookmark it starts from.
#[doc(alias = "DS_FIELD_RESUME_REDACT_BOOKMARK_SNAPS")]
pub const RESUME_REDACTION_SNAPSHOTS: &str = "com.delphix:resume_redact_book_snaps";
