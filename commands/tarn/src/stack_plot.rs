//! Misses upon hits: a column for each time, whose height is the load.

use crate::hit_plot::{UP, eighths_of};

/// What a cell is filled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StackCell {
    /// Eighths of hits, from the bottom.
    pub hits: u8,
    /// Eighths of misses, above them.
    pub misses: u8,
}

impl StackCell {
    /// The sign where there are no colours: hits are solid, misses shaded, and of both what is
    /// more.
    pub fn sign(self) -> char {
        match (self.hits, self.misses) {
            (0, 0) => ' ',
            (hits, misses) if misses > hits => '▒',
            (hits, misses) => up(hits + misses),
        }
    }
}

/// A block of so many eighths, from the bottom.
pub fn up(eighths: u8) -> char {
    match usize::from(eighths).min(UP.len()) {
        0 => ' ',
        eighths => UP[eighths - 1],
    }
}

/// Rows of cells, the topmost first, with the count that a full column means.
pub struct StackPlot {
    /// The scale.
    pub full: u64,
    /// The cells.
    pub rows: Vec<Vec<StackCell>>,
}

impl StackPlot {
    /// A plot of so many rows.
    pub fn of(hits: &[u64], misses: &[u64], height: usize) -> StackPlot {
        let sums = || hits.iter().zip(misses);
        let all = |(hits, misses): (&u64, &u64)| hits.saturating_add(*misses);
        let full = sums().map(all).max().unwrap_or(0).max(1);
        let row = |from: usize| -> Vec<StackCell> {
            let eighths =
                |count: u64| u8::try_from(eighths_of(count, full, height, from)).unwrap_or(8);
            let cell = |(hits, misses): (&u64, &u64)| {
                let (below, whole) = (eighths(*hits), eighths(hits.saturating_add(*misses)));
                // Some misses are never nothing, where there is room for them.
                let hides = *misses > 0 && below == whole && (1..8).contains(&whole);
                StackCell {
                    hits: below,
                    misses: if hides { 1 } else { whole - below },
                }
            };
            sums().map(cell).collect()
        };
        StackPlot {
            full,
            rows: (0..height).rev().map(row).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(hits: u8, misses: u8) -> StackCell {
        StackCell { hits, misses }
    }

    #[test]
    fn misses_lie_upon_hits_by_one_scale() {
        let plot = StackPlot::of(&[8, 4, 0, 0], &[8, 0, 8, 0], 2);
        assert_eq!(plot.full, 16);
        let (full, none) = (cell(0, 8), cell(0, 0));
        assert_eq!(plot.rows[0], [full, none, none, none]);
        assert_eq!(plot.rows[1], [cell(8, 0), cell(4, 0), full, none]);
        let signs = plot.rows[1].iter().map(|cell| cell.sign());
        assert_eq!(signs.collect::<String>(), "█▄▒ ");
    }

    #[test]
    fn few_misses_are_seen() {
        let plot = StackPlot::of(&[1000, 300], &[0, 1], 1);
        assert_eq!(plot.rows[0], [cell(8, 0), cell(3, 1)]);
        assert_eq!(cell(3, 1).sign(), '▄');
    }
}
