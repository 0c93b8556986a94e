//! Jobs: what the sync thread does for others.
//!
//! # Mechanism
//! A change of the pool's structure is a job: its caller puts it into the queue, asks for the open
//! txg to be stored, and waits. The sync thread runs all jobs of the queue in the first pass of a
//! txg, and answers each when the txg is stored: an answer is about what is durable. A job that
//! refuses is answered then as well.
//!
//! A job belongs to the txg that was open when it was asked for, or to a later one, never to an
//! earlier: what its caller wrote before is stored before it runs. A file system that is destroyed
//! right after it was written to has nothing left to store.
//!
//! A [`SyncTask`] of the tree of datasets is such a job. The pool's own changes are closures that
//! get more to work with ([`SyncScope`]).
//!
//! # When a job fails
//! The check of a task refuses what cannot be; an error after it suspends the pool, for part of the
//! change may be in the group already, and nothing takes it out again. One kind of error does not:
//! the job was given a name or value that cannot be stored, and fails before it has changed
//! anything ([`or_refused`]). Then the job is refused, and the group is stored without it.

use crate::error::{PoolError, TaskError};
use crate::history_write::{CommandRecord, append_command};
use crate::job_queue::{Answer, Waiting, or_refused};
use crate::pool::Pool;
use crate::sync_scope::SyncScope;
use std::time::Duration;
use tarn_dataset::task::{SyncTask, TaskRefusal};
use tarn_probe::{Operation, Stage};

/// How often a waiting caller checks whether devices still answer.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// A change waits no longer than this for a device that does not answer at all. A guess: longer
/// than disks take to wake up, or to give up on a sector.
pub(crate) const PATIENCE_NS: u64 = 10_000_000_000;

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

    /// Changes the tree of datasets for a command, which goes into the history with the change
    /// itself: one group for both.
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

    /// Makes several changes of the tree of datasets in one group, one after the other: each sees
    /// what those before it did, and one that is refused keeps no other from happening. The command
    /// goes into the history when any of them happened.
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

    /// Leaves a function for the sync thread to run in the open group, and does not wait. For a
    /// pool whose sync thread does not run yet.
    pub(crate) fn leave_for_sync(
        &self,
        work: impl FnOnce(&SyncScope<'_>) -> Result<(), PoolError> + Send + 'static,
    ) -> Result<(), TaskError> {
        let work = move |scope: &SyncScope<'_>| work(scope).map(Ok);
        let job = Waiting::new(Box::new(work), Answer::new());
        self.jobs.push(self.txgs().open_txg(), job)
    }

    /// Runs a function in the sync thread, and waits until what it did is stored.
    pub(crate) fn run_in_sync<T: Send + 'static>(
        &self,
        operation: &Operation,
        work: impl FnOnce(&SyncScope<'_>) -> Result<Result<T, TaskRefusal>, PoolError> + Send + 'static,
    ) -> Result<T, TaskError> {
        self.require_writable()?;
        let answer = Answer::new();
        let job = Waiting::new(Box::new(work), answer.clone());
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
