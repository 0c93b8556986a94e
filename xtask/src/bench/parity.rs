//! Parity beside OpenZFS's, operation by operation and size by size; and fletcher4 beside its
//! scalar form.
//!
//! # Mechanism
//! `raidz_test -B` measures every implementation that OpenZFS has for this processor. Our figures
//! come from the example `throughput` of `tarn-transform`, which does the same operations on rows
//! of the same shape and counts as it does. OpenZFS's figure is that of the fastest of its
//! implementations for that operation and size. Other work on the machine only makes a figure
//! smaller, so ours, which take seconds where OpenZFS's take minutes, are taken before and after
//! those, and some more times while one of them is below the bar; the best one counts.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::workspace::{Outcome, cargo, duration, openzfs, output};

/// fletcher4 must be this much faster than its scalar form.
const FLETCHER_BAR: f64 = 3.0;

/// The size of block that most are.
const RECORD_BYTES: u64 = 128 << 10;

/// How often ours are measured, and how often at most.
const TIMES_MIN: usize = 2;
const TIMES_MAX: usize = 6;

/// An operation on a block of a size.
type Key = (String, u64);

/// A figure and the implementation it was reached with.
type Best = BTreeMap<Key, (f64, String)>;

/// Keeps the better figure.
fn keep(best: &mut Best, key: Key, figure: f64, implementation: &str) {
    let entry = best.entry(key).or_insert((0.0, String::new()));
    if figure > entry.0 {
        *entry = (figure, implementation.to_string());
    }
}

/// Compares every operation, and names those we are slower at.
pub fn compare_parity() -> Outcome<Vec<String>> {
    println!("\nparity: OpenZFS's raidz_test -B takes some minutes");
    let began = Instant::now();
    let mut ours = Best::new();
    collect_ours(&mut ours, &measure_ours()?);
    let text = output(openzfs()?.command("raidz_test")?.args(["-B", "-a", "12"]))?;
    let theirs = theirs(&text);
    let mut times = 1;
    while times < TIMES_MIN || times < TIMES_MAX && !slower(&ours, &theirs).is_empty() {
        collect_ours(&mut ours, &measure_ours()?);
        times += 1;
    }
    println!(
        "measured in {}, ours {times} times; MiB/s for each of 8 data columns",
        duration(began.elapsed())
    );
    Ok(tell_parity(&ours, &theirs))
}

fn measure_ours() -> Outcome<String> {
    output(&mut cargo(&[
        "run",
        "--quiet",
        "--release",
        "--package",
        "tarn-transform",
        "--example",
        "throughput",
    ]))
}

/// Lines of `parity  implementation  operation  columns  bytes  figure`, with tabs between.
fn collect_ours(best: &mut Best, text: &str) {
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        if let ["parity", implementation, operation, _, bytes, figure] = fields[..]
            && let (Ok(bytes), Ok(figure)) = (bytes.parse(), figure.parse())
        {
            keep(best, (operation.to_string(), bytes), figure, implementation);
        }
    }
}

/// Lines of `implementation, operation, columns, bytes, figure of a column, figure of all, count`.
fn theirs(text: &str) -> Best {
    let mut best = Best::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        if let [implementation, operation, _, bytes, figure, _, _] = fields[..]
            && let (Ok(bytes), Ok(figure)) = (bytes.parse(), figure.parse())
        {
            keep(
                &mut best,
                (operation.to_string(), bytes),
                figure,
                implementation,
            );
        }
    }
    best
}

/// At which size we are worst in an operation, and how we are there.
fn worst(operation: &str, ours: &Best, theirs: &Best) -> Option<(f64, u64)> {
    let of_operation = theirs.iter().filter(|((name, _), _)| name == operation);
    let ratios = of_operation.map(|(key, (figure, _))| {
        let ours = ours.get(key).map_or(0.0, |(figure, _)| *figure);
        (ours / figure, key.1)
    });
    ratios.min_by(|a, b| a.0.total_cmp(&b.0))
}

/// The operations of OpenZFS.
fn operations(theirs: &Best) -> Vec<&str> {
    let mut operations: Vec<&str> = theirs.keys().map(|(name, _)| name.as_str()).collect();
    operations.dedup();
    operations
}

/// The operations in which we are slower at some size.
fn slower<'a>(ours: &Best, theirs: &'a Best) -> Vec<&'a str> {
    let mut operations = operations(theirs);
    operations.retain(|name| worst(name, ours, theirs).is_some_and(|(ratio, _)| ratio < 1.0));
    operations
}

/// One line for each operation: at the usual size, and at the size where we are worst.
fn tell_parity(ours: &Best, theirs: &Best) -> Vec<String> {
    let mut failed = Vec::new();
    println!(
        "{:<10} {:>10} {:>10} {:<12} {:>7} {:>16}  verdict",
        "operation", "tarn 128K", "OpenZFS", "its fastest", "ratio", "worst ratio at"
    );
    for operation in operations(theirs) {
        let Some((worst, at)) = worst(operation, ours, theirs) else {
            continue;
        };
        let verdict = match worst >= 1.0 {
            true => "PASS",
            false => {
                failed.push(format!(
                    "{operation} at {at} bytes ({worst:.2} of 1 x OpenZFS)"
                ));
                "FAIL"
            }
        };
        let usual = (operation.to_string(), RECORD_BYTES);
        let none = (0.0, "-".to_string());
        let (mine, _) = ours.get(&usual).unwrap_or(&none);
        let (other, name) = theirs.get(&usual).unwrap_or(&none);
        println!(
            "{operation:<10} {mine:>10.0} {other:>10.0} {name:<12} {:>7.2} {worst:>7.2} {at:>8}  {verdict}",
            mine / other
        );
    }
    if theirs.is_empty() {
        failed.push("raidz_test printed no figures, so parity was not judged".to_string());
    }
    failed
}

/// Compares fletcher4 with its scalar form.
pub fn compare_checksums() -> Outcome<Vec<String>> {
    println!("\nchecksums, MiB/s for blocks of 128 KiB");
    let text = measure_ours()?;
    let figures = fletcher(&text);
    for (name, figure) in &figures {
        println!("fletcher4 {name:<12} {figure:>8.0}");
    }
    Ok(judge_fletcher(&figures))
}

/// The figures of each implementation of fletcher4, for the usual size.
fn fletcher(text: &str) -> Vec<(String, f64)> {
    let lines = text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[..] {
            ["checksum", name, "fletcher4", _, bytes, figure]
                if bytes.parse() == Ok(RECORD_BYTES) =>
            {
                Some((name.to_string(), figure.parse().ok()?))
            }
            _ => None,
        }
    });
    lines.collect()
}

fn judge_fletcher(figures: &[(String, f64)]) -> Vec<String> {
    let scalar = figures.iter().find(|(name, _)| name == "portable");
    let fastest = figures
        .iter()
        .map(|(_, figure)| *figure)
        .fold(0.0, f64::max);
    match scalar {
        None => vec!["fletcher4 was not measured".to_string()],
        Some((_, scalar)) => {
            let ratio = fastest / scalar;
            let passed = ratio >= FLETCHER_BAR;
            let verdict = if passed { "PASS" } else { "FAIL" };
            println!("fletcher4, fastest by scalar: {ratio:.2}, bar {FLETCHER_BAR}: {verdict}");
            match passed {
                true => Vec::new(),
                false => vec![format!("fletcher4 ({ratio:.2} of {FLETCHER_BAR} x scalar)")],
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEIRS: &str = "\
        impl, math, dcols, iosize, disk_bw, total_bw, iter\n\
        scalar,    gen_p, 8,     131072, 111.5, 222.0, 3\n\
        avx2,    gen_p, 8,     131072, 200.0, 222.0, 3\n\
        avx2,    gen_p, 8,       4096, 50.0, 222.0, 3\n";

    #[test]
    fn we_are_compared_with_the_fastest_at_every_size() {
        let theirs = theirs(THEIRS);
        let usual = &theirs[&("gen_p".to_string(), RECORD_BYTES)];
        assert_eq!(usual, &(200.0, "avx2".to_string()));
        let mut ours = Best::new();
        collect_ours(
            &mut ours,
            "parity\tx\tgen_p\t8\t131072\t400\nparity\tx\tgen_p\t8\t4096\t40\n",
        );
        assert_eq!(
            tell_parity(&ours, &theirs),
            ["gen_p at 4096 bytes (0.80 of 1 x OpenZFS)"]
        );
        collect_ours(&mut ours, "parity\tx\tgen_p\t8\t4096\t60\n");
        assert!(tell_parity(&ours, &theirs).is_empty());
    }

    #[test]
    fn fletcher_is_compared_with_its_scalar_form() {
        let text = "checksum\tportable\tfletcher4\t1\t131072\t10\nchecksum\tavx2\tfletcher4\t1\t131072\t29\n";
        let failed = judge_fletcher(&fletcher(text));
        assert_eq!(failed, ["fletcher4 (2.90 of 3 x scalar)"]);
    }
}
