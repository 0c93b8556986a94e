//! Changes of every kind that an intent log has a record for, each made durable by itself.
//!
//! # Problem
//! What a log does not say, or says in a way that another implementation understands differently,
//! shows only when the log is replayed there. So after these changes a file system is left without
//! another word, and the next import must find them all.
//!
//! # Mechanism
//! [`prepare`] makes files, which are then to be stored by other means. [`change`] changes them in
//! every way there is, within a second or two, and calls `fsync` on all that is left. A folder for
//! each kind of change; what a file system does not have (attributes, flags, nodes of devices) is
//! left out and named.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, IFlags, Mode, RenameFlags, Timespec, Timestamps,
    XattrFlags, fallocate, ioctl_setflags, makedev, mknodat, renameat_with, utimensat,
};
use rustix::io::Errno;

use crate::twister::Twister;

/// A call that was refused.
#[derive(Debug, thiserror::Error)]
#[error("to {what} {}: {source}", path.display())]
pub struct Refused {
    /// What was asked.
    what: &'static str,
    /// Of which file.
    path: PathBuf,
    /// Why not.
    source: io::Error,
}

fn refused<E: Into<io::Error>>(what: &'static str, path: &Path) -> impl FnOnce(E) -> Refused {
    move |source| Refused {
        what,
        path: path.to_path_buf(),
        source: source.into(),
    }
}

/// Folders, one for each kind of change.
const FOLDERS: [&str; 8] = [
    "outgrown",
    "made",
    "names",
    "written",
    "copied",
    "resized",
    "described",
    "attributes",
];
/// The files in each that are there before.
const BEFORE: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Of each of them: more than a block of any record size that is tried, and no multiple of one.
const BEFORE_BYTES: usize = 150_001;
/// As many in a row let a log expect small ones. Ours looks at the last eight.
const SMALL_CHANGES: usize = 9;
/// More than an attribute beside its file may have, less than the system's 64 KiB, and no multiple
/// of a sector: then its bytes are in the log.
const LARGE_VALUE_BYTES: usize = 50_001;

/// Makes what is there before the changes.
///
/// # Errors
/// The first call that is refused.
pub fn prepare(root: &Path, seed: u64) -> Result<(), Refused> {
    let mut chance = Twister::new(seed ^ 0x6c6f_6767);
    for folder in FOLDERS {
        let folder = root.join(folder);
        fs::create_dir(&folder).map_err(refused("make", &folder))?;
        for name in BEFORE {
            let path = folder.join(name);
            write(&path, 0, &chance.bytes(BEFORE_BYTES))?;
        }
        for name in ["empty", "full"] {
            let path = folder.join(name);
            fs::create_dir(&path).map_err(refused("make", &path))?;
        }
        write(&folder.join("full/inner"), 0, &chance.bytes(700))?;
    }
    let attributed = root.join("attributes/a");
    for (name, length) in [("user.kept", 30), ("user.changed", 400), ("user.gone", 50)] {
        set_xattr(&attributed, name, &chance.bytes(length))?;
    }
    // A log begins with a group that is stored, which would make others' logs superfluous.
    sync(&attributed)
}

/// Changes it in every way, and has all of it made durable. Gives the names of changes the file
/// system does not have.
///
/// # Errors
/// The first call that is refused.
pub fn change(root: &Path, seed: u64) -> Result<Vec<&'static str>, Refused> {
    let mut chance = Twister::new(seed ^ 0x6368_616e);
    let mut absent = Vec::new();
    outgrow(&root.join("outgrown"), &mut chance, &mut absent)?;
    make(&root.join("made"), &mut chance, &mut absent)?;
    rename(&root.join("names"), &mut absent)?;
    overwrite(&root.join("written"), &mut chance)?;
    copy(&root.join("copied"), &mut chance, &mut absent)?;
    resize(&root.join("resized"), &mut chance)?;
    describe(&root.join("described"), &mut absent)?;
    attribute(&root.join("attributes"), &mut chance, &mut absent)?;
    make_durable(root)?;
    Ok(absent)
}

/// Small changes, each durable before the next, and then one whose records are large and must be in
/// one block: the block that waits for records has too little room, and stays without any.
fn outgrow(
    place: &Path,
    chance: &mut Twister,
    absent: &mut Vec<&'static str>,
) -> Result<(), Refused> {
    let path = place.join("a");
    for _ in 0..SMALL_CHANGES {
        write(&path, 0, &chance.bytes(100))?;
        sync(&path)?;
    }
    let path = place.join("b");
    let value = chance.bytes(LARGE_VALUE_BYTES);
    match rustix::fs::setxattr(&path, "user.large", &value, XattrFlags::empty()) {
        Err(Errno::NOSPC | Errno::TOOBIG | Errno::FBIG) => absent.push("large attributes"),
        set => set.map_err(refused("set attribute of", &path))?,
    }
    sync(&path)
}

fn make(place: &Path, chance: &mut Twister, absent: &mut Vec<&'static str>) -> Result<(), Refused> {
    write(&place.join("empty-file"), 0, &[])?;
    write(&place.join("small"), 0, &chance.bytes(11))?;
    write(&place.join("large"), 0, &chance.bytes(400_000))?;
    write(&place.join("n".repeat(255)), 0, &chance.bytes(100))?;
    let folder = place.join("folder");
    fs::create_dir(&folder).map_err(refused("make", &folder))?;
    set_mode(&folder, 0o2751)?;
    write(&folder.join("inner"), 0, &chance.bytes(5000))?;
    let link = place.join("link");
    symlink("a/short/target", &link).map_err(refused("make", &link))?;
    let link = place.join("long-link");
    symlink("t".repeat(900), &link).map_err(refused("make", &link))?;
    let nodes = [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("character", FileType::CharacterDevice, makedev(1, 3)),
        ("block", FileType::BlockDevice, makedev(7, 200)),
    ];
    for (name, kind, device) in nodes {
        let path = place.join(name);
        match mknodat(CWD, &path, kind, Mode::from_raw_mode(0o640), device) {
            Err(Errno::PERM) => absent.push("nodes of devices"),
            made => made.map_err(refused("make", &path))?,
        }
    }
    // Made and gone, made and replaced, made again.
    let brief = place.join("brief");
    write(&brief, 0, &chance.bytes(3000))?;
    remove(&brief)?;
    write(&brief, 0, &chance.bytes(200))?;
    let linked = place.join("second-name");
    fs::hard_link(place.join("a"), &linked).map_err(refused("link", &linked))?;
    let linked = place.join("folder/third-name");
    fs::hard_link(place.join("a"), &linked).map_err(refused("link", &linked))?;
    remove(&place.join("a"))?;
    remove(&place.join("b"))?;
    let empty = place.join("empty");
    fs::remove_dir(&empty).map_err(refused("remove", &empty))
}

fn rename(place: &Path, absent: &mut Vec<&'static str>) -> Result<(), Refused> {
    let moves = [
        ("a", "new-name", RenameFlags::NOREPLACE),
        ("b", "full/moved", RenameFlags::empty()),
        ("c", "d", RenameFlags::empty()),
        ("e", "full/inner", RenameFlags::EXCHANGE),
        ("full", "empty/full", RenameFlags::empty()),
        ("empty", "f", RenameFlags::EXCHANGE),
        ("new-name", "newest-name", RenameFlags::WHITEOUT),
    ];
    for (from, to, flags) in moves {
        let (from, to) = (place.join(from), place.join(to));
        match renameat_with(CWD, &from, CWD, &to, flags) {
            Err(Errno::INVAL | Errno::PERM) if flags == RenameFlags::WHITEOUT => {
                absent.push("whiteouts");
            }
            renamed => renamed.map_err(refused("rename", &from))?,
        }
    }
    Ok(())
}

fn overwrite(place: &Path, chance: &mut Twister) -> Result<(), Refused> {
    let writes: [(&str, u64, usize); 9] = [
        ("a", 0, 1),
        ("a", 77_777, 4096),
        ("b", 0, BEFORE_BYTES),
        ("c", 131_071, 2),
        ("c", 131_072, 131_072),
        ("d", 150_001, 900),
        ("e", 10_000_000, 5000),
        ("f", 4096, 4096),
        ("f", 8192, 100_000),
    ];
    for (name, at, length) in writes {
        write(&place.join(name), at, &chance.bytes(length))?;
    }
    // Durable twice, with something else in between.
    let path = place.join("full/inner");
    write(&path, 100, &chance.bytes(10))?;
    sync(&path)?;
    write(&path, 105, &chance.bytes(10))
}

/// Blocks of one file become blocks of another, where they are whole; what is then written into
/// them is the other's alone.
fn copy(place: &Path, chance: &mut Twister, absent: &mut Vec<&'static str>) -> Result<(), Refused> {
    let all = BEFORE_BYTES;
    let copies = [
        (("a", 0), ("twin", 0), all),
        (("b", 0), ("c", 131_072), 131_072),
        (("d", 0), ("e", 0), all),
        (("f", 0), ("f", 8192), 4096),
        (("twin", 0), ("third", 0), all),
        (("a", 100), ("sparse", 1_000_000), 70_000),
    ];
    for ((source, from), (target, to), length) in copies {
        let (source, target) = (place.join(source), place.join(target));
        match copy_bytes((&source, from), (&target, to), length) {
            Err(Errno::XDEV | Errno::NOSYS | Errno::OPNOTSUPP) => {
                absent.push("copies by references");
                return Ok(());
            }
            copied => copied.map_err(refused("copy", &source))?,
        }
    }
    write(&place.join("e"), 5000, &chance.bytes(20_000))?;
    write(&place.join("a"), 0, &chance.bytes(100))?;
    remove(&place.join("b"))?;
    let twin = place.join("twin");
    open(&twin)?.set_len(9000).map_err(refused("resize", &twin))
}

fn copy_bytes(from: (&Path, u64), to: (&Path, u64), length: usize) -> Result<(), Errno> {
    let file = |path: &Path, for_writing: bool| {
        let mut options = OpenOptions::new();
        options.read(true).write(for_writing).create(for_writing);
        let opened = options.open(path);
        opened.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    };
    let (source, target) = (file(from.0, false)?, file(to.0, true)?);
    let (mut at, mut into, mut left) = (from.1, to.1, length);
    while left > 0 {
        let (source_at, target_at) = (Some(&mut at), Some(&mut into));
        match rustix::fs::copy_file_range(&source, source_at, &target, target_at, left)? {
            0 => return Err(Errno::IO),
            done => left -= done,
        }
    }
    Ok(())
}

fn resize(place: &Path, chance: &mut Twister) -> Result<(), Refused> {
    for (name, size) in [("a", 0), ("b", 70_000), ("c", 1_000_000), ("d", 4096)] {
        let path = place.join(name);
        open(&path)?
            .set_len(size)
            .map_err(refused("resize", &path))?;
    }
    write(&place.join("d"), 20_000, &chance.bytes(3000))?;
    let path = place.join("e");
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(open(&path)?, punch, 5000, 140_000).map_err(refused("punch a hole in", &path))?;
    let path = place.join("f");
    let file = open(&path)?;
    file.set_len(10).map_err(refused("resize", &path))?;
    file.set_len(150_000).map_err(refused("resize", &path))
}

fn describe(place: &Path, absent: &mut Vec<&'static str>) -> Result<(), Refused> {
    set_mode(&place.join("a"), 0o4711)?;
    let path = place.join("b");
    match std::os::unix::fs::chown(&path, Some(12_345), Some(3_000_000_000)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => absent.push("owners"),
        changed => changed.map_err(refused("change the owner of", &path))?,
    }
    let path = place.join("c");
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 1_234_567_890,
            tv_nsec: 987_654_321,
        },
        last_modification: Timespec {
            tv_sec: 981_173_106,
            tv_nsec: 123_456_789,
        },
    };
    utimensat(CWD, &path, &times, AtFlags::empty()).map_err(refused("set times of", &path))?;
    for (name, flags) in [("d", IFlags::IMMUTABLE), ("e", IFlags::APPEND)] {
        let path = place.join(name);
        match ioctl_setflags(open(&path)?, flags) {
            Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::PERM) => absent.push("flags"),
            set => set.map_err(refused("set flags of", &path))?,
        }
    }
    set_mode(&place.join("full"), 0o1700)
}

fn attribute(
    place: &Path,
    chance: &mut Twister,
    absent: &mut Vec<&'static str>,
) -> Result<(), Refused> {
    let path = place.join("a");
    set_xattr(&path, "user.changed", &chance.bytes(90))?;
    set_xattr(&path, "user.new", &chance.bytes(1000))?;
    rustix::fs::removexattr(&path, "user.gone").map_err(refused("remove attribute of", &path))?;
    set_xattr(&place.join("b"), "user.large", &chance.bytes(20_000))?;
    set_xattr(&place.join("c"), "user.text", b"not empty")?;
    set_xattr(&place.join("full"), "user.folder", b"of a folder")?;
    let made = place.join("made");
    write(&made, 0, b"with an attribute from the beginning")?;
    set_xattr(&made, "user.first", b"first")?;
    let acl = access_list();
    for (name, list) in [
        ("d", "system.posix_acl_access"),
        ("empty", "system.posix_acl_default"),
    ] {
        let path = place.join(name);
        match rustix::fs::setxattr(&path, list, &acl, XattrFlags::empty()) {
            Err(Errno::OPNOTSUPP) => absent.push("access lists"),
            set => set.map_err(refused("set access list of", &path))?,
        }
    }
    write(&place.join("empty/inherits"), 0, b"the list of its folder")?;
    let folder = place.join("empty/folder");
    fs::create_dir(&folder).map_err(refused("make", &folder))
}

/// User 1000 reads, the owner reads and writes, as `setfacl` writes it (`posix_acl_xattr.h`).
fn access_list() -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    let nobody = u32::MAX;
    for (tag, permissions, id) in [
        (0x01_u16, 6_u16, nobody),
        (0x02, 4, 1000),
        (0x04, 4, nobody),
        (0x10, 4, nobody),
        (0x20, 0, nobody),
    ] {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

/// Calls `fsync` on each file and folder.
fn make_durable(folder: &Path) -> Result<(), Refused> {
    for entry in fs::read_dir(folder).map_err(refused("list", folder))? {
        let entry = entry.map_err(refused("list", folder))?;
        let kind = entry.file_type().map_err(refused("look at", folder))?;
        if kind.is_dir() {
            make_durable(&entry.path())?;
        } else if kind.is_file() {
            sync(&entry.path())?;
        }
    }
    sync(folder)
}

fn sync(path: &Path) -> Result<(), Refused> {
    let file = File::open(path).map_err(refused("open", path))?;
    file.sync_all().map_err(refused("make durable", path))
}

fn open(path: &Path) -> Result<File, Refused> {
    let opened = OpenOptions::new().write(true).open(path);
    opened.map_err(refused("open", path))
}

fn write(path: &Path, at: u64, bytes: &[u8]) -> Result<(), Refused> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(refused("open", path))?;
    file.write_all_at(bytes, at).map_err(refused("write", path))
}

fn remove(path: &Path) -> Result<(), Refused> {
    fs::remove_file(path).map_err(refused("remove", path))
}

fn set_mode(path: &Path, mode: u32) -> Result<(), Refused> {
    let permissions = fs::Permissions::from_mode(mode);
    fs::set_permissions(path, permissions).map_err(refused("set mode of", path))
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) -> Result<(), Refused> {
    rustix::fs::setxattr(path, OsStr::new(name), value, XattrFlags::empty())
        .map_err(refused("set attribute of", path))
}
