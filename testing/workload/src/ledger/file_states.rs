//! Which states one file may have, between what was promised and what may be there.

use std::rc::Rc;

use super::call::{Call, Contents, change};
use super::guess::Guess;
use super::history::FileNumber;

/// Where writes may be cut.
const PAGE_BYTES: usize = 4096;

impl Guess<'_> {
    /// Whether a file may be what was found, with enough of its calls and not too many.
    pub(super) fn may_be(&mut self, number: FileNumber, path: &str, found: &Contents) -> bool {
        let own = self.own.clone();
        let own = own.get(&number).map_or(&[][..], Vec::as_slice);
        let promised = self.limits.promised.get(&number).copied().unwrap_or(0);
        let least = own.partition_point(|index| *index < self.moment.max(promised));
        let most = own.partition_point(|index| *index < self.moment.max(self.limits.names));
        let key = (number, path.to_string());
        let matching = match self.matching.get(&key) {
            Some(matching) => matching.clone(),
            None => {
                let matching = Rc::new(self.matching_counts(number, own, found));
                self.matching.insert(key, matching.clone());
                matching
            }
        };
        let is_whole = matching.iter().any(|count| (least..=most).contains(count));
        is_whole
            || self.is_cut(number, own, found)
            || self.limits.partly.contains(&number)
                && self.is_mixed(number, &own[..most], least, found)
    }

    /// Whether it is the file at the moment, when one of its writes was half done.
    fn is_cut(&self, number: FileNumber, own: &[usize], found: &Contents) -> bool {
        let Some(Call::Write { path, at, bytes }) = self.calls.get(self.moment) else {
            return false;
        };
        let promised = self.limits.promised.get(&number).copied().unwrap_or(0);
        if self.history.file[self.moment] != Some(number) || self.moment < promised {
            return false;
        }
        let mut before = (*self.first[&number]).clone();
        for index in own.iter().take_while(|index| **index < self.moment) {
            change(&mut before, &self.calls[*index]);
        }
        let first_cut = (at + 1).next_multiple_of(PAGE_BYTES);
        (first_cut..at + bytes.len())
            .step_by(PAGE_BYTES)
            .any(|cut| {
                let mut contents = before.clone();
                let part = Call::Write {
                    path: path.clone(),
                    at: *at,
                    bytes: bytes[..cut - at].to_vec(),
                };
                change(&mut contents, &part);
                contents == *found
            })
    }

    /// Whether each byte of a file is one that it had after `least` of these calls or later.
    fn is_mixed(&self, number: FileNumber, own: &[usize], least: usize, found: &Contents) -> bool {
        let mut contents = (*self.first[&number]).clone();
        let mut is_right = vec![false; found.bytes.len()];
        let (mut sizes, mut modes, mut attributes) = (false, false, false);
        for count in 0..=own.len() {
            if count > 0 {
                change(&mut contents, &self.calls[own[count - 1]]);
            }
            if count < least {
                continue;
            }
            sizes |= contents.bytes.len() == found.bytes.len();
            modes |= contents.mode == found.mode;
            attributes |= contents.attribute == found.attribute;
            for (at, is_right) in is_right.iter_mut().enumerate() {
                let byte = contents.bytes.get(at).copied().unwrap_or(0);
                *is_right |= byte == found.bytes[at];
            }
        }
        sizes && modes && attributes && is_right.into_iter().all(|is_right| is_right)
    }

    /// After how many of its calls a file is this.
    fn matching_counts(&self, number: FileNumber, own: &[usize], found: &Contents) -> Vec<usize> {
        let mut contents = (*self.first[&number]).clone();
        let mut counts = Vec::new();
        if contents == *found {
            counts.push(0);
        }
        for (count, index) in own.iter().enumerate() {
            change(&mut contents, &self.calls[*index]);
            if contents == *found {
                counts.push(count + 1);
            }
        }
        counts
    }
}
