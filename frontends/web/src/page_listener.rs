//! Connections of browsers: in plain on the loopback interface, else by TLS.
//!
//! # Mechanism
//! Handshakes run in tasks of their own, so one that stops in the middle keeps no other connection
//! waiting. A connection has a place from its first byte on; without one it is closed.

use crate::tokens::{TokenError, Tokens};
use axum::serve::Listener;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tarn_api::patient::Patient;
use tarn_tls::TlsServer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// So many connections there may be. A browser opens six, and one for each live statistic.
const CONNECTIONS_MAX: usize = 256;

/// How long a handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// How long a connection stays open without a request, and a request may take to come.
const REQUEST_MAX: Duration = Duration::from_secs(75);

/// Why the page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Tokens would go over the network in plain.
    #[error(
        "{0} is reached from other machines, so the page is served there by TLS only: give \
         --tls-certificate and --tls-key, or an address of the loopback interface"
    )]
    NeedsTls(SocketAddr),
    /// There are no tokens to log in with.
    #[error("cannot serve the page: {0}")]
    Tokens(#[from] TokenError),
    /// The system's error.
    #[error("cannot serve the page at {address}: {}", tarn_engine::words_of(.cause))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error.
        cause: std::io::Error,
    },
}

/// Takes connections of browsers.
pub struct PageListener {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Arc<TlsServer>>,
    places: Arc<Semaphore>,
    /// Connections whose handshake is done.
    ready: mpsc::Receiver<(Connection, SocketAddr)>,
    tell_ready: mpsc::Sender<(Connection, SocketAddr)>,
}

/// A connection of a browser.
pub type Connection = Patient<Socket, OwnedSemaphorePermit>;

impl PageListener {
    /// Listens at an address, when the file of tokens is there or was made.
    ///
    /// # Errors
    /// There are no tokens; the address is taken, or is reached from other machines and there is no
    /// TLS.
    pub async fn bind(
        address: SocketAddr,
        tls: Option<Arc<TlsServer>>,
        tokens: &Path,
    ) -> Result<PageListener, BindError> {
        Tokens::open(tokens)?;
        if tls.is_none() && !address.ip().is_loopback() {
            return Err(BindError::NeedsTls(address));
        }
        let failed = |cause| BindError::Listen { address, cause };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (tell_ready, ready) = mpsc::channel(CONNECTIONS_MAX);
        Ok(PageListener {
            listener,
            address,
            tls,
            places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            ready,
            tell_ready,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether by TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// What a browser is given to find it.
    pub fn url(&self) -> String {
        let scheme = if self.is_tls() { "https" } else { "http" };
        format!("{scheme}://{}/", self.address)
    }

    /// A connection in plain is given at once; one of TLS when its handshake is done.
    fn take(
        &self,
        stream: TcpStream,
        client: SocketAddr,
        place: OwnedSemaphorePermit,
    ) -> Option<(Connection, SocketAddr)> {
        let _ = stream.set_nodelay(true);
        let patient = |socket, place| Patient::new(socket, place, REQUEST_MAX);
        let Some(tls) = &self.tls else {
            return Some((patient(Socket::Plain(stream), place), client));
        };
        let acceptor = TlsAcceptor::from(tls.config());
        let tell_ready = self.tell_ready.clone();
        tokio::spawn(async move {
            let handshake = tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await;
            // One that fails is the browser's to tell.
            if let Ok(Ok(stream)) = handshake {
                let socket = Socket::Tls(Box::new(stream));
                let _ = tell_ready.send((patient(socket, place), client)).await;
            }
        });
        None
    }
}

impl Listener for PageListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            tokio::select! {
                Some(ready) = self.ready.recv() => return ready,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, client)) => {
                        // Without a place it is closed.
                        let place = self.places.clone().try_acquire_owned();
                        let taken = place.ok().and_then(|place| self.take(stream, client, place));
                        if let Some(connection) = taken {
                            return connection;
                        }
                    }
                    // Without descriptors nothing can be accepted; there will be some again.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                },
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// The bytes of a connection.
pub enum Socket {
    /// In plain.
    Plain(TcpStream),
    /// By TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

macro_rules! of_both {
    ($self:ident, $socket:ident => $then:expr) => {
        match $self.get_mut() {
            Socket::Plain(stream) => {
                let $socket = Pin::new(stream);
                $then
            }
            Socket::Tls(stream) => {
                let $socket = Pin::new(stream.as_mut());
                $then
            }
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        of_both!(self, socket => socket.poll_read(context, buffer))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        of_both!(self, socket => socket.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        of_both!(self, socket => socket.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        of_both!(self, socket => socket.poll_shutdown(context))
    }
}
