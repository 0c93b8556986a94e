//! Locks of files by several owners, and what opens deny to each other.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use support::Mounted;
use tarn_ondisk::units::ObjectId;
use tarn_posix::{
    Granted, LockKind, LockOwner, LockRange, LockRefusal, LockRequest, LockScope, LockWait, Locked,
    PosixError, Share, Watcher,
};
use tarn_probe::HolderId;

const FILE: ObjectId = ObjectId::new(77);
const OTHER: ObjectId = ObjectId::new(78);

fn owner(number: u64) -> LockOwner {
    LockOwner {
        holder: HolderId(1),
        number,
    }
}

fn range(number: u64, first: u64, last: u64, kind: LockKind) -> LockRequest {
    LockRequest {
        owner: owner(number),
        scope: LockScope::Range(LockRange { first, last }),
        kind,
        process: u32::try_from(number).unwrap(),
    }
}

fn whole(number: u64, kind: LockKind) -> LockRequest {
    LockRequest {
        owner: owner(number),
        scope: LockScope::File,
        kind,
        process: 0,
    }
}

/// A callback, and whether it was called.
fn told() -> (Granted, Arc<AtomicBool>) {
    let is_granted = Arc::new(AtomicBool::new(false));
    let told = is_granted.clone();
    (
        Box::new(move || told.store(true, Ordering::SeqCst)),
        is_granted,
    )
}

fn wait(mounted: &Mounted, file: ObjectId, request: &LockRequest) -> (LockWait, Arc<AtomicBool>) {
    let (granted, is_granted) = told();
    match mounted.files.lock_or_wait(file, request, granted).unwrap() {
        Locked::Later(wait) => (wait, is_granted),
        Locked::Now => panic!("it conflicts"),
    }
}

#[test]
fn a_range_is_taken_by_one_owner_or_shared_and_others_find_who_has_it() {
    let mounted = Mounted::new();
    let files = &mounted.files;
    files
        .lock(FILE, &range(1, 10, 19, LockKind::Exclusive))
        .unwrap();
    files
        .lock(FILE, &range(1, 20, 29, LockKind::Shared))
        .unwrap();
    let shared = range(2, 25, 40, LockKind::Shared);
    files.lock(FILE, &shared).unwrap();
    let wanted = range(2, 15, u64::MAX, LockKind::Exclusive);
    assert_eq!(files.lock(FILE, &wanted), Err(LockRefusal::Conflict));
    let found = files.find_lock(FILE, &wanted).unwrap();
    assert_eq!(found, range(1, 10, 19, LockKind::Exclusive));
    assert_eq!(
        files.find_lock(FILE, &range(2, 0, 9, LockKind::Exclusive)),
        None
    );
    assert_eq!(files.find_lock(OTHER, &wanted), None);
    files.lock(FILE, &whole(2, LockKind::Exclusive)).unwrap();
    // The middle is unlocked, so the range falls apart.
    let middle = LockScope::Range(LockRange {
        first: 12,
        last: 13,
    });
    files.unlock(FILE, owner(1), middle).unwrap();
    files
        .lock(FILE, &range(3, 12, 13, LockKind::Exclusive))
        .unwrap();
    for byte in [11, 14] {
        let refused = files.lock(FILE, &range(3, byte, byte, LockKind::Shared));
        assert_eq!(refused, Err(LockRefusal::Conflict));
    }
    assert_eq!(
        files.lock(FILE, &range(1, 5, 4, LockKind::Shared)),
        Err(LockRefusal::BadRange)
    );
    files.release_locks(FILE, owner(1), LockScope::Range(LockRange::WHOLE));
    files
        .lock(FILE, &range(3, 0, 24, LockKind::Exclusive))
        .unwrap();
}

#[test]
fn those_who_wait_get_their_locks_in_turn_and_who_gives_up_gets_none() {
    let mounted = Mounted::new();
    let files = &mounted.files;
    files
        .lock(FILE, &range(1, 0, 9, LockKind::Exclusive))
        .unwrap();
    let (_, second) = wait(&mounted, FILE, &range(2, 0, 9, LockKind::Exclusive));
    let (third_wait, third) = wait(&mounted, FILE, &range(3, 5, 9, LockKind::Exclusive));
    let (_, fourth) = wait(&mounted, FILE, &range(4, 0, 4, LockKind::Shared));
    files
        .unlock(
            FILE,
            owner(1),
            LockScope::Range(LockRange { first: 0, last: 4 }),
        )
        .unwrap();
    // The second needs more than that, so the fourth passes it.
    assert!(!second.load(Ordering::SeqCst) && fourth.load(Ordering::SeqCst));
    assert!(files.cancel_lock_wait(FILE, third_wait));
    assert!(!files.cancel_lock_wait(FILE, third_wait));
    files.release_locks(FILE, owner(1), LockScope::Range(LockRange::WHOLE));
    assert!(!second.load(Ordering::SeqCst) && !third.load(Ordering::SeqCst));
    files.release_locks(FILE, owner(4), LockScope::Range(LockRange::WHOLE));
    assert!(second.load(Ordering::SeqCst) && !third.load(Ordering::SeqCst));
    assert_eq!(
        files.lock(FILE, &range(3, 5, 9, LockKind::Shared)),
        Err(LockRefusal::Conflict)
    );
}

#[test]
fn a_lock_that_is_granted_as_shared_frees_the_request_that_waits_for_the_exclusive_one() {
    let mounted = Mounted::new();
    let files = &mounted.files;
    files
        .lock(FILE, &range(1, 0, 9, LockKind::Exclusive))
        .unwrap();
    files
        .lock(FILE, &range(3, 10, 19, LockKind::Exclusive))
        .unwrap();
    let (_, second) = wait(&mounted, FILE, &range(2, 0, 9, LockKind::Shared));
    let (_, first) = wait(&mounted, FILE, &range(1, 0, 19, LockKind::Shared));
    files.release_locks(FILE, owner(3), LockScope::Range(LockRange::WHOLE));
    assert!(first.load(Ordering::SeqCst), "nothing conflicts with it");
    assert!(second.load(Ordering::SeqCst), "its range is shared now");
}

#[test]
fn waiting_in_a_circle_is_refused_over_files_and_however_long_it_is() {
    let mounted = Mounted::new();
    let files = &mounted.files;
    let exclusive = |number, at| range(number, at, at, LockKind::Exclusive);
    for (number, file) in [(1, FILE), (2, OTHER), (3, FILE)] {
        files.lock(file, &exclusive(number, number)).unwrap();
    }
    wait(&mounted, OTHER, &exclusive(1, 2));
    let (blocked, _) = wait(&mounted, FILE, &exclusive(2, 3));
    let (granted, is_granted) = told();
    let refused = files.lock_or_wait(FILE, &exclusive(3, 1), granted);
    assert_eq!(refused, Err(LockRefusal::Deadlock));
    assert_eq!(refused.unwrap_err().errno(), 35);
    // Without the one in the middle there is no circle.
    assert!(files.cancel_lock_wait(FILE, blocked));
    wait(&mounted, FILE, &exclusive(3, 1));
    assert!(!is_granted.load(Ordering::SeqCst));
}

#[test]
fn a_flock_of_another_kind_takes_the_place_of_the_owners_own() {
    let mounted = Mounted::new();
    let files = &mounted.files;
    files.lock(FILE, &whole(1, LockKind::Shared)).unwrap();
    files.lock(FILE, &whole(2, LockKind::Shared)).unwrap();
    // As on Linux, the shared lock is lost where the exclusive one is refused.
    let refused = files.lock(FILE, &whole(1, LockKind::Exclusive));
    assert_eq!(refused, Err(LockRefusal::Conflict));
    files.lock(FILE, &whole(2, LockKind::Exclusive)).unwrap();
    let (_, first) = wait(&mounted, FILE, &whole(1, LockKind::Exclusive));
    // Ranges are another matter.
    files
        .lock(FILE, &range(3, 0, u64::MAX, LockKind::Exclusive))
        .unwrap();
    files.release_locks(FILE, owner(2), LockScope::Range(LockRange::WHOLE));
    assert!(!first.load(Ordering::SeqCst));
    files.release_locks(FILE, owner(2), LockScope::File);
    assert!(first.load(Ordering::SeqCst));
}

struct Deaf;

impl Watcher for Deaf {
    fn changed(&self, _: &tarn_posix::Change<'_>) {}
}

#[test]
fn locks_waits_and_reservations_go_with_their_holder() {
    let mounted = Mounted::new();
    let files = &mounted.files;
    let watcher: Arc<dyn Watcher> = Arc::new(Deaf);
    let holding = files.hold(Arc::downgrade(&watcher));
    let holder = holding.id();
    let by = |number: u64, request: LockRequest| LockRequest {
        owner: LockOwner { holder, number },
        ..request
    };
    let foreign = |request: LockRequest| LockRequest {
        owner: LockOwner {
            holder: HolderId(50),
            number: 9,
        },
        ..request
    };
    let all = range(0, 0, u64::MAX, LockKind::Exclusive);
    files.lock(FILE, &by(9, all)).unwrap();
    files.lock(OTHER, &foreign(all)).unwrap();
    let (_, theirs) = wait(&mounted, FILE, &foreign(all));
    let (_, ours) = wait(&mounted, OTHER, &by(10, all));
    let denying = Share {
        reads: true,
        denies_writing: true,
        ..Share::default()
    };
    files.share(FILE, holder, denying).unwrap();
    drop(holding);
    assert!(theirs.load(Ordering::SeqCst) && !ours.load(Ordering::SeqCst));
    let last = LockScope::Range(LockRange::WHOLE);
    files.release_locks(OTHER, foreign(all).owner, last);
    assert!(!ours.load(Ordering::SeqCst), "nobody waits any more");
    let writing = Share {
        writes: true,
        ..Share::default()
    };
    files.share(FILE, HolderId(50), writing).unwrap();
}

#[test]
fn an_open_that_denies_and_one_that_is_denied_exclude_each_other() {
    let mounted = Mounted::new();
    let files = &mounted.files;
    let (one, other) = (HolderId(1), HolderId(2));
    let share = |reads, writes, denies_reading, denies_writing| Share {
        reads,
        writes,
        denies_reading,
        denies_writing,
    };
    let (reading, writing) = (
        share(true, false, false, false),
        share(false, true, false, false),
    );
    let alone = share(true, true, true, true);
    files.share(FILE, one, reading).unwrap();
    files.share(FILE, one, reading).unwrap();
    let denies_writing = share(true, false, false, true);
    files.share(FILE, other, denies_writing).unwrap();
    let is_busy = |outcome| matches!(outcome, Err(PosixError::Busy));
    assert!(is_busy(files.share(FILE, one, writing)));
    assert!(is_busy(files.share(FILE, other, alone)));
    files.share(OTHER, one, writing).unwrap();
    files.unshare(FILE, other, denies_writing);
    files.share(FILE, one, writing).unwrap();
    for open in [reading, reading, writing] {
        assert!(is_busy(files.share(FILE, other, alone)));
        files.unshare(FILE, one, open);
    }
    files.share(FILE, other, alone).unwrap();
    assert!(is_busy(files.share(FILE, one, reading)));
}
