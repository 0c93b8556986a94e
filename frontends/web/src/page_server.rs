//! Requests of browsers: where each of them goes.

use crate::live_stream;
use crate::origin;
use crate::page_files;
use crate::page_listener::PageListener;
use crate::pseudonyms::Pseudonyms;
use crate::scrape;
use crate::sessions::Sessions;
use crate::site::{PageOptions, Site, Visitor, is_json};
use crate::tokens::Role;
use crate::worksheets::{WorksheetError, Worksheets};
use axum::body::{Body, Bytes};
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use axum::response::IntoResponse;
use axum::serve::IncomingStream;
use axum::{Json, Router};
use serde_json::{Value, json};
use std::future::Future;
use std::sync::Arc;
use std::time::Instant;
use tarn_api::server::{Control, router};
use tokio::sync::{Semaphore, watch};

/// Bytes of a request.
const BODY_MAX: usize = 1 << 20;

impl Connected<IncomingStream<'_, PageListener>> for Visitor {
    fn connect_info(stream: IncomingStream<'_, PageListener>) -> Self {
        let connection = stream.io();
        Visitor {
            address: *stream.remote_addr(),
            room: connection.room(),
            calls: connection.calls(),
        }
    }
}

/// Serves the page until `stop` is ready; calls that were begun are finished, streams end.
///
/// # Errors
/// When the listener fails for good.
pub async fn serve(
    listener: PageListener,
    control: Control,
    options: PageOptions,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let (tell_stop, stopping) = watch::channel(false);
    let site = Arc::new(Site {
        owner_uid: control.owner_uid,
        operations: router(control),
        is_tls: listener.is_tls(),
        // Cookies of a host are the same for all its ports.
        cookie: format!("tarn_session_{}", listener.address().port()),
        sessions: Sessions::default(),
        worksheets: Worksheets::new(options.worksheets.clone()),
        options,
        pseudonyms: Pseudonyms::new(),
        streams: Arc::new(Semaphore::new(live_stream::STREAMS_MAX)),
        stopping,
    });
    let service = Router::new().fallback(answer).with_state(site);
    let service = service.into_make_service_with_connect_info::<Visitor>();
    let stop = async move {
        stop.await;
        let _ = tell_stop.send(true);
    };
    axum::serve(listener, service)
        .with_graceful_shutdown(stop)
        .await
}

async fn answer(
    State(site): State<Arc<Site>>,
    ConnectInfo(visitor): ConnectInfo<Visitor>,
    request: Request,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let mut response = match axum::body::to_bytes(body, BODY_MAX).await {
        Ok(body) => {
            let _under_way = visitor.calls.begin();
            route(&site, visitor, &parts, body).await
        }
        Err(_) => site.refuse(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the request is cut, or has more than 1 MiB",
        ),
    };
    page_files::protect(response.headers_mut());
    response
}

/// Where a request goes.
async fn route(site: &Arc<Site>, visitor: Visitor, parts: &Parts, body: Bytes) -> Response<Body> {
    let headers = &parts.headers;
    if let Err(foreign) = origin::check(headers, &site.options.names, site.is_tls) {
        return site.refuse(StatusCode::FORBIDDEN, &foreign.to_string());
    }
    let path = parts.uri.path();
    let is_post = parts.method == Method::POST;
    if parts.method == Method::GET
        && let Some(file) = page_files::answer(path, headers)
    {
        return file;
    }
    if path == scrape::PATH {
        return scrape::answer(site, &visitor, parts).await;
    }
    let Some(path) = path.strip_prefix("/api/v1/") else {
        return site.refuse(StatusCode::NOT_FOUND, "the page has no such file");
    };
    if is_post && !is_json(headers) {
        let why = "send JSON, with content-type: application/json";
        return site.refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, why);
    }
    if is_post && path == "session/login" {
        return log_in(site, &visitor, &body);
    }
    let role = match site.role_of(&visitor, headers) {
        Ok(role) => role,
        Err(refusal) => return *refusal,
    };
    match (is_post, path) {
        (false, "session") => Json(json!({ "role": role.name() })).into_response(),
        (true, "session/logout") => log_out(site, headers),
        (false, "openapi.json") => Json(description()).into_response(),
        (false, "analytics/stream") => match Query::try_from_uri(&parts.uri) {
            Ok(Query(parameters)) => {
                live_stream::begin(site.clone(), visitor, role, &parameters).await
            }
            Err(error) => site.refuse(StatusCode::BAD_REQUEST, &error.to_string()),
        },
        (true, "worksheets/list" | "worksheets/save" | "worksheets/remove") => {
            keep_worksheets(site, role, path, &body)
        }
        (true, path) => site.operate(&visitor, role, path, body).await,
        (false, _) => site.refuse(
            StatusCode::METHOD_NOT_ALLOWED,
            "operations are asked by POST",
        ),
    }
}

fn log_in(site: &Site, visitor: &Visitor, body: &[u8]) -> Response<Body> {
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    let Some(token) = request["token"].as_str() else {
        return site.refuse(StatusCode::BAD_REQUEST, "send {\"token\": \"...\"}");
    };
    let role = match site.role_of_token(visitor, token) {
        Ok(role) => role,
        Err(refusal) => return *refusal,
    };
    match site.sessions.begin(role, Instant::now()) {
        Ok(id) => {
            let reply = Json(json!({ "role": role.name() })).into_response();
            with_cookie(site, reply, &id, "")
        }
        Err(error) => {
            let why = tarn_engine::words_of(&error);
            site.refuse(StatusCode::SERVICE_UNAVAILABLE, &why)
        }
    }
}

fn log_out(site: &Site, headers: &HeaderMap) -> Response<Body> {
    if let Some(id) = site.session_of(headers) {
        site.sessions.end(id);
    }
    with_cookie(site, Json(json!({})).into_response(), "", "; Max-Age=0")
}

fn with_cookie(site: &Site, mut response: Response<Body>, id: &str, life: &str) -> Response<Body> {
    let secure = if site.is_tls { "; Secure" } else { "" };
    let cookie = format!(
        "{}={id}; Path=/; HttpOnly; SameSite=Strict{secure}{life}",
        site.cookie
    );
    let cookie = HeaderValue::from_str(&cookie).expect("a cookie has visible characters");
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    response
}

fn keep_worksheets(site: &Site, role: Role, path: &str, body: &[u8]) -> Response<Body> {
    if role != Role::Administrator {
        // Their filters have names.
        let why = "worksheets on the server are for administrators";
        return site.refuse(StatusCode::FORBIDDEN, why);
    }
    let mut request: Value = serde_json::from_slice(body).unwrap_or_default();
    let name = request["name"].as_str().unwrap_or_default().to_owned();
    let kept = match path {
        "worksheets/list" => site.worksheets.list(),
        "worksheets/save" => {
            let saved = site.worksheets.save(&name, request["worksheet"].take());
            saved.and_then(|()| site.worksheets.list())
        }
        _ => (site.worksheets.remove(&name)).and_then(|()| site.worksheets.list()),
    };
    match kept {
        Ok(all) => Json(json!({ "worksheets": all })).into_response(),
        Err(error) => {
            let status = match error {
                WorksheetError::Name | WorksheetError::Large => StatusCode::BAD_REQUEST,
                WorksheetError::Many => StatusCode::CONFLICT,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            site.refuse(status, &error.to_string())
        }
    }
}

/// The description of the operations, as they are reached here.
fn description() -> Value {
    let mut description = serde_json::to_value(tarn_api::description()).unwrap_or_default();
    description["servers"] = json!([{ "url": "/api" }]);
    description
}
