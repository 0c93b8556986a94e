//! Intent logs of volumes that OpenZFS's kernel module wrote and did not replay, for us to
//! replay.
//!
//! # Mechanism
//! The module makes a pool with two volumes in a virtual machine: one whose log has the data in its
//! records, and one (`logbias=throughput`) whose records lead to blocks. Then it freezes the pool,
//! so that nothing but logs is stored, and the volumes are written to and discarded from. OpenZFS's
//! `zdb` must find the records in the logs. We import the pool, which replays them, and export it;
//! `zdb` must find it clean, and the module must find in the volumes what it had written.

use std::fs;
use std::path::Path;

use tarn_oracle::instance::Instance;
use tarn_oracle::machine::Machine;

use super::guest::{expect_records, in_machine};
use crate::changes;
use crate::workspace::Outcome;

/// By which `--only` knows it.
pub const NAME: &str = "volume-logs";

const POOL: &str = "frozen";

/// What the log of each volume must have.
const RECORDS: [(&str, &[&str]); 2] = [
    ("immediate", &["TX_WRITE", "TX_TRUNCATE"]),
    ("indirect", &["TX_WRITE"]),
];

/// Prints the size and the checksum of each volume.
const SUMS: &str = r#"
sums() {
  for n in 1 2 3 4 5 6 7 8; do [ -b /dev/zd0 ] && [ -b /dev/zd16 ] && break; sleep 1; done
  for z in /dev/zd0 /dev/zd16; do echo "$(blockdev --getsize64 $z) $(sha256sum < $z)"; done | sort -n
}
"#;

const LEAVE: &str = r#"
set -eu
cd /share
truncate -s 512M frozen/images/data frozen/images/log
zpool create -o ashift=12 frozen "$PWD/frozen/images/data" log "$PWD/frozen/images/log"
zfs create -V 48m -o volblocksize=16k frozen/immediate
zfs create -V 64m -o volblocksize=16k -o logbias=throughput frozen/indirect
sums > /dev/null
for z in /dev/zd0 /dev/zd16; do dd if=/dev/urandom of=$z bs=1M count=40 oflag=direct status=none; done
zpool sync frozen
sums > frozen/before
# A volume that nobody has open ends its log.
exec 3< /dev/zd0 4< /dev/zd16
zpool freeze frozen
sleep 1
for z in /dev/zd0 /dev/zd16; do
  dd if=/dev/urandom of=$z bs=4k seek=1000 count=20 oflag=direct,dsync status=none
  dd if=/dev/urandom of=$z bs=256k seek=9 count=6 oflag=direct conv=fsync status=none
  dd if=/dev/urandom of=$z bs=16k seek=2900 count=9 oflag=direct conv=fsync status=none
done
for z in /dev/zd0 /dev/zd16; do
  [ $(blockdev --getsize64 $z) = $((48 << 20)) ] && blkdiscard -v -o $((20 << 20)) -l $((3 << 20)) $z
  dd if=/dev/urandom of=$z bs=512 seek=43001 count=3 oflag=direct,dsync status=none
done
sums > frozen/after
exec 3<&- 4<&-
zpool export frozen
"#;

const LOOK: &str = r#"
set -eu
zpool import -d /share/frozen/images frozen
sums > /share/frozen/replayed
zpool scrub -w frozen
zpool status frozen
zpool export frozen
"#;

/// Has the module leave logs, replays them, and has the module look.
pub fn replay(machine: &Machine, instance: &Instance, share: &Path) -> Outcome {
    let folder = share.join(POOL);
    let images = folder.join("images");
    fs::create_dir_all(&images)?;
    in_machine(machine, share, "volumes.sh", &format!("{SUMS}{LEAVE}"))?;
    let sums = |name: &str| fs::read_to_string(folder.join(name));
    let (before, after) = (sums("before")?, sums("after")?);
    if before.lines().count() != RECORDS.len()
        || before.lines().zip(after.lines()).any(|(a, b)| a == b)
    {
        return Err(format!("not every volume was changed: from\n{before}to\n{after}").into());
    }
    expect_records(&images, POOL, &RECORDS)?;
    let place = images.display().to_string();
    let imported = instance.must("zpool", &["import", "-f", "-N", "-d", &place, POOL])?;
    if !imported.stderr.is_empty() {
        return Err(format!("the import complains:\n{}", imported.stderr).into());
    }
    instance.must("zpool", &["export", POOL])?;
    changes::expect_clean(instance, &images, POOL, &[])?;
    in_machine(machine, share, "volumes.sh", &format!("{SUMS}{LOOK}"))?;
    let replayed = sums("replayed")?;
    match replayed == after {
        true => Ok(()),
        false => Err(format!("what we replayed is\n{replayed}and was\n{after}").into()),
    }
}
