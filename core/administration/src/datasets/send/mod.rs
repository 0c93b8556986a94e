//! `zfs send`: writes streams of snapshots to the caller's descriptor.
//!
//! # Mechanism
//! The plan comes first ([`plan`]): one snapshot, or the snapshots of a series in order, with their
//! list ([`gather`]). All of them are marked as in use from then on and cannot be destroyed. Then
//! each is sent by itself. While the caller's pipe is full the pool is kept only by these marks.
//!
//! Any user may ask for the size (`-n`), which does not mark the snapshots: the answer is as of
//! now. Only a snapshot whose size takes a walk over its blocks is in use during the walk.

mod gather;
mod plan;
mod token;

use crate::administration::Call;
use crate::administrator::Administrator;
use crate::command_permissions::{Need, need, permission};
use crate::messages::dataset::{Send, SendPlan, SendProgress, SendStep, Sent, WatchSend};
use crate::messages::{Refusal, RefusalKind};
use plan::{From, Plan, Step};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::error::DatasetError;
use tarn_dataset::in_use::Use;
use tarn_dataset::names::DatasetName;
use tarn_dataset::namespace::View;
use tarn_dataset::space_used::Since;
use tarn_engine::engine::OpenPool;
use tarn_host::lock::{Mutex, Rank};
use tarn_host::{Pipe, PipeEnd};
use tarn_probe::Operation;
use tarn_stream::send::series::{write_conclusion, write_description};
use tarn_stream::send::{
    Base, Choices, Progress, Resume, SendError, Source, estimate, measure, send,
};

/// The progress of a send; held for a moment.
const WATCHED: Rank = Rank::new(tarn_host::ranks::ENGINE + 18, "progress of a sending");

/// A send with a name, whose progress a command asks for.
pub(crate) struct Watched {
    uid: u32,
    index: AtomicU64,
    now: Mutex<Option<(String, Arc<Progress>)>>,
}

impl Watched {
    fn new(uid: u32) -> Arc<Watched> {
        Arc::new(Watched {
            uid,
            index: AtomicU64::new(0),
            now: Mutex::new(WATCHED, None),
        })
    }

    fn begin(&self, index: usize, name: &str) -> Arc<Progress> {
        let progress = Arc::new(Progress::default());
        let index = u64::try_from(index).unwrap_or(u64::MAX);
        let mut now = self.now.lock();
        self.index.store(index, Ordering::Relaxed);
        *now = Some((name.to_string(), progress.clone()));
        progress
    }
}

/// Removes a send from the table when it ends.
struct Entry<'a> {
    administrator: &'a Administrator,
    name: Option<String>,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            self.administrator.watched.lock().remove(name);
        }
    }
}

impl Administrator {
    pub(crate) fn send(
        &self,
        call: &Call,
        request: &Send,
        operation: &Operation,
    ) -> Result<Sent, Refusal> {
        let Some(pipe) = &call.pipe else {
            let reason = "a stream needs a descriptor to go to";
            return Err(Refusal::new(
                RefusalKind::Invalid,
                cannot_send(&request.name),
                reason,
            ));
        };
        let open = self.engine.require_pool_of(&request.name)?;
        let watched = Watched::new(call.caller.uid);
        let _entry = self.watch(request, &watched);
        let (_streaming, (plan, _uses)) = {
            let _turn = self.engine.turn(&open)?;
            self.engine.finish_ended(&open, &request.name)?;
            refuse_served(&open, request)?;
            let streaming = open.streams.begin(pipe);
            // In the turn, before another command: a head must stay as it is.
            (streaming, Plan::make(&open, request, operation)?)
        };
        let cannot = format!("warning: {}", cannot_send(&request.name));
        let needs: Vec<Need<'_>> = plan
            .steps
            .iter()
            .map(|step| need(&step.name, &[permission::SEND]))
            .collect();
        self.permit(call, &open, cannot, &needs, operation)?;
        let sending = Sending {
            open: &open,
            request,
            pipe,
            watched: &watched,
            operation,
        };
        sending.run(&plan)?;
        Ok(Sent {
            warnings: plan.warnings,
            is_incomplete: plan.is_incomplete,
        })
    }

    pub(crate) fn plan_send(
        &self,
        call: &Call,
        request: &Send,
        operation: &Operation,
    ) -> Result<SendPlan, Refusal> {
        let open = self.engine.require_pool_of(&request.name)?;
        let looking = {
            let _turn = self.engine.turn(&open)?;
            open.streams.begin_look(&call.presence)
        };
        let plan = Plan::look(&open, request, operation)?;
        let check = || {
            let ended = |end: PipeEnd| SendError::Pipe(end.into());
            looking.check().map_err(ended)
        };
        let is_series = request.series.is_some();
        let mut shown = SendPlan {
            steps: Vec::new(),
            warnings: plan.warnings.clone(),
            is_incomplete: plan.is_incomplete,
        };
        for step in &plan.steps {
            let size = size_of(&open, step, request, &check, operation);
            let estimated_bytes = match size {
                Ok(size) => Some(size),
                Err(error) if is_series && check().is_ok() => {
                    let action = format!("warning: cannot estimate space for '{}'", step.name);
                    let refusal = refusal_of(action, &error, request);
                    shown.warnings.push(refusal.to_string());
                    None
                }
                Err(error) => {
                    let action = format!("warning: {}", cannot_send(&step.name));
                    return Err(not_estimated(action, &error, request));
                }
            };
            shown.steps.push(SendStep {
                name: step.name.clone(),
                from: step.shown_from(is_series),
                estimated_bytes,
            });
        }
        Ok(shown)
    }

    pub(crate) fn watch_send(&self, call: &Call, request: &WatchSend) -> SendProgress {
        let watched = self.watched.lock().get(&request.watch).cloned();
        let watched = watched.filter(|watched| watched.uid == call.caller.uid);
        let Some(watched) = watched else {
            return SendProgress::default();
        };
        let now = watched.now.lock();
        match &*now {
            None => SendProgress::default(),
            Some((name, progress)) => SendProgress {
                name: Some(name.clone()),
                index: watched.index.load(Ordering::Relaxed),
                bytes: progress.bytes.load(Ordering::Relaxed),
                blocks: progress.visited(),
            },
        }
    }

    fn watch(&self, request: &Send, watched: &Arc<Watched>) -> Entry<'_> {
        let mut entries = self.watched.lock();
        // Another send may have the name.
        let free = |name: &&String| !entries.contains_key(*name);
        let name = request.watch.as_ref().filter(free).cloned();
        if let Some(name) = &name {
            entries.insert(name.clone(), watched.clone());
        }
        Entry {
            administrator: self,
            name,
        }
    }
}

/// The streams of a plan, sent one after the other.
struct Sending<'a> {
    open: &'a OpenPool,
    request: &'a Send,
    pipe: &'a Pipe,
    watched: &'a Watched,
    operation: &'a Operation,
}

impl Sending<'_> {
    fn run(&self, plan: &Plan) -> Result<(), Refusal> {
        let mut pipe = self.pipe.clone();
        let whole = |error: SendError| {
            let action = format!("warning: {}", cannot_send(&self.request.name));
            refusal_of(action, &error, self.request)
        };
        if let Some(description) = &plan.description {
            let (name, features) = (&description.name, description.features);
            write_description(&mut pipe, name, features, &description.list).map_err(whole)?;
        }
        let mut outcome = Ok(());
        for (index, step) in plan.steps.iter().enumerate() {
            outcome = self.step(index, step);
            if outcome.is_err() {
                break;
            }
        }
        // With a package, the streams sent so far are complete.
        if plan.description.is_some()
            && !plan.is_empty
            && (outcome.is_ok() || self.request.series.is_some())
        {
            let concluded = write_conclusion(&mut pipe).map_err(whole);
            outcome = outcome.and(concluded);
        }
        outcome
    }

    fn step(&self, index: usize, step: &Step) -> Result<(), Refusal> {
        let progress = self.watched.begin(index, &step.name);
        let check = || self.pipe.check().map_err(SendError::Pipe);
        let source = source(self.open, step, self.request, self.operation);
        let sent = source.and_then(|source| {
            let pipe = self.pipe.clone();
            send(&self.open.pool, &source, pipe, &progress, &check)
        });
        sent.map(drop).map_err(|error| {
            let action = format!("warning: {}", cannot_send(&step.name));
            refusal_of(action, &error, self.request)
        })
    }
}

/// The facts needed to send one snapshot.
fn source(
    open: &OpenPool,
    step: &Step,
    request: &Send,
    operation: &Operation,
) -> Result<Source, SendError> {
    let view = open.pool.namespace().view(operation);
    let target = view.dataset_by_id(step.id)?;
    let base = match &step.from {
        From::Nothing => None,
        From::Snapshot(_, id) | From::Origin(id) => {
            Some(Base::of_snapshot(&view.dataset_by_id(*id)?, &target)?)
        }
        From::Bookmark(name) => {
            let (head, bookmark) = plan::find_bookmark(view, name)?;
            Some(Base::of_bookmark(&head, &bookmark.stored, &target)?)
        }
    };
    let resume = request.resume.map(|resume| Resume {
        object: resume.object,
        offset: resume.offset,
    });
    Source::of(&open.pool, &target, base, choices(request), resume)
}

fn choices(request: &Send) -> Choices {
    Choices {
        large_blocks: request.large_blocks,
        embedded: request.embedded,
        compressed: request.compressed,
        raw: request.raw,
    }
}

/// The size of the stream of one snapshot.
fn size_of(
    open: &OpenPool,
    step: &Step,
    request: &Send,
    check: &dyn Fn() -> Result<(), SendError>,
    operation: &Operation,
) -> Result<u64, SendError> {
    check()?;
    let namespace = open.pool.namespace();
    let is_compressed = request.compressed || request.raw;
    let fast = namespace.consistently(|| {
        let view = namespace.view(operation);
        Ok(estimate_step(view, step, is_compressed))
    })??;
    let received = request.resume.map_or(0, |resume| resume.bytes);
    match fast {
        Some(size) => Ok(size.wrapping_sub(received)),
        None => measure_step(open, step, request, check, operation),
    }
}

/// The size, where it is known without reading the snapshot's blocks.
fn estimate_step(
    view: View<'_>,
    step: &Step,
    is_compressed: bool,
) -> Result<Option<u64>, SendError> {
    let target = still_there(view, step)?;
    match &step.from {
        // For a clone in a series, OpenZFS counts all that it refers to.
        From::Nothing | From::Origin(_) => estimate(&target, None, is_compressed),
        From::Snapshot(_, id) => {
            let base: Dataset<'_> = view.dataset_by_id(*id)?;
            estimate(&target, Some(&Since::Snapshot(&base)), is_compressed)
        }
        From::Bookmark(name) => {
            let (head, bookmark) = plan::find_bookmark(view, name)?;
            let since = Since::Bookmark(&head, &bookmark.stored);
            Base::of_bookmark(&head, &bookmark.stored, &target)?;
            estimate(&target, Some(&since), is_compressed)
        }
    }
}

/// The size by a walk over the snapshot, which is kept meanwhile.
fn measure_step(
    open: &OpenPool,
    step: &Step,
    request: &Send,
    check: &dyn Fn() -> Result<(), SendError>,
    operation: &Operation,
) -> Result<u64, SendError> {
    let namespace = open.pool.namespace();
    let uses: Option<Vec<Use<'_>>> = step
        .datasets()
        .map(|dataset| namespace.use_dataset(dataset))
        .collect();
    // Otherwise it is about to be destroyed.
    let _uses = uses.ok_or_else(|| gone(step))?;
    still_there(namespace.view(operation), step)?;
    let source = source(open, step, request, operation)?;
    measure(&open.pool, &source, check)
}

/// The snapshot of a step, unless another dataset has its object number by now.
fn still_there<'a>(view: View<'a>, step: &Step) -> Result<Dataset<'a>, SendError> {
    let target = view.dataset_by_id(step.id)?;
    match (target.is_snapshot(), target.name() == step.name) {
        (false, _) => Err(SendError::NotSnapshot),
        (true, false) => Err(gone(step)),
        (true, true) => Ok(target),
    }
}

fn gone(step: &Step) -> SendError {
    let name = step.name.clone();
    SendError::Dataset(DatasetError::NotFound { name })
}

/// Refuses to send a head that is served: it must not change meanwhile.
fn refuse_served(open: &OpenPool, request: &Send) -> Result<(), Refusal> {
    let is_head = request.series.is_none() && !request.name.contains('@');
    if !is_head || open.served(&request.name).is_none() {
        return Ok(());
    }
    let action = format!("warning: {}", cannot_send(&request.name));
    let reason = "target is busy; if a filesystem, it must not be mounted";
    Err(Refusal::new(RefusalKind::Busy, action, reason))
}

/// Why the size of one snapshot is unknown, in the system's words.
fn not_estimated(action: String, error: &SendError, request: &Send) -> Refusal {
    match error {
        SendError::NotEarlier => {
            Refusal::new(RefusalKind::Invalid, action, "Invalid cross-device link")
        }
        SendError::Dataset(DatasetError::NotFound { .. }) => {
            Refusal::new(RefusalKind::NotFound, action, "No such file or directory")
        }
        other => refusal_of(action, other, request),
    }
}

fn cannot_send(name: &str) -> String {
    format!("cannot send '{name}'")
}

/// An error in OpenZFS's words, with details on a line of their own.
fn refusal_of(action: String, error: &SendError, request: &Send) -> Refusal {
    let plain = |kind, reason: &str| Refusal::new(kind, action.clone(), reason);
    let io = |error: &dyn std::fmt::Display| {
        plain(RefusalKind::Device, "Input/output error").with_hint(error.to_string())
    };
    match error {
        SendError::NotEarlier => plain(RefusalKind::Invalid, &error.to_string()),
        SendError::KeyNotLoaded if request.series.is_some() => {
            plain(RefusalKind::Denied, "source key must be loaded")
        }
        SendError::KeyNotLoaded => plain(RefusalKind::Denied, "dataset key must be loaded"),
        SendError::NotSnapshot => plain(RefusalKind::Invalid, "Invalid argument"),
        SendError::LargeMicrozap => plain(
            RefusalKind::Invalid,
            "source snapshot contains large microzaps, need -L (--large-block) or -w (--raw) to generate stream",
        ),
        SendError::Dataset(DatasetError::NotFound { .. }) => {
            let reason = match &request.from {
                Some(from) => format!("incremental source ({from}) does not exist"),
                None => "dataset does not exist".to_string(),
            };
            plain(RefusalKind::NotFound, &reason)
        }
        SendError::Pipe(cause) => match PipeEnd::of(cause) {
            Some(PipeEnd::Stopped) => plain(
                RefusalKind::Busy,
                "the pool is being exported, or the daemon is about to end",
            ),
            _ => plain(RefusalKind::Invalid, &said_by_system(cause)),
        },
        SendError::Redacted | SendError::ByteOrder { .. } | SendError::NameTooLong => {
            plain(RefusalKind::Unsupported, &error.to_string())
        }
        other => io(other),
    }
}

/// The system's text of an error, without its number.
fn said_by_system(cause: &std::io::Error) -> String {
    let text = cause.to_string();
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_string(),
        None => text,
    }
}

/// Parses the name of a dataset, or refuses it.
fn parse(name: &str) -> Result<DatasetName, Refusal> {
    DatasetName::parse(name).map_err(|bad| tarn_engine::mounting::bad_name(name, bad))
}
