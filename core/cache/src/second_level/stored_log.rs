//! The log blocks of a device as they are stored, for programs that look at a device without its
//! pool.

use super::log::open_log_block;
use super::rebuild::Live;
use tarn_ondisk::cache_device::{CacheHeader, CacheLogBlock, CacheLogPointer};
use tarn_ondisk::declare::narrow;

/// Follows the log blocks that a header leads to, from the newest to the oldest, as far as they are
/// live. `read` gives so many bytes at an offset from the start of the device. `see` gets what
/// leads to a log block, and the log block; none where it cannot be read or does not verify, which
/// ends the way.
#[doc(alias = "dump_l2arc_log_blocks")]
pub fn follow_stored_log(
    header: &CacheHeader,
    mut read: impl FnMut(u64, u64) -> Option<Vec<u8>>,
    mut see: impl FnMut(&CacheLogPointer, Option<&CacheLogBlock>),
) {
    let Some(live) = Live::of_header(header) else {
        return;
    };
    let mut next = [header.newest, header.second];
    let mut newer_begins = live.size();
    while let Some((first, end)) = live.ages(&next[0]) {
        if end > newer_begins {
            return;
        }
        let stored = read(next[0].offset, next[0].stored_bytes());
        let count = narrow(header.entries_in_block);
        let block = stored.and_then(|stored| open_log_block(&next[0], &stored, count));
        see(&next[0], block.as_ref());
        let Some(block) = block else {
            return;
        };
        newer_begins = first;
        next = [next[1], block.previous];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of a device of 1100 MiB that OpenZFS 2.3.2 has filled, and its newest log block.
    const HEADER: &[u8] = include_bytes!("../../tests/golden/cache-device-header.bin");
    const LOG_BLOCK: &[u8] = include_bytes!("../../tests/golden/cache-log-block.bin");

    fn seen(header: &CacheHeader, newest: &[u8]) -> Vec<(u64, bool)> {
        let mut seen = Vec::new();
        follow_stored_log(
            header,
            |offset, _| (offset == header.newest.offset).then(|| newest.to_vec()),
            |pointer, block| seen.push((pointer.offset, block.is_some())),
        );
        seen
    }

    #[test]
    fn log_blocks_are_followed_until_one_does_not_verify() {
        let (header, _) = CacheHeader::from_sector(HEADER).unwrap();
        let (newest, second) = (header.newest.offset, header.second.offset);
        let way = seen(&header, LOG_BLOCK);
        assert_eq!(way, [(newest, true), (second, false)]);
        let mut damaged = LOG_BLOCK.to_vec();
        damaged[700] ^= 1;
        assert_eq!(seen(&header, &damaged), [(newest, false)]);
    }

    #[test]
    fn a_header_that_cannot_be_leads_nowhere() {
        let (header, _) = CacheHeader::from_sector(HEADER).unwrap();
        let with = |change: &dyn Fn(&mut CacheHeader)| {
            let mut changed = header.clone();
            change(&mut changed);
            seen(&changed, LOG_BLOCK)
        };
        assert_eq!(with(&|header| header.newest = CacheLogPointer::NONE), []);
        assert_eq!(with(&|header| header.end = 0), []);
        assert_eq!(with(&|header| header.start = u64::MAX), []);
        assert_eq!(with(&|header| header.newest.offset = u64::MAX - 1), []);
        let not_first = |evicted| {
            move |header: &mut CacheHeader| {
                header.flags = 0;
                header.evicted = evicted;
            }
        };
        assert_eq!(with(&not_first(0)), []);
        assert_eq!(with(&not_first(u64::MAX)), []);
    }
}
