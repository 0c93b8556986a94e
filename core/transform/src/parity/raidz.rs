//! The factors of RAID-Z: what to multiply the columns of a row with, to make its parity and to
//! rebuild what is missing.
//!
//! # Mechanism
//! A missing data column appears in each parity that is left. Of those we take as many as data
//! columns are missing, write them as equations in the missing columns, and invert that little
//! matrix (Gauss and Jordan, at most three by three). Put back into each other, the equations give
//! every missing column, parity included, as a combination of columns that are there; so one pass
//! over the row rebuilds all of them.
//!
//! # Invariants
//! - The matrix can always be inverted: its columns are (1, x, x^2) for different powers x of two,
//!   some lines left out, and no two of the first 255 powers, nor of their squares, are equal.

use super::combine::Implementation;
use super::galois;
use crate::error::ParityError;

/// The most parity columns a row can have.
#[doc(alias = "VDEV_RAIDZ_MAXPARITY")]
pub const PARITY_MAX: usize = 3;

/// The most data columns a row can have: then the powers of two repeat.
pub const COLUMNS_MAX: usize = 255;

/// The factors for a row of the greatest width. Those of a narrower one are the last of these.
static FACTORS: [[u8; COLUMNS_MAX]; PARITY_MAX] = [factors(0), factors(1), factors(2)];

/// Powers, from the highest down to 1, of the number that is doubled as often as `parity` says.
const fn factors(parity: usize) -> [u8; COLUMNS_MAX] {
    let mut row = [1; COLUMNS_MAX];
    let mut index = COLUMNS_MAX - 1;
    while index > 0 {
        let mut factor = row[index];
        let mut doublings = 0;
        while doublings < parity {
            factor = galois::double(factor);
            doublings += 1;
        }
        row[index - 1] = factor;
        index -= 1;
    }
    row
}

/// The factor of each data column in a parity (0 for P, 1 for Q, 2 for R).
fn row_factors(parity: usize, data_columns: usize) -> &'static [u8] {
    &FACTORS[parity][COLUMNS_MAX - data_columns..]
}

/// Makes the parity of a row: P, then Q, then R, as many as there are `parity` columns. Data
/// columns may be of different lengths; each parity is filled to its end.
///
/// # Panics
/// For more than three parities, or more than [`COLUMNS_MAX`] data columns: no vdev is that wide.
pub fn generate(data: &[&[u8]], parity: &mut [&mut [u8]]) {
    generate_with(&Implementation::fastest(), data, parity);
}

/// [`generate`] by a given implementation.
///
/// # Panics
/// As [`generate`].
pub fn generate_with(implementation: &Implementation, data: &[&[u8]], parity: &mut [&mut [u8]]) {
    assert!(
        parity.len() <= PARITY_MAX,
        "a row has at most three parity columns"
    );
    assert!(
        data.len() <= COLUMNS_MAX,
        "a row has at most 255 data columns"
    );
    let rows = [0, 1, 2].map(|index| row_factors(index, data.len()));
    let (rows, _) = rows.split_at(parity.len());
    implementation.combine(parity, rows, data);
}

/// Rebuilds missing columns of a row.
///
/// `columns` are those of the row as it is laid out: `parity_count` parity columns, then the data.
/// What stands at the places that are `missing` is not looked at and may be empty, or what a device
/// gave and is in doubt. Each is rebuilt into the output of the same position, whose length is the
/// column's own; one that need not be rebuilt, such as parity that is not read, is given an output
/// of no length. Both parity and data columns may be missing, together no more than there are
/// parity columns.
///
/// # Panics
/// When there are not as many `outputs` as `missing`, or a place is missing twice or outside the
/// row.
pub fn reconstruct(
    parity_count: usize,
    columns: &[&[u8]],
    missing: &[usize],
    outputs: &mut [&mut [u8]],
) -> Result<(), ParityError> {
    reconstruct_with(
        &Implementation::fastest(),
        parity_count,
        columns,
        missing,
        outputs,
    )
}

/// [`reconstruct`] by a given implementation.
///
/// # Panics
/// As [`reconstruct`].
pub fn reconstruct_with(
    implementation: &Implementation,
    parity_count: usize,
    columns: &[&[u8]],
    missing: &[usize],
    outputs: &mut [&mut [u8]],
) -> Result<(), ParityError> {
    assert!(
        (1..=PARITY_MAX).contains(&parity_count),
        "a row has one to three parity columns"
    );
    assert_eq!(
        missing.len(),
        outputs.len(),
        "each missing column needs a place to be rebuilt in"
    );
    if missing.len() > parity_count {
        return Err(ParityError::TooManyMissing {
            missing: missing.len(),
            parity: parity_count,
        });
    }
    let data_columns = columns.len().saturating_sub(parity_count);
    if data_columns > COLUMNS_MAX {
        return Err(ParityError::TooWide {
            columns: data_columns,
            max: COLUMNS_MAX,
        });
    }
    let plan = Plan::new(parity_count, columns.len(), missing);
    let inputs: Vec<&[u8]> = plan.inputs.iter().map(|column| columns[*column]).collect();
    let rows: Vec<&[u8]> = plan.rows.iter().map(Vec::as_slice).collect();
    implementation.combine(outputs, &rows, &inputs);
    Ok(())
}

/// Which columns of a row to read, and with what factors each missing one is made of them.
struct Plan {
    inputs: Vec<usize>,
    rows: Vec<Vec<u8>>,
}

impl Plan {
    fn new(parity_count: usize, column_count: usize, missing: &[usize]) -> Self {
        for (position, column) in missing.iter().enumerate() {
            assert!(*column < column_count, "a missing column is one of the row");
            assert!(
                !missing[..position].contains(column),
                "a column is missing once"
            );
        }
        let is_missing = |column: &usize| missing.contains(column);
        let lost: Vec<usize> = missing
            .iter()
            .filter(|column| **column >= parity_count)
            .copied()
            .collect();
        let left = (parity_count..column_count).filter(|column| !is_missing(column));
        let used = (0..parity_count)
            .filter(|column| !is_missing(column))
            .take(lost.len());
        let used: Vec<usize> = used.collect();
        let inputs: Vec<usize> = used.iter().copied().chain(left).collect();

        let data_columns = column_count - parity_count;
        let factor =
            |parity: usize, column: usize| row_factors(parity, data_columns)[column - parity_count];
        // What an input adds to the equation of a parity, all but the missing columns brought to
        // one side.
        let in_equation = |parity: usize, input: usize| {
            if input >= parity_count {
                factor(parity, input)
            } else {
                u8::from(parity == input)
            }
        };
        let solution = Matrix::of(&used, &lost, factor).inverse();
        let lost_row = |index: usize| -> Vec<u8> {
            let terms = |input: &usize| {
                used.iter().enumerate().fold(0, |sum, (equation, parity)| {
                    let known = in_equation(*parity, *input);
                    sum ^ galois::multiply(solution.0[index][equation], known)
                })
            };
            inputs.iter().map(terms).collect()
        };
        let lost_rows: Vec<Vec<u8>> = (0..lost.len()).map(lost_row).collect();
        let parity_row = |parity: usize| -> Vec<u8> {
            let direct = |input: &usize| {
                if *input >= parity_count {
                    factor(parity, *input)
                } else {
                    0
                }
            };
            let mut row: Vec<u8> = inputs.iter().map(direct).collect();
            for (column, lost_row) in lost.iter().zip(&lost_rows) {
                for (sum, term) in row.iter_mut().zip(lost_row) {
                    *sum ^= galois::multiply(factor(parity, *column), *term);
                }
            }
            row
        };
        let rows = missing
            .iter()
            .map(|column| match lost.iter().position(|lost| lost == column) {
                Some(index) => lost_rows[index].clone(),
                None => parity_row(*column),
            })
            .collect();
        Self { inputs, rows }
    }
}

/// A square matrix over the field, of up to three lines. Lines and columns beyond its size are
/// those of the unit matrix, so that all are three by three.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Matrix([[u8; PARITY_MAX]; PARITY_MAX]);

impl Matrix {
    const UNIT: Self = Self([[1, 0, 0], [0, 1, 0], [0, 0, 1]]);

    /// The factors of the lost columns in the parities used.
    fn of(used: &[usize], lost: &[usize], factor: impl Fn(usize, usize) -> u8) -> Self {
        let mut matrix = Self::UNIT;
        for (line, parity) in matrix.0.iter_mut().zip(used) {
            for (place, column) in line.iter_mut().zip(lost) {
                *place = factor(*parity, *column);
            }
        }
        matrix
    }

    /// Turns this matrix into the unit matrix line by line, and the unit matrix into its inverse by
    /// the same steps.
    fn inverse(mut self) -> Self {
        let mut inverse = Self::UNIT;
        for pivot in 0..PARITY_MAX {
            let line = (pivot..PARITY_MAX).find(|line| self.0[*line][pivot] != 0);
            let line = line.expect("the factors of different columns are independent");
            self.0.swap(pivot, line);
            inverse.0.swap(pivot, line);
            let scale = galois::inverse(self.0[pivot][pivot]);
            for matrix in [&mut self, &mut inverse] {
                matrix.0[pivot] = matrix.0[pivot].map(|element| galois::multiply(element, scale));
            }
            for other in (0..PARITY_MAX).filter(|other| *other != pivot) {
                let scale = self.0[other][pivot];
                for matrix in [&mut self, &mut inverse] {
                    let source = matrix.0[pivot];
                    for (element, source) in matrix.0[other].iter_mut().zip(source) {
                        *element ^= galois::multiply(source, scale);
                    }
                }
            }
        }
        inverse
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn noise(seed: u64, size: usize) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        (0..size)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()[2]
            })
            .collect()
    }

    /// A row with its parity in front; the data columns from `short_from` on are a sector shorter.
    fn row(
        parity_count: usize,
        data_columns: usize,
        size: usize,
        short_from: usize,
    ) -> Vec<Vec<u8>> {
        let data: Vec<Vec<u8>> = (0..data_columns)
            .map(|column| {
                let size = if column >= short_from {
                    size.saturating_sub(512)
                } else {
                    size
                };
                noise(u64::try_from(column).unwrap() + 1, size)
            })
            .collect();
        let mut parity = vec![vec![0xee; size]; parity_count];
        let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut places: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        generate(&slices, &mut places);
        parity.extend(data);
        parity
    }

    fn rebuilt(parity_count: usize, row: &[Vec<u8>], missing: &[usize]) -> Vec<Vec<u8>> {
        let columns: Vec<&[u8]> = row
            .iter()
            .enumerate()
            .map(|(index, column)| {
                if missing.contains(&index) {
                    &[]
                } else {
                    column.as_slice()
                }
            })
            .collect();
        let mut outputs: Vec<Vec<u8>> = missing
            .iter()
            .map(|column| vec![0x55; row[*column].len()])
            .collect();
        let mut places: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        reconstruct(parity_count, &columns, missing, &mut places).unwrap();
        outputs
    }

    fn check(parity_count: usize, row: &[Vec<u8>], missing: &[usize]) {
        let outputs = rebuilt(parity_count, row, missing);
        for (column, output) in missing.iter().zip(&outputs) {
            assert!(*output == row[*column], "column {column} of {missing:?}");
        }
    }

    #[test]
    fn parity_is_what_the_formulas_say() {
        let columns = [[1_u8, 0x80], [2, 0x40], [4, 7]];
        let slices: Vec<&[u8]> = columns.iter().map(|column| column.as_slice()).collect();
        let mut parity = [[0_u8; 2]; 3];
        let [p, q, r] = &mut parity;
        generate(&slices, &mut [p, q, r]);
        // Q doubles what it has before it takes in the next column, and R does so twice.
        let horner = |doublings: u32, at: usize| {
            columns.iter().fold(0_u8, |sum, column| {
                (0..doublings).fold(sum, |sum, _| galois::double(sum)) ^ column[at]
            })
        };
        for (index, doublings) in [0, 1, 2].into_iter().enumerate() {
            assert_eq!(parity[index], [horner(doublings, 0), horner(doublings, 1)]);
        }
    }

    #[test]
    fn any_columns_may_be_missing_up_to_the_parity() {
        for parity_count in 1..=PARITY_MAX {
            for data_columns in [1, 2, 3, 6] {
                for short_from in [data_columns, data_columns / 2] {
                    let row = row(parity_count, data_columns, 1536, short_from);
                    let all = row.len();
                    for a in 0..all {
                        check(parity_count, &row, &[a]);
                        for b in (0..all).filter(|b| parity_count >= 2 && *b != a) {
                            check(parity_count, &row, &[a, b]);
                            for c in (0..all).filter(|c| parity_count >= 3 && *c != a && *c != b) {
                                check(parity_count, &row, &[a, b, c]);
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_missing_needs_nothing() {
        let row = row(2, 3, 512, 3);
        assert!(rebuilt(2, &row, &[]).is_empty());
    }

    #[test]
    fn more_missing_than_parity_is_refused() {
        let verdict = reconstruct(1, &[&[0], &[0], &[0]], &[0, 1], &mut [&mut [0], &mut [0]]);
        assert_eq!(
            verdict,
            Err(ParityError::TooManyMissing {
                missing: 2,
                parity: 1
            })
        );
    }

    /// Three columns of the widest row can be told apart wherever they are.
    #[test]
    fn the_widest_row_can_be_rebuilt() {
        let row = row(3, COLUMNS_MAX, 64, COLUMNS_MAX);
        for missing in [
            [3, 4, 257],
            [3, 100, 200],
            [255, 256, 257],
            [0, 3, 257],
            [0, 1, 130],
        ] {
            check(3, &row, &missing);
        }
    }

    /// All pairs and triples of columns: every matrix that can come up has an inverse.
    #[test]
    fn every_set_of_equations_can_be_solved() {
        let factor = |parity: usize, column: usize| row_factors(parity, COLUMNS_MAX)[column];
        for a in 0..COLUMNS_MAX {
            for b in 0..a {
                for used in [[0, 1], [0, 2], [1, 2]] {
                    let _ = Matrix::of(&used, &[a, b], factor).inverse();
                }
                for c in (0..b).step_by(7) {
                    let _ = Matrix::of(&[0, 1, 2], &[a, b, c], factor).inverse();
                }
            }
        }
    }

    proptest! {
        #[test]
        fn rows_of_any_shape_come_back_in_every_implementation(
            parity_count in 1_usize..=3,
            sizes in proptest::collection::vec(0_usize..1200, 1..9),
            picks in proptest::collection::vec(any::<prop::sample::Index>(), 3),
        ) {
            let longest = sizes.iter().copied().max().unwrap_or(0);
            let data: Vec<Vec<u8>> = sizes.iter().map(|size| noise(7 + u64::try_from(*size).unwrap(), *size)).collect();
            let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            for implementation in Implementation::available() {
                let mut row = vec![vec![0xee; longest]; parity_count];
                let mut places: Vec<&mut [u8]> = row.iter_mut().map(Vec::as_mut_slice).collect();
                generate_with(&implementation, &slices, &mut places);
                row.extend(data.iter().cloned());
                let mut missing: Vec<usize> = Vec::new();
                for pick in picks.iter().take(parity_count) {
                    let column = pick.index(row.len());
                    if !missing.contains(&column) {
                        missing.push(column);
                    }
                }
                let columns: Vec<&[u8]> = row.iter().map(Vec::as_slice).collect();
                let mut outputs: Vec<Vec<u8>> =
                    missing.iter().map(|column| vec![0x55; row[*column].len()]).collect();
                let mut places: Vec<&mut [u8]> =
                    outputs.iter_mut().map(Vec::as_mut_slice).collect();
                reconstruct_with(&implementation, parity_count, &columns, &missing, &mut places)
                    .unwrap();
                for (column, output) in missing.iter().zip(&outputs) {
                    prop_assert_eq!(output, &row[*column], "{}", implementation.name());
                }
            }
        }
    }
}
