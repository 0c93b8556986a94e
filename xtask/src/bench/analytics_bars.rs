//! What Analytics costs by itself, and how fast it answers, beside the bars that are set for it.
//!
//! # Mechanism
//! The example `bars` of `tarn-analytics` measures in one process without a pool: the request path,
//! the collector, and questions over millions of operations; the example `archive_bars` of
//! `tarn-archive` makes an archive of some days. Here their lines become a table with verdicts.

use crate::workspace::{Outcome, cargo, output};

/// The name that `--only` takes.
pub const NAME: &str = "analytics";

/// Packages, their examples, and how much they measure: operations that questions go over, and days
/// that are archived; the second number is of a look.
const EXAMPLES: [(&str, &str, [&str; 2]); 2] = [
    ("tarn-analytics", "bars", ["12000000", "2000000"]),
    ("tarn-archive", "archive_bars", ["14", "1"]),
];

/// Measures, and names the bars that are not reached.
pub fn measure(is_quick: bool) -> Outcome<Vec<String>> {
    println!("\nanalytics: one process, no pool");
    let mut bars: Vec<Bar> = Vec::new();
    for (package, example, counts) in EXAMPLES {
        let count = counts[usize::from(is_quick)];
        let profile = ["run", "--quiet", "--release"];
        let what = ["--package", package, "--example", example, "--", count];
        let text = output(&mut cargo(&[&profile[..], &what[..]].concat()))?;
        let before = bars.len();
        bars.extend(text.lines().filter_map(Bar::parse));
        if bars.len() == before {
            return Ok(vec![format!("{package} printed no figures")]);
        }
    }
    let failed = bars.iter().filter(|bar| !bar.tell());
    Ok(failed
        .map(|bar| format!("{} {}", bar.name, bar.what))
        .collect())
}

/// A line of the example.
#[derive(Debug)]
struct Bar {
    name: String,
    what: String,
    measured: f64,
    unit: String,
    target: f64,
    /// Whether the target is the least, not the most.
    is_least: bool,
}

impl Bar {
    fn parse(line: &str) -> Option<Bar> {
        let [name, what, measured, unit, target] = line.split('\t').collect::<Vec<_>>()[..] else {
            return None;
        };
        let number = target.strip_prefix('-').unwrap_or(target);
        Some(Bar {
            name: name.to_string(),
            what: what.to_string(),
            measured: measured.parse().ok()?,
            unit: unit.to_string(),
            target: number.parse().ok()?,
            is_least: number.len() < target.len(),
        })
    }

    fn is_reached(&self) -> bool {
        match self.is_least {
            true => self.measured >= self.target,
            false => self.measured <= self.target,
        }
    }

    /// Prints it; says whether it is reached.
    fn tell(&self) -> bool {
        let (bound, verdict) = (
            if self.is_least { ">=" } else { "<=" },
            if self.is_reached() { "PASS" } else { "FAIL" },
        );
        println!(
            "{:<4} {:<48} {:>10.2} {:<10} {bound} {:<6} {verdict}",
            self.name, self.what, self.measured, self.unit, self.target
        );
        self.is_reached()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_the_most_or_the_least() {
        let bar = Bar::parse("B1\trequest path\t39.50\tns\t40").unwrap();
        assert!(bar.is_reached());
        let bar = Bar::parse("B11\twindow\t29.50\tminutes\t-30").unwrap();
        assert!(!bar.is_reached());
        assert!(Bar::parse("bar\twhat\tmeasured\tunit\ttarget").is_none());
    }
}
