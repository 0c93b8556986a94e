//! The server's end: routes to the engine.

use crate::admission::{Admission, Bounds, Room};
use crate::handover::Handovers;
use crate::patient::{Calls, Gate, Patient};
use crate::{is_delegated, only_reads};
use axum::extract::{ConnectInfo, State, connect_info::Connected};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::IncomingStream;
use axum::{Json, Router};
use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use tarn_administration::administration::{Administration, Call};
#[allow(unused_imports, reason = "the list of operations names all of them")]
use tarn_administration::messages::{
    Caller, Done, Envelope, Refusal, RefusalKind, analytics, dataset, delegation, pool, statistics,
};
use tarn_engine::{Presence, groups_of_peer};
use tokio::net::{UnixListener, UnixStream};

/// What the server needs to answer.
#[derive(Clone)]
pub struct Control {
    /// What carries out requests.
    pub administration: Arc<dyn Administration>,
    /// The user that may do everything, beside root: the daemon's.
    pub owner_uid: u32,
    /// Descriptors of callers.
    pub handovers: Arc<Handovers>,
    /// Connections.
    pub admission: Arc<Admission>,
}

impl Control {
    /// For a daemon of this user that may have so many descriptors.
    pub fn new(
        administration: Arc<dyn Administration>,
        owner_uid: u32,
        descriptors: usize,
    ) -> Control {
        let bounds = Bounds::new(owner_uid, descriptors);
        Control {
            administration,
            owner_uid,
            handovers: Handovers::new(bounds),
            admission: Admission::new(bounds),
        }
    }
}

/// The sender of a request: by the credentials of the connection's peer, or as a front end has
/// found by other means. The routes find it as [`ConnectInfo`] among the request's extensions.
#[derive(Debug, Clone)]
pub struct Peer {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Other groups.
    pub groups: Vec<u32>,
    /// Process id; 0 where there is none on this machine.
    pub pid: u32,
    /// One that is not known may only read.
    pub is_known: bool,
    /// The connection's place among those that may be open: kept while an operation runs.
    pub room: Arc<dyn Any + Send + Sync>,
    /// The calls on the connection.
    pub calls: Arc<Calls>,
}

impl Connected<IncomingStream<'_, Gate>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Gate>) -> Self {
        Peer::of(stream.io())
    }
}

impl Peer {
    /// Reads the credentials the kernel noted when the peer connected.
    fn of(connection: &Patient<UnixStream, Room>) -> Self {
        let credentials = connection.stream().peer_cred().ok();
        let pid = credentials.and_then(|peer| u32::try_from(peer.pid()?).ok());
        Peer {
            uid: credentials.map_or(u32::MAX, |peer| peer.uid()),
            gid: credentials.map_or(u32::MAX, |peer| peer.gid()),
            groups: match credentials {
                Some(_) => groups_of_peer(connection.stream()),
                None => Vec::new(),
            },
            pid: pid.unwrap_or(0),
            is_known: credentials.is_some(),
            room: connection.room(),
            calls: connection.calls(),
        }
    }
}

/// Serves both sockets until `stop` is ready; calls that were begun are finished, but for streams,
/// which are stopped.
///
/// # Errors
/// When the listener fails for good.
pub async fn serve(
    listener: UnixListener,
    streams: UnixListener,
    control: Control,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let gate = Gate::new(listener, control.admission.clone());
    serve_at(gate, streams, control, stop).await
}

async fn serve_at(
    gate: Gate,
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
    let calls = axum::serve(gate, service).with_graceful_shutdown(stop);
    tokio::select! {
        served = calls => served,
        failed = handovers.listen(streams) => failed,
    }
}

macro_rules! routes {
    ($($path:literal $method:ident: $request:ty => $reply:ty, $summary:literal;)*) => {
        /// A route for each operation below `/v1/`, and the description. They find the sender of a
        /// request as [`ConnectInfo`] of a [`Peer`] among its extensions.
        pub fn router(control: Control) -> Router {
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
                answer(control, peer, $path, envelope, |administration, call, request| {
                    administration.$method(call, request)
                })
                .await
            }
        )*
    };
}

tarn_administration::for_each_operation!(routes);

/// Says that the caller is gone.
struct Leaving(Presence);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Checks the peer's credentials, runs the operation on a thread that may wait, and answers.
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
    let _under_way = peer.calls.begin();
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
    // This is not polled to its end when the caller hangs up, but dropped; the operation goes on in
    // its thread, and may look.
    let _leaving = Leaving(presence);
    let request = envelope.request;
    let room = peer.room;
    let run = move || {
        // As long as it runs it takes a thread, whether or not its caller is still there.
        let _room = room;
        operation(&*control.administration, &call, request)
    };
    let outcome = tokio::task::spawn_blocking(run).await;
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
    use std::io::{Read, Write};
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;
    use tarn_administration::messages::Changed;

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

    tarn_administration::for_each_operation!(waits);

    /// Descriptors enough.
    const DESCRIPTORS: usize = 1 << 16;

    /// A server in a folder of its own.
    struct Served {
        folder: tempfile::TempDir,
        told: std::sync::mpsc::Receiver<Presence>,
        admission: Arc<Admission>,
        _runtime: tokio::runtime::Runtime,
    }

    impl Served {
        fn new(bounds: Option<Bounds>, request_max: Duration) -> Served {
            let folder = tempfile::tempdir().unwrap();
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap();
            let (tell, told) = channel();
            let mut control = Control::new(Arc::new(Waiter(tell)), 0, DESCRIPTORS);
            if let Some(bounds) = bounds {
                control.admission = Admission::new(bounds);
            }
            let admission = control.admission.clone();
            let (gate, streams) = {
                let _context = runtime.enter();
                let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
                let streams = UnixListener::bind(folder.path().join("streams")).unwrap();
                let gate = Gate::new(listener, control.admission.clone());
                (gate.with_request_max(request_max), streams)
            };
            runtime.spawn(serve_at(gate, streams, control, std::future::pending()));
            Served {
                folder,
                told,
                admission,
                _runtime: runtime,
            }
        }

        fn connect(&self) -> std::os::unix::net::UnixStream {
            std::os::unix::net::UnixStream::connect(self.folder.path().join("socket")).unwrap()
        }
    }

    fn request(path: &str, body: &str) -> Vec<u8> {
        format!(
            "POST /v1/{path} HTTP/1.1\r\nhost: tarn\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }

    const LONG_CALL: (&str, &str) = (
        "dataset/plan-send",
        r#"{"command":"","request":{"name":"tank/a@b"}}"#,
    );

    #[test]
    fn an_operation_can_see_that_its_caller_hung_up() {
        let served = Served::new(None, Duration::from_secs(10));
        let mut caller = served.connect();
        caller
            .write_all(&request(LONG_CALL.0, LONG_CALL.1))
            .unwrap();
        assert!(!served.told.recv().unwrap().has_ended());
        drop(caller);
        assert!(served.told.recv().unwrap().has_ended());
    }

    #[test]
    fn a_request_that_does_not_come_to_its_end_is_not_waited_for() {
        let served = Served::new(None, Duration::from_millis(50));
        let mut silent = served.connect();
        let mut half = served.connect();
        half.write_all(b"POST /v1/").unwrap();
        let mut without_body = served.connect();
        let whole = request(LONG_CALL.0, LONG_CALL.1);
        without_body.write_all(&whole[..whole.len() - 1]).unwrap();
        for connection in [&mut silent, &mut half, &mut without_body] {
            // Closed, with or without a word.
            let _ = connection.read_to_end(&mut Vec::new());
        }
        while served.admission.count() > 0 {
            std::thread::yield_now();
        }
        assert!(served.told.try_recv().is_err(), "nothing was called");
    }

    #[test]
    fn a_call_takes_as_long_as_it_takes() {
        let served = Served::new(None, Duration::from_millis(1));
        // Its request must come in time, which on a busy machine it may not.
        let mut caller = loop {
            let mut caller = served.connect();
            let _ = caller.write_all(&request(LONG_CALL.0, LONG_CALL.1));
            if served.told.recv_timeout(Duration::from_secs(1)).is_ok() {
                break caller;
            }
        };
        caller
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let waited = caller.read(&mut [0]).unwrap_err();
        assert_eq!(waited.kind(), std::io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_connection_without_room_is_refused_and_a_call_keeps_its_own() {
        let bounds = Bounds {
            of_owners: 1,
            ..Bounds::new(rustix::process::geteuid().as_raw(), DESCRIPTORS)
        };
        let served = Served::new(Some(bounds), Duration::from_secs(10));
        let mut first = served.connect();
        first.write_all(&request(LONG_CALL.0, LONG_CALL.1)).unwrap();
        assert!(!served.told.recv().unwrap().has_ended());
        let client = crate::client::Client::new(&served.folder.path().join("socket"), "");
        let refused = client.pool_describe(pool::Describe::default()).unwrap_err();
        let expected = "tarnd has too many connections of user";
        assert!(refused.to_string().starts_with(expected), "{refused}");
        drop(first);
        assert!(served.told.recv().unwrap().has_ended());
    }
}
