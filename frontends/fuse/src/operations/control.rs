//! `ioctl`: the file flags of `lsattr` and `chattr`, project numbers, DOS attributes, and
//! generations.
//!
//! # Mechanism
//! Linux has two structures for flags: a word (`FS_IOC_GETFLAGS`), and one with the project number
//! as well (`FS_IOC_FSGETXATTR`). Their bits differ from the stored ones. Since Linux 5.14 the
//! kernel checks owner and privileges for these calls; for older kernels they are checked here as
//! well, if the request has the user. Every other ioctl is refused with `ENOTTY`.

use super::{Call, Reply, refused};
use crate::protocol::{Answer, Arguments, UNKNOWN_USER};
use crate::session::Place;
use rustix::io::Errno;
use tarn_engine::files::{
    Attributes, CheckedByCaller, Credentials, FileFlags, NO_PROJECT, SetAttributes,
    actor_of_process,
};

/// `FS_IOC_GETFLAGS`.
const GET_FLAGS: u32 = 0x8008_6601;
/// `FS_IOC_SETFLAGS`.
const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR`.
const GET_MORE: u32 = 0x801c_581f;
/// `FS_IOC_FSSETXATTR`.
const SET_MORE: u32 = 0x401c_5820;

/// The stored flags that Linux has too: stored bit, `FS_…_FL`, `FS_XFLAG_…`.
const FLAGS: [(FileFlags, u32, u32); 4] = [
    (FileFlags::IMMUTABLE, 0x10, 0x8),
    (FileFlags::APPEND_ONLY, 0x20, 0x10),
    (FileFlags::NO_DUMP, 0x40, 0x80),
    (FileFlags::INHERIT_PROJECT, 0x2000_0000, 0x200),
];

/// `FS_IOC_GETVERSION`: what `lsattr -v` shows.
const GET_GENERATION: u32 = 0x8008_7601;
/// OpenZFS's own ioctl, for servers of Windows clients.
#[doc(alias = "ZFS_IOC_GETDOSFLAGS")]
const GET_DOS: u32 = 0x8008_8301;
/// Sets what `GET_DOS` gets.
#[doc(alias = "ZFS_IOC_SETDOSFLAGS")]
const SET_DOS: u32 = 0x4008_8302;

/// The flags of these two ioctls, by their stored bits.
#[doc(alias = "ZFS_DOS_FL_USER_VISIBLE")]
const DOS: FileFlags = FileFlags::READ_ONLY
    .and(FileFlags::HIDDEN)
    .and(FileFlags::SYSTEM)
    .and(FileFlags::ARCHIVE)
    .and(FileFlags::IMMUTABLE)
    .and(FileFlags::NO_UNLINK)
    .and(FileFlags::APPEND_ONLY)
    .and(FileFlags::NO_DUMP)
    .and(FileFlags::REPARSE)
    .and(FileFlags::OFFLINE)
    .and(FileFlags::SPARSE);

/// The two structures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Word,
    More,
}

impl Call<'_> {
    /// Answers an `ioctl`.
    pub(super) fn control(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        arguments.skip(8 + 4)?;
        let command = arguments.u32()?;
        arguments.skip(8)?;
        let (given, room) = (arguments.u32()?, arguments.u32()?);
        let mut given = Arguments::of(arguments.bytes(given)?);
        let read = || {
            file.files
                .attributes(file.id, self.operation)
                .map_err(refused)
        };
        let mut answer = Answer::new();
        answer.zeros(16);
        match command {
            GET_FLAGS => {
                answer.u32(bits_of(flags_in(&read()?), Form::Word));
            }
            GET_MORE => {
                let attributes = read()?;
                let project = u32::try_from(attributes.project).unwrap_or(u32::MAX);
                let bits = bits_of(flags_in(&attributes), Form::More);
                answer.u32(bits).zeros(8).u32(project).zeros(12);
            }
            SET_FLAGS => {
                let flags = with_bits(flags_in(&read()?), given.u32()?, Form::Word)?;
                self.set_flags(file, flags, None)?;
            }
            SET_MORE => {
                let attributes = read()?;
                let flags = with_bits(flags_in(&attributes), given.u32()?, Form::More)?;
                given.skip(8)?;
                let project = u64::from(given.u32()?);
                if project == NO_PROJECT {
                    return Err(Errno::INVAL);
                }
                let project = Some(project).filter(|project| *project != attributes.project);
                self.set_flags(file, flags, project)?;
            }
            GET_GENERATION => {
                let generation = file.shown(read()?).generation & u64::from(u32::MAX);
                answer.u32(u32::try_from(generation).expect("it has 32 bits"));
            }
            GET_DOS => {
                answer.u64(read()?.flags & DOS.word());
            }
            SET_DOS => {
                let wanted = given.u64()?;
                if wanted & !DOS.word() != 0 {
                    return Err(Errno::OPNOTSUPP);
                }
                self.set_dos_flags(file, &read()?, wanted)?;
            }
            _ => return Err(Errno::NOTTY),
        }
        // Cut to the caller's buffer.
        answer.truncate(
            16 + usize::try_from(room)
                .unwrap_or(usize::MAX)
                .min(answer.len() - 16),
        );
        Ok(Reply::Parts(answer))
    }

    /// Sets the DOS flags. Linux does not know the ioctl and has not checked the caller: only the
    /// owner or root may, and the flags that only root may change are checked with the rest.
    fn set_dos_flags(&self, file: &Place, now: &Attributes, wanted: u64) -> Result<(), Errno> {
        let caller = actor_of_process(self.process).ok_or(Errno::ACCESS)?;
        if caller.uid != 0 && caller.uid != now.uid {
            return Err(Errno::ACCESS);
        }
        let credentials = Credentials {
            privileged: caller.uid == 0,
            ..Credentials::user(caller.uid, caller.gid, caller.groups)
        };
        let changes = SetAttributes {
            flags: Some(now.flags & !DOS.word() | wanted),
            ..SetAttributes::default()
        };
        let set = file
            .files
            .set_attributes(&credentials, file.id, &changes, self.operation);
        set.map(drop).map_err(refused)
    }

    fn set_flags(&self, file: &Place, flags: u64, project: Option<u64>) -> Result<(), Errno> {
        let mut credentials = self.credentials.clone();
        if credentials.checked == CheckedByCaller::ModeAndPosixAcls {
            // A kernel that does not name the user has checked; one that does may be older.
            credentials.privileged = [0, UNKNOWN_USER].contains(&credentials.uid);
            credentials.checked = CheckedByCaller::Nothing;
        }
        let changes = SetAttributes {
            flags: Some(flags),
            project,
            ..SetAttributes::default()
        };
        let set = file
            .files
            .set_attributes(&credentials, file.id, &changes, self.operation);
        set.map(drop).map_err(refused)?;
        // The kernel takes an ioctl for reading, and would keep the cached change time.
        let _ = self.device.forget_attributes(self.node);
        Ok(())
    }
}

/// The flags of a file.
fn flags_in(attributes: &Attributes) -> FileFlags {
    FileFlags::from_word(attributes.flags)
}

/// A file's flags in the bits of Linux.
fn bits_of(flags: FileFlags, form: Form) -> u32 {
    let mut bits = 0;
    for (ours, word, more) in FLAGS {
        if flags.has(ours) {
            bits |= if form == Form::Word { word } else { more };
        }
    }
    bits
}

/// All flags of a file after the flags that Linux has were set to these. Unsupported bits are
/// refused.
fn with_bits(mut flags: FileFlags, bits: u32, form: Form) -> Result<u64, Errno> {
    let mut unknown = bits;
    for (ours, word, more) in FLAGS {
        let bit = if form == Form::Word { word } else { more };
        unknown &= !bit;
        flags = if bits & bit != 0 {
            flags.and(ours)
        } else {
            flags.without(ours)
        };
    }
    match unknown {
        0 => Ok(flags.word()),
        _ => Err(Errno::OPNOTSUPP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_shown_and_set_in_both_forms_and_others_stay() {
        let hidden = FileFlags::HIDDEN;
        let file = FileFlags::IMMUTABLE.and(hidden);
        assert_eq!(bits_of(file, Form::Word), 0x10);
        assert_eq!(bits_of(file, Form::More), 0x8);
        let flags = FileFlags::from_word(with_bits(file, 0x20 | 0x40, Form::Word).unwrap());
        assert_eq!(
            flags,
            hidden.and(FileFlags::APPEND_ONLY).and(FileFlags::NO_DUMP)
        );
    }

    #[test]
    fn unsupported_flags_are_refused() {
        let compressed = 0x4;
        let file = FileFlags::NONE;
        assert_eq!(
            with_bits(file, compressed, Form::Word),
            Err(Errno::OPNOTSUPP)
        );
    }
}
