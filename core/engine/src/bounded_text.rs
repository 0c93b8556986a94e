//! Lists of others as text, and only so much of it.
//!
//! # Mechanism
//! A name is said again at each element of its array. So a list of some hundred KiB, half of it a name and half of it an array, is gigabytes of text, and who hands
//! such a list in, or the pool that holds it, must not make this process keep them.

use std::fmt::{self, Display, Write};

/// The text of something, if it is at most `bytes_max` bytes. No more than those are ever kept.
///
/// # Errors
/// [`TooLong`], with as much of it as there was room for, up to the end of a line.
pub fn bounded(contents: impl Display, bytes_max: usize) -> Result<String, TooLong> {
    let mut bounded = Bounded {
        text: String::new(),
        bytes_max,
    };
    match write!(bounded, "{contents}") {
        Ok(()) => Ok(bounded.text),
        Err(fmt::Error) => {
            let mut beginning = bounded.text;
            beginning.truncate(beginning.rfind('\n').map_or(0, |end| end + 1));
            Err(TooLong { beginning })
        }
    }
}

/// There is more of it than somebody wants.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong {
    /// Its first lines.
    pub beginning: String,
}

struct Bounded {
    text: String,
    bytes_max: usize,
}

impl Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if more.len() > self.bytes_max - self.text.len() {
            return Err(fmt::Error);
        }
        self.text.push_str(more);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_ondisk::nvlist::{NvList, NvValue};

    #[test]
    fn what_has_room_is_whole() {
        let list = NvList::new().with("numbers", vec![7u64, 8]);
        let whole = "numbers[0]: 7\nnumbers[1]: 8\n";
        assert_eq!(bounded(&list, whole.len()), Ok(whole.to_string()));
    }

    #[test]
    fn what_has_none_is_cut_behind_a_line() {
        let list = NvList::new().with("numbers", vec![7u64, 8]);
        let beginning = "numbers[0]: 7\n".to_string();
        assert_eq!(bounded(&list, 27), Err(TooLong { beginning }));
        let beginning = String::new();
        assert_eq!(bounded(&list, 5), Err(TooLong { beginning }));
    }

    #[test]
    fn a_long_name_of_a_long_array_takes_no_time() {
        // 256 GiB of text.
        let list = NvList::new().with(
            "n".repeat(512 << 10),
            NvValue::Uint8Array(vec![0; 512 << 10]),
        );
        assert!(bounded(&list, 1 << 20).is_err());
    }
}
