//! DSL directories: a node of the tree of datasets, with its space and its limits.
//!
//! A directory is an object of the MOS with a bonus of [`DatasetDirectory`]. It has a head dataset,
//! whose snapshots hang off that; children by name, in a ZAP; and properties, in another. What does
//! not fit the fixed structure is in a ZAP that the object's own data become when it is needed
//! (feature `extensible_dataset`), under the names below.

use crate::declare::Reserved;
use crate::on_disk;
use crate::units::{AllocatedSize, LogicalSize, ObjectId, PhysicalSize};

on_disk! {
    /// A node of the tree of datasets. Zero for an object means there is none.
    #[doc(alias = "dsl_dir_phys_t")]
    #[derive(Copy, Default)]
    pub struct DatasetDirectory [256 bytes] {
        /// Seconds since 1970, UTC.
        0   => creation_time_s: u64,
        /// The dataset that is mounted and written; none for the pool's internal directories.
        8   => head_dataset: ObjectId,
        16  => parent: ObjectId,
        /// The snapshot this is a clone of.
        24  => origin: ObjectId,
        /// ZAP: child names to directories.
        32  => children: ObjectId,
        /// What this and everything below it takes.
        40  => used: AllocatedSize,
        48  => compressed: PhysicalSize,
        56  => uncompressed: LogicalSize,
        /// The most that `used` may become; zero for no limit.
        64  => quota: AllocatedSize,
        /// What is set aside for this and everything below it.
        72  => reservation: AllocatedSize,
        /// ZAP: property values set here.
        80  => properties: ObjectId,
        /// ZAP: delegated permissions.
        88  => permissions: ObjectId,
        /// See [`DatasetDirectory::HAS_USED_BREAKDOWN`].
        96  => flags: u64,
        /// What `used` is made of, where a flag says it is valid.
        104 => used_by: UsedBy,
        /// ZAP: clones of snapshots of this directory's datasets.
        144 => clones: ObjectId,
        152 => reserved: Reserved<104>,
    }
}

impl DatasetDirectory {
    /// `used_by` is valid.
    #[doc(alias = "DD_FLAG_USED_BREAKDOWN")]
    pub const HAS_USED_BREAKDOWN: u64 = 1;
}

on_disk! {
    /// What the used space of a directory is made of.
    #[doc(alias = "dd_used_t")]
    #[derive(Copy, Default)]
    pub struct UsedBy [40 bytes] {
        /// What the head dataset alone refers to.
        0  => head: AllocatedSize,
        /// What would be freed with all snapshots.
        8  => snapshots: AllocatedSize,
        /// What children take.
        16 => children: AllocatedSize,
        /// What is set aside for children and not yet taken.
        24 => child_reservations: AllocatedSize,
        /// What the head's `refreservation` sets aside beyond what it takes.
        32 => ref_reservation: AllocatedSize,
    }
}

/// How many file systems are below (feature `filesystem_limits`).
#[doc(alias = "DD_FIELD_FILESYSTEM_COUNT")]
pub const FILESYSTEM_COUNT: &str = "com.joyent:filesystem_count";
/// How many snapshots are below (feature `filesystem_limits`).
#[doc(alias = "DD_FIELD_SNAPSHOT_COUNT")]
pub const SNAPSHOT_COUNT: &str = "com.joyent:snapshot_count";
/// The object with the wrapped key of an encrypted dataset.
#[doc(alias = "DD_FIELD_CRYPTO_KEY_OBJ")]
pub const CRYPTO_KEY: &str = "com.datto:crypto_key_obj";
/// The list of blocks a clone has written since its creation.
#[doc(alias = "DD_FIELD_LIVELIST")]
pub const LIVELIST: &str = "com.delphix:livelist";
/// When snapshots last came or went: seconds, then nanoseconds.
#[doc(alias = "DD_FIELD_SNAPSHOTS_CHANGED")]
pub const SNAPSHOTS_CHANGED: &str = "com.ixsystems:snapshots_changed";
