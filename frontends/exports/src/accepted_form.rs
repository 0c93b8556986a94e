//! In which form a scraper gets metrics: the one of those that it accepts which says most.

/// A form of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScrapeForm {
    /// Prometheus' text, version 0.0.4.
    Text,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
    /// Protocol buffers, each with its length before it: the form that has native histograms.
    Protobuf,
}

impl ScrapeForm {
    /// The header `content-type`.
    pub fn content_type(self) -> &'static str {
        match self {
            ScrapeForm::Text => "text/plain; version=0.0.4; charset=utf-8",
            ScrapeForm::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            ScrapeForm::Protobuf => {
                "application/vnd.google.protobuf; \
                 proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }
}

/// The form for a header `accept`. Of several with the same weight it is the one that is named
/// first: Prometheus names protocol buffers first where it takes native histograms. Text, where
/// none is known.
pub fn accepted_form(accept: &str) -> ScrapeForm {
    let ranges = accept.split(',').filter_map(range);
    let best = ranges.fold(
        None,
        |best: Option<(ScrapeForm, u32)>, (form, weight)| match best {
            Some((_, known)) if known >= weight => best,
            _ => Some((form, weight)),
        },
    );
    best.map_or(ScrapeForm::Text, |(form, _)| form)
}

/// The form of a media range, and its weight in thousandths.
fn range(text: &str) -> Option<(ScrapeForm, u32)> {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next()?;
    let parameters: Vec<(&str, &str)> = parts
        .filter_map(|part| part.split_once('='))
        .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
        .collect();
    let parameter = |wanted: &str| {
        let found = parameters
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| *value)
    };
    let form = match name.to_ascii_lowercase().as_str() {
        "application/openmetrics-text" if parameter("version") != Some("0.0.1") => {
            ScrapeForm::OpenMetrics
        }
        "application/vnd.google.protobuf"
            if parameter("proto") == Some("io.prometheus.client.MetricFamily")
                && parameter("encoding") == Some("delimited") =>
        {
            ScrapeForm::Protobuf
        }
        "text/plain" | "text/*" | "*/*" => ScrapeForm::Text,
        _ => return None,
    };
    let weight = parameter("q").map_or(1000, thousandths);
    (weight > 0).then_some((form, weight))
}

/// `0.75` in thousandths; 0 for what is no weight.
fn thousandths(text: &str) -> u32 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = part.chars().chain("000".chars()).take(3).collect();
    match (whole.parse::<u32>(), digits.parse::<u32>()) {
        (Ok(whole), Ok(part)) => (whole.min(1) * 1000 + part).min(1000),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_gets_what_it_names_first() {
        // As Prometheus 2.42 asks, without and with native histograms.
        let plain = "application/openmetrics-text;version=1.0.0,\
                     application/openmetrics-text;version=0.0.1;q=0.75,\
                     text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(accepted_form(plain), ScrapeForm::OpenMetrics);
        let native = format!(
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
             encoding=delimited,{plain}"
        );
        assert_eq!(accepted_form(&native), ScrapeForm::Protobuf);
    }

    #[test]
    fn what_is_not_known_gets_text() {
        for accept in [
            "",
            "*/*",
            "text/html",
            ";;q=1,,=",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=x,text/plain;q=0.001",
            "application/openmetrics-text;version=0.0.1",
            "application/vnd.google.protobuf;proto=a.b;encoding=delimited",
            "text/plain;q=0.9,application/openmetrics-text;q=0.8",
        ] {
            assert_eq!(accepted_form(accept), ScrapeForm::Text, "{accept}");
        }
    }
}
