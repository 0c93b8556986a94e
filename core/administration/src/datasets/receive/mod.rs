//! `zfs receive`: a stream becomes a snapshot, or a package of streams becomes many.
//!
//! # Mechanism
//! A plain stream is one snapshot ([`one`]). A package begins with a list of its contents: file
//! systems with their properties and the guids of their snapshots; its streams are received one
//! after the other, and each finds its file system in the list ([`package`]). The target's name
//! follows from the sender's name and from options ([`destination`]).
//!
//! The pool's turn is held while a stream begins and ends, not while its bytes come. Received file
//! systems are mounted after all streams ([`mounting`]).
//!
//! # After a failure
//! A partly received stream is discarded, or with `-s` kept until it is resumed. Complete streams
//! of a package stay, and are not mounted.

mod destination;
mod first_record;
mod follow;
mod mounting;
mod one;
mod package;
mod permitted;
mod planning;
mod properties;
mod receive_refusals;
mod tree;
mod watch;

pub(crate) use watch::Watched as WatchedReceive;

use crate::administration::Call;
use crate::administrator::Administrator;
use crate::command_permissions::{need, permission};
use crate::messages::dataset::{
    AbortReceive, Receive, ReceiveEvent, ReceiveLine, ReceiveNames, Received,
};
use crate::messages::{Done, Refusal, RefusalKind};
use package::Package;
use std::io::{BufReader, Read};
use std::sync::Arc;
use tarn_dataset::dataset::Dataset;
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::receive::{AbandonReceive, receive_name};
use tarn_engine::mounting::remount::TakenOff;
use tarn_engine::refusals::of_task;
use tarn_ondisk::dataset::{DatasetFlags, RESUME_TO_GUID};
use tarn_ondisk::stream::StreamKind;
use tarn_probe::Operation;
use tarn_stream::reading::{StreamError, StreamReader};
use watch::Counted;

/// The action of refusals of an unsupported stream.
const CANNOT: &str = "cannot receive";

/// Bytes read from the caller's descriptor at once, unless more are wanted. Contents are read
/// straight into their block's memory, except for bytes that came with the record before them: so
/// this is little beside a block, and much beside a record.
const INPUT_BYTES: usize = 8 << 10;

/// A receive under way.
struct Run<'a> {
    administrator: &'a Administrator,
    call: &'a Call,
    request: &'a Receive,
    operation: &'a Operation,
    done: Received,
    /// The command that watches, and how many of the warnings it has.
    watched: Option<Arc<WatchedReceive>>,
    warnings_told: usize,
    /// The file system that the first stream went to.
    top: Option<String>,
    /// The short name of a package's last snapshot, if the package names it.
    last: Option<String>,
    /// The receive may have changed something.
    changed: bool,
    /// A received file system is to be mounted.
    mounts: bool,
    /// Mounts that were undone until all streams are in.
    taken_off: Vec<TakenOff>,
}

impl Administrator {
    /// Receives the stream from the caller's descriptor.
    pub(crate) fn receive(
        &self,
        call: &Call,
        request: &Receive,
        operation: &Operation,
    ) -> Result<Received, Refusal> {
        let watching = self.enter_receive(call, request);
        let open = self.engine.require_pool_of(&request.target)?;
        let pipe = call.pipe.clone().ok_or_else(|| {
            let reason = "the caller handed no descriptor over";
            Refusal::new(RefusalKind::Invalid, CANNOT, reason)
        })?;
        let turn = self.engine.turn(&open)?;
        let _streaming = open.streams.begin(&pipe);
        drop(turn);
        let watched = watching.0.clone();
        let input = Counted {
            input: pipe,
            watched: watched.clone(),
        };
        let mut input = BufReader::with_capacity(INPUT_BYTES, input);
        self.receive_from(call, request, &mut input, watched, operation)
    }

    fn receive_from(
        &self,
        call: &Call,
        request: &Receive,
        input: &mut dyn Read,
        watched: Option<Arc<WatchedReceive>>,
        operation: &Operation,
    ) -> Result<Received, Refusal> {
        DatasetName::parse(&request.target).map_err(|bad| {
            Refusal::new(
                RefusalKind::Invalid,
                format!("cannot receive into '{}'", request.target),
                bad.to_string(),
            )
        })?;
        let mut run = Run {
            administrator: self,
            call,
            request,
            operation,
            done: Received::default(),
            watched,
            warnings_told: 0,
            top: None,
            last: None,
            changed: false,
            mounts: false,
            taken_off: Vec::new(),
        };
        let mut reader = StreamReader::new(input);
        let outcome = run.take_all(&mut reader);
        run.mount_received(outcome.is_ok());
        run.tell_warnings();
        let changed = run.changed;
        if let Some(pool) = request.target.split(['/', '@']).next().filter(|_| changed) {
            self.record_command(call, pool, operation);
        }
        match outcome {
            Ok(()) => Ok(run.done),
            Err(refusal) => Err(refusal),
        }
    }

    /// `zfs receive -A`: discards a partly received stream.
    #[doc(alias = "zfs_do_receive")]
    pub(crate) fn abort_receive(
        &self,
        call: &Call,
        request: &AbortReceive,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let name = &request.name;
        let open = self.engine.require_pool_of(name)?;
        let _turn = self.engine.turn(&open)?;
        let namespace = open.pool.namespace();
        let view = namespace.view(operation);
        let nothing = || {
            let reason = format!("'{name}' does not have any resumable receive state to abort\n");
            Refusal::new(RefusalKind::Invalid, "", reason.trim_end())
        };
        let resumes = |head: &Dataset<'_>| {
            let flags = head.stored().map(|stored| stored.flags).unwrap_or_default();
            let is_partial = flags.contains(DatasetFlags::INCONSISTENT);
            is_partial
                && head
                    .extension(RESUME_TO_GUID)
                    .is_ok_and(|guid| guid.is_some())
        };
        let head_of = |name: &str| {
            view.directory(name)
                .and_then(|found| found.head())
                .ok()
                .flatten()
        };
        let head = head_of(&receive_name(name)).or_else(|| head_of(name));
        let head = head.filter(|head| resumes(head)).ok_or_else(nothing)?;
        if namespace.is_receiving(head.id()) {
            let action = format!("cannot destroy '{}'", head.name());
            return Err(Refusal::new(RefusalKind::Busy, action, "dataset is busy"));
        }
        let action = format!("cannot destroy '{name}'");
        let needs = [need(head.name(), &[permission::MOUNT, permission::DESTROY])];
        self.permit(call, &open, action, &needs, operation)?;
        let task = AbandonReceive { head: head.id() };
        let record = self.command_record(call);
        let outcome = open.pool.run_command(task, record, operation);
        outcome
            .map(|()| Done {})
            .map_err(|error| of_task(format!("cannot destroy '{name}'"), &error))
    }
}

impl Run<'_> {
    fn take_all(&mut self, reader: &mut StreamReader<&mut dyn Read>) -> Result<(), Refusal> {
        self.check_said()?;
        self.check_above()?;
        let first = reader.begin().map_err(|error| unreadable(&error))?;
        let Some((begin, payload)) = first else {
            let reason = "empty stream";
            return Err(Refusal::new(RefusalKind::Invalid, CANNOT, reason));
        };
        match begin.kind() {
            StreamKind::Single => {
                let sent = begin.to_name.as_str().unwrap_or_default();
                let sent = sent.split('@').next().unwrap_or_default().to_string();
                self.take_one(reader, &begin, &payload, &sent, None)
            }
            StreamKind::Compound => {
                let package = Package::read(&begin, &payload)?;
                self.permit_following(package.is_tree)?;
                self.take_package(reader, &package)
            }
            StreamKind::Unknown(kind) => {
                let reason = format!("invalid stream (its header has the unknown kind {kind})");
                Err(Refusal::new(RefusalKind::Invalid, CANNOT, reason))
            }
        }
    }

    /// Checks that the parent of `-d` and `-e` exists, and the origin that `-o origin` names.
    fn check_above(&self) -> Result<(), Refusal> {
        let request = self.request;
        let is_below = request.names != ReceiveNames::AsGiven;
        let target = is_below.then_some(("specified fs", &request.target));
        let origin = request.properties.iter().rev();
        let origin = origin.clone().find(|(name, _)| name == "origin");
        let origin = origin.map(|(_, value)| ("specified origin fs", value));
        for (what, name) in target.into_iter().chain(origin) {
            if !self.is_dataset(name) {
                let reason = format!("{what} ({name}) does not exist");
                return Err(Refusal::new(RefusalKind::NotFound, CANNOT, reason));
            }
        }
        Ok(())
    }

    fn is_dataset(&self, name: &str) -> bool {
        let Ok(parsed) = DatasetName::parse(name) else {
            return false;
        };
        self.administrator
            .engine
            .find_pool(parsed.pool())
            .is_some_and(|open| {
                let view = open.pool.namespace().view(self.operation);
                view.dataset(&parsed).is_ok()
            })
    }

    fn tell(&mut self, event: ReceiveEvent) {
        self.tell_warnings();
        if let Some(watched) = &self.watched {
            watched.tell(ReceiveLine::Event(event.clone()));
        }
        self.done.events.push(event);
    }

    /// Tells the watching command the new warnings.
    fn tell_warnings(&mut self) {
        let warnings = &self.done.warnings[self.warnings_told..];
        self.warnings_told = self.done.warnings.len();
        if let Some(watched) = &self.watched {
            let lines = warnings.iter().cloned().map(ReceiveLine::Warning);
            lines.for_each(|line| watched.tell(line));
        }
    }
}

/// The refusal of a stream whose beginning cannot be read.
fn unreadable(error: &StreamError) -> Refusal {
    Refusal::new(RefusalKind::Invalid, CANNOT, error.to_string())
}
