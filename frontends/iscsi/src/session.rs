//! Sessions: an initiator that uses a target, over one connection.

use crate::initiator_connection::Connection;
use crate::protocol::login::LoggedIn;
use crate::protocol::parameters::Parameters;
use crate::protocol::tasks::Tasks;
use crate::scsi::Nexus;
use crate::target::Target;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tarn_engine::files::{ClientId, FrontEnd, client_number};

/// Most sessions of one portal. A guess: each has buffers of some hundred KiB.
const SESSIONS_MAX: usize = 1024;

/// How long a reset or a new session waits for requests that were aborted. A guess: longer than a
/// working pool needs for the largest.
const ABORT_PATIENCE: Duration = Duration::from_secs(10);

/// A session in its full feature phase.
pub struct Session {
    /// Its number (TSIH).
    pub number: u16,
    /// The initiator's name.
    pub initiator: String,
    /// The initiator's number in operation records.
    pub client: ClientId,
    /// The initiator port.
    pub nexus: Nexus,
    /// What it uses; nothing in a discovery session.
    pub target: Option<Arc<Target>>,
    /// The number of its connection.
    pub connection_number: u16,
    /// What was agreed on.
    pub agreed: Parameters,
    /// When it began.
    pub began: std::time::SystemTime,
    tasks: Mutex<Tasks>,
    task_ended: Condvar,
    /// How many threads wait for commands to end.
    waiting: AtomicU32,
    connection: Weak<Connection>,
}

impl Session {
    /// Its commands.
    pub fn tasks(&self) -> MutexGuard<'_, Tasks> {
        // A thread that panicked under the lock left each command whole.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A command has ended: those who wait for that look again.
    pub fn tell_ended(&self) {
        // Telling no thread takes a call of the system as well. One that begins to wait has counted
        // itself under the lock, and the command was taken out under it.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.task_ended.notify_all();
        }
    }

    /// Waits until a task does not run any more. False when that takes too long.
    pub fn wait_for(&self, tag: u32) -> bool {
        self.wait_while(|tasks| tasks.is_running(tag))
    }

    /// Waits until no aborted task runs any more. False when that takes too long.
    pub fn wait_for_aborted(&self) -> bool {
        self.wait_while(|tasks| tasks.has_aborted())
    }

    fn wait_while(&self, is_to_wait: impl Fn(&Tasks) -> bool) -> bool {
        let began = Instant::now();
        let mut tasks = self.tasks();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut is_in_time = true;
        while is_to_wait(&tasks) && is_in_time {
            let rest = ABORT_PATIENCE.checked_sub(began.elapsed());
            is_in_time = rest.is_some();
            let waited = self
                .task_ended
                .wait_timeout(tasks, rest.unwrap_or_default());
            tasks = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        is_in_time
    }

    /// Its connection, while there is one.
    pub fn connection(&self) -> Option<Arc<Connection>> {
        self.connection.upgrade()
    }
}

/// The sessions of a portal, by their numbers.
#[derive(Default)]
pub struct Sessions {
    by_number: Mutex<Numbered>,
}

#[derive(Default)]
struct Numbered {
    sessions: BTreeMap<u16, Arc<Session>>,
    last: u16,
}

impl Sessions {
    /// Begins a session. One of the same initiator port with the same target ends first: the
    /// initiator has lost it (RFC 7143, 6.3.5). None when there are too many.
    pub fn begin(
        &self,
        logged_in: &LoggedIn,
        target: Option<Arc<Target>>,
        connection: &Arc<Connection>,
    ) -> Option<Arc<Session>> {
        let isid: String = logged_in.isid.iter().map(|b| format!("{b:02x}")).collect();
        let nexus = Nexus(format!("{},i,0x{isid}", logged_in.initiator));
        if let Some(target) = &target {
            for old in self.of(&target.name, Some(&nexus)) {
                self.end(&old);
                old.tasks().abort_all();
                if let Some(connection) = old.connection() {
                    connection.close();
                }
                old.wait_for_aborted();
            }
        }
        let mut numbered = self.numbered();
        if numbered.sessions.len() >= SESSIONS_MAX {
            return None;
        }
        loop {
            numbered.last = numbered.last.wrapping_add(1);
            if numbered.last != 0 && !numbered.sessions.contains_key(&numbered.last) {
                break;
            }
        }
        let session = Arc::new(Session {
            number: numbered.last,
            initiator: logged_in.initiator.clone(),
            client: client_number(FrontEnd::Iscsi, &logged_in.initiator),
            nexus: nexus.clone(),
            target: target.clone(),
            connection_number: logged_in.connection,
            agreed: logged_in.parameters,
            began: std::time::SystemTime::now(),
            tasks: Mutex::new(Tasks::new(logged_in.command_number)),
            task_ended: Condvar::new(),
            waiting: AtomicU32::new(0),
            connection: Arc::downgrade(connection),
        });
        numbered.sessions.insert(session.number, session.clone());
        if let Some(target) = &target {
            target.unit.begin_nexus(&nexus);
        }
        Some(session)
    }

    /// Ends a session, if it has not ended. True if it had not.
    pub fn end(&self, session: &Arc<Session>) -> bool {
        let removed = self.numbered().sessions.remove(&session.number);
        let is_removed = removed.is_some();
        if let (true, Some(target)) = (is_removed, &session.target) {
            target.unit.end_nexus(&session.nexus);
        }
        is_removed
    }

    /// The sessions of a target, or only those of an initiator port with it.
    pub fn of(&self, target: &str, nexus: Option<&Nexus>) -> Vec<Arc<Session>> {
        let is_it = |session: &&Arc<Session>| {
            let name = session.target.as_ref().map(|target| &*target.name);
            name == Some(target) && nexus.is_none_or(|nexus| session.nexus == *nexus)
        };
        let numbered = self.numbered();
        numbered.sessions.values().filter(is_it).cloned().collect()
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.numbered().sessions.values().cloned().collect()
    }

    fn numbered(&self) -> MutexGuard<'_, Numbered> {
        // A thread that panicked under the lock was inserting or removing one.
        self.by_number
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
