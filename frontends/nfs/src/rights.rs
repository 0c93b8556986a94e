//! Whether a user may read or write a file, as a server decides it that sees no open files.
//!
//! The owner of a file reads and writes it whatever its mode says: a program that has opened it
//! before its mode changed goes on using it. All users read a file that may be executed.

use crate::file_call::FileCall;
use tarn_engine::files::{OpenRights, PosixError};

/// Refuses to read a file that this user could not have opened.
pub(crate) fn check_read(file: &FileCall) -> Result<(), PosixError> {
    let open = |rights| {
        file.files()
            .check_open(&file.credentials, file.id, rights, file.operation())
    };
    let reads = OpenRights {
        reads: true,
        ..OpenRights::default()
    };
    let executes = OpenRights {
        executes: true,
        ..OpenRights::default()
    };
    match open(reads) {
        Err(PosixError::PermissionDenied) if is_owner(file) => Ok(()),
        // A client reads the programs that its users execute.
        Err(PosixError::PermissionDenied) => open(executes),
        checked => checked,
    }
}

/// Refuses to write a file that this user could not have opened.
pub(crate) fn check_write(file: &FileCall) -> Result<(), PosixError> {
    if file.realm.access.is_read_only {
        return Err(PosixError::ReadOnly);
    }
    let writes = OpenRights {
        writes: true,
        ..OpenRights::default()
    };
    let (files, operation) = (file.files(), file.operation());
    match files.check_open(&file.credentials, file.id, writes, operation) {
        Err(PosixError::PermissionDenied) if is_owner(file) => Ok(()),
        // A file that takes only appended data: the write itself is checked for where it goes.
        Err(PosixError::NotPermitted) => {
            let appends = OpenRights {
                appends: true,
                ..writes
            };
            files.check_open(&file.credentials, file.id, appends, operation)
        }
        checked => checked,
    }
}

fn is_owner(file: &FileCall) -> bool {
    let found = file.attributes();
    found.is_ok_and(|found| found.uid == file.credentials.uid)
}
