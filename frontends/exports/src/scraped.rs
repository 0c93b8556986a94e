//! Metrics as a scraper gets them: the reply of the control interface in the form it accepts.

use crate::accepted_form::{ScrapeForm, accepted_form};
use crate::prometheus_protobuf::prometheus_protobuf;
use crate::prometheus_text::prometheus_text;
use tarn_administration::messages::statistics::MetricFamilies;

/// What a scraper gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scraped {
    /// The header `content-type`.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

/// The reply of `statistics/metrics` in the form that the header `accept` asks for.
///
/// # Errors
/// The reply is none of that operation.
pub fn scraped(reply: serde_json::Value, accept: &str) -> Result<Scraped, serde_json::Error> {
    let metrics: MetricFamilies = serde_json::from_value(reply)?;
    let form = accepted_form(accept);
    Ok(Scraped {
        content_type: form.content_type(),
        body: match form {
            ScrapeForm::Protobuf => prometheus_protobuf(&metrics),
            form => prometheus_text(&metrics, form).into_bytes(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_reply_becomes_the_form_that_is_asked_for() {
        let spread = json!({"count": 1, "sum": 70, "buckets": [[68, 72, 1]]});
        let family = |name: &str, kind: &str, value| {
            json!({"name": name, "help": "", "kind": kind, "unit": "nanoseconds", "samples": [
                {"labels": [["pool", "tank"]], "value": value}]})
        };
        let reply = json!({"families": [
            family("a_seconds", "histogram", spread),
            family("b_seconds", "gauge", json!(-5)),
        ]});
        let text = scraped(reply.clone(), "").unwrap();
        let body = String::from_utf8(text.body).unwrap();
        assert!(
            body.contains("a_seconds_bucket{pool=\"tank\",le=\"1.024e-6\"} 1\n"),
            "{body}"
        );
        assert!(body.ends_with("b_seconds{pool=\"tank\"} -5\n"), "{body}");
        let protobuf = "application/vnd.google.protobuf;\
                        proto=io.prometheus.client.MetricFamily;encoding=delimited";
        assert!(
            scraped(reply, protobuf)
                .unwrap()
                .content_type
                .contains("protobuf")
        );
        assert!(scraped(json!({"families": 7}), "").is_err());
    }
}
