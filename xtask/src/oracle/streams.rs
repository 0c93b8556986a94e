//! Streams between us and OpenZFS's kernel module, there and back.
//!
//! # Mechanism
//! A file system is made by the module in a virtual machine and sent to us. From then on each side
//! takes the other's increment, changes the file system, and sends its own back, twice each. In the
//! end both have four snapshots, whose manifests must be the same, and so must what `zfs list -p`
//! says of their space. The module scrubs its pool; `zdb` finds ours clean.
//!
//! Beside that, encrypted file systems come to us raw, and go back from us raw. The module loads
//! their keys and must find in them what it had sealed: it checks every code, of every block.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tarn_oracle::instance::Instance;
use tarn_oracle::machine::Machine;
use tarn_oracle::program;
use tarn_workload::tree;

use super::guest::in_machine;
use crate::changes;
use crate::golden_streams::rootless;
use crate::workspace::Outcome;

/// By which `--only` knows it.
pub const NAME: &str = "streams";

const NEAR: &str = "near";
const FAR: &str = "far";

/// No stream takes us longer than this.
const STREAM_LIMIT: Duration = Duration::from_secs(300);

/// What `zfs list` says of the space of a file system and of its snapshots. Charges of the head
/// depend on when it was mounted.
const COLUMNS: &str = "name,used,referenced,logicalreferenced,written,compressratio";

const COMMON: &str = r#"
set -eu
cd /share/streams
tree=/share/tarn-tree
far() { zpool import -d /share/streams/far far; }
"#;

const BEGIN: &str = r#"
truncate -s 768M far/image
zpool create -o ashift=12 -O xattr=sa -O acltype=posix far "$PWD/far/image"
zfs create far/a
$tree fill /far/a 301 small
zfs snapshot far/a@1
zfs send far/a@1 > a-1
echo a-long-passphrase | zfs create -o encryption=on -o keyformat=passphrase -o pbkdf2iters=100000 far/e
zfs create -o compression=zstd-3 -o recordsize=1M -o dnodesize=auto far/e/kid
echo another-passphrase | zfs create -o encryption=aes-128-ccm -o keyformat=passphrase -o pbkdf2iters=100000 far/e/own
seed=310
for fs in e e/kid e/own; do
  seed=$((seed + 1))
  $tree fill /far/$fs $seed small
  mkdir /far/$fs/lots
  for n in $(seq 1 150); do echo $n > /far/$fs/lots/f$n; done
  dd if=/dev/urandom of=/far/$fs/big bs=128k count=24 status=none
done
zfs snapshot -r far/e@1
zfs send -w far/e@1 > e-1
for fs in e e/kid e/own; do
  seed=$((seed + 1))
  $tree churn /far/$fs $seed
  for n in $(seq 20 120); do rm /far/$fs/lots/f$n; done
  dd if=/dev/urandom of=/far/$fs/big bs=128k count=1 seek=2500 conv=notrunc status=none
  truncate -s 1000001 /far/$fs/big
  head -c 70000 /dev/urandom > /far/$fs/lots/f3
done
zfs snapshot -r far/e@2
zfs send -w -i @1 far/e@2 > e-2
zfs send -R -w far/e@2 > tree
for fs in e e/kid e/own; do
  for n in 1 2; do $tree manifest /far/$fs/.zfs/snapshot/$n > "sealed-${fs//\//+}@$n"; done
done
zpool export far
"#;

const GO_ON: &str = r#"
far
zfs receive -F far/a < a-2
$tree churn /far/a 321
zfs snapshot far/a@3
zfs send -i @2 far/a@3 > a-3
opened() { # opened FILESYSTEM AS SNAPSHOTS
  [ "$(zfs get -H -o value keystatus "$1")" = available ] || { echo "$1 is not open"; exit 1; }
  zfs mount "$1" 2>/dev/null || true
  for n in $3; do $tree manifest "/$1/.zfs/snapshot/$n" > "opened-$2@$n"; done
}
zfs receive far/back < back-1
zfs receive far/back < back-2
echo a-long-passphrase | zfs load-key far/back
opened far/back alone "1 2"
zfs receive far/again < again
[ "$(zfs get -H -o value encryptionroot far/again/kid)" = far/again ]
[ "$(zfs get -H -o value encryptionroot far/again/own)" = far/again/own ]
echo a-long-passphrase | zfs load-key far/again
echo another-passphrase | zfs load-key far/again/own
opened far/again e "1 2"
opened far/again/kid e+kid "1 2"
opened far/again/own e+own "1 2"
zpool scrub -w far
zpool status -v far | tee status
zpool export far
"#;

const END: &str = r#"
far
zfs receive -F far/a < a-4
for n in 1 2 3 4; do $tree manifest /far/a/.zfs/snapshot/$n > "there@$n"; done
zfs list -Hp -t snapshot -o COLUMNS -s creation -d 1 far/a > space
zpool scrub -w far
zpool status -v far | tee status
zpool export far
"#;

/// Sends and receives, there and back.
pub fn exchange(machine: &Machine, instance: &Instance, share: &Path) -> Outcome {
    let exchange = Exchange {
        machine,
        instance,
        share,
        folder: share.join(NAME),
    };
    fs::create_dir_all(exchange.folder.join("far"))?;
    let images = exchange.folder.join("near");
    fs::create_dir_all(&images)?;
    let image = images.join("image");
    File::create(&image)?.set_len(768 << 20)?;
    let (root, image) = (
        instance.root().display().to_string(),
        image.display().to_string(),
    );
    exchange.in_machine(BEGIN)?;
    let options = ["-o", "ashift=12", "-O", "xattr=sa", "-O", "acltype=posix"];
    let create = [&["create", "-R", &root], &options[..], &[NEAR, &image]].concat();
    instance.must("zpool", &create)?;
    exchange.receive(&["near/a"], "a-1")?;
    exchange.change_and_send(2, 320)?;
    exchange.keep_encrypted()?;
    exchange.in_machine(GO_ON)?;
    exchange.receive(&["-F", "near/a"], "a-3")?;
    exchange.change_and_send(4, 322)?;
    let here = exchange.manifests("near/a", &["1", "2", "3", "4"])?;
    let listed = ["list", "-Hp", "-t", "snapshot", "-o", COLUMNS];
    let listed = [&listed[..], &["-s", "creation", "-d", "1", "near/a"]].concat();
    let space = instance.must("zfs", &listed)?.stdout;
    instance.zpool("export near")?;
    changes::expect_clean(instance, &images, NEAR, &[])?;
    exchange.in_machine(&END.replace("COLUMNS", COLUMNS))?;
    exchange.expect_clean_scrub()?;
    for (snapshot, lines) in here {
        exchange.expect_same(&format!("there@{snapshot}"), &lines)?;
    }
    for name in ["e", "e+kid", "e+own"] {
        for snapshot in ["1", "2"] {
            let sealed = exchange.lines(&format!("sealed-{name}@{snapshot}"))?;
            exchange.expect_same(&format!("opened-{name}@{snapshot}"), &sealed)?;
        }
    }
    for snapshot in ["1", "2"] {
        let sealed = exchange.lines(&format!("sealed-e@{snapshot}"))?;
        exchange.expect_same(&format!("opened-alone@{snapshot}"), &sealed)?;
    }
    let there = fs::read_to_string(exchange.folder.join("space"))?.replace(FAR, NEAR);
    match there == space {
        true => Ok(()),
        false => Err(format!("space here:\n{space}and there:\n{there}").into()),
    }
}

struct Exchange<'a> {
    machine: &'a Machine,
    instance: &'a Instance,
    share: &'a Path,
    folder: PathBuf,
}

impl Exchange<'_> {
    fn in_machine(&self, body: &str) -> Outcome {
        let text = format!("{COMMON}{body}");
        in_machine(self.machine, self.share, "streams.sh", &text)
    }

    fn receive(&self, options: &[&str], stream: &str) -> Outcome {
        let mut command = self.instance.command("zfs");
        command.arg("receive").args(options);
        let input = Stdio::from(File::open(self.folder.join(stream))?);
        program::run_reading(&mut command, input, STREAM_LIMIT)?.expect_success()?;
        Ok(())
    }

    fn send(&self, options: &[&str], stream: &str) -> Outcome {
        let mut command = self.instance.command("zfs");
        command.arg("send").args(options);
        let output = Stdio::from(File::create(self.folder.join(stream))?);
        program::run_writing(&mut command, output, STREAM_LIMIT)?.expect_success()?;
        Ok(())
    }

    /// Changes our file system, and sends that.
    fn change_and_send(&self, snapshot: u32, seed: u64) -> Outcome {
        let mount = changes::mount_of(self.instance, "near/a")?;
        tree::churn(&mount, seed)?;
        let name = format!("near/a@{snapshot}");
        self.instance.must("zfs", &["snapshot", &name])?;
        let before = format!("@{}", snapshot - 1);
        self.send(&["-i", &before, &name], &format!("a-{snapshot}"))
    }

    /// What is encrypted comes and goes. Its streams are the same again, but for names.
    fn keep_encrypted(&self) -> Outcome {
        self.receive(&["near/e"], "e-1")?;
        self.receive(&["near/e"], "e-2")?;
        self.receive(&["near/tree"], "tree")?;
        for (name, root) in [("kid", "near/tree"), ("own", "near/tree/own")] {
            let asked = format!("near/tree/{name}");
            let words = ["get", "-H", "-o", "value", "encryptionroot", &asked];
            let shown = self.instance.must("zfs", &words)?.stdout;
            if shown.trim() != root {
                return Err(format!("the root of {asked} is {}", shown.trim()).into());
            }
        }
        self.send(&["-w", "near/e@1"], "back-1")?;
        self.send(&["-w", "-i", "@1", "near/e@2"], "back-2")?;
        self.send(&["-R", "-w", "near/tree@2"], "again")?;
        self.instance.zfs("destroy -r near/tree")?;
        Ok(())
    }

    fn manifests(&self, dataset: &str, snapshots: &[&str]) -> Outcome<Vec<(String, Vec<String>)>> {
        let mount = changes::mount_of(self.instance, dataset)?;
        let mut found = Vec::new();
        for snapshot in snapshots {
            let lines = tree::manifest(&mount.join(".zfs/snapshot").join(snapshot))?;
            found.push((snapshot.to_string(), rootless(&lines)));
        }
        Ok(found)
    }

    fn lines(&self, file: &str) -> Outcome<Vec<String>> {
        let text = fs::read_to_string(self.folder.join(file))?;
        let lines: Vec<String> = text.lines().map(str::to_string).collect();
        match lines.is_empty() {
            true => Err(format!("{file} is empty").into()),
            false => Ok(rootless(&lines)),
        }
    }

    fn expect_same(&self, file: &str, expected: &[String]) -> Outcome {
        let found = self.lines(file)?;
        let differences = tarn_golden::compare::manifests(expected, &found);
        match differences.first() {
            None => Ok(()),
            Some(first) => Err(format!(
                "{file}: {} differences; the first: {first}",
                differences.len()
            )
            .into()),
        }
    }

    fn expect_clean_scrub(&self) -> Outcome {
        let status = fs::read_to_string(self.folder.join("status"))?;
        let is_clean = status.contains("repaired 0B")
            && status.contains("with 0 errors")
            && status.contains("errors: No known data errors");
        match is_clean {
            true => Ok(()),
            false => Err(format!("the scrub was not clean:\n{status}").into()),
        }
    }
}
