//! The server's end: routes to the engine.

use crate::handover::Handovers;
use crate::{is_delegated, only_reads};
use axum::extract::{ConnectInfo, State, connect_info::Connected};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::IncomingStream;
use axum::{Json, Router};
use std::future::Future;
use std::sync::Arc;
use tarn_engine::administration::{Administration, Call, Presence};
use tarn_engine::groups_of_peer;
#[allow(unused_imports, reason = "the list of operations names all of them")]
use tarn_engine::messages::{
    Caller, Done, Envelope, Refusal, RefusalKind, dataset, delegation, pool, statistics,
};
use tokio::net::{UnixListener, UnixStream};

/// What the server needs to answer.
#[derive(Clone)]
pub struct Control {
    /// The engine.
    pub engine: Arc<dyn Administration>,
    /// The user that may do everything, beside root: the one who runs the daemon.
    pub owner_uid: u32,
    /// Descriptors of callers.
    pub handovers: Arc<Handovers>,
}

/// Peer credentials of a connection.
#[derive(Debug, Clone)]
struct Peer {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    pid: u32,
    is_known: bool,
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        Peer::of(stream.io())
    }
}

impl Peer {
    /// Reads the credentials the kernel noted when the peer connected.
    fn of(stream: &UnixStream) -> Self {
        match stream.peer_cred() {
            Ok(credentials) => Peer {
                uid: credentials.uid(),
                gid: credentials.gid(),
                groups: groups_of_peer(stream),
                pid: credentials
                    .pid()
                    .and_then(|pid| u32::try_from(pid).ok())
                    .unwrap_or(0),
                is_known: true,
            },
            Err(_) => Peer {
                uid: u32::MAX,
                gid: u32::MAX,
                groups: Vec::new(),
                pid: 0,
                is_known: false,
            },
        }
    }
}

/// Serves both sockets until `stop` is ready; calls that were begun are finished, but for streams, which are stopped.
///
/// # Errors
/// When the listener fails for good.
pub async fn serve(
    listener: UnixListener,
    streams: UnixListener,
    control: Control,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let handovers = control.handovers.clone();
    let service = router(control).into_make_service_with_connect_info::<Peer>();
    let stop = {
        let handovers = handovers.clone();
        async move {
            stop.await;
            handovers.close();
        }
    };
    let calls = axum::serve(listener, service).with_graceful_shutdown(stop);
    tokio::select! {
        served = calls => served,
        failed = handovers.listen(streams) => failed,
    }
}

macro_rules! routes {
    ($($path:literal $method:ident: $request:ty => $reply:ty, $summary:literal;)*) => {
        /// All routes.
        fn router(control: Control) -> Router {
            Router::new()
                .route("/v1/openapi.json", get(|| async { Json(crate::description()) }))
                $(.route(concat!("/v1/", $path), post($method)))*
                .with_state(control)
        }

        $(
            async fn $method(
                State(control): State<Control>,
                ConnectInfo(peer): ConnectInfo<Peer>,
                Json(envelope): Json<Envelope<$request>>,
            ) -> Response {
                answer(control, peer, $path, envelope, |engine, call, request| {
                    engine.$method(call, request)
                })
                .await
            }
        )*
    };
}

tarn_engine::for_each_operation!(routes);

/// Says that nobody waits any more.
struct Leaving(Presence);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Checks who calls, runs the operation on a thread that may wait, and answers.
async fn answer<Q, A>(
    control: Control,
    peer: Peer,
    path: &'static str,
    envelope: Envelope<Q>,
    operation: fn(&dyn Administration, &Call, Q) -> Result<A, Refusal>,
) -> Response
where
    Q: Send + 'static,
    A: serde::Serialize + Send + 'static,
{
    let is_owner = peer.is_known && (peer.uid == 0 || peer.uid == control.owner_uid);
    let is_delegable = peer.is_known && is_delegated(path);
    if !is_owner && !only_reads(path) && !is_delegable {
        return refuse(Refusal::new(RefusalKind::Denied, "", "permission denied"));
    }
    let caller = Caller {
        uid: peer.uid,
        gid: peer.gid,
        groups: peer.groups,
        pid: peer.pid,
        user: None,
    };
    let pipe = match envelope.stream {
        None => None,
        Some(ticket) => match control.handovers.redeem(&ticket, peer.uid) {
            Ok(pipe) => Some(pipe),
            Err(why) => {
                let reason = why.to_string();
                return refuse(Refusal::new(RefusalKind::Invalid, "cannot stream", reason));
            }
        },
    };
    let presence = Presence::default();
    let call = Call {
        caller,
        command: envelope.command,
        pipe,
        presence: presence.clone(),
    };
    // This is not polled to its end when the caller hangs up, but dropped; the operation goes on in its thread, and may look.
    let _leaving = Leaving(presence);
    let request = envelope.request;
    let outcome =
        tokio::task::spawn_blocking(move || operation(&*control.engine, &call, request)).await;
    match outcome {
        Ok(Ok(reply)) => Json(reply).into_response(),
        Ok(Err(refusal)) => refuse(refusal),
        Err(failure) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            Json(Refusal::new(
                RefusalKind::Unsupported,
                "",
                format!("internal error: the operation ended without an answer: {failure}"),
            )),
        )
            .into_response(),
    }
}

/// A refusal as a response.
fn refuse(refusal: Refusal) -> Response {
    let status = match refusal.kind {
        RefusalKind::NotFound => StatusCode::NOT_FOUND,
        RefusalKind::Exists | RefusalKind::Busy => StatusCode::CONFLICT,
        RefusalKind::Invalid => StatusCode::BAD_REQUEST,
        RefusalKind::Denied | RefusalKind::ReadOnly | RefusalKind::OtherHost => {
            StatusCode::FORBIDDEN
        }
        RefusalKind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        RefusalKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(refusal)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::mpsc::{Sender, channel};
    use tarn_engine::messages::Changed;

    /// Tells of its caller, and works until he is gone.
    struct Waiter(Sender<Presence>);

    impl Waiter {
        fn wait(&self, call: &Call) -> Refusal {
            self.0.send(call.presence.clone()).unwrap();
            while !call.presence.has_ended() {
                std::thread::yield_now();
            }
            self.0.send(call.presence.clone()).unwrap();
            Refusal::new(RefusalKind::Busy, "", "nothing is done here")
        }
    }

    macro_rules! waits {
        ($($path:literal $method:ident: $request:ty => $reply:ty, $summary:literal;)*) => {
            impl Administration for Waiter {
                $(
                    fn $method(&self, call: &Call, _: $request) -> Result<$reply, Refusal> {
                        Err(self.wait(call))
                    }
                )*
            }
        };
    }

    tarn_engine::for_each_operation!(waits);

    #[test]
    fn an_operation_can_see_that_its_caller_hung_up() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (tell, told) = channel();
        let control = Control {
            engine: Arc::new(Waiter(tell)),
            owner_uid: 0,
            handovers: Arc::new(Handovers::default()),
        };
        let (listener, streams) = {
            let _context = runtime.enter();
            let streams = UnixListener::bind(folder.path().join("streams")).unwrap();
            (UnixListener::bind(&socket).unwrap(), streams)
        };
        runtime.spawn(serve(listener, streams, control, std::future::pending()));
        let mut caller = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        let body = r#"{"command":"","request":{"name":"tank/a@b"}}"#;
        let request = format!(
            "POST /v1/dataset/plan-send HTTP/1.1\r\nhost: tarn\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        caller.write_all(request.as_bytes()).unwrap();
        assert!(!told.recv().unwrap().has_ended());
        drop(caller);
        assert!(told.recv().unwrap().has_ended());
    }
}
