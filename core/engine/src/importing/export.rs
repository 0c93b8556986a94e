//! `zpool export`: closes a pool in order; by force also one that cannot be written, or does not
//! answer.

use crate::engine::{Engine, OpenPool};
use crate::refusals::{Refusal, RefusalKind, SUSPENDED, of_task};
use crate::turns::is_stuck;
use std::sync::Arc;
use tarn_pool::{CommandRecord, Leaving};
use tarn_probe::Operation;

impl Engine {
    /// Exports a pool. Its history gets the record.
    ///
    /// # Errors
    /// Why it stays imported.
    pub fn export(
        &self,
        name: &str,
        force: bool,
        record: CommandRecord,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let open = match self.require_pool(name) {
            // A pool that was missing at the daemon's start leaves the cache file.
            Err(_) if self.give_up_waiting_for(name)? => return Ok(()),
            found => found?,
        };
        let action = format!("cannot export '{name}'");
        // Before taking the turn, which a receive that waits for its pipe may hold.
        if force {
            open.streams.stop();
        }
        if force && self.give_up_if_stuck(&open.pool) {
            return self.let_go(&open, Leaving::Exported, operation);
        }
        let _turn = self.turn(&open)?;
        if open.pool.failure().is_some() {
            let cure = "use 'zpool export -f' to give it up with what was stored last";
            let refusal = Refusal::new(RefusalKind::Suspended, action, SUSPENDED);
            return Err(refusal.with_hint(cure));
        }
        open.end_streams(force, action.clone())?;
        if let Err(refusal) = self.unmount_pool(&open, force, || action) {
            return self.let_go_or(force, refusal, &open, Leaving::Exported, operation);
        }
        // A suspended pool has failed the calls that wait for it already.
        drop(open.pool.record_command(record, operation));
        let left: Vec<_> = self.cache_file_of(&open).into_iter().collect();
        let closed = open.pool.close(Leaving::Exported, operation);
        self.remove_pool(name);
        self.remember_pools(&left)?;
        match closed {
            // The calls that waited for unstored data have failed already.
            Err(_) if force && open.pool.failure().is_some() => Ok(()),
            Err(error) => Err(of_task(format!("cannot export '{name}'"), &error)),
            Ok(()) => Ok(()),
        }
    }

    /// Gives up and closes a pool that became stuck in the middle of an export by force; otherwise
    /// returns why the export failed.
    fn let_go_or(
        &self,
        force: bool,
        refusal: Refusal,
        open: &Arc<OpenPool>,
        leaving: Leaving,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        if !force || !is_stuck(&open.pool) {
            return Err(refusal);
        }
        open.pool.give_up();
        self.take_apart(open, leaving, operation)
    }

    /// Closes a pool that was given up. The command that holds its turn fails and returns the turn.
    pub fn let_go(
        &self,
        open: &Arc<OpenPool>,
        leaving: Leaving,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        // Goes on without the turn if its holder hangs in a system call: the rest of that command
        // finds the pool closed.
        let _turn = self.last_turn(open);
        self.take_apart(open, leaving, operation)
    }

    fn take_apart(
        &self,
        open: &Arc<OpenPool>,
        leaving: Leaving,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        open.streams.stop();
        self.unmount_pool(open, true, String::new)?;
        let left: Vec<_> = self.cache_file_of(open).into_iter().collect();
        // Nothing can be stored, and the waiting calls have failed already.
        drop(open.pool.close(leaving, operation));
        self.remove_pool(open.pool.name());
        self.remember_pools(&left)?;
        Ok(())
    }
}
