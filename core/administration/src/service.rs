//! The operations that commands call: each runs with its own [`Operation`] record.

use crate::administration::{Administration, Call};
use crate::administrator::Administrator;
use crate::analytics::catalogue::catalogue;
use crate::messages::{Changed, Done, Refusal, analytics, dataset, delegation, pool, statistics};
use tarn_probe::{Operation, Outcome};

impl Administrator {
    /// Runs one command with an [`Operation`] of its own.
    fn command<T>(
        &self,
        call: &Call,
        run: impl FnOnce(&Operation) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let operation = self.engine.operation(call.caller.uid);
        let outcome = run(&operation);
        if outcome.is_err() {
            operation.mark(Outcome::Error);
        }
        // Devices of volumes that the command has made are there when it returns, and those that it
        // has removed for nothing are there again.
        self.engine.settle_volumes(&operation);
        operation.finish();
        outcome
    }

    /// Notes a command in the history of a pool that it changed. The command succeeded whether or
    /// not the note can be written.
    pub(crate) fn record_command(&self, call: &Call, pool: &str, operation: &Operation) {
        let Some(open) = self.engine.find_pool(pool) else {
            return;
        };
        let record = self.command_record(call);
        // A suspended pool has failed the calls that wait for it already.
        drop(open.pool.record_command(record, operation));
    }
}

impl Administration for Administrator {
    fn pool_create(&self, call: &Call, request: pool::Create) -> Result<pool::Created, Refusal> {
        self.command(call, |operation| {
            self.create_pool(call, &request, operation)
        })
    }

    fn pool_add(&self, call: &Call, request: pool::Add) -> Result<pool::Created, Refusal> {
        self.command(call, |operation| self.add(call, &request, operation))
    }

    fn pool_remove(&self, call: &Call, request: pool::Remove) -> Result<pool::Removed, Refusal> {
        self.command(call, |operation| self.remove(call, &request, operation))
    }

    fn pool_attach(&self, call: &Call, request: pool::Attach) -> Result<Done, Refusal> {
        self.command(call, |operation| self.attach(call, &request, operation))
    }

    fn pool_detach(&self, call: &Call, request: pool::Detach) -> Result<Done, Refusal> {
        self.command(call, |operation| self.detach(call, &request, operation))
    }

    fn pool_split(&self, call: &Call, request: pool::Split) -> Result<pool::SplitPool, Refusal> {
        self.command(call, |operation| self.split(call, &request, operation))
    }

    fn pool_offline(&self, call: &Call, request: pool::Offline) -> Result<pool::Switched, Refusal> {
        self.command(call, |operation| self.offline(call, &request, operation))
    }

    fn pool_online(&self, call: &Call, request: pool::Online) -> Result<pool::Switched, Refusal> {
        self.command(call, |operation| self.online(call, &request, operation))
    }

    fn pool_reopen(&self, call: &Call, request: pool::Reopen) -> Result<Done, Refusal> {
        self.command(call, |operation| self.reopen(call, &request, operation))
    }

    fn pool_destroy(&self, call: &Call, request: pool::Destroy) -> Result<Done, Refusal> {
        self.command(call, |operation| self.destroy(call, &request, operation))
    }

    fn pool_export(&self, call: &Call, request: pool::Export) -> Result<Done, Refusal> {
        self.command(call, |operation| self.export(call, &request, operation))
    }

    fn pool_find_importable(
        &self,
        call: &Call,
        request: pool::FindImportable,
    ) -> Result<pool::Importable, Refusal> {
        self.command(call, |operation| self.find_importable(&request, operation))
    }

    fn pool_import(&self, call: &Call, request: pool::Import) -> Result<pool::Imported, Refusal> {
        self.command(call, |operation| self.import(call, &request, operation))
    }

    fn pool_label_clear(&self, call: &Call, request: pool::LabelClear) -> Result<Done, Refusal> {
        self.command(call, |_| self.clear_label(&request))
    }

    fn pool_describe(
        &self,
        call: &Call,
        request: pool::Describe,
    ) -> Result<pool::Described, Refusal> {
        self.command(call, |_| self.describe_pools(&request))
    }

    fn pool_set(&self, call: &Call, request: pool::Set) -> Result<pool::Changed, Refusal> {
        self.command(call, |operation| self.set_pool(call, &request, operation))
    }

    fn pool_describe_vdevs(
        &self,
        call: &Call,
        request: pool::DescribeVdevs,
    ) -> Result<pool::DescribedVdevs, Refusal> {
        self.command(call, |_| self.describe_vdevs(&request))
    }

    fn pool_set_vdev(&self, call: &Call, request: pool::SetVdev) -> Result<Done, Refusal> {
        self.command(call, |operation| self.set_vdev(call, &request, operation))
    }

    fn pool_upgrade(&self, call: &Call, request: pool::Upgrade) -> Result<pool::Upgraded, Refusal> {
        self.command(call, |operation| {
            self.upgrade_pools(call, &request, operation)
        })
    }

    fn pool_history(
        &self,
        call: &Call,
        request: pool::History,
    ) -> Result<pool::HistoryRecords, Refusal> {
        self.command(call, |_| self.history(&request))
    }

    fn pool_sync(&self, call: &Call, request: pool::Sync) -> Result<Done, Refusal> {
        self.command(call, |operation| self.sync(&request, operation))
    }

    fn pool_scrub(&self, call: &Call, request: pool::Scrub) -> Result<pool::Scrubbed, Refusal> {
        self.command(call, |operation| self.scrub(call, &request, operation))
    }

    fn pool_resilver(&self, call: &Call, request: pool::Resilver) -> Result<Done, Refusal> {
        self.command(call, |operation| self.resilver(call, &request, operation))
    }

    fn pool_clear(&self, call: &Call, request: pool::Clear) -> Result<Done, Refusal> {
        self.command(call, |_| self.clear(&request))
    }

    fn pool_initialize(
        &self,
        call: &Call,
        request: pool::Initialize,
    ) -> Result<pool::FreeSpaceReply, Refusal> {
        self.command(call, |operation| self.initialize(call, &request, operation))
    }

    fn pool_trim(&self, call: &Call, request: pool::Trim) -> Result<pool::FreeSpaceReply, Refusal> {
        self.command(call, |operation| self.trim(call, &request, operation))
    }

    fn pool_checkpoint(&self, call: &Call, request: pool::Checkpoint) -> Result<Done, Refusal> {
        self.command(call, |operation| self.checkpoint(call, &request, operation))
    }

    fn pool_reguid(&self, call: &Call, request: pool::Reguid) -> Result<Done, Refusal> {
        self.command(call, |operation| self.reguid(call, &request, operation))
    }

    fn pool_list_events(
        &self,
        call: &Call,
        request: pool::ListEvents,
    ) -> Result<pool::Events, Refusal> {
        self.command(call, |_| Ok(self.list_events(call, &request)))
    }

    fn pool_clear_events(
        &self,
        call: &Call,
        _request: pool::ClearEvents,
    ) -> Result<pool::EventsCleared, Refusal> {
        self.command(call, |_| Ok(self.clear_events()))
    }

    fn pool_list_activities(
        &self,
        call: &Call,
        request: pool::ListActivities,
    ) -> Result<pool::Activities, Refusal> {
        self.command(call, |operation| {
            self.pool_activities(call, &request, operation)
        })
    }

    fn pool_iostat(
        &self,
        call: &Call,
        request: statistics::IoSample,
    ) -> Result<statistics::IoSamples, Refusal> {
        self.command(call, |_| self.iostat(&request))
    }

    fn dataset_describe(
        &self,
        call: &Call,
        request: dataset::Describe,
    ) -> Result<dataset::Described, Refusal> {
        self.command(call, |_| self.describe_datasets(&call.caller, &request))
    }

    fn dataset_create(
        &self,
        call: &Call,
        request: dataset::Create,
    ) -> Result<dataset::Created, Refusal> {
        self.command(call, |operation| {
            self.create_dataset(call, &request, operation)
        })
    }

    fn dataset_snapshot(&self, call: &Call, request: dataset::Snapshot) -> Result<Done, Refusal> {
        self.command(call, |operation| {
            self.take_snapshots(call, &request, operation)
        })
    }

    fn dataset_clone(
        &self,
        call: &Call,
        request: dataset::MakeClone,
    ) -> Result<dataset::Created, Refusal> {
        self.command(call, |operation| {
            self.clone_snapshot(call, &request, operation)
        })
    }

    fn dataset_promote(&self, call: &Call, request: dataset::Promote) -> Result<Done, Refusal> {
        self.command(call, |operation| self.promote(call, &request, operation))
    }

    fn dataset_bookmark(
        &self,
        call: &Call,
        request: dataset::MakeBookmark,
    ) -> Result<Done, Refusal> {
        self.command(call, |operation| {
            self.make_bookmarks(call, &request, operation)
        })
    }

    fn dataset_rollback(&self, call: &Call, request: dataset::Rollback) -> Result<Done, Refusal> {
        self.command(call, |operation| self.roll_back(call, &request, operation))
    }

    fn dataset_receive(
        &self,
        call: &Call,
        request: dataset::Receive,
    ) -> Result<dataset::Received, Refusal> {
        self.command(call, |operation| self.receive(call, &request, operation))
    }

    fn dataset_watch_receive(
        &self,
        call: &Call,
        request: dataset::WatchReceive,
    ) -> Result<dataset::ReceiveProgress, Refusal> {
        Ok(self.watch_receive(call, &request))
    }

    fn dataset_abort_receive(
        &self,
        call: &Call,
        request: dataset::AbortReceive,
    ) -> Result<Done, Refusal> {
        self.command(call, |operation| {
            self.abort_receive(call, &request, operation)
        })
    }

    fn dataset_hold(&self, call: &Call, request: dataset::Hold) -> Result<Done, Refusal> {
        self.command(call, |operation| self.hold(call, &request, operation))
    }

    fn dataset_release(&self, call: &Call, request: dataset::Hold) -> Result<Done, Refusal> {
        self.command(call, |operation| self.release(call, &request, operation))
    }

    fn dataset_list_holds(
        &self,
        call: &Call,
        request: dataset::ListHolds,
    ) -> Result<dataset::Holds, Refusal> {
        self.command(call, |operation| self.list_holds(&request, operation))
    }

    fn dataset_list_owners(
        &self,
        call: &Call,
        request: dataset::ListOwners,
    ) -> Result<dataset::Owners, Refusal> {
        self.command(call, |_| self.list_owners(&call.caller, &request))
    }

    fn dataset_destroy(
        &self,
        call: &Call,
        request: dataset::Destroy,
    ) -> Result<dataset::Destroyed, Refusal> {
        self.command(call, |operation| {
            self.destroy_dataset(call, &request, operation)
        })
    }

    fn dataset_rename(&self, call: &Call, request: dataset::Rename) -> Result<Changed, Refusal> {
        self.command(call, |operation| {
            self.rename_dataset(call, &request, operation)
        })
    }

    fn dataset_send(&self, call: &Call, request: dataset::Send) -> Result<dataset::Sent, Refusal> {
        self.command(call, |operation| self.send(call, &request, operation))
    }

    fn dataset_plan_send(
        &self,
        call: &Call,
        request: dataset::Send,
    ) -> Result<dataset::SendPlan, Refusal> {
        self.command(call, |operation| self.plan_send(call, &request, operation))
    }

    fn dataset_watch_send(
        &self,
        call: &Call,
        request: dataset::WatchSend,
    ) -> Result<dataset::SendProgress, Refusal> {
        Ok(self.watch_send(call, &request))
    }

    fn dataset_read_token(
        &self,
        call: &Call,
        request: dataset::ReadToken,
    ) -> Result<dataset::TokenRead, Refusal> {
        self.command(call, |operation| self.read_token(&request, operation))
    }

    fn dataset_list_activities(
        &self,
        call: &Call,
        request: dataset::ListActivities,
    ) -> Result<dataset::Activities, Refusal> {
        self.command(call, |operation| self.list_activities(&request, operation))
    }

    fn dataset_diff(&self, call: &Call, request: dataset::Diff) -> Result<Done, Refusal> {
        self.command(call, |operation| self.diff(call, &request, operation))
    }

    fn dataset_allow(&self, call: &Call, request: delegation::Allow) -> Result<Done, Refusal> {
        self.command(call, |operation| self.allow(call, &request, operation))
    }

    fn dataset_unallow(&self, call: &Call, request: delegation::Unallow) -> Result<Done, Refusal> {
        self.command(call, |operation| self.unallow(call, &request, operation))
    }

    fn dataset_list_allowed(
        &self,
        call: &Call,
        request: delegation::ListAllowed,
    ) -> Result<delegation::Allowed, Refusal> {
        self.command(call, |operation| self.list_allowed(&request, operation))
    }

    fn dataset_set(&self, call: &Call, request: dataset::Set) -> Result<Changed, Refusal> {
        self.command(call, |operation| {
            self.set_dataset(call, &request, operation)
        })
    }

    fn dataset_inherit(&self, call: &Call, request: dataset::Inherit) -> Result<Changed, Refusal> {
        self.command(call, |operation| {
            self.inherit_dataset(call, &request, operation)
        })
    }

    fn dataset_mount(
        &self,
        call: &Call,
        request: dataset::Mount,
    ) -> Result<dataset::Mounted, Refusal> {
        self.command(call, |operation| self.mount(call, &request, operation))
    }

    fn dataset_list_mounts(
        &self,
        _: &Call,
        _: dataset::ListMounts,
    ) -> Result<dataset::Mounted, Refusal> {
        Ok(self.list_mounts())
    }

    fn dataset_unmount(
        &self,
        call: &Call,
        request: dataset::Unmount,
    ) -> Result<dataset::Unmounted, Refusal> {
        self.command(call, |operation| self.unmount(call, &request, operation))
    }

    fn dataset_share(
        &self,
        call: &Call,
        request: dataset::Share,
    ) -> Result<dataset::Shared, Refusal> {
        self.command(call, |operation| self.share(call, &request, operation))
    }

    fn dataset_unshare(
        &self,
        call: &Call,
        request: dataset::Unshare,
    ) -> Result<dataset::Unshared, Refusal> {
        self.command(call, |operation| self.unshare(call, &request, operation))
    }

    fn dataset_upgrade(
        &self,
        call: &Call,
        request: dataset::Upgrade,
    ) -> Result<dataset::Upgraded, Refusal> {
        self.command(call, |operation| {
            self.upgrade_datasets(call, &request, operation)
        })
    }

    fn statistics_kstat(
        &self,
        _: &Call,
        request: statistics::Kstat,
    ) -> Result<statistics::Kstats, Refusal> {
        Ok(self.kstat(&request))
    }

    fn statistics_metrics(
        &self,
        _: &Call,
        _: statistics::Metrics,
    ) -> Result<statistics::MetricFamilies, Refusal> {
        Ok(self.metrics())
    }

    fn analytics_query(
        &self,
        call: &Call,
        request: analytics::Query,
    ) -> Result<analytics::Answer, Refusal> {
        self.command(call, |operation| {
            self.analytics_answer(call, &request, operation)
        })
    }

    fn analytics_operations(
        &self,
        call: &Call,
        request: analytics::Operations,
    ) -> Result<analytics::OperationList, Refusal> {
        self.command(call, |operation| {
            self.list_operations(call, &request, operation)
        })
    }

    fn analytics_instrument(
        &self,
        call: &Call,
        request: analytics::Instrument,
    ) -> Result<analytics::Instrumented, Refusal> {
        self.command(call, |operation| self.instrument(call, &request, operation))
    }

    fn analytics_live(
        &self,
        call: &Call,
        request: analytics::Live,
    ) -> Result<analytics::Answer, Refusal> {
        self.command(call, |operation| self.live(call, &request, operation))
    }

    fn analytics_remove(&self, call: &Call, request: analytics::Remove) -> Result<Done, Refusal> {
        self.remove_instrumentation(call, request)
    }

    fn analytics_list(
        &self,
        call: &Call,
        _: analytics::List,
    ) -> Result<analytics::Instrumentations, Refusal> {
        self.list_instrumentations(call)
    }

    fn analytics_events(
        &self,
        call: &Call,
        request: analytics::Events,
    ) -> Result<analytics::Happened, Refusal> {
        self.happened(call, &request)
    }

    fn analytics_add_alert(
        &self,
        call: &Call,
        request: analytics::AddAlert,
    ) -> Result<Done, Refusal> {
        self.command(call, |operation| self.add_alert(call, request, operation))
    }

    fn analytics_remove_alert(
        &self,
        call: &Call,
        request: analytics::RemoveAlert,
    ) -> Result<Done, Refusal> {
        self.remove_alert(call, &request)
    }

    fn analytics_list_alerts(
        &self,
        call: &Call,
        request: analytics::ListAlerts,
    ) -> Result<analytics::Alerts, Refusal> {
        self.list_alerts(call, request)
    }

    fn analytics_state(
        &self,
        _: &Call,
        _: analytics::State,
    ) -> Result<analytics::RecorderState, Refusal> {
        Ok(self.recorder_state())
    }

    fn analytics_catalogue(
        &self,
        _: &Call,
        _: analytics::Catalogue,
    ) -> Result<analytics::Known, Refusal> {
        Ok(catalogue())
    }
}
