//! `zpool status -D`: the tables of deduplicated blocks.

use tarn_administration::messages::pool::{DedupRow, DedupTables};
use tarn_terminal::number::nice_count;

/// The titles of the histogram.
const TITLES: &str = "\
bucket              allocated                       referenced          \n\
______   ______________________________   ______________________________\n\
refcnt   blocks   LSIZE   PSIZE   DSIZE   blocks   LSIZE   PSIZE   DSIZE\n\
------   ------   -----   -----   -----   ------   -----   -----   -----\n";

/// What is printed below the errors of a pool.
pub fn text(tables: &DedupTables, is_exact: bool) -> String {
    if tables.entries == 0 {
        return "\n dedup: no DDT entries\n".to_string();
    }
    let number = |number: u64| match is_exact {
        true => number.to_string(),
        false => nice_count(number),
    };
    let mut text = format!(
        "\n dedup: DDT entries {}, size {} on disk, {} in core\n\n{TITLES}",
        tables.entries,
        number(tables.disk_bytes),
        number(tables.memory_bytes)
    );
    for (exponent, row) in tables.rows.iter().enumerate() {
        let references = 1_u64.checked_shl(u32::try_from(exponent).unwrap_or(u32::MAX));
        text.push_str(&line(&number(references.unwrap_or(0)), row, number));
    }
    text + &line("Total", &total(&tables.rows), number) + "\n"
}

/// A row of the histogram; nothing for one without blocks.
fn line(head: &str, row: &DedupRow, number: impl Fn(u64) -> String) -> String {
    if row.blocks == 0 {
        return String::new();
    }
    format!(
        "{head:>6}   {:>6}   {:>5}   {:>5}   {:>5}   {:>6}   {:>5}   {:>5}   {:>5}\n",
        number(row.blocks),
        number(row.logical_bytes),
        number(row.physical_bytes),
        number(row.allocated_bytes),
        number(row.referenced_blocks),
        number(row.referenced_logical_bytes),
        number(row.referenced_physical_bytes),
        number(row.referenced_allocated_bytes)
    )
}

fn total(rows: &[DedupRow]) -> DedupRow {
    let sum = |number: fn(&DedupRow) -> u64| rows.iter().map(number).fold(0, u64::saturating_add);
    DedupRow {
        blocks: sum(|row| row.blocks),
        logical_bytes: sum(|row| row.logical_bytes),
        physical_bytes: sum(|row| row.physical_bytes),
        allocated_bytes: sum(|row| row.allocated_bytes),
        referenced_blocks: sum(|row| row.referenced_blocks),
        referenced_logical_bytes: sum(|row| row.referenced_logical_bytes),
        referenced_physical_bytes: sum(|row| row.referenced_physical_bytes),
        referenced_allocated_bytes: sum(|row| row.referenced_allocated_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histogram_is_the_one_of_openzfs() {
        let row = DedupRow {
            blocks: 34,
            logical_bytes: 1_376_256,
            physical_bytes: 583_680,
            allocated_bytes: 630_784,
            referenced_blocks: 68,
            referenced_logical_bytes: 2_752_512,
            referenced_physical_bytes: 1_167_360,
            referenced_allocated_bytes: 1_261_568,
        };
        let tables = DedupTables {
            entries: 34,
            disk_bytes: 49_152,
            memory_bytes: 65_536,
            rows: vec![DedupRow::default(), row],
        };
        assert_eq!(
            text(&tables, false),
            format!(
                "\n dedup: DDT entries 34, size 48K on disk, 64K in core\n\n{TITLES}\
                 \x20    2       34   1.31M    570K    616K       68   2.62M   1.11M   1.20M\n\
                 \x20Total       34   1.31M    570K    616K       68   2.62M   1.11M   1.20M\n\n"
            )
        );
    }

    #[test]
    fn a_pool_without_deduplicated_blocks_says_so() {
        assert_eq!(
            text(&DedupTables::default(), false),
            "\n dedup: no DDT entries\n"
        );
    }
}
