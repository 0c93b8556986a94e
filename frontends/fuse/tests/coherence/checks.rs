//! Compares a file through both holders with the model.

use crate::world::{Fault, OpenFile, World, no};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use tarn_engine::files::{FileKind, ObjectId, Timestamp};

/// How long the kernel may write back pages or read ahead between two checks.
const UNSTEADY_MAX: Duration = Duration::from_millis(20);

/// The attributes that both ways must show.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    id: u64,
    kind: FileKind,
    permissions: u32,
    links: u64,
    uid: u32,
    gid: u32,
    size: u64,
    accessed: Timestamp,
    modified: Timestamp,
    changed: Timestamp,
}

impl World {
    /// Checks a file by all its names and open files, and directly.
    pub fn check_file(&mut self, id: u64) -> Result<(), Fault> {
        if !self.model.files.contains_key(&id) {
            return Ok(());
        }
        // Through the mount first: the direct check makes the kernel drop its pages of mapped
        // files.
        if self.dirty.remove(&id) {
            self.check_direct(id)?;
        }
        let names: Vec<(u64, String)> = self.model.files[&id].names.iter().cloned().collect();
        for (directory, name) in &names {
            let path = self.path(*directory, name);
            let shown = shown_at(&path).map_err(|error| no(format!("stat {path:?}: {error}")))?;
            self.compare_again(id, shown, &|| shown_at(&path), &format!("by {path:?}"))?;
            self.check_contents_at(id, &path)?;
        }
        if id == self.model.root {
            let root = self.root.clone();
            let shown = shown_at(&root).map_err(|error| no(format!("{error}")))?;
            self.compare_again(id, shown, &|| shown_at(&root), "by the mount point")?;
        }
        let open: Vec<usize> = (self.open.iter().enumerate())
            .filter(|(_, file)| file.id == id)
            .map(|(at, _)| at)
            .collect();
        for at in open {
            self.check_open(id, at)?;
        }
        self.check_by_nfs(id)?;
        self.check_direct(id)
    }

    /// Checks that a name is missing, by either way.
    pub fn check_missing(&mut self, directory: u64, name: &str) -> Result<(), Fault> {
        self.check_missing_by_nfs(directory, name)?;
        let path = self.path(directory, name);
        match shown_at(&path) {
            Err(rustix::io::Errno::NOENT) => {}
            other => return Err(no(format!("{path:?} should be missing: {other:?}"))),
        }
        let operation = self.operation(None);
        let found = (self.files).lookup(&self.user, id_of(directory), name.as_bytes(), &operation);
        match found {
            Err(error) if error.errno() == 2 => Ok(()),
            other => Err(no(format!("{name} should be missing directly: {other:?}"))),
        }
    }

    /// Checks the names of a directory, as both list them.
    pub fn check_listing(&self, directory: u64) -> Result<(), Fault> {
        let expected: Vec<String> = self.model.entries[&directory].keys().cloned().collect();
        let path = self.root.join(self.model.path_of(directory));
        let mut listed = Vec::new();
        for entry in std::fs::read_dir(&path).map_err(|error| no(format!("{path:?}: {error}")))? {
            let entry = entry.map_err(|error| no(format!("{path:?}: {error}")))?;
            listed.push(entry.file_name().into_string().unwrap());
        }
        listed.sort();
        if listed != expected {
            return Err(no(format!("{path:?} lists {listed:?}, not {expected:?}")));
        }
        Ok(())
    }

    fn check_open(&mut self, id: u64, at: usize) -> Result<(), Fault> {
        let OpenFile { file, mapping, .. } = &self.open[at];
        let look = || {
            let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
            found.map(|found| shown_of(&found))
        };
        let shown = look().map_err(|error| no(format!("fstat: {error}")))?;
        self.compare_again(id, shown, &look, "by an open file")?;
        let expected = &self.model.files[&id].contents;
        let mut bytes = vec![0; expected.len() + 100];
        let length = file.read_at(&mut bytes, 0);
        let length = length.map_err(|error| no(format!("reading: {error}")))?;
        compare_bytes(&bytes[..length], expected, "an open file")?;
        if let Some(mapping) = mapping
            && !expected.is_empty()
        {
            let mut bytes = vec![0; expected.len().min(crate::world::SIZE_MAX)];
            mapping.copy_out(0, &mut bytes);
            compare_bytes(&bytes, expected, "a mapping")?;
        }
        Ok(())
    }

    fn check_contents_at(&mut self, id: u64, path: &Path) -> Result<(), Fault> {
        // A process that closes any descriptor of a file loses its locks on it.
        self.locks.entry(id).or_default().drop_process();
        let file = &self.model.files[&id];
        match file.kind {
            FileKind::Regular => {
                let read = std::fs::read(path).map_err(|error| no(format!("{path:?}: {error}")))?;
                compare_bytes(&read, &file.contents, &format!("{path:?}"))?;
            }
            FileKind::SymbolicLink => {
                let target = std::fs::read_link(path);
                let target = target.map_err(|error| no(format!("{path:?}: {error}")))?;
                if target != Path::new(&file.target) {
                    return Err(no(format!("{path:?} leads to {target:?}")));
                }
                return Ok(());
            }
            _ => {}
        }
        for (name, value) in &file.xattrs {
            let mut bytes = vec![0; 300];
            let length = rustix::fs::getxattr(path, name.as_str(), &mut bytes[..]);
            let length = length.map_err(|error| no(format!("{path:?} {name}: {error}")))?;
            compare_bytes(&bytes[..length], value, &format!("{path:?} {name}"))?;
        }
        let mut list = vec![0; 1000];
        let length = rustix::fs::listxattr(path, &mut list[..]);
        let length = length.map_err(|error| no(format!("{path:?}: {error}")))?;
        let listed = list[..length]
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty());
        if listed.count() != file.xattrs.len() {
            return Err(no(format!("{path:?} has other extended attributes")));
        }
        Ok(())
    }

    /// Reads directly, which makes the mount write back, and compares with the model.
    fn check_direct(&mut self, id: u64) -> Result<(), Fault> {
        let operation = self.operation(None);
        let file = &self.model.files[&id];
        if file.kind == FileKind::Regular {
            let read = (self.files).read(&self.user, id_of(id), 0, 1 << 20, &operation);
            let read = read.map_err(|error| no(format!("direct read: {error}")))?;
            compare_bytes(&read.to_vec(), &file.contents, "direct")?;
        }
        for (name, value) in &file.xattrs {
            let read = (self.files).get_xattr(&self.user, id_of(id), name.as_bytes(), &operation);
            let read = read.map_err(|error| no(format!("direct {name}: {error}")))?;
            compare_bytes(&read, value, &format!("direct {name}"))?;
        }
        Ok(())
    }

    /// Compares, and again where the kernel may have written back pages or read ahead between the
    /// two checks. Stale caches stay stale.
    fn compare_again(
        &self,
        id: u64,
        mount: Shown,
        look: &dyn Fn() -> Result<Shown, rustix::io::Errno>,
        how: &str,
    ) -> Result<(), Fault> {
        let mut outcome = self.compare(id, &mount, how);
        let began = Instant::now();
        while outcome.is_err() && began.elapsed() < UNSTEADY_MAX {
            std::thread::yield_now();
            let again = look().map_err(|error| no(format!("{how}: {error}")))?;
            outcome = self.compare(id, &again, how);
        }
        outcome
    }

    fn compare(&self, id: u64, mount: &Shown, how: &str) -> Result<(), Fault> {
        let found = self.files.attributes(id_of(id), &self.operation(None));
        let found = found.map_err(|error| no(format!("direct attributes: {error}")))?;
        let direct = Shown {
            id: found.id.get(),
            kind: found.kind,
            permissions: found.permissions,
            links: found.links,
            uid: found.uid,
            gid: found.gid,
            size: found.size,
            accessed: found.accessed,
            modified: found.modified,
            changed: found.changed,
        };
        if *mount != direct {
            return Err(no(format!("{how}: {mount:?} is stale: {direct:?}")));
        }
        let file = &self.model.files[&id];
        let size = match file.kind {
            FileKind::Regular => u64::try_from(file.contents.len()).unwrap(),
            FileKind::SymbolicLink => u64::try_from(file.target.len()).unwrap(),
            _ => direct.size,
        };
        let expected = (id, file.kind, file.permissions, file.uid, file.gid);
        let is_it = expected
            == (
                direct.id,
                direct.kind,
                direct.permissions,
                direct.uid,
                direct.gid,
            )
            && (size, self.model.links(id)) == (direct.size, direct.links);
        match is_it {
            true => Ok(()),
            false => Err(no(format!(
                "{how}: {direct:?} is not as the model: {expected:?}, {size} bytes, {} links",
                self.model.links(id)
            ))),
        }
    }
}

pub fn id_of(id: u64) -> ObjectId {
    ObjectId::new(id)
}

fn shown_at(path: &Path) -> Result<Shown, rustix::io::Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    statx(CWD, path, flags, StatxFlags::BASIC_STATS).map(|found| shown_of(&found))
}

fn shown_of(found: &rustix::fs::Statx) -> Shown {
    let time = |time: rustix::fs::StatxTimestamp| Timestamp {
        seconds: time.tv_sec,
        nanoseconds: time.tv_nsec,
    };
    let mode = u32::from(found.stx_mode);
    Shown {
        id: found.stx_ino,
        kind: FileKind::from_mode(mode).expect("a kind"),
        permissions: mode & 0o7777,
        links: u64::from(found.stx_nlink),
        uid: found.stx_uid,
        gid: found.stx_gid,
        size: found.stx_size,
        accessed: time(found.stx_atime),
        modified: time(found.stx_mtime),
        changed: time(found.stx_ctime),
    }
}

fn compare_bytes(found: &[u8], expected: &[u8], how: &str) -> Result<(), Fault> {
    if found == expected {
        return Ok(());
    }
    let same = found
        .iter()
        .zip(expected)
        .take_while(|(one, other)| one == other);
    Err(no(format!(
        "{how}: {} bytes, not {}; they differ from {} on: {:?}, not {:?}",
        found.len(),
        expected.len(),
        same.clone().count(),
        found.get(same.clone().count()),
        expected.get(same.count()),
    )))
}
