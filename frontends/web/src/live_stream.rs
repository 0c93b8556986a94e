//! Results of Analytics as they come: `GET /api/v1/analytics/stream`, as server-sent events.
//!
//! # Mechanism
//! A stream has an instrumentation of its own, made when it begins and removed when it ends: when
//! the browser hangs up, or the daemon stops. Each second the seconds that were closed since are
//! read and sent as one event.

use crate::site::{Site, Visitor};
use crate::tokens::Role;
use axum::body::{Body, Bytes};
use axum::http::{Response, StatusCode, header};
use axum::response::IntoResponse;
use http_body_util::channel::{Channel, Sender};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// So many streams there may be.
pub(crate) const STREAMS_MAX: usize = 64;

/// How often seconds that were closed are looked for.
const PERIOD: Duration = Duration::from_secs(1);

/// Events that wait for a browser which reads slowly. More are not made meanwhile.
const WAITING_MAX: usize = 4;

/// One stream, as long as its task runs.
struct Live {
    site: Arc<Site>,
    visitor: Visitor,
    role: Role,
    /// Of the instrumentation.
    id: Value,
    _place: OwnedSemaphorePermit,
}

/// Begins a stream: `statement`, and where given `filter` (a JSON predicate) and `keys`.
pub(crate) async fn begin(
    site: Arc<Site>,
    visitor: Visitor,
    role: Role,
    parameters: &BTreeMap<String, String>,
) -> Response<Body> {
    let Ok(place) = site.streams.clone().try_acquire_owned() else {
        let why = format!("there are {STREAMS_MAX} live statistics: close some");
        return site.refuse(StatusCode::SERVICE_UNAVAILABLE, &why);
    };
    let request = match request_of(parameters) {
        Ok(request) => request,
        Err(why) => return site.refuse(StatusCode::BAD_REQUEST, &why),
    };
    let made = site
        .ask(&visitor, role, "analytics/instrument", request)
        .await;
    let id = match made {
        Ok(reply) => reply["id"].clone(),
        Err(refusal) => return refusal,
    };
    let (sender, body) = Channel::<Bytes, Infallible>::new(WAITING_MAX);
    let live = Live {
        site,
        visitor,
        role,
        id,
        _place: place,
    };
    tokio::spawn(live.run(sender));
    let headers = [(header::CONTENT_TYPE, "text/event-stream")];
    (headers, Body::new(body)).into_response()
}

/// The request for an instrumentation.
fn request_of(parameters: &BTreeMap<String, String>) -> Result<Value, String> {
    let statement = parameters.get("statement");
    let statement = statement.ok_or("name a statistic: ?statement=nfs.ops:latency")?;
    let mut request = json!({ "statement": statement });
    if let Some(filter) = parameters.get("filter") {
        let filter = serde_json::from_str::<Value>(filter);
        request["filter"] = filter.map_err(|error| format!("the filter is no JSON: {error}"))?;
    }
    if let Some(keys) = parameters.get("keys") {
        let keys = keys.parse::<u32>();
        request["keys"] = json!(keys.map_err(|error| format!("keys: {error}"))?);
    }
    Ok(request)
}

impl Live {
    async fn run(self, mut sender: Sender<Bytes, Infallible>) {
        // The connection is not idle.
        let _under_way = self.visitor.calls.begin();
        let mut stop = self.site.stopping.clone();
        let mut ticks = tokio::time::interval(PERIOD);
        let mut from = None;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = stop.wait_for(|is_stopping| *is_stopping) => break,
            }
            let Some(event) = self.next(&mut from).await else {
                break;
            };
            if sender.send_data(Bytes::from(event)).await.is_err() {
                break;
            }
        }
        let request = json!({ "id": self.id });
        let _ = self
            .site
            .ask(&self.visitor, self.role, "analytics/remove", request)
            .await;
    }

    /// The event of what came since `from`, in Unix seconds; a comment where nothing did. None when
    /// the instrumentation has ended.
    async fn next(&self, from: &mut Option<f64>) -> Option<String> {
        let mut request = json!({ "id": self.id });
        if let Some(from) = from {
            request["from"] = json!(from);
        }
        let reply = self
            .site
            .ask(&self.visitor, self.role, "analytics/live", request)
            .await;
        let mut reply = reply.ok()?;
        let closed_until = end_of_closed(&reply);
        if closed_until == *from {
            return Some(": nothing new\n\n".to_owned());
        }
        *from = closed_until.or(*from);
        if self.role == Role::Viewer {
            crate::viewer::hide("analytics/live", &mut reply, &self.site.pseudonyms);
        }
        Some(format!("data: {reply}\n\n"))
    }
}

/// When the open second of an answer begins, or its columns end, in Unix seconds.
fn end_of_closed(reply: &Value) -> Option<f64> {
    let from_ms = reply["from_ms"].as_f64()?;
    let column_ms = reply["column_ms"].as_f64().unwrap_or(1000.0);
    let columns = reply["columns"].as_f64().unwrap_or(0.0);
    let states = reply["states"].as_array();
    let is_open = states
        .and_then(|states| states.last())
        .is_some_and(|last| *last == 1);
    let closed = if is_open { columns - 1.0 } else { columns };
    Some((from_ms + closed.max(0.0) * column_ms) / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_checked() {
        let of = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string()));
            request_of(&pairs.collect())
        };
        let whole = [
            ("statement", "nfs.ops"),
            ("filter", r#"{"eq":["op","read"]}"#),
            ("keys", "5"),
        ];
        let expected = json!({"statement": "nfs.ops", "filter": {"eq": ["op", "read"]}, "keys": 5});
        assert_eq!(of(&whole), Ok(expected));
        assert!(of(&[]).unwrap_err().contains("?statement="));
        assert!(
            of(&[("statement", "x"), ("filter", "{")])
                .unwrap_err()
                .contains("no JSON")
        );
        assert!(of(&[("statement", "x"), ("keys", "-1")]).is_err());
    }

    #[test]
    fn the_open_second_comes_again() {
        let reply = |states: Value| json!({"from_ms": 5000, "column_ms": 1000, "columns": 3, "states": states});
        assert_eq!(end_of_closed(&reply(json!([2, 2, 1]))), Some(7.0));
        assert_eq!(end_of_closed(&reply(json!([2, 2, 2]))), Some(8.0));
        assert_eq!(end_of_closed(&json!({})), None);
    }
}
