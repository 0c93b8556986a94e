//! The bytes of a simulated disk: pages that were written, and zeroes elsewhere. Copies share pages
//! until one of them is changed.

use std::collections::BTreeMap;
use std::sync::Arc;

const PAGE_BYTES: u64 = 4096;
const PAGE_LENGTH: usize = 4096;

/// A sparse image.
#[derive(Clone, Default)]
pub(crate) struct Image {
    pages: BTreeMap<u64, Arc<[u8; PAGE_LENGTH]>>,
}

impl Image {
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) {
        for_each_page(offset, bytes.len(), |page, within, range| {
            match self.pages.get(&page) {
                Some(data) => {
                    bytes[range.clone()].copy_from_slice(&data[within..within + range.len()])
                }
                None => bytes[range].fill(0),
            }
        });
    }

    /// The pages that were written, with their offsets.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (u64, &[u8; PAGE_LENGTH])> {
        let pages = self.pages.iter();
        pages.map(|(page, bytes)| (page * PAGE_BYTES, &**bytes))
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for_each_page(offset, bytes.len(), |page, within, range| {
            let data = self
                .pages
                .entry(page)
                .or_insert_with(|| Arc::new([0; PAGE_LENGTH]));
            let page = Arc::make_mut(data);
            page[within..within + range.len()].copy_from_slice(&bytes[range]);
        });
    }
}

/// Calls with each page's number, the place in it, and the range of the bytes that lies there.
fn for_each_page(
    offset: u64,
    length: usize,
    mut each: impl FnMut(u64, usize, std::ops::Range<usize>),
) {
    let mut done = 0;
    while done < length {
        let at = offset + u64::try_from(done).expect("less than 2^64");
        let within = usize::try_from(at % PAGE_BYTES).expect("less than a page");
        let count = (PAGE_LENGTH - within).min(length - done);
        each(at / PAGE_BYTES, within, done..done + count);
        done += count;
    }
}
