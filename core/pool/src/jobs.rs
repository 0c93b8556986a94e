//! Jobs: functions that run in the sync thread for other threads.
//!
//! # Mechanism
//! A change of the pool's structure is a job: its caller puts it into the queue, asks for the open
//! txg to be stored, and waits. The sync thread runs all jobs of the queue in the first pass of a
//! txg, and answers each when the txg is stored, so an answer is about durable state. A refusal is
//! answered then as well.
//!
//! A job runs in the txg that was open at its call, or in a later one, never in an earlier: its
//! caller's earlier writes are stored before it runs. A file system that is destroyed right after a
//! write has nothing left to store.
//!
//! A [`SyncTask`] of the tree of datasets is such a job. The pool's own changes are closures over a
//! [`SyncScope`].
//!
//! # When a job fails
//! The check of a task refuses what cannot be done; an error after it suspends the pool, since the
//! txg may contain a part of the change, which cannot be undone. One kind of error is an exception:
//! a name or value that cannot be stored, which fails before anything is changed ([`or_refused`]).
//! Then the job is refused, and the txg is stored without it.

use crate::error::{PoolError, TaskError};
use crate::history_write::{CommandRecord, append_command};
use crate::job_queue::{Answer, Waiting, or_refused};
use crate::pool::Pool;
use crate::sync_scope::SyncScope;
use std::sync::Arc;
use std::time::Duration;
use tarn_dataset::task::{SyncTask, TaskRefusal};
use tarn_probe::{Operation, Stage};

/// How often a waiting caller checks whether devices still answer.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// How long a change waits for a device that does not answer at all. A guess: longer than disks
/// take to spin up, or to give up on a sector.
pub(crate) const PATIENCE_NS: u64 = 10_000_000_000;

/// The outcome of a task in one txg.
enum Tried<T: SyncTask> {
    Done(T::Output),
    /// It is to be tried again in the next txg.
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

    /// Changes the tree of datasets for a command, whose history record is stored in the same txg.
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

    /// Runs a task in one txg after the other, until it is done.
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

    /// Makes several changes of the tree of datasets in one txg, one after the other: each sees the
    /// changes before it, and a refused one does not affect the others. The history gets the
    /// command when any change was made.
    ///
    /// # Errors
    /// Nothing was changed: the pool is read-only, suspended or being closed.
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

    /// Queues a function for the sync thread in the open txg, without waiting. For a pool whose
    /// sync thread does not run yet.
    pub(crate) fn leave_for_sync(
        &self,
        work: impl FnOnce(&SyncScope<'_>) -> Result<(), PoolError> + Send + 'static,
    ) -> Result<(), TaskError> {
        let work = move |scope: &SyncScope<'_>| work(scope).map(Ok);
        let job = Waiting::new(Box::new(work), Answer::new());
        self.jobs.push(self.txgs().open_txg(), job)
    }

    /// Runs a function in the sync thread, and waits until its changes are stored.
    pub(crate) fn run_in_sync<T: Send + 'static>(
        &self,
        operation: &Operation,
        work: impl FnOnce(&SyncScope<'_>) -> Result<Result<T, TaskRefusal>, PoolError> + Send + 'static,
    ) -> Result<T, TaskError> {
        let answer = Answer::new();
        let job = Waiting::new(Box::new(work), answer.clone());
        self.run_job(job, &answer, operation)
    }

    /// The same, before anything else in the txg: nothing was written or freed in it yet.
    #[doc(alias = "dsl_early_sync_task")]
    pub(crate) fn run_early<T: Send + 'static>(
        &self,
        operation: &Operation,
        work: impl FnOnce(&SyncScope<'_>) -> Result<Result<T, TaskRefusal>, PoolError> + Send + 'static,
    ) -> Result<T, TaskError> {
        let answer = Answer::new();
        let job = Waiting::early(Box::new(work), answer.clone());
        self.run_job(job, &answer, operation)
    }

    fn run_job<T: Send + 'static>(
        &self,
        job: Box<Waiting<T>>,
        answer: &Arc<Answer<T>>,
        operation: &Operation,
    ) -> Result<T, TaskError> {
        self.require_writable()?;
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
