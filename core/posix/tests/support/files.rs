//! Files in one line, as most tests of files make them.

use super::Mounted;
use tarn_ondisk::units::ObjectId;
use tarn_posix::WriteAt;
use tarn_posix::types::{Credentials, FileKind};

pub fn root() -> Credentials {
    Credentials::root()
}

pub fn file(mounted: &Mounted, name: &str) -> ObjectId {
    mounted
        .make(&root(), mounted.root(), name, FileKind::Regular, 0o644)
        .unwrap()
        .id
}

pub fn write(mounted: &Mounted, id: ObjectId, offset: u64, bytes: &[u8]) {
    let at = WriteAt::Offset(offset);
    let written = mounted
        .files
        .write(&root(), id, at, bytes, &mounted.operation)
        .unwrap();
    assert_eq!(written, bytes.len());
}
