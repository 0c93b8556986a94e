//! Changing a filled tree: overwrites, truncations, removals, renames, appends.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::content::{Content, blob};
use super::fill::write_file;
use super::{TreeError, refused};
use crate::twister::Twister;

/// Changes some of what [`super::fill()`] made in `root`. The same seed changes the same things.
///
/// # Errors
/// The first call that the file system refuses.
pub fn churn(root: &Path, seed: u64) -> Result<(), TreeError> {
    let mut chance = Twister::new(seed ^ 0x5eed);
    for name in sorted_names(root)? {
        if ["rand-", "text-", "mixed-"]
            .iter()
            .any(|kind| name.starts_with(kind))
        {
            change_one(root, &name, &mut chance)?;
        }
    }
    change_many(&root.join("many"))
}

/// Three files in ten are left alone.
fn change_one(root: &Path, name: &str, chance: &mut Twister) -> Result<(), TreeError> {
    let path = root.join(name);
    let draw = chance.fraction();
    if draw < 0.15 {
        fs::remove_file(&path).map_err(refused("remove", &path))
    } else if draw < 0.30 {
        let file = open_to_change(&path)?;
        file.set_len(size_of(&path)? / 2)
            .map_err(refused("truncate", &path))
    } else if draw < 0.50 {
        let at = size_of(&path)? / 3;
        let bytes = chance.bytes(5000);
        open_to_change(&path)?
            .write_all_at(&bytes, at)
            .map_err(refused("overwrite", &path))
    } else if draw < 0.60 {
        let moved = root.join("few").join(format!("{name}.moved"));
        fs::rename(&path, moved).map_err(refused("rename", &path))
    } else if draw < 0.70 {
        let bytes = blob(chance, 70_000, Content::Text);
        let mut file = OpenOptions::new()
            .append(true)
            .open(&path)
            .map_err(refused("open", &path))?;
        file.write_all(&bytes).map_err(refused("append to", &path))
    } else {
        Ok(())
    }
}

/// Removes every third entry, and adds fifty.
fn change_many(many: &Path) -> Result<(), TreeError> {
    for name in sorted_names(many)?.iter().step_by(3) {
        let path = many.join(name);
        fs::remove_file(&path).map_err(refused("remove", &path))?;
    }
    for index in 0..50 {
        write_file(
            &many.join(format!("new-{index}")),
            format!("new {index}\n").as_bytes(),
        )?;
    }
    Ok(())
}

/// The names in a directory, without those that are not text: `fill` makes none.
fn sorted_names(directory: &Path) -> Result<Vec<String>, TreeError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(refused("list", directory))? {
        let entry = entry.map_err(refused("list", directory))?;
        names.extend(entry.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

fn open_to_change(path: &Path) -> Result<fs::File, TreeError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(refused("open", path))
}

fn size_of(path: &Path) -> Result<u64, TreeError> {
    Ok(fs::metadata(path).map_err(refused("look at", path))?.len())
}
