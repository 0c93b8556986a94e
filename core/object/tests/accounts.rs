//! Counts of owners, read while they are made.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use support::Pool;
use tarn_object::zap::ObjectZap;
use tarn_object::{NewObject, Owner, Ownership, PROJECT_USED, USER_USED};
use tarn_ondisk::object_type::ObjectType;
use tarn_probe::Operation;

struct OneOwner;

impl Ownership for OneOwner {
    fn owner(&self, _bonus_type: ObjectType, _bonus: &[u8]) -> Option<Owner> {
        Some(Owner {
            user: 1,
            group: 2,
            project: 3,
        })
    }
}

/// `zfs userspace` reads them at any time, without a transaction.
#[test]
fn an_account_is_found_with_its_header_or_not_at_all() {
    let mut pool = Pool::new();
    for _ in 0..200 {
        let set = pool.create_set(Some(Arc::new(OneOwner)));
        let tx = pool.tx();
        let new = NewObject::plain(ObjectType::PlainFile, 512)
            .with_bonus(ObjectType::SystemAttributes, 40);
        set.allocate(&tx, new, &pool.operation).unwrap();
        drop(tx);
        let is_stored = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let operation = Operation::unmeasured();
                while !is_stored.load(Ordering::Acquire) {
                    for account in [USER_USED, PROJECT_USED] {
                        if let Ok(object) = set.object(account, &operation) {
                            ObjectZap::of(&object, &operation).entries().unwrap();
                        }
                    }
                }
            });
            pool.sync(&set);
            is_stored.store(true, Ordering::Release);
        });
    }
}
