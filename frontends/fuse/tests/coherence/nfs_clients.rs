//! Clients of NFS version 3 beside the mount and the direct holder: they change the same files,
//! lock them, and must show the same.

use crate::checks::id_of;
use crate::client::{Client, Handle, put_mode};
use crate::locks::PARTS;
use crate::world::{Deed, Fault, World, no};
use std::time::{Duration, Instant};
use tarn_engine::files::{FileKind, LockKind, LockRange, Timestamp};
use tarn_nfs::lock_manager;
use tarn_nfs::v3::procedure;
use tarn_nfs::xdr::{Reader, Writer};

/// How long the kernel may write back pages between two looks at attributes.
const UNSTEADY_MAX: Duration = Duration::from_millis(20);

const NOENT: u32 = 2;

/// A client, and the root of the share.
pub struct NfsClient {
    pub client: Client,
    pub root: Handle,
}

/// A change of attributes: `sattr3`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Changes {
    pub mode: Option<u32>,
    pub owner: Option<(u32, u32)>,
    pub size: Option<u64>,
    pub modified: Option<(u32, u32)>,
}

fn told(status: u32) -> Fault {
    no(format!("nfs: status {status}"))
}

/// Whether clients of version 3 can do this.
pub fn can_do(deed: Deed) -> bool {
    use Deed::*;
    matches!(
        deed,
        Create
            | MakeDirectory
            | Symlink
            | Link
            | Unlink
            | RemoveDirectory
            | Rename
            | Write
            | Append
            | Truncate
            | Chmod
            | Chown
            | Times
            | Lock
    )
}

impl World {
    /// The client with this number, and the handle of a directory, which it looks up.
    fn folder_of(&mut self, which: usize, directory: u64) -> Result<(&mut Client, Handle), Fault> {
        let path = self.model.path_of(directory);
        let NfsClient { client, root } = &mut self.clients[which];
        let mut folder = root.clone();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            folder = client.lookup(&folder, name).map_err(told)?;
        }
        Ok((client, folder))
    }

    /// The client with this number, and the handle of a file by one of its names.
    fn file_of(&mut self, which: usize, id: u64) -> Result<(&mut Client, Handle), Fault> {
        let first = self.model.files[&id].names.first().cloned();
        let Some((directory, name)) = first else {
            return self.folder_of(which, self.model.root);
        };
        let (client, folder) = self.folder_of(which, directory)?;
        let file = client.lookup(&folder, &name).map_err(told)?;
        Ok((client, file))
    }

    /// Makes a file, and gives its number.
    pub fn make_by_nfs(
        &mut self,
        which: usize,
        kind: FileKind,
        (directory, name): (u64, &str),
        permissions: u32,
        target: &str,
    ) -> Result<u64, Fault> {
        let (client, folder) = self.folder_of(which, directory)?;
        let made = match kind {
            FileKind::Regular => client.create(&folder, name, permissions),
            FileKind::Directory => client.make_directory(&folder, name, permissions),
            _ => {
                let mut arguments = Writer::new();
                arguments.opaque(&folder).opaque(name.as_bytes());
                put_mode(&mut arguments, permissions);
                arguments.opaque(target.as_bytes());
                let asked = client.ask(procedure::SYMLINK, &arguments);
                asked.and_then(|_| client.lookup(&folder, name))
            }
        };
        let made = made.map_err(told)?;
        Ok(client.attributes(&made).map_err(told)?.id)
    }

    pub fn link_by_nfs(
        &mut self,
        which: usize,
        id: u64,
        (directory, name): (u64, &str),
    ) -> Result<(), Fault> {
        let (_, file) = self.file_of(which, id)?;
        let (client, folder) = self.folder_of(which, directory)?;
        let mut arguments = Writer::new();
        arguments
            .opaque(&file)
            .opaque(&folder)
            .opaque(name.as_bytes());
        client.ask(procedure::LINK, &arguments).map_err(told)?;
        Ok(())
    }

    pub fn remove_by_nfs(
        &mut self,
        which: usize,
        is_directory: bool,
        (directory, name): (u64, &str),
    ) -> Result<(), Fault> {
        let (client, folder) = self.folder_of(which, directory)?;
        let mut arguments = Writer::new();
        arguments.opaque(&folder).opaque(name.as_bytes());
        let number = match is_directory {
            true => procedure::RMDIR,
            false => procedure::REMOVE,
        };
        client.ask(number, &arguments).map_err(told)?;
        Ok(())
    }

    pub fn rename_by_nfs(
        &mut self,
        which: usize,
        (from_directory, from): (u64, &str),
        (to_directory, to): (u64, &str),
    ) -> Result<(), Fault> {
        let (_, source) = self.folder_of(which, from_directory)?;
        let (client, target) = self.folder_of(which, to_directory)?;
        client.rename((&source, from), (&target, to)).map_err(told)
    }

    pub fn write_by_nfs(
        &mut self,
        which: usize,
        id: u64,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let stable = self.chance.below(3);
        let commits = self.chance.below(4) == 0;
        let (client, file) = self.file_of(which, id)?;
        let written = client.write(&file, offset as u64, bytes, stable);
        written.map_err(told)?;
        if commits {
            client.commit(&file).map_err(told)?;
        }
        Ok(())
    }

    pub fn change_by_nfs(&mut self, which: usize, id: u64, changes: Changes) -> Result<(), Fault> {
        let (client, file) = self.file_of(which, id)?;
        let mut arguments = Writer::new();
        arguments.opaque(&file);
        let word = |arguments: &mut Writer, value: Option<u32>| match value {
            Some(value) => drop(arguments.bool(true).u32(value)),
            None => drop(arguments.bool(false)),
        };
        word(&mut arguments, changes.mode);
        word(&mut arguments, changes.owner.map(|(uid, _)| uid));
        word(&mut arguments, changes.owner.map(|(_, gid)| gid));
        match changes.size {
            Some(size) => drop(arguments.bool(true).u64(size)),
            None => drop(arguments.bool(false)),
        }
        // The time of access stays.
        arguments.u32(0);
        match changes.modified {
            Some((seconds, nanoseconds)) => drop(arguments.u32(2).u32(seconds).u32(nanoseconds)),
            None => drop(arguments.u32(0)),
        }
        // Without a guard.
        arguments.bool(false);
        client.ask(procedure::SETATTR, &arguments).map_err(told)?;
        Ok(())
    }

    /// Locks or unlocks a range for a client. Says whether it has it.
    pub fn lock_by_nfs(
        &mut self,
        which: usize,
        id: u64,
        range: LockRange,
        kind: Option<LockKind>,
    ) -> Result<bool, Fault> {
        let (client, file) = self.file_of(which, id)?;
        let mut arguments = Writer::new();
        arguments.opaque(b"cookie");
        if let Some(kind) = kind {
            arguments.bool(false).bool(kind == LockKind::Exclusive);
        }
        let caller = format!("client-{which}");
        arguments.opaque(caller.as_bytes()).opaque(&file);
        arguments.opaque(b"owner").u32(1).u64(range.first);
        arguments.u64(match range.last {
            u64::MAX => 0,
            last => last - range.first + 1,
        });
        let number = match kind {
            None => lock_manager::procedure::UNLOCK,
            Some(_) => {
                arguments.bool(false).u32(0);
                lock_manager::procedure::LOCK
            }
        };
        let which = (lock_manager::PROGRAM, lock_manager::VERSION, number);
        let result = client.call(which, &arguments);
        let result = result.map_err(|why| no(format!("nlm: not carried out: {why}")))?;
        let mut result = Reader::new(&result);
        result.opaque(64).expect("the cookie");
        match result.u32().expect("a status") {
            0 => Ok(true),
            1 => Ok(false),
            status => Err(no(format!("nlm: status {status}"))),
        }
    }

    /// Checks a file as each client sees it.
    pub fn check_by_nfs(&mut self, id: u64) -> Result<(), Fault> {
        let is_found = id == self.model.root || !self.model.files[&id].names.is_empty();
        for which in 0..if is_found { self.clients.len() } else { 0 } {
            let began = Instant::now();
            loop {
                match self.compare_by_nfs(which, id) {
                    Ok(()) => break,
                    // The kernel may have written back pages between the two looks.
                    Err(_) if began.elapsed() < UNSTEADY_MAX => std::thread::yield_now(),
                    Err(fault) => return Err(fault),
                }
            }
            let expected = self.model.files[&id].clone();
            let (client, file) = self.file_of(which, id)?;
            let shown = match expected.kind {
                FileKind::Regular => client.read(&file, 0, 1 << 20).map_err(told)?.0,
                FileKind::SymbolicLink => {
                    let mut arguments = Writer::new();
                    arguments.opaque(&file);
                    let rest = client.ask(procedure::READLINK, &arguments);
                    let rest = rest.map_err(told)?;
                    let mut reader = Reader::new(&rest);
                    crate::client::post(&mut reader);
                    reader.opaque(1024).expect("a target").to_vec()
                }
                _ => continue,
            };
            let is_same = match expected.kind {
                FileKind::Regular => shown == expected.contents,
                _ => shown == expected.target.as_bytes(),
            };
            if !is_same {
                return Err(no(format!("client {which}: {id} has other contents")));
            }
        }
        Ok(())
    }

    fn compare_by_nfs(&mut self, which: usize, id: u64) -> Result<(), Fault> {
        let (client, file) = self.file_of(which, id)?;
        let shown = client.attributes(&file).map_err(told)?;
        let found = self.files.attributes(id_of(id), &self.operation(None));
        let found = found.map_err(|error| no(format!("direct attributes: {error}")))?;
        let kind = match found.kind {
            FileKind::Regular => 1,
            FileKind::Directory => 2,
            _ => 5,
        };
        let time = |time: Timestamp| {
            let seconds = u32::try_from(time.seconds).expect("a time of this century");
            (seconds, time.nanoseconds)
        };
        let direct = (
            (found.id.get(), kind, found.permissions, found.links),
            (found.uid, found.gid, found.size),
            (time(found.modified), time(found.changed)),
        );
        let shown = (
            (shown.id, shown.kind, shown.mode, u64::from(shown.links)),
            (shown.uid, shown.gid, shown.size),
            (shown.mtime, shown.ctime),
        );
        match shown == direct {
            true => Ok(()),
            false => Err(no(format!(
                "client {which}: {shown:?} is stale: {direct:?}"
            ))),
        }
    }

    /// Checks that no client finds a name.
    pub fn check_missing_by_nfs(&mut self, directory: u64, name: &str) -> Result<(), Fault> {
        for which in 0..self.clients.len() {
            let (client, folder) = self.folder_of(which, directory)?;
            let found = client.lookup(&folder, name);
            if found != Err(NOENT) {
                return Err(no(format!("client {which} finds {name}: {found:?}")));
            }
        }
        Ok(())
    }

    /// Checks the names of a directory, as each client lists them.
    pub fn check_listing_by_nfs(&mut self, directory: u64) -> Result<(), Fault> {
        let expected: Vec<String> = self.model.entries[&directory].keys().cloned().collect();
        for which in 0..self.clients.len() {
            let (client, folder) = self.folder_of(which, directory)?;
            for is_plus in [false, true] {
                let listed = client.list(&folder, is_plus, 4096).map_err(told)?;
                let names = listed.into_iter().map(|(name, _)| name);
                let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
                names.sort();
                if names != expected {
                    let what = format!("client {which} lists {names:?}, not {expected:?}");
                    return Err(no(what));
                }
            }
        }
        Ok(())
    }
}

/// The range of these parts of a file.
pub fn range_of(parts: &std::ops::Range<usize>) -> LockRange {
    let before = parts.start.checked_sub(1);
    LockRange {
        first: before.map_or(0, |before| PARTS[before] + 1),
        last: PARTS[parts.end - 1],
    }
}
