//! The list of administrative operations.
//!
//! # Mechanism
//! [`for_each_operation!`](crate::for_each_operation) holds the list: path, method, request, reply,
//! summary. The trait [`Administration`] is made from it here; the control interface makes its
//! routes, its OpenAPI description and its client from the same list. So an operation exists in all
//! four places or in none.

use crate::messages::{
    Caller, Changed, Done, Refusal, analytics, dataset, delegation, pool, statistics,
};
use tarn_engine::Presence;
use tarn_host::Pipe;

/// The caller of an operation, and the command line for `zpool history`.
#[derive(Debug, Clone, Default)]
pub struct Call {
    /// Peer credentials of the control socket.
    pub caller: Caller,
    /// The command line as typed; empty for operations that history does not show.
    pub command: String,
    /// The descriptor that the caller handed over, for operations that read or write a stream.
    pub pipe: Option<Pipe>,
    /// Whether the caller still waits for the reply.
    pub presence: Presence,
}

/// Gives the list of operations to a macro.
///
/// Each line is `"noun/verb" method: Request => Reply, "summary";`. The types are named as
/// this crate's messages are: `pool::Create`.
#[macro_export]
macro_rules! for_each_operation {
    ($then:ident) => {
        $then! {
            "pool/create" pool_create: pool::Create => pool::Created, "Creates a pool.";
            "pool/add" pool_add: pool::Add => pool::Created, "Adds vdevs to a pool.";
            "pool/remove" pool_remove: pool::Remove => pool::Removed, "Removes log vdevs, hot spares and cache devices.";
            "pool/attach" pool_attach: pool::Attach => Done, "Adds a copy to a log vdev, or replaces a device of one.";
            "pool/detach" pool_detach: pool::Detach => Done, "Takes a device out of its mirror.";
            "pool/split" pool_split: pool::Split => pool::SplitPool, "Makes a pool of one device of each mirror.";
            "pool/offline" pool_offline: pool::Offline => pool::Switched, "Takes devices out of use.";
            "pool/online" pool_online: pool::Online => pool::Switched, "Takes devices into use again.";
            "pool/reopen" pool_reopen: pool::Reopen => Done, "Opens devices again that were not there.";
            "pool/destroy" pool_destroy: pool::Destroy => Done, "Destroys a pool.";
            "pool/export" pool_export: pool::Export => Done, "Exports a pool.";
            "pool/find-importable" pool_find_importable: pool::FindImportable => pool::Importable,
                "Lists the pools that could be imported.";
            "pool/import" pool_import: pool::Import => pool::Imported, "Imports pools.";
            "pool/labelclear" pool_label_clear: pool::LabelClear => Done, "Removes ZFS labels from a device.";
            "pool/describe" pool_describe: pool::Describe => pool::Described,
                "Everything list, status and get print of pools.";
            "pool/set" pool_set: pool::Set => pool::Changed, "Sets a property of a pool.";
            "pool/describe-vdevs" pool_describe_vdevs: pool::DescribeVdevs => pool::DescribedVdevs,
                "The properties of vdevs.";
            "pool/set-vdev" pool_set_vdev: pool::SetVdev => Done, "Sets a property of a vdev.";
            "pool/upgrade" pool_upgrade: pool::Upgrade => pool::Upgraded, "Enables all supported features.";
            "pool/history" pool_history: pool::History => pool::HistoryRecords, "Reads a pool's history.";
            "pool/sync" pool_sync: pool::Sync => Done, "Stores all dirty data.";
            "pool/scrub" pool_scrub: pool::Scrub => pool::Scrubbed, "Begins, pauses or stops a scrub.";
            "pool/resilver" pool_resilver: pool::Resilver => Done, "Begins a resilver anew.";
            "pool/checkpoint" pool_checkpoint: pool::Checkpoint => Done,
                "Keeps the present state of a pool, or gives that up.";
            "pool/clear" pool_clear: pool::Clear => Done, "Clears device errors and resumes a suspended pool.";
            "pool/initialize" pool_initialize: pool::Initialize => pool::FreeSpaceReply,
                "Writes the free space of devices, or ends that.";
            "pool/trim" pool_trim: pool::Trim => pool::FreeSpaceReply,
                "Tells devices which of their space is free, or ends that.";
            "pool/reguid" pool_reguid: pool::Reguid => Done, "Gives a pool another guid.";
            "pool/list-events" pool_list_events: pool::ListEvents => pool::Events, "Lists what happened to pools.";
            "pool/clear-events" pool_clear_events: pool::ClearEvents => pool::EventsCleared, "Forgets what happened to pools.";
            "pool/list-activities" pool_list_activities: pool::ListActivities => pool::Activities,
                "Says what goes on in a pool by itself.";
            "pool/iostat" pool_iostat: statistics::IoSample => statistics::IoSamples,
                "Cumulative I/O counters of every vdev.";
            "dataset/describe" dataset_describe: dataset::Describe => dataset::Described,
                "Everything list and get print of datasets.";
            "dataset/create" dataset_create: dataset::Create => dataset::Created,
                "Creates a file system or volume.";
            "dataset/snapshot" dataset_snapshot: dataset::Snapshot => Done, "Takes snapshots.";
            "dataset/destroy" dataset_destroy: dataset::Destroy => dataset::Destroyed,
                "Destroys a file system, a volume or snapshots.";
            "dataset/rename" dataset_rename: dataset::Rename => Changed, "Renames a dataset, or snapshots.";
            "dataset/clone" dataset_clone: dataset::MakeClone => dataset::Created, "Makes a clone of a snapshot.";
            "dataset/promote" dataset_promote: dataset::Promote => Done, "Makes a clone what it is a clone of.";
            "dataset/bookmark" dataset_bookmark: dataset::MakeBookmark => Done, "Makes bookmarks.";
            "dataset/rollback" dataset_rollback: dataset::Rollback => Done, "Takes a dataset back to a snapshot.";
            "dataset/receive" dataset_receive: dataset::Receive => dataset::Received,
                "Receives a stream through the caller's descriptor.";
            "dataset/watch-receive" dataset_watch_receive: dataset::WatchReceive => dataset::ReceiveProgress,
                "Says what happens while a stream is received.";
            "dataset/abort-receive" dataset_abort_receive: dataset::AbortReceive => Done,
                "Gives up what was received of a stream that was cut.";
            "dataset/hold" dataset_hold: dataset::Hold => Done, "Puts a hold on snapshots.";
            "dataset/release" dataset_release: dataset::Hold => Done, "Takes a hold off snapshots.";
            "dataset/list-holds" dataset_list_holds: dataset::ListHolds => dataset::Holds, "Lists holds of snapshots.";
            "dataset/list-owners" dataset_list_owners: dataset::ListOwners => dataset::Owners,
                "Lists what users, groups and projects use and may use.";
            "dataset/send" dataset_send: dataset::Send => dataset::Sent, "Sends snapshots.";
            "dataset/plan-send" dataset_plan_send: dataset::Send => dataset::SendPlan,
                "Says what would be sent, and how large it would be.";
            "dataset/watch-send" dataset_watch_send: dataset::WatchSend => dataset::SendProgress,
                "Says how far a sending is.";
            "dataset/read-token" dataset_read_token: dataset::ReadToken => dataset::TokenRead,
                "Says what a resume token means.";
            "dataset/diff" dataset_diff: dataset::Diff => Done,
                "Writes what changed since a snapshot into the caller's descriptor, a line for each file.";
            "dataset/allow" dataset_allow: delegation::Allow => Done, "Delegates permissions.";
            "dataset/unallow" dataset_unallow: delegation::Unallow => Done,
                "Takes delegated permissions back.";
            "dataset/list-allowed" dataset_list_allowed: delegation::ListAllowed => delegation::Allowed,
                "Lists what is delegated.";
            "dataset/set" dataset_set: dataset::Set => Changed, "Sets properties of a dataset.";
            "dataset/inherit" dataset_inherit: dataset::Inherit => Changed,
                "Clears a property, so that it is inherited.";
            "dataset/mount" dataset_mount: dataset::Mount => dataset::Mounted, "Mounts file systems.";
            "dataset/list-mounts" dataset_list_mounts: dataset::ListMounts => dataset::Mounted,
                "Lists what is mounted.";
            "dataset/list-activities" dataset_list_activities: dataset::ListActivities => dataset::Activities,
                "Says what goes on in a file system by itself.";
            "dataset/unmount" dataset_unmount: dataset::Unmount => dataset::Unmounted, "Unmounts file systems.";
            "dataset/share" dataset_share: dataset::Share => dataset::Shared, "Shares file systems over NFS.";
            "dataset/unshare" dataset_unshare: dataset::Unshare => dataset::Unshared,
                "Ends shares of file systems.";
            "dataset/upgrade" dataset_upgrade: dataset::Upgrade => dataset::Upgraded,
                "Raises the version of file systems.";
            "statistics/kstat" statistics_kstat: statistics::Kstat => statistics::Kstats,
                "Reads counters and histograms.";
            "statistics/metrics" statistics_metrics: statistics::Metrics => statistics::MetricFamilies,
                "Reads all metrics of operations, pools, devices, caches and the machine.";
            "analytics/query" analytics_query: analytics::Query => analytics::Answer,
                "Breaks operations down, in columns of time.";
            "analytics/operations" analytics_operations: analytics::Operations => analytics::OperationList,
                "Lists operations, each with what its time went to.";
            "analytics/instrument" analytics_instrument: analytics::Instrument => analytics::Instrumented,
                "Begins to count operations as they come.";
            "analytics/live" analytics_live: analytics::Live => analytics::Answer,
                "Reads what was counted as operations came.";
            "analytics/remove" analytics_remove: analytics::Remove => Done, "Counts no longer.";
            "analytics/list" analytics_list: analytics::List => analytics::Instrumentations,
                "Lists what is counted as operations come.";
            "analytics/events" analytics_events: analytics::Events => analytics::Happened,
                "Lists what happened to pools in a time.";
            "analytics/add-alert" analytics_add_alert: analytics::AddAlert => Done,
                "Adds an alert, or replaces the one of its name.";
            "analytics/remove-alert" analytics_remove_alert: analytics::RemoveAlert => Done,
                "Removes an alert.";
            "analytics/list-alerts" analytics_list_alerts: analytics::ListAlerts => analytics::Alerts,
                "Lists the alerts, and how they are.";
            "analytics/state" analytics_state: analytics::State => analytics::RecorderState,
                "Says what is kept of operations.";
            "analytics/catalogue" analytics_catalogue: analytics::Catalogue => analytics::Known,
                "Lists statistics and fields.";
        }
    };
}

macro_rules! declare_trait {
    ($($path:literal $method:ident: $request:ty => $reply:ty, $summary:literal;)*) => {
        /// What the engine can be asked. Every method returns when its answer is final: a change
        /// that it reports is stored.
        pub trait Administration: Send + Sync {
            $(
                #[doc = $summary]
                ///
                /// # Errors
                /// A refusal in OpenZFS's words.
                fn $method(&self, call: &Call, request: $request) -> Result<$reply, Refusal>;
            )*
        }
    };
}

for_each_operation!(declare_trait);
