//! Files of a file system as a model, changed there and in a directory alike.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::twister::Twister;

/// Files by name, with their bytes.
pub type Contents = BTreeMap<String, Arc<Vec<u8>>>;

/// Where a write begins, at most.
const OFFSET_MAX: u32 = 300_000;
/// How much it writes, at most.
const WRITE_MAX: u32 = 200_000;
/// Names there are.
const NAMES: u32 = 12;

/// A change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Bytes are written, into a new file where there is none. Where it begins behind the end, a
    /// hole is before it.
    Write {
        /// The file.
        name: String,
        /// Where.
        offset: usize,
        /// How many.
        length: usize,
        /// From which the bytes follow.
        seed: u64,
    },
    /// It becomes shorter or longer.
    Resize {
        /// The file.
        name: String,
        /// Its new size.
        size: usize,
    },
    /// It goes.
    Remove {
        /// The file.
        name: String,
    },
    /// It takes another name, and the place of what had that.
    Rename {
        /// The old name.
        from: String,
        /// The new one.
        to: String,
    },
}

impl Change {
    /// Does it to the model.
    pub fn apply(&self, contents: &mut Contents) {
        match self {
            Change::Write {
                name,
                offset,
                length,
                seed,
            } => {
                let file = Arc::make_mut(contents.entry(name.clone()).or_default());
                let end = offset + length;
                if file.len() < end {
                    file.resize(end, 0);
                }
                file[*offset..end].copy_from_slice(&bytes(*seed, *length));
            }
            Change::Resize { name, size } => {
                if let Some(file) = contents.get_mut(name) {
                    Arc::make_mut(file).resize(*size, 0);
                }
            }
            Change::Remove { name } => {
                contents.remove(name);
            }
            Change::Rename { from, to } => {
                if let Some(file) = contents.remove(from) {
                    contents.insert(to.clone(), file);
                }
            }
        }
    }

    fn apply_below(&self, folder: &Path) -> io::Result<()> {
        match self {
            Change::Write {
                name,
                offset,
                length,
                seed,
            } => {
                let path = folder.join(name);
                let file = File::options()
                    .create(true)
                    .truncate(false)
                    .write(true)
                    .open(path)?;
                file.write_all_at(&bytes(*seed, *length), *offset as u64)
            }
            Change::Resize { name, size } => {
                let file = File::options().write(true).open(folder.join(name))?;
                file.set_len(*size as u64)
            }
            Change::Remove { name } => fs::remove_file(folder.join(name)),
            Change::Rename { from, to } => fs::rename(folder.join(from), folder.join(to)),
        }
    }
}

/// Does the changes to the files of a directory.
///
/// # Errors
/// What the file system answers.
pub fn change(folder: &Path, changes: &[Change]) -> io::Result<()> {
    let mut all = changes.iter();
    all.try_for_each(|change| change.apply_below(folder))
}

/// Bytes that follow from a seed: half of them compress, and some are too few for a block.
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    match seed % 4 {
        0 => {
            let letters = Twister::new(seed).bytes(23);
            letters.iter().copied().cycle().take(length).collect()
        }
        // A block of zeros becomes a hole where it is compressed.
        1 => vec![0; length],
        _ => Twister::new(seed).bytes(length),
    }
}

/// Some changes that fit the files there are.
pub(super) fn draw(contents: &Contents, chance: &mut Twister) -> Vec<Change> {
    let mut now = contents.clone();
    let count = 1 + chance.below(5);
    let mut changes = Vec::new();
    for _ in 0..count {
        let new = format!("file{}", chance.below(NAMES));
        let names: Vec<&String> = now.keys().collect();
        let old = names.get(chance.index(names.len().max(1)));
        let old = old.map(|name| (*name).clone());
        let size = chance.below(OFFSET_MAX) as usize;
        let change = match (chance.below(10), old) {
            (0, Some(name)) => Change::Remove { name },
            (1, Some(name)) => Change::Resize { name, size },
            (2, Some(from)) if from != new => Change::Rename { from, to: new },
            (3..6, Some(name)) => write(name, size, chance),
            _ => write(new, 0, chance),
        };
        change.apply(&mut now);
        changes.push(change);
    }
    changes
}

fn write(name: String, offset: usize, chance: &mut Twister) -> Change {
    // Most writes of programs are short.
    let longest = [100, 5000, 40_000, WRITE_MAX][chance.index(4)];
    Change::Write {
        name,
        offset,
        length: 1 + chance.below(longest) as usize,
        seed: u64::from(chance.word()),
    }
}

/// Reads all files of a directory.
///
/// # Errors
/// What the file system answers.
pub fn read(folder: &Path) -> io::Result<Contents> {
    let mut contents = Contents::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        contents.insert(name, Arc::new(fs::read(entry.path())?));
    }
    Ok(contents)
}

/// How what is found differs from what should be there.
#[must_use]
pub fn differences(expected: &Contents, found: &Contents) -> Vec<String> {
    let mut told = Vec::new();
    for (name, bytes) in expected {
        match found.get(name) {
            None => told.push(format!("{name} is missing")),
            Some(seen) if seen.len() != bytes.len() => {
                told.push(format!(
                    "{name} has {} bytes, not {}",
                    seen.len(),
                    bytes.len()
                ));
            }
            Some(seen) => {
                let mut pairs = bytes.iter().zip(seen.iter());
                if let Some(at) = pairs.position(|(one, other)| one != other) {
                    told.push(format!("{name} differs from byte {at} on"));
                }
            }
        }
    }
    let more = found.keys().filter(|name| !expected.contains_key(*name));
    told.extend(more.map(|name| format!("{name} should not be there")));
    told
}

/// Whether a directory has these files. Says how it differs.
///
/// # Errors
/// What cannot be read, and all differences.
pub fn compare(expected: &Contents, folder: &Path) -> Result<(), String> {
    let found = read(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let told = differences(expected, &found);
    match told.is_empty() {
        true => Ok(()),
        false => Err(format!("{}: {}", folder.display(), told.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_and_the_model_change_alike() {
        for seed in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let mut chance = Twister::new(seed);
            let mut contents = Contents::new();
            for _ in 0..10 {
                let changes = draw(&contents, &mut chance);
                change(folder.path(), &changes).unwrap();
                for change in &changes {
                    change.apply(&mut contents);
                }
                compare(&contents, folder.path()).unwrap();
            }
        }
    }

    #[test]
    fn a_byte_that_differs_a_file_too_many_and_one_too_few_are_told() {
        let of = |files: &[(&str, &[u8])]| -> Contents {
            let file = |(name, bytes): &(&str, &[u8])| (name.to_string(), Arc::new(bytes.to_vec()));
            files.iter().map(file).collect()
        };
        let expected = of(&[("a", b"xyz"), ("b", b"1"), ("c", b"12")]);
        let found = of(&[("a", b"xyy"), ("c", b"1"), ("d", b"")]);
        assert_eq!(
            differences(&expected, &found),
            [
                "a differs from byte 2 on",
                "b is missing",
                "c has 1 bytes, not 2",
                "d should not be there"
            ]
        );
        assert!(differences(&expected, &expected).is_empty());
    }
}
