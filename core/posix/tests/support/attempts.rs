//! A file system with a directory and files of one owner and group, and an attempt at each
//! operation on it, for the tables of permission checks.

use super::support::Mounted;
use tarn_ondisk::units::ObjectId;
use tarn_posix::properties::MountProperties;
use tarn_posix::types::{
    Credentials, DeviceNumber, FileKind, NewFile, OpenRights, RenameMode, SetAttributes, SetTime,
    Timestamp, XattrMode,
};
use tarn_posix::{NewFileSystem, PosixError, WriteAt};

pub const OK: i32 = 0;
pub const EPERM: i32 = 1;
pub const EACCES: i32 = 13;

pub const OWNER: u32 = 1000;
pub const GROUP: u32 = 2000;

/// Owner, member of the group, another user, root.
pub fn callers() -> [Credentials; 4] {
    [
        Credentials::user(OWNER, 100, Vec::new()),
        Credentials::user(1001, 101, vec![7, GROUP]),
        Credentials::user(1002, 102, Vec::new()),
        Credentials::root(),
    ]
}

/// A file system, and in it a directory with a file, a directory and a link, all of the owner and
/// the group.
pub struct World {
    pub mounted: Mounted,
    pub directory: ObjectId,
    pub file: ObjectId,
    pub inner: ObjectId,
    pub link: ObjectId,
    /// A directory that all may use.
    pub open: ObjectId,
    /// A file of another user in it.
    pub foreign: ObjectId,
}

impl World {
    pub fn new(properties: MountProperties) -> World {
        let mounted = Mounted::with(NewFileSystem::default(), properties);
        let root = Credentials::root();
        let owned = Credentials {
            privileged: true,
            ..Credentials::user(OWNER, GROUP, Vec::new())
        };
        let top = mounted.root();
        let make = |who: &Credentials, parent, name, kind, mode| {
            mounted.make(who, parent, name, kind, mode).unwrap().id
        };
        let directory = make(&owned, top, "dir", FileKind::Directory, 0o777);
        let file = make(&owned, directory, "file", FileKind::Regular, 0o666);
        let inner = make(&owned, directory, "inner", FileKind::Directory, 0o777);
        let open = make(&root, top, "open", FileKind::Directory, 0o777);
        let foreign = make(&root, open, "foreign", FileKind::Regular, 0o666);
        let target = NewFile {
            kind: FileKind::SymbolicLink,
            permissions: 0o777,
            umask: 0,
            device: DeviceNumber::default(),
            target: Some(b"file"),
        };
        let link = mounted
            .files
            .create(&owned, directory, b"link", &target, &mounted.operation);
        let link = link.unwrap().id;
        let files = &mounted.files;
        let written = files.write(&root, file, WriteAt::End, b"some bytes", &mounted.operation);
        written.unwrap();
        let name = b"user.a";
        let set = files.set_xattr(&root, file, name, b"v", XattrMode::Any, &mounted.operation);
        set.unwrap();
        World {
            mounted,
            directory,
            file,
            inner,
            link,
            open,
            foreign,
        }
    }

    pub fn set_mode(&self, id: ObjectId, permissions: u32) {
        let changes = SetAttributes {
            permissions: Some(permissions),
            ..SetAttributes::default()
        };
        self.set(&Credentials::root(), id, &changes).unwrap();
    }

    pub fn set(
        &self,
        who: &Credentials,
        id: ObjectId,
        changes: &SetAttributes,
    ) -> Result<(), PosixError> {
        let files = &self.mounted.files;
        files
            .set_attributes(who, id, changes, &self.mounted.operation)
            .map(drop)
    }

    pub fn mode(&self, id: ObjectId) -> u32 {
        let attributes = self.mounted.files.attributes(id, &self.mounted.operation);
        attributes.unwrap().permissions
    }

    pub fn make(
        &self,
        who: &Credentials,
        parent: ObjectId,
        kind: FileKind,
    ) -> Result<(), PosixError> {
        self.mounted.make(who, parent, "new", kind, 0o644).map(drop)
    }

    pub fn rename(
        &self,
        who: &Credentials,
        (from_parent, from): (ObjectId, &[u8]),
        (to_parent, to): (ObjectId, &[u8]),
        mode: RenameMode,
    ) -> Result<(), PosixError> {
        let (files, operation) = (&self.mounted.files, &self.mounted.operation);
        files.rename(who, from_parent, from, to_parent, to, mode, operation)
    }

    pub fn set_list(&self, id: ObjectId, list: &str) {
        let (files, operation) = (&self.mounted.files, &self.mounted.operation);
        let value = nfs4_list(list);
        let (root, name) = (Credentials::root(), b"system.nfs4_acl");
        let set = files.set_xattr(&root, id, name, &value, XattrMode::Replace, operation);
        set.unwrap_or_else(|error| panic!("{list}: {error}"));
    }
}

/// An operation of this user.
pub type Attempt = fn(&World, &Credentials) -> Result<(), PosixError>;

pub const READS: OpenRights = OpenRights {
    reads: true,
    writes: false,
    appends: false,
    executes: false,
};
pub const WRITES: OpenRights = OpenRights {
    reads: false,
    writes: true,
    appends: false,
    executes: false,
};
pub const APPENDS: OpenRights = OpenRights {
    reads: false,
    writes: true,
    appends: true,
    executes: false,
};
pub const EXECUTES: OpenRights = OpenRights {
    reads: false,
    writes: false,
    appends: false,
    executes: true,
};

pub fn lookup(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let (files, operation) = (&world.mounted.files, &world.mounted.operation);
    files
        .lookup(who, world.directory, b"file", operation)
        .map(drop)
}

pub fn open(world: &World, who: &Credentials, rights: OpenRights) -> Result<(), PosixError> {
    let (files, operation) = (&world.mounted.files, &world.mounted.operation);
    files.check_open(who, world.file, rights, operation)
}

pub fn open_to_read(world: &World, who: &Credentials) -> Result<(), PosixError> {
    open(world, who, READS)
}

pub fn open_to_write(world: &World, who: &Credentials) -> Result<(), PosixError> {
    open(world, who, WRITES)
}

pub fn open_to_append(world: &World, who: &Credentials) -> Result<(), PosixError> {
    open(world, who, APPENDS)
}

pub fn execute(world: &World, who: &Credentials) -> Result<(), PosixError> {
    open(world, who, EXECUTES)
}

pub fn access_all(world: &World, who: &Credentials) -> Result<(), PosixError> {
    world
        .mounted
        .files
        .access(who, world.file, 7, &world.mounted.operation)
}

pub fn check_read(world: &World, who: &Credentials) -> Result<(), PosixError> {
    world
        .mounted
        .files
        .check_read(who, world.file, &world.mounted.operation)
}

pub fn list_directory(world: &World, who: &Credentials) -> Result<(), PosixError> {
    world
        .mounted
        .files
        .check_list(who, world.directory, &world.mounted.operation)
}

pub fn read_link(world: &World, who: &Credentials) -> Result<(), PosixError> {
    world
        .mounted
        .files
        .read_link(who, world.link, &world.mounted.operation)
        .map(drop)
}

pub fn stat(world: &World, who: &Credentials) -> Result<(), PosixError> {
    world
        .mounted
        .files
        .attributes_for(who, world.file, &world.mounted.operation)
        .map(drop)
}

pub fn make_file(world: &World, who: &Credentials) -> Result<(), PosixError> {
    world.make(who, world.directory, FileKind::Regular)
}

pub fn make_directory(world: &World, who: &Credentials) -> Result<(), PosixError> {
    world.make(who, world.directory, FileKind::Directory)
}

pub fn make_pipe(world: &World, who: &Credentials) -> Result<(), PosixError> {
    world.make(who, world.directory, FileKind::Fifo)
}

pub fn make_device(world: &World, who: &Credentials) -> Result<(), PosixError> {
    world.make(who, world.directory, FileKind::CharacterDevice)
}

pub fn make_taken_name(world: &World, who: &Credentials) -> Result<(), PosixError> {
    world
        .mounted
        .make(who, world.directory, "file", FileKind::Regular, 0o644)
        .map(drop)
}

pub fn make_unnamed(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let new = NewFile {
        kind: FileKind::Regular,
        permissions: 0o600,
        umask: 0,
        device: DeviceNumber::default(),
        target: None,
    };
    let (files, operation) = (&world.mounted.files, &world.mounted.operation);
    let made = files.create_unnamed(who, world.directory, &new, operation)?;
    files.closed(made.id, operation)
}

pub fn link_in(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let (files, operation) = (&world.mounted.files, &world.mounted.operation);
    files
        .link(who, world.foreign, world.directory, b"new", operation)
        .map(drop)
}

pub fn unlink(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let (files, operation) = (&world.mounted.files, &world.mounted.operation);
    files.unlink(who, world.directory, b"file", operation)
}

pub fn remove_directory(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let (files, operation) = (&world.mounted.files, &world.mounted.operation);
    files.remove_directory(who, world.directory, b"inner", operation)
}

pub fn rename_within(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let (from, to) = (
        (world.directory, &b"file"[..]),
        (world.directory, &b"new"[..]),
    );
    world.rename(who, from, to, RenameMode::Replace)
}

pub fn rename_out(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let (from, to) = ((world.directory, &b"file"[..]), (world.open, &b"new"[..]));
    world.rename(who, from, to, RenameMode::Replace)
}

pub fn rename_in(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let (from, to) = (
        (world.open, &b"foreign"[..]),
        (world.directory, &b"new"[..]),
    );
    world.rename(who, from, to, RenameMode::Replace)
}

pub fn rename_over(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let (from, to) = (
        (world.open, &b"foreign"[..]),
        (world.directory, &b"file"[..]),
    );
    world.rename(who, from, to, RenameMode::Replace)
}

pub fn exchange(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let (from, to) = (
        (world.open, &b"foreign"[..]),
        (world.directory, &b"file"[..]),
    );
    world.rename(who, from, to, RenameMode::Exchange)
}

pub fn move_directory(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let (from, to) = (
        (world.directory, &b"inner"[..]),
        (world.open, &b"inner"[..]),
    );
    world.rename(who, from, to, RenameMode::Replace)
}

pub fn change_mode(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let changes = SetAttributes {
        permissions: Some(0o600),
        ..SetAttributes::default()
    };
    world.set(who, world.file, &changes)
}

pub fn give_away(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let changes = SetAttributes {
        uid: Some(4711),
        ..SetAttributes::default()
    };
    world.set(who, world.file, &changes)
}

pub fn take_over(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let changes = SetAttributes {
        uid: Some(who.uid),
        ..SetAttributes::default()
    };
    world.set(who, world.file, &changes)
}

pub fn give_to_own_group(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let changes = SetAttributes {
        gid: Some(who.gid),
        ..SetAttributes::default()
    };
    world.set(who, world.file, &changes)
}

pub fn give_to_other_group(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let changes = SetAttributes {
        gid: Some(4711),
        ..SetAttributes::default()
    };
    world.set(who, world.file, &changes)
}

pub fn truncate(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let changes = SetAttributes {
        size: Some(0),
        ..SetAttributes::default()
    };
    world.set(who, world.file, &changes)
}

pub fn touch(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let changes = SetAttributes {
        accessed: Some(SetTime::Now),
        modified: Some(SetTime::Now),
        ..SetAttributes::default()
    };
    world.set(who, world.file, &changes)
}

pub fn set_times(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let then = SetTime::To(Timestamp {
        seconds: 1,
        nanoseconds: 2,
    });
    let changes = SetAttributes {
        accessed: Some(then),
        modified: Some(then),
        ..SetAttributes::default()
    };
    world.set(who, world.file, &changes)
}

pub fn set_no_dump(world: &World, who: &Credentials) -> Result<(), PosixError> {
    set_flags(world, who, 0x80_0000_0000)
}

pub fn set_immutable(world: &World, who: &Credentials) -> Result<(), PosixError> {
    set_flags(world, who, 0x10_0000_0000)
}

pub fn set_flags(world: &World, who: &Credentials, flags: u64) -> Result<(), PosixError> {
    let changes = SetAttributes {
        flags: Some(flags),
        ..SetAttributes::default()
    };
    world.set(who, world.file, &changes)
}

pub fn set_project(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let changes = SetAttributes {
        project: Some(5),
        ..SetAttributes::default()
    };
    world.set(who, world.file, &changes)
}

pub fn get_user_xattr(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let (files, operation) = (&world.mounted.files, &world.mounted.operation);
    files
        .get_xattr(who, world.file, b"user.a", operation)
        .map(drop)
}

pub fn set_xattr(world: &World, who: &Credentials, name: &[u8]) -> Result<(), PosixError> {
    let (files, operation) = (&world.mounted.files, &world.mounted.operation);
    files.set_xattr(who, world.file, name, b"v", XattrMode::Any, operation)
}

pub fn set_user_xattr(world: &World, who: &Credentials) -> Result<(), PosixError> {
    set_xattr(world, who, b"user.b")
}

pub fn set_trusted_xattr(world: &World, who: &Credentials) -> Result<(), PosixError> {
    set_xattr(world, who, b"trusted.b")
}

pub fn set_security_xattr(world: &World, who: &Credentials) -> Result<(), PosixError> {
    set_xattr(world, who, b"security.b")
}

pub fn remove_user_xattr(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let (files, operation) = (&world.mounted.files, &world.mounted.operation);
    files.remove_xattr(who, world.file, b"user.a", operation)
}

pub fn get_list(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let (files, operation) = (&world.mounted.files, &world.mounted.operation);
    files
        .get_xattr(who, world.file, b"system.nfs4_acl", operation)
        .map(drop)
}

pub fn set_list(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let (files, operation) = (&world.mounted.files, &world.mounted.operation);
    let (name, value) = (b"system.nfs4_acl", nfs4_list("A::OWNER@:r"));
    files.set_xattr(who, world.file, name, &value, XattrMode::Replace, operation)
}

pub fn remove_list(world: &World, who: &Credentials) -> Result<(), PosixError> {
    let (files, operation) = (&world.mounted.files, &world.mounted.operation);
    files.remove_xattr(who, world.file, b"system.nfs4_acl", operation)
}

/// A list in the notation of nfs4_acl(5): entries `type:flags:principal:permissions`, separated by
/// commas.
pub fn nfs4_list(text: &str) -> Vec<u8> {
    let bits = |letters: &str, table: &str, values: &[u32]| -> u32 {
        letters
            .chars()
            .map(|letter| values[table.find(letter).unwrap_or_else(|| panic!("{letter}"))])
            .sum()
    };
    let entries: Vec<&str> = text.split(',').collect();
    let mut bytes = u32::try_from(entries.len()).unwrap().to_be_bytes().to_vec();
    for entry in entries {
        let parts: Vec<&str> = entry.split(':').collect();
        let [kind, flags, principal, permissions] = parts[..] else {
            panic!("{entry}");
        };
        let kind = u32::try_from("ADUL".find(kind).unwrap()).unwrap();
        let flags = bits(flags, "fdniSFg", &[0x1, 0x2, 0x4, 0x8, 0x10, 0x20, 0x40]);
        let permissions = bits(
            permissions,
            "rwanNxDtTdcCoy",
            &[
                0x1, 0x2, 0x4, 0x8, 0x10, 0x20, 0x40, 0x80, 0x100, 0x1_0000, 0x2_0000, 0x4_0000,
                0x8_0000, 0x10_0000,
            ],
        );
        let length = u32::try_from(principal.len()).unwrap();
        for word in [kind, flags, permissions, length] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(principal.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}
