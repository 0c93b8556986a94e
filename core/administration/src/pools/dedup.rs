//! Deduplicated blocks: their number, and the size of the dedup tables.
//!
//! Each checksum has a table for blocks with one reference and one for the others. Older pools list
//! the tables in the pool's directory; newer ones have a list for each checksum there. Beside each
//! table its histogram is stored: 64 rows, by powers of two of the references, of eight numbers
//! each.

use crate::messages::pool::{DedupRow, DedupTables};
use tarn_object::zap::ZapValue;
use tarn_ondisk::pool_directory::{
    DEDUP_STATISTICS, DEDUP_TABLE_PREFIX, POOL_DIRECTORY, is_dedup_table,
};
use tarn_ondisk::units::ObjectId;
use tarn_pool::directory::Directory;
use tarn_pool::{Pool, PoolError};
use tarn_probe::Operation;

/// Rows of a histogram.
const ROWS: usize = 64;

/// Numbers in a row of a histogram.
const ROW_WORDS: usize = 8;

/// The statistics of a pool's dedup tables.
#[doc(alias = "ddt_get_dedup_object_stats")]
pub(super) fn tables(pool: &Pool, operation: &Operation) -> Result<DedupTables, PoolError> {
    let directory = pool.directory(operation);
    let mut tables = DedupTables::default();
    let Some(statistics) = directory.find(DEDUP_STATISTICS)? else {
        return Ok(tables);
    };
    let mut rows: Vec<DedupRow> = Vec::new();
    for (_, value) in directory.entries(statistics)? {
        let ZapValue::Words(words) = value else {
            continue;
        };
        for (index, words) in words.chunks_exact(ROW_WORDS).take(ROWS).enumerate() {
            if rows.len() <= index {
                rows.resize(index + 1, DedupRow::default());
            }
            add(&mut rows[index], words);
        }
    }
    tables.rows = rows;
    for id in table_objects(directory)? {
        let info = directory.object(id)?.info();
        tables.disk_bytes = tables.disk_bytes.saturating_add(info.used.get());
        let memory = info.fill.saturating_mul(info.block_size.get());
        tables.memory_bytes = tables.memory_bytes.saturating_add(memory);
    }
    let blocks = tables.rows.iter().map(|row| row.blocks);
    tables.entries = blocks.fold(0, u64::saturating_add);
    Ok(tables)
}

fn add(row: &mut DedupRow, words: &[u64]) {
    let fields = [
        &mut row.blocks,
        &mut row.logical_bytes,
        &mut row.physical_bytes,
        &mut row.allocated_bytes,
        &mut row.referenced_blocks,
        &mut row.referenced_logical_bytes,
        &mut row.referenced_physical_bytes,
        &mut row.referenced_allocated_bytes,
    ];
    for (field, word) in fields.into_iter().zip(words) {
        *field = field.saturating_add(*word);
    }
}

/// The objects of the dedup tables.
fn table_objects(directory: Directory<'_>) -> Result<Vec<ObjectId>, PoolError> {
    let mut tables = Vec::new();
    for (name, id) in listed(directory, POOL_DIRECTORY)? {
        match name.matches('-').count() {
            // The list of the tables of one checksum.
            0 => tables.extend(listed(directory, id)?.into_iter().filter_map(|(name, id)| {
                let is_table = !name.starts_with("log-");
                is_table.then_some(id)
            })),
            _ => tables.push(id),
        }
    }
    Ok(tables)
}

/// Names after the prefix, with their objects.
fn listed(directory: Directory<'_>, zap: ObjectId) -> Result<Vec<(String, ObjectId)>, PoolError> {
    let entries = directory.entries(zap)?.into_iter();
    let named = entries.filter(|(name, _)| is_dedup_table(name));
    let found = named.filter_map(|(name, value)| {
        let name = name.strip_prefix(DEDUP_TABLE_PREFIX)?.to_string();
        Some((name, ObjectId::new(value.as_word()?)))
    });
    Ok(found.collect())
}

/// References to deduplicated blocks per stored block, times 100.
#[doc(alias = "ddt_get_pool_dedup_ratio")]
pub(super) fn ratio_hundredths(tables: &DedupTables) -> u64 {
    let sum =
        |bytes: fn(&DedupRow) -> u64| tables.rows.iter().map(|row| u128::from(bytes(row))).sum();
    let allocated: u128 = sum(|row| row.allocated_bytes);
    let referenced: u128 = sum(|row| row.referenced_allocated_bytes);
    let ratio = (referenced * 100).checked_div(allocated).unwrap_or(100);
    u64::try_from(ratio).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_what_is_referenced_by_what_is_stored() {
        let mut tables = DedupTables::default();
        assert_eq!(ratio_hundredths(&tables), 100);
        let mut row = DedupRow::default();
        add(&mut row, &[34, 0, 0, 616, 68, 0, 0, 1232]);
        add(&mut row, &[1, 0, 0, 100, 2, 0, 0, 300]);
        tables.rows.push(row);
        assert_eq!(tables.rows[0].blocks, 35);
        assert_eq!(ratio_hundredths(&tables), 153_200 / 716);
    }
}
