//! Feature flags: what a pool uses of the format, beyond version 28.
//!
//! # Mechanism
//! A feature is named by a guid, `organisation:name`. A pool counts for each enabled feature how
//! much of it is in use: zero is *enabled*, more is *active*. A feature that is active must be
//! known to every program that opens the pool, unless it is compatible with reading, and the pool
//! is opened read-only. The counts are in two ZAPs of the MOS: those of features that even readers
//! must know (`features_for_read`), and of the others (`features_for_write`). Features needed to
//! read the MOS itself are also in every label.
//!
//! The table below is every feature of OpenZFS 2.3, in the order in which it lists them, with what
//! this program can do. It is meant to be changed: a feature that has been built is one word away
//! from being supported.

/// What this program can do with a pool in which a feature is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Support {
    /// Read and write it.
    ReadWrite,
    /// Read it.
    ReadOnly,
    /// Nothing; except for what the feature itself allows ([`FeatureFlags::READ_ONLY_COMPATIBLE`]).
    None,
}

/// How a pool with a feature may be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// Not at all.
    Refused,
    /// Read-only.
    ReadOnly,
    /// For writing too.
    ReadWrite,
}

/// What kind of feature it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FeatureFlags(u8);

impl FeatureFlags {
    /// Programs that do not know it may read the pool.
    #[doc(alias = "ZFEATURE_FLAG_READONLY_COMPAT")]
    pub const READ_ONLY_COMPATIBLE: FeatureFlags = FeatureFlags(1);
    /// Needed to read the MOS, and so kept in labels.
    #[doc(alias = "ZFEATURE_FLAG_MOS")]
    pub const NEEDED_FOR_MOS: FeatureFlags = FeatureFlags(2);
    /// Active as soon as it is enabled.
    #[doc(alias = "ZFEATURE_FLAG_ACTIVATE_ON_ENABLE")]
    pub const ACTIVATE_ON_ENABLE: FeatureFlags = FeatureFlags(4);
    /// Each dataset says whether it uses it.
    #[doc(alias = "ZFEATURE_FLAG_PER_DATASET")]
    pub const PER_DATASET: FeatureFlags = FeatureFlags(8);

    /// True when all of `flags` are set.
    pub const fn contains(self, flags: FeatureFlags) -> bool {
        self.0 & flags.0 == flags.0
    }
}

/// All that is fixed about a feature.
#[derive(Debug, Clone, Copy)]
pub struct FeatureFacts {
    /// `organisation:name`.
    pub guid: &'static str,
    /// What it is good for, as pools store it.
    pub description: &'static str,
    /// See [`FeatureFlags`].
    pub flags: FeatureFlags,
    /// Features that are enabled with it.
    pub depends_on: &'static [Feature],
    /// What this program can do with it.
    pub support: Support,
}

/// Declares the table.
macro_rules! features {
    ($(
        $name:ident $guid:literal $support:ident, $description:literal,
        [$($flag:ident),*], [$($depends_on:ident),*];
    )*) => {
        /// A feature of OpenZFS 2.3.
        #[doc(alias = "spa_feature_t")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Feature {
            $(#[doc = concat!("`", $guid, "`: `", $description, "`")] $name,)*
        }

        impl Feature {
            /// All features, in the order in which they are listed.
            pub const ALL: &[Feature] = &[$(Feature::$name,)*];

            /// What is fixed about the feature.
            pub const fn facts(self) -> &'static FeatureFacts {
                match self {
                    $(Feature::$name => &FeatureFacts {
                        guid: $guid,
                        description: $description,
                        flags: FeatureFlags(0 $(| FeatureFlags::$flag.0)*),
                        depends_on: &[$(Feature::$depends_on,)*],
                        support: Support::$support,
                    },)*
                }
            }
        }
    };
}

features! {
    AsyncDestroy "com.delphix:async_destroy" ReadWrite,
        "Destroy filesystems asynchronously.",
        [READ_ONLY_COMPATIBLE], [];
    EmptyBpobj "com.delphix:empty_bpobj" ReadWrite,
        "Snapshots use less space.",
        [READ_ONLY_COMPATIBLE], [];
    Lz4Compress "org.illumos:lz4_compress" ReadWrite,
        "LZ4 compression algorithm support.",
        [ACTIVATE_ON_ENABLE], [];
    MultiVdevCrashDump "com.joyent:multi_vdev_crash_dump" ReadWrite,
        "Crash dumps to multiple vdev pools.",
        [], [];
    SpacemapHistogram "com.delphix:spacemap_histogram" ReadWrite,
        "Spacemaps maintain space histograms.",
        [READ_ONLY_COMPATIBLE], [];
    EnabledTxg "com.delphix:enabled_txg" ReadWrite,
        "Record txg at which a feature is enabled",
        [READ_ONLY_COMPATIBLE], [];
    HoleBirth "com.delphix:hole_birth" ReadWrite,
        "Retain hole birth txg for more precise zfs send",
        [NEEDED_FOR_MOS, ACTIVATE_ON_ENABLE], [EnabledTxg];
    ExtensibleDataset "com.delphix:extensible_dataset" ReadWrite,
        "Enhanced dataset functionality, used by other features.",
        [], [];
    EmbeddedData "com.delphix:embedded_data" ReadWrite,
        "Blocks which compress very well use even less space.",
        [NEEDED_FOR_MOS, ACTIVATE_ON_ENABLE], [];
    Bookmarks "com.delphix:bookmarks" ReadWrite,
        "\"zfs bookmark\" command",
        [READ_ONLY_COMPATIBLE], [ExtensibleDataset];
    FilesystemLimits "com.joyent:filesystem_limits" ReadWrite,
        "Filesystem and snapshot limits.",
        [READ_ONLY_COMPATIBLE], [ExtensibleDataset];
    LargeBlocks "org.open-zfs:large_blocks" ReadWrite,
        "Support for blocks larger than 128KB.",
        [PER_DATASET], [ExtensibleDataset];
    LargeDnode "org.zfsonlinux:large_dnode" ReadWrite,
        "Variable on-disk size of dnodes.",
        [PER_DATASET], [ExtensibleDataset];
    Sha512 "org.illumos:sha512" ReadWrite,
        "SHA-512/256 hash algorithm.",
        [PER_DATASET], [ExtensibleDataset];
    Skein "org.illumos:skein" ReadWrite,
        "Skein hash algorithm.",
        [PER_DATASET], [ExtensibleDataset];
    Edonr "org.illumos:edonr" ReadWrite,
        "Edon-R hash algorithm.",
        [PER_DATASET], [ExtensibleDataset];
    UserobjAccounting "org.zfsonlinux:userobj_accounting" ReadWrite,
        "User/Group object accounting.",
        [READ_ONLY_COMPATIBLE, PER_DATASET], [ExtensibleDataset];
    Encryption "com.datto:encryption" ReadWrite,
        "Support for dataset level encryption",
        [PER_DATASET], [ExtensibleDataset, BookmarkV2];
    ProjectQuota "org.zfsonlinux:project_quota" ReadWrite,
        "space/object accounting based on project ID.",
        [READ_ONLY_COMPATIBLE, PER_DATASET], [ExtensibleDataset];
    DeviceRemoval "com.delphix:device_removal" None,
        "Top-level vdevs can be removed, reducing logical pool size.",
        [NEEDED_FOR_MOS], [];
    ObsoleteCounts "com.delphix:obsolete_counts" None,
        "Reduce memory used by removed devices when their blocks are freed or remapped.",
        [READ_ONLY_COMPATIBLE], [ExtensibleDataset, DeviceRemoval];
    ZpoolCheckpoint "com.delphix:zpool_checkpoint" ReadWrite,
        "Pool state can be checkpointed, allowing rewind later.",
        [READ_ONLY_COMPATIBLE], [];
    SpacemapV2 "com.delphix:spacemap_v2" ReadWrite,
        "Space maps representing large segments are more efficient.",
        [READ_ONLY_COMPATIBLE, ACTIVATE_ON_ENABLE], [];
    AllocationClasses "org.zfsonlinux:allocation_classes" ReadWrite,
        "Support for separate allocation classes.",
        [READ_ONLY_COMPATIBLE], [];
    ResilverDefer "com.datto:resilver_defer" ReadWrite,
        "Support for deferring new resilvers when one is already running.",
        [READ_ONLY_COMPATIBLE], [];
    BookmarkV2 "com.datto:bookmark_v2" ReadWrite,
        "Support for larger bookmarks",
        [], [ExtensibleDataset, Bookmarks];
    RedactionBookmarks "com.delphix:redaction_bookmarks" ReadOnly,
        "Support for bookmarks which store redaction lists for zfs redacted send/recv.",
        [], [BookmarkV2, ExtensibleDataset, Bookmarks];
    RedactedDatasets "com.delphix:redacted_datasets" ReadOnly,
        "Support for redacted datasets, produced by receiving a redacted zfs send stream.",
        [PER_DATASET], [ExtensibleDataset];
    BookmarkWritten "com.delphix:bookmark_written" ReadWrite,
        "Additional accounting, enabling the written#<bookmark> property (space written since a bookmark), and estimates of send stream sizes for incrementals from bookmarks.",
        [], [BookmarkV2, ExtensibleDataset, Bookmarks];
    LogSpacemap "com.delphix:log_spacemap" ReadWrite,
        "Log metaslab changes on a single spacemap and flush them periodically.",
        [READ_ONLY_COMPATIBLE], [SpacemapV2];
    Livelist "com.delphix:livelist" ReadWrite,
        "Improved clone deletion performance.",
        [READ_ONLY_COMPATIBLE], [ExtensibleDataset];
    DeviceRebuild "org.openzfs:device_rebuild" ReadWrite,
        "Support for sequential mirror/dRAID device rebuilds",
        [READ_ONLY_COMPATIBLE], [];
    ZstdCompress "org.freebsd:zstd_compress" ReadWrite,
        "zstd compression algorithm support.",
        [PER_DATASET], [ExtensibleDataset];
    Draid "org.openzfs:draid" None,
        "Support for distributed spare RAID",
        [NEEDED_FOR_MOS], [];
    Zilsaxattr "org.openzfs:zilsaxattr" ReadWrite,
        "Support for xattr=sa extended attribute logging in ZIL.",
        [PER_DATASET, READ_ONLY_COMPATIBLE], [ExtensibleDataset];
    HeadErrlog "com.delphix:head_errlog" ReadWrite,
        "Support for per-dataset on-disk error logs.",
        [ACTIVATE_ON_ENABLE], [];
    Blake3 "org.openzfs:blake3" ReadWrite,
        "BLAKE3 hash algorithm.",
        [PER_DATASET], [ExtensibleDataset];
    BlockCloning "com.fudosecurity:block_cloning" ReadWrite,
        "Support for block cloning via Block Reference Table.",
        [READ_ONLY_COMPATIBLE], [];
    VdevZapsV2 "com.klarasystems:vdev_zaps_v2" ReadWrite,
        "Support for root vdev ZAP.",
        [NEEDED_FOR_MOS], [];
    RedactionListSpill "com.delphix:redaction_list_spill" ReadOnly,
        "Support for increased number of redaction_snapshot arguments in zfs redact.",
        [], [RedactionBookmarks];
    RaidzExpansion "org.openzfs:raidz_expansion" None,
        "Support for raidz expansion",
        [NEEDED_FOR_MOS], [];
    FastDedup "com.klarasystems:fast_dedup" None,
        "Support for advanced deduplication",
        [READ_ONLY_COMPATIBLE], [];
    Longname "org.zfsonlinux:longname" ReadWrite,
        "support filename up to 1024 bytes",
        [PER_DATASET], [ExtensibleDataset];
    LargeMicrozap "com.klarasystems:large_microzap" ReadWrite,
        "Support for microzaps larger than 128KB.",
        [PER_DATASET, READ_ONLY_COMPATIBLE], [ExtensibleDataset, LargeBlocks];
}

impl Feature {
    /// The feature with this guid.
    pub fn from_guid(guid: &str) -> Option<Feature> {
        Feature::ALL
            .iter()
            .copied()
            .find(|feature| feature.guid() == guid)
    }

    /// The feature with this name, as in `feature@name`.
    pub fn from_name(name: &str) -> Option<Feature> {
        Feature::ALL
            .iter()
            .copied()
            .find(|feature| feature.name() == name)
    }

    /// `organisation:name`.
    pub const fn guid(self) -> &'static str {
        self.facts().guid
    }

    /// The name, as in `feature@name`.
    pub fn name(self) -> &'static str {
        let guid = self.guid();
        guid.split_once(':').map_or(guid, |(_, name)| name)
    }

    /// What it is good for, as pools store it.
    pub const fn description(self) -> &'static str {
        self.facts().description
    }

    /// What this program can do with it.
    pub const fn support(self) -> Support {
        self.facts().support
    }

    /// True where even readers must know it: its count is in `features_for_read`.
    pub const fn is_needed_to_read(self) -> bool {
        !self
            .facts()
            .flags
            .contains(FeatureFlags::READ_ONLY_COMPATIBLE)
    }

    /// True where labels must name it while it is active.
    pub const fn is_needed_for_mos(self) -> bool {
        self.facts().flags.contains(FeatureFlags::NEEDED_FOR_MOS)
    }

    /// True where it is active as soon as it is enabled.
    pub const fn is_activated_on_enable(self) -> bool {
        self.facts()
            .flags
            .contains(FeatureFlags::ACTIVATE_ON_ENABLE)
    }

    /// True where each dataset says whether it uses it.
    pub const fn is_per_dataset(self) -> bool {
        self.facts().flags.contains(FeatureFlags::PER_DATASET)
    }

    /// How a pool in which it is active may be opened.
    pub const fn access_when_active(self) -> Access {
        match self.support() {
            Support::ReadWrite => Access::ReadWrite,
            Support::ReadOnly => Access::ReadOnly,
            Support::None if self.is_needed_to_read() => Access::Refused,
            Support::None => Access::ReadOnly,
        }
    }

    /// True where new pools have it, unless told otherwise: where we can write it.
    pub fn is_enabled_by_default(self) -> bool {
        self.support() == Support::ReadWrite
    }
}

/// How a pool may be opened in which a feature of this guid, found in `features_for_read` or not,
/// is active.
pub fn access_of_guid(guid: &str, is_needed_to_read: bool) -> Access {
    match Feature::from_guid(guid) {
        Some(feature) => feature.access_when_active(),
        None if is_needed_to_read => Access::Refused,
        None => Access::ReadOnly,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_writable_feature_depends_on_is_writable() {
        for feature in Feature::ALL
            .iter()
            .filter(|feature| feature.is_enabled_by_default())
        {
            for needed in feature.facts().depends_on {
                assert!(
                    needed.is_enabled_by_default(),
                    "{feature:?} needs {needed:?}"
                );
            }
        }
    }

    #[test]
    fn features_are_found_by_guid_and_by_name() {
        for &feature in Feature::ALL {
            assert_eq!(Feature::from_guid(feature.guid()), Some(feature));
            assert_eq!(Feature::from_name(feature.name()), Some(feature));
        }
        assert_eq!(Feature::ALL.len(), 44);
        assert_eq!(Feature::LargeBlocks.guid(), "org.open-zfs:large_blocks");
    }

    #[test]
    fn per_dataset_features_need_extensible_datasets() {
        for feature in Feature::ALL
            .iter()
            .filter(|feature| feature.is_per_dataset())
        {
            assert!(
                feature
                    .facts()
                    .depends_on
                    .contains(&Feature::ExtensibleDataset)
            );
        }
    }

    #[test]
    fn an_unknown_feature_forbids_writing_at_least() {
        assert_eq!(access_of_guid("org.example:new", true), Access::Refused);
        assert_eq!(access_of_guid("org.example:new", false), Access::ReadOnly);
        assert_eq!(
            access_of_guid("com.datto:encryption", true),
            Access::ReadWrite
        );
        assert_eq!(
            access_of_guid("com.delphix:device_removal", true),
            Access::Refused
        );
        assert_eq!(
            access_of_guid("org.illumos:lz4_compress", true),
            Access::ReadWrite
        );
    }
}
