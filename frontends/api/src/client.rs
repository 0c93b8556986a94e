//! The commands' end: one call, one connection.
//!
//! Commands are short and blocking, so each call opens the socket, asks, waits for the answer and
//! closes. There is no time limit here: an operation takes as long as its devices take, and Ctrl-C
//! ends the wait.

use crate::handover::Line;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
#[allow(unused_imports, reason = "the list of operations names all of them")]
use tarn_administration::messages::{
    Changed, Done, Envelope, Refusal, analytics, dataset, delegation, pool, statistics,
};
use thiserror::Error;
use tokio::net::UnixStream;

/// Why a call gave no reply.
#[derive(Debug, Error)]
pub enum CallError {
    /// The engine refused.
    #[error("{0}")]
    Refused(Refusal),
    /// No daemon answers at the socket.
    #[error("cannot reach tarnd at {}: {}", .path.display(), tarn_engine::words_of(.cause))]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The connection broke before the answer was complete: the daemon died, or was stopped.
    #[error("tarnd went away before it answered: {0}")]
    Broken(String),
    /// The answer was not the one this program knows: the daemon is of another version.
    #[error("tarnd gave an answer that this command does not understand: {0}")]
    Strange(String),
}

/// A way to the daemon.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
    command: String,
    ticket: Option<String>,
}

macro_rules! methods {
    ($($path:literal $method:ident: $request:ty => $reply:ty, $summary:literal;)*) => {
        impl Client {
            $(
                #[doc = $summary]
                ///
                /// # Errors
                /// The engine's refusal, or why the daemon could not be asked.
                pub fn $method(&self, request: $request) -> Result<$reply, CallError> {
                    self.call($path, request)
                }
            )*
        }
    };
}

tarn_administration::for_each_operation!(methods);

impl Client {
    /// A client for the socket at this path. `command` is what history shall show.
    pub fn new(socket: &Path, command: &str) -> Self {
        Client {
            socket: socket.to_path_buf(),
            command: command.to_string(),
            ticket: None,
        }
    }

    /// The same, for calls through which a stream flows: its bytes go through what was handed over.
    #[must_use]
    pub fn with_stream(&self, line: &Line) -> Self {
        Client {
            ticket: Some(line.ticket()),
            ..self.clone()
        }
    }

    /// True when a daemon accepts connections at the socket.
    pub fn is_reachable(&self) -> bool {
        std::os::unix::net::UnixStream::connect(&self.socket).is_ok()
    }

    /// One call.
    fn call<Q: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        request: Q,
    ) -> Result<A, CallError> {
        let envelope = Envelope {
            command: self.command.clone(),
            stream: self.ticket.clone(),
            request,
        };
        let body = serde_json::to_vec(&envelope).map_err(|e| CallError::Strange(e.to_string()))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .map_err(|cause| self.unreachable(cause))?;
        let (status, answer) = runtime.block_on(self.exchange(path, body))?;
        if status == StatusCode::OK {
            return serde_json::from_slice(&answer).map_err(|e| CallError::Strange(e.to_string()));
        }
        match serde_json::from_slice(&answer) {
            Ok(refusal) => Err(CallError::Refused(refusal)),
            Err(_) => Err(CallError::Strange(format!(
                "{status}: {}",
                String::from_utf8_lossy(&answer)
            ))),
        }
    }

    /// Sends one request and reads the whole answer.
    async fn exchange(&self, path: &str, body: Vec<u8>) -> Result<(StatusCode, Bytes), CallError> {
        let broken = |e: hyper::Error| CallError::Broken(e.to_string());
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|cause| self.unreachable(cause))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        let request = Request::post(format!("/v1/{path}"))
            .header("host", "tarnd")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|e| CallError::Strange(e.to_string()))?;
        let driver = tokio::task::LocalSet::new();
        driver.spawn_local(connection);
        driver
            .run_until(async {
                let response = sender.send_request(request).await.map_err(broken)?;
                let status = response.status();
                let answer = response
                    .into_body()
                    .collect()
                    .await
                    .map_err(broken)?
                    .to_bytes();
                Ok((status, answer))
            })
            .await
    }

    fn unreachable(&self, cause: std::io::Error) -> CallError {
        CallError::Unreachable {
            path: self.socket.clone(),
            cause,
        }
    }
}
