//! Creating files, directories, symbolic links and devices.
//!
//! `CREATE`, `TMPFILE`, `MKNOD`, `MKDIR`, `SYMLINK`.

use super::answers::{put_entry, put_open};
use super::{Call, Reply, gone, refused};
use crate::protocol::{Answer, Arguments, OPEN_KEEP_CACHE};
use crate::session::Place;
use rustix::io::Errno;
use tarn_engine::files::{Attributes, DeviceNumber, FileKind, NewFile};

impl Call<'_> {
    pub(super) fn make_symlink(
        &self,
        parent: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let (name, target) = (arguments.name()?, arguments.name()?);
        let new = NewFile {
            kind: FileKind::SymbolicLink,
            permissions: 0o777,
            umask: 0,
            device: DeviceNumber::default(),
            target: Some(target),
        };
        self.make(parent, name, &new)
    }

    pub(super) fn make_node(
        &self,
        parent: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let (mode, device, umask) = (arguments.u32()?, arguments.u32()?, arguments.u32()?);
        arguments.skip(4)?;
        let new = NewFile {
            kind: FileKind::from_mode(mode).ok_or(Errno::INVAL)?,
            permissions: mode & 0o7777,
            umask,
            device: device_of(device),
            target: None,
        };
        self.make(parent, arguments.name()?, &new)
    }

    pub(super) fn make_directory(
        &self,
        parent: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let (mode, umask) = (arguments.u32()?, arguments.u32()?);
        let new = NewFile {
            kind: FileKind::Directory,
            permissions: mode & 0o7777,
            umask,
            device: DeviceNumber::default(),
            target: None,
        };
        self.make(parent, arguments.name()?, &new)
    }

    fn make(&self, parent: &Place, name: &[u8], new: &NewFile<'_>) -> Result<Reply, Errno> {
        let made = parent
            .files
            .create(self.credentials, parent.id, name, new, self.operation);
        self.found(parent, name, &made.map_err(refused)?)
    }

    pub(super) fn create(
        &self,
        parent: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let (flags, new) = new_regular(&mut arguments)?;
        let name = arguments.name()?;
        let made = parent
            .files
            .create(self.credentials, parent.id, name, &new, self.operation);
        let made = made.map_err(refused)?;
        let opened = parent.files.opened(made.id, self.operation);
        // Another holder may have removed the file already. The kernel then creates another.
        opened.map_err(|error| gone(refused(error)))?;
        self.made_and_open(parent, &made, flags)
    }

    /// Creates a file without a name, which is open (`O_TMPFILE`).
    pub(super) fn create_unnamed(
        &self,
        parent: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let (flags, new) = new_regular(&mut arguments)?;
        let made = parent
            .files
            .create_unnamed(self.credentials, parent.id, &new, self.operation);
        self.made_and_open(parent, &made.map_err(refused)?, flags)
    }

    /// The reply for a file that was created and opened with these flags.
    fn made_and_open(&self, parent: &Place, made: &Attributes, flags: i32) -> Result<Reply, Errno> {
        let handle = self.session.locks().handle(flags);
        self.shared(&parent.beside(made.id), handle)?;
        let mut answer = Answer::new();
        let node = self.session.node_of(parent.which, &parent.files, made.id);
        let cached = self.entry_cached(parent, made.id, made);
        put_entry(&mut answer, node, cached, made);
        put_open(&mut answer, handle, OPEN_KEEP_CACHE);
        Ok(Reply::Parts(answer))
    }
}

/// Decodes a creation: the new file, and the flags of its open.
fn new_regular<'a>(arguments: &mut Arguments<'a>) -> Result<(i32, NewFile<'a>), Errno> {
    let flags = i32::from_ne_bytes(arguments.u32()?.to_ne_bytes());
    let (mode, umask) = (arguments.u32()?, arguments.u32()?);
    arguments.skip(4)?;
    let new = NewFile {
        kind: FileKind::Regular,
        permissions: mode & 0o7777,
        umask,
        device: DeviceNumber::default(),
        target: None,
    };
    Ok((flags, new))
}

/// A device number in the kernel's encoding.
fn device_of(number: u32) -> DeviceNumber {
    DeviceNumber {
        major: (number >> 8) & 0xfff,
        minor: (number & 0xff) | ((number >> 12) & 0xf_ff00),
    }
}
