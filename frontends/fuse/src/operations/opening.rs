//! Opening and closing files and directories.
//!
//! `OPEN`, `OPENDIR`, `ACCESS`, `RELEASE`, `RELEASEDIR`.

use super::answers::put_open;
use super::{Call, Reply, done, refused};
use crate::handles::Handle;
use crate::protocol::{Answer, Arguments, OPEN_KEEP_CACHE, RELEASE_UNLOCKS};
use crate::session::Place;
use rustix::io::Errno;
use tarn_engine::files::{LockRange, LockScope, Noting, OpenRights, PosixError};

/// The flag of opens for execution (`FMODE_EXEC`).
#[doc(alias("FMODE_EXEC", "__FMODE_EXEC"))]
const OPENED_TO_EXECUTE: i32 = 0x20;

impl Call<'_> {
    /// Opens a file. Where reading would change the access time, the kernel drops its cached pages:
    /// the first read is a request, and later ones need not be.
    pub(super) fn open(&self, file: &Place, mut arguments: Arguments<'_>) -> Result<Reply, Errno> {
        let flags = i32::from_ne_bytes(arguments.u32()?.to_ne_bytes());
        if self.session.enforces(file) {
            let checked = self.check_open(file, flags);
            checked.map_err(refused)?;
        } else if flags & libc::O_ACCMODE != libc::O_RDONLY {
            let appends = flags & libc::O_APPEND != 0;
            let checked = file.files.check_writing(file.id, appends, self.operation);
            checked.map_err(refused)?;
        }
        let handle = self.session.locks().handle(flags);
        self.opened(file, handle)?;
        let reads = flags & libc::O_ACCMODE != libc::O_WRONLY;
        let is_due = reads
            && handle.notes_access()
            && file
                .files
                .would_note_access(file.id, self.operation)
                .unwrap_or(false);
        let mut answer = Answer::new();
        let keeps = if is_due { 0 } else { OPEN_KEEP_CACHE };
        put_open(&mut answer, handle, keeps);
        Ok(Reply::Parts(answer))
    }

    /// Registers an open file, unless another holder's share reservation denies it.
    fn opened(&self, file: &Place, handle: Handle) -> Result<(), Errno> {
        let opened = file.files.opened(file.id, self.operation);
        opened.map_err(refused)?;
        self.shared(file, handle)
    }

    /// Registers the handle of an open file, unless another holder's share reservation denies it:
    /// then the file is closed.
    pub(super) fn shared(&self, file: &Place, handle: Handle) -> Result<(), Errno> {
        // A program waits while a client of NFS is asked to return the file.
        let files = &file.files;
        let shared = files.share_when_returned(file.id, file.holder, handle.share());
        if let Err(error) = shared {
            let _ = file.files.closed(file.id, self.operation);
            return Err(refused(error));
        }
        self.session.opened(file, handle);
        Ok(())
    }

    /// Opens a directory: it stays until it is closed, even if it is removed. The kernel caches
    /// none of it across opens.
    pub(super) fn open_directory(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let flags = i32::from_ne_bytes(arguments.u32()?.to_ne_bytes());
        if self.session.enforces(file) {
            let checked = file
                .files
                .check_list(self.credentials, file.id, self.operation);
            checked.map_err(refused)?;
        }
        let opened = file.files.opened(file.id, self.operation);
        opened.map_err(refused)?;
        let mut answer = Answer::new();
        put_open(&mut answer, Handle::of_directory(flags), 0);
        Ok(Reply::Parts(answer))
    }

    /// Whether this caller may open a file with these flags.
    fn check_open(&self, file: &Place, flags: i32) -> Result<(), PosixError> {
        let (mode, executes) = (flags & libc::O_ACCMODE, flags & OPENED_TO_EXECUTE != 0);
        let rights = OpenRights {
            // A program can be executed without permission to read it.
            reads: mode != libc::O_WRONLY && !executes,
            writes: mode != libc::O_RDONLY,
            appends: flags & libc::O_APPEND != 0,
            executes,
        };
        let files = &file.files;
        files.check_open(self.credentials, file.id, rights, self.operation)
    }

    /// Checks the access that `access(2)` and `chdir(2)` ask for, where the kernel does not check.
    pub(super) fn access(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let mask = arguments.u32()? & 7;
        done(
            file.files
                .access(self.credentials, file.id, mask, self.operation),
        )
    }

    pub(super) fn release(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let handle = arguments.handle()?;
        arguments.skip(4)?;
        let (flags, owner) = (arguments.u32()?, arguments.u64()?);
        if flags & RELEASE_UNLOCKS != 0 {
            let owner = self.owner(file, owner);
            file.files.release_locks(file.id, owner, LockScope::File);
        }
        for owner in self.session.locks().take_owners(self.node, handle) {
            let (owner, scope) = (self.owner(file, owner), LockScope::Range(LockRange::WHOLE));
            file.files.release_locks(file.id, owner, scope);
        }
        self.session.closed(file, handle);
        file.files.unshare(file.id, file.holder, handle.share());
        done(file.files.closed(file.id, self.operation))
    }
}

/// Whether reads through a handle change the access time.
pub(super) fn noting_of(handle: Handle) -> Noting {
    match handle.notes_access() {
        true => Noting::Access,
        false => Noting::Nothing,
    }
}
