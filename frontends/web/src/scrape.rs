//! `GET /metrics`: what Prometheus scrapes.
//!
//! # Mechanism
//! A token is sent with each request, as for any program: `authorization` in the configuration of
//! Prometheus, best with the viewer's. The reply of the operation `statistics/metrics`, which names
//! no clients, users or files, is written by `tarn-exports` in the form that the scraper accepts.

use crate::site::{Site, Visitor, read_reply};
use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{Method, Response, StatusCode, header};
use axum::response::IntoResponse;

/// Where metrics are, as Prometheus expects it.
pub(crate) const PATH: &str = "/metrics";

/// The operation, and its request.
const OPERATION: &str = "statistics/metrics";
const REQUEST: &[u8] = br#"{"request":{}}"#;

/// Answers a scraper.
pub(crate) async fn answer(site: &Site, visitor: &Visitor, parts: &Parts) -> Response<Body> {
    if parts.method != Method::GET {
        let why = "metrics are asked for by GET";
        return site.refuse(StatusCode::METHOD_NOT_ALLOWED, why);
    }
    let role = match site.role_of(visitor, &parts.headers) {
        Ok(role) => role,
        Err(refusal) => return *refusal,
    };
    let request = Bytes::from_static(REQUEST);
    let reply = site.operate(visitor, role, OPERATION, request).await;
    let reply = match read_reply(reply).await {
        Ok(reply) => reply,
        Err(refusal) => return refusal,
    };
    let accept = parts.headers.get(header::ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    match tarn_exports::scraped(reply, accept.unwrap_or_default()) {
        Ok(scraped) => {
            let headers = [(header::CONTENT_TYPE, scraped.content_type)];
            (headers, scraped.body).into_response()
        }
        Err(error) => {
            let why = format!("internal error: {error}");
            site.refuse(StatusCode::INTERNAL_SERVER_ERROR, &why)
        }
    }
}
