//! Metrics as text: Prometheus' exposition format 0.0.4, and OpenMetrics 1.0.0.
//!
//! Text has classic histograms: a series for each octave.

use crate::accepted_form::ScrapeForm;
use crate::prometheus_buckets::{classic, shown};
use std::fmt::Write;
use tarn_administration::messages::statistics::{
    MetricFamilies, MetricFamily, MetricHistogram, MetricKind, MetricSample, MetricUnit,
    MetricValue,
};

/// All metrics as text, by the rules of one of the two forms of text.
pub fn prometheus_text(metrics: &MetricFamilies, form: ScrapeForm) -> String {
    let mut text = String::new();
    for family in &metrics.families {
        push_family(&mut text, family, form);
    }
    if form == ScrapeForm::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn push_family(text: &mut String, family: &MetricFamily, form: ScrapeForm) {
    let kind = match family.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    };
    // OpenMetrics names a family of counters without what its samples end in.
    let name = match (form, family.kind) {
        (ScrapeForm::OpenMetrics, MetricKind::Counter) => {
            family.name.strip_suffix("_total").unwrap_or(&family.name)
        }
        _ => &family.name,
    };
    let help = match form {
        ScrapeForm::OpenMetrics => escaped(&family.help),
        _ => family.help.replace('\\', "\\\\").replace('\n', "\\n"),
    };
    let _ = writeln!(text, "# HELP {name} {help}");
    let _ = writeln!(text, "# TYPE {name} {kind}");
    for sample in &family.samples {
        push_sample(text, family, sample);
    }
}

fn push_sample(text: &mut String, family: &MetricFamily, sample: &MetricSample) {
    match &sample.value {
        MetricValue::Spread(histogram) => push_histogram(text, family, sample, histogram),
        value => {
            let number = number_of(value, family.unit);
            push_line(text, &family.name, &sample.labels, None, &number);
        }
    }
}

fn push_histogram(
    text: &mut String,
    family: &MetricFamily,
    sample: &MetricSample,
    histogram: &MetricHistogram,
) {
    let (bucket, labels) = (format!("{}_bucket", family.name), &sample.labels);
    for (bound, count) in classic(histogram, family.unit) {
        push_line(
            text,
            &bucket,
            labels,
            Some(&format!("{bound:?}")),
            &count.to_string(),
        );
    }
    let count = histogram.count.to_string();
    push_line(text, &bucket, labels, Some("+Inf"), &count);
    let sum = number_of(&MetricValue::Whole(histogram.sum), family.unit);
    push_line(text, &format!("{}_sum", family.name), labels, None, &sum);
    push_line(
        text,
        &format!("{}_count", family.name),
        labels,
        None,
        &count,
    );
}

fn number_of(value: &MetricValue, unit: MetricUnit) -> String {
    match (value, unit) {
        (MetricValue::Whole(number), MetricUnit::Whole) => number.to_string(),
        (MetricValue::Whole(number), unit) => format!("{:?}", shown(*number, unit)),
        (MetricValue::Signed(number), _) => number.to_string(),
        (MetricValue::Spread(histogram), _) => histogram.count.to_string(),
    }
}

fn push_line(
    text: &mut String,
    name: &str,
    labels: &[(String, String)],
    bound: Option<&str>,
    number: &str,
) {
    text.push_str(name);
    let labels = labels
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let all = labels.chain(bound.map(|bound| ("le", bound)));
    for (index, (name, value)) in all.clone().enumerate() {
        let before = if index == 0 { '{' } else { ',' };
        let _ = write!(text, "{before}{name}=\"{}\"", escaped(value));
    }
    if all.count() > 0 {
        text.push('}');
    }
    let _ = writeln!(text, " {number}");
}

/// A value of a label.
fn escaped(value: &str) -> String {
    (value.replace('\\', "\\\\"))
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn families() -> MetricFamilies {
        let sample = |labels: &[(&str, &str)], value| MetricSample {
            labels: labels
                .iter()
                .map(|(a, b)| (a.to_string(), b.to_string()))
                .collect(),
            value,
        };
        let family = |name: &str, kind, unit, samples| MetricFamily {
            name: name.to_owned(),
            help: "What\nit \\ is.".to_owned(),
            kind,
            unit,
            samples,
        };
        let spread = MetricValue::Spread(MetricHistogram {
            count: 3,
            sum: 3_000_000_000,
            buckets: vec![[992, 1024, 2], [2048, 2176, 1]],
        });
        MetricFamilies {
            families: vec![
                family(
                    "a_seconds",
                    MetricKind::Histogram,
                    MetricUnit::Nanoseconds,
                    vec![sample(&[("pool", "ta\"nk\\\n")], spread)],
                ),
                family(
                    "b_total",
                    MetricKind::Counter,
                    MetricUnit::Whole,
                    vec![sample(&[], MetricValue::Whole(u64::MAX))],
                ),
                family(
                    "c",
                    MetricKind::Gauge,
                    MetricUnit::Whole,
                    vec![sample(&[], MetricValue::Signed(-1))],
                ),
            ],
        }
    }

    #[test]
    fn text_has_help_type_and_samples() {
        let text = prometheus_text(&families(), ScrapeForm::Text);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "# HELP a_seconds What\\nit \\\\ is.");
        assert_eq!(lines[1], "# TYPE a_seconds histogram");
        let first = r#"a_seconds_bucket{pool="ta\"nk\\\n",le="1.024e-6"} 2"#;
        assert_eq!(lines[2], first);
        assert!(lines.contains(&r#"a_seconds_bucket{pool="ta\"nk\\\n",le="+Inf"} 3"#));
        assert!(lines.contains(&r#"a_seconds_sum{pool="ta\"nk\\\n"} 3.0"#));
        assert!(lines.contains(&r#"a_seconds_count{pool="ta\"nk\\\n"} 3"#));
        assert!(lines.contains(&"# TYPE b_total counter"));
        assert!(lines.contains(&"b_total 18446744073709551615"));
        assert_eq!(lines.last(), Some(&"c -1"));
    }

    #[test]
    fn openmetrics_names_counters_without_total_and_ends() {
        let text = prometheus_text(&families(), ScrapeForm::OpenMetrics);
        assert!(text.contains("# TYPE b counter\nb_total 18446744073709551615\n"));
        assert!(text.ends_with("c -1\n# EOF\n"));
    }
}
