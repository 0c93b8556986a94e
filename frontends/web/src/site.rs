//! What answers browsers, and how it calls operations.

use crate::pseudonyms::Pseudonyms;
use crate::sessions::Sessions;
use crate::tokens::{Role, Tokens};
use crate::viewer;
use crate::worksheets::Worksheets;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use axum::{Json, Router};
use serde_json::{Value, json};
use std::any::Any;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tarn_api::patient::Calls;
use tarn_api::server::Peer;
use tarn_engine::refusals::{Refusal, RefusalKind};
use tokio::sync::{Semaphore, watch};
use tower_service::Service;

/// Bytes of an answer that says what is wrong.
const REFUSAL_MAX: usize = 1 << 20;

/// Bytes of a reply that is read to hide names in it. What Analytics answers is bounded far below.
const REPLY_MAX: usize = 256 << 20;

/// Where the page has its files, and how it is called.
#[derive(Debug, Clone)]
pub struct PageOptions {
    /// The file of tokens.
    pub tokens: PathBuf,
    /// The file of worksheets.
    pub worksheets: PathBuf,
    /// Names by which browsers reach it, beside its address and `localhost`.
    pub names: Vec<String>,
}

/// What answers browsers.
pub(crate) struct Site {
    /// The routes of `tarn-api`.
    pub(crate) operations: Router,
    pub(crate) owner_uid: u32,
    pub(crate) options: PageOptions,
    pub(crate) is_tls: bool,
    /// The name of the cookie.
    pub(crate) cookie: String,
    pub(crate) sessions: Sessions,
    pub(crate) worksheets: Worksheets,
    pub(crate) pseudonyms: Pseudonyms,
    /// Places for live streams.
    pub(crate) streams: Arc<Semaphore>,
    /// Becomes true when the daemon stops.
    pub(crate) stopping: watch::Receiver<bool>,
}

/// The connection of a request.
#[derive(Clone)]
pub(crate) struct Visitor {
    pub(crate) address: SocketAddr,
    /// The connection's place, for operations that run on when it has ended.
    pub(crate) room: Arc<dyn Any + Send + Sync>,
    pub(crate) calls: Arc<Calls>,
}

impl Site {
    /// An answer that says what is wrong.
    pub(crate) fn refuse(&self, status: StatusCode, why: &str) -> Response<Body> {
        let kind = match status {
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => RefusalKind::Denied,
            StatusCode::NOT_FOUND => RefusalKind::NotFound,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => RefusalKind::Busy,
            _ => RefusalKind::Invalid,
        };
        (status, Json(Refusal::new(kind, "", why))).into_response()
    }

    /// What the sender of a request may do: by the cookie of a session, or by a token.
    pub(crate) fn role_of(
        &self,
        visitor: &Visitor,
        headers: &HeaderMap,
    ) -> Result<Role, Box<Response<Body>>> {
        let now = Instant::now();
        let session = self.session_of(headers);
        if let Some(role) = session.and_then(|id| self.sessions.role_of(id, now)) {
            return Ok(role);
        }
        let authorization = headers.get(header::AUTHORIZATION);
        let authorization = authorization.and_then(|value| value.to_str().ok());
        match authorization.and_then(|value| value.strip_prefix("Bearer ")) {
            Some(token) => self.role_of_token(visitor, token),
            None => Err(Box::new(
                self.refuse(StatusCode::UNAUTHORIZED, "log in first"),
            )),
        }
    }

    /// The session's id in the cookies of a request.
    pub(crate) fn session_of<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let cookies = headers.get_all(header::COOKIE).iter();
        let cookies = cookies.filter_map(|value| value.to_str().ok());
        let mut cookies = cookies.flat_map(|value| value.split(';'));
        cookies.find_map(|cookie| {
            let (name, value) = cookie.trim().split_once('=')?;
            (name == self.cookie).then_some(value)
        })
    }

    pub(crate) fn role_of_token(
        &self,
        visitor: &Visitor,
        token: &str,
    ) -> Result<Role, Box<Response<Body>>> {
        let (now, address) = (Instant::now(), visitor.address.ip());
        if let Some(wait) = self.sessions.wait_of(address, now) {
            let why = "too many wrong tokens were shown: wait some seconds";
            let mut refusal = self.refuse(StatusCode::TOO_MANY_REQUESTS, why);
            let seconds = HeaderValue::from(wait.as_secs() + 1);
            refusal.headers_mut().insert(header::RETRY_AFTER, seconds);
            return Err(Box::new(refusal));
        }
        let tokens = Tokens::read(&self.options.tokens);
        let tokens = tokens.map_err(|error| {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            Box::new(self.refuse(status, &error.to_string()))
        })?;
        tokens.role_of(token.trim()).ok_or_else(|| {
            self.sessions.note_failure(address, now);
            let why = "wrong token: 'tarn web token' prints the right one";
            Box::new(self.refuse(StatusCode::UNAUTHORIZED, why))
        })
    }

    /// Calls an operation with the body of a request, as far as the role goes.
    pub(crate) async fn operate(
        &self,
        visitor: &Visitor,
        role: Role,
        path: &str,
        body: Bytes,
    ) -> Response<Body> {
        if role == Role::Administrator {
            return self.call(visitor, role, path, body).await;
        }
        if !viewer::may_call(path) {
            return self.refuse(StatusCode::FORBIDDEN, "a viewer may not do that");
        }
        let Ok(mut envelope) = serde_json::from_slice::<Value>(&body) else {
            return self.refuse(StatusCode::BAD_REQUEST, "the request is no JSON");
        };
        if !envelope.is_object() || !envelope["request"].is_object() {
            return self.refuse(StatusCode::BAD_REQUEST, "send {\"request\": {...}}");
        }
        if let Err(why) = viewer::restrict(path, &mut envelope["request"]) {
            return self.refuse(StatusCode::FORBIDDEN, why);
        }
        let body = Bytes::from(envelope.to_string());
        // Other users of the machine may not ask Analytics at all, as they get names.
        let caller = match path.starts_with("analytics/") {
            true => Role::Administrator,
            false => Role::Viewer,
        };
        let response = self.call(visitor, caller, path, body).await;
        match read_reply(response).await {
            Ok(mut reply) => {
                viewer::hide(path, &mut reply, &self.pseudonyms);
                Json(reply).into_response()
            }
            Err(refusal) => refusal,
        }
    }

    /// Calls an operation of Analytics for a stream. A viewer's stream has an instrumentation of
    /// its own, which viewers cannot make otherwise.
    pub(crate) async fn ask(
        &self,
        visitor: &Visitor,
        role: Role,
        path: &str,
        mut request: Value,
    ) -> Result<Value, Response<Body>> {
        if role == Role::Viewer {
            let restricted = viewer::restrict(path, &mut request);
            restricted.map_err(|why| self.refuse(StatusCode::FORBIDDEN, why))?;
        }
        let body = json!({ "command": "", "request": request }).to_string();
        // The check above is all that holds a viewer back here.
        let response = self
            .call(visitor, Role::Administrator, path, body.into())
            .await;
        read_reply(response).await
    }

    async fn call(&self, visitor: &Visitor, role: Role, path: &str, body: Bytes) -> Response<Body> {
        let request = Request::post(format!("/v1/{path}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body));
        let Ok(mut request) = request else {
            return self.refuse(StatusCode::NOT_FOUND, "there is no such operation");
        };
        let is_known = role == Role::Administrator;
        request.extensions_mut().insert(ConnectInfo(Peer {
            uid: if is_known { self.owner_uid } else { u32::MAX },
            gid: if is_known { 0 } else { u32::MAX },
            groups: Vec::new(),
            pid: 0,
            is_known,
            room: visitor.room.clone(),
            calls: visitor.calls.clone(),
        }));
        let response = match self.operations.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let is_json = is_json(response.headers());
        match response.status() {
            StatusCode::NOT_FOUND if !is_json => {
                let why = format!("there is no operation '{path}'");
                self.refuse(StatusCode::NOT_FOUND, &why)
            }
            status if !status.is_success() && !is_json => {
                let text = axum::body::to_bytes(response.into_body(), REFUSAL_MAX).await;
                let text = text.unwrap_or_default();
                self.refuse(status, &String::from_utf8_lossy(&text))
            }
            _ => response,
        }
    }
}

/// The value of an answer, or the answer where it says what is wrong.
pub(crate) async fn read_reply(response: Response<Body>) -> Result<Value, Response<Body>> {
    if !response.status().is_success() {
        return Err(response);
    }
    let failed = || {
        let refusal = Refusal::new(
            RefusalKind::Unsupported,
            "",
            "internal error: the answer is no JSON",
        );
        (StatusCode::INTERNAL_SERVER_ERROR, Json(refusal)).into_response()
    };
    let bytes = axum::body::to_bytes(response.into_body(), REPLY_MAX).await;
    let bytes = bytes.map_err(|_| failed())?;
    serde_json::from_slice(&bytes).map_err(|_| failed())
}

pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE);
    let value = value.and_then(|value| value.to_str().ok());
    value.is_some_and(|value| value.split(';').next() == Some("application/json"))
}
