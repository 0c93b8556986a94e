//! Requests and replies of `zpool`.

use super::Properties;
pub use super::activities::{Activities, Activity, ListActivities, UnderWay};
pub use super::checkpoint::{Checkpoint, CheckpointAction};
use super::condition::Condition;
pub use super::events::{
    ClearEvents, EventPair, EventRecord, EventValue, Events, EventsCleared, ListEvents,
};
pub use super::free_space::{
    FreeSpaceCommand, FreeSpaceReply, FreeSpaceState, FreeSpaceStatus, Initialize, Trim,
};
pub use super::scan::{
    ErrorScrubStats, RebuildStats, Resilver, ScanStats, Scrub, ScrubAction, Scrubbed,
};
pub use super::vdev_properties::{DescribeVdevs, DescribedVdevs, SetVdev, VdevDescription};
use serde::{Deserialize, Serialize};
pub use tarn_engine::importing::requests::{Import, Imported, Search};
use utoipa::ToSchema;

/// A vdev as a user gave it: leaves are paths, groups have children.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VdevSpec {
    /// What it is.
    pub kind: VdevKind,
    /// Absolute path, for leaves.
    #[serde(default)]
    pub path: Option<String>,
    /// Members, for mirrors and raidz.
    #[serde(default)]
    #[schema(no_recursion)]
    pub children: Vec<VdevSpec>,
    /// Where it stands.
    #[serde(default)]
    pub role: VdevRole,
}

/// Kinds of vdev a user can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VdevKind {
    /// A disk, partition or file: which one is found out by looking.
    Leaf,
    /// `mirror`.
    Mirror,
    /// `raidz`, `raidz1`.
    Raidz1,
    /// `raidz2`.
    Raidz2,
    /// `raidz3`.
    Raidz3,
    /// `draid…`: refused with its name.
    Draid,
}

/// The part of the pool a vdev serves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VdevRole {
    /// Data.
    #[default]
    Data,
    /// `log`.
    Log,
    /// `spare`.
    Spare,
    /// `cache`.
    Cache,
    /// `special`.
    Special,
    /// `dedup`.
    Dedup,
}

/// `zpool create`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Create {
    /// Name of the pool.
    pub name: String,
    /// The vdevs, in the order given.
    pub vdevs: Vec<VdevSpec>,
    /// `-o property=value`, `feature@…` among them.
    #[serde(default)]
    pub properties: Vec<(String, String)>,
    /// `-O property=value` for the root dataset.
    #[serde(default)]
    pub dataset_properties: Vec<(String, String)>,
    /// `-m`.
    #[serde(default)]
    pub mountpoint: Option<String>,
    /// `-R`.
    #[serde(default)]
    pub altroot: Option<String>,
    /// `-t`: the name in this session only.
    #[serde(default)]
    pub temporary_name: Option<String>,
    /// `-n`.
    #[serde(default)]
    pub dry_run: bool,
    /// `-f`.
    #[serde(default)]
    pub force: bool,
    /// `-d`: no features enabled unless named.
    #[serde(default)]
    pub no_features: bool,
}

/// Reply to [`Create`] and [`Add`]: the layout, for `-n` to print.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Created {
    /// The top-level vdevs as they are (or would be).
    pub layout: Vec<VdevStatus>,
    /// Warnings for people: it was made, but could not be mounted.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// What is worth saying although nothing went wrong.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// `zpool add`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Add {
    /// The pool.
    pub name: String,
    /// What to add.
    pub vdevs: Vec<VdevSpec>,
    /// `-o ashift=…`.
    #[serde(default)]
    pub properties: Vec<(String, String)>,
    /// `-n`.
    #[serde(default)]
    pub dry_run: bool,
    /// `-f`.
    #[serde(default)]
    pub force: bool,
    /// `--allow-in-use`: take devices of other pools.
    #[serde(default)]
    pub allow_in_use: bool,
    /// `--allow-replication-mismatch`: vdevs may be less redundant than the pool.
    #[serde(default)]
    pub allow_replication_mismatch: bool,
    /// `--allow-ashift-mismatch`: vdevs may have other sectors than the pool.
    #[serde(default)]
    pub allow_ashift_mismatch: bool,
}

/// `zpool remove`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Remove {
    /// The pool.
    pub name: String,
    /// Log vdevs, hot spares and cache devices: by path, the last part of it, guid, or as
    /// `mirror-1`.
    #[serde(default)]
    pub devices: Vec<String>,
    /// `-n`: only say how much memory it would take.
    #[serde(default)]
    pub dry_run: bool,
    /// `-s`: stop a removal that is in progress.
    #[serde(default)]
    pub cancel: bool,
}

/// Reply to [`Remove`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Removed {
    /// What was removed, or could be.
    #[serde(default)]
    pub devices: Vec<RemovedDevice>,
    /// Why others were not.
    #[serde(default)]
    pub refused: Vec<super::Refusal>,
}

/// A device that was removed, or could be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RemovedDevice {
    /// As it was named.
    pub device: String,
    /// Memory that is taken from now on by what was moved.
    #[serde(default)]
    pub memory_bytes: u64,
}

/// `zpool attach` and `zpool replace`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Attach {
    /// The pool.
    pub name: String,
    /// A device of the pool.
    pub device: String,
    /// The path of the one that joins it.
    pub new_device: String,
    /// The new one takes its place.
    #[serde(default)]
    pub replaces: bool,
    /// `-s`: fill the new one in the order of its offsets.
    #[serde(default)]
    pub sequential: bool,
    /// `-o ashift=…`.
    #[serde(default)]
    pub properties: Vec<(String, String)>,
    /// `-f`.
    #[serde(default)]
    pub force: bool,
}

/// `zpool detach`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Detach {
    /// The pool.
    pub name: String,
    /// The device.
    pub device: String,
}

/// `zpool split`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Split {
    /// The pool of mirrors.
    pub name: String,
    /// The name of the new pool.
    pub new_name: String,
    /// Devices that leave; of the other mirrors the last.
    #[serde(default)]
    pub devices: Vec<String>,
    /// `-R`: the new pool is imported there.
    #[serde(default)]
    pub altroot: Option<String>,
    /// `-o property=value`; mount options without a value.
    #[serde(default)]
    pub properties: Vec<(String, String)>,
    /// `-n`: only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Reply to [`Split`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SplitPool {
    /// The devices of the new pool.
    #[serde(default)]
    pub layout: Vec<VdevStatus>,
    /// Warnings for people, such as mounts that failed.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// `zpool offline`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Offline {
    /// The pool.
    pub name: String,
    /// The devices.
    #[serde(default)]
    pub devices: Vec<String>,
    /// `-t`: only until the pool is imported again.
    #[serde(default)]
    pub temporary: bool,
    /// `-f`: as if it had failed.
    #[serde(default)]
    pub fault: bool,
}

/// `zpool online`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Online {
    /// The pool.
    pub name: String,
    /// The devices.
    #[serde(default)]
    pub devices: Vec<String>,
    /// `-e`: use all of what they have now.
    #[serde(default)]
    pub expand: bool,
}

/// `zpool reopen`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Reopen {
    /// The pool.
    pub name: String,
    /// `-n`: start no resilver.
    #[serde(default)]
    pub no_resilver: bool,
}

/// Reply to [`Offline`] and [`Online`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Switched {
    /// All devices, in their order.
    #[serde(default)]
    pub devices: Vec<SwitchedDevice>,
}

/// A device that was taken out of use or into use, or not.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SwitchedDevice {
    /// As it was named.
    pub device: String,
    /// How it is now: `OFFLINE`, `ONLINE`, `UNAVAIL` …
    #[serde(default)]
    pub state: String,
    /// Why it stays as it was.
    #[serde(default)]
    pub refusal: Option<super::Refusal>,
}

/// `zpool destroy`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Destroy {
    /// The pool.
    pub name: String,
    /// `-f`: unmount by force.
    #[serde(default)]
    pub force: bool,
}

/// `zpool export`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Export {
    /// The pool.
    pub name: String,
    /// `-f`.
    #[serde(default)]
    pub force: bool,
}

/// `zpool import` without a name: what could be imported.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FindImportable {
    /// Where to look.
    pub search: Search,
}

/// Reply to [`FindImportable`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Importable {
    /// Pools found, by name and guid.
    pub pools: Vec<ImportablePool>,
}

/// One pool that could be imported.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ImportablePool {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// `ONLINE`, `DEGRADED`, `FAULTED`, `UNAVAIL`.
    pub state: String,
    /// The pool's most serious condition. Where the texts below are absent they follow from it.
    #[serde(default)]
    pub condition: Option<Condition>,
    /// Active features that are not supported here, as `guid` or `guid (description)`.
    #[serde(default)]
    pub unsupported_features: Vec<String>,
    /// True for a pool that was destroyed.
    #[serde(default)]
    pub destroyed: bool,
    /// What is behind a bad state of the whole pool: `insufficient replicas`, `corrupted data`.
    #[serde(default)]
    pub remark: Option<String>,
    /// The `status:` text, where the one of `condition` does not do.
    #[serde(default)]
    pub status: Option<String>,
    /// The `action:` text; empty where the one of `condition` does.
    #[serde(default)]
    pub action: String,
    /// The message id for `see:`, as `ZFS-8000-72`.
    #[serde(default)]
    pub see: Option<String>,
    /// The comment property.
    #[serde(default)]
    pub comment: Option<String>,
    /// The vdevs.
    pub layout: Vec<VdevStatus>,
    /// Lines that follow the configuration (missing devices, unsupported features).
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// `zpool labelclear`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LabelClear {
    /// The device.
    pub device: String,
    /// `-f`.
    #[serde(default)]
    pub force: bool,
}

/// `zpool list`, `status` and `get`: everything known of these pools.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Describe {
    /// The pools; all when empty.
    #[serde(default)]
    pub names: Vec<String>,
    /// Also count vdev statistics and list damaged files.
    #[serde(default)]
    pub with_errors: bool,
}

/// Reply to [`Describe`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Described {
    /// One per pool, sorted by name.
    pub pools: Vec<PoolDescription>,
}

/// Everything the commands print of a pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolDescription {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// `ONLINE`, `DEGRADED`, `FAULTED`, `SUSPENDED` …
    pub state: String,
    /// The newest stored txg.
    pub txg: u64,
    /// The pool's most serious condition. Where the texts below are absent they follow from it.
    #[serde(default)]
    pub condition: Option<Condition>,
    /// Active features that are not supported here, as `guid` or `guid (description)`.
    #[serde(default)]
    pub unsupported_features: Vec<String>,
    /// The line of the whole pool in the configuration.
    #[serde(default)]
    pub root: RootStatus,
    /// The `status:` text of `zpool status`.
    #[serde(default)]
    pub status: Option<String>,
    /// The `action:` text.
    #[serde(default)]
    pub action: Option<String>,
    /// The message id for `see:`.
    #[serde(default)]
    pub see: Option<String>,
    /// The `scan:` lines, where a scan ever ran.
    #[serde(default)]
    pub scan: Option<String>,
    /// More `scan:` lines, each a text as that.
    #[serde(default)]
    pub more_scans: Vec<String>,
    /// The numbers of the last scrub or resilver.
    #[serde(default)]
    pub scan_stats: Option<ScanStats>,
    /// The `scrub:` lines of the last scrub of known errors, unless another scrub began after it.
    #[serde(default)]
    pub error_scrub: Option<String>,
    /// The numbers of that.
    #[serde(default)]
    pub error_scrub_stats: Option<ErrorScrubStats>,
    /// The numbers of sequential rebuilds.
    #[serde(default)]
    pub rebuild_stats: Vec<RebuildStats>,
    /// Other sections of the status (`remove:`, `checkpoint:`), by their word.
    #[serde(default)]
    pub sections: Vec<(String, String)>,
    /// Properties, native and `feature@…`.
    pub properties: Properties,
    /// The vdevs, roles included.
    pub layout: Vec<VdevStatus>,
    /// Count of known data errors.
    pub error_count: u64,
    /// Paths of damaged files, with `with_errors`.
    #[serde(default)]
    pub errors: Vec<String>,
    /// What is known of deduplicated blocks.
    #[serde(default)]
    pub dedup: DedupTables,
}

/// The tables of deduplicated blocks, together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DedupTables {
    /// How many blocks are in them.
    #[serde(default)]
    pub entries: u64,
    /// What they take on disk.
    #[serde(default)]
    pub disk_bytes: u64,
    /// What they would take in memory.
    #[serde(default)]
    pub memory_bytes: u64,
    /// The blocks by their references: row `i` has those of 2^i and more.
    #[serde(default)]
    pub rows: Vec<DedupRow>,
}

/// Deduplicated blocks with about the same number of references.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DedupRow {
    /// How many there are.
    pub blocks: u64,
    /// Their sizes before compression.
    pub logical_bytes: u64,
    /// Their sizes after compression.
    pub physical_bytes: u64,
    /// What they take on devices.
    pub allocated_bytes: u64,
    /// How often they are referenced.
    pub referenced_blocks: u64,
    /// What they would be without compression if each reference were a block.
    pub referenced_logical_bytes: u64,
    /// The same with compression.
    pub referenced_physical_bytes: u64,
    /// The same on devices.
    pub referenced_allocated_bytes: u64,
}

/// The vdev tree's root, which bears the pool's name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RootStatus {
    /// Its state; empty where it is the pool's (it differs while the pool is suspended).
    #[serde(default)]
    pub state: String,
    /// What is behind a bad state: `insufficient replicas`.
    #[serde(default)]
    pub remark: Option<String>,
    /// Read errors that reached the pool.
    #[serde(default)]
    pub read_errors: u64,
    /// Write errors that reached the pool.
    #[serde(default)]
    pub write_errors: u64,
    /// Checksum errors that reached the pool.
    #[serde(default)]
    pub checksum_errors: u64,
}

/// One vdev of a pool, with its members.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VdevStatus {
    /// As shown: `mirror-0`, `raidz1-1`, or the last part of the path (`path` has all of it).
    pub name: String,
    /// `mirror`, `raidz`, `file`, `disk`, `missing`, `hole`, `indirect` …
    pub kind: String,
    /// Whole path of a leaf.
    #[serde(default)]
    pub path: Option<String>,
    /// Guid.
    pub guid: u64,
    /// Role in the pool.
    #[serde(default)]
    pub role: VdevRole,
    /// `ONLINE`, `DEGRADED`, `UNAVAIL`, `AVAIL` (spares) …
    pub state: String,
    /// What is behind a bad state: `cannot open`, `was /dev/sda`.
    #[serde(default)]
    pub remark: Option<String>,
    /// Read errors.
    #[serde(default)]
    pub read_errors: u64,
    /// Write errors.
    #[serde(default)]
    pub write_errors: u64,
    /// Checksum errors.
    #[serde(default)]
    pub checksum_errors: u64,
    /// Leaf: I/Os that took very long.
    #[serde(default)]
    pub slow_ios: u64,
    /// Direct writes whose data changed while it was written.
    #[serde(default)]
    pub direct_errors: u64,
    /// Leaf: what a scan does to it: `resilvering`, `repairing` or `awaiting resilver`.
    #[serde(default)]
    pub scan_note: Option<String>,
    /// Leaf: what the last scan has written to it, in bytes.
    #[serde(default)]
    pub scan_written_bytes: u64,
    /// Leaf: the next resilver gives it what the one that runs does not.
    #[serde(default)]
    pub is_resilver_deferred: bool,
    /// Leaf: whether it can be told that ranges are free.
    #[serde(default)]
    pub trim_supported: bool,
    /// Leaf: how far it is initialized.
    #[serde(default)]
    pub initialization: Option<FreeSpaceStatus>,
    /// Leaf: how far it is trimmed.
    #[serde(default)]
    pub trim: Option<FreeSpaceStatus>,
    /// Leaf: a whole disk, whose name is shown without its partition.
    #[serde(default)]
    pub whole_disk: bool,
    /// Top-level: bytes that allocating all of it would give to files.
    #[serde(default)]
    pub deflated_bytes: u64,
    /// Bytes a replacement must have at least.
    #[serde(default)]
    pub replacement_bytes: u64,
    /// Top-level: allocatable bytes.
    #[serde(default)]
    pub size_bytes: u64,
    /// Top-level: allocated bytes.
    #[serde(default)]
    pub allocated_bytes: u64,
    /// Top-level: fragmentation of free space in percent, where known.
    #[serde(default)]
    pub fragmentation_percent: Option<u64>,
    /// Physical bytes of a leaf.
    #[serde(default)]
    pub physical_bytes: u64,
    /// Bytes by which it could grow.
    #[serde(default)]
    pub expandable_bytes: u64,
    /// Sector shift.
    #[serde(default)]
    pub ashift: u64,
    /// Index among the top-level vdevs.
    #[serde(default)]
    pub id: u64,
    /// Members.
    #[serde(default)]
    #[schema(no_recursion)]
    pub children: Vec<VdevStatus>,
}

/// `zpool set`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Set {
    /// The pool.
    pub name: String,
    /// Property (or `feature@…`).
    pub property: String,
    /// New value.
    pub value: String,
}

/// Reply to [`Set`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Changed {
    /// What is worth saying although nothing went wrong.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// `zpool upgrade`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Upgrade {
    /// The pools; all when empty.
    #[serde(default)]
    pub names: Vec<String>,
    /// `-V`.
    #[serde(default)]
    pub version: Option<u64>,
}

/// Reply to [`Upgrade`]: the features that were enabled, by pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Upgraded {
    /// Pool and the names of features now enabled.
    pub pools: Vec<(String, Vec<String>)>,
}

/// `zpool history`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// The pool.
    pub name: String,
}

/// Reply to [`History`]: every record, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HistoryRecords {
    /// The records.
    pub records: Vec<HistoryRecord>,
}

/// One record of the pool's history.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HistoryRecord {
    /// Unix seconds.
    pub time_s: i64,
    /// The command line, for commands.
    #[serde(default)]
    pub command: Option<String>,
    /// Name of the internal event (`create`, `set`), for internal ones.
    #[serde(default)]
    pub internal_name: Option<String>,
    /// Text of the internal event.
    #[serde(default)]
    pub internal_text: Option<String>,
    /// Number of the internal event, in old pools.
    #[serde(default)]
    pub internal_event: Option<u64>,
    /// Txg of the internal event.
    #[serde(default)]
    pub txg: Option<u64>,
    /// Dataset name of the event.
    #[serde(default)]
    pub dataset: Option<String>,
    /// Dataset object number of the event.
    #[serde(default)]
    pub dataset_id: Option<u64>,
    /// Name of the ioctl, for records OpenZFS made of them.
    #[serde(default)]
    pub ioctl: Option<String>,
    /// User id.
    #[serde(default)]
    pub user_id: Option<u64>,
    /// User name.
    #[serde(default)]
    pub user: Option<String>,
    /// Host.
    #[serde(default)]
    pub host: Option<String>,
    /// Zone.
    #[serde(default)]
    pub zone: Option<String>,
    /// How long a call took.
    #[serde(default)]
    pub elapsed_ns: Option<i64>,
    /// What a call was given: lines, moved in by eight spaces.
    #[serde(default)]
    pub input: Option<String>,
    /// What a call gave back, in the same form.
    #[serde(default)]
    pub output: Option<String>,
    /// Bytes of what a call gave back, where that was too much to be kept.
    #[serde(default)]
    pub output_bytes: Option<i64>,
    /// The number of a call's error.
    #[serde(default)]
    pub error_number: Option<i64>,
    /// All of a record that is none of the above: lines, moved in by four spaces.
    #[serde(default)]
    pub contents: Option<String>,
}

/// `zpool sync`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Sync {
    /// The pools; all when empty.
    #[serde(default)]
    pub names: Vec<String>,
    /// `-f`: a group is stored and labels are written, even if nothing is dirty.
    #[serde(default)]
    pub force: bool,
}

/// `zpool reguid`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Reguid {
    /// The pool.
    pub name: String,
    /// `-g`: the new guid; a random one when none.
    #[serde(default)]
    pub guid: Option<u64>,
}

/// `zpool clear`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Clear {
    /// The pool.
    pub name: String,
    /// One device only.
    #[serde(default)]
    pub device: Option<String>,
}
