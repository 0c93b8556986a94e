//! A portal: the address where initiators connect.

use crate::initiator_connection::Connection;
use crate::session::{Session, Sessions};
use crate::target::Targets;
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tarn_serving::{Next, RequestTraits, ServingThreads, Source, SourceKey};

/// Most connections together, and most of them that have not logged in: when one more comes, the
/// oldest of those is closed.
const CONNECTIONS_MAX: usize = 1100;
const LOGINS_MAX: usize = 64;

/// Under this name the threads count what connections hold before they are known to be a pool's.
const LISTENERS: &str = "iscsi";

/// How long closing a portal waits for requests under way.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often, after which silence, and how many times the system asks whether an initiator is still
/// there, in seconds.
const KEEP_ALIVE: (u64, u64, u32) = (60, 10, 6);

/// What the connections of a portal share.
pub struct Shared {
    /// Those who have targets.
    pub targets: Arc<dyn Targets>,
    /// The sessions.
    pub sessions: Sessions,
    connections: Mutex<VecDeque<(SourceKey, Weak<Connection>)>>,
    threads: Weak<ServingThreads>,
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, VecDeque<(SourceKey, Weak<Connection>)>> {
        // A thread that panicked under the lock was adding or removing one.
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection is known to use this pool.
    pub(crate) fn count_for(&self, one: &Connection, pool: &str) {
        let connections = self.connections();
        let mut all = connections.iter();
        let found = all.find(|(_, other)| std::ptr::eq(other.as_ptr(), one));
        if let (Some((key, _)), Some(threads)) = (found, self.threads.upgrade()) {
            threads.count_for(*key, pool);
        }
    }

    /// A connection has gone.
    pub(crate) fn forget(&self, gone: &Connection) {
        self.connections()
            .retain(|(_, one)| !std::ptr::eq(one.as_ptr(), gone));
    }

    /// Serves a connection that was accepted, if there are not too many.
    fn welcome(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        let Some(threads) = self.threads.upgrade() else {
            return;
        };
        let Ok(local) = stream.local_addr() else {
            return;
        };
        if prepare(&stream).is_err() {
            return;
        }
        let connection = Connection::new(stream, (local, peer), self.clone());
        let mut connections = self.connections();
        if connections.len() >= CONNECTIONS_MAX {
            return;
        }
        let logins: Vec<Arc<Connection>> = connections
            .iter()
            .filter_map(|(_, one)| one.upgrade())
            .filter(|one| one.is_in_login())
            .collect();
        if logins.len() >= LOGINS_MAX {
            logins[0].close();
        }
        // Added under the lock: a connection that ends at once is forgotten after it was added.
        if let Ok(key) = threads.add(connection.clone(), LISTENERS) {
            connections.push_back((key, Arc::downgrade(&connection)));
        }
    }
}

fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let (idle, interval, count) = KEEP_ALIVE;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(idle))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(interval))?;
    sockopt::set_tcp_keepcnt(stream, count)?;
    Ok(())
}

/// A listening socket, whose requests are connections.
struct Listener {
    listener: TcpListener,
    shared: Arc<Shared>,
}

impl Source for Listener {
    type Request = Option<(TcpStream, SocketAddr)>;
    type DelayedReply = ();

    fn new_request() -> Self::Request {
        None
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    fn take_request(&self, request: &mut Self::Request) -> Next {
        match self.listener.accept() {
            Ok(accepted) => *request = Some(accepted),
            // Out of descriptors, too: it is looked at again when the next connection comes.
            Err(error) if error.kind() == ErrorKind::InvalidInput => return Next::Ended,
            Err(_) => return Next::Nothing,
        }
        Next::Request(RequestTraits {
            is_long: false,
            is_waited_for: false,
            may_delay_reply: false,
        })
    }

    fn serve(&self, request: &mut Self::Request) -> Option<()> {
        let (stream, peer) = request.take()?;
        self.shared.welcome(stream, peer);
        None
    }

    fn reply_when_durable(&self, _: Vec<()>) {}

    fn gone(&self) {}
}

/// An address where initiators connect.
pub struct Portal {
    /// What its connections share.
    pub shared: Arc<Shared>,
    /// Where it was asked to listen, and where it does.
    pub asked: SocketAddr,
    /// With the port that the system chose, if it was to.
    pub address: SocketAddr,
    listener: SourceKey,
}

impl Portal {
    /// Listens.
    ///
    /// # Errors
    /// The system's: most likely the port is in use.
    pub fn open(
        address: SocketAddr,
        targets: Arc<dyn Targets>,
        threads: &Arc<ServingThreads>,
    ) -> std::io::Result<Portal> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let (asked, address) = (address, listener.local_addr()?);
        let shared = Arc::new(Shared {
            targets,
            sessions: Sessions::default(),
            connections: Mutex::default(),
            threads: Arc::downgrade(threads),
        });
        let source = Listener {
            listener,
            shared: shared.clone(),
        };
        let listener = threads.add(Arc::new(source), LISTENERS)?;
        Ok(Portal {
            shared,
            asked,
            address,
            listener,
        })
    }

    /// The sessions.
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        self.shared.sessions.all()
    }

    /// Ends the sessions of a target: it is no longer there.
    pub fn end_sessions_of(&self, target: &str) {
        for session in self.shared.sessions.of(target, None) {
            if let Some(connection) = session.connection() {
                connection.close();
            }
        }
    }

    /// Listens no longer and ends all sessions.
    pub fn close(&self) {
        let Some(threads) = self.shared.threads.upgrade() else {
            return;
        };
        let _ = threads.remove(self.listener, PATIENCE);
        let connections: Vec<(SourceKey, Weak<Connection>)> =
            self.shared.connections().iter().cloned().collect();
        for (_, connection) in &connections {
            if let Some(connection) = connection.upgrade() {
                connection.close();
            }
        }
        for (key, connection) in connections {
            let connection = connection.upgrade();
            let is_removed = threads.remove(key, PATIENCE).is_ok();
            if let (true, Some(connection)) = (is_removed, connection) {
                // Removed by us, it is not told.
                Source::gone(&*connection);
            }
        }
    }
}
