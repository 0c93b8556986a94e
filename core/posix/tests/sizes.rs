//! Sizes: of the blocks that programs are told to write, and of the largest file.

mod support;

use support::Mounted;
use tarn_ondisk::units::LogicalSize;
use tarn_posix::properties::MountProperties;
use tarn_posix::types::{Allocate, Credentials, FileKind, Seek, SetAttributes};
use tarn_posix::{NewFileSystem, PosixError, WriteAt};

/// The largest size of a file.
const SIZE_MAX: u64 = i64::MAX as u64;

#[test]
fn a_file_that_is_empty_is_best_written_in_whole_records() {
    for record in [128 << 10, 4096, 1 << 20] {
        let properties = MountProperties {
            record_size: LogicalSize::from(record),
            ..MountProperties::default()
        };
        let mounted = Mounted::with(NewFileSystem::default(), properties);
        let (files, operation, root) = (&mounted.files, &mounted.operation, Credentials::root());
        let made = mounted.make(&root, mounted.root(), "f", FileKind::Regular, 0o644);
        let id = made.unwrap().id;
        let told = || files.attributes(id, operation).unwrap().block_size;
        assert_eq!(u64::from(told()), record);
        files
            .write(&root, id, WriteAt::End, &[7; 700], operation)
            .unwrap();
        assert_eq!(told(), 1024);
        let empty = SetAttributes {
            size: Some(0),
            ..SetAttributes::default()
        };
        files.set_attributes(&root, id, &empty, operation).unwrap();
        assert_eq!(u64::from(told()), record);
    }
}

#[test]
fn the_last_byte_that_an_offset_can_name_is_written_read_and_freed() {
    for record in [512, 128 << 10, 16 << 20] {
        let properties = MountProperties {
            record_size: LogicalSize::from(record),
            ..MountProperties::default()
        };
        let mounted = Mounted::with(NewFileSystem::default(), properties);
        let root = Credentials::root();
        let made = mounted.make(&root, mounted.root(), "f", FileKind::Regular, 0o644);
        let id = made.unwrap().id;
        let (files, operation) = (&mounted.files, &mounted.operation);
        let last = SIZE_MAX - 1;
        let at = WriteAt::Offset(last - 3);
        assert_eq!(files.write(&root, id, at, b"abcde", operation).unwrap(), 4);
        let beyond = files.write(&root, id, WriteAt::Offset(SIZE_MAX), b"f", operation);
        assert!(matches!(beyond, Err(PosixError::FileTooLarge)));
        let mounted = mounted.remounted();
        let (files, operation) = (&mounted.files, &mounted.operation);
        assert_eq!(files.attributes(id, operation).unwrap().size, SIZE_MAX);
        let read = |at| {
            let read = files.read(&root, id, at, 100, operation);
            read.unwrap().to_vec()
        };
        assert_eq!(read(last - 3), b"abcd");
        assert_eq!(read(SIZE_MAX), b"");
        let start = (last - 3) / record * record;
        assert_eq!(
            files.seek(id, 1 << 20, Seek::Data, operation).unwrap(),
            start
        );
        assert_eq!(
            files.seek(id, last, Seek::Hole, operation).unwrap(),
            SIZE_MAX
        );
        let small = mounted.make(&root, mounted.root(), "small", FileKind::Regular, 0o644);
        let small = small.unwrap().id;
        let copied = files.copy_range(&root, (id, last - 1), (small, 0), 10, operation);
        assert_eq!(copied.unwrap(), 2);
        assert_eq!(mounted.contents(small), b"cd");
        let copied = files.copy_range(&root, (small, 0), (id, last), 2, operation);
        assert_eq!(copied.ok(), Some(1));
        assert_eq!(read(last - 3), b"abcc");
        let hole = (last - 1, SIZE_MAX - last + 1);
        files
            .allocate(&root, id, Allocate::PunchHole, hole.0, hole.1, operation)
            .unwrap();
        assert_eq!(read(last - 3), b"ab\0\0");
        let more = files.allocate(&root, id, Allocate::Extend, last, 2, operation);
        assert!(matches!(more, Err(PosixError::FileTooLarge)));
        let size = SetAttributes {
            size: Some(last - 2),
            ..SetAttributes::default()
        };
        files.set_attributes(&root, id, &size, operation).unwrap();
        let size = SetAttributes {
            size: Some(SIZE_MAX),
            ..SetAttributes::default()
        };
        files.set_attributes(&root, id, &size, operation).unwrap();
        assert_eq!(read(last - 3), b"a\0\0\0");
        assert_eq!(mounted.remounted().contents_end(id, last - 3), b"a\0\0\0");
    }
}
