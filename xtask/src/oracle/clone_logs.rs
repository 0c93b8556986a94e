//! Intent logs in which OpenZFS's kernel module has cloned files, and which were not replayed,
//! for us to replay.
//!
//! # Mechanism
//! The module makes a pool with two file systems in a virtual machine, and freezes it, so that
//! nothing but logs is stored. Files are cloned within a file system and into the other one; then
//! sources are overwritten and removed. OpenZFS's `zdb` must find the records in the logs. We
//! import the pool, and mount the file system of the sources first: replaying its log frees blocks
//! that the other's log leads to, but for the references that claiming both has added. All files
//! must be what they were, for us and, after we have exported the pool and `zdb` has found it
//! clean, for the module.

use std::fs;
use std::path::Path;

use tarn_oracle::instance::Instance;
use tarn_oracle::machine::Machine;
use tarn_workload::tree::manifest::sha256_of_file;

use super::guest::{expect_records, in_machine};
use crate::changes;
use crate::workspace::Outcome;

/// By which `--only` knows it.
pub const NAME: &str = "clone-logs";

const POOL: &str = "cloned";

/// The file systems, in the order in which they are mounted, and what the log of each must have.
const RECORDS: [(&str, &[&str]); 2] = [
    ("one", &["TX_CLONE_RANGE", "TX_REMOVE", "TX_WRITE"]),
    ("other", &["TX_CLONE_RANGE", "TX_WRITE"]),
];

/// Prints the checksum of each file.
const SUMS: &str = r#"
sums() { (cd /cloned && sha256sum */*); }
"#;

const LEAVE: &str = r#"
set -eu
cd /share
echo 1 > /sys/module/zfs/parameters/zfs_bclone_enabled
truncate -s 512M cloned/images/data
zpool create -o ashift=12 cloned "$PWD/cloned/images/data"
zfs create -o recordsize=16k cloned/one
zfs create -o recordsize=16k cloned/other
for f in source gone kept; do dd if=/dev/urandom of=/cloned/one/$f bs=100k count=31 status=none; done
printf short > /cloned/one/short
dd if=/dev/urandom of=/cloned/other/target bs=16k count=40 status=none
# A log has a head that is stored.
for d in one other; do echo first > /cloned/$d/first; sync /cloned/$d/first; done
zpool sync cloned
zpool freeze cloned
sleep 1
cp --reflink=always /cloned/one/source /cloned/one/twin
cp --reflink=always /cloned/one/short /cloned/one/short-twin
cp /cloned/one/gone /cloned/other/from-one
cp /cloned/one/source /cloned/other/changed
cp /cloned/one/source /cloned/other/third
cp --reflink=always /cloned/other/target /cloned/other/target-twin
dd if=/dev/urandom of=/cloned/other/changed bs=4k seek=10 count=3 conv=notrunc,fsync status=none
dd if=/dev/urandom of=/cloned/one/source bs=64k seek=3 count=5 conv=notrunc,fsync status=none
truncate -s 700001 /cloned/one/twin
rm /cloned/one/gone
for f in /cloned/*/*; do sync $f; done
sync /cloned/one /cloned/other
sums > cloned/after
zpool export cloned
"#;

const LOOK: &str = r#"
set -eu
zpool import -d /share/cloned/images cloned
sums > /share/cloned/replayed
zpool scrub -w cloned
zpool status cloned
zpool export cloned
"#;

/// Has the module leave logs, replays them, and has the module look.
pub fn replay(machine: &Machine, instance: &Instance, share: &Path) -> Outcome {
    let folder = share.join(POOL);
    let images = folder.join("images");
    fs::create_dir_all(&images)?;
    in_machine(machine, share, "clones.sh", &format!("{SUMS}{LEAVE}"))?;
    let after = fs::read_to_string(folder.join("after"))?;
    expect_records(&images, POOL, &RECORDS)?;
    let root = instance.root().join(POOL);
    let (place, root_text) = (images.display().to_string(), root.display().to_string());
    instance.must(
        "zpool",
        &["import", "-f", "-N", "-R", &root_text, "-d", &place, POOL],
    )?;
    for (name, _) in RECORDS {
        instance.must("zfs", &["mount", &format!("{POOL}/{name}")])?;
        // What was freed is free from now on.
        instance.must("zpool", &["sync", POOL])?;
    }
    let found = sums_of(&root.join(POOL))?;
    let saved = instance.must("zpool", &["list", "-Hpo", "bclonesaved", POOL])?;
    instance.must("zpool", &["export", POOL])?;
    if found != after {
        return Err(format!("what we replayed is\n{found}and was\n{after}").into());
    }
    if saved.stdout.trim() == "0" {
        return Err("nothing is shared after the replay".into());
    }
    changes::expect_clean(instance, &images, POOL, &[])?;
    in_machine(machine, share, "clones.sh", &format!("{SUMS}{LOOK}"))?;
    let replayed = fs::read_to_string(folder.join("replayed"))?;
    match replayed == after {
        true => Ok(()),
        false => Err(format!("the module finds\n{replayed}where there was\n{after}").into()),
    }
}

/// The same as the function of that name prints.
fn sums_of(root: &Path) -> Outcome<String> {
    let mut text = String::new();
    for (name, _) in RECORDS {
        let folder = root.join(name);
        let mut files: Vec<_> = fs::read_dir(&folder)?.collect::<Result<_, _>>()?;
        files.sort_by_key(fs::DirEntry::file_name);
        for file in files {
            let sum = sha256_of_file(&file.path())?;
            let file = file.file_name();
            text += &format!("{sum}  {name}/{}\n", file.display());
        }
    }
    Ok(text)
}
