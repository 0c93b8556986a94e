//! Snapshots of the pools that are judged: taken while files change, cloned, promoted, gone back
//! to, kept and destroyed.

use std::fs;
use tarn_oracle::instance::Instance;
use tarn_workload::tree;

use crate::changes;
use crate::workspace::Outcome;

/// The file systems of a pool that have snapshots; each of them has another history.
const FILESYSTEMS: [&str; 5] = [
    "gzip-4k",
    "zstd-sha512",
    "off-512",
    "copies3",
    "edonr-legacy",
];

/// Takes a snapshot of each of them by this name, together with more.
pub fn take(instance: &Instance, pool: &str, short: &str, more: &[&str]) -> Outcome {
    let all = FILESYSTEMS.iter().chain(more);
    let names: Vec<String> = all.map(|name| format!("{pool}/{name}@{short}")).collect();
    let mut words = vec!["snapshot"];
    words.extend(names.iter().map(String::as_str));
    instance.must("zfs", &words)?;
    Ok(())
}

/// Does with a pool that has the snapshots `one` what can be done with snapshots; its file systems
/// have changed since.
pub fn live_with(instance: &Instance, pool: &str, seed: u64) -> Outcome {
    take(instance, pool, "two", &[])?;
    for (step, name) in (1..).zip(FILESYSTEMS) {
        churn(instance, &format!("{pool}/{name}"), seed + step)?;
    }
    instance.zfs(&format!("destroy {pool}/gzip-4k@one"))?;
    instance.zfs(&format!("hold keep {pool}/gzip-4k@two"))?;
    instance.zfs(&format!("clone {pool}/zstd-sha512@one {pool}/cloned"))?;
    churn(instance, &format!("{pool}/cloned"), seed)?;
    instance.zfs(&format!("clone {pool}/off-512@one {pool}/listed"))?;
    let little = changes::mount_of(instance, &format!("{pool}/listed"))?.join("little");
    fs::write(little, "so little that its livelist is worth keeping")?;
    instance.zfs(&format!("clone {pool}/off-512@one {pool}/promoted"))?;
    churn(instance, &format!("{pool}/promoted"), seed)?;
    instance.zfs(&format!("promote {pool}/promoted"))?;
    instance.zfs(&format!("rollback -r {pool}/copies3@one"))?;
    churn(instance, &format!("{pool}/copies3"), seed)?;
    instance.zfs(&format!("bookmark {pool}/edonr-legacy@one #mark"))?;
    instance.zfs(&format!("destroy {pool}/edonr-legacy@one"))?;
    instance.zfs(&format!("rename {pool}/edonr-legacy@two @renamed"))?;
    Ok(())
}

fn churn(instance: &Instance, dataset: &str, seed: u64) -> Outcome {
    let mount = changes::mount_of(instance, dataset)?;
    tree::churn(&mount, seed).map_err(|error| format!("changing {dataset}: {error}"))?;
    Ok(())
}

/// Destroys the clone that the kernel module made, by the livelist that it kept. False when there
/// is none.
pub fn destroy_theirs(instance: &Instance, pool: &str) -> Outcome<bool> {
    let theirs = format!("{pool}/theirs");
    if instance.must("zfs", &["list", &theirs]).is_err() {
        return Ok(false);
    }
    instance.zfs(&format!("destroy {theirs}"))?;
    let history = instance.must("zpool", &["history", "-i", pool])?.stdout;
    let destroyed = format!("destroy {theirs} ");
    let line = history.lines().find(|line| line.contains(&destroyed));
    match line {
        Some(line) if line.contains("(livelist") => Ok(true),
        other => Err(format!("{theirs} was not freed by its livelist: {other:?}").into()),
    }
}

/// What the kernel module does with them where they are, in the shell of the guest; `$pool` is the
/// pool.
pub const IN_GUEST: &str = r#"
    if zfs list "$pool/cloned" >/dev/null 2>&1; then
      try zfs destroy "$pool/listed"
      zpool history -i "$pool" | grep "destroy $pool/listed " | grep -q "(livelist" || { echo "FAILED: $pool/listed was not freed by its livelist"; failed=1; }
      try zfs destroy "$pool/zstd-sha512@two"
      try zfs release keep "$pool/gzip-4k@two"
      try zfs destroy "$pool/gzip-4k@two"
      try zfs promote "$pool/cloned"
      try zfs rollback "$pool/promoted@one"
      try zfs clone "$pool/promoted@one" "$pool/theirs"
      echo little > "$(zfs get -H -o value mountpoint "$pool/theirs")/little"
      try zfs destroy "$pool/edonr-legacy#mark"
      try zfs snapshot "$pool/off-512@kernel" "$pool/cloned@kernel"
    fi
"#;
