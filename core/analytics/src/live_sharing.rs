//! What live instrumentations share of a batch.
//!
//! # Mechanism
//! Many instrumentations ask the same of a batch: which of its operations are of NFS, what their
//! causes were, in which buckets of a histogram their latencies fall, in which second they ended.
//! Each of that is found once for a batch, and only when an instrumentation has operations in it.
//! What an instrumentation takes besides is a look at its table of keys and a count.
//!
//! # Invariants
//! - The seconds of a batch have each of its operations once.

use crate::breakdown::{Breakdown, KEY_WORDS_MAX};
use crate::column_batch::{BATCH_RECORDS, Batch, Column, ColumnSet, Mask, Numbers};
use crate::compiled::CompiledPredicate;
use crate::field::Field;
use crate::tally::bucket_number;

const SECOND_NS: u64 = 1_000_000_000;

/// What all instrumentations ask of a batch, each once; and what was found of the batch at hand.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    wanted: ColumnSet,
    predicates: Vec<CompiledPredicate>,
    masks: Vec<Mask>,
    /// Fields whose values are made of others.
    made: Vec<Found<Field, Numbers>>,
    bucketed: Vec<Found<Column, [u16; BATCH_RECORDS]>>,
    /// What is added to times before they are cut into seconds.
    shifts_ns: Vec<u64>,
    seconds: Vec<Vec<(u64, Mask)>>,
}

/// Something that is found of a batch when it is first asked for.
#[derive(Debug)]
struct Found<A, N> {
    asked: A,
    is_found: bool,
    numbers: Box<N>,
}

/// What one instrumentation asks of a batch, by places in what all ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    predicate: usize,
    words: Vec<Word>,
    /// The column whose buckets are counted.
    bucketed: Option<(Column, usize)>,
    weight: Option<Column>,
    shift: usize,
}

/// Where a word of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Column(Column),
    Made(usize),
}

/// What is counted of the operations of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'b> {
    /// The words of keys; those that a key does not have are zero.
    pub(crate) words: [&'b Numbers; KEY_WORDS_MAX],
    /// None: each operation is one.
    pub(crate) weights: Option<&'b Numbers>,
    /// Numbers with their buckets.
    pub(crate) bucketed: Option<(&'b Numbers, &'b [u16; BATCH_RECORDS])>,
}

static ZEROS: Numbers = [0; BATCH_RECORDS];

impl Sharing {
    /// Joins what an instrumentation asks with what others do.
    pub(crate) fn join(
        &mut self,
        predicate: &CompiledPredicate,
        breakdown: &Breakdown,
        shift_ns: u64,
    ) -> Shares {
        let columns = predicate.columns().and(breakdown.columns());
        self.wanted = self.wanted.and(columns).with(Column::Ended);
        let words = breakdown.by().iter().flat_map(|field| {
            let dataset = (*field == Field::File).then_some(Word::Column(Column::Dataset));
            let word = match field.plain_column() {
                Some(column) => Word::Column(column),
                None => Word::Made(place_in(&mut self.made, *field, [0; BATCH_RECORDS])),
            };
            dataset.into_iter().chain([word])
        });
        let words = words.collect();
        let bucketed = breakdown.numeric().map(|field| {
            let column = field.column();
            let place = place_in(&mut self.bucketed, column, [0; BATCH_RECORDS]);
            (column, place)
        });
        Shares {
            predicate: place_of(&mut self.predicates, predicate),
            words,
            bucketed,
            weight: breakdown.weight_column(),
            shift: place_of(&mut self.shifts_ns, &shift_ns),
        }
    }

    /// The columns that a batch must have.
    pub(crate) fn wanted(&self) -> ColumnSet {
        self.wanted
    }

    /// Begins with another batch.
    pub(crate) fn begin(&mut self, batch: &Batch) {
        let all = Mask::first(batch.len());
        let masks = self
            .predicates
            .iter()
            .map(|predicate| predicate.mask(batch, all));
        self.masks.clear();
        self.masks.extend(masks);
        self.made.iter_mut().for_each(|made| made.is_found = false);
        let bucketed = self.bucketed.iter_mut();
        bucketed.for_each(|bucketed| bucketed.is_found = false);
        let shifts_ns = self.shifts_ns.iter();
        self.seconds.clear();
        self.seconds
            .extend(shifts_ns.map(|shift_ns| seconds_of(batch, *shift_ns)));
    }

    /// Which operations of the batch an instrumentation counts.
    pub(crate) fn meant(&self, shares: &Shares) -> Mask {
        self.masks[shares.predicate]
    }

    /// The seconds in which operations of the batch ended.
    pub(crate) fn seconds(&self, shares: &Shares) -> &[(u64, Mask)] {
        &self.seconds[shares.shift]
    }

    /// Finds what an instrumentation asks for and no other did before.
    pub(crate) fn find(&mut self, shares: &Shares, batch: &Batch) {
        for word in &shares.words {
            if let Word::Made(place) = word {
                let made = &mut self.made[*place];
                if !made.is_found {
                    made.asked.fill_numbers(batch, &mut made.numbers);
                    made.is_found = true;
                }
            }
        }
        if let Some((column, place)) = shares.bucketed {
            let bucketed = &mut self.bucketed[place];
            if !bucketed.is_found {
                let numbers = &batch.numbers(column)[..batch.len()];
                for (bucket, number) in bucketed.numbers.iter_mut().zip(numbers) {
                    *bucket = bucket_number(*number);
                }
                bucketed.is_found = true;
            }
        }
    }

    /// What was found of the batch for an instrumentation.
    pub(crate) fn asked<'b>(&'b self, shares: &Shares, batch: &'b Batch) -> Asked<'b> {
        let mut words = [&ZEROS; KEY_WORDS_MAX];
        for (place, word) in words.iter_mut().zip(&shares.words) {
            *place = match word {
                Word::Column(column) => batch.numbers(*column),
                Word::Made(made) => &self.made[*made].numbers,
            };
        }
        let bucketed = shares.bucketed;
        Asked {
            words,
            weights: shares.weight.map(|column| batch.numbers(column)),
            bucketed: bucketed
                .map(|(column, place)| (batch.numbers(column), &*self.bucketed[place].numbers)),
        }
    }
}

fn place_of<T: Clone + PartialEq>(all: &mut Vec<T>, one: &T) -> usize {
    all.iter()
        .position(|known| known == one)
        .unwrap_or_else(|| {
            all.push(one.clone());
            all.len() - 1
        })
}

fn place_in<A: PartialEq, N>(all: &mut Vec<Found<A, N>>, asked: A, numbers: N) -> usize {
    let known = all.iter().position(|known| known.asked == asked);
    known.unwrap_or_else(|| {
        all.push(Found {
            asked,
            is_found: false,
            numbers: Box::new(numbers),
        });
        all.len() - 1
    })
}

/// The seconds in which the operations of a batch ended. Most batches have one.
fn seconds_of(batch: &Batch, shift_ns: u64) -> Vec<(u64, Mask)> {
    let ended = &batch.numbers(Column::Ended)[..batch.len()];
    let second = |ended_ns: &u64| ended_ns.saturating_add(shift_ns) / SECOND_NS;
    let least = ended.iter().min().map(second);
    let most = ended.iter().max().map(second);
    let mut rest = Mask::first(batch.len());
    if let (Some(least), true) = (least, least == most) {
        return vec![(least, rest)];
    }
    let mut numbers = [0; BATCH_RECORDS];
    for (number, ended_ns) in numbers.iter_mut().zip(ended) {
        *number = second(ended_ns);
    }
    let mut seconds = Vec::new();
    while let Some((first, _)) = rest.bounds() {
        let number = numbers[first];
        let of_second = Mask::of(|place| numbers[place] == number).and(rest);
        rest = rest.and(of_second.inverted());
        seconds.push((number, of_second));
    }
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_host::sim::Random;

    #[test]
    fn the_seconds_of_a_batch_have_each_operation_once() {
        let mut random = Random::new(4);
        for spread_ns in [1, 400_000_000, 3 * SECOND_NS, 900 * SECOND_NS] {
            for shift_ns in [0, 123_456_789] {
                let mut batch = Batch::new();
                let length = random.index(BATCH_RECORDS) + 1;
                batch.set_length(length);
                let ended = &mut batch.numbers_mut(Column::Ended)[..length];
                ended.fill_with(|| 7 * SECOND_NS + random.below(spread_ns));
                let ended = batch.numbers(Column::Ended);
                let mut found = vec![None; length];
                for (second, mask) in seconds_of(&batch, shift_ns) {
                    mask.for_each(|place| assert_eq!(found[place].replace(second), None));
                }
                for (place, second) in found.into_iter().enumerate() {
                    assert_eq!(second, Some((ended[place] + shift_ns) / SECOND_NS));
                }
            }
        }
        assert_eq!(seconds_of(&Batch::new(), 5), []);
    }

    #[test]
    fn instrumentations_that_ask_the_same_share_it() {
        let mut sharing = Sharing::default();
        let mut join = |text: &str| {
            let statement = crate::Statement::parse(text).unwrap();
            let predicate = statement
                .predicate
                .compile(&crate::ValueNames::new())
                .unwrap();
            sharing.join(&predicate, &statement.breakdown(), 0)
        };
        let (one, other) = (
            join("nfs.ops[cause]:latency"),
            join("nfs.wait[cause]:latency"),
        );
        assert_eq!(one.predicate, other.predicate);
        assert_eq!((&one.words, one.bucketed), (&other.words, other.bucketed));
        assert_eq!((one.weight, other.weight), (None, Some(Column::Latency)));
        assert_ne!(join("iscsi.ops[cause]:size").bucketed, one.bucketed);
        assert_eq!(sharing.predicates.len(), 2);
        assert!(sharing.wanted().has(Column::Ended) && !sharing.wanted().has(Column::Offset));
    }
}
