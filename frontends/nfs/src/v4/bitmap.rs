//! Sets of attributes (`bitmap4`).

use crate::xdr::{Malformed, Reader, Writer};

/// Words that are looked at: attributes of the protocol have numbers below 96.
const WORDS: usize = 3;
/// Words that a client may send. A guess: room for numbers that later versions give.
const SENT_WORDS_MAX: u32 = 64;

/// A set of numbers of attributes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Bitmap {
    words: [u32; WORDS],
    /// An attribute with a number that no attribute has.
    has_unknown: bool,
}

impl Bitmap {
    /// The set of these numbers.
    pub(crate) const fn of(numbers: &[u32]) -> Bitmap {
        let mut words = [0; WORDS];
        let mut at = 0;
        while at < numbers.len() {
            words[(numbers[at] / 32) as usize] |= 1 << (numbers[at] % 32);
            at += 1;
        }
        Bitmap {
            words,
            has_unknown: false,
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Bitmap, Malformed> {
        let count = reader.u32()?;
        if count > SENT_WORDS_MAX {
            return Err(Malformed);
        }
        let mut set = Bitmap::default();
        for at in 0..count {
            let word = reader.u32()?;
            match usize::try_from(at).ok().filter(|at| *at < WORDS) {
                Some(at) => set.words[at] = word,
                None => set.has_unknown |= word != 0,
            }
        }
        Ok(set)
    }

    pub(crate) fn put(&self, out: &mut Writer) {
        let used = self.words.iter().rposition(|word| *word != 0);
        let used = used.map_or(0, |last| last + 1);
        out.u32(u32::try_from(used).expect("there are three words"));
        for word in &self.words[..used] {
            out.u32(*word);
        }
    }

    pub(crate) fn has(&self, number: u32) -> bool {
        self.words[usize::try_from(number / 32).expect("a small number")] & 1 << (number % 32) != 0
    }

    pub(crate) fn add(&mut self, number: u32) {
        self.words[usize::try_from(number / 32).expect("a small number")] |= 1 << (number % 32);
    }

    /// The numbers that both sets have.
    pub(crate) fn and(&self, other: &Bitmap) -> Bitmap {
        Bitmap {
            words: std::array::from_fn(|at| self.words[at] & other.words[at]),
            has_unknown: false,
        }
    }

    /// Whether this set has nothing that the other lacks.
    pub(crate) fn is_within(&self, other: &Bitmap) -> bool {
        !self.has_unknown && self.and(other).words == self.words
    }

    /// The numbers, in their order.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        (0..96).filter(|number| self.has(*number))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words == [0; WORDS] && !self.has_unknown
    }
}
