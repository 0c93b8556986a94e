//! `zpool reguid`: power cuts anywhere leave the old guid or the new one, also where a device
//! misses the change, comes back as it was before, or loses labels.

mod support;

use std::path::PathBuf;
use support::files::{check_files, vdev, write_files};
use support::{create, create_of, import, import_found, machine, path};
use tarn_host::sim::{Fault, SimHost};
use tarn_ondisk::units::{Guid, ObjectId};
use tarn_pool::{Leaving, Mode, PoolOwner};
use tarn_probe::Operation;
use tarn_vdev::VdevKind;
use tarn_vdev::health::VdevState;
use tarn_vdev::import_search::{CandidatePool, pools, search};

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

/// What happens to a mirror beside the power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// The second disk does not answer from the change on, and does so again after the power cut.
    SecondMissesTheChange,
    /// After the power cut the second disk is as it was before the change.
    SecondComesBackOld,
    /// After the power cut the labels of the second disk that are written last are damaged.
    SecondLosesLabels,
    /// After the power cut the labels of both disks that are written last are damaged.
    BothLoseLabels,
}

/// The labels of a disk that are written last: the second and the fourth.
const LAST_LABELS: [std::ops::Range<u64>; 2] =
    [256 << 10..512 << 10, (128 << 20) - (256 << 10)..128 << 20];

/// A mirror after a power cut.
struct Cut {
    before: Guid,
    machine: SimHost,
    files: Vec<ObjectId>,
    is_done: bool,
}

/// Changes the guid of a mirror with a power cut at this write after that.
fn run_mirror(trouble: Trouble, cut_after: u64) -> Cut {
    let machine = machine(&["a", "b"]);
    let created = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create_of(host, vec![vdev(VdevKind::Mirror, &["a", "b"])], &operation);
        let guid = pool.facts().guid;
        pool.close(Leaving::Exported, &operation).unwrap();
        guid
    });
    let before = created.unwrap();
    let disk = machine.disk(path("b")).unwrap();
    let old = disk.keep();
    let mut files = Vec::new();
    let mut is_done = false;
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        files = write_files(&pool, 2, &operation);
        machine.cut_power_after_writes(machine.device_writes() + cut_after);
        if trouble == Trouble::SecondMissesTheChange {
            disk.inject(Fault::Vanish);
        }
        pool.reguid(Some(NEW), &operation).unwrap();
        is_done = true;
        machine.cut_power();
    });
    assert!(run.is_err(), "the power was cut");
    let machine = machine.reboot();
    let disk = |name: &str| machine.disk(path(name)).unwrap();
    disk("b").clear_faults();
    match trouble {
        Trouble::SecondMissesTheChange => {}
        Trouble::SecondComesBackOld => disk("b").put_back(&old),
        Trouble::SecondLosesLabels => LAST_LABELS
            .into_iter()
            .for_each(|label| disk("b").rot(label)),
        Trouble::BothLoseLabels => {
            for name in ["a", "b"] {
                LAST_LABELS
                    .into_iter()
                    .for_each(|label| disk(name).rot(label));
            }
        }
    }
    Cut {
        before,
        machine,
        files,
        is_done,
    }
}

/// Imports the pool that the first disk belongs to, and gives its guid and how many pools of this
/// name were found.
fn check_mirror(cut: &Cut, context: &str) -> (Guid, usize) {
    let Cut { before, files, .. } = cut;
    let checked = cut.machine.run(|host| {
        let operation = Operation::unmeasured();
        let owner = PoolOwner::default();
        let found = search(host, &[PathBuf::from("/disks")]);
        let (candidates, refused) = pools(&found);
        assert_eq!(refused.len(), 0, "{context}");
        let has_first = |pool: &&CandidatePool| {
            let mut leaves = pool.root.leaves().into_iter();
            let first = leaves.find(|leaf| leaf.path == Some(path("a").as_str().into()));
            first.is_some_and(|leaf| !pool.missing.contains(&leaf.guid))
        };
        let with_first: Vec<_> = candidates.iter().filter(has_first).collect();
        assert_eq!(with_first.len(), 1, "{context}: {candidates:?}");
        let chosen = (&found, with_first[0]);
        let pool = import_found(host, chosen, Mode::ReadWrite, &owner, &operation).unwrap();
        let guid = pool.facts().guid;
        assert!([*before, NEW].contains(&guid), "{context}");
        assert_eq!(guid, pool.vdevs().config().guid, "{context}");
        check_files(&pool, files, &operation);
        if candidates.len() > 1 {
            let second = pool.vdevs().leaves()[1].standing().state;
            assert_eq!(
                second,
                VdevState::Unavailable,
                "{context}: its label is of another pool"
            );
        }
        pool.store_labels(&operation).unwrap();
        pool.close(Leaving::Exported, &operation).unwrap();
        let found = search(host, &[PathBuf::from("/disks")]);
        let (again, _) = pools(&found);
        let same = again.iter().find(|pool| pool.facts.guid == guid);
        let chosen = (&found, same.expect(context));
        let pool = import_found(host, chosen, Mode::ReadWrite, &owner, &operation).unwrap();
        assert_eq!(pool.facts().guid, guid, "{context}");
        check_files(&pool, files, &operation);
        pool.close(Leaving::Exported, &operation).unwrap();
        (guid, candidates.len())
    });
    checked.unwrap()
}

/// Cuts power at every other write. Gives the guids and numbers of pools that were found.
fn cut_mirror_everywhere(trouble: Trouble) -> Vec<(Guid, usize)> {
    let mut results = Vec::new();
    for cut_after in (1..).step_by(2) {
        let cut = run_mirror(trouble, cut_after);
        let (guid, count) = check_mirror(&cut, &format!("{trouble:?}, cut after {cut_after}"));
        results.push((guid, count));
        if cut.is_done {
            assert_eq!(guid, NEW, "what was done stays done");
            break;
        }
        assert!(cut_after < 1_000, "it ends");
    }
    let is_new: Vec<bool> = results.iter().map(|(guid, _)| *guid == NEW).collect();
    assert!(is_new.contains(&false), "{trouble:?}");
    assert!(results.len() > 10, "{} writes to stop at", results.len());
    results
}

/// As in OpenZFS, two pools have the name then, and each is imported by its guid.
fn expect_a_pool_of_each_guid(trouble: Trouble) {
    let results = cut_mirror_everywhere(trouble);
    assert_eq!(results.last(), Some(&(NEW, 2)));
    assert!(
        results
            .iter()
            .all(|(guid, count)| *guid == NEW || *count == 1)
    );
}

#[test]
fn a_device_that_missed_the_change_is_of_another_pool() {
    expect_a_pool_of_each_guid(Trouble::SecondMissesTheChange);
}

#[test]
fn a_device_that_comes_back_as_before_the_change_is_of_another_pool() {
    expect_a_pool_of_each_guid(Trouble::SecondComesBackOld);
}

#[test]
fn a_device_with_the_new_guid_alone_does_not_hide_the_pool_of_the_other() {
    let results = cut_mirror_everywhere(Trouble::SecondLosesLabels);
    assert_eq!(results.last(), Some(&(NEW, 1)));
}

#[test]
fn a_pool_whose_labels_have_a_guid_that_was_not_stored_keeps_its_own() {
    let results = cut_mirror_everywhere(Trouble::BothLoseLabels);
    assert_eq!(results.last(), Some(&(NEW, 1)));
}
