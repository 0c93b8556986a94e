//! The queue of the sync thread's jobs, and their answers.
//!
//! # Mechanism
//! A job is a function with a place for its answer. The sync thread takes all jobs of a txg, runs
//! them, and answers each when the txg is stored; see [`jobs`](crate::jobs). While the pool is
//! suspended or closed the queue is closed, and callers get the reason.
//!
//! # Invariants
//! - Each job is answered once; a later answer is dropped.

use crate::error::{PoolError, TaskError};
use crate::sync_scope::SyncScope;
use std::collections::VecDeque;
use std::sync::Arc;
use tarn_dataset::task::{TaskContext, TaskRefusal};
use tarn_host::lock::{Condvar, Mutex, Rank};
use tarn_ondisk::units::Txg;

/// The queue.
const QUEUE: Rank = Rank::new(tarn_host::ranks::POOL + 20, "jobs of the sync thread");
/// One answer.
const ANSWER: Rank = Rank::new(tarn_host::ranks::POOL + 21, "answer of the sync thread");

/// A job of the sync thread.
pub(crate) trait Job: Send {
    /// Whether it runs before anything else in its txg.
    fn is_early(&self) -> bool;

    /// Runs in the first pass.
    fn run(&mut self, scope: &SyncScope<'_>) -> Result<(), PoolError>;

    /// Called when the txg is stored, or will not be.
    fn answer(self: Box<Self>, outcome: Result<(), TaskError>);

    /// The caller that waits for the answer.
    fn who_waits(&self) -> Arc<dyn Tell>;
}

/// A function that runs in the sync thread.
pub(crate) type Work<T> =
    Box<dyn FnOnce(&SyncScope<'_>) -> Result<Result<T, TaskRefusal>, PoolError> + Send>;

/// A job made of a function, with its caller.
pub(crate) struct Waiting<T> {
    work: Option<Work<T>>,
    outcome: Option<Result<T, TaskRefusal>>,
    answer: Arc<Answer<T>>,
    is_early: bool,
}

impl<T> Waiting<T> {
    /// A job of this function; its caller waits for `answer`.
    pub(crate) fn new(work: Work<T>, answer: Arc<Answer<T>>) -> Box<Waiting<T>> {
        Box::new(Waiting {
            work: Some(work),
            outcome: None,
            answer,
            is_early: false,
        })
    }

    /// The same, to run before anything else in its txg.
    pub(crate) fn early(work: Work<T>, answer: Arc<Answer<T>>) -> Box<Waiting<T>> {
        let job = Waiting::new(work, answer);
        Box::new(Waiting {
            is_early: true,
            ..*job
        })
    }
}

/// The place for a job's answer.
pub(crate) struct Answer<T> {
    pub(crate) place: Mutex<Option<Result<T, TaskError>>>,
    pub(crate) given: Condvar,
}

impl<T> Answer<T> {
    /// Without an answer.
    pub(crate) fn new() -> Arc<Answer<T>> {
        Arc::new(Answer {
            place: Mutex::new(ANSWER, None),
            given: Condvar::new(),
        })
    }
}

impl<T: Send + 'static> Job for Waiting<T> {
    fn is_early(&self) -> bool {
        self.is_early
    }

    fn run(&mut self, scope: &SyncScope<'_>) -> Result<(), PoolError> {
        assert!(
            self.work.is_some() && self.outcome.is_none(),
            "a job is run once, in the first pass of its group"
        );
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
        // A caller that gave up during a suspension has its answer already.
        self.answer.place.lock().get_or_insert(answer);
        self.answer.given.notify_all();
    }

    fn who_waits(&self) -> Arc<dyn Tell> {
        self.answer.clone()
    }
}

/// Runs a part of a job. An error of its arguments becomes a refusal, provided that nothing was
/// changed before: the txg is as if the part had not run.
pub(crate) fn or_refused<T>(
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

/// A caller that waits for an answer.
pub(crate) trait Tell: Send + Sync {
    /// Answers with this error, unless the caller has an answer already.
    fn tell(&self, error: TaskError);
}

impl<T: Send> Tell for Answer<T> {
    fn tell(&self, error: TaskError) {
        self.place.lock().get_or_insert(Err(error));
        self.given.notify_all();
    }
}

/// Jobs for the next txg.
pub(crate) struct Jobs {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// In the order of their calls, each with the txg that was open then.
    jobs: VecDeque<(Txg, Box<dyn Job>)>,
    /// The callers of the running jobs.
    running: Vec<Arc<dyn Tell>>,
    /// Why jobs are refused, for good or for now.
    closed: Option<Closed>,
}

/// Why jobs are refused.
#[derive(Clone)]
pub(crate) enum Closed {
    /// The pool is being closed.
    Stopped,
    /// The pool cannot be written.
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
    /// An empty queue.
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
        assert!(
            queue.jobs.iter().all(|(asked, _)| *asked > txg),
            "no job that is due waits on"
        );
        queue.running = due.iter().map(|(_, job)| job.who_waits()).collect();
        Taken(due.into_iter().map(|(_, job)| job).collect())
    }

    /// Refuses jobs from now on, those in the queue included.
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

    /// Accepts jobs again.
    pub(crate) fn open(&self) {
        self.queue.lock().closed = None;
    }

    /// Adds a job, to run in the open txg or in a later one.
    ///
    /// # Errors
    /// Jobs are refused.
    pub(crate) fn push(&self, open: Txg, job: Box<dyn Job>) -> Result<(), TaskError> {
        let mut queue = self.queue.lock();
        if let Some(closed) = &queue.closed {
            return Err(closed.error());
        }
        queue.jobs.push_back((open, job));
        debug_assert!(
            queue.closed.is_none(),
            "jobs wait only for a sync thread that runs"
        );
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

    /// Runs those in order that come before anything else in the txg.
    #[doc(alias = "dsl_early_sync_task")]
    pub(crate) fn run_early(&mut self, scope: &SyncScope<'_>) -> Result<(), PoolError> {
        let mut early = self.0.iter_mut().filter(|job| job.is_early());
        early.try_for_each(|job| job.run(scope))
    }

    /// Runs the others in order.
    pub(crate) fn run(&mut self, scope: &SyncScope<'_>) -> Result<(), PoolError> {
        let mut others = self.0.iter_mut().filter(|job| !job.is_early());
        others.try_for_each(|job| job.run(scope))
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
