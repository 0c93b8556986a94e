//! Names in the pool's directories: object 1 of the MOS, and the ZAPs of vdevs.

use crate::units::{ObjectId, Txg};

/// The pool directory itself: object 1 of the MOS.
#[doc(alias = "DMU_POOL_DIRECTORY_OBJECT")]
pub const POOL_DIRECTORY: ObjectId = ObjectId::new(1);

/// The pool's configuration: a packed name-value list.
#[doc(alias = "DMU_POOL_CONFIG")]
pub const CONFIG: &str = "config";
/// ZAP: reference counts of features a pool cannot be written without.
#[doc(alias = "DMU_POOL_FEATURES_FOR_WRITE")]
pub const FEATURES_FOR_WRITE: &str = "features_for_write";
/// ZAP: reference counts of features a pool cannot be read without.
#[doc(alias = "DMU_POOL_FEATURES_FOR_READ")]
pub const FEATURES_FOR_READ: &str = "features_for_read";
/// ZAP: descriptions of features.
#[doc(alias = "DMU_POOL_FEATURE_DESCRIPTIONS")]
pub const FEATURE_DESCRIPTIONS: &str = "feature_descriptions";
/// ZAP: when features were enabled.
#[doc(alias = "DMU_POOL_FEATURE_ENABLED_TXG")]
pub const FEATURE_ENABLED_TXG: &str = "feature_enabled_txg";
/// The root of the tree of datasets.
#[doc(alias = "DMU_POOL_ROOT_DATASET")]
pub const ROOT_DATASET: &str = "root_dataset";
/// Blocks to free in the next txg.
#[doc(alias = "DMU_POOL_SYNC_BPOBJ")]
pub const SYNC_POINTER_LIST: &str = "sync_bplist";
/// Errors found by the running scrub.
#[doc(alias = "DMU_POOL_ERRLOG_SCRUB")]
pub const ERROR_LOG_SCRUB: &str = "errlog_scrub";
/// Errors found by the last scrub, and since.
#[doc(alias = "DMU_POOL_ERRLOG_LAST")]
pub const ERROR_LOG_LAST: &str = "errlog_last";
/// Spares: a packed name-value list.
#[doc(alias = "DMU_POOL_SPARES")]
pub const SPARES: &str = "spares";
/// Used space counts parity out: always 1 since pool version 3.
#[doc(alias = "DMU_POOL_DEFLATE")]
pub const DEFLATE: &str = "deflate";
/// The ring of history records.
#[doc(alias = "DMU_POOL_HISTORY")]
pub const HISTORY: &str = "history";
/// ZAP: properties of the pool.
#[doc(alias = "DMU_POOL_PROPS")]
pub const PROPERTIES: &str = "pool_props";
/// Cache devices: a packed name-value list.
#[doc(alias = "DMU_POOL_L2CACHE")]
pub const CACHE_DEVICES: &str = "l2cache";
/// ZAP: holds that go when the pool is next imported.
#[doc(alias = "DMU_POOL_TMP_USERREFS")]
pub const TEMPORARY_HOLDS: &str = "tmp_userrefs";
/// What dedup tables are called: `DDT-sha256-zap-unique`, each one ZAP; or `DDT-sha256`, a list of
/// ZAPs (feature `fast_dedup`).
#[doc(alias = "DMU_POOL_DDT")]
pub const DEDUP_TABLE_PREFIX: &str = "DDT-";
/// ZAP: statistics of the dedup tables.
#[doc(alias = "DMU_POOL_DDT_STATS")]
pub const DEDUP_STATISTICS: &str = "DDT-statistics";
/// The version the pool was created with.
#[doc(alias = "DMU_POOL_CREATION_VERSION")]
pub const CREATION_VERSION: &str = "creation_version";
/// The last scrub or resilver.
#[doc(alias = "DMU_POOL_SCAN")]
pub const SCAN: &str = "scan";
/// The last scrub of known errors.
#[doc(alias = "DMU_POOL_ERRORSCRUB")]
pub const ERROR_SCRUB: &str = "error_scrub";
/// Blocks born before it were verified by a finished scrub.
#[doc(alias = "DMU_POOL_LAST_SCRUBBED_TXG")]
pub const LAST_SCRUBBED_TXG: &str = "last_scrubbed_txg";
/// When txgs were stored, every ten minutes, each day and each month
/// ([`txg_times`](crate::txg_times)).
#[doc(alias = "DMU_POOL_TXG_LOG_TIME_MINUTES")]
pub const TXG_TIMES: [&str; 3] = [
    "com.klarasystems:txg_log_time:minutes",
    "com.klarasystems:txg_log_time:days",
    "com.klarasystems:txg_log_time:months",
];
/// Blocks of destroyed snapshots still to free.
#[doc(alias = "DMU_POOL_FREE_BPOBJ")]
pub const FREE_POINTER_LIST: &str = "free_bpobj";
/// Trees of blocks of destroyed datasets still to free.
#[doc(alias = "DMU_POOL_BPTREE_OBJ")]
pub const BLOCK_TREE: &str = "bptree_obj";
/// The empty list of pointers that deadlists share.
#[doc(alias = "DMU_POOL_EMPTY_BPOBJ")]
pub const EMPTY_POINTER_LIST: &str = "empty_bpobj";
/// 32 secret bytes that salted checksums mix in.
#[doc(alias = "DMU_POOL_CHECKSUM_SALT")]
pub const CHECKSUM_SALT: &str = "org.illumos:checksum_salt";
/// ZAP: the ZAPs of all vdevs.
#[doc(alias = "DMU_POOL_VDEV_ZAP_MAP")]
pub const VDEV_ZAP_MAP: &str = "com.delphix:vdev_zap_map";
/// A device removal in progress.
#[doc(alias = "DMU_POOL_REMOVING")]
pub const REMOVING: &str = "com.delphix:removing";
/// Blocks freed on removed devices.
#[doc(alias = "DMU_POOL_OBSOLETE_BPOBJ")]
pub const OBSOLETE_POINTER_LIST: &str = "com.delphix:obsolete_bpobj";
/// A mapping that is being shortened.
#[doc(alias = "DMU_POOL_CONDENSING_INDIRECT")]
pub const CONDENSING_INDIRECT: &str = "com.delphix:condensing_indirect";
/// The uberblock of the checkpoint, as 27 words.
#[doc(alias = "DMU_POOL_ZPOOL_CHECKPOINT")]
pub const CHECKPOINT: &str = "com.delphix:zpool_checkpoint";
/// ZAP: the log space maps, by txg ([`log_space_map_name`]).
#[doc(alias = "DMU_POOL_LOG_SPACEMAP_ZAP")]
pub const LOG_SPACE_MAPS: &str = "com.delphix:log_spacemap_zap";
/// ZAP: livelists of destroyed clones still to free.
#[doc(alias = "DMU_POOL_DELETED_CLONES")]
pub const DELETED_CLONES: &str = "com.delphix:deleted_clones";

/// In the ZAP of a top-level vdev: an array of words, for each metaslab the txg from which on its
/// changes are in log space maps only.
#[doc(alias = "VDEV_TOP_ZAP_MS_UNFLUSHED_PHYS_TXGS")]
pub const VDEV_UNFLUSHED_TXGS: &str = "com.delphix:ms_unflushed_phys_txgs";
/// In the ZAP of a top-level vdev: what of an indirect one is not used any more.
#[doc(alias = "VDEV_TOP_ZAP_INDIRECT_OBSOLETE_SM")]
pub const VDEV_OBSOLETE_SPACE_MAP: &str = "com.delphix:indirect_obsolete_sm";
/// In the ZAP of a top-level vdev: whether the counts of an indirect one are exact.
#[doc(alias = "VDEV_TOP_ZAP_OBSOLETE_COUNTS_ARE_PRECISE")]
pub const VDEV_OBSOLETE_COUNTS_PRECISE: &str = "com.delphix:obsolete_counts_are_precise";
/// In the ZAP of a top-level vdev: what was freed since the checkpoint, and must be kept.
#[doc(alias = "VDEV_TOP_ZAP_POOL_CHECKPOINT_SM")]
pub const VDEV_CHECKPOINT_SPACE_MAP: &str = "com.delphix:pool_checkpoint_sm";
/// In the ZAP of a top-level vdev: a rebuild in progress.
#[doc(alias = "VDEV_TOP_ZAP_VDEV_REBUILD_PHYS")]
pub const VDEV_REBUILD: &str = "org.openzfs:vdev_rebuild";
/// In the ZAP of a top-level vdev: `log`, `special` or `dedup`.
#[doc(alias = "VDEV_TOP_ZAP_ALLOCATION_BIAS")]
pub const VDEV_ALLOCATION_BIAS: &str = "org.zfsonlinux:allocation_bias";
/// In the ZAP of a top-level vdev: a RAID-Z expansion.
#[doc(alias = "VDEV_TOP_ZAP_RAIDZ_EXPAND_STATE")]
pub const VDEV_EXPAND_STATE: &str = "org.openzfs:raidz_expand_state";

/// Whether a name of the pool directory is that of a dedup table, or of a list of them.
pub fn is_dedup_table(name: &str) -> bool {
    name.starts_with(DEDUP_TABLE_PREFIX) && name != DEDUP_STATISTICS
}

/// The key under which the log space map of a txg is.
pub fn log_space_map_name(txg: Txg) -> String {
    format!("{txg:x}")
}
