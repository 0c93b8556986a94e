//! The bytes of a simulated disk: pages that were written, and zeroes elsewhere.

use std::collections::BTreeMap;

const PAGE_BYTES: u64 = 4096;
const PAGE_LENGTH: usize = 4096;

/// A sparse image.
#[derive(Clone, Default)]
pub(crate) struct Image {
    pages: BTreeMap<u64, Box<[u8; PAGE_LENGTH]>>,
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

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for_each_page(offset, bytes.len(), |page, within, range| {
            let data = self
                .pages
                .entry(page)
                .or_insert_with(|| Box::new([0; PAGE_LENGTH]));
            data[within..within + range.len()].copy_from_slice(&bytes[range]);
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
