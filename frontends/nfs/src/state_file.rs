//! Files that list clients and outlive the server.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// The text of a file, at most so many bytes of it. None where it cannot be read.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Option<String> {
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(bytes_max).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Replaces a file as a whole, durably.
///
/// # Errors
/// The system's. The file is as it was, or has the text.
pub(crate) fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
