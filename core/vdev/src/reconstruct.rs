//! Reconstruction of a RAID-Z block when columns are missing or silently wrong.
//!
//! # Problem
//! A column may be missing, its device may report an error, or return wrong bytes without one. Only
//! the checksum of the whole block shows that a column is wrong, and it does not show which.
//!
//! # Mechanism
//! First the block is assembled from the columns that were read, and missing ones are rebuilt from
//! parity. If that does not verify, one child is taken to be wrong in all rows and its columns are
//! rebuilt, then each pair of children, then each three, as far as parity is left, until a block
//! verifies (combinatorial reconstruction). Every column that differs from the verified block was
//! wrong, and self-healing rewrites it.
//!
//! # Invariants
//! - No block is handed out that `verify` did not accept.
//! - A block is solved if in each row no more columns are missing or wrong than it has parities.

use crate::layout::{Row, with_ranges};
use std::ops::Range;
use tarn_host::buffer::Buffer;
use tarn_transform::parity;

/// How many combinations of wrong children are tried for one block. Enough for three of a hundred;
/// in wider rows the read fails rather than take hours.
const SUPPOSITIONS_MAX: usize = 200_000;

/// A row with the columns that its devices gave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GivenRow<'a> {
    /// Where its columns are.
    pub row: &'a Row,
    /// The columns, parity first; none where a device gave nothing.
    pub columns: &'a [Option<Buffer>],
}

/// A block that was solved.
#[derive(Debug)]
pub(crate) struct Solved {
    /// The data, in its order.
    pub block: Buffer,
    /// The columns that were missing or wrong, with their right bytes.
    pub wrong: Vec<Correction>,
}

/// The right bytes of a column.
#[derive(Debug)]
pub(crate) struct Correction {
    /// Which row of the block.
    pub row: usize,
    /// Which column of the row.
    pub column: usize,
    /// Its bytes.
    pub truth: Buffer,
    /// True if the column was read and had other bytes.
    pub has_lied: bool,
}

/// The parity columns of a row. `bytes` are its part of the block.
pub(crate) fn parity_of(row: &Row, bytes: &[u8]) -> Vec<Buffer> {
    assert_eq!(
        bytes.len(),
        row.data_size(),
        "parity is of all data of its row"
    );
    let data: Vec<&[u8]> = row.data_ranges().map(|range| &bytes[range]).collect();
    let size = row.column_size_max();
    let mut columns: Vec<Buffer> = (0..row.parity)
        .map(|_| Buffer::for_overwrite(size))
        .collect();
    let mut places: Vec<&mut [u8]> = columns.iter_mut().map(|column| &mut column[..]).collect();
    parity::generate(&data, &mut places);
    columns
}

/// The block of rows of which every data column is there.
pub(crate) fn assemble(rows: &[GivenRow<'_>]) -> Option<Buffer> {
    let mut block = Buffer::for_overwrite(rows.iter().map(|given| given.row.data_size()).sum());
    for (given, part) in parts(rows) {
        let data = &given.columns[given.row.parity..];
        for (range, column) in given.row.data_ranges().zip(data) {
            block[shifted(range, part.start)].copy_from_slice(column.as_ref()?);
        }
    }
    Some(block)
}

/// Each row, with its range of the block.
fn parts<'a, 'b>(
    rows: &'b [GivenRow<'a>],
) -> impl Iterator<Item = (&'b GivenRow<'a>, Range<usize>)> {
    let ranges = with_ranges(rows.iter().map(|given| given.row));
    rows.iter().zip(ranges.map(|(_, range)| range))
}

fn shifted(range: Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

/// The block of these rows. None when no combination of wrong children gives a block that verifies.
pub(crate) fn solve(rows: &[GivenRow<'_>], verify: &dyn Fn(&[u8]) -> bool) -> Option<Solved> {
    for given in rows {
        let (found, expected) = (given.columns.len(), given.row.columns.len());
        assert_eq!(found, expected, "a row has the columns of its map");
    }
    let spare_parity = |given: &GivenRow<'_>| given.row.parity.checked_sub(missing(given).len());
    let spare: Option<Vec<usize>> = rows.iter().map(spare_parity).collect();
    let lying_max = spare?.into_iter().max().unwrap_or(0);
    let mut present: Vec<usize> = Vec::new();
    for given in rows {
        for (column, found) in given.row.columns.iter().zip(given.columns) {
            if found.is_some() && !present.contains(&column.child) {
                present.push(column.child);
            }
        }
    }
    let mut attempt = Attempt::new(rows);
    let mut left = SUPPOSITIONS_MAX;
    for lying_count in 0..=lying_max.min(present.len()) {
        let mut chosen: Vec<usize> = (0..lying_count).collect();
        loop {
            let lying: Vec<usize> = chosen.iter().map(|&index| present[index]).collect();
            if attempt.suppose(&lying) && verify(&attempt.block) {
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

/// The columns of a row that its devices did not give.
fn missing(given: &GivenRow<'_>) -> Vec<usize> {
    let columns = given.columns.iter().enumerate();
    let missing = columns.filter(|(_, column)| column.is_none());
    missing.map(|(index, _)| index).collect()
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
    debug_assert!(
        chosen.last().is_none_or(|last| *last < count) && chosen.is_sorted_by(|one, two| one < two),
        "a choice has different things, in order"
    );
    true
}

/// The block for one combination of wrong children. Combinations differ in a few columns, so one
/// block is changed back and forth.
struct Attempt<'a> {
    rows: &'a [GivenRow<'a>],
    block: Buffer,
    /// The data columns, by row and index, that are rebuilt in `block`, not as their device gave
    /// them.
    rebuilt: Vec<(usize, usize)>,
}

impl<'a> Attempt<'a> {
    fn new(rows: &'a [GivenRow<'a>]) -> Self {
        let size = rows.iter().map(|given| given.row.data_size()).sum();
        let mut block = Buffer::zeroed(size);
        for (given, part) in parts(rows) {
            let data = &given.columns[given.row.parity..];
            for (range, column) in given.row.data_ranges().zip(data) {
                if let Some(column) = column {
                    block[shifted(range, part.start)].copy_from_slice(column);
                }
            }
        }
        Attempt {
            rows,
            block,
            rebuilt: Vec::new(),
        }
    }

    /// Rebuilds the block without the columns of these children and without the missing ones. False
    /// where that would be the same block again, or where parity does not suffice.
    fn suppose(&mut self, lying: &[usize]) -> bool {
        let wrong: Vec<Vec<usize>> = self.rows.iter().map(|row| wrong_in(row, lying)).collect();
        let rows = self.rows.iter().zip(&wrong);
        if rows
            .clone()
            .any(|(given, wrong)| wrong.len() > given.row.parity)
        {
            return false;
        }
        // A wrong parity changes the block only if parity rebuilds a data column.
        let mut rows = rows;
        let has_data = |(given, wrong): (&GivenRow<'_>, &Vec<usize>)| {
            wrong.iter().any(|column| *column >= given.row.parity)
        };
        if !lying.is_empty() && !rows.any(has_data) {
            return false;
        }
        self.restore();
        let ranges: Vec<_> = parts(self.rows).map(|(_, range)| range).collect();
        for (index, (wrong, part)) in wrong.iter().zip(ranges).enumerate() {
            self.rebuild(index, wrong, part);
        }
        true
    }

    /// Rebuilds the wrong data columns of one row.
    fn rebuild(&mut self, index: usize, wrong: &[usize], part: Range<usize>) {
        let GivenRow { row, columns } = self.rows[index];
        let (doubtful, mut data): (Vec<usize>, Vec<usize>) =
            wrong.iter().partition(|column| **column < row.parity);
        if data.is_empty() {
            return;
        }
        data.sort_unstable();
        let given: Vec<&[u8]> = columns
            .iter()
            .map(|c| c.as_deref().unwrap_or(&[]))
            .collect();
        let ranges: Vec<_> = row.data_ranges().collect();
        let wanted = data
            .iter()
            .map(|&column| ranges[column - row.parity].clone());
        let mut outputs = pieces(&mut self.block[part], wanted);
        // Parities that are taken to be wrong are rebuilt too, into buffers that are dropped, so
        // that they are not used.
        let size = row.column_size_max();
        let mut bins: Vec<Buffer> = doubtful
            .iter()
            .map(|_| Buffer::for_overwrite(size))
            .collect();
        outputs.extend(bins.iter_mut().map(|bin| &mut bin[..]));
        let order: Vec<usize> = data.iter().chain(&doubtful).copied().collect();
        let solved = parity::reconstruct(row.parity, &given, &order, &mut outputs);
        solved.expect("no more columns are supposed wrong than there are parities");
        self.rebuilt
            .extend(data.into_iter().map(|column| (index, column)));
    }

    /// Puts back what the devices gave.
    fn restore(&mut self) {
        let starts: Vec<usize> = parts(self.rows).map(|(_, range)| range.start).collect();
        for (index, column) in self.rebuilt.drain(..) {
            let GivenRow { row, columns } = self.rows[index];
            if let Some(bytes) = &columns[column] {
                let range = row.data_ranges().nth(column - row.parity);
                let range = range.expect("only data columns are rebuilt");
                self.block[shifted(range, starts[index])].copy_from_slice(bytes);
            }
        }
    }

    /// The block, and the columns that differ from it.
    fn into_solved(self) -> Solved {
        let mut wrong = Vec::new();
        for (index, (given, part)) in parts(self.rows).enumerate() {
            let (row, bytes) = (given.row, &self.block[part]);
            let parity = parity_of(row, bytes);
            let ranges: Vec<_> = row.data_ranges().collect();
            for (column, found) in given.columns.iter().enumerate() {
                let truth = match column.checked_sub(row.parity) {
                    None => &parity[column][..],
                    Some(data) => &bytes[ranges[data].clone()],
                };
                debug_assert_eq!(
                    truth.len(),
                    row.columns[column].size,
                    "the right bytes fill their column"
                );
                if found.as_deref() != Some(truth) {
                    wrong.push(Correction {
                        row: index,
                        column,
                        truth: Buffer::from_slice(truth),
                        has_lied: found.is_some(),
                    });
                }
            }
        }
        Solved {
            block: self.block,
            wrong,
        }
    }
}

/// The columns of a row that are missing, or of a child that is taken to be wrong.
fn wrong_in(given: &GivenRow<'_>, lying: &[usize]) -> Vec<usize> {
    let columns = given.row.columns.iter().zip(given.columns).enumerate();
    let wrong =
        columns.filter(|(_, (column, found))| found.is_none() || lying.contains(&column.child));
    wrong.map(|(index, _)| index).collect()
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
    use crate::layout::raidz::RaidzShape;
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
    fn row(width: u64, parity: u64, sectors: u64) -> (Row, Vec<Option<Buffer>>, Vec<u8>) {
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

    fn solve_one(map: &Row, columns: &[Option<Buffer>], block: &[u8]) -> Option<Solved> {
        solve(&[GivenRow { row: map, columns }], &|found| found == block)
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
                        let solved = solve_one(&map, &left, &block).unwrap();
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
                let solved = solve_one(&map, &given, &block).unwrap();
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
            let solved = solve_one(&map, &given, &block).unwrap();
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
        assert!(solve_one(&map, &given, &block).is_none());
        given[1] = None;
        assert!(solve_one(&map, &given, &block).is_none());
        given[2] = None;
        assert!(solve_one(&map, &given, &block).is_none());
    }

    /// As in an expanded RAID-Z or a dRAID: a child that lies does so in each row that it is in.
    #[test]
    fn a_block_of_several_rows_is_solved_by_the_children_that_lie() {
        let (first, first_columns, first_part) = row(5, 2, 9);
        let (second, second_columns, second_part) = row(5, 2, 4);
        let block = [first_part, second_part].concat();
        let solve_both = |first_given: &[Option<Buffer>], second_given: &[Option<Buffer>]| {
            let given = |row, columns| GivenRow { row, columns };
            let rows = [given(&first, first_given), given(&second, second_given)];
            solve(&rows, &|found| found == block)
        };
        for lying in choices(5, 2) {
            let (mut first_given, mut second_given) = (take(&first_columns), take(&second_columns));
            let mut expected = Vec::new();
            for (index, (map, given)) in [(&first, &mut first_given), (&second, &mut second_given)]
                .into_iter()
                .enumerate()
            {
                for (column, place) in map.columns.iter().enumerate() {
                    if lying.contains(&place.child) {
                        given[column].as_mut().unwrap()[3] ^= 1;
                        expected.push((index, column));
                    }
                }
            }
            let solved = solve_both(&first_given, &second_given).unwrap();
            let wrong: Vec<_> = solved.wrong.iter().map(|w| (w.row, w.column)).collect();
            assert_eq!((wrong, &solved.block[..]), (expected, &block[..]));
        }
        // Each row may lack others.
        let (mut first_given, mut second_given) = (take(&first_columns), take(&second_columns));
        first_given[2] = None;
        first_given[3] = None;
        second_given[0] = None;
        second_given[4] = None;
        let solved = solve_both(&first_given, &second_given).unwrap();
        assert!(solved.block[..] == block[..] && solved.wrong.len() == 4);
        second_given[2] = None;
        assert!(solve_both(&first_given, &second_given).is_none());
    }
}
