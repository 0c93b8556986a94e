//! Scenarios: the kernel's page cache beside what is stored.

use super::{Scenario, Setting, expect};
use crate::workspace::Outcome;

/// All of this subject.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "asynchronous-direct-writes",
        reads_see_asynchronous_direct_writes,
    ),
    Scenario::new("mapped-files-at-stop", mapped_files_are_stored_at_stop),
    Scenario::new(
        "mapped-files-at-unmount",
        mapped_files_are_stored_at_unmount,
    ),
    Scenario::new(
        "mapped-files-at-changes",
        mapped_files_are_stored_at_changes,
    ),
    Scenario::new("stop-of-a-suspended-pool", stop_tells_what_it_cannot_store),
    Scenario::new("lists-after-acltype", lists_end_with_the_property),
    Scenario::new("blocks-after-sync", blocks_are_right_after_sync),
];

/// Writes sixteen blocks at once past the page cache, while another thread reads through it; prints
/// how many blocks are read as they were before.
const DIRECT_WRITES: &str = r#"
import ctypes, mmap, os, platform, struct, sys, threading
SETUP, GETEVENTS, SUBMIT = (206, 208, 209) if platform.machine() == "x86_64" else (0, 4, 2)
BLOCK, COUNT, ROUNDS = 65536, 16, 60
libc = ctypes.CDLL(None, use_errno=True)
direct = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
cached = os.open(sys.argv[1], os.O_RDONLY)
blocks = [mmap.mmap(-1, BLOCK) for _ in range(COUNT)]
for at, block in enumerate(blocks):
    os.pwritev(direct, [block], at * BLOCK)
context = ctypes.c_ulong(0)
assert libc.syscall(SETUP, COUNT, ctypes.byref(context)) == 0
events = (ctypes.c_char * (32 * COUNT))()
over = threading.Event()
def read():
    while not over.is_set():
        for at in range(COUNT):
            os.pread(cached, BLOCK, at * BLOCK)
stale = 0
for turn in range(1, ROUNDS + 1):
    over.clear()
    reader = threading.Thread(target=read)
    reader.start()
    calls, pointers = [], (ctypes.c_void_p * COUNT)()
    for at, block in enumerate(blocks):
        block[:] = bytes([turn]) * BLOCK
        place = ctypes.addressof(ctypes.c_char.from_buffer(block))
        call = struct.pack("QIIHhIQQqQII", 0, 0, 0, 1, 0, direct, place, BLOCK, at * BLOCK, 0, 0, 0)
        calls.append(ctypes.create_string_buffer(call, 64))
        pointers[at] = ctypes.addressof(calls[at])
    many = ctypes.c_long(COUNT)
    assert libc.syscall(SUBMIT, context, many, pointers) == COUNT
    assert libc.syscall(GETEVENTS, context, many, many, events, None) == COUNT
    over.set()
    reader.join()
    stale += sum(os.pread(cached, BLOCK, at * BLOCK) != blocks[at][:] for at in range(COUNT))
print(stale)
"#;

fn reads_see_asynchronous_direct_writes(setting: &Setting) -> Outcome {
    let file = setting.mount.join("file").display().to_string();
    let spoken = setting.program("python3", &["-c", DIRECT_WRITES, &file])?;
    let stale = spoken.expect_success()?.stdout;
    expect("blocks of 960 that are read as before", "0", stale.trim())
}

/// `map FILE`: a program maps a file, stores into it, and goes on until `let_go`. `kept FILE` tells
/// whether that is there.
const MAPPING: &str = r#"
M=$PWD; cd /
map() {
    rm -f "$DIR/ready"
    python3 -c '
import mmap, os, signal, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(file, 65536)
memory = mmap.mmap(file, 65536)
memory[:] = b"D" * 65536
open(sys.argv[2], "w").close()
signal.pause()' "$1" "$DIR/ready" &
    program=$!
    until [ -e "$DIR/ready" ]; do sleep 0.02; done
}
let_go() { kill $program; wait $program || true; }
kept() { [ "$(tr -d D <"$1" | wc -c) $(stat -c %s "$1")" = "0 65536" ] && echo kept || echo lost; }
"#;

fn mapped(setting: &Setting, script: &str) -> Outcome<String> {
    setting.script(&format!("{MAPPING}{script}"))
}

fn mapped_files_are_stored_at_stop(setting: &Setting) -> Outcome {
    let seen = mapped(
        setting,
        r#"
map "$M/stop"; tarn stop >/dev/null; let_go
zfs list -H -o name everyday >/dev/null; kept "$M/stop"
map "$M/term"; daemon=$(cat "$TARN_DIR/tarnd.lock"); kill -TERM "$daemon"
while kill -0 "$daemon" 2>/dev/null; do sleep 0.02; done; let_go
zfs list -H -o name everyday >/dev/null; kept "$M/term"
tarn stop >/dev/null; tarnd --foreground 2>/dev/null & daemon=$!
until [ -S "$TARN_DIR/tarnd.sock" ]; do sleep 0.02; done
map "$M/int"; kill -INT $daemon; wait $daemon; echo $?; let_go
zfs list -H -o name everyday >/dev/null; kept "$M/int""#,
    )?;
    expect("what programs stored", "kept\nkept\n0\nkept", seen.as_str())
}

fn mapped_files_are_stored_at_unmount(setting: &Setting) -> Outcome {
    let seen = mapped(
        setting,
        r#"
map "$M/unmount"; zfs unmount -f everyday; let_go
zfs mount everyday; kept "$M/unmount"
map "$M/lazy"; umount -l "$M"; zpool export -f everyday; let_go
zpool import -d "$DIR/images" everyday; kept "$M/lazy"
map "$M/export"; zpool export -f everyday; let_go
zpool import -d "$DIR/images" everyday; kept "$M/export"
map "$M/destroy"; zpool destroy -f everyday; let_go
zpool import -D -d "$DIR/images" everyday; kept "$M/destroy""#,
    )?;
    let all = ["kept"; 4].join("\n");
    expect("what programs stored", all.as_str(), seen.as_str())
}

fn mapped_files_are_stored_at_changes(setting: &Setting) -> Outcome {
    let seen = mapped(
        setting,
        r#"
zfs create everyday/a; zfs snapshot everyday/a@s; zfs create everyday/a/b
map "$M/a/b/rollback"; zfs rollback -f everyday/a@s; let_go; kept "$M/a/b/rollback"
map "$M/a/b/rename"; zfs rename -f everyday/a/b everyday/a/c; let_go; kept "$M/a/c/rename"
zfs create everyday/s; zfs snapshot everyday/s@one; zfs send everyday/s@one | zfs receive everyday/t
zfs snapshot everyday/s@two; zfs create everyday/t/c
map "$M/t/c/receive"; zfs send -i one everyday/s@two | zfs receive -F everyday/t; let_go; kept "$M/t/c/receive"
map "$M/readonly"; zfs set readonly=on everyday; let_go
zfs unmount -f everyday; zfs mount everyday; kept "$M/readonly"; zfs set readonly=off everyday
map "$M/moved"; zfs set mountpoint="$M.2" everyday 2>/dev/null || echo busy; let_go; kept "$M/moved""#,
    )?;
    let all = "kept\nkept\nkept\nkept\nbusy\nkept";
    expect("what programs stored", all, seen.as_str())
}

/// A pool on a file for which its file system has no room is suspended.
fn stop_tells_what_it_cannot_store(setting: &Setting) -> Outcome {
    const SCRIPT: &str = r#"
cd /; mkdir "$DIR/small"; mount -t tmpfs -o size=40M none "$DIR/small"
trap 'umount -l "$DIR/small"' EXIT
fill() {
    rm -f "$DIR/small/disk"; truncate -s 256M "$DIR/small/disk"
    zpool create -O compression=off -m "$DIR/s" small "$DIR/small/disk"
    dd if=/dev/urandom of="$DIR/s/file" bs=1M count=60 2>/dev/null & writer=$!
    for _ in $(seq 1500); do
        [ "$(zpool list -H -o health small)" != SUSPENDED ] || return 0
        sleep 0.02
    done
    echo "the pool is not suspended"; return 1
}
words() { sed "s|$DIR|DIR|g; s|(process [0-9]*)|(process N)|" "$DIR/said"; }
empty() { kill $writer 2>/dev/null || true; wait $writer || true; umount -l "$DIR/s" 2>/dev/null || true; zpool destroy -f small 2>/dev/null || true; }
fill
tarn stop >"$DIR/said" 2>&1 || echo "refused $?"; words
zpool list -H -o name,health small
tarn stop -f >"$DIR/said" 2>&1; echo "forced $?"; words
empty; tarn stop >/dev/null || true
tarnd --foreground 2>"$DIR/log" & daemon=$!
until [ -S "$TARN_DIR/tarnd.sock" ]; do sleep 0.02; done
zpool export -f small 2>/dev/null || true
fill
kill -TERM $daemon; wait $daemon || echo "ended $?"; cut -d' ' -f2- "$DIR/log" | grep "^pool 'small'"
empty"#;
    let seen = setting.script(SCRIPT)?;
    let lost = "pool 'small': it could not be stored, and was given up with what was stored last";
    let expected = "cannot stop tarnd: pool 'small': pool I/O is currently suspended\n\
         use 'tarn stop -f' to give it up with what was stored last\n";
    let expected = format!(
        "refused 1\n{expected}small\tSUSPENDED\nforced 0\ntarnd stopped (process N)\n{lost}\nended 3\n{lost}"
    );
    expect("what is told", expected.as_str(), seen.as_str())
}

fn lists_end_with_the_property(setting: &Setting) -> Outcome {
    let seen = setting.script(
        r#"
user() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
may() { user cat "$PWD/file" >/dev/null 2>&1 && echo -n "yes " || echo -n "no "; }
chmod 755 "$DIR" . ..; echo secret >file; chmod 600 file; setfacl -m u:65534:r file
for _ in 1 2 3; do
    may; zfs set acltype=off everyday; may; zfs set acltype=posix everyday
done"#,
    )?;
    expect("may a user read", ["yes no"; 3].join(" "), seen)
}

fn blocks_are_right_after_sync(setting: &Setting) -> Outcome {
    let seen = setting.script(
        r#"
head -c 3M /dev/urandom >file; du -k file >/dev/null; zpool sync everyday
[ "$(du -k file | cut -f1)" -ge 3072 ] && echo right
: >file; du -k file >/dev/null; zpool sync everyday
[ "$(du -k file | cut -f1)" -lt 16 ] && echo right"#,
    )?;
    expect("du after zpool sync", "right\nright", seen.as_str())
}
