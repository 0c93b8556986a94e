//! Filling a directory with files whose shapes are hard.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, mknodat, utimensat,
};

use super::content::{Content, blob};
use super::{TreeError, refused, refused_call};
use crate::twister::Twister;

/// How much a tree holds: some 1 MiB in 190 files, or 13 MiB in 800.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeSize {
    /// The smaller sizes, two kinds of content, 120 entries in the large directory.
    Small,
    /// Every size and kind, 700 entries in the large directory.
    Full,
}

/// At and beside every size at which a file system changes its ways.
const SIZES: [usize; 26] = [
    0, 1, 13, 100, 112, 113, 511, 512, 513, 1000, 4095, 4096, 4097, 8192, 16384, 20000, 65536,
    100_000, 131_071, 131_072, 131_073, 262_144, 300_001, 524_288, 1_048_576, 1_500_000,
];

/// Fills the empty directory `root`. The same seed gives the same files.
///
/// Device nodes, foreign owners and `trusted` attributes, which only root can make, are left out
/// for other users.
///
/// # Errors
/// The first call that the file system refuses. A file system without extended attributes, or
/// without room for a large one, is accepted.
pub fn fill(root: &Path, seed: u64, size: TreeSize) -> Result<(), TreeError> {
    let mut chance = Twister::new(seed);
    files_of_every_size(root, &mut chance, size)?;
    directories(root, &mut chance, size)?;
    names(root)?;
    sparse_files(root, &mut chance)?;
    links_and_nodes(root)?;
    modes_owners_times(root)?;
    attributes(root, &mut chance)
}

fn files_of_every_size(root: &Path, chance: &mut Twister, size: TreeSize) -> Result<(), TreeError> {
    let (sizes, contents): (&[usize], &[Content]) = match size {
        TreeSize::Full => (&SIZES, &[Content::Random, Content::Text, Content::Mixed]),
        TreeSize::Small => (&SIZES[..19], &[Content::Random, Content::Text]),
    };
    for &bytes in sizes {
        for &content in contents {
            let path = root.join(format!("{}-{bytes}", content.name()));
            write_file(&path, &blob(chance, bytes, content))?;
        }
    }
    Ok(())
}

fn directories(root: &Path, chance: &mut Twister, size: TreeSize) -> Result<(), TreeError> {
    let mut deep = root.join("deep");
    for _ in 0..12 {
        deep.push(format!("d{}", chance.below(100)));
    }
    fs::create_dir_all(&deep).map_err(refused("create directories", &deep))?;

    let many = make_directory(&root.join("many"))?;
    let entries = match size {
        TreeSize::Full => 700,
        TreeSize::Small => 120,
    };
    for index in 0..entries {
        let name = format!("entry-{index:05}-{:x}", chance.below(1 << 30));
        write_file(&many.join(name), format!("{index}\n").as_bytes())?;
    }
    let few = make_directory(&root.join("few"))?;
    for index in 0..9 {
        write_file(&few.join(format!("f{index}")), &b"xxxxxxxx"[..index])?;
    }
    Ok(())
}

fn names(root: &Path) -> Result<(), TreeError> {
    let foreign = make_directory(&root.join("naïve-ünïcode-目录-🐟"))?;
    write_file(&foreign.join("файл"), "привет\n".as_bytes())?;
    write_file(&root.join("n".repeat(255)), b"long name\n")
}

fn sparse_files(root: &Path, chance: &mut Twister) -> Result<(), TreeError> {
    let path = root.join("sparse");
    let sparse = create(&path)?;
    let write = |bytes: &[u8], at: u64| {
        sparse
            .write_all_at(bytes, at)
            .map_err(refused("write", &path))
    };
    write(b"middle", 3 << 20)?;
    write(b"end", 9 << 20)?;
    sparse.set_len(12 << 20).map_err(refused("extend", &path))?;

    let path = root.join("hole-only");
    create(&path)?
        .set_len(1 << 20)
        .map_err(refused("extend", &path))?;

    let path = root.join("small-blocks");
    let pieces = create(&path)?;
    for index in 0..40 {
        let bytes = chance.bytes(900);
        pieces
            .write_all_at(&bytes, index * 7001)
            .map_err(refused("write", &path))?;
    }
    Ok(())
}

fn links_and_nodes(root: &Path) -> Result<(), TreeError> {
    let path = root.join("link-short");
    symlink("rand-513", &path).map_err(refused("make symbolic link", &path))?;
    let path = root.join("link-long");
    symlink("x/".repeat(200) + "end", &path).map_err(refused("make symbolic link", &path))?;

    let target = root.join("text-1000");
    for link in ["hard-1", "few/hard-2"] {
        let path = root.join(link);
        fs::hard_link(&target, &path).map_err(refused("link", &path))?;
    }
    make_node(&root.join("fifo"), FileType::Fifo, 0o644, 0)?;
    if is_root() {
        let (null, block) = (rustix::fs::makedev(1, 7), rustix::fs::makedev(259, 300));
        make_node(
            &root.join("chardev"),
            FileType::CharacterDevice,
            0o600,
            null,
        )?;
        make_node(&root.join("blockdev"), FileType::BlockDevice, 0o640, block)?;
    }
    Ok(())
}

fn modes_owners_times(root: &Path) -> Result<(), TreeError> {
    let (program, few) = (root.join("rand-1"), root.join("few"));
    set_mode(&program, 0o4751)?;
    if is_root() {
        let owned = root.join("rand-13");
        set_owner(&owned, 1000, 2000)?;
    }
    set_mode(&few, 0o1777)?;
    if is_root() {
        set_owner(&few, 4_000_000_000, 3_000_000_000)?;
    }
    let path = root.join("rand-100");
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 1_000_000_001,
            tv_nsec: 2,
        },
        last_modification: Timespec {
            tv_sec: 981_173_106,
            tv_nsec: 123_456_789,
        },
    };
    utimensat(CWD, &path, &times, AtFlags::empty()).map_err(refused_call("set times", &path))
}

fn attributes(root: &Path, chance: &mut Twister) -> Result<(), TreeError> {
    let path = root.join("rand-512");
    let sizes = [
        ("user.small", 5),
        ("user.mid", 300),
        ("user.big", 9000),
        ("trusted.t", 20),
    ];
    for (name, size) in sizes {
        let value = blob(chance, size, Content::Random);
        if name.starts_with("trusted.") && !is_root() {
            continue;
        }
        set_attribute(&path, name, &value)?;
    }
    set_attribute(&root.join("few"), "user.ondir", b"directory attribute")
}

/// Sets an attribute, or leaves it out where the file system has none, or not so large.
fn set_attribute(path: &Path, name: &str, value: &[u8]) -> Result<(), TreeError> {
    use rustix::io::Errno;
    match rustix::fs::setxattr(path, name, value, XattrFlags::empty()) {
        Err(Errno::NOTSUP | Errno::TOOBIG | Errno::NOSPC) => Ok(()),
        result => result.map_err(refused_call("set attribute of", path)),
    }
}

fn make_node(path: &Path, kind: FileType, mode: u32, device: u64) -> Result<(), TreeError> {
    mknodat(CWD, path, kind, Mode::from_raw_mode(mode), device)
        .map_err(refused_call("make node", path))
}

fn set_mode(path: &Path, mode: u32) -> Result<(), TreeError> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(refused("set mode of", path))
}

fn set_owner(path: &Path, user: u32, group: u32) -> Result<(), TreeError> {
    std::os::unix::fs::chown(path, Some(user), Some(group)).map_err(refused("set owner of", path))
}

fn make_directory(path: &Path) -> Result<std::path::PathBuf, TreeError> {
    fs::create_dir(path).map_err(refused("create directory", path))?;
    Ok(path.to_path_buf())
}

fn create(path: &Path) -> Result<File, TreeError> {
    debug_assert!(!path.as_os_str().as_bytes().is_empty());
    File::create(path).map_err(refused("create", path))
}

pub(super) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), TreeError> {
    create(path)?
        .write_all_at(bytes, 0)
        .map_err(refused("write", path))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
