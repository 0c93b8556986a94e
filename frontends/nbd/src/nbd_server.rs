//! The server: listening sockets, and the connections that came by them.

use crate::client_connection::{Connection, Told};
use crate::secured::{Security, TlsUse};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use tarn_engine::Engine;
use tarn_engine::files::{ClientId, FrontEnd, client_number};
use tarn_serving::{Next, RequestTraits, ServingThreads, Source, SourceKey};
use tarn_tls::TlsServer;

/// By this name the serving threads bound connections whose clients have not chosen an export; then
/// they count for the pool of the volume.
const BOUND: &str = "nbd";

/// How many connections there may be. A guess: each takes 64 KiB, and what it moves.
const CONNECTIONS_MAX: usize = 256;

/// How long a client may take to choose an export when there are too many connections.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// How long the end of the server waits for commands that are being carried out.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// Only the daemon's user may connect.
const SOCKET_MODE: u32 = 0o600;

/// Where the server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listening {
    /// On a Unix socket, to which only the daemon's user can connect.
    Unix(PathBuf),
    /// On TCP, without passwords: a client that reaches the address reads and writes all volumes,
    /// unless it must show a certificate.
    Tcp(SocketAddr),
}

/// The NBD server of a daemon.
pub struct NbdServer {
    engine: Arc<Engine>,
    threads: Arc<ServingThreads>,
    tls: OnceLock<(Arc<TlsServer>, TlsUse)>,
    state: Mutex<State>,
    itself: Weak<NbdServer>,
}

#[derive(Default)]
struct State {
    listeners: Vec<SourceKey>,
    connections: BTreeMap<u32, Entry>,
    last_number: u32,
}

struct Entry {
    connection: Arc<Connection>,
    key: SourceKey,
    begun: Instant,
}

impl NbdServer {
    /// A server that does not listen yet.
    pub fn new(engine: Arc<Engine>, threads: Arc<ServingThreads>) -> Arc<NbdServer> {
        Arc::new_cyclic(|itself| NbdServer {
            engine,
            threads,
            tls: OnceLock::new(),
            state: Mutex::default(),
            itself: itself.clone(),
        })
    }

    /// Has clients begin TLS where they ask for it, or makes those that come by TCP do so. Called
    /// once; clients that have connected before have no TLS.
    pub fn offer_tls(&self, tls: Arc<TlsServer>, tls_use: TlsUse) {
        let is_first = self.tls.set((tls, tls_use)).is_ok();
        assert!(is_first, "TLS is offered once");
    }

    /// Listens there. Gives the address, where the system has chosen the port.
    ///
    /// # Errors
    /// The system's.
    pub fn listen(&self, listening: &Listening) -> io::Result<Option<SocketAddr>> {
        let (socket, address): (Socket, _) = match listening {
            Listening::Unix(path) => (Socket::Unix(listen_unix(path)?), None),
            Listening::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let address = listener.local_addr()?;
                (Socket::Tcp(listener), Some(address))
            }
        };
        let listener = Arc::new(Listener {
            socket,
            server: self.itself.clone(),
        });
        let key = self.threads.add(listener, BOUND)?;
        self.state().listeners.push(key);
        Ok(address)
    }

    /// Ends: no connection is taken any more, and all that there are are closed. The volumes are
    /// released.
    pub fn stop(&self) {
        let listeners = std::mem::take(&mut self.state().listeners);
        for key in listeners {
            let _ = self.threads.remove(key, STOP_PATIENCE);
        }
        let connections = std::mem::take(&mut self.state().connections);
        connections.values().for_each(|one| one.connection.close());
        for one in connections.into_values() {
            // Removed in time, it is not told that it has gone.
            if self.threads.remove(one.key, STOP_PATIENCE).is_ok() {
                one.connection.gone();
            }
        }
    }

    /// How many connections there are.
    pub fn connection_count(&self) -> usize {
        self.state().connections.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked with it was adding or removing one entry.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a client that has connected; not where there are too many.
    fn serve(&self, socket: OwnedFd, is_local: bool) {
        let number = {
            let mut state = self.state();
            if state.connections.len() >= CONNECTIONS_MAX && !state.end_a_slow_handshake() {
                return;
            }
            state.last_number = state.last_number.wrapping_add(1);
            state.last_number
        };
        let server = self.itself.clone();
        let on_end = Box::new(move || {
            if let Some(server) = server.upgrade() {
                let ended = server.state().connections.remove(&number);
                drop(ended);
            }
        });
        let server = self.itself.clone();
        let on_chosen = Box::new(move |pool: &str| {
            if let Some(server) = server.upgrade()
                && let Some(entry) = server.state().connections.get(&number)
            {
                server.threads.count_for(entry.key, pool);
            }
        });
        let tell = Told { on_chosen, on_end };
        let security = Security::new(self.tls.get(), is_local);
        let client = client_of(&socket, is_local);
        let connection = Connection::new(self.engine.clone(), socket, client, security, tell);
        // The table has it before it can end.
        let mut state = self.state();
        if let Ok(key) = self.threads.add(connection.clone(), BOUND) {
            let entry = Entry {
                connection,
                key,
                begun: Instant::now(),
            };
            state.connections.insert(number, entry);
        }
    }
}

impl State {
    /// Ends the oldest connection whose client takes too long to choose an export. It leaves the
    /// table when its threads have left it.
    fn end_a_slow_handshake(&self) -> bool {
        let mut slow = self.connections.values().filter(|one| {
            !one.connection.is_negotiated() && one.begun.elapsed() > HANDSHAKE_PATIENCE
        });
        let found = slow.next();
        if let Some(one) = found {
            one.connection.close();
        }
        found.is_some()
    }
}

/// The number of a client in operation records, by the address of its machine.
fn client_of(socket: &OwnedFd, is_local: bool) -> ClientId {
    let address = match is_local {
        true => None,
        false => rustix::net::getpeername(socket).ok().flatten(),
    };
    let address = address.and_then(|address| SocketAddr::try_from(address).ok());
    let name = address.map(|address| address.ip().to_canonical().to_string());
    client_number(FrontEnd::Nbd, name.as_deref().unwrap_or("this machine"))
}

fn listen_unix(path: &Path) -> io::Result<UnixListener> {
    // The daemon has its instance's lock, so a socket there was left by one that is dead.
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Socket {
    /// A client that waits, if any does.
    fn accept(&self) -> io::Result<OwnedFd> {
        match self {
            Socket::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(stream.into())
            }
            Socket::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                Ok(stream.into())
            }
        }
    }
}

/// A listening socket: its requests are connections.
struct Listener {
    socket: Socket,
    server: Weak<NbdServer>,
}

impl Source for Listener {
    type Request = Option<OwnedFd>;
    type DelayedReply = Infallible;

    fn new_request() -> Self::Request {
        None
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Unix(listener) => listener.as_fd(),
            Socket::Tcp(listener) => listener.as_fd(),
        }
    }

    fn take_request(&self, request: &mut Self::Request) -> Next {
        match self.socket.accept() {
            Ok(socket) => {
                *request = Some(socket);
                Next::Request(RequestTraits {
                    is_long: false,
                    is_waited_for: false,
                    may_delay_reply: false,
                })
            }
            // A client that has gone again, or no descriptor free: later ones are taken.
            Err(_) => Next::Nothing,
        }
    }

    fn may_have_owners(&self) -> bool {
        false
    }

    fn serve(&self, request: &mut Self::Request) -> Option<Infallible> {
        if let (Some(socket), Some(server)) = (request.take(), self.server.upgrade()) {
            server.serve(socket, matches!(self.socket, Socket::Unix(_)));
        }
        None
    }

    fn reply_when_durable(&self, delayed: Vec<Infallible>) {
        debug_assert!(delayed.is_empty(), "no reply is delayed");
    }

    fn gone(&self) {}
}
