//! Real devices, over every backend: the same contract for all.

use std::path::Path;
use std::sync::Arc;

use tarn_host::background::{Pace, keep_pace};
use tarn_host::{
    Backend, Buffer, Device, DeviceError, Host, OpenError, OpenMode, RealOptions, Request,
    WriteData,
};

const MIB: u64 = 1 << 20;

/// Runs a test on a fresh file of 64 MiB and some bytes, once for each backend, and once past the
/// page cache.
fn on_each_backend(test: impl Fn(&Host, &Path)) {
    let ways = [
        (Backend::Automatic, false),
        (Backend::Threads, false),
        (Backend::Ring, false),
        (Backend::Automatic, true),
        (Backend::Threads, true),
    ];
    for (backend, direct_files) in ways {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("device");
        let host = Host::real(RealOptions {
            backend,
            direct_files,
            ..Default::default()
        });
        host.create_sparse_file(&path, 64 * MIB + 512).unwrap();
        test(&host, &path);
    }
}

fn open(host: &Host, path: &Path) -> Arc<dyn Device> {
    host.open_device(path, OpenMode::ReadWriteExclusive)
        .unwrap()
}

/// Bytes that tell from where they are.
fn pattern(offset: u64, length: usize) -> Buffer {
    let mut buffer = Buffer::for_overwrite(length);
    for (at, word) in (offset / 8..).zip(buffer.chunks_mut(8)) {
        word.copy_from_slice(&at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[..word.len()]);
    }
    buffer
}

#[test]
fn a_batch_of_many_sizes_comes_back_as_it_was_written() {
    on_each_backend(|host, path| {
        let device = open(host, path);
        let mut ranges = Vec::new();
        let mut offset = 0;
        // Neighbours, gaps, and requests larger than one call moves.
        for number in 0..600_usize {
            let length = match number % 100 {
                0 => 3 << 20,
                n => 4096 * (1 + n % 4),
            };
            offset += if number % 7 == 0 { 8192 } else { 0 };
            ranges.push((offset, length));
            offset += u64::try_from(length).unwrap();
        }
        assert!(offset < 64 * MIB);
        let order = |n: usize| ranges[(n * 7) % ranges.len()];
        let writes = (0..ranges.len())
            .map(order)
            .map(|(o, l)| Request::write(o, pattern(o, l)));
        for done in device.submit(writes.collect()).wait() {
            assert!(done.result.unwrap().is_none());
        }
        device.flush().unwrap();
        let reads = (0..ranges.len())
            .map(order)
            .map(|(o, l)| Request::read(o, l))
            .collect();
        for (number, done) in device.submit(reads).wait().into_iter().enumerate() {
            let (offset, length) = order(number);
            assert!(
                done.result.unwrap().unwrap() == pattern(offset, length),
                "at {offset}"
            );
        }
        let (offset, length) = ranges[1];
        assert_eq!(
            device.read_at(offset, length).unwrap(),
            pattern(offset, length)
        );
    });
}

#[test]
fn part_of_a_shared_buffer_is_written_without_the_rest() {
    on_each_backend(|host, path| {
        let device = open(host, path);
        let shared = Arc::new(pattern(0, 16384));
        device
            .write_at(0, WriteData::part(shared.clone(), 4096..8192))
            .unwrap();
        assert_eq!(device.read_at(0, 4096).unwrap()[..], shared[4096..8192]);
        assert!(
            device
                .read_at(4096, 4096)
                .unwrap()
                .iter()
                .all(|byte| *byte == 0)
        );
    });
}

#[test]
fn a_range_beyond_the_end_is_refused_and_the_file_does_not_grow() {
    on_each_backend(|host, path| {
        let device = open(host, path);
        let size = 64 * MIB + 512;
        let refused = device
            .write_at(size, Buffer::zeroed(512).into())
            .unwrap_err();
        assert!(
            matches!(refused, DeviceError::OutOfRange { size_bytes, .. } if size_bytes == size)
        );
        let requests = vec![Request::read(0, 4096), Request::read(size, 4096)];
        let done = device.submit(requests).wait();
        assert!(done[0].result.is_ok() && done[1].result.is_err());
        assert!(device.read_at(u64::MAX - 511, 512).is_err());
        assert_eq!(device.size_bytes_now(), Ok(size));
        assert!(
            device.read_at(64 * MIB, 512).is_ok(),
            "the odd end can be used"
        );
    });
}

#[test]
fn a_device_that_grew_can_be_used_to_its_new_end() {
    on_each_backend(|host, path| {
        let device = open(host, path);
        std::fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(65 * MIB)
            .unwrap();
        device
            .write_at(65 * MIB - 4096, pattern(0, 4096).into())
            .unwrap();
        assert_eq!(device.size_bytes_now(), Ok(65 * MIB));
    });
}

#[test]
fn a_device_that_shrank_says_where_it_ended_and_neighbours_are_still_read() {
    on_each_backend(|host, path| {
        let device = open(host, path);
        std::fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(8192)
            .unwrap();
        let reads = (0..4).map(|n| Request::read(n * 4096, 4096)).collect();
        let done = device.submit(reads).wait();
        assert!(done[0].result.is_ok() && done[1].result.is_ok());
        let error = done[2].result.as_ref().unwrap_err();
        assert!(
            matches!(
                error,
                DeviceError::Short {
                    offset: 8192,
                    done: 0,
                    ..
                }
            ),
            "{error}"
        );
    });
}

#[test]
fn what_is_given_up_or_zeroed_reads_as_zeroes() {
    on_each_backend(|host, path| {
        let device = open(host, path);
        device.write_at(0, pattern(0, 32768).into()).unwrap();
        let requests = vec![
            Request::Discard {
                offset: 0,
                length: 8192,
            },
            Request::WriteZeroes {
                offset: 16384,
                length: 8192,
            },
        ];
        for done in device.submit(requests).wait() {
            done.result.unwrap();
        }
        let bytes = device.read_at(0, 32768).unwrap();
        let pattern = pattern(0, 32768);
        assert!(bytes[..8192].iter().all(|byte| *byte == 0));
        assert!(bytes[16384..24576].iter().all(|byte| *byte == 0));
        assert_eq!(bytes[8192..16384], pattern[8192..16384]);
        assert_eq!(bytes[24576..], pattern[24576..]);
        assert_eq!(device.size_bytes_now(), Ok(64 * MIB + 512));
    });
}

/// A large write to a buffered file that a thread waits for hurries the background writes before
/// it.
#[test]
fn a_write_that_a_thread_waits_for_hurries_those_before_it() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("device");
    let host = Host::real(RealOptions::default());
    host.create_sparse_file(&path, 64 * MIB).unwrap();
    let device = open(&host, &path);
    let pace = Arc::new(Pace::default());
    pace.ease_until(u64::MAX);
    let write = |offset, length| Request::Write {
        offset,
        data: pattern(offset, length).into(),
    };

    keep_pace(Some(pace.clone()));
    let at_leisure = device.submit(vec![write(0, 32 << 20)]);
    assert!(pace.is_easy(0));
    let small = device.submit(vec![write(60 * MIB, 4096)]);
    keep_pace(None);
    let beside = device.submit(vec![write(61 * MIB, 4096)]);
    assert!(pace.is_easy(0), "small writes do not wait in the queue");
    let waited_for = device.submit(vec![write(40 * MIB, 1 << 20)]);
    assert!(!pace.is_easy(0));
    for batch in [at_leisure, small, beside, waited_for] {
        assert!(batch.wait().into_iter().all(|done| done.result.is_ok()));
    }
    assert!(device.read_at(0, 32 << 20).unwrap() == pattern(0, 32 << 20));
}

#[test]
fn a_device_open_for_reading_refuses_writes() {
    on_each_backend(|host, path| {
        let device = host.open_device(path, OpenMode::ReadOnly).unwrap();
        assert!(device.read_at(0, 4096).is_ok());
        let refused = device.write_at(0, Buffer::zeroed(4096).into()).unwrap_err();
        assert!(matches!(refused, DeviceError::ReadOnly { .. }));
        assert!(device.flush().is_err());
    });
}

#[test]
fn many_threads_can_use_a_device_at_once() {
    on_each_backend(|host, path| {
        let device = open(host, path);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let device = &device;
                scope.spawn(move || {
                    let begin = thread * 8 * MIB;
                    let offsets = (0..50).map(|n| begin + n * 8192);
                    let write = |at| Request::write(at, pattern(at, 4096));
                    let done = device.submit(offsets.clone().map(write).collect()).wait();
                    assert!(done.iter().all(|done| done.result.is_ok()));
                    for at in offsets {
                        assert_eq!(device.read_at(at, 4096).unwrap(), pattern(at, 4096));
                    }
                });
            }
        });
    });
}

#[test]
fn a_batch_that_is_dropped_is_carried_out_all_the_same() {
    on_each_backend(|host, path| {
        let device = open(host, path);
        for n in 0..64 {
            drop(device.submit(vec![Request::write(n * 8192, pattern(n * 8192, 4096))]));
        }
        drop(device);
        // Device threads end after their last request; opening exclusively waits for that.
        let device = loop {
            match host.open_device(path, OpenMode::ReadWriteExclusive) {
                Ok(device) => break device,
                Err(OpenError::Busy { .. }) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        };
        for n in 0..64 {
            assert_eq!(
                device.read_at(n * 8192, 4096).unwrap(),
                pattern(n * 8192, 4096)
            );
        }
    });
}

#[test]
fn opening_says_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::real(RealOptions::default());
    let open = |path: &Path, mode| host.open_device(path, mode).map(|_| ());
    let missing = folder.path().join("missing");
    assert_eq!(
        open(&missing, OpenMode::ReadOnly),
        Err(OpenError::NotFound {
            path: missing.clone()
        })
    );
    let path = folder.path().to_owned();
    assert_eq!(
        open(&path, OpenMode::ReadOnly),
        Err(OpenError::WrongKind { path })
    );
    let path = Path::new("/dev/null").to_owned();
    assert_eq!(
        open(&path, OpenMode::ReadOnly),
        Err(OpenError::WrongKind { path })
    );
}

#[test]
fn a_file_taken_exclusively_is_refused_to_others() {
    on_each_backend(|host, path| {
        let device = open(host, path);
        let again = host
            .open_device(path, OpenMode::ReadWriteExclusive)
            .map(|_| ());
        assert_eq!(
            again,
            Err(OpenError::Busy {
                path: path.to_owned()
            })
        );
        assert!(host.open_device(path, OpenMode::ReadOnly).is_ok());
        assert_eq!(device.describe().size_bytes, 64 * MIB + 512);
    });
}

#[test]
fn a_device_that_was_dropped_can_be_taken_exclusively_at_once() {
    on_each_backend(|host, path| {
        for round in 0..20u8 {
            let device = host.open_device(path, OpenMode::ReadWriteExclusive);
            let device = device.unwrap_or_else(|error| panic!("round {round}: {error}"));
            let write = |place| Request::write(place * 8192, pattern(place, 4096));
            for completion in device.submit((0..50).map(write).collect()).wait() {
                completion.result.unwrap();
            }
        }
    });
}

#[test]
fn a_state_file_is_replaced_whole() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::real(RealOptions::default());
    let path = folder.path().join("state/cache");
    assert!(host.read_file(&path).unwrap_err().is_not_found());
    host.create_directories(path.parent().unwrap()).unwrap();
    host.write_file_atomically(&path, b"one").unwrap();
    host.write_file_atomically(&path, b"two").unwrap();
    assert_eq!(host.read_file(&path).unwrap(), b"two");
    assert_eq!(
        host.list_directory(path.parent().unwrap()).unwrap().len(),
        1
    );
    host.remove_file(&path).unwrap();
    host.remove_file(&path).unwrap();
    assert!(
        host.list_directory(path.parent().unwrap())
            .unwrap()
            .is_empty()
    );
}
