//! The listening socket: its requests are connections.

use crate::calls::Calls;
use crate::client_numbers::Client;
use crate::connection::{Connection, Connections};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::net::sockopt;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tarn_serving::{Next, RequestTraits, ServingThreads, Source};

/// Most connections. A guess: a client has one, or a few.
const CONNECTIONS_MAX: usize = 4096;

/// How long no connection is taken when the daemon has no more descriptors.
const FULL_PAUSE: Duration = Duration::from_millis(10);

/// The name under which serving threads count what NFS clients have under way.
pub(crate) const POOL: &str = "nfs clients";

/// The listening socket.
pub(crate) struct Listener {
    socket: TcpListener,
    threads: Weak<ServingThreads>,
    calls: Arc<Calls>,
    all: Arc<Connections>,
    open: Mutex<Vec<Weak<Connection>>>,
}

impl Listener {
    /// Listens on a port of all addresses; 0 for any.
    ///
    /// # Errors
    /// The system's: the port is in use, or may not be used.
    pub(crate) fn open(
        port: u16,
        threads: &Arc<ServingThreads>,
        calls: Arc<Calls>,
    ) -> std::io::Result<Listener> {
        let all = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let socket = match TcpListener::bind(all) {
            // A machine without IPv6.
            Err(error) if error.kind() != ErrorKind::AddrInUse => {
                TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
            }
            bound => bound,
        }?;
        socket.set_nonblocking(true)?;
        Ok(Listener {
            socket,
            threads: Arc::downgrade(threads),
            calls,
            all: Arc::default(),
            open: Mutex::default(),
        })
    }

    /// The port that it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.socket.local_addr().map_or(0, |address| address.port())
    }

    /// Ends all connections.
    pub(crate) fn end_connections(&self) {
        let open = std::mem::take(&mut *self.connections());
        for connection in open.iter().filter_map(Weak::upgrade) {
            connection.end();
        }
    }

    fn connections(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Connection>>> {
        // A thread that panicked under the lock was adding one.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(&self, stream: TcpStream) -> std::io::Result<()> {
        let Some(threads) = self.threads.upgrade() else {
            return Ok(());
        };
        if self.all.count.load(Ordering::SeqCst) >= CONNECTIONS_MAX {
            // The client sees it close, and tries again.
            return Ok(());
        }
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        // A client that is gone without a word is found out.
        sockopt::set_socket_keepalive(&stream, true)?;
        let client = Client::between(stream.peer_addr()?, stream.local_addr()?);
        let connection =
            Connection::new(stream.into(), client, self.calls.clone(), self.all.clone());
        let mut open = self.connections();
        if open.len() >= 2 * CONNECTIONS_MAX {
            open.retain(|other| other.strong_count() > 0);
        }
        open.push(Arc::downgrade(&connection));
        drop(open);
        threads.add(connection, POOL)?;
        Ok(())
    }
}

impl Source for Listener {
    type Request = Option<TcpStream>;
    type DelayedReply = ();

    fn new_request() -> Option<TcpStream> {
        None
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn take_request(&self, request: &mut Option<TcpStream>) -> Next {
        match self.socket.accept() {
            Ok((stream, _)) => *request = Some(stream),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Nothing,
            Err(_) => {
                // A client that went away before; or no more descriptors, of which there may be
                // some in a moment: the socket announces its clients at once again.
                std::thread::sleep(FULL_PAUSE);
                return Next::Nothing;
            }
        }
        Next::Request(RequestTraits {
            is_long: false,
            is_waited_for: true,
            may_delay_reply: false,
        })
    }

    fn serve(&self, request: &mut Option<TcpStream>) -> Option<()> {
        if let Some(stream) = request.take() {
            // A connection that cannot be served is closed.
            let _ = self.connect(stream);
        }
        None
    }

    fn reply_when_durable(&self, _: Vec<()>) {}

    fn gone(&self) {}
}
