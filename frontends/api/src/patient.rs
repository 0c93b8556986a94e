//! Connections of callers: which are admitted to the control socket, and how long the daemon waits
//! for any of them.
//!
//! # Mechanism
//! The [`Gate`] takes connections while there is room for their users, and tells others so. A
//! [`Patient`] connection is closed when a request does not come to its end in time, however slowly
//! its bytes drip, and when an answer is not read. While a call is under way there is no limit: an
//! operation takes as long as its devices take.

use crate::admission::{Admission, Room};
use crate::handover::is_passing;
use axum::serve::Listener;
use std::future::Future;
use std::io::{Error, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tarn_administration::messages::{Refusal, RefusalKind};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, Sleep, sleep_until};

/// How long a request of a command may take to come, from the connection or from the answer before.
/// A command sends it at once.
const REQUEST_MAX: Duration = Duration::from_secs(10);

/// How long an answer may lie in the socket without being read.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// How long a caller that is refused for want of room may take to read that.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// How many of those are told at a time.
const FAREWELLS_MAX: usize = 16;

/// Takes connections to the control socket.
pub(crate) struct Gate {
    listener: UnixListener,
    admission: Arc<Admission>,
    farewells: Arc<AtomicUsize>,
    request_max: Duration,
}

impl Gate {
    pub(crate) fn new(listener: UnixListener, admission: Arc<Admission>) -> Gate {
        Gate {
            listener,
            admission,
            farewells: Arc::default(),
            request_max: REQUEST_MAX,
        }
    }

    /// With less patience.
    #[cfg(test)]
    pub(crate) fn with_request_max(self, request_max: Duration) -> Gate {
        Gate {
            request_max,
            ..self
        }
    }
}

impl Listener for Gate {
    type Io = Patient<UnixStream, Room>;
    type Addr = ();

    async fn accept(&mut self) -> (Patient<UnixStream, Room>, ()) {
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Without descriptors nothing can be accepted; there will be some again.
                    let pause = match is_passing(&error) {
                        true => Duration::from_millis(100),
                        false => Duration::from_secs(1),
                    };
                    tokio::time::sleep(pause).await;
                    continue;
                }
            };
            // A peer without credentials may only read.
            let uid = stream.peer_cred().map_or(u32::MAX, |peer| peer.uid());
            match self.admission.admit(uid) {
                Some(room) => return (Patient::new(stream, room, self.request_max), ()),
                None => send_away(stream, uid, &self.farewells),
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Tells a caller that there is no room for him.
fn send_away(stream: UnixStream, uid: u32, farewells: &Arc<AtomicUsize>) {
    if farewells.load(Ordering::Relaxed) >= FAREWELLS_MAX {
        return;
    }
    farewells.fetch_add(1, Ordering::Relaxed);
    let farewells = farewells.clone();
    tokio::spawn(async move {
        let _ = tokio::time::timeout(FAREWELL_MAX, tell_no_room(stream, uid)).await;
        farewells.fetch_sub(1, Ordering::Relaxed);
    });
}

async fn tell_no_room(mut stream: UnixStream, uid: u32) -> std::io::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let reason = format!("tarnd has too many connections of user {uid} or of all users");
    let refusal = Refusal::new(RefusalKind::Busy, "", reason);
    let body = serde_json::to_string(&refusal).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    // The request first: a caller whose request is not read learns of a broken connection only.
    let mut request = [0; 4096];
    let _ = stream.read(&mut request).await?;
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    while stream.read(&mut request).await? > 0 {}
    Ok(())
}

/// What is known of the calls on a connection.
#[derive(Debug, Default)]
pub struct Calls {
    begun: AtomicU64,
    under_way: AtomicUsize,
}

impl Calls {
    /// A whole request has come; it is under way until what this gives is dropped.
    pub fn begin(self: &Arc<Self>) -> UnderWay {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self.clone())
    }
}

/// A call is under way.
pub struct UnderWay(Arc<Calls>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection for which the daemon does not wait for ever: its stream, and its place among the
/// connections that may be open.
pub struct Patient<S, R> {
    stream: S,
    room: Arc<R>,
    calls: Arc<Calls>,
    calls_seen: u64,
    request_max: Duration,
    request: Limit,
    answer: Limit,
}

impl<S, R> Patient<S, R> {
    /// Of a connection whose requests come to their end within `request_max`.
    pub fn new(stream: S, room: R, request_max: Duration) -> Patient<S, R> {
        Patient {
            stream,
            room: Arc::new(room),
            calls: Arc::default(),
            calls_seen: 0,
            request_max,
            request: Limit::default(),
            answer: Limit::default(),
        }
    }

    /// The stream.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// The place, for what runs on when the connection has ended.
    pub fn room(&self) -> Arc<R> {
        self.room.clone()
    }

    /// What is known of its calls.
    pub fn calls(&self) -> Arc<Calls> {
        self.calls.clone()
    }
}

/// A time at which something must have happened, from when it began to be waited for.
#[derive(Default)]
struct Limit(Option<Pin<Box<Sleep>>>);

impl Limit {
    fn lift(&mut self) {
        self.0 = None;
    }

    /// An error when the time is over, else the task is woken then.
    fn check(&mut self, limit: Duration, context: &mut Context<'_>) -> std::io::Result<()> {
        let until = || Box::pin(sleep_until(Instant::now() + limit));
        match self.0.get_or_insert_with(until).as_mut().poll(context) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) => Err(ErrorKind::TimedOut.into()),
        }
    }
}

impl<S: AsyncRead + Unpin, R> AsyncRead for Patient<S, R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        let begun = this.calls.begun.load(Ordering::Relaxed);
        let is_new = std::mem::replace(&mut this.calls_seen, begun) != begun;
        let is_under_way = this.calls.under_way.load(Ordering::Relaxed) > 0;
        if is_new || is_under_way {
            this.request.lift();
        }
        if !is_under_way && let Err(late) = this.request.check(this.request_max, context) {
            return Poll::Ready(Err(late));
        }
        Pin::new(&mut this.stream).poll_read(context, buffer)
    }
}

impl<S, R> Patient<S, R> {
    /// Heeds what came of an attempt to write.
    fn heed<T>(
        &mut self,
        attempt: Poll<Result<T, Error>>,
        context: &mut Context<'_>,
    ) -> Poll<Result<T, Error>> {
        if attempt.is_ready() {
            self.answer.lift();
            return attempt;
        }
        match self.answer.check(ANSWER_MAX, context) {
            Ok(()) => Poll::Pending,
            Err(late) => Poll::Ready(Err(late)),
        }
    }
}

impl<S: AsyncWrite + Unpin, R> AsyncWrite for Patient<S, R> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let attempt = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.heed(attempt, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let attempt = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.heed(attempt, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
