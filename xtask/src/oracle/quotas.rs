//! What users, groups and projects use, counted again by OpenZFS's `zdb`.
//!
//! # Mechanism
//! A pool of ours has files of several users, groups and projects, changed, given away and
//! destroyed while groups are stored. It is exported, and `zdb` lists every object with its owner
//! and its space. Summed up that must be what the accounting objects have that stand beside, and
//! what `zfs userspace` and its kin say.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;

use tarn_oracle::instance::Instance;
use tarn_oracle::layout::Layout;
use tarn_workload::tree::TreeSize;

use super::{LIMIT, POOL};
use crate::changes;
use crate::workspace::{Outcome, openzfs, programs, scratch};

/// Sparse.
const IMAGE_BYTES: u64 = 256 << 20;

/// The SA layouts in which files have their extended attributes: in the list, and in hidden
/// directories that are charged too.
const DATASETS: [(&str, &str); 2] = [("listed", "-o xattr=sa"), ("hidden", "-o xattr=dir")];

/// Bytes and objects by owner: `user 1000`, `group 5`, `project 7`.
type Counts = BTreeMap<(String, u64), (u64, u64)>;

/// Makes the pool and has it counted.
pub fn judge(seed: u64, keep: bool) -> Outcome {
    let folder = scratch("oracle-quotas");
    let images = folder.join("images");
    let instance = Instance::new(&programs(), &folder)?;
    let _watchdog = instance.watchdog("quotas", LIMIT);
    // zdb shows whole sectors, as the blocks of a mirror take; parity would leave fractions.
    let layout = Layout::Mirror(2);
    layout.make_images(&images, IMAGE_BYTES)?;
    let root = instance.root().display().to_string();
    let words = layout.words(&images);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let create = ["create", "-R", &root, "-o", "ashift=12", POOL];
    instance.must("zpool", &[&create[..], &words[..]].concat())?;
    let mut told = BTreeMap::new();
    for (name, properties) in DATASETS {
        let dataset = format!("{POOL}/{name}");
        instance.zfs(&format!("create {properties} -o userquota@5=1G {dataset}"))?;
        live(&instance, &dataset, seed)?;
    }
    instance.zpool(&format!("sync {POOL}"))?;
    for (name, _) in DATASETS {
        let dataset = format!("{POOL}/{name}");
        told.insert(dataset.clone(), told_by_us(&instance, &dataset)?);
    }
    changes::expect_kept(&instance, &images, POOL)?;
    instance.zpool(&format!("export {POOL}"))?;
    for (dataset, told) in &told {
        let (objects, accounts) = told_by_zdb(&images, dataset)?;
        expect_equal(dataset, "the accounting objects", &objects, &accounts)?;
        expect_equal(dataset, "zfs userspace", &objects, told)?;
    }
    drop(instance);
    if !keep {
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

/// Fills a file system, and gives what is in it to several owners while it changes.
fn live(instance: &Instance, dataset: &str, seed: u64) -> Outcome {
    changes::fill(instance, dataset, seed, TreeSize::Small)?;
    let mount = changes::mount_of(instance, dataset)?;
    let project = mount.join("of-a-project");
    fs::create_dir_all(project.join("below"))?;
    let target = project.display().to_string();
    instance.must("zfs", &["project", "-p", "42", "-r", "-s", &target])?;
    for number in 0_u32..40 {
        let path = project.join("below").join(number.to_string());
        let length = usize::try_from(number)? * 3000;
        fs::write(&path, vec![u8::try_from(number)?; length])?;
        chown(&path, Some(number % 4 + 1), Some(number % 3 + 100))?;
    }
    symlink("nowhere", project.join("link"))?;
    instance.zpool(&format!("sync {POOL}"))?;
    // Given away, moved to other projects, cut and removed, some of it twice in a group.
    for (number, path) in (0_u32..).zip(files_below(&mount)?) {
        match number % 5 {
            0 => chown(&path, Some(number % 7), Some(number % 5))?,
            1 if path.is_file() => fs::write(&path, vec![7; 20_000])?,
            2 => chown(&path, Some(1), None)?,
            3 if path.is_file() && number % 2 == 0 => fs::remove_file(&path)?,
            _ => {}
        }
        if number % 6 == 0 && path.exists() {
            let target = path.display().to_string();
            instance.must("zfs", &["project", "-p", "7", &target])?;
            chown(&path, Some(3), Some(3))?;
        }
    }
    Ok(())
}

/// Files below a folder, in a fixed order.
fn files_below(folder: &Path) -> Outcome<Vec<std::path::PathBuf>> {
    let mut found = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_file() {
            found.push(entry.path());
        } else if kind.is_dir() {
            found.extend(files_below(&entry.path())?);
        }
    }
    Ok(found)
}

/// What our commands say.
fn told_by_us(instance: &Instance, dataset: &str) -> Outcome<Counts> {
    let mut counts = Counts::new();
    for (command, kind) in [
        ("userspace", "user"),
        ("groupspace", "group"),
        ("projectspace", "project"),
    ] {
        let mut words = vec![command, "-Hp", "-o", "name,used,objused"];
        if kind != "project" {
            words.push("-n");
        }
        words.push(dataset);
        for line in instance.must("zfs", &words)?.stdout.lines() {
            let row: Vec<&str> = line.split('\t').collect();
            let [name, used, objects] = row[..] else {
                return Err(format!("zfs {command} said: {line}").into());
            };
            let number = |text: &str| match text {
                "-" => Ok(0),
                text => text.parse(),
            };
            let count = (number(used)?, number(objects)?);
            // A user that only has a quota uses nothing.
            if count != (0, 0) {
                counts.insert((kind.to_string(), name.parse()?), count);
            }
        }
    }
    Ok(counts)
}

/// What `zdb` finds: summed up over objects, and as the accounting objects have it.
fn told_by_zdb(images: &Path, dataset: &str) -> Outcome<(Counts, Counts)> {
    let folder = images.display().to_string();
    let words = ["-e", "-p", &folder, "-ddddP", dataset];
    let spoken = openzfs()?.run("zdb", &words, LIMIT)?;
    Ok(read(&spoken.stdout)?)
}

/// One object, as far as it was read.
#[derive(Default)]
struct Seen {
    id: i64,
    bytes: u64,
    user: Option<u64>,
    group: Option<u64>,
    project: u64,
}

/// Reads the listing of `zdb -ddddP`.
fn read(listing: &str) -> Result<(Counts, Counts), String> {
    let (mut objects, mut accounts) = (Counts::new(), Counts::new());
    let mut seen: Option<Seen> = None;
    let mut is_heading = false;
    for line in listing.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if is_heading {
            count(&mut objects, seen.take());
            seen = Some(seen_in(&words).ok_or(format!("no object: {line}"))?);
        } else if let Some(seen) = &mut seen {
            let number = |text: &&str| text.parse::<u64>().ok();
            match words[..] {
                ["uid", ref id] => seen.user = number(id),
                ["gid", ref id] => seen.group = number(id),
                ["projid", ref id] => seen.project = number(id).unwrap_or(0),
                [key, "=", value] if seen.id < 0 => account(&mut accounts, seen.id, key, value)?,
                _ => {}
            }
        }
        is_heading = words.first() == Some(&"Object") && words.get(1) == Some(&"lvl");
    }
    count(&mut objects, seen.take());
    accounts.retain(|_, count| *count != (0, 0));
    Ok((objects, accounts))
}

/// The line below the heading of an object.
fn seen_in(words: &[&str]) -> Option<Seen> {
    Some(Seen {
        id: words.first()?.parse().ok()?,
        bytes: words.get(4)?.parse().ok()?,
        ..Seen::default()
    })
}

/// What an object counts: its space, and a slot of 512 bytes.
fn count(objects: &mut Counts, seen: Option<Seen>) {
    let Some((seen, user, group)) = seen.and_then(|seen| {
        let (user, group) = (seen.user?, seen.group?);
        Some((seen, user, group))
    }) else {
        return;
    };
    for (kind, id) in [("user", user), ("group", group), ("project", seen.project)] {
        let entry = objects.entry((kind.to_string(), id)).or_default();
        entry.0 += seen.bytes + 512;
        entry.1 += 1;
    }
}

/// An entry of an accounting object.
fn account(accounts: &mut Counts, object: i64, key: &str, value: &str) -> Result<(), String> {
    let kind = match object {
        -1 => "user",
        -2 => "group",
        _ => "project",
    };
    let digits = key.strip_prefix("obj-").unwrap_or(key);
    let bad = |_| format!("no account: {key} = {value}");
    let id = u64::from_str_radix(digits, 16).map_err(bad)?;
    let value = value.parse().map_err(bad)?;
    let entry = accounts.entry((kind.to_string(), id)).or_default();
    match key == digits {
        true => entry.0 = value,
        false => entry.1 = value,
    }
    Ok(())
}

fn expect_equal(dataset: &str, what: &str, objects: &Counts, others: &Counts) -> Outcome {
    if objects.is_empty() {
        return Err(format!("zdb found no files in {dataset}").into());
    }
    match objects == others {
        true => Ok(()),
        false => Err(format!(
            "{dataset}: {what} have\n{others:?}\nand the objects come to\n{objects:?}"
        )
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\
    Object  lvl   iblk   dblk  dsize  dnsize  lsize   %full  type
        -1    1  131072    512      0     512    512  100.00  ZFS user/group/project used
	dnode flags: USED_BYTES 
	microzap: 512 bytes, 4 entries

		0 = 8192 
		obj-a = 1 
		obj-0 = 0 
		a = 1536 

    Object  lvl   iblk   dblk  dsize  dnsize  lsize   %full  type
         2    1  131072    512      0     512    512  100.00  SA master node

		LAYOUTS = 6 

    Object  lvl   iblk   dblk  dsize  dnsize  lsize   %full  type
         5    1  131072    512   1024     512    512  100.00  ZFS plain file
                                               176   bonus  System attributes
	uid     10
	gid     4
	projid	42
";

    #[test]
    fn objects_are_summed_up_by_owner_and_accounts_are_read() {
        let (objects, accounts) = read(LISTING).unwrap();
        let key = |kind: &str, id| (kind.to_string(), id);
        let expected = [
            (key("group", 4), (1536, 1)),
            (key("project", 42), (1536, 1)),
            (key("user", 10), (1536, 1)),
        ];
        assert_eq!(objects, Counts::from(expected));
        let expected = [(key("user", 0), (8192, 0)), (key("user", 10), (1536, 1))];
        assert_eq!(accounts, Counts::from(expected));
    }

    #[test]
    fn a_count_that_is_wrong_is_seen() {
        let (objects, mut others) = read(LISTING).unwrap();
        expect_equal("x", "x", &objects, &objects).unwrap();
        others.clear();
        assert!(expect_equal("x", "x", &objects, &others).is_err());
        assert!(expect_equal("x", "x", &others, &others).is_err());
    }
}
