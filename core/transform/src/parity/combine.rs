//! Linear combinations of columns: the one operation behind making parity and rebuilding from it.
//!
//! # Mechanism
//! `outputs[o][i] = sum over k of rows[o][k] * inputs[k][i]`, in the field of
//! [`galois`](super::galois). Columns may differ in length; what one lacks counts as zero. Because
//! the factors are the same all along a column, the row is cut where a column ends, and in each
//! piece those that reach that far are combined.
//!
//! A piece is done by an [`Implementation`], which goes through all inputs for a few hundred bytes
//! at a time, so that each byte is read once, and written once, and the sums stay in registers.
//! What does not fill a vector at the end is left to the portable one.
//!
//! One input times one is copied by none of them but by the standard library, which is the fastest
//! there.
//!
//! The portable one has no multiplication at all. Written by the bits of the factors, a product is
//! a sum of doubles: `sum of f[k] d[k] = (..(S7 * 2 + S6) * 2 + ..) * 2 + S0`, where `Sb` is the
//! sum of those inputs whose factor has bit `b`. So each output costs seven doublings, however many
//! inputs there are, and eight bytes are doubled at once in a machine word.

use super::combine_simd;
use std::sync::OnceLock;

/// At most this many outputs at once: no row has more parity.
pub(super) const OUTPUTS_MAX: usize = 3;

/// What to combine: in the bytes from `start` to `end`, each output is the sum of the inputs times
/// the factors in its row. Every input reaches `end`.
pub(super) struct Piece<'a> {
    pub(super) rows: &'a [&'a [u8]],
    pub(super) inputs: &'a [&'a [u8]],
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Piece<'_> {
    /// What every implementation may rely on, and the vector ones must, for they do not check
    /// again.
    pub(super) fn assert_in_bounds(&self, outputs: &[&mut [u8]]) {
        assert!(self.start <= self.end);
        assert!(outputs.len() <= OUTPUTS_MAX && outputs.len() == self.rows.len());
        for output in outputs {
            assert!(output.len() >= self.end);
        }
        for input in self.inputs {
            assert!(input.len() >= self.end);
        }
        for row in self.rows {
            assert!(row.len() >= self.inputs.len());
        }
    }

    /// Whether the first output is a plain sum.
    pub(super) fn first_is_sum(&self) -> bool {
        self.rows[0].iter().all(|factor| *factor == 1)
    }

    /// The input that every output is a copy of. A block of one sector has one data column, and all
    /// its parity is like it.
    fn only_input(&self) -> Option<&[u8]> {
        match self.inputs {
            [input] if self.rows.iter().all(|row| row[0] == 1) => Some(input),
            _ => None,
        }
    }
}

/// Does a piece from its start, and says where it stopped.
pub(super) type Kernel = fn(&mut [&mut [u8]], &Piece<'_>) -> usize;

/// One way to combine columns. All give the same.
#[derive(Clone, Copy)]
pub struct Implementation {
    name: &'static str,
    kernel: Kernel,
}

impl Implementation {
    /// What this processor can do, the fastest first. The last is always the portable one.
    pub fn available() -> Vec<Self> {
        let mut found: Vec<Self> = combine_simd::available()
            .into_iter()
            .map(|(name, kernel)| Self { name, kernel })
            .collect();
        found.push(Self {
            name: "portable",
            kernel: portable,
        });
        found
    }

    /// The fastest, looked up once.
    pub fn fastest() -> Self {
        static FASTEST: OnceLock<Implementation> = OnceLock::new();
        *FASTEST.get_or_init(|| Self::available()[0])
    }

    /// The instructions it is named for.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Fills each output with the combination of the inputs that its row of factors names.
    pub(super) fn combine(&self, outputs: &mut [&mut [u8]], rows: &[&[u8]], inputs: &[&[u8]]) {
        let longest = outputs.iter().map(|output| output.len()).max().unwrap_or(0);
        let mut start = 0;
        while start < longest {
            let lengths = inputs.iter().map(|input| input.len());
            let lengths = lengths.chain(outputs.iter().map(|output| output.len()));
            let end = lengths
                .filter(|length| *length > start)
                .min()
                .unwrap_or(longest);
            self.combine_piece(outputs, rows, inputs, start..end);
            start = end;
        }
    }

    /// Combines between two places where columns end.
    fn combine_piece(
        &self,
        outputs: &mut [&mut [u8]],
        rows: &[&[u8]],
        inputs: &[&[u8]],
        bytes: std::ops::Range<usize>,
    ) {
        let reaches = |length: usize| length >= bytes.end;
        let leading = inputs
            .iter()
            .take_while(|input| reaches(input.len()))
            .count();
        let all_outputs = outputs.iter().all(|output| reaches(output.len()));
        let others = inputs[leading..].iter().any(|input| reaches(input.len()));
        if all_outputs && !others {
            // The usual shapes: all columns as long, or the first ones a sector longer.
            let mut cut = [&[] as &[u8]; OUTPUTS_MAX];
            for (cut, row) in cut.iter_mut().zip(rows) {
                *cut = &row[..leading];
            }
            self.run(outputs, &cut[..rows.len()], &inputs[..leading], bytes);
        } else {
            let kept: Vec<usize> = (0..inputs.len())
                .filter(|index| reaches(inputs[*index].len()))
                .collect();
            let (mut outputs, rows): (Vec<&mut [u8]>, Vec<Vec<u8>>) = outputs
                .iter_mut()
                .zip(rows)
                .filter(|(output, _)| reaches(output.len()))
                .map(|(output, row)| {
                    (
                        &mut **output,
                        kept.iter().map(|index| row[*index]).collect(),
                    )
                })
                .unzip();
            let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
            let inputs: Vec<&[u8]> = kept.iter().map(|index| inputs[*index]).collect();
            self.run(&mut outputs, &rows, &inputs, bytes);
        }
    }

    fn run(
        &self,
        outputs: &mut [&mut [u8]],
        rows: &[&[u8]],
        inputs: &[&[u8]],
        bytes: std::ops::Range<usize>,
    ) {
        let mut piece = Piece {
            rows,
            inputs,
            start: bytes.start,
            end: bytes.end,
        };
        piece.assert_in_bounds(outputs);
        if let Some(input) = piece.only_input() {
            for output in outputs {
                output[bytes.clone()].copy_from_slice(&input[bytes.clone()]);
            }
            return;
        }
        piece.start = (self.kernel)(outputs, &piece);
        if piece.start < piece.end {
            portable(outputs, &piece);
        }
    }
}

/// Bytes the portable implementation does at a time, so that its loops over words are long enough
/// for the compiler to make vectors of them.
const STEP_BYTES: usize = 256;
const STEP_WORDS: usize = STEP_BYTES / 8;

fn portable(outputs: &mut [&mut [u8]], piece: &Piece<'_>) -> usize {
    for (output, row) in outputs.iter_mut().zip(piece.rows) {
        let mut at = piece.start;
        while at < piece.end {
            let next = piece.end.min(at + STEP_BYTES);
            let sums = combine_step(row, piece.inputs, at..next);
            for (bytes, sum) in output[at..next].chunks_mut(8).zip(sums) {
                bytes.copy_from_slice(&sum.to_le_bytes()[..bytes.len()]);
            }
            at = next;
        }
    }
    piece.end
}

fn combine_step(row: &[u8], inputs: &[&[u8]], bytes: std::ops::Range<usize>) -> [u64; STEP_WORDS] {
    let mut sums = [0_u64; STEP_WORDS];
    let used = row.iter().fold(0, |bits, factor| bits | factor);
    for bit in (0..u8::BITS - used.leading_zeros()).rev() {
        for sum in &mut sums {
            *sum = double_eight(*sum);
        }
        for (input, factor) in inputs.iter().zip(row) {
            if factor & (1 << bit) != 0 {
                add(&mut sums, &input[bytes.clone()]);
            }
        }
    }
    sums
}

fn add(sums: &mut [u64; STEP_WORDS], input: &[u8]) {
    let (words, rest) = input.as_chunks::<8>();
    for (sum, word) in sums.iter_mut().zip(words) {
        *sum ^= u64::from_le_bytes(*word);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        sums[words.len()] ^= u64::from_le_bytes(last);
    }
}

/// Doubles eight elements at once. The bits shifted out of each, as 1 or 0, are spread to the
/// modulus 0x1d, which has bits 4, 3, 2 and 0.
const fn double_eight(elements: u64) -> u64 {
    let carries = (elements >> 7) & 0x0101_0101_0101_0101;
    let shifted = (elements << 1) & 0xfefe_fefe_fefe_fefe;
    shifted ^ (carries << 4) ^ (carries << 3) ^ (carries << 2) ^ carries
}

#[cfg(test)]
mod tests {
    use super::super::galois;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn doubling_eight_is_doubling_each() {
        for element in 0..=255_u8 {
            let eight = double_eight(u64::from_le_bytes([element; 8]));
            assert_eq!(eight.to_le_bytes(), [galois::double(element); 8]);
        }
    }

    /// The definition, byte by byte.
    fn expected(row: &[u8], inputs: &[Vec<u8>], size: usize) -> Vec<u8> {
        (0..size)
            .map(|at| {
                inputs.iter().zip(row).fold(0, |sum, (input, factor)| {
                    sum ^ galois::multiply(*factor, input.get(at).copied().unwrap_or(0))
                })
            })
            .collect()
    }

    proptest! {
        #[test]
        fn every_implementation_gives_what_the_definition_does(
            inputs in proptest::collection::vec(
                proptest::collection::vec(any::<u8>(), 0..1500), 1..7,
            ),
            factors in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 7), 1..4),
            first_is_sum in any::<bool>(),
            sizes in proptest::collection::vec(0_usize..1700, 3),
        ) {
            let mut factors = factors;
            if first_is_sum {
                factors[0].fill(1);
            }
            let rows: Vec<&[u8]> = factors.iter().map(|row| &row[..inputs.len()]).collect();
            let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
            for implementation in Implementation::available() {
                let mut outputs: Vec<Vec<u8>> =
                    rows.iter().zip(&sizes).map(|(_, size)| vec![0xee; *size]).collect();
                let mut places: Vec<&mut [u8]> =
                    outputs.iter_mut().map(Vec::as_mut_slice).collect();
                implementation.combine(&mut places, &rows, &slices);
                for (output, row) in outputs.iter().zip(&rows) {
                    prop_assert_eq!(
                        output, &expected(row, &inputs, output.len()), "{}", implementation.name()
                    );
                }
            }
        }
    }
}
