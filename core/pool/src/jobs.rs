//! Jobs: what the sync thread does for others.
//!
//! # Mechanism
//! Whoever wants to change the pool's structure puts a job into the queue, asks for the open txg to be stored, and
//! waits. The sync thread runs all jobs of the queue in the first pass of a txg, and answers each when the
//! txg is stored: what a caller hears has happened for good. A job that refuses is answered then as well.
//!
//! A job belongs to the txg that was open when it was asked for, or to a later one, never to an earlier: what its caller wrote
//! before is stored before it runs. A file system that is destroyed right after it was written to has nothing left to store.
//!
//! A [`SyncTask`] of the tree of datasets is such a job. The pool's own changes are closures that get more to work
//! with ([`SyncScope`]).
//!
//! # When a job fails
//! The check of a task refuses what cannot be; an error after it suspends the pool, for part of the change may be in the group already, and nothing takes it
//! out again. One kind of error does not: the job was given a name or value that cannot be stored, and fails before it has changed anything
//! ([`or_refused`]). Then the job is refused, and the group is stored without it.

use crate::error::PoolError;
use crate::features::SyncingFeatures;
use crate::history_write::{CommandRecord, append_command};
use crate::mos_writer::MosWriter;
use crate::pool::Pool;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tarn_dataset::task::{SyncTask, TaskContext, TaskRefusal};
use tarn_host::lock::{Condvar, Mutex, Rank};
use tarn_ondisk::units::Txg;
use tarn_probe::{Operation, Stage};

/// The queue.
const QUEUE: Rank = Rank::new(tarn_host::ranks::POOL + 20, "jobs of the sync thread");
/// One answer.
const ANSWER: Rank = Rank::new(tarn_host::ranks::POOL + 21, "answer of the sync thread");

/// How often who waits looks whether devices still answer.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Who asks for a change waits no longer than this for a device that does not answer at all. A guess: longer than disks take to wake up, or to give up on a
/// sector.
pub(crate) const PATIENCE_NS: u64 = 10_000_000_000;

/// What a job of the pool works with.
pub(crate) struct SyncScope<'a> {
    /// The pool.
    pub(crate) pool: &'a Pool,
    /// The MOS, to change.
    pub(crate) writer: MosWriter<'a>,
    /// Counts of features.
    pub(crate) features: &'a SyncingFeatures<'a>,
    /// The same for tasks of datasets.
    pub(crate) context: &'a TaskContext<'a>,
}

/// Why a change of the pool did not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// It was refused.
    #[error(transparent)]
    Refused(#[from] TaskRefusal),
    /// The pool is open read-only.
    #[error("pool is read-only")]
    ReadOnly,
    /// The pool is being closed.
    #[error("the pool is being closed")]
    Stopped,
    /// The pool is suspended: devices could not be written. What was asked for may or may not have
    /// happened when the pool is imported again.
    #[error("the pool is suspended: {why}")]
    Suspended {
        /// What failed.
        why: String,
    },
}

/// What the sync thread does with a job.
trait Job: Send {
    /// In the first pass.
    fn run(&mut self, scope: &SyncScope<'_>) -> Result<(), PoolError>;

    /// The txg is stored, or will not be.
    fn answer(self: Box<Self>, outcome: Result<(), TaskError>);

    /// Who waits for it.
    fn who_waits(&self) -> Arc<dyn Tell>;
}

/// A function that runs in the sync thread.
type Work<T> = Box<dyn FnOnce(&SyncScope<'_>) -> Result<Result<T, TaskRefusal>, PoolError> + Send>;

struct Waiting<T> {
    work: Option<Work<T>>,
    outcome: Option<Result<T, TaskRefusal>>,
    answer: Arc<Answer<T>>,
}

struct Answer<T> {
    place: Mutex<Option<Result<T, TaskError>>>,
    given: Condvar,
}

impl<T: Send + 'static> Job for Waiting<T> {
    fn run(&mut self, scope: &SyncScope<'_>) -> Result<(), PoolError> {
        if let Some(work) = self.work.take() {
            let outcome = or_refused(scope.context, || work(scope))?;
            self.outcome = Some(outcome.and_then(|outcome| outcome));
        }
        Ok(())
    }

    fn answer(self: Box<Self>, outcome: Result<(), TaskError>) {
        let answer = match (outcome, self.outcome) {
            (Ok(()), Some(outcome)) => outcome.map_err(TaskError::Refused),
            (Ok(()), None) => Err(TaskError::Stopped),
            (Err(error), _) => Err(error),
        };
        // Who did not wait for the end of a suspension has his answer.
        self.answer.place.lock().get_or_insert(answer);
        self.answer.given.notify_all();
    }

    fn who_waits(&self) -> Arc<dyn Tell> {
        self.answer.clone()
    }
}

/// Runs a part of a job. An error that is about what it was given is a refusal, if nothing was changed before: the group is as if the part
/// had not been run.
fn or_refused<T>(
    context: &TaskContext<'_>,
    run: impl FnOnce() -> Result<T, PoolError>,
) -> Result<Result<T, TaskRefusal>, PoolError> {
    let (changes, events) = (context.tx.change_count(), context.events.borrow().len());
    let error = match run() {
        Ok(output) => return Ok(Ok(output)),
        Err(error) => error,
    };
    match error.of_argument() {
        Some(why) if context.tx.change_count() == changes => {
            context.events.borrow_mut().truncate(events);
            Ok(Err(TaskRefusal::BadValue {
                property: "argument".to_string(),
                why,
            }))
        }
        _ => Err(error),
    }
}

/// One who waits for an answer.
trait Tell: Send + Sync {
    /// He is told this, unless he was told something already.
    fn tell(&self, error: TaskError);
}

impl<T: Send> Tell for Answer<T> {
    fn tell(&self, error: TaskError) {
        self.place.lock().get_or_insert(Err(error));
        self.given.notify_all();
    }
}

/// Jobs that wait for the next txg.
pub(crate) struct Jobs {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// In the order in which they were asked for, each with the txg that was open then.
    jobs: VecDeque<(Txg, Box<dyn Job>)>,
    /// Those who wait for the jobs that are being run.
    running: Vec<Arc<dyn Tell>>,
    /// Nobody will run jobs any more, or for now, and why.
    closed: Option<Closed>,
}

/// Why nobody runs jobs any more.
#[derive(Clone)]
pub(crate) enum Closed {
    /// The pool is being closed.
    Stopped,
    /// It cannot be written.
    Suspended(String),
}

impl Closed {
    fn error(&self) -> TaskError {
        match self {
            Closed::Stopped => TaskError::Stopped,
            Closed::Suspended(why) => TaskError::Suspended { why: why.clone() },
        }
    }
}

impl Jobs {
    /// None.
    pub(crate) fn new() -> Jobs {
        Jobs {
            queue: Mutex::new(QUEUE, Queue::default()),
        }
    }

    /// Takes all jobs that may run in this txg.
    pub(crate) fn take(&self, txg: Txg) -> Taken {
        let mut queue = self.queue.lock();
        let (due, later) = queue
            .jobs
            .drain(..)
            .partition::<VecDeque<_>, _>(|(asked, _)| *asked <= txg);
        queue.jobs = later;
        queue.running = due.iter().map(|(_, job)| job.who_waits()).collect();
        Taken(due.into_iter().map(|(_, job)| job).collect())
    }

    /// From now on jobs are refused; those that wait, too.
    pub(crate) fn close(&self, why: &Closed) {
        let waiting = {
            let mut queue = self.queue.lock();
            queue.closed = Some(why.clone());
            let running = std::mem::take(&mut queue.running);
            (std::mem::take(&mut queue.jobs), running)
        };
        let (waiting, running) = waiting;
        running.iter().for_each(|who| who.tell(why.error()));
        waiting
            .into_iter()
            .for_each(|(_, job)| job.answer(Err(why.error())));
    }

    /// Jobs are taken again.
    pub(crate) fn open(&self) {
        self.queue.lock().closed = None;
    }

    fn push(&self, open: Txg, job: Box<dyn Job>) -> Result<(), TaskError> {
        let mut queue = self.queue.lock();
        if let Some(closed) = &queue.closed {
            return Err(closed.error());
        }
        queue.jobs.push_back((open, job));
        Ok(())
    }
}

/// Jobs of one txg.
pub(crate) struct Taken(Vec<Box<dyn Job>>);

impl Taken {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Runs them in order.
    pub(crate) fn run(&mut self, scope: &SyncScope<'_>) -> Result<(), PoolError> {
        self.0.iter_mut().try_for_each(|job| job.run(scope))
    }

    /// The txg is stored.
    pub(crate) fn stored(self) {
        self.0.into_iter().for_each(|job| job.answer(Ok(())));
    }

    /// The txg will not be stored.
    pub(crate) fn failed(self, why: &Closed) {
        self.0
            .into_iter()
            .for_each(|job| job.answer(Err(why.error())));
    }
}

/// What came of a task in one group.
enum Tried<T: SyncTask> {
    Done(T::Output),
    /// It is to be tried again in the next.
    Later(T, Option<CommandRecord>),
}

impl Pool {
    /// Changes the tree of datasets, and waits until that is stored.
    ///
    /// # Errors
    /// The refusal of the task; or the pool is read-only, suspended or being closed.
    pub fn run<T: SyncTask>(&self, task: T, operation: &Operation) -> Result<T::Output, TaskError> {
        self.run_until_done(task, None, operation)
    }

    /// Changes the tree of datasets for a command, which goes into the history with the change itself: one group for both.
    ///
    /// # Errors
    /// As [`Pool::run`].
    pub fn run_command<T: SyncTask>(
        &self,
        task: T,
        command: CommandRecord,
        operation: &Operation,
    ) -> Result<T::Output, TaskError> {
        self.run_until_done(task, Some(command), operation)
    }

    /// Runs a task in one group after the other, until it does not have to wait for the next.
    fn run_until_done<T: SyncTask>(
        &self,
        task: T,
        command: Option<CommandRecord>,
        operation: &Operation,
    ) -> Result<T::Output, TaskError> {
        self.require_writable()?;
        task.check(self.namespace().view(operation), &self.features())?;
        let mut waiting = (task, command);
        loop {
            let (task, command) = waiting;
            let tried = self.run_in_sync(operation, move |scope| {
                let context = scope.context;
                let _deciding = context.namespace.deciding();
                if let Err(full) = context.namespace.check_room(task.room(), context.operation) {
                    return Ok(Err(full));
                }
                match task.check(context.view(), context.features) {
                    Ok(()) => {}
                    Err(TaskRefusal::NotInThisGroup) => return Ok(Ok(Tried::Later(task, command))),
                    Err(refusal) => return Ok(Err(refusal)),
                }
                let output = task.apply(context)?;
                if let Some(command) = command {
                    append_command(scope, &command)?;
                }
                Ok(Ok(Tried::Done(output)))
            })?;
            match tried {
                Tried::Done(output) => return Ok(output),
                Tried::Later(task, command) => waiting = (task, command),
            }
        }
    }

    /// Makes several changes of the tree of datasets in one group, one after the other: each sees what those before it did, and one that
    /// is refused keeps no other from happening. The command goes into the history when any of them happened.
    ///
    /// # Errors
    /// When nothing happened: the pool is read-only, suspended or being closed.
    pub fn run_each<T: SyncTask>(
        &self,
        tasks: Vec<T>,
        command: Option<CommandRecord>,
        operation: &Operation,
    ) -> Result<Vec<Result<T::Output, TaskRefusal>>, TaskError> {
        self.run_in_sync(operation, move |scope| {
            let context = scope.context;
            let mut outcomes = Vec::with_capacity(tasks.len());
            for task in tasks {
                let _deciding = context.namespace.deciding();
                let room = context.namespace.check_room(task.room(), context.operation);
                let checked = room.and_then(|()| task.check(context.view(), context.features));
                outcomes.push(match checked {
                    Ok(()) => or_refused(context, || Ok(task.apply(context)?))?,
                    Err(refusal) => Err(refusal),
                });
            }
            match command {
                Some(command) if outcomes.iter().any(Result::is_ok) => {
                    append_command(scope, &command)?;
                }
                _ => {}
            }
            Ok(Ok(outcomes))
        })
    }

    /// Leaves a function for the sync thread to run in the open group, and does not wait. For a pool whose groups nobody stores yet.
    pub(crate) fn leave_for_sync(
        &self,
        work: impl FnOnce(&SyncScope<'_>) -> Result<(), PoolError> + Send + 'static,
    ) -> Result<(), TaskError> {
        let answer = Arc::new(Answer {
            place: Mutex::new(ANSWER, None),
            given: Condvar::new(),
        });
        let work = move |scope: &SyncScope<'_>| work(scope).map(Ok);
        let job = Box::new(Waiting {
            work: Some(Box::new(work)),
            outcome: None,
            answer,
        });
        self.jobs.push(self.txgs().open_txg(), job)
    }

    /// Runs a function in the sync thread, and waits until what it did is stored.
    pub(crate) fn run_in_sync<T: Send + 'static>(
        &self,
        operation: &Operation,
        work: impl FnOnce(&SyncScope<'_>) -> Result<Result<T, TaskRefusal>, PoolError> + Send + 'static,
    ) -> Result<T, TaskError> {
        self.require_writable()?;
        let answer = Arc::new(Answer {
            place: Mutex::new(ANSWER, None),
            given: Condvar::new(),
        });
        let job = Box::new(Waiting {
            work: Some(Box::new(work)),
            outcome: None,
            answer: answer.clone(),
        });
        self.jobs.push(self.txgs().open_txg(), job)?;
        self.txgs().kick();
        let _stage = operation.stage(Stage::TxWait);
        let mut place = answer.place.lock();
        loop {
            if let Some(answer) = place.take() {
                return answer;
            }
            let _ = answer.given.wait_timeout(&mut place, LOOK_INTERVAL);
            if place.is_none() && self.vdevs().silent_ns() > PATIENCE_NS {
                let why = "a device does not answer".to_string();
                return Err(TaskError::Suspended { why });
            }
        }
    }
}
