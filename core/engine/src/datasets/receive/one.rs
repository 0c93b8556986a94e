//! One stream: from its first record to the snapshot.

use super::destination::destination;
use super::package::{Package, Sent};
use super::properties::Target;
use super::{CANNOT, Run};
use crate::datasets::cannot_open;
use crate::datasets::create::missing_parents;
use crate::datasets::create::parent as parent_task;
use crate::datasets::remount::{Back, Extent, named, with_those_on_them};
use crate::engine::OpenPool;
use crate::messages::dataset::{ReceiveEvent, ReceiveNames};
use crate::messages::{Refusal, RefusalKind};
use crate::refusals::{of_task, of_tasks};
use std::io::Read;
use std::sync::Arc;
use tarn_dataset::contents::{self, Contents};
use tarn_dataset::crypto_key::{KEY_DATA, KeyFacts};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::directory::Directory;
use tarn_dataset::error::DatasetError;
use tarn_dataset::limits::AdmitRefusal;
use tarn_dataset::names::{DatasetName, NameKind};
use tarn_dataset::namespace::View;
use tarn_dataset::ops::hold::HoldSnapshots;
use tarn_dataset::ops::on_behalf::{Growth, OnBehalf};
use tarn_dataset::ops::receive::{
    AbandonReceive, BeginReceive, FinishReceive, NotSet, ReceiveSettings, Receiver, StreamFacts,
    is_clone, resumable, resume_list, target_of,
};
use tarn_dataset::properties::value::Kinds;
use tarn_dataset::receiving::ReceiveClaim;
use tarn_dataset::task::TaskRefusal;
use tarn_ondisk::dataset::{RESUME_BYTES, RESUME_OBJECT, RESUME_OFFSET, RESUME_TO_GUID};
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::stream::{Begin, Record, StreamFeatures, begin_flags};
use tarn_pool::{Mode, TaskError};
use tarn_stream::reading::{StreamError, StreamReader};
use tarn_stream::receive::{Destination, ReceiveError, receive};

/// What this program can receive.
#[doc(alias = "DMU_BACKUP_FEATURE_MASK")]
const RECEIVABLE: StreamFeatures = StreamFeatures::SPILL
    .with(StreamFeatures::EMBEDDED)
    .with(StreamFeatures::LZ4)
    .with(StreamFeatures::LARGE_BLOCKS)
    .with(StreamFeatures::RESUMING)
    .with(StreamFeatures::COMPRESSED)
    .with(StreamFeatures::LARGE_DNODES)
    .with(StreamFeatures::ZSTD)
    .with(StreamFeatures::HOLDS)
    .with(StreamFeatures::SWITCH_TO_LARGE_BLOCKS)
    .with(StreamFeatures::LONG_NAMES)
    .with(StreamFeatures::LARGE_MICROZAPS)
    .with(StreamFeatures::RAW);

/// What is known of a stream before its second record.
pub(super) struct Plan {
    facts: StreamFacts,
    flags: u32,
    /// The full name of the snapshot at the sender.
    sent: String,
    /// What it becomes.
    snapshot: DatasetName,
    /// The snapshot that what it becomes is a clone of.
    origin: Option<String>,
    /// It makes a file system or volume.
    pub(super) makes_new: bool,
    /// It goes on from where another broke off.
    resumes: bool,
    /// What the first record's list says of that.
    description: NvList,
    pub(super) settings: ReceiveSettings,
    /// Whether properties came with the stream.
    has_properties: bool,
    snapshot_properties: NvList,
    /// The key, where the stream is of something encrypted.
    key: Option<KeyFacts>,
}

impl Plan {
    pub(super) fn target(&self) -> &str {
        self.snapshot.head()
    }

    fn kinds(&self) -> Kinds {
        kinds_of(&self.facts)
    }

    /// What cannot be done, when it cannot.
    pub(super) fn action(&self) -> &'static str {
        match (self.makes_new, self.resumes) {
            (true, _) => "cannot receive new filesystem stream",
            (_, true) => "cannot receive resume stream",
            _ => "cannot receive incremental stream",
        }
    }

    fn refuse(&self, kind: RefusalKind, reason: impl Into<String>) -> Refusal {
        Refusal::new(kind, self.action(), reason)
    }
}

fn kinds_of(facts: &StreamFacts) -> Kinds {
    match facts.objset_type {
        ObjsetType::Zvol => Kinds::VOLUME,
        _ => Kinds::FILESYSTEM,
    }
}

impl Run<'_> {
    /// Takes one stream.
    pub(super) fn take_one(
        &mut self,
        reader: &mut StreamReader<&mut dyn Read>,
        begin: &Begin,
        payload: &[u8],
        base: &str,
        of: Option<(&Package, Option<&Sent>)>,
    ) -> Result<(), Refusal> {
        let begun_ns = tarn_host::monotonic_ns();
        let facts = facts_of(begin)?;
        let is_tree = of.is_some_and(|(package, _)| package.is_tree);
        let snapshot = destination(self.request, &facts.to_name, base, is_tree)?;
        let open = self.engine.find_pool(snapshot.pool()).ok_or_else(|| {
            let reason = format!("destination '{}' does not exist", snapshot.head());
            Refusal::new(RefusalKind::NotFound, CANNOT, reason)
        })?;
        if open.pool.mode() == Mode::ReadOnly {
            let reason = "pool is read-only";
            return Err(Refusal::new(RefusalKind::ReadOnly, CANNOT, reason));
        }
        let sent = of.and_then(|(_, sent)| sent);
        let mut plan = self.plan(&open, begin, payload, facts, snapshot, of)?;
        self.tell(ReceiveEvent::Receiving {
            sent: plan.sent.clone(),
            snapshot: plan.snapshot.to_string(),
            incremental: plan.facts.from_guid != 0,
            origin: plan.origin.clone(),
        });
        if self.request.dry_run {
            return self.pass_over(reader, &plan);
        }
        self.permit(&open, &mut plan)?;
        self.changed = true;
        self.mounts |= of.is_some() && plan.kinds() == Kinds::FILESYSTEM;
        if self.is_there(&open, &plan, of.is_some()) {
            self.tell(ReceiveEvent::Exists {
                snapshot: plan.snapshot.to_string(),
            });
            return self.pass_over(reader, &plan);
        }
        if plan.makes_new && self.request.names == ReceiveNames::AllButPool {
            self.make_parents(&open, &plan)?;
        }
        self.mounts |= self.receive_into(&open, reader, &mut plan)?;
        if let Some(sent) = sent.filter(|_| !self.request.skip_holds) {
            self.put_holds(&open, &plan, sent);
        }
        self.tell(ReceiveEvent::Received {
            bytes: reader.received_bytes(),
            nanoseconds: tarn_host::monotonic_ns().saturating_sub(begun_ns),
        });
        Ok(())
    }

    /// Puts the holds on a snapshot that it had at the sender.
    fn put_holds(&mut self, open: &Arc<OpenPool>, plan: &Plan, sent: &Sent) {
        for tag in sent.holds_of(plan.facts.to_guid) {
            let snapshot = plan.snapshot.to_string();
            let task = HoldSnapshots {
                names: vec![snapshot.clone()],
                tag: tag.clone(),
            };
            if let Err(error) = open.pool.run(task, self.operation) {
                let action = format!("cannot hold snapshot '{snapshot}' with tag '{tag}'");
                let refusal = of_tasks(action.clone(), |_| action.clone(), &error);
                self.done.warnings.push(refusal.to_string());
            }
        }
    }

    /// Reads a stream that nobody wants.
    #[doc(alias = "recv_skip")]
    fn pass_over(
        &self,
        reader: &mut StreamReader<&mut dyn Read>,
        plan: &Plan,
    ) -> Result<(), Refusal> {
        loop {
            let next = reader.next().map_err(|error| {
                let reason = error.to_string();
                plan.refuse(RefusalKind::Invalid, reason)
            })?;
            if matches!(next.record, Record::End(_)) {
                return Ok(());
            }
        }
    }

    /// Whether the target has this very snapshot, so that nobody wants the stream. A plain stream goes in again where the snapshot has another name by now.
    fn is_there(&self, open: &OpenPool, plan: &Plan, is_of_package: bool) -> bool {
        if plan.resumes || (plan.makes_new && !is_of_package) {
            return false;
        }
        let view = open.pool.namespace().view(self.operation);
        let Ok(Some(head)) = head_of(view, plan.target()) else {
            return false;
        };
        let is_it = |one: &Dataset<'_>| {
            let guid = one.stored().map(|stored| stored.guid.get());
            guid.is_ok_and(|guid| guid == plan.facts.to_guid)
        };
        let short = plan.snapshot.tail().unwrap_or_default();
        let is_name_taken = || head.snapshot(short).is_ok_and(|found| found.is_some());
        (is_of_package || is_name_taken())
            && head.snapshots().is_ok_and(|all| all.iter().any(is_it))
    }

    /// Finds out what becomes of a stream.
    fn plan(
        &mut self,
        open: &Arc<OpenPool>,
        begin: &Begin,
        payload: &[u8],
        facts: StreamFacts,
        snapshot: DatasetName,
        of: Option<(&Package, Option<&Sent>)>,
    ) -> Result<Plan, Refusal> {
        let sent = of.and_then(|(_, sent)| sent);
        let description = match payload {
            [] => NvList::default(),
            payload => NvList::decode(payload).map_err(|why| {
                let reason = format!("invalid stream (its description cannot be read: {why})");
                Refusal::new(RefusalKind::Invalid, CANNOT, reason)
            })?,
        };
        let resumes = facts.features.has(StreamFeatures::RESUMING);
        let asked = self.request.properties.iter().rev();
        let asked = asked.clone().find(|(name, _)| name == "origin");
        let mut plan = Plan {
            sent: facts.to_name.clone(),
            flags: begin.flags,
            makes_new: false,
            resumes,
            origin: asked.map(|(_, value)| value.clone()),
            snapshot,
            description,
            settings: ReceiveSettings::default(),
            has_properties: sent.is_some(),
            snapshot_properties: sent
                .map_or_else(NvList::default, |sent| sent.properties_of(facts.to_guid)),
            key: None,
            facts,
        };
        plan.key = key_of(&plan)?;
        let wants_new = plan.facts.from_guid == 0 || plan.facts.is_clone || plan.origin.is_some();
        plan.makes_new = wants_new && !resumes;
        let namespace = open.pool.namespace();
        let view = namespace.view(self.operation);
        if plan.facts.is_clone && plan.origin.is_none() {
            let found = snapshot_with(view, plan.target(), plan.facts.from_guid);
            plan.origin = Some(found.ok_or_else(|| {
                let reason = format!("local origin for clone {} does not exist", plan.snapshot);
                plan.refuse(RefusalKind::NotFound, reason)
            })?);
        }
        self.find_moved(view, &mut plan, sent)?;
        let head =
            head_of(view, plan.target()).map_err(|error| cannot_open(plan.target(), &error))?;
        match &head {
            Some(head) => self.check_existing(&plan, head)?,
            None => self.check_missing(view, &plan)?,
        }
        let is_top = self.top.get_or_insert_with(|| plan.target().to_string()) == plan.target();
        let target = Target {
            name: plan.target(),
            kinds: plan.kinds(),
            is_top,
            is_of_tree: of.is_some_and(|(package, _)| package.is_tree),
            is_raw: plan.key.is_some(),
        };
        plan.settings = self.settings(open, &target, sent.map(|sent| &sent.properties))?;
        Ok(plan)
    }

    /// A file system of a package may have been moved at the target: it is found by the guid of what it goes on from, and a new one by that of its parent's
    /// snapshot.
    fn find_moved(
        &self,
        view: View<'_>,
        plan: &mut Plan,
        sent: Option<&Sent>,
    ) -> Result<(), Refusal> {
        let short = plan.snapshot.tail().unwrap_or_default().to_string();
        let is_there = |name: &str| head_of(view, name).is_ok_and(|head| head.is_some());
        let found = if plan.makes_new {
            let parent = plan
                .snapshot
                .parent()
                .map(|(parent, component)| (parent.to_string(), component.to_string()));
            let guid = sent.map_or(0, |sent| sent.parent_guid);
            match parent {
                Some((parent, component)) if guid != 0 && !is_there(&parent) => {
                    let found = snapshot_with(view, plan.target(), guid);
                    found.map(|name| {
                        let head = name.split('@').next().unwrap_or_default();
                        format!("{head}/{component}@{short}")
                    })
                }
                _ => None,
            }
        } else if sent.is_some() && !is_there(plan.target()) {
            let found = snapshot_with(view, plan.target(), plan.facts.from_guid);
            found.map(|name| {
                let head = name.split('@').next().unwrap_or_default();
                format!("{head}@{short}")
            })
        } else {
            None
        };
        if let Some(found) = found {
            plan.snapshot = DatasetName::parse(&found)
                .map_err(|bad| plan.refuse(RefusalKind::Invalid, bad.to_string()))?;
        }
        Ok(())
    }

    /// What a target that is there must be.
    fn check_existing(&self, plan: &Plan, head: &Dataset<'_>) -> Result<(), Refusal> {
        let exists = |reason: String| plan.refuse(RefusalKind::Exists, reason);
        let failed = |error: DatasetError| cannot_open(plan.target(), &error);
        if !plan.makes_new {
            return Ok(());
        }
        let name = plan.target();
        if !self.request.force {
            return Err(exists(format!(
                "destination '{name}' exists\nmust specify -F to overwrite it"
            )));
        }
        if let Some(first) = head.snapshots().map_err(failed)?.first() {
            let first = first.name();
            return Err(exists(format!(
                "destination has snapshots (eg. {first})\nmust destroy them to overwrite it"
            )));
        }
        if plan.kinds() == Kinds::VOLUME {
            let directory = head.directory();
            if !name.contains('/') {
                return Err(exists(format!(
                    "destination {name} is the root dataset\ncannot overwrite with a ZVOL"
                )));
            }
            let children = directory.child_names().map_err(failed)?;
            if let Some(first) = children.first() {
                return Err(exists(format!(
                    "destination has children (eg. {name}/{first})\ncannot overwrite with a ZVOL"
                )));
            }
        }
        let view = head.directory().view();
        if is_clone(view, head).map_err(failed)? {
            return Err(exists(format!(
                "destination '{name}' is a clone\nmust destroy it to overwrite it"
            )));
        }
        if plan.origin.is_some() {
            return Err(exists(format!(
                "destination '{name}' exists\nmust destroy it to overwrite it with a clone"
            )));
        }
        Ok(())
    }

    /// What there must be for a target to be made.
    fn check_missing(&self, view: View<'_>, plan: &Plan) -> Result<(), Refusal> {
        let Some((parent, _)) = plan.snapshot.parent().filter(|_| plan.makes_new) else {
            let reason = format!("destination '{}' does not exist", plan.target());
            return Err(plan.refuse(RefusalKind::NotFound, reason));
        };
        let head = head_of(view, parent).map_err(|error| cannot_open(parent, &error))?;
        let Some(head) = head else {
            // It is made, too, when it is known that the stream may come in.
            if self.request.names == ReceiveNames::AllButPool {
                return Ok(());
            }
            let action = format!("cannot open '{parent}'");
            let refusal = Refusal::new(RefusalKind::NotFound, action, "dataset does not exist");
            return Err(refusal.with_hint(format!(
                "{}: unable to restore to destination",
                plan.action()
            )));
        };
        match contents::outline(&head) {
            Ok(Contents::Volume(_)) => {
                let reason = format!("parent '{parent}' is not a filesystem");
                Err(plan.refuse(RefusalKind::Invalid, reason))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(cannot_open(parent, &error)),
        }
    }

    /// With `-d`, makes what is missing above the target.
    #[doc(alias = "create_parents")]
    fn make_parents(&mut self, open: &Arc<OpenPool>, plan: &Plan) -> Result<(), Refusal> {
        let missing = missing_parents(open, plan.target(), self.operation)?;
        for name in missing {
            let task = parent_task(self.call, &name, false);
            let task = self.engine.creating(self.call, task, &name);
            let made = open.pool.run(task, self.operation);
            made.map_err(|error| of_task(format!("cannot create '{name}'"), &error))?;
            if !self.request.no_mount {
                let warnings = &mut self.done.warnings;
                self.engine
                    .mount_created(self.call, open, &name, warnings, self.operation);
            }
        }
        Ok(())
    }

    /// Takes a stream in, up to the snapshot. Says whether it made a file system that can be mounted.
    fn receive_into(
        &mut self,
        open: &Arc<OpenPool>,
        reader: &mut StreamReader<&mut dyn Read>,
        plan: &mut Plan,
    ) -> Result<bool, Refusal> {
        let (receiver, claim, bytes_before) = match plan.resumes {
            true => self.resume(open, plan)?,
            false => self.begin(open, plan)?,
        };
        let namespace = open.pool.namespace();
        let is_resumable = plan.resumes || self.request.resumable;
        let outcome = namespace
            .head_set(receiver.head, self.operation)
            .map_err(|error| cannot_open(plan.target(), &error))
            .and_then(|set| {
                let destination = Destination {
                    pool: &open.pool,
                    set,
                    claim: &claim,
                    is_resumable,
                    bytes_before,
                    key: plan.key.as_ref(),
                };
                receive(reader, &plan.facts, plan.flags, destination, self.operation)
                    .map_err(|error| self.failed(plan, &error, is_resumable))
            })
            .and_then(|()| self.finish(open, plan, receiver));
        if is_resumable && outcome.is_err() {
            // What came is worth something only once it is stored, with up to where it came.
            drop(open.pool.sync_all(self.operation));
        }
        // Nobody destroys what is being given up: the claim is held until that is done.
        let outcome = match outcome {
            Ok(()) => {
                Ok(receiver.is_new && plan.key.is_none() && plan.kinds() == Kinds::FILESYSTEM)
            }
            Err(refusal) => Err(self.give_up(open, plan, receiver, is_resumable, refusal)),
        };
        drop(claim);
        outcome
    }

    fn begin(
        &mut self,
        open: &Arc<OpenPool>,
        plan: &Plan,
    ) -> Result<(Receiver, ReceiveClaim, u64), Refusal> {
        let _turn = self.engine.turn(open)?;
        let task = BeginReceive {
            target: plan.target().to_string(),
            snapshot: plan.snapshot.tail().unwrap_or_default().to_string(),
            origin: plan.origin.clone(),
            stream: plan.facts.clone(),
            force: self.request.force,
            resumable: self.request.resumable,
            settings: plan.settings.clone(),
            key: plan.key.clone(),
        };
        let task = self.on_behalf(plan, task);
        let begun = open.pool.run(task, self.operation);
        let begun = begun.map_err(|error| self.refused(open, plan, &error))?;
        self.tell_not_set(plan, begun.not_set);
        let claim = open.pool.namespace().claim_receive(begun.receiver.head);
        let claim = claim.expect("a head that was just made is nobody's");
        Ok((begun.receiver, claim, 0))
    }

    /// What could not be set is told, and does not keep the stream from being received. A refquota that is smaller than one of the snapshots before the last of a package
    /// is not worth telling.
    fn tell_not_set(&mut self, plan: &Plan, not_set: Vec<NotSet>) {
        let target = plan.target();
        let short = plan.snapshot.tail().unwrap_or_default();
        let is_last = self.last.as_deref().is_none_or(|last| last == short);
        let told = not_set
            .into_iter()
            .filter(|one| is_last || one.property != "refquota");
        let warnings = told.map(|NotSet { property, why }| {
            format!("cannot receive {property} property on {target}: {why}")
        });
        self.done.warnings.extend(warnings);
    }

    /// Goes on where another stream broke off: exactly there.
    #[doc(alias = "resume_check")]
    fn resume(
        &mut self,
        open: &Arc<OpenPool>,
        plan: &Plan,
    ) -> Result<(Receiver, ReceiveClaim, u64), Refusal> {
        let _turn = self.engine.turn(open)?;
        let namespace = open.pool.namespace();
        let view = namespace.view(self.operation);
        let found = resumable(view, plan.target(), &plan.facts, self.request.force);
        let receiver = found.map_err(|refusal| match refusal {
            TaskRefusal::Exists { name } => plan.refuse(
                RefusalKind::Exists,
                format!(
                    "Resuming recv on existing destination '{name}'\nmust specify -F to overwrite it"
                ),
            ),
            other => self.refused(open, plan, &TaskError::Refused(other)),
        })?;
        let failed = |error: DatasetError| cannot_open(plan.target(), &error);
        let head = view.dataset_without_name(receiver.head).map_err(failed)?;
        let stored = |name| -> Result<u64, Refusal> {
            Ok(head.extension(name).map_err(failed)?.unwrap_or(0))
        };
        let said = |name: &str| plan.description.optional_u64(name).ok().flatten();
        let is_there = said("resume_object") == Some(stored(RESUME_OBJECT)?)
            && said("resume_offset") == Some(stored(RESUME_OFFSET)?);
        if !is_there {
            let reason = "the stream does not go on where the one before it broke off";
            return Err(plan.refuse(RefusalKind::Invalid, reason));
        }
        let bytes = stored(RESUME_BYTES)?;
        let claim = namespace.claim_receive(receiver.head);
        let claim = claim.ok_or_else(|| plan.refuse(RefusalKind::Busy, "dataset is busy"))?;
        Ok((receiver, claim, bytes))
    }

    /// Makes the snapshot. What is mounted of the target is unmounted meanwhile.
    fn finish(
        &mut self,
        open: &Arc<OpenPool>,
        plan: &mut Plan,
        receiver: Receiver,
    ) -> Result<(), Refusal> {
        let _turn = self.engine.turn(open)?;
        self.find_renamed(open, plan, receiver)?;
        let plan = &*plan;
        let snapshot_properties = plan.snapshot_properties.clone();
        let name = plan.snapshot.to_string();
        let snapshot_settings = self.received(open, &name, Kinds::SNAPSHOT, &snapshot_properties);
        let task = FinishReceive {
            target: plan.target().to_string(),
            snapshot: plan.snapshot.tail().unwrap_or_default().to_string(),
            receiver,
            to_guid: plan.facts.to_guid,
            creation_time_s: plan.facts.creation_time_s,
            force: self.request.force,
            settings: plan.settings.clone(),
            is_set: !plan.resumes,
            has_properties: plan.has_properties,
            snapshot_settings,
            key: plan.key.clone(),
        };
        let growth = vec![Growth::Snapshot(plan.target().to_string())];
        let task = self.engine.on_behalf(self.call, task, growth, Vec::new());
        if receiver.is_new {
            return self.run_finish(open, plan, task);
        }
        let going = named(open, &[plan.target().to_string()], self.operation)
            .and_then(|going| with_those_on_them(open, going, self.operation));
        let going = going.map_err(|error| cannot_open(plan.target(), &error))?;
        let interrupted: Vec<String> = going.iter().map(|one| one.name.clone()).collect();
        self.engine
            .permit_interruption(self.call, open, &interrupted)?;
        let by_force = self.request.force || self.request.force_unmount;
        let by_force = by_force && self.engine.trusts(&self.call.caller);
        let unmounted = self.engine.take_off(
            self.call,
            open,
            &going,
            Extent::wholly(by_force),
            self.operation,
        )?;
        let outcome = self.run_finish(open, plan, task);
        let back = self.engine.put_back(
            self.call,
            open,
            &going,
            &unmounted,
            Back::WhatWasUntouched,
            self.operation,
        );
        outcome?;
        // What is below it was not unmounted, and may inherit something else now.
        let refreshed = self
            .engine
            .refresh_below(open, plan.target(), self.operation);
        // It was received, whether it can be mounted or not.
        for refusal in [back, refreshed].into_iter().filter_map(Result::err) {
            self.done.warnings.push(refusal.to_string());
        }
        Ok(())
    }

    fn run_finish(
        &mut self,
        open: &OpenPool,
        plan: &Plan,
        task: OnBehalf<FinishReceive>,
    ) -> Result<(), Refusal> {
        let finished = open.pool.run(task, self.operation);
        let not_set = finished.map_err(|error| self.refused(open, plan, &error))?;
        self.tell_not_set(plan, not_set);
        Ok(())
    }

    /// The target may have got another name while the stream came. The caller has the pool's turn, so that it keeps that now.
    fn find_renamed(
        &self,
        open: &OpenPool,
        plan: &mut Plan,
        receiver: Receiver,
    ) -> Result<(), Refusal> {
        let view = open.pool.namespace().view(self.operation);
        let target = target_of(view, receiver);
        let target = target.map_err(|error| cannot_open(plan.target(), &error))?;
        if target.name() == plan.target() {
            return Ok(());
        }
        let short = plan.snapshot.tail().unwrap_or_default();
        let snapshot = format!("{}@{short}", target.name());
        plan.snapshot = DatasetName::parse(&snapshot)
            .map_err(|bad| plan.refuse(RefusalKind::Invalid, bad.to_string()))?;
        Ok(())
    }

    /// Gives up what was received, unless it may go on.
    fn give_up(
        &self,
        open: &Arc<OpenPool>,
        plan: &Plan,
        receiver: Receiver,
        is_resumable: bool,
        refusal: Refusal,
    ) -> Refusal {
        if is_resumable {
            return match self.token(open, receiver) {
                Some(token) => refusal.with_hint(format!(
                    "A resuming stream can be generated on the sending system by running:\n    \
                     zfs send -t {token}"
                )),
                None => refusal,
            };
        }
        let head = receiver.head;
        match open.pool.run(AbandonReceive { head }, self.operation) {
            Ok(()) => refusal,
            Err(error) => {
                let kept = of_task(
                    format!("cannot destroy what was received of '{}'", plan.target()),
                    &error,
                );
                refusal.with_hint(kept.to_string())
            }
        }
    }

    /// What the sender needs to go on.
    fn token(&self, open: &OpenPool, receiver: Receiver) -> Option<String> {
        let view = open.pool.namespace().view(self.operation);
        let head = view.dataset_without_name(receiver.head).ok()?;
        let list = resume_list(&head).ok()??;
        Some(tarn_stream::token::encode(&list))
    }

    /// Why a stream did not go in, in OpenZFS's words.
    fn failed(&self, plan: &Plan, error: &ReceiveError, is_resumable: bool) -> Refusal {
        let name = plan.target();
        match error {
            ReceiveError::Room(AdmitRefusal::QuotaExceeded) => {
                let reason = format!("destination {name} space quota exceeded.");
                plan.refuse(RefusalKind::NoSpace, reason)
            }
            ReceiveError::Room(AdmitRefusal::NoSpace) => {
                plan.refuse(RefusalKind::NoSpace, "out of space")
            }
            ReceiveError::Stream(
                damage @ (StreamError::Checksum { .. } | StreamError::Ended { .. }),
            ) => {
                let what = match damage {
                    StreamError::Ended { .. } => "incomplete stream",
                    _ => "checksum mismatch",
                };
                if !is_resumable {
                    let refusal = plan.refuse(RefusalKind::Corrupt, what);
                    return match damage {
                        // There is nothing more to say.
                        StreamError::Ended { .. } => refusal,
                        damage => refusal.with_hint(damage.to_string()),
                    };
                }
                let reason = format!("{what}.\nPartially received snapshot is saved.");
                plan.refuse(RefusalKind::Corrupt, reason)
            }
            ReceiveError::Stopped(_) => plan.refuse(RefusalKind::Suspended, error.to_string()),
            ReceiveError::Object(_) => plan.refuse(RefusalKind::Device, error.to_string()),
            other => plan.refuse(RefusalKind::Corrupt, other.to_string()),
        }
    }

    /// Why there is no room for a stream, or no snapshot of it, in OpenZFS's words.
    fn refused(&self, open: &OpenPool, plan: &Plan, error: &TaskError) -> Refusal {
        let target = plan.target();
        let TaskError::Refused(refusal) = error else {
            return of_task(plan.action(), error);
        };
        let say = |kind, reason: String| plan.refuse(kind, reason);
        match refusal {
            TaskRefusal::NoBase => say(
                RefusalKind::Invalid,
                format!("most recent snapshot of {target} does not\nmatch incremental source"),
            ),
            TaskRefusal::Modified => say(
                RefusalKind::Invalid,
                format!("destination {target} has been modified\nsince most recent snapshot"),
            ),
            TaskRefusal::SmallBlocks => {
                let reason = "incremental send stream requires -L (--large-block), to match previous receive.";
                say(RefusalKind::Invalid, reason.to_string())
            }
            TaskRefusal::FeatureDisabled { feature } => {
                let reason = "pool must be upgraded to receive this stream.".to_string();
                let feature = format!("it needs the feature '{}'", feature.guid());
                say(RefusalKind::Unsupported, reason).with_hint(feature)
            }
            TaskRefusal::Exists { name } => Refusal::new(
                RefusalKind::Exists,
                format!("cannot restore to {name}"),
                "destination already exists",
            ),
            TaskRefusal::Busy { .. } if self.has_partial(open, plan) => say(
                RefusalKind::Busy,
                format!(
                    "destination {target} contains partially-complete state from \"zfs receive -s\"."
                ),
            ),
            TaskRefusal::NoSpace { why } if why == "quota exceeded" => say(
                RefusalKind::NoSpace,
                format!("destination {target} space quota exceeded."),
            ),
            TaskRefusal::Several(refused) => {
                let reason = format!("destination {target} has snapshots that cannot be destroyed");
                let keepers = refused
                    .iter()
                    .map(|(name, why)| match self.keepers(open, name) {
                        Ok(keepers) if !keepers.is_empty() => keepers,
                        _ => vec![format!("'{name}': {why}")],
                    });
                let refusal = say(RefusalKind::Exists, reason);
                keepers.flatten().fold(refusal, Refusal::with_hint)
            }
            _ => of_task(plan.action(), error),
        }
    }

    /// What keeps a snapshot from being destroyed, each with what helps.
    fn keepers(&self, open: &OpenPool, name: &str) -> Result<Vec<String>, DatasetError> {
        let Ok(parsed) = DatasetName::parse(name) else {
            return Ok(Vec::new());
        };
        let view = open.pool.namespace().view(self.operation);
        let snapshot = view.dataset(&parsed)?;
        let mut keepers = Vec::new();
        for id in snapshot.clone_ids()? {
            let clone = view.dataset_by_id(id)?;
            let clone = clone.directory().name();
            keepers.push(format!(
                "'{name}' has the clone '{clone}': destroy that ('zfs destroy -r {clone}'), or receive into another dataset"
            ));
        }
        for (tag, _) in snapshot.holds()? {
            keepers.push(format!(
                "'{name}' has the hold '{tag}': release that ('zfs release {tag} {name}')"
            ));
        }
        Ok(keepers)
    }

    /// Whether something of another stream waits at the target.
    fn has_partial(&self, open: &OpenPool, plan: &Plan) -> bool {
        let view = open.pool.namespace().view(self.operation);
        let clone = tarn_dataset::ops::receive::receive_name(plan.target());
        [clone.as_str(), plan.target()].iter().any(|name| {
            let head = head_of(view, name).ok().flatten();
            head.is_some_and(|head| {
                head.extension(RESUME_TO_GUID)
                    .is_ok_and(|guid| guid.is_some())
            })
        })
    }
}

/// The key that a raw stream brings.
fn key_of(plan: &Plan) -> Result<Option<KeyFacts>, Refusal> {
    if !plan.facts.features.has(StreamFeatures::RAW) {
        return Ok(None);
    }
    if plan.facts.features.has(StreamFeatures::EMBEDDED) {
        let reason = "incompatible embedded data stream feature with encrypted receive.";
        return Err(plan.refuse(RefusalKind::Invalid, reason));
    }
    if plan.flags & begin_flags::SPILL_BLOCK == 0 {
        let reason = "Spill block flag missing for raw send.\n\
                      The zfs software on the sending system must be updated.";
        return Err(plan.refuse(RefusalKind::Invalid, reason));
    }
    let list = plan.description.list(KEY_DATA);
    let list = list.map_err(|why| {
        let reason = format!("invalid stream (it has no key: {why})");
        plan.refuse(RefusalKind::Invalid, reason)
    })?;
    match KeyFacts::parse(list) {
        Ok(key) => Ok(Some(key)),
        Err(refusal @ TaskRefusal::NotSupported { .. }) => {
            let reason = "stream uses crypto parameters not compatible with this pool";
            let refused = plan.refuse(RefusalKind::Unsupported, reason);
            Err(refused.with_hint(refusal.to_string()))
        }
        Err(refusal) => Err(plan.refuse(RefusalKind::Invalid, refusal.to_string())),
    }
}

/// What the first record says, as far as this program can receive it.
fn facts_of(begin: &Begin) -> Result<StreamFacts, Refusal> {
    let invalid = |reason: String| Refusal::new(RefusalKind::Invalid, CANNOT, reason);
    let unsupported = |reason: String| Refusal::new(RefusalKind::Unsupported, CANNOT, reason);
    let features = begin.features();
    if features.has(StreamFeatures::DEDUP) {
        return Err(unsupported(
            "\"zfs receive\" no longer supports deduplicated send streams.  Use\nthe \"zstream redup\" command to convert this stream to a regular,\nnon-deduplicated stream."
                .to_string(),
        ));
    }
    let unknown = features.without(RECEIVABLE);
    if unknown != StreamFeatures::NONE {
        return Err(unsupported(format!(
            "stream has unsupported feature, feature flags = {:x} (unknown flags = {:x}: {unknown})",
            features.0, unknown.0
        )));
    }
    let name = begin.to_name.as_str().unwrap_or_default();
    let is_snapshot =
        DatasetName::parse(name).is_ok_and(|parsed| parsed.kind() == NameKind::Snapshot);
    if !is_snapshot {
        return Err(invalid("invalid stream (bad snapshot name)".to_string()));
    }
    let objset_type = ObjsetType::from_code(u64::from(begin.objset_type));
    if !matches!(objset_type, ObjsetType::Zfs | ObjsetType::Zvol) {
        return Err(invalid(format!(
            "invalid record type: 0x{:x}",
            begin.objset_type
        )));
    }
    let has = |flag| begin.flags & flag != 0;
    Ok(StreamFacts {
        to_guid: begin.to_guid,
        from_guid: begin.from_guid,
        to_name: name.to_string(),
        creation_time_s: begin.creation_time_s,
        objset_type,
        is_clone: has(begin_flags::CLONE),
        has_free_records: has(begin_flags::FREE_RECORDS),
        is_case_insensitive: has(begin_flags::CASE_INSENSITIVE),
        features,
    })
}

/// The head of this name, if there is one.
pub(super) fn head_of<'a>(view: View<'a>, name: &str) -> Result<Option<Dataset<'a>>, DatasetError> {
    match view.directory(name).and_then(|found| found.head()) {
        Err(DatasetError::NotFound { .. }) => Ok(None),
        found => found,
    }
}

/// The full name of a snapshot with this guid: as near to a dataset as there is one, and anywhere in the pool at last.
#[doc(alias = "guid_to_name")]
fn snapshot_with(view: View<'_>, near: &str, guid: u64) -> Option<String> {
    let mut above = Some(near);
    while let Some(name) = above {
        let directory = view.directory(name).ok();
        if let Some(found) = directory.and_then(|directory| snapshot_below(directory, guid)) {
            return Some(found);
        }
        above = name.rsplit_once('/').map(|(parent, _)| parent);
    }
    None
}

fn snapshot_below(top: Directory<'_>, guid: u64) -> Option<String> {
    let mut waiting = vec![top];
    while let Some(directory) = waiting.pop() {
        let head = directory.head().ok().flatten();
        let snapshots = head.and_then(|head| head.snapshots().ok());
        for snapshot in snapshots.unwrap_or_default() {
            let stored = snapshot.stored();
            if stored.is_ok_and(|stored| stored.guid.get() == guid) {
                return Some(snapshot.name());
            }
        }
        waiting.extend(directory.children().unwrap_or_default());
    }
    None
}
