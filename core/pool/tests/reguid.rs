//! `zpool reguid`: power cuts anywhere leave the old guid or the new one.

mod support;

use std::path::PathBuf;
use support::{create, import, machine};
use tarn_host::sim::SimHost;
use tarn_ondisk::units::Guid;
use tarn_pool::{Leaving, Mode};
use tarn_probe::Operation;
use tarn_vdev::import_search::{pools, search};

const NEW: Guid = Guid::new(4711);

/// Creates a pool on two disks, and changes its guid with a power cut at this write after that.
/// Gives the guid before, the machine after the cut, and whether the change was done.
fn run(cut_after: u64) -> (Guid, SimHost, bool) {
    let machine = machine(&["a", "b"]);
    let created = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create(host, &["a", "b"], &operation);
        let guid = pool.facts().guid;
        pool.close(Leaving::Exported, &operation).unwrap();
        guid
    });
    let before = created.unwrap();
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        machine.cut_power_after_writes(machine.device_writes() + cut_after);
        pool.reguid(Some(NEW), &operation).unwrap();
        assert_eq!(pool.facts().guid, NEW);
        // Labels of a later txg have the new guid as well.
        pool.store_labels(&operation).unwrap();
        machine.cut_power_after_writes(u64::MAX);
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    let is_done = run.is_ok();
    match is_done {
        true => (before, machine, true),
        false => (before, machine.reboot(), false),
    }
}

#[test]
fn a_pool_has_its_old_or_its_new_guid_after_a_power_cut_at_each_write() {
    let mut guids = Vec::new();
    for cut_after in 1.. {
        let (before, machine, is_done) = run(cut_after);
        let found = machine.run(move |host| {
            let operation = Operation::unmeasured();
            let found = search(host, &[PathBuf::from("/disks")]);
            let (candidates, refused) = pools(&found);
            assert_eq!((candidates.len(), refused.len()), (1, 0), "{cut_after}");
            assert_eq!(candidates[0].missing, [], "{cut_after}");
            let pool = import(host, Mode::ReadWrite, &operation).unwrap();
            let guid = pool.facts().guid;
            assert!([before, NEW].contains(&guid));
            assert_eq!(guid, pool.vdevs().config().guid);
            pool.close(Leaving::Exported, &operation).unwrap();
            let pool = import(host, Mode::ReadWrite, &operation).unwrap();
            assert_eq!(pool.facts().guid, guid);
            pool.close(Leaving::Exported, &operation).unwrap();
            guid
        });
        guids.push(found.unwrap() == NEW);
        if is_done {
            break;
        }
    }
    assert!(guids.len() > 20, "{} writes to stop at", guids.len());
    assert!(guids.contains(&false) && guids.last() == Some(&true));
}
