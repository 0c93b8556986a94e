//! Vdevs that change their shape while they are written.

mod common;

use common::{Disks, guid_of, noise, operation, place, read};
use std::sync::Arc;
use std::time::Duration;
use tarn_host::sim::Fault;
use tarn_host::{Action, Buffer, Errno};
use tarn_ondisk::declare::narrow;
use tarn_ondisk::units::Txg;
use tarn_vdev::{Change, Needed, PhysicalWrite, VdevKind, VdevTree};

/// One device of a mirror fails while another, which covers it, is detached. Further ones lack what
/// was written before.
fn detaches_amid(
    count: u64,
    fault: Fault,
    write: impl Fn(&VdevTree, Vec<PhysicalWrite>) -> bool + Send + 'static,
) {
    let disks = Disks::one(VdevKind::Mirror, count, 12);
    let run = disks.machine.run(|host| {
        let tree = disks.open();
        let place = place(1 << 20, 8192);
        for disk in [0, 1] {
            disks.disk(disk).inject(Fault::Slow { factor: 1000 });
        }
        for disk in 2..count {
            let leaf = tree.leaf(guid_of(narrow(disk))).unwrap();
            leaf.add_to_dtl(Txg::INITIAL..=Txg::INITIAL);
        }
        disks.disk(0).inject(fault);
        let writer = {
            let tree = tree.clone();
            host.spawn("writer", move || {
                let data = Arc::new(Buffer::from_slice(&noise(place)));
                write(&tree, vec![PhysicalWrite { place, data }])
            })
        };
        let is_under_way = || {
            let (_, writes, flushes) = disks.disk(0).requests();
            writes + flushes > 0
        };
        while !is_under_way() {
            host.sleep(Duration::from_micros(1));
        }
        let root = tree.config();
        let left = root.children[0].without(guid_of(1)).unwrap();
        let change = Change {
            config: left.config,
            joining: None,
            heir: left.heir,
        };
        let departed = tree.reshape_if(change, Needed::AllBlocks).unwrap();
        let is_stored = writer.join().unwrap();
        departed.clear(None);
        disks.disk(0).clear_faults();
        if is_stored {
            assert!(
                read(&tree, place).is_ok(),
                "what is durable is on the device that is left"
            );
            assert!(
                tree.leaves().iter().any(|leaf| leaf.is_whole()),
                "a vdev that was written has a device with all that was written"
            );
        }
        is_stored
    });
    run.unwrap();
}

const NEXT_WRITE: Fault = Fault::FailNth {
    action: Action::Write,
    nth: 0,
    errno: Errno::IO,
};

#[test]
fn what_is_made_durable_while_a_device_is_detached_is_on_the_other() {
    detaches_amid(2, NEXT_WRITE, |tree, writes| {
        tree.write_durably(writes, &operation()).is_ok()
    });
}

#[test]
fn what_is_written_while_a_device_is_detached_is_on_the_other() {
    detaches_amid(2, NEXT_WRITE, |tree, writes| {
        tree.write(writes, &operation()).is_ok()
    });
}

#[test]
fn a_device_that_lacks_something_covers_none_that_fails_while_another_is_detached() {
    detaches_amid(3, NEXT_WRITE, |tree, writes| {
        tree.write_durably(writes.clone(), &operation()).is_ok()
    });
    detaches_amid(3, NEXT_WRITE, |tree, writes| {
        tree.write(writes, &operation()).is_ok()
    });
}
