//! The manifest of a tree: one JSON line for each file, sorted by path.
//!
//! # Problem
//! Two file systems hold the same files when every byte and every attribute a program can ask for
//! is the same. A listing of all of them can be compared line for line, kept, and read by people.
//!
//! # Mechanism
//! Directories are walked without following symbolic links and without entering another file
//! system, which is what a child dataset is. Each file is one line with the fields in a fixed
//! order, spaces as Python's `json.dumps` puts them. Contents and attribute values appear as
//! SHA-256, or, where both manifests are our own and one is made by a machine that is emulated, as
//! a cheaper sum ([`Sums`]).
//!
//! # Invariants
//! - Same tree, same bytes; a file that cannot be read is a line with `read_error`, not a failure.
//! - Access times, change times and block counts are left out: they depend on when files were read.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use xxhash_rust::xxh64::Xxh64;

use super::json::push_string;
use super::{TreeError, refused};
use crate::errno::errno_name;

/// What stands for contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sums {
    /// SHA-256, as in the truth of fixtures.
    Sha256,
    /// XXH64: a few multiplications for eight bytes, for where SHA-256 is slow. It finds what went
    /// wrong, and nothing here forges sums.
    Quick,
}

/// The manifest of `root`, a line a file, each without its line feed.
///
/// # Errors
/// Only when `root` itself, or an entry that was just listed, cannot be looked at.
pub fn manifest(root: &Path) -> Result<Vec<String>, TreeError> {
    manifest_with(root, Sums::Sha256)
}

/// The same with other sums.
///
/// # Errors
/// As [`manifest`].
pub fn manifest_with(root: &Path, sums: Sums) -> Result<Vec<String>, TreeError> {
    // A snapshot under `.zfs` may mount itself when it is first looked into.
    fs::read_dir(root).map_err(refused("list", root))?;
    let inside = root.join(".");
    let device = fs::symlink_metadata(&inside)
        .map_err(refused("look at", &inside))?
        .dev();

    let mut rows: Vec<(Vec<u8>, String)> = Vec::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        rows.push(row(root, &directory, &directory.join("."), sums)?);
        // A directory that may not be listed is a line without files below it.
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries {
            let path = entry.map_err(refused("list", &directory))?.path();
            let metadata = fs::symlink_metadata(&path).map_err(refused("look at", &path))?;
            match (metadata.is_dir(), metadata.dev() == device) {
                (true, true) => directories.push(path),
                (true, false) => {}
                (false, _) => rows.push(row(root, &path, &path, sums)?),
            }
        }
    }
    rows.sort();
    Ok(rows.into_iter().map(|(_, line)| line).collect())
}

/// Writes lines to a stream, each with its line feed.
///
/// # Errors
/// What the stream answers.
pub fn write_lines(lines: &[String], mut stream: impl Write) -> io::Result<()> {
    lines.iter().try_for_each(|line| writeln!(stream, "{line}"))
}

/// The sort key and the line of one file. `path` gives its name, `look_at` is what is asked.
fn row(
    root: &Path,
    path: &Path,
    look_at: &Path,
    sums: Sums,
) -> Result<(Vec<u8>, String), TreeError> {
    let name = relative(root, path);
    let metadata = fs::symlink_metadata(look_at).map_err(refused("look at", look_at))?;
    let mut line = String::from("{\"path\": ");
    push_string(&mut line, &name);
    push_common(&mut line, &metadata);
    push_contents(&mut line, look_at, &metadata, sums);
    push_attributes(&mut line, look_at, sums);
    line.push('}');
    Ok((name, line))
}

fn relative(root: &Path, path: &Path) -> Vec<u8> {
    let below = path
        .strip_prefix(root)
        .expect("the walk stays below its root");
    match below.as_os_str().as_bytes() {
        b"" => b".".to_vec(),
        name => name.to_vec(),
    }
}

fn push_common(line: &mut String, metadata: &Metadata) {
    let size = match metadata.is_dir() {
        true => "null".to_string(),
        false => metadata.size().to_string(),
    };
    let mtime_ns = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    write!(
        line,
        ", \"mode\": \"0o{:o}\", \"uid\": {}, \"gid\": {}, \"nlink\": {}, \"size\": {size}, \
         \"mtime_ns\": {mtime_ns}, \"ino\": {}",
        metadata.mode(),
        metadata.uid(),
        metadata.gid(),
        metadata.nlink(),
        metadata.ino(),
    )
    .expect("a String takes everything");
}

fn push_contents(line: &mut String, path: &Path, metadata: &Metadata, sums: Sums) {
    let kind = metadata.file_type();
    if kind.is_file() {
        match sum_of_file(path, sums) {
            Ok(sum) => push_field(line, sums.name(), sum.as_bytes()),
            Err(error) => push_field(line, "read_error", errno_name(&error).as_bytes()),
        }
    } else if kind.is_symlink() {
        // A link that cannot be read has no target; its line then differs, as it should.
        let target = fs::read_link(path).unwrap_or_else(|error| PathBuf::from(errno_name(&error)));
        push_field(line, "target", target.as_os_str().as_bytes());
    } else if kind.is_char_device() || kind.is_block_device() {
        let device = metadata.rdev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        write!(line, ", \"rdev\": [{major}, {minor}]").expect("a String takes everything");
    }
}

fn push_field(line: &mut String, name: &str, value: &[u8]) {
    write!(line, ", \"{name}\": ").expect("a String takes everything");
    push_string(line, value);
}

/// Appends the attributes, if there are any and all of them can be read.
fn push_attributes(line: &mut String, path: &Path, sums: Sums) {
    let Ok(attributes) = attribute_sums(path, sums) else {
        return;
    };
    if attributes.is_empty() {
        return;
    }
    line.push_str(", \"xattrs\": {");
    for (index, (name, sum)) in attributes.iter().enumerate() {
        line.push_str(if index == 0 { "" } else { ", " });
        push_string(line, name);
        line.push_str(": ");
        push_string(line, sum.as_bytes());
    }
    line.push('}');
}

fn attribute_sums(path: &Path, sums: Sums) -> rustix::io::Result<BTreeMap<Vec<u8>, String>> {
    let names = read_all(|buffer| rustix::fs::llistxattr(path, buffer))?;
    names
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let value =
                read_all(|buffer| rustix::fs::lgetxattr(path, OsStr::from_bytes(name), buffer))?;
            let mut sum = sums.begin();
            sum.update(&value);
            Ok((name.to_vec(), sum.finish()))
        })
        .collect()
}

/// Linux gives no list of attributes and no value longer than this (`XATTR_LIST_MAX`).
const ATTRIBUTE_BYTES_MAX: usize = 65_536;

fn read_all(
    call: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Vec<u8>> {
    let mut buffer = vec![0; ATTRIBUTE_BYTES_MAX];
    let size = call(&mut buffer)?;
    buffer.truncate(size);
    Ok(buffer)
}

/// The SHA-256 of a file's contents, in hexadecimal.
///
/// # Errors
/// What reading the file answers.
pub fn sha256_of_file(path: &Path) -> io::Result<String> {
    sum_of_file(path, Sums::Sha256)
}

fn sum_of_file(path: &Path, sums: Sums) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut sum = sums.begin();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(sum.finish()),
            Ok(size) => sum.update(&buffer[..size]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl Sums {
    /// The field of a manifest.
    fn name(self) -> &'static str {
        match self {
            Sums::Sha256 => "sha256",
            Sums::Quick => "xxh64",
        }
    }

    fn begin(self) -> Sum {
        match self {
            Sums::Sha256 => Sum::Sha256(Box::default()),
            Sums::Quick => Sum::Quick(Box::new(Xxh64::new(0))),
        }
    }
}

/// A sum that grows.
enum Sum {
    Sha256(Box<Sha256>),
    Quick(Box<Xxh64>),
}

impl Sum {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Sum::Sha256(sum) => sum.update(bytes),
            Sum::Quick(sum) => sum.update(bytes),
        }
    }

    /// In hexadecimal.
    fn finish(self) -> String {
        match self {
            Sum::Sha256(sum) => hexadecimal(&sum.finalize()),
            Sum::Quick(sum) => hexadecimal(&sum.digest().to_be_bytes()),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes everything");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{TreeSize, churn, fill};

    /// What depends on the machine, not on the tree, is taken out: inode and time of change.
    fn without_place_and_time(line: &str) -> String {
        let end = line.find(", \"mtime_ns\"").expect("every line has a time");
        let after = line[end..]
            .find("\"ino\": ")
            .expect("every line has an inode")
            + end
            + 7;
        let digits = line[after..]
            .chars()
            .take_while(char::is_ascii_digit)
            .count();
        format!("{}{}", &line[..end], &line[after + digits..])
    }

    fn summary(root: &Path) -> String {
        let lines = manifest(root).unwrap();
        // The root's own line and links of directories differ between file systems.
        let text: String = lines
            .iter()
            .filter(|line| line.contains("\"sha256\": ") || line.contains("\"target\": "))
            .filter(|line| !line.contains("\"rand-13\"") && !line.contains("\"rand-512\""))
            .map(|line| without_place_and_time(line) + "\n")
            .collect();
        let text = text.replace(
            &format!("\"uid\": {}", rustix::process::geteuid().as_raw()),
            "\"uid\": 0",
        );
        let text = text.replace(
            &format!("\"gid\": {}", rustix::process::getegid().as_raw()),
            "\"gid\": 0",
        );
        hexadecimal(&Sha256::digest(text.as_bytes()))
    }

    /// The sums are those of the script that filled our fixtures, run on another file system.
    #[test]
    fn a_seed_makes_the_tree_that_the_fixtures_were_made_of() {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path(), 42, TreeSize::Full).unwrap();
        assert_eq!(
            summary(folder.path()),
            "cd08f644ceb347827d7f00d90d85cc37cdfb3145b600dc255f4f978c81f69456"
        );
        churn(folder.path(), 43).unwrap();
        assert_eq!(
            summary(folder.path()),
            "e3dd5175f6d741b5c794706ce74c1ee1c9e58808b163a6ff70c9f770dcd06746"
        );
    }

    #[test]
    fn a_changed_byte_changes_one_line() {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path(), 1, TreeSize::Small).unwrap();
        let before = manifest(folder.path()).unwrap();
        let path = folder.path().join("text-513");
        let mut bytes = fs::read(&path).unwrap();
        bytes[512] ^= 1;
        fs::write(&path, bytes).unwrap();
        let after = manifest(folder.path()).unwrap();
        let differing = before
            .iter()
            .zip(&after)
            .filter(|(old, new)| old != new)
            .count();
        assert_eq!((differing, before.len()), (1, after.len()));
    }
}
