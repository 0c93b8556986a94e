//! Small writes that must be safe before the next begins, as databases and mail servers do them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::noise::Noise;
use super::{Deadline, Done, Size};

const PAGE_BYTES: usize = 4096;

pub(super) fn write(folder: &Path, size: &Size, mut deadline: Deadline) -> io::Result<Done> {
    let noise = Noise::new();
    let file = File::create(folder.join("durable"))?;
    file.sync_all()?;
    let mut count = 0;
    deadline.restart();
    while count < size.durable_writes && !deadline.is_over() {
        let bytes = noise.some(count, PAGE_BYTES);
        file.write_all_at(bytes, u64::from(count) * PAGE_BYTES as u64)?;
        file.sync_all()?;
        count += 1;
    }
    Ok(deadline.done(count))
}
