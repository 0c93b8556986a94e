//! The pool's error log: blocks that could not be read from any copy.
//!
//! # Mechanism
//! The log is two ZAPs, one of the errors found since the last scrub began, one of those that are
//! being found by the scrub that runs. A name is the place of a block, its value is nothing (a
//! string with only its final zero).
//!
//! Names are hexadecimal numbers without a prefix, joined by colons:
//!
//! ```text
//!   dataset:object:level:block               without the feature head_errlog
//!   object:level:block:birth                 with it
//! ```
//!
//! With the feature each of the ZAPs leads from the object of a dataset, in hexadecimal, to
//! another ZAP with the errors of that dataset. The birth tells whether the block was rewritten
//! since, and which snapshots have it.

use crate::declare::Corrupt;
use crate::units::{BlockId, ObjectId, Txg};
use std::fmt;

const WHAT: &str = "error log";

/// The place of a block in a pool.
#[doc(alias = "zbookmark_phys_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorPlace {
    /// The dataset; 0 is the MOS.
    pub dataset: ObjectId,
    /// The object.
    pub object: ObjectId,
    /// The height in its tree; negative for what has no object.
    pub level: i64,
    /// The block of that level.
    pub block: BlockId,
}

/// The place of a block in a dataset, and when it was written.
#[doc(alias = "zbookmark_err_phys_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeadErrorPlace {
    /// The object.
    pub object: ObjectId,
    /// The height in its tree; negative for what has no object.
    pub level: i64,
    /// The block of that level.
    pub block: BlockId,
    /// The txg in which it was written.
    pub birth: Txg,
}

impl ErrorPlace {
    /// From a name in the log.
    #[doc(alias = "name_to_bookmark")]
    pub fn from_name(name: &[u8]) -> Result<ErrorPlace, Corrupt> {
        let [dataset, object, level, block] = numbers(name)?;
        Ok(ErrorPlace {
            dataset: ObjectId::new(dataset),
            object: ObjectId::new(object),
            level: level.cast_signed(),
            block: BlockId::new(block),
        })
    }
}

/// As a name in the log.
impl fmt::Display for ErrorPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:x}:{:x}:{:x}:{:x}",
            self.dataset, self.object, self.level, self.block
        )
    }
}

impl HeadErrorPlace {
    /// From a name in the log of a dataset.
    #[doc(alias = "name_to_errphys")]
    pub fn from_name(name: &[u8]) -> Result<HeadErrorPlace, Corrupt> {
        let [object, level, block, birth] = numbers(name)?;
        Ok(HeadErrorPlace {
            object: ObjectId::new(object),
            level: level.cast_signed(),
            block: BlockId::new(block),
            birth: Txg::new(birth),
        })
    }

    /// The place in the pool, of a block in this dataset.
    pub fn in_dataset(self, dataset: ObjectId) -> ErrorPlace {
        ErrorPlace {
            dataset,
            object: self.object,
            level: self.level,
            block: self.block,
        }
    }
}

/// As a name in the log of a dataset.
impl fmt::Display for HeadErrorPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:x}:{:x}:{:x}:{:x}",
            self.object, self.level, self.block, self.birth
        )
    }
}

/// The numbers in a name: one more than there are colons.
fn numbers<const N: usize>(name: &[u8]) -> Result<[u64; N], Corrupt> {
    let bad = || Corrupt::Inconsistent {
        what: WHAT,
        offset: 0,
        why: "a name is not a place",
    };
    let text = std::str::from_utf8(name).map_err(|_| bad())?;
    let number = |part: &str| match part.as_bytes() {
        [b'0'..=b'9' | b'a'..=b'f', ..] => u64::from_str_radix(part, 16).ok(),
        _ => None,
    };
    let numbers: Option<Vec<u64>> = text.split(':').map(number).collect();
    numbers
        .and_then(|numbers| numbers.try_into().ok())
        .ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_place_survives_as_a_name() {
        let place = ErrorPlace::from_name(b"10c:2:0:1f").expect("it is a place");
        assert_eq!(place.dataset, ObjectId::new(0x10c));
        assert_eq!(place.block, BlockId::new(31));
        assert_eq!(place.to_string(), "10c:2:0:1f");
        let head = HeadErrorPlace::from_name(b"2:fffffffffffffffe:1f:39").expect("it is a place");
        assert_eq!((head.level, head.birth), (-2, Txg::new(57)));
        assert_eq!(head.to_string(), "2:fffffffffffffffe:1f:39");
        assert_eq!(
            head.in_dataset(place.dataset).to_string(),
            "10c:2:fffffffffffffffe:1f"
        );
    }

    #[test]
    fn other_names_are_refused() {
        for name in [
            "",
            "1:2:3",
            "1:2:3:4:5",
            "1::3:4",
            "1:+2:3:4",
            "1:g:3:4",
            "1:2:3:4 ",
        ] {
            assert!(
                ErrorPlace::from_name(name.as_bytes()).is_err(),
                "{name} is not a place"
            );
        }
        assert!(ErrorPlace::from_name(b"1:2:3:11111111111111111").is_err());
    }

    proptest! {
        #[test]
        fn every_place_has_a_name_of_its_own(words: [u64; 3], level: i64) {
            let [dataset, object, block] = words;
            let place = ErrorPlace {
                dataset: ObjectId::new(dataset),
                object: ObjectId::new(object),
                level,
                block: BlockId::new(block),
            };
            prop_assert_eq!(ErrorPlace::from_name(place.to_string().as_bytes()), Ok(place));
        }

        #[test]
        fn any_name_is_a_place_or_refused(name in prop::collection::vec(any::<u8>(), 0..30)) {
            let _ = ErrorPlace::from_name(&name);
            let _ = HeadErrorPlace::from_name(&name);
        }
    }
}
