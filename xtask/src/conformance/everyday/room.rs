//! Scenarios: promises of room, quotas and full pools.

use super::{Scenario, Setting, expect};
use crate::workspace::Outcome;

/// All of this subject.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        pool_options: "-o ashift=12 -O recordsize=512 -O copies=3 -O compression=off",
        pool_mib: 512,
        ..Scenario::new("room-of-small-records", small_records)
    },
    Scenario::new("room-for-fallocate", fallocate),
    Scenario {
        pool_options: "-O quota=100M -O reservation=50M",
        ..Scenario::new("room-of-a-new-pool", limits_of_a_new_pool)
    },
    Scenario::new("room-of-mapped-pages", mapped_pages),
    Scenario {
        pool_options: "-O checksum=sha256 -O compression=lz4",
        ..Scenario::new("room-of-the-same-contents", same_contents)
    },
];

/// A byte takes 24 and more: programs are told that there is no space left, and the pool goes on.
/// It was suspended, and its writer hung.
fn small_records(setting: &Setting) -> Outcome {
    let seen = setting.script(
        "! dd if=/dev/urandom of=f bs=1M count=500 2>$DIR/said
        grep -o 'No space left on device' $DIR/said
        sync f
        zpool list -Ho health
        rm f
        dd if=/dev/urandom of=g bs=1M count=5 2>/dev/null
        stat -c %s g",
    )?;
    expect(
        "a full pool",
        "No space left on device\nONLINE\n5242880".to_string(),
        seen,
    )
}

/// `fallocate` promises what there is, as OpenZFS: a range and a tenth more, by the pool, by
/// quotas, and by that of the file's project.
fn fallocate(setting: &Setting) -> Outcome {
    let seen = setting.script(
        "zfs create -o quota=10M everyday/q; zfs create -o refquota=10M everyday/r
        mkdir p; chattr +P -p 7 p; zfs set projectquota@7=10M everyday
        for at in q r p; do
            touch $at/f
            for how in '' -n; do
                fallocate $how -l 100M $at/f 2>/dev/null && echo $at$how too much
                fallocate $how -l 5M $at/f || echo $at$how refused
            done
            stat -c %s $at/f
        done
        fallocate -l 1T f 2>&1 | grep -o 'No space left on device'
        df --output=size -BM p | tail -1 | tr -d ' '",
    )?;
    let expected = "5242880\n5242880\n5242880\nNo space left on device\n10M";
    expect("fallocate", expected.to_string(), seen)
}

/// Limits of the root file system that are given with the pool.
fn limits_of_a_new_pool(setting: &Setting) -> Outcome {
    let seen = setting.answer("zfs get -Hpo value quota,reservation everyday")?;
    expect("limits", "104857600\n52428800".to_string(), seen)?;
    let refused = setting.script(
        "truncate -s 64M $DIR/small
        zpool create -O reservation=1G small $DIR/small 2>&1 || zpool list -Ho name",
    )?;
    expect(
        "a pool that has no room for its reservation",
        "cannot create 'small': one or more devices is out of space\neveryday".to_string(),
        refused,
    )
}

/// Pages that were stored by mapping a file, in a file system that is full: the program that has
/// them stored is told.
fn mapped_pages(setting: &Setting) -> Outcome {
    let seen = setting.script(
        "zfs create -o quota=8M -o compression=off everyday/m
        truncate -s 32M m/f
        python3 - <<'END'
import mmap, os
with open('m/f', 'r+b') as f:
    pages = mmap.mmap(f.fileno(), 32 << 20)
    for at in range(0, 32 << 20, 4096):
        pages[at:at + 4096] = os.urandom(4096)
    try:
        pages.flush()
        os.fsync(f.fileno())
        print('stored')
    except OSError as error:
        print('refused', error.errno in (28, 122))
END
        zpool list -Ho health",
    )?;
    expect("mapped pages", "refused True\nONLINE".to_string(), seen)
}

/// Contents that are written anew as they are take no room, under a strong checksum and with
/// compression.
fn same_contents(setting: &Setting) -> Outcome {
    let written = setting.script(
        "dd if=/dev/urandom of=$DIR/contents bs=1M count=8 2>/dev/null
        cp $DIR/contents f; zpool sync
        zfs snapshot everyday@before
        dd if=$DIR/contents of=f bs=1M conv=notrunc 2>/dev/null; zpool sync
        cmp $DIR/contents f
        zfs get -Hpo value written everyday",
    )?;
    let bytes: u64 = written.parse()?;
    match bytes < 1 << 20 {
        true => Ok(()),
        false => Err(format!("{bytes} bytes were written").into()),
    }
}
