//! Heat maps in a terminal: columns are times, rows are ranges of latency, signs are how many.
//!
//! # Mechanism
//! The vertical axis is that of the buckets: an octave has as many rows as any other, so it is
//! nearly logarithmic. A row is some buckets, as few as the height allows. The sign of a cell is by
//! the rank of its count among all cells, so that few operations are seen beside many; its colour
//! is the cause of most of its operations.

use std::collections::BTreeMap;
use tarn_administration::messages::analytics::Answer;

/// Buckets of an octave of the log-linear histogram that answers are made of.
const BUCKETS_OF_OCTAVE: u64 = 16;

/// Signs from few to many.
const SIGNS: [char; 8] = ['.', ':', '-', '=', '+', '*', '%', '#'];

/// What stands for a column that was not collected.
const NOT_COLLECTED: char = '?';

/// A cell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cell {
    /// Operations.
    pub count: u64,
    /// The key, such as a cause, of most of them: its place among the groups of the answer.
    pub group: Option<usize>,
}

/// Rows of cells, the largest values first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeatMap {
    /// For each row the lowest value of it.
    pub lows: Vec<u64>,
    /// For each row a cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// Whether each column was collected, at least in part.
    pub is_known: Vec<bool>,
}

impl HeatMap {
    /// Of an answer with a numeric field, in so many rows at most.
    pub fn of(answer: &Answer, rows_max: usize) -> HeatMap {
        let columns = answer.states.len();
        let is_known = answer.states.iter().map(|state| *state > 0).collect();
        let steps: Vec<u64> = answer
            .buckets
            .iter()
            .map(|[low, _]| step_of(*low))
            .collect();
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
            return HeatMap {
                is_known,
                ..HeatMap::default()
            };
        };
        let rows_max = u64::try_from(rows_max.max(1)).unwrap_or(u64::MAX);
        let of_row = (last - first + 1).div_ceil(rows_max);
        let count = (last - first) / of_row + 1;
        let height = usize::try_from(count).unwrap_or(0);
        let mut rows = vec![vec![Cell::default(); columns]; height];
        let mut largest: BTreeMap<(usize, usize), (u64, usize)> = BTreeMap::new();
        let place = |column: u64, bucket: u64| -> Option<(usize, usize)> {
            let step = steps.get(usize::try_from(bucket).ok()?)?;
            let row = count - 1 - (step - first) / of_row;
            let column = usize::try_from(column)
                .ok()
                .filter(|column| *column < columns)?;
            Some((usize::try_from(row).ok()?, column))
        };
        for cell in answer.total.cells.chunks_exact(3) {
            if let Some((row, column)) = place(cell[0], cell[1]) {
                rows[row][column].count += cell[2];
            }
        }
        for (number, group) in answer.groups.iter().enumerate() {
            let mut of_group: BTreeMap<(usize, usize), u64> = BTreeMap::new();
            for cell in group.series.cells.chunks_exact(3) {
                if let Some(place) = place(cell[0], cell[1]) {
                    *of_group.entry(place).or_default() += cell[2];
                }
            }
            for (place, count) in of_group {
                let most = largest.entry(place).or_insert((0, number));
                if count > most.0 {
                    *most = (count, number);
                }
            }
        }
        for ((row, column), (_, group)) in largest {
            rows[row][column].group = Some(group);
        }
        let low = |row: u64| value_of(first + (count - 1 - row) * of_row);
        HeatMap {
            lows: (0..count).map(low).collect(),
            rows,
            is_known,
        }
    }

    /// The sign of each cell, a line for each row.
    pub fn signs(&self) -> Vec<Vec<char>> {
        let mut counts: Vec<u64> = self.rows.iter().flatten().map(|cell| cell.count).collect();
        counts.retain(|count| *count > 0);
        counts.sort_unstable();
        counts.dedup();
        let sign = |column: usize, cell: &Cell| match cell.count {
            0 if self.is_known[column] => ' ',
            0 => NOT_COLLECTED,
            count => {
                let rank = counts.partition_point(|other| *other < count);
                // All alike are many.
                let rank = rank + SIGNS.len().saturating_sub(counts.len().min(SIGNS.len()));
                let ranks = counts.len().max(SIGNS.len());
                SIGNS[(rank * SIGNS.len() / ranks).min(SIGNS.len() - 1)]
            }
        };
        let signs = self.rows.iter().map(|row| {
            let cells = row.iter().enumerate();
            cells.map(|(column, cell)| sign(column, cell)).collect()
        });
        signs.collect()
    }
}

/// A value as a number of buckets: that of a bucket's lowest value is its number, but for a
/// constant.
fn step_of(value: u64) -> u64 {
    let value = value.max(BUCKETS_OF_OCTAVE);
    let octave = value.ilog2() - BUCKETS_OF_OCTAVE.ilog2();
    // In the octave values have 5 bits, of which the first is set.
    u64::from(octave) * BUCKETS_OF_OCTAVE + (value >> octave)
}

/// The lowest value of so many buckets.
fn value_of(step: u64) -> u64 {
    let octave = (step / BUCKETS_OF_OCTAVE).saturating_sub(1);
    (step - octave * BUCKETS_OF_OCTAVE) << octave
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_administration::messages::analytics::{Group, Series};

    /// A column of the picture is a column of the heat map, a row is one of its buckets.
    pub const PICTURE: [&str; 7] = [
        "#####..###..####..#...#",
        "..#...#...#.#...#.##..#",
        "..#...#...#.#...#.##..#",
        "..#...#####.####..#.#.#",
        "..#...#...#.#.#...#..##",
        "..#...#...#.#..#..#..##",
        "..#...#...#.#...#.#...#",
    ];

    /// An answer that is the picture: rows are `gap` buckets apart, from 65 us on.
    fn painted(gap: u64) -> Answer {
        let first = step_of(65_536);
        let bucket = |row: usize| first + (6 - row as u64) * gap;
        let columns = PICTURE[0].len();
        let mut cells = Vec::new();
        for column in 0..columns {
            for row in (0..7)
                .rev()
                .filter(|row| PICTURE[*row].as_bytes()[column] == b'#')
            {
                cells.extend([column as u64, 6 - row as u64, 3]);
            }
        }
        let buckets = (0..7)
            .rev()
            .map(|row| [value_of(bucket(row)), value_of(bucket(row) + 1)]);
        Answer {
            states: vec![2; columns],
            columns: columns as u64,
            buckets: buckets.collect(),
            groups: vec![Group {
                series: Series {
                    sums: Vec::new(),
                    cells: cells.clone(),
                },
                ..Group::default()
            }],
            total: Series {
                sums: Vec::new(),
                cells,
            },
            ..Answer::default()
        }
    }

    fn lines(map: &HeatMap) -> Vec<String> {
        let lines = map.signs().into_iter();
        lines.map(|line| line.into_iter().collect()).collect()
    }

    #[test]
    fn a_known_bitmap_comes_out_as_that_picture() {
        let picture = PICTURE.map(|line| line.replace('.', " "));
        // As many rows as buckets; three buckets a row; and rows between that have nothing.
        for (gap, rows_max) in [(1, 7), (3, 7), (5, 7)] {
            let map = HeatMap::of(&painted(gap), rows_max);
            assert_eq!(lines(&map), picture, "{gap}");
            assert!(
                map.rows
                    .iter()
                    .flatten()
                    .all(|cell| cell.group.is_some() == (cell.count > 0))
            );
        }
        let sparse = HeatMap::of(&painted(3), 19);
        assert_eq!(sparse.rows.len(), 19);
        let shown: Vec<String> = lines(&sparse).into_iter().step_by(3).collect();
        assert_eq!(shown, picture);
        assert!(lines(&sparse)[1].trim().is_empty());
    }

    #[test]
    fn one_operation_more_is_seen() {
        let mut answer = painted(1);
        answer.total.cells.extend([5, 3, 1]);
        let map = HeatMap::of(&answer, 7);
        let picture = PICTURE.map(|line| line.replace('.', " "));
        assert_ne!(lines(&map), picture);
    }

    #[test]
    fn values_and_buckets_are_the_same_axis() {
        for step in 16..600 {
            assert_eq!(step_of(value_of(step)), step);
            assert_eq!(step_of(value_of(step + 1) - 1), step);
        }
    }

    #[test]
    fn what_was_not_collected_is_not_empty() {
        let mut answer = painted(1);
        answer.states[1] = 0;
        answer.total.cells.retain(|_| true);
        let map = HeatMap::of(&answer, 7);
        assert_eq!(map.signs()[1][1], NOT_COLLECTED);
        assert_eq!(HeatMap::of(&Answer::default(), 7), HeatMap::default());
    }
}
