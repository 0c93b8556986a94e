//! `zdb -b` and `-c`: sums over a pool's blocks, and the comparison with space maps.

use crate::census::{BlockType, Census, LEVELS, SIZES, Sums};
use crate::look::Look;
use crate::metaslab::{ClassSums, MetaslabClass, class_sums};
use crate::out::Out;
use crate::pointer::histogram;
use tarn_engine::inspect::InspectError;
use tarn_ondisk::object_type::ObjectType;

/// There are leaks.
const EXIT_LEAKS: u8 = 2;

/// Something cannot be read, or has two references.
const EXIT_ERRORS: u8 = 3;

/// Number of the DMU types.
const TYPE_COUNT: u8 = 54;

/// Counts all blocks and prints the sums. Returns the exit code.
pub fn show(out: &mut Out, look: &Look<'_>) -> Result<u8, InspectError> {
    let options = look.options;
    let (checksums, leaks) = (options.level('c'), !options.has('L'));
    writeln!(
        out,
        "\nTraversing all blocks {}{}{}{}{}...\n",
        if checksums > 0 || leaks {
            "to verify "
        } else {
            ""
        },
        if checksums == 1 { "metadata " } else { "" },
        if checksums > 0 { "checksums " } else { "" },
        if checksums > 0 && leaks {
            "and verify "
        } else {
            ""
        },
        if leaks { "nothing leaked " } else { "" },
    );
    out.flush();
    let sums = class_sums(look)?;
    let class = |class| sums.get(&class).copied().unwrap_or_default();
    let mut census = Census::begin(look, out)?;
    census.run()?;
    errors(&mut census);
    let has_leaks = census.report_leaks();
    let total = census.total();
    let allocated: i64 = sums.values().map(|sum| sum.allocated).sum::<i64>() + census.unflushed();
    let found = total
        .allocated
        .wrapping_sub(census.deduplicated.0)
        .wrapping_sub(census.cloned.0)
        .wrapping_add(census.checkpoint_bytes)
        .cast_signed();
    if leaks {
        match found == allocated {
            true => writeln!(
                census.out(),
                "\n\tNo leaks (block sum matches space maps exactly)"
            ),
            false => writeln!(
                census.out(),
                "block traversal size {found} != alloc {allocated} (leaked {})",
                allocated.wrapping_sub(found)
            ),
        }
    }
    if total.count == 0 {
        return Ok(EXIT_LEAKS);
    }
    totals(&mut census, &total);
    classes(&mut census, class);
    embedded(look, &mut census, &total);
    if options.level('b') >= 2 {
        table(look, &mut census, &total);
        sizes(look, &mut census);
    }
    writeln!(census.out());
    Ok(match (has_leaks, census.has_errors()) {
        (true, _) => EXIT_LEAKS,
        (false, true) => EXIT_ERRORS,
        (false, false) => 0,
    })
}

fn errors(census: &mut Census<'_, '_>) {
    if !census.has_errors() {
        return;
    }
    let errors = census.errors.clone();
    let out = census.out();
    writeln!(out, "\nError counts:\n\n\terrno  count");
    for (number, count) in errors {
        writeln!(out, "\t{number:5}  {count}");
    }
}

/// A quotient as C prints it: zero by zero is `-nan`.
fn quotient(part: f64, whole: f64, decimals: usize) -> String {
    let value = part / whole;
    match value.is_nan() {
        true => "-nan".to_string(),
        false if value.is_infinite() => "inf".to_string(),
        false => format!("{value:.decimals$}"),
    }
}

/// Sizes as floats: exact to fifty bits, and shown with two decimals.
fn ratio(part: u64, whole: u64) -> String {
    quotient(part as f64, whole as f64, 2)
}

fn totals(census: &mut Census<'_, '_>, total: &Sums) {
    let (deduplicated, cloned) = (census.deduplicated, census.cloned);
    let out = census.out();
    let average = |bytes: u64| bytes / total.count;
    writeln!(out);
    writeln!(out, "\t{:<16} {:14}", "bp count:", total.count);
    writeln!(out, "\t{:<16} {:14}", "ganged count:", total.gangs);
    writeln!(
        out,
        "\t{:<16} {:14}      avg: {:6}",
        "bp logical:",
        total.logical,
        average(total.logical)
    );
    for (name, bytes) in [
        ("bp physical:", total.physical),
        ("bp allocated:", total.allocated),
    ] {
        writeln!(
            out,
            "\t{name:<16} {bytes:14}      avg: {:6}     compression: {:>6}",
            average(bytes),
            ratio(total.logical, bytes)
        );
    }
    let rate = deduplicated.0 as f64 / total.allocated as f64 + 1.0;
    writeln!(
        out,
        "\t{:<16} {:14}    ref>1: {:6}   deduplication: {rate:6.2}",
        "bp deduped:", deduplicated.0, deduplicated.1
    );
    writeln!(
        out,
        "\t{:<16} {:14}    count: {:6}",
        "bp cloned:", cloned.0, cloned.1
    );
}

fn classes(census: &mut Census<'_, '_>, class: impl Fn(MetaslabClass) -> ClassSums) {
    let out = census.out();
    let mut line = |name: &str, sums: ClassSums| {
        let used = quotient(100.0 * sums.allocated as f64, sums.size as f64, 2);
        writeln!(
            out,
            "\t{name:<16} {:14}     used: {used:>5}%",
            sums.allocated
        );
    };
    let normal = class(MetaslabClass::Normal);
    line("Normal class:", normal);
    for (name, kind) in [
        ("Special class", MetaslabClass::Special),
        ("Dedup class", MetaslabClass::Dedup),
    ] {
        if class(kind).vdev_count > 0 {
            line(name, class(kind));
        }
    }
    if normal.vdev_count > 0 {
        line("Embedded log class", class(MetaslabClass::EmbeddedLog));
    }
}

fn embedded(look: &Look<'_>, census: &mut Census<'_, '_>, total: &Sums) {
    let embedded = census.embedded;
    let out = census.out();
    for (kind, counts) in embedded.iter().enumerate() {
        let count: u64 = counts.iter().sum();
        if count == 0 {
            continue;
        }
        writeln!(
            out,
            "\n\tadditional, non-pointer bps of type {kind}: {count:10}"
        );
        if look.options.level('b') >= 3 {
            writeln!(out, "\t number of (compressed) bytes:  number of bps");
            write!(out, "{}", histogram(counts, 0));
        }
    }
    if total.same_vdev != 0 {
        writeln!(out, "\tDittoed blocks on same vdev: {}", total.same_vdev);
    }
    if total.same_metaslab != 0 {
        writeln!(
            out,
            "\tDittoed blocks in same metaslab: {}",
            total.same_metaslab
        );
    }
}

/// The types in the order of the table.
fn types() -> Vec<(BlockType, String)> {
    let known = (0..TYPE_COUNT).map(ObjectType::from_code);
    let mut types: Vec<(BlockType, String)> = known
        .map(|known| (BlockType::Known(known), known.to_string()))
        .collect();
    for (kind, name) in [
        (BlockType::Deferred, "deferred free"),
        (BlockType::Ditto, "dedup ditto"),
        (BlockType::Other, "other"),
        (BlockType::Total, "Total"),
    ] {
        types.push((kind, name.to_string()));
    }
    types
}

/// Blocks by type, and from `-bbb` on by level.
fn table(look: &Look<'_>, census: &mut Census<'_, '_>, total: &Sums) {
    let sums = census.sums.clone();
    let out = census.out();
    writeln!(
        out,
        "\nBlocks\tLSIZE\tPSIZE\tASIZE\t  avg\t comp\t%Total\tType"
    );
    let mut metadata = Sums::default();
    for (kind, name) in types() {
        let all = sums.get(&(LEVELS, kind)).filter(|all| all.allocated > 0);
        let Some(all) = all else {
            writeln!(
                out,
                "{:>6}\t{:>5}\t{:>5}\t{:>5}\t{:>5}\t{:>5}\t{:>6}\t{name}",
                "-", "-", "-", "-", "-", "-", "-"
            );
            continue;
        };
        for level in (0..LEVELS).rev() {
            let Some(row) = sums.get(&(level, kind)).filter(|row| row.allocated > 0) else {
                continue;
            };
            if let BlockType::Known(known) = kind
                && (level > 0 || known.is_metadata())
            {
                metadata.add(row);
            }
            let is_shown = look.options.level('b') >= 3;
            if is_shown && (level > 0 || row.allocated != all.allocated) {
                line(out, look, row, total, &format!("    L{level} {name}"));
            }
        }
        line(out, look, all, total, &name);
    }
    if metadata.count > 0 {
        let bare = summary(look, &metadata, total);
        writeln!(out, "{bare}\tMetadata Total");
    }
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        self.allocated += other.allocated;
        self.logical += other.logical;
        self.physical += other.physical;
        self.count += other.count;
        self.gangs += other.gangs;
    }
}

fn summary(look: &Look<'_>, sums: &Sums, total: &Sums) -> String {
    let nice = |number: u64| look.nice(number);
    format!(
        "{:>6}\t{:>5}\t{:>5}\t{:>5}\t{:>5}\t{:>5}\t{:>6}",
        nice(sums.count),
        nice(sums.logical),
        nice(sums.physical),
        nice(sums.allocated),
        nice(sums.allocated / sums.count.max(1)),
        ratio(sums.logical, sums.physical),
        quotient(100.0 * sums.allocated as f64, total.allocated as f64, 2),
    )
}

fn line(out: &mut Out, look: &Look<'_>, sums: &Sums, total: &Sums, name: &str) {
    writeln!(out, "{}\t{name}", summary(look, sums, total));
    let level = look.options.level('b');
    if level >= 3 && sums.gangs > 0 {
        writeln!(out, "\t number of ganged blocks: {}", look.nice(sums.gangs));
    }
    if level >= 4 {
        writeln!(out, "psize (in 512-byte sectors): number of blocks");
        write!(out, "{}", histogram(&sums.by_sectors, 0));
    }
}

/// Blocks by size.
fn sizes(look: &Look<'_>, census: &mut Census<'_, '_>) {
    let columns = census.columns.clone();
    let out = census.out();
    let is_exact = look.options.has('P');
    writeln!(out, "\nBlock Size Histogram");
    match is_exact {
        true => writeln!(out, "\nblock\tpsize\t\t\tlsize\t\t\t  asize"),
        false => writeln!(
            out,
            "\n{:>7}   {:<7}              {:<7}              asize",
            "block", "psize", "lsize"
        ),
    }
    match is_exact {
        true => write!(out, "size\t"),
        false => write!(out, "{:>7} ", "size"),
    }
    for _ in &columns {
        match is_exact {
            true => write!(out, "Count\tSize\tCum.\t"),
            false => write!(out, "{:>7}{:>7}{:>7}", "Count", "Size", "Cum."),
        }
    }
    writeln!(out);
    let mut cumulative = [0u64; 3];
    for bin in 9..SIZES {
        let size = look.nice(1 << bin);
        match is_exact {
            true => write!(out, "{size}"),
            false => write!(out, "{size:>7}:"),
        }
        for (column, sum) in columns.iter().zip(&mut cumulative) {
            let (count, bytes) = column.bins[bin];
            *sum = sum.saturating_add(bytes);
            for number in [count, bytes, *sum] {
                let number = look.nice(number);
                match is_exact {
                    true => write!(out, "\t{number}"),
                    false => write!(out, "{number:>7}"),
                }
            }
        }
        writeln!(out);
    }
}
