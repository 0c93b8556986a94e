//! RAID-Z: a row of columns, from which the block comes back while enough of them tell the truth.
//!
//! # Problem
//! A column may be missing, its device may report an error, or, worst, give other bytes without a word.
//! Only the checksum of the whole block tells that something is wrong, and it does not tell where.
//!
//! # Mechanism
//! First the block is put together from what is there, missing columns rebuilt from parity. If that does
//! not verify, some column lies: we suppose of one column, then of each pair, then of three, that it is
//! they, as long as parity is left to rebuild them, until a block verifies. A block that verifies is the
//! truth, so every column that differs from it has lied, and can be rewritten.
//!
//! # Invariants
//! - No block is handed out that `verify` did not accept.
//! - A row with at most as many missing or lying columns as it has parities is always solved.

use crate::raidz_map::RaidzMap;
use tarn_host::buffer::Buffer;
use tarn_transform::parity;

/// How many suppositions are tried for one row. Enough for three lies among a hundred columns; wider
/// rows give up earlier rather than keep the reader waiting for hours.
const SUPPOSITIONS_MAX: usize = 200_000;

/// A row that was solved.
#[derive(Debug)]
pub(crate) struct Solved {
    /// The data, in its order.
    pub block: Buffer,
    /// The columns that were missing or lied, and what is true.
    pub wrong: Vec<Correction>,
}

/// What a column should hold.
#[derive(Debug)]
pub(crate) struct Correction {
    /// Which column of the row.
    pub column: usize,
    /// Its bytes.
    pub truth: Buffer,
    /// True if the column was there, and said otherwise.
    pub has_lied: bool,
}

/// The parity columns of a block.
pub(crate) fn parity_of(map: &RaidzMap, block: &[u8]) -> Vec<Buffer> {
    let data: Vec<&[u8]> = map.data_ranges().map(|range| &block[range]).collect();
    let size = map.column_size_max();
    let mut columns: Vec<Buffer> = (0..map.parity)
        .map(|_| Buffer::for_overwrite(size))
        .collect();
    let mut places: Vec<&mut [u8]> = columns.iter_mut().map(|column| &mut column[..]).collect();
    parity::generate(&data, &mut places);
    columns
}

/// The data of a row of which every data column is there.
pub(crate) fn assemble(map: &RaidzMap, data: &[Option<Buffer>]) -> Option<Buffer> {
    let size = map.data().iter().map(|column| column.size).sum();
    let mut block = Buffer::for_overwrite(size);
    for (range, column) in map.data_ranges().zip(data) {
        block[range].copy_from_slice(column.as_ref()?);
    }
    Some(block)
}

/// The block of a row. `columns` are what the devices gave, parity first; none where a device gave
/// nothing. None when no supposition gives a block that verifies.
pub(crate) fn solve(
    map: &RaidzMap,
    columns: &[Option<Buffer>],
    verify: &dyn Fn(&[u8]) -> bool,
) -> Option<Solved> {
    assert_eq!(
        columns.len(),
        map.columns.len(),
        "a row has the columns of its map"
    );
    let missing: Vec<usize> = (0..columns.len())
        .filter(|&c| columns[c].is_none())
        .collect();
    let spare_parity = map.parity.checked_sub(missing.len())?;
    let present: Vec<usize> = (0..columns.len())
        .filter(|&c| columns[c].is_some())
        .collect();
    let mut attempt = Attempt::new(map, columns);
    let mut left = SUPPOSITIONS_MAX;
    for lying_count in 0..=spare_parity {
        let mut chosen: Vec<usize> = (0..lying_count).collect();
        loop {
            let lying: Vec<usize> = chosen.iter().map(|&index| present[index]).collect();
            if attempt.suppose(&missing, &lying) && verify(&attempt.block) {
                return Some(attempt.into_solved());
            }
            left = left.checked_sub(1)?;
            if !next_combination(&mut chosen, present.len()) {
                break;
            }
        }
    }
    None
}

/// Moves on to the next choice of some of `count` things, in order. False after the last.
fn next_combination(chosen: &mut [usize], count: usize) -> bool {
    let size = chosen.len();
    let Some(place) = (0..size)
        .rev()
        .find(|&place| chosen[place] + size < count + place)
    else {
        return false;
    };
    chosen[place] += 1;
    for later in place + 1..size {
        chosen[later] = chosen[later - 1] + 1;
    }
    true
}

/// A block under some supposition. What differs between suppositions is a few columns, so one block
/// is changed back and forth.
struct Attempt<'a> {
    map: &'a RaidzMap,
    columns: &'a [Option<Buffer>],
    block: Buffer,
    /// The data columns that are rebuilt in `block`, not as their device gave them.
    rebuilt: Vec<usize>,
}

impl<'a> Attempt<'a> {
    fn new(map: &'a RaidzMap, columns: &'a [Option<Buffer>]) -> Self {
        let size = map.data().iter().map(|column| column.size).sum();
        let mut block = Buffer::zeroed(size);
        for (range, column) in map.data_ranges().zip(&columns[map.parity..]) {
            if let Some(column) = column {
                block[range].copy_from_slice(column);
            }
        }
        Attempt {
            map,
            columns,
            block,
            rebuilt: Vec::new(),
        }
    }

    /// Makes the block what it is if these columns are missing and those lie. False where that would
    /// be the same block again.
    fn suppose(&mut self, missing: &[usize], lying: &[usize]) -> bool {
        let is_data = |column: &&usize| **column >= self.map.parity;
        let wrong: Vec<usize> = missing.iter().chain(lying).copied().collect();
        let mut data: Vec<usize> = wrong.iter().filter(is_data).copied().collect();
        data.sort_unstable();
        // To suppose that a parity lies changes the block only if it would have been used.
        if data.is_empty() && !lying.is_empty() {
            return false;
        }
        self.restore();
        if data.is_empty() {
            return true;
        }
        let row: Vec<&[u8]> = self
            .columns
            .iter()
            .map(|c| c.as_deref().unwrap_or(&[]))
            .collect();
        let ranges: Vec<_> = self.map.data_ranges().collect();
        let wanted = data
            .iter()
            .map(|&column| ranges[column - self.map.parity].clone());
        let mut outputs = pieces(&mut self.block, wanted);
        // Parities that are in doubt are rebuilt too, into a bin, so that they are not used.
        let doubtful: Vec<usize> = wrong
            .iter()
            .filter(|&&column| column < self.map.parity)
            .copied()
            .collect();
        let size = self.map.column_size_max();
        let mut bins: Vec<Buffer> = doubtful
            .iter()
            .map(|_| Buffer::for_overwrite(size))
            .collect();
        outputs.extend(bins.iter_mut().map(|bin| &mut bin[..]));
        let order: Vec<usize> = data.iter().chain(&doubtful).copied().collect();
        let solved = parity::reconstruct(self.map.parity, &row, &order, &mut outputs);
        solved.expect("no more columns are supposed wrong than there are parities");
        self.rebuilt = data;
        true
    }

    /// Puts back what the devices gave.
    fn restore(&mut self) {
        let ranges: Vec<_> = self.map.data_ranges().collect();
        for column in self.rebuilt.drain(..) {
            if let Some(bytes) = &self.columns[column] {
                self.block[ranges[column - self.map.parity].clone()].copy_from_slice(bytes);
            }
        }
    }

    /// The block, and which columns are not what they should be.
    fn into_solved(self) -> Solved {
        let parity = parity_of(self.map, &self.block);
        let ranges: Vec<_> = self.map.data_ranges().collect();
        let mut wrong = Vec::new();
        for (column, found) in self.columns.iter().enumerate() {
            let truth = match column.checked_sub(self.map.parity) {
                None => &parity[column][..],
                Some(data) => &self.block[ranges[data].clone()],
            };
            if found.as_deref() != Some(truth) {
                wrong.push(Correction {
                    column,
                    truth: Buffer::from_slice(truth),
                    has_lied: found.is_some(),
                });
            }
        }
        Solved {
            block: self.block,
            wrong,
        }
    }
}

/// Several pieces of a block at once, in rising order.
fn pieces(
    block: &mut [u8],
    ranges: impl Iterator<Item = std::ops::Range<usize>>,
) -> Vec<&mut [u8]> {
    let mut rest = block;
    let mut position = 0;
    let mut found = Vec::new();
    for range in ranges {
        let (_, from_start) = rest.split_at_mut(range.start - position);
        let (piece, behind) = from_start.split_at_mut(range.len());
        found.push(piece);
        rest = behind;
        position = range.end;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raidz_map::RaidzShape;
    use tarn_ondisk::units::VdevOffset;

    fn noise(size: usize) -> Vec<u8> {
        let mut state = 42u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_be_bytes()[0]
        };
        (0..size).map(|_| next()).collect()
    }

    /// A row as it was written, and its block.
    fn row(width: u64, parity: u64, sectors: u64) -> (RaidzMap, Vec<Option<Buffer>>, Vec<u8>) {
        let shape = RaidzShape {
            width,
            parity,
            ashift: 9,
        };
        let map = shape.map(VdevOffset::from(7 * 512), sectors * 512);
        let block = noise(usize::try_from(sectors * 512).unwrap());
        let mut columns: Vec<_> = parity_of(&map, &block).into_iter().map(Some).collect();
        columns.extend(
            map.data_ranges()
                .map(|range| Some(Buffer::from_slice(&block[range]))),
        );
        (map, columns, block)
    }

    /// Every choice of at most `size` of `count` columns.
    fn choices(count: usize, size: usize) -> Vec<Vec<usize>> {
        let mut found = Vec::new();
        for size in 0..=size.min(count) {
            let mut chosen: Vec<usize> = (0..size).collect();
            loop {
                found.push(chosen.clone());
                if !next_combination(&mut chosen, count) {
                    break;
                }
            }
        }
        found
    }

    fn take(columns: &[Option<Buffer>]) -> Vec<Option<Buffer>> {
        let copy = |column: &Option<Buffer>| column.as_deref().map(Buffer::from_slice);
        columns.iter().map(copy).collect()
    }

    /// For all widths from 2 to 12 and all parities, whichever columns are lost.
    #[test]
    fn any_columns_may_be_lost_up_to_the_parity() {
        for width in 2..=12u64 {
            for parity in 1..=3.min(width - 1) {
                for sectors in [1, width - parity, 2 * width + 1] {
                    let (map, columns, block) = row(width, parity, sectors);
                    for lost in choices(columns.len(), usize::try_from(parity).unwrap()) {
                        let mut left = take(&columns);
                        lost.iter().for_each(|&column| left[column] = None);
                        let solved = solve(&map, &left, &|found| found == block).unwrap();
                        let wrong: Vec<_> = solved.wrong.iter().map(|w| w.column).collect();
                        assert_eq!(wrong, lost);
                        for correction in &solved.wrong {
                            let truth = columns[correction.column].as_deref().unwrap();
                            assert!(correction.truth[..] == *truth && !correction.has_lied);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn liars_are_found_and_named_whoever_they_are() {
        for (width, parity) in [(2, 1), (3, 1), (5, 2), (7, 3), (12, 3)] {
            let (map, columns, block) = row(width, parity, width + 2);
            for lying in choices(columns.len(), usize::try_from(parity).unwrap()) {
                let mut given = take(&columns);
                lying
                    .iter()
                    .for_each(|&c| given[c].as_mut().unwrap()[13] ^= 0x40);
                let solved = solve(&map, &given, &|found| found == block).unwrap();
                let wrong: Vec<_> = solved.wrong.iter().map(|w| w.column).collect();
                assert_eq!(wrong, lying);
                assert!(solved.wrong.iter().all(|wrong| wrong.has_lied));
            }
        }
    }

    #[test]
    fn a_lost_and_a_lying_column_are_two_of_three() {
        let (map, columns, block) = row(7, 3, 20);
        for wrong in choices(columns.len(), 3)
            .iter()
            .filter(|wrong| wrong.len() == 3)
        {
            let mut given = take(&columns);
            given[wrong[0]] = None;
            given[wrong[1]].as_mut().unwrap()[0] ^= 1;
            given[wrong[2]] = None;
            let solved = solve(&map, &given, &|found| found == block).unwrap();
            let lied: Vec<_> = solved.wrong.iter().map(|wrong| wrong.has_lied).collect();
            assert_eq!(lied, [false, true, false]);
        }
    }

    #[test]
    fn beyond_the_parity_nothing_is_handed_out() {
        let (map, columns, block) = row(5, 1, 9);
        let mut given = take(&columns);
        given[1].as_mut().unwrap()[0] ^= 1;
        given[3].as_mut().unwrap()[0] ^= 1;
        assert!(solve(&map, &given, &|found| found == block).is_none());
        given[1] = None;
        assert!(solve(&map, &given, &|found| found == block).is_none());
        given[2] = None;
        assert!(solve(&map, &given, &|found| found == block).is_none());
    }
}
