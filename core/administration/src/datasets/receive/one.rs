//! Receiving one stream: from its first record to the snapshot.

use super::destination::destination;
use super::first_record::facts_of;
use super::package::{Package, Sent};
use super::planning::{Plan, head_of};
use super::{CANNOT, Run};
use crate::datasets::cannot_open;
use crate::datasets::create::missing_parents;
use crate::datasets::create::parent as parent_task;
use crate::messages::dataset::{ReceiveEvent, ReceiveNames};
use crate::messages::{Refusal, RefusalKind};
use std::io::Read;
use std::sync::Arc;
use tarn_dataset::dataset::Dataset;
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::hold::HoldSnapshots;
use tarn_dataset::ops::on_behalf::{Growth, OnBehalf};
use tarn_dataset::ops::receive::{
    AbandonReceive, BeginReceive, FinishReceive, Receiver, resumable, resume_list, target_of,
};
use tarn_dataset::properties::value::Kinds;
use tarn_dataset::receiving::ReceiveClaim;
use tarn_dataset::task::TaskRefusal;
use tarn_engine::engine::OpenPool;
use tarn_engine::mounting::remount::{Back, Extent, named, with_those_on_them};
use tarn_engine::refusals::{of_task, of_tasks};
use tarn_ondisk::dataset::{RESUME_BYTES, RESUME_OBJECT, RESUME_OFFSET};
use tarn_ondisk::stream::{Begin, Record};
use tarn_pool::{Mode, TaskError};
use tarn_stream::reading::StreamReader;
use tarn_stream::receive::{Destination, receive};

impl Run<'_> {
    /// Receives one stream.
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
        let open = self
            .administrator
            .engine
            .find_pool(snapshot.pool())
            .ok_or_else(|| {
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

    /// Sets the sender's holds on a received snapshot.
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

    /// Reads a stream to its end without receiving it.
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

    /// Whether the target has the stream's snapshot already, so that the stream is skipped. A plain
    /// stream is received again where the snapshot has another name by now.
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

    /// With `-d`, creates the missing parents of the target.
    #[doc(alias = "create_parents")]
    fn make_parents(&mut self, open: &Arc<OpenPool>, plan: &Plan) -> Result<(), Refusal> {
        let missing = missing_parents(open, plan.target(), self.operation)?;
        for name in missing {
            let task = parent_task(self.call, &name, false);
            let task = self.administrator.creating(self.call, task, &name);
            let made = open.pool.run(task, self.operation);
            made.map_err(|error| of_task(format!("cannot create '{name}'"), &error))?;
            if !self.request.no_mount {
                let warnings = &mut self.done.warnings;
                self.administrator
                    .mount_created(self.call, open, &name, warnings, self.operation);
            }
        }
        Ok(())
    }

    /// Receives a stream up to its snapshot. True if it created a file system that can be mounted.
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
            // A resumable state is of use only once it is stored, with its position.
            drop(open.pool.sync_all(self.operation));
        }
        // The claim keeps the partial state from being destroyed by others until it is discarded.
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
        let _turn = self.administrator.engine.turn(open)?;
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

    /// Resumes a receive at the exact position where it was interrupted.
    #[doc(alias = "resume_check")]
    fn resume(
        &mut self,
        open: &Arc<OpenPool>,
        plan: &Plan,
    ) -> Result<(Receiver, ReceiveClaim, u64), Refusal> {
        let _turn = self.administrator.engine.turn(open)?;
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

    /// Takes the snapshot. The target is unmounted meanwhile.
    fn finish(
        &mut self,
        open: &Arc<OpenPool>,
        plan: &mut Plan,
        receiver: Receiver,
    ) -> Result<(), Refusal> {
        let _turn = self.administrator.engine.turn(open)?;
        self.find_renamed(open, plan, receiver)?;
        open.touch_volumes(plan.target());
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
        let task = self
            .administrator
            .on_behalf(self.call, task, growth, Vec::new());
        if receiver.is_new {
            return self.run_finish(open, plan, task);
        }
        let going = named(open, &[plan.target().to_string()], self.operation)
            .and_then(|going| with_those_on_them(open, going, self.operation));
        let going = going.map_err(|error| cannot_open(plan.target(), &error))?;
        let interrupted: Vec<String> = going.iter().map(|one| one.name.clone()).collect();
        self.administrator
            .permit_interruption(self.call, open, &interrupted)?;
        let by_force = self.request.force || self.request.force_unmount;
        let by_force = by_force && self.administrator.trusts(&self.call.caller);
        let unmounted = self.administrator.engine.take_off(
            self.administrator.beneficiary(self.call),
            open,
            &going,
            Extent::wholly(by_force),
            self.operation,
        )?;
        let engine = self.administrator.engine.clone();
        let operation = self.operation;
        let outcome = engine.replacing_volume(open, plan.target(), operation, || {
            self.run_finish(open, plan, task)
        });
        let back = self.administrator.engine.put_back(
            self.administrator.beneficiary(self.call),
            open,
            &going,
            &unmounted,
            Back::WhatWasUntouched,
            self.operation,
        );
        outcome?;
        // Datasets below it were not unmounted, and may inherit other values now.
        let refreshed =
            self.administrator
                .engine
                .refresh_below(open, plan.target(), self.operation);
        // The stream is received, whether or not it can be mounted.
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

    /// The target, which may have been renamed while the stream came. The caller has the pool's
    /// turn, which keeps the name.
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

    /// Discards the partial state, unless it is to be resumed.
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

    /// The resume token for the sender.
    fn token(&self, open: &OpenPool, receiver: Receiver) -> Option<String> {
        let view = open.pool.namespace().view(self.operation);
        let head = view.dataset_without_name(receiver.head).ok()?;
        let list = resume_list(&head).ok()??;
        Some(tarn_stream::token::encode(&list))
    }
}
