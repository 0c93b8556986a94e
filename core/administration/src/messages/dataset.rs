//! Requests and replies of `zfs`.

use super::Properties;
use serde::{Deserialize, Serialize};
pub use tarn_engine::mounting::requests::{
    Mount, MountEntry, Mounted, Share, Shared, Unmount, Unmounted, Unshare, Unshared,
};
use utoipa::ToSchema;

/// Kinds of dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DatasetKind {
    /// A file system.
    Filesystem,
    /// A snapshot.
    Snapshot,
    /// A volume.
    Volume,
    /// A bookmark.
    Bookmark,
}

/// `zfs list` and `get`: these datasets, and what is below them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Describe {
    /// Names (or mounted paths); every pool's datasets when empty.
    #[serde(default)]
    pub names: Vec<String>,
    /// Levels below the named ones: `None` for all (`-r`), 0 for none.
    #[serde(default)]
    pub depth: Option<u64>,
    /// Kinds wanted. A dataset given by name is always included. Snapshots and bookmarks count as
    /// one level below their dataset.
    pub kinds: Vec<DatasetKind>,
    /// Snapshots too, in pools whose property `listsnapshots` is on: what `zfs list` without `-t`
    /// shows.
    #[serde(default)]
    pub listed_snapshots: bool,
    /// Properties wanted; all when empty. Asking for few is faster.
    #[serde(default)]
    pub properties: Vec<String>,
}

/// Reply to [`Describe`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Described {
    /// In the order of the names asked, each followed by what is below it, sorted as `zfs list`
    /// does.
    pub datasets: Vec<DatasetDescription>,
    /// Names that could not be opened, with the reason.
    #[serde(default)]
    pub refused: Vec<super::Refusal>,
}

/// One dataset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DatasetDescription {
    /// Its full name.
    pub name: String,
    /// What it is.
    pub kind: DatasetKind,
    /// The pool.
    pub pool: String,
    /// Txg in which it was created (`createtxg`): snapshots sort by it.
    pub created_txg: u64,
    /// Native and user properties.
    pub properties: Properties,
}

/// `zfs create`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Create {
    /// Full name.
    pub name: String,
    /// `-p`.
    #[serde(default)]
    pub parents: bool,
    /// `-pp`: parents that are made cannot be mounted.
    #[serde(default)]
    pub parents_no_mount: bool,
    /// `-o property=value`.
    #[serde(default)]
    pub properties: Vec<(String, String)>,
    /// `-u`: leave it unmounted.
    #[serde(default)]
    pub no_mount: bool,
    /// `-V`: a volume of this size in bytes, to be rounded up to whole blocks.
    #[serde(default)]
    pub volume_bytes: Option<u64>,
    /// `-s`: without reserving its size.
    #[serde(default)]
    pub sparse: bool,
    /// `-n`.
    #[serde(default)]
    pub dry_run: bool,
}

/// Reply to [`Create`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Created {
    /// Names created, parents first.
    pub names: Vec<String>,
    /// Properties that were (or would be) set, for `-v`.
    #[serde(default)]
    pub properties: Vec<(String, String)>,
    /// Warnings for people: it was created, but could not be mounted.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// `zfs snapshot`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// Full names of the snapshots, all in one pool. All are taken, or none.
    pub names: Vec<String>,
    /// `-r`: of everything below each dataset too, by the same name.
    #[serde(default)]
    pub recursive: bool,
    /// `-o`: user properties, in the order given.
    #[serde(default)]
    pub properties: Vec<(String, String)>,
}

/// `zfs destroy` of file systems and volumes, and of snapshots.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Destroy {
    /// Full name. Several snapshots of a dataset: names and ranges, `tank/a@x,y%z`.
    pub name: String,
    /// `-r`: children too.
    #[serde(default)]
    pub recursive: bool,
    /// `-R`: dependents outside the tree too.
    #[serde(default)]
    pub dependents: bool,
    /// `-f`: unmount by force.
    #[serde(default)]
    pub force: bool,
    /// `-n`.
    #[serde(default)]
    pub dry_run: bool,
    /// `-d`: snapshots that something keeps are marked, and go later.
    #[serde(default)]
    pub defer: bool,
}

/// Reply to [`Destroy`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Destroyed {
    /// Names destroyed, or that would be, in order.
    pub names: Vec<String>,
    /// Bytes that come free, where known.
    #[serde(default)]
    pub reclaimed_bytes: Option<u64>,
    /// Of snapshots, clones and what depends on them, which go first.
    #[serde(default)]
    pub clones: Vec<String>,
}

/// `zfs rename`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Rename {
    /// The name it has.
    pub from: String,
    /// The name it gets.
    pub to: String,
    /// `-p`: create missing parents.
    #[serde(default)]
    pub parents: bool,
    /// `-pp`: parents that are made cannot be mounted.
    #[serde(default)]
    pub parents_no_mount: bool,
    /// `-u`: do not remount.
    #[serde(default)]
    pub no_mount: bool,
    /// `-f`.
    #[serde(default)]
    pub force: bool,
    /// `-r`: of snapshots, also those of everything below.
    #[serde(default)]
    pub recursive: bool,
}

/// `zfs clone`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MakeClone {
    /// Full name of the snapshot.
    pub origin: String,
    /// Full name of the clone.
    pub name: String,
    /// `-o`: properties, in the order given.
    #[serde(default)]
    pub properties: Vec<(String, String)>,
    /// `-p`: create missing parents, and be content if the clone is there.
    #[serde(default)]
    pub parents: bool,
    /// `-pp`: parents that are made cannot be mounted.
    #[serde(default)]
    pub parents_no_mount: bool,
    /// `-u`: do not mount.
    #[serde(default)]
    pub no_mount: bool,
}

/// `zfs promote`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Promote {
    /// Full name of the clone.
    pub name: String,
}

/// `zfs bookmark`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MakeBookmark {
    /// Full name of the snapshot or bookmark that it is of.
    pub origin: String,
    /// Full name of the bookmark.
    pub name: String,
    /// `-r`: also of the snapshots of the same name of everything below, where they are.
    #[serde(default)]
    pub recursive: bool,
}

/// `zfs rollback`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Rollback {
    /// Full name of the snapshot.
    pub name: String,
    /// `-r`: destroy newer snapshots.
    #[serde(default)]
    pub newer: bool,
    /// `-R`: and their clones.
    #[serde(default)]
    pub clones: bool,
    /// `-f`: unmount by force.
    #[serde(default)]
    pub force: bool,
}

/// `zfs receive`. The stream comes through the caller's descriptor.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Receive {
    /// Full name of a file system or volume, or of a snapshot.
    pub target: String,
    /// `-d`, `-e`: what of the sent name follows.
    #[serde(default)]
    pub names: ReceiveNames,
    /// `-F`: give up what was changed at the target.
    #[serde(default)]
    pub force: bool,
    /// `-M`: unmount by force.
    #[serde(default)]
    pub force_unmount: bool,
    /// `-u`: do not mount.
    #[serde(default)]
    pub no_mount: bool,
    /// `-n`: do nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// `-s`: keep what came of a stream that is cut.
    #[serde(default)]
    pub resumable: bool,
    /// `-h`: leave out the holds that come with the stream.
    #[serde(default)]
    pub skip_holds: bool,
    /// `-o`: properties to set.
    #[serde(default)]
    pub properties: Vec<(String, String)>,
    /// `-x`: properties of the stream that are left out.
    #[serde(default)]
    pub excluded: Vec<String>,
    /// A name for this receive, under which the same user can ask for its progress. Other users
    /// cannot.
    #[serde(default)]
    pub watch: Option<String>,
}

/// What of the sent name follows upon the name that was given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReceiveNames {
    /// What is below the file system that was sent.
    #[default]
    AsGiven,
    /// `-d`: all but the pool.
    AllButPool,
    /// `-e`: the last component.
    Last,
}

/// What happened while a stream was received, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum ReceiveEvent {
    /// A stream begins.
    Receiving {
        /// The snapshot's full name at the sender.
        sent: String,
        /// Its full name here.
        snapshot: String,
        /// Whether it goes on from another.
        incremental: bool,
        /// What it is a clone of.
        origin: Option<String>,
    },
    /// The snapshot is there already, and the stream was passed over.
    Exists {
        /// Its full name here.
        snapshot: String,
    },
    /// The stream is in.
    Received {
        /// How many bytes it had.
        bytes: u64,
        /// How long it took.
        nanoseconds: u64,
    },
    /// A clone is promoted, as it was at the sender.
    Promoting {
        /// Its full name.
        name: String,
    },
    /// A file system or snapshot that the sender has no more is destroyed.
    Destroying {
        /// Its full name.
        name: String,
    },
    /// A file system or snapshot gets the name that it has at the sender.
    Renaming {
        /// Its full name.
        from: String,
        /// The full name that it gets; empty where its new parent is not here.
        to: String,
    },
    /// It could not be renamed yet, or not be destroyed: it gets a temporary name that is not
    /// taken.
    RenamingAside {
        /// Its full name.
        from: String,
        /// The full name that it gets.
        to: String,
    },
    /// What was just begun of these is done.
    Succeeded,
    /// What was just begun of these cannot be done, as a warning says.
    Failed {
        /// Why.
        kind: super::RefusalKind,
        /// It is tried once more after the streams.
        is_again: bool,
    },
    /// The tree is looked at once more.
    AnotherPass,
    /// A file system does not have the snapshot that the increment goes on from: it was destroyed
    /// at the receiver.
    WithoutFirst {
        /// Its full name.
        name: String,
        /// The short name of the snapshot at the sender.
        from: String,
    },
    /// The parent that a file system has at the sender is not here.
    WithoutParent {
        /// Its full name.
        name: String,
    },
}

/// What came of `zfs receive`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Received {
    /// What happened.
    #[serde(default)]
    pub events: Vec<ReceiveEvent>,
    /// What did not, and did not keep the stream from being received.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Something that the sender did could not be done here, as the warnings say.
    #[serde(default)]
    pub is_incomplete: bool,
}

/// What happened since, in a receive that is under way. Waits a moment if that is nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WatchReceive {
    /// What [`Receive::watch`] was.
    pub watch: String,
    /// How many lines are known already.
    #[serde(default)]
    pub seen: u64,
}

/// Reply to [`WatchReceive`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReceiveProgress {
    /// There is a receive of this name, or was until now.
    pub is_known: bool,
    /// What happened beyond what is known, in order.
    #[serde(default)]
    pub lines: Vec<ReceiveLine>,
    /// It has ended, and there is nothing more.
    pub is_over: bool,
    /// A stream is coming.
    pub is_coming: bool,
    /// How many bytes of that stream came.
    pub bytes: u64,
    /// How long it has been coming.
    pub nanoseconds: u64,
}

/// One line of what is told of a receive while it is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReceiveLine {
    /// Something happened.
    Event(ReceiveEvent),
    /// Something did not, and does not keep the stream from being received: a line for people.
    Warning(String),
}

/// `zfs receive -A`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AbortReceive {
    /// Full name of the file system or volume.
    pub name: String,
}

/// `zfs hold` and `zfs release`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Hold {
    /// Full name of the snapshot.
    pub name: String,
    /// The tag.
    pub tag: String,
    /// `-r`: also those of everything below, where they are.
    #[serde(default)]
    pub recursive: bool,
}

/// `zfs holds`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListHolds {
    /// Full name of the snapshot.
    pub name: String,
    /// `-r`: also those of everything below, where they are.
    #[serde(default)]
    pub recursive: bool,
}

/// Reply to [`ListHolds`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Holds {
    /// Snapshots, those without holds too.
    pub snapshots: Vec<SnapshotHolds>,
}

/// A snapshot and its holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotHolds {
    /// Full name.
    pub name: String,
    /// Tags, sorted, and when each hold was made: seconds since 1970.
    pub holds: Vec<(String, u64)>,
}

/// The kind of an owner of counted space and objects.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum OwnerKind {
    /// Users.
    User,
    /// Groups.
    Group,
    /// Projects.
    Project,
}

/// `zfs userspace`, `groupspace` and `projectspace`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListOwners {
    /// Full name of a file system or of a snapshot of one, or a path in a mounted file system.
    pub name: String,
    /// Users.
    #[serde(default)]
    pub users: bool,
    /// Groups.
    #[serde(default)]
    pub groups: bool,
    /// Projects.
    #[serde(default)]
    pub projects: bool,
    /// Names of users and groups as well as their numbers.
    #[serde(default)]
    pub wants_names: bool,
}

/// Reply to [`ListOwners`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Owners {
    /// Owners with used space or a quota of their own, by kind and number.
    pub rows: Vec<OwnerUse>,
    /// The default quotas of the kinds that were asked for.
    pub defaults: Vec<OwnerDefaults>,
}

/// Used space of an owner as of the last stored txg, and the owner's quotas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OwnerUse {
    /// What he is.
    pub kind: OwnerKind,
    /// The Windows domain, for users and groups of one.
    #[serde(default)]
    pub domain: Option<String>,
    /// His number, within his domain.
    pub id: u32,
    /// His name on this machine.
    #[serde(default)]
    pub name: Option<String>,
    /// Bytes; none where nothing was ever counted.
    #[serde(default)]
    pub used: Option<u64>,
    /// The quota that was set for him, in bytes.
    #[serde(default)]
    pub quota: Option<u64>,
    /// How many objects; none where they are not counted.
    #[serde(default)]
    pub objects_used: Option<u64>,
    /// How many objects he may have.
    #[serde(default)]
    pub object_quota: Option<u64>,
}

/// The default quotas of a kind of owner; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OwnerDefaults {
    /// The kind of owner.
    pub kind: OwnerKind,
    /// In bytes.
    pub quota: u64,
    /// Of objects.
    pub object_quota: u64,
}

/// `zfs set`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Set {
    /// Full name.
    pub name: String,
    /// Property and value, in the order given.
    pub properties: Vec<(String, String)>,
    /// `-u`: change `mountpoint` without mounting.
    #[serde(default)]
    pub no_mount: bool,
}

/// `zfs inherit`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Inherit {
    /// Full name.
    pub name: String,
    /// Property.
    pub property: String,
    /// `-r`: in everything below too.
    #[serde(default)]
    pub recursive: bool,
    /// `-S`: back to the received value.
    #[serde(default)]
    pub received: bool,
}

/// `zfs mount` without arguments: what is mounted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListMounts {}

/// `zfs wait`: what goes on in a file system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListActivities {
    /// Full name.
    pub name: String,
}

/// Reply to [`ListActivities`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Activities {
    /// `deleteq`: files without a name are open, or wait to be freed.
    pub delete_queue: bool,
}

/// `zfs upgrade`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Upgrade {
    /// The file systems; all when empty.
    #[serde(default)]
    pub names: Vec<String>,
    /// `-r`.
    #[serde(default)]
    pub recursive: bool,
    /// `-V`; the newest when `None`.
    #[serde(default)]
    pub version: Option<u64>,
}

/// Reply to [`Upgrade`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Upgraded {
    /// Name, version before, version now. Those that are newer than asked, and stay, are here too.
    pub datasets: Vec<(String, u64, u64)>,
    /// Those that could not be opened or upgraded.
    #[serde(default)]
    pub refused: Vec<super::Refusal>,
}

/// `zfs send`: what to send, and how. The stream goes into the caller's descriptor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Send {
    /// Full name of a snapshot; of a file system or volume that is not mounted, for what it is now.
    pub name: String,
    /// Full name of the snapshot or bookmark to go on from. In a series it is a snapshot of the
    /// same file system.
    #[serde(default)]
    pub from: Option<String>,
    /// Several snapshots.
    #[serde(default)]
    pub series: Option<Series>,
    /// `-p`: with properties.
    #[serde(default)]
    pub properties: bool,
    /// `-b`: with those properties that were received, as they were received.
    #[serde(default)]
    pub backup: bool,
    /// `-h`: with holds.
    #[serde(default)]
    pub holds: bool,
    /// `-L`: blocks larger than 128 KiB as they are.
    #[serde(default)]
    pub large_blocks: bool,
    /// `-e`: blocks as they are embedded in their pointers.
    #[serde(default)]
    pub embedded: bool,
    /// `-c`: blocks as they are compressed.
    #[serde(default)]
    pub compressed: bool,
    /// `-w`: everything as it is stored.
    #[serde(default)]
    pub raw: bool,
    /// `-t`: go on where a receiver broke off.
    #[serde(default)]
    pub resume: Option<ResumePoint>,
    /// A name for this send, under which the same user can ask for its progress. Other users
    /// cannot.
    #[serde(default)]
    pub watch: Option<String>,
}

/// Several snapshots in one stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Series {
    /// `-R`: everything below too, with properties.
    #[serde(default)]
    pub replicate: bool,
    /// `-I`: all snapshots in between.
    #[serde(default)]
    pub all_between: bool,
    /// From the origin of the clone.
    #[serde(default)]
    pub from_origin: bool,
    /// `-s`: leave out what does not have the snapshot.
    #[serde(default)]
    pub skip_missing: bool,
    /// `-X`: leave these out, and everything below them.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// `-v`: say which snapshots are left out.
    #[serde(default)]
    pub verbose: bool,
}

/// Where a receiver broke off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResumePoint {
    /// The object.
    pub object: u64,
    /// Where in it, in bytes.
    pub offset: u64,
    /// How many bytes were received.
    pub bytes: u64,
}

/// Reply to [`Send`] where it was only asked what would be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SendPlan {
    /// The snapshots, in their order.
    pub steps: Vec<SendStep>,
    /// What is left out, and why, for people.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Something that was asked for cannot be sent, as the warnings say.
    #[serde(default)]
    pub is_incomplete: bool,
}

/// One snapshot to be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SendStep {
    /// Full name.
    pub name: String,
    /// The base of the increment: a full name, or in a series the short name of a snapshot of the
    /// same file system.
    #[serde(default)]
    pub from: Option<String>,
    /// Estimated size of the stream in bytes; none where there is no estimate, as a warning says.
    #[serde(default)]
    pub estimated_bytes: Option<u64>,
}

/// Reply to [`Send`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Sent {
    /// What was left out, and why, for people.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Something that was asked for was not sent, as the warnings say.
    #[serde(default)]
    pub is_incomplete: bool,
}

/// How far a sending is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WatchSend {
    /// What [`Send::watch`] was.
    pub watch: String,
}

/// Reply to [`WatchSend`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SendProgress {
    /// The snapshot that is being sent; none before the first.
    #[serde(default)]
    pub name: Option<String>,
    /// Which of the snapshots it is, from 0 on.
    pub index: u64,
    /// How many bytes of it were sent.
    pub bytes: u64,
    /// How many blocks of it were looked at.
    pub blocks: u64,
}

/// `zfs send -t`: what a resume token says, in terms of what is here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReadToken {
    /// The token.
    pub token: String,
}

/// Reply to [`ReadToken`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenRead {
    /// Everything in it, as OpenZFS prints it.
    pub text: String,
    /// What to send, where that is still here.
    #[serde(default)]
    pub send: Option<Send>,
    /// Why it cannot be sent.
    #[serde(default)]
    pub refused: Option<super::Refusal>,
}

/// `zfs diff`: the changes since a snapshot. Each file is a [`DiffLine`] in the caller's
/// descriptor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Diff {
    /// A snapshot: its full name, or `@SNAPSHOT` of the dataset that `to` names.
    pub from: String,
    /// A later snapshot, a file system for its present state, or `@SNAPSHOT` of the dataset that
    /// `from` names. None for the present state of that dataset.
    #[serde(default)]
    pub to: Option<String>,
}

/// One line of what [`Diff`] writes into the caller's descriptor: JSON, each on a line of its own,
/// in the order of object numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DiffLine {
    /// A file changed.
    File(FileDifference),
    /// Something could not be found out: a line for people.
    Warning(String),
}

/// A file that changed. Paths begin with the place where the file system is mounted, and are
/// [escaped](super::escape()).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileDifference {
    /// What became of it.
    pub change: FileChange,
    /// Its path: the one before, for what was removed or renamed.
    pub path: String,
    /// What it is.
    pub file_type: FileType,
    /// When it last changed, in seconds since 1970.
    pub changed_s: i64,
    /// Nanoseconds of that second.
    pub changed_ns: u32,
}

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FileChange {
    /// `+`.
    Added,
    /// `-`.
    Removed,
    /// `M`.
    Modified,
    /// `M`, with so many links more, or fewer.
    Links(i64),
    /// `R`, to this path.
    Renamed(String),
}

/// Kinds of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FileType {
    /// A block device.
    BlockDevice,
    /// A character device.
    CharacterDevice,
    /// A directory.
    Directory,
    /// A named pipe.
    Fifo,
    /// A symbolic link.
    SymbolicLink,
    /// A socket.
    Socket,
    /// A regular file.
    Regular,
    /// Something else.
    Unknown,
}
