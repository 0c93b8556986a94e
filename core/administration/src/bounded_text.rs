//! Name-value lists as text, up to a bound in bytes.
//!
//! # Mechanism
//! An array of a list repeats its name at each element. So a list of some hundred KiB, half of it a
//! name and half of it an array, makes gigabytes of text. A client or a damaged pool must not make
//! this process keep them.

use std::fmt::{self, Display, Write};

/// The text of a value, if it is at most `bytes_max` bytes. No more bytes than that are kept.
///
/// # Errors
/// [`TooLong`], with as much of the text as fits, up to the end of a line.
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

/// The text is longer than its bound.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong {
    /// The first lines of the text.
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
    fn short_text_is_whole() {
        let list = NvList::new().with("numbers", vec![7u64, 8]);
        let whole = "numbers[0]: 7\nnumbers[1]: 8\n";
        assert_eq!(bounded(&list, whole.len()), Ok(whole.to_string()));
    }

    #[test]
    fn long_text_is_cut_after_a_line() {
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
