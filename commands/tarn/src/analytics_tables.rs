//! The text forms of answers about operations: tables and CSV.

use crate::slow::printable;
use std::collections::BTreeMap;
use tarn_administration::messages::analytics::{Answer, RecorderState, Series};
use tarn_terminal::number::{nice_bytes, nice_count, nice_time};
use tarn_terminal::table::{Align, Table};
use tarn_terminal::timestamp;

/// Percentiles that a table shows, in thousandths.
const PERCENTILES: [(&str, u64); 3] = [("P50", 500), ("P99", 990), ("MAX", 1000)];

/// What a total and the rest of the keys are called.
const TOTAL: &str = "total";
const OTHER: &str = "other";

/// A number of a measure or a field, for people or exact.
fn number(value: u64, of: &str, is_exact: bool) -> String {
    match of {
        _ if is_exact => value.to_string(),
        "bytes" | "size" | "offset" => nice_bytes(value),
        "operations" | "value" => nice_count(value),
        _ => nice_time(value),
    }
}

/// A line for each key: its sum, its share, how many a second, and percentiles.
pub fn keys_table(answer: &Answer, is_scripted: bool, is_exact: bool) -> String {
    let mut columns: Vec<(String, Align)> = match answer.by.as_slice() {
        [] => vec![("KEY".into(), Align::Left)],
        by => by
            .iter()
            .map(|field| (field.to_uppercase(), Align::Left))
            .collect(),
    };
    let measure = answer.measure.to_uppercase();
    columns.extend([measure, "SHARE".into(), "PER-SECOND".into()].map(|name| (name, Align::Right)));
    if answer.numeric.is_some() {
        let percentiles = PERCENTILES.iter();
        columns.extend(percentiles.map(|(name, _)| ((*name).to_owned(), Align::Right)));
    }
    let mut table = Table::new(columns);
    let whole = sum(&answer.total);
    for group in &answer.groups {
        let key = group.key.iter().map(|value| printable(value)).collect();
        table.push(row(answer, key, &group.series, whole, is_exact));
    }
    let named = |name: &str| {
        let others = answer.by.len().saturating_sub(1);
        let mut key = vec![name.to_owned()];
        key.extend(std::iter::repeat_n("-".to_owned(), others));
        key
    };
    if !answer.by.is_empty() && sum(&answer.other) > 0 {
        table.push(row(answer, named(OTHER), &answer.other, whole, is_exact));
    }
    table.push(row(answer, named(TOTAL), &answer.total, whole, is_exact));
    let body = table.render(is_scripted, 2);
    match is_scripted {
        true => body,
        false => format!("{}\n{body}{}", answer.title, gaps(answer)),
    }
}

/// What is not known of the time.
fn gaps(answer: &Answer) -> String {
    let count = |wanted: u8| {
        answer
            .states
            .iter()
            .filter(|state| **state == wanted)
            .count()
    };
    let mut text = String::new();
    let missing = count(0);
    if missing > 0 {
        text += &format!(
            "{missing} of {} columns of time were not collected\n",
            answer.columns
        );
    }
    if answer.dropped > 0 {
        text += &format!("{} operations of any kind were dropped\n", answer.dropped);
    }
    if answer.unranked > 0 {
        text += &format!(
            "{} operations had too many keys to be ranked\n",
            answer.unranked
        );
    }
    text
}

fn row(
    answer: &Answer,
    key: Vec<String>,
    series: &Series,
    whole: u64,
    is_exact: bool,
) -> Vec<String> {
    let total = sum(series);
    // Shares and rates are for people: what is lost beyond 53 bits does not show.
    let share = 100.0 * total as f64 / (whole.max(1)) as f64;
    let seconds = seconds_known(answer).max(0.001);
    let rate = total as f64 / seconds;
    let mut cells = key;
    cells.push(number(total, &answer.measure, is_exact));
    cells.push(format!("{share:.1}%"));
    cells.push(match answer.measure.as_str() {
        _ if is_exact => format!("{rate:.3}"),
        "operations" => format!("{rate:.1}"),
        measure => number(rate as u64, measure, false),
    });
    if let Some(field) = &answer.numeric {
        let counts = counts_of(series);
        cells.extend(PERCENTILES.iter().map(|(_, permille)| {
            let value = percentile(answer, &counts, *permille);
            value.map_or("-".to_owned(), |value| number(value, field, is_exact))
        }));
    }
    cells
}

/// Seconds of the columns that were collected, at least in part.
fn seconds_known(answer: &Answer) -> f64 {
    let known = answer.states.iter().filter(|state| **state > 0).count();
    known as f64 * answer.column_ms as f64 / 1000.0
}

fn sum(series: &Series) -> u64 {
    series
        .sums
        .iter()
        .fold(0, |sum, one| sum.saturating_add(*one))
}

/// Operations by bucket, over all columns.
pub fn counts_of(series: &Series) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for cell in series.cells.chunks_exact(3) {
        *counts.entry(cell[1]).or_default() += cell[2];
    }
    counts
}

/// The largest value of the bucket that so many thousandths of the operations do not exceed.
pub fn percentile(answer: &Answer, counts: &BTreeMap<u64, u64>, permille: u64) -> Option<u64> {
    let [_, end] = answer.buckets.get(bucket_at(counts, permille)?)?;
    Some(end.saturating_sub(1))
}

/// The bucket below whose end so many thousandths are.
fn bucket_at(counts: &BTreeMap<u64, u64>, permille: u64) -> Option<usize> {
    let whole: u64 = counts.values().sum();
    let wanted = whole.saturating_mul(permille).div_ceil(1000).max(1);
    let mut seen = 0;
    let reaches = |count: u64, seen: &mut u64| {
        *seen += count;
        *seen >= wanted
    };
    let found = counts.iter().find(|(_, count)| reaches(**count, &mut seen));
    found.and_then(|(bucket, _)| usize::try_from(*bucket).ok())
}

/// CSV: a line for each column of time and key; for a heat map, for each of their buckets. The sum
/// of a column that was not collected is empty.
pub fn columns_csv(answer: &Answer) -> String {
    let mut head = vec!["time_ms".to_owned()];
    match answer.by.as_slice() {
        [] => head.push("key".to_owned()),
        by => head.extend(by.iter().cloned()),
    }
    match &answer.numeric {
        Some(field) => head.extend([
            format!("{field}_from"),
            format!("{field}_below"),
            "operations".into(),
        ]),
        None => head.push(answer.measure.clone()),
    }
    let mut text = head
        .iter()
        .map(|name| quoted(name))
        .collect::<Vec<_>>()
        .join(",")
        + "\n";
    let of_name = |name: &str| vec![name.to_owned(); answer.by.len().max(1)];
    if answer.by.is_empty() {
        push_csv(&mut text, answer, &of_name(TOTAL), &answer.total);
        return text;
    }
    for group in &answer.groups {
        push_csv(&mut text, answer, &group.key, &group.series);
    }
    push_csv(&mut text, answer, &of_name(OTHER), &answer.other);
    text
}

fn push_csv(text: &mut String, answer: &Answer, key: &[String], series: &Series) {
    let key: Vec<String> = key.iter().map(|value| quoted(value)).collect();
    let key = key.join(",");
    let time_ms = |column: u64| answer.from_ms + column * answer.column_ms;
    if answer.numeric.is_some() {
        for cell in series.cells.chunks_exact(3) {
            let bucket = usize::try_from(cell[1]).ok();
            if let Some([low, end]) = bucket.and_then(|bucket| answer.buckets.get(bucket)) {
                let line = format!("{},{key},{low},{end},{}\n", time_ms(cell[0]), cell[2]);
                text.push_str(&line);
            }
        }
        return;
    }
    for (column, (sum, state)) in (0..).zip(series.sums.iter().zip(&answer.states)) {
        let sum = match state {
            0 => String::new(),
            _ => sum.to_string(),
        };
        text.push_str(&format!("{},{key},{sum}\n", time_ms(column)));
    }
}

/// A cell of CSV (RFC 4180).
fn quoted(value: &str) -> String {
    match value.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", value.replace('"', "\"\"")),
        false => value.to_owned(),
    }
}

/// What is kept, for people.
pub fn state_text(state: &RecorderState, is_exact: bool) -> String {
    if !state.is_on {
        return "no operations are kept: tarnd was started with --analytics off\n".to_owned();
    }
    let bytes = |bytes| number(bytes, "bytes", is_exact);
    let time = |unix_ms: Option<u64>| match unix_ms {
        None => "-".to_owned(),
        Some(unix_ms) if is_exact => unix_ms.to_string(),
        Some(unix_ms) => {
            let seconds = i64::try_from(unix_ms / 1000).unwrap_or(0);
            timestamp::local(seconds, "%Y-%m-%d %H:%M:%S")
        }
    };
    let mut table = Table::new(vec![("".into(), Align::Left), ("".into(), Align::Left)]);
    let mut push = |name: &str, value: String| table.push(vec![name.to_owned(), value]);
    push("held since", time(state.held_from_ms));
    push("held until", time(state.held_until_ms));
    push("operations held", state.records.to_string());
    push(
        "memory",
        format!("{} of {}", bytes(state.bytes), bytes(state.budget_bytes)),
    );
    push("operations collected", state.drained.to_string());
    push("operations dropped", state.dropped.to_string());
    push(
        "collector",
        format!(
            "{} in {} passes",
            number(state.pass_ns, "time", is_exact),
            state.passes
        ),
    );
    push("live instrumentations", state.live.to_string());
    match &state.archive {
        None => push("archive", "off".to_owned()),
        Some(archive) => {
            let size = format!("{} of {}", bytes(archive.bytes), bytes(archive.cap_bytes));
            push("archive", size);
            for (tier, oldest_ms) in ["seconds", "minutes", "hours"]
                .iter()
                .zip(&archive.oldest_ms)
            {
                push(&format!("{tier} since"), time(*oldest_ms));
            }
            push("series", archive.series.to_string());
            push("not archived", archive.refused.to_string());
            archive
                .skipped
                .iter()
                .for_each(|file| push("not used", file.clone()));
        }
    }
    let text = table.render(false, 2);
    // The headings are empty.
    text.split_once('\n')
        .map(|(_, rows)| rows.to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_administration::messages::analytics::Group;

    fn answer() -> Answer {
        let series = |sums: &[u64], cells: &[u64]| Series {
            sums: sums.to_vec(),
            cells: cells.to_vec(),
        };
        Answer {
            title: "NFS operations per second, by client, by latency".into(),
            measure: "operations".into(),
            from_ms: 5000,
            column_ms: 1000,
            columns: 3,
            states: vec![2, 0, 1],
            by: vec!["client".into()],
            numeric: Some("latency".into()),
            buckets: vec![[1000, 1008], [2_000_000, 2_031_616]],
            total: series(&[3, 0, 1], &[0, 0, 2, 0, 1, 1, 2, 1, 1]),
            groups: vec![Group {
                key: vec!["a,b".into()],
                ids: vec!["17".into()],
                sum: 3,
                series: series(&[2, 0, 1], &[0, 0, 1, 0, 1, 1, 2, 1, 1]),
            }],
            other: series(&[1, 0, 0], &[0, 0, 1]),
            keys_found: 2,
            ..Answer::default()
        }
    }

    #[test]
    fn a_table_has_sums_shares_and_percentiles_and_tells_gaps() {
        let expected = [
            "NFS operations per second, by client, by latency",
            "CLIENT  OPERATIONS  SHARE  PER-SECOND  P50  P99  MAX",
            "a,b              3  75.0%         1.5  2ms  2ms  2ms",
            "other            1  25.0%         0.5  1us  1us  1us",
            "total            4  100.0%         2.0  1us  2ms  2ms",
            "1 of 3 columns of time were not collected",
            "",
        ];
        let text = keys_table(&answer(), false, false);
        let words = |text: &str| -> Vec<Vec<String>> {
            let lines = text.lines();
            let words = lines.map(|line| line.split_whitespace().map(str::to_owned).collect());
            words.collect()
        };
        assert_eq!(words(&text), words(&expected.join("\n")));
        let scripted = keys_table(&answer(), true, true);
        assert!(
            scripted.starts_with("a,b\t3\t75.0%\t1.500\t2031615\t"),
            "{scripted}"
        );
    }

    #[test]
    fn csv_has_all_cells_and_says_nothing_of_what_was_not_collected() {
        let text = columns_csv(&answer());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "time_ms,client,latency_from,latency_below,operations"
        );
        assert_eq!(lines[1], "5000,\"a,b\",1000,1008,1");
        assert_eq!(lines.last(), Some(&"5000,other,1000,1008,1"));
        let counted = lines[1..]
            .iter()
            .map(|line| line.rsplit(',').next().unwrap());
        assert_eq!(
            counted
                .map(|count| count.parse::<u64>().unwrap())
                .sum::<u64>(),
            4
        );
        let scalar = Answer {
            numeric: None,
            by: Vec::new(),
            ..answer()
        };
        let expected = "time_ms,key,operations\n5000,total,3\n6000,total,\n7000,total,1\n";
        assert_eq!(columns_csv(&scalar), expected);
    }
}
