//! NFS version 3 (RFC 1813): all 22 procedures.
//!
//! # Mechanism
//! [`run`] decodes the arguments of a procedure, carries it out, and appends the result to the
//! reply. A procedure that changes something is replied to when that is durable: the reply is ready
//! and waits for the intent log ([`Outcome::WhenDurable`]), except for `WRITE` with `UNSTABLE`, and
//! for shares with `async`.
//!
//! # Permissions
//! The server checks all of them. As other servers do, it lets the owner of a file read and write
//! it whatever its mode says, since a program that has opened the file before its mode changed goes
//! on using it; and all users read a file that may be executed.

mod arguments;
pub(crate) mod attributes;
mod changes;
mod contents;
mod directories;
mod names;
pub mod status;

use crate::file_call::{Asker, FileCall};
use crate::xdr::{Malformed, Writer};
pub(crate) use attributes::granted;

use arguments::Arguments;
use status::Status;
use tarn_engine::files::{ReadData, Unsynced};

/// The program's number.
pub const PROGRAM: u32 = 100_003;
/// The version.
pub const VERSION: u32 = 3;

/// Numbers of procedures.
pub mod procedure {
    #![expect(missing_docs, reason = "the names of RFC 1813")]
    pub const NULL: u32 = 0;
    pub const GETATTR: u32 = 1;
    pub const SETATTR: u32 = 2;
    pub const LOOKUP: u32 = 3;
    pub const ACCESS: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const READ: u32 = 6;
    pub const WRITE: u32 = 7;
    pub const CREATE: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const SYMLINK: u32 = 10;
    pub const MKNOD: u32 = 11;
    pub const REMOVE: u32 = 12;
    pub const RMDIR: u32 = 13;
    pub const RENAME: u32 = 14;
    pub const LINK: u32 = 15;
    pub const READDIR: u32 = 16;
    pub const READDIRPLUS: u32 = 17;
    pub const FSSTAT: u32 = 18;
    pub const FSINFO: u32 = 19;
    pub const PATHCONF: u32 = 20;
    pub const COMMIT: u32 = 21;
}

/// What a call has come to.
pub(crate) enum Outcome {
    /// The reply ends with these bytes of a file.
    Done(ReadData),
    /// The reply is sent when the changes of this file are durable.
    WhenDurable(Box<FileCall>, Unsynced),
}

/// Whether a procedure changes something, so that its reply may wait for the intent log.
pub(crate) fn changes(procedure: u32) -> bool {
    use procedure::*;
    matches!(
        procedure,
        SETATTR
            | WRITE
            | CREATE
            | MKDIR
            | SYMLINK
            | MKNOD
            | REMOVE
            | RMDIR
            | RENAME
            | LINK
            | COMMIT
    )
}

/// Whether a repetition of a call must get the reply of the first one: carried out again it would
/// fail, or undo what came between.
pub(crate) fn is_kept(procedure: u32) -> bool {
    changes(procedure) && procedure != procedure::COMMIT
}

/// How many bytes a call reads from a file.
pub(crate) fn bytes_to_read(procedure: u32, arguments: &[u8]) -> usize {
    if procedure != procedure::READ {
        return 0;
    }
    let mut arguments = Arguments::new(arguments);
    let read = arguments.read();
    read.map_or(0, |read| usize::try_from(read.count).unwrap_or(usize::MAX))
}

/// Carries out a procedure, and appends its result. None where there is no such procedure.
///
/// # Errors
/// The arguments cannot be decoded; what was appended is of no use then.
pub(crate) fn run(
    asker: &Asker<'_>,
    procedure: u32,
    arguments: &[u8],
    reply: &mut Writer,
) -> Option<Result<Outcome, Malformed>> {
    use procedure::*;
    let begun = reply.len();
    reply.u32(Status::OK.0);
    let (arguments, out) = (Arguments::new(arguments), &mut *reply);
    let done = match procedure {
        NULL => {
            reply.truncate(begun);
            return Some(Ok(Outcome::Done(ReadData::default())));
        }
        GETATTR => asker.get_attributes(arguments, out),
        SETATTR => asker.set_attributes(arguments, out),
        LOOKUP => asker.look_up(arguments, out),
        ACCESS => asker.access(arguments, out),
        READLINK => asker.read_link(arguments, out),
        READ => asker.read(arguments, out),
        WRITE => asker.write(arguments, out),
        CREATE => asker.create(arguments, out),
        MKDIR => asker.make_directory(arguments, out),
        SYMLINK => asker.make_symlink(arguments, out),
        MKNOD => asker.make_node(arguments, out),
        REMOVE => asker.remove(arguments, out),
        RMDIR => asker.remove_directory(arguments, out),
        RENAME => asker.rename(arguments, out),
        LINK => asker.link(arguments, out),
        READDIR => asker.read_directory(arguments, out),
        READDIRPLUS => asker.read_directory_plus(arguments, out),
        FSSTAT => asker.space(arguments, out),
        FSINFO => asker.limits(arguments, out),
        PATHCONF => asker.names(arguments, out),
        COMMIT => asker.commit(arguments, out),
        _ => return None,
    };
    Some(match done {
        Ok(outcome) => Ok(outcome),
        Err(Refused::Malformed) => Err(Malformed),
        Err(Refused::Failed(failed)) => {
            reply.truncate(begun);
            failed.put(reply);
            Ok(Outcome::Done(ReadData::default()))
        }
    })
}

/// The result of a call whose change could not be made durable: the status, and no attributes.
pub(crate) fn put_not_durable(procedure: u32, status: Status, reply: &mut Writer) {
    use procedure::*;
    reply.u32(status.0);
    let absent = match procedure {
        RENAME => 4,
        LINK => 3,
        _ => 2,
    };
    for _attributes in 0..absent {
        reply.bool(false);
    }
}

/// What a procedure gives: an outcome, with the result appended; or why it has none.
type Done = Result<Outcome, Refused>;

/// Why a procedure has no result.
enum Refused {
    /// Its arguments cannot be decoded.
    Malformed,
    /// Its result is a failure.
    Failed(Failed),
}

impl From<Malformed> for Refused {
    fn from(_: Malformed) -> Refused {
        Refused::Malformed
    }
}

/// A failure, and the attributes that its result has: those of files that the handles have led to.
struct Failed {
    status: Status,
    shape: Shape,
    calls: Vec<FileCall>,
}

/// What follows the status of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Nothing.
    Bare,
    /// The attributes of the file.
    Post,
    /// `wcc_data` of the file.
    Wcc,
    /// `wcc_data` of two directories.
    TwoWcc,
    /// Attributes of a file, `wcc_data` of a directory.
    PostAndWcc,
}

impl Shape {
    fn fail(self, status: impl Into<Status>, calls: impl IntoIterator<Item = FileCall>) -> Refused {
        let (status, calls) = (status.into(), Vec::from_iter(calls));
        for call in &calls {
            call.operation().fail(status.error());
        }
        Refused::Failed(Failed {
            status,
            shape: self,
            calls,
        })
    }
}

impl Failed {
    fn put(&self, reply: &mut Writer) {
        reply.u32(self.status.0);
        let mut calls = self.calls.iter();
        let mut post = |reply: &mut Writer| attributes::put_present(reply, calls.next());
        match self.shape {
            Shape::Bare => {}
            Shape::Post => post(reply),
            Shape::Wcc => post(reply.bool(false)),
            Shape::TwoWcc => {
                post(reply.bool(false));
                post(reply.bool(false));
            }
            Shape::PostAndWcc => {
                post(reply);
                post(reply.bool(false));
            }
        }
    }
}

/// Nothing of a file follows the reply.
fn done() -> Done {
    Ok(Outcome::Done(ReadData::default()))
}
