//! `zdb -l` of a cache device: `golden/cache-device.l` is what OpenZFS 2.3.2 prints of this one.

use std::os::unix::fs::FileExt;
use std::process::Command;
use tarn_host::{Host, OpenMode, RealOptions};
use tarn_ondisk::cache_device::CacheHeader;
use tarn_ondisk::label::DATA_START_BYTES;
use tarn_ondisk::nvlist::NvList;
use tarn_vdev::{Window, labels};

/// The header of a device of 1100 MiB that OpenZFS 2.3.2 has filled, and its newest log block.
const HEADER: &[u8] = include_bytes!("../../../core/cache/tests/golden/cache-device-header.bin");
const LOG_BLOCK: &[u8] = include_bytes!("../../../core/cache/tests/golden/cache-log-block.bin");

const DEVICE_BYTES: u64 = 1100 << 20;

#[test]
fn the_header_and_the_log_blocks_are_shown_as_openzfs_shows_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let file = std::fs::File::create_new(&path).unwrap();
    file.set_len(DEVICE_BYTES).unwrap();
    let host = Host::real(RealOptions::default());
    let device = host.open_device(&path, OpenMode::ReadWrite).unwrap();
    let label = NvList::new()
        .with("version", 5000u64)
        .with("state", 4u64)
        .with("guid", 7u64);
    labels::create_labels(&Window::whole(device), &label).unwrap();
    let (header, _) = CacheHeader::from_sector(HEADER).unwrap();
    file.write_all_at(HEADER, DATA_START_BYTES).unwrap();
    file.write_all_at(LOG_BLOCK, header.newest.offset).unwrap();
    let shown = |option: &str| {
        let mut zdb = Command::new(env!("CARGO_BIN_EXE_zdb"));
        let shown = zdb.arg(option).arg(&path).output().unwrap();
        assert_eq!(shown.status.code(), Some(0));
        String::from_utf8(shown.stdout).unwrap()
    };
    assert_eq!(shown("-l"), include_str!("golden/cache-device.l"));
    assert_eq!(shown("-lq"), "");
    file.write_all_at(&[0; 8], DATA_START_BYTES).unwrap();
    assert!(shown("-l").ends_with("L2ARC device header not found\n\n"));
}
