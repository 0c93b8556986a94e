//! What every file system begins with.

mod support;

use support::Mounted;
use tarn_ondisk::units::ObjectId;
use tarn_posix::properties::MountProperties;
use tarn_posix::types::FileKind;
use tarn_posix::{CaseSensitivity, NewFileSystem};

#[test]
fn a_new_file_system_has_an_empty_root_and_is_found_again() {
    for version in 1..=5 {
        let new = NewFileSystem {
            version,
            case: CaseSensitivity::Mixed,
            uid: 7,
            ..NewFileSystem::default()
        };
        let mounted = Mounted::with(new, MountProperties::default()).remounted();
        let files = &mounted.files;
        assert_eq!(files.version(), version);
        assert_eq!(files.naming().case, CaseSensitivity::Mixed);
        let root = files.attributes(files.root(), &mounted.operation).unwrap();
        assert_eq!((root.kind, root.permissions), (FileKind::Directory, 0o755));
        assert_eq!((root.links, root.size, root.uid), (2, 2, 7));
        assert!(
            files
                .attributes(ObjectId::from(1), &mounted.operation)
                .is_err()
        );
    }
}
