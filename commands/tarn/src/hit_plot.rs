//! Hits up and misses down, around one line: a column for each time.

/// Eighths of a row, from the bottom.
pub const UP: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Rows of signs: `height` above the line and as many below. Both have one scale; returned with the
/// count that a full column means.
pub struct HitPlot {
    /// The scale.
    pub full: u64,
    /// Hits, the topmost row first.
    pub hits: Vec<Vec<char>>,
    /// Misses, the row below the line first.
    pub misses: Vec<Vec<char>>,
}

impl HitPlot {
    /// A plot of so many rows on each side.
    pub fn of(hits: &[u64], misses: &[u64], height: usize) -> HitPlot {
        let full = hits.iter().chain(misses).copied().max().unwrap_or(0).max(1);
        let row = |counts: &[u64], from: usize, sign: fn(u64) -> char| -> Vec<char> {
            let eighths = |count: u64| eighths_of(count, full, height, from);
            counts.iter().map(|count| sign(eighths(*count))).collect()
        };
        let up = |eighths: u64| match usize::try_from(eighths) {
            Ok(eighths @ 1..) => UP[eighths.min(8) - 1],
            _ => ' ',
        };
        // Characters that hang from above exist only whole and half: a begun half counts.
        let down = |eighths: u64| match eighths {
            0 => ' ',
            1..=4 => '▀',
            _ => '█',
        };
        HitPlot {
            full,
            hits: (0..height).rev().map(|from| row(hits, from, up)).collect(),
            misses: (0..height).map(|from| row(misses, from, down)).collect(),
        }
    }
}

/// How much of the row `from` rows away from the line is filled, in eighths. Some is never nothing.
pub fn eighths_of(count: u64, full: u64, height: usize, from: usize) -> u64 {
    let rows = u64::try_from(height).unwrap_or(1);
    let whole = u128::from(count) * u128::from(rows) * 8;
    let filled = u64::try_from(whole.div_ceil(u128::from(full))).unwrap_or(u64::MAX);
    let before = u64::try_from(from).unwrap_or(0) * 8;
    filled.saturating_sub(before).min(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_go_up_and_misses_down_by_one_scale() {
        let plot = HitPlot::of(&[16, 8, 1, 0], &[0, 4, 12, 1], 2);
        let lines = |rows: &[Vec<char>]| -> Vec<String> {
            rows.iter().map(|row| row.iter().collect()).collect()
        };
        assert_eq!(plot.full, 16);
        assert_eq!(lines(&plot.hits), ["█   ", "██▁ "]);
        assert_eq!(lines(&plot.misses), [" ▀█▀", "  ▀ "]);
    }

    #[test]
    fn nothing_is_empty() {
        let plot = HitPlot::of(&[0, 0], &[0, 0], 1);
        assert_eq!(plot.hits, [[' ', ' ']]);
    }
}
