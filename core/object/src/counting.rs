//! Counting for owners in an existing file system, whose pool got the features `userobj_accounting`
//! and `project_quota` later.
//!
//! # Mechanism
//! *Projects*: so far no file has a project, so everything that is counted for users belongs to
//! project 0, that of all files without another. The sums of the users become its counts, and from
//! then on changes are counted for projects, too. All of that is in one group.
//!
//! *Objects*: each dnode has a flag for being counted as an object (`owner`). So uncounted ones are
//! stored again, one after the other and unchanged, while others are changed; each counts from then
//! on.
//!
//! # After a crash
//! A crash leaves projects counted or not. Objects that were counted stay counted, and the objset
//! block does not say yet that all are: counting goes on with the others.

use std::sync::Arc;

use tarn_ondisk::dnode::{Dnode, DnodeFlags};
use tarn_ondisk::objset::{Accounting, ObjsetFlags, ObjsetType};
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

use crate::error::ObjectError;
use crate::head::{PROJECT_USED, USER_USED};
use crate::object::Object;
use crate::objset::ObjectSet;
use crate::owner_door::OBJECT_COUNT_PREFIX;
use crate::tx::{SyncTx, TxEstimate};
use crate::zap::{Name, ObjectZap, OwnedName};

/// What the pool's features have counted for owners, beside space for users and groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Countable {
    /// Objects (feature `userobj_accounting`).
    pub objects: bool,
    /// Projects (feature `project_quota`).
    pub projects: bool,
}

/// How many objects are counted in one transaction. A guess: their dnodes are in some hundred
/// blocks at most.
const OBJECTS_PER_TX: usize = 1024;

/// The project of all files without another.
const NO_PROJECT_SAID: &str = "0";

impl ObjectSet {
    /// What of this is not counted yet, and can be.
    #[doc(alias(
        "dmu_objset_userobjspace_upgradable",
        "dmu_objset_projectquota_upgradable"
    ))]
    pub fn uncounted(&self, countable: Countable) -> Countable {
        let flags = self.flags();
        let can =
            self.objset_type() == ObjsetType::Zfs && self.owner().is_some() && !self.is_sealed();
        let lacks = |flag| can && !flags.contains(flag);
        Countable {
            objects: countable.objects && lacks(ObjsetFlags::OBJECT_ACCOUNTING_COMPLETE),
            projects: countable.projects && lacks(ObjsetFlags::PROJECT_QUOTA_COMPLETE),
        }
    }

    /// Projects are counted from this group on, and the head says so.
    ///
    /// # Errors
    /// The counts of users cannot be read.
    pub fn count_projects(&self, tx: &SyncTx, operation: &Operation) -> Result<(), ObjectError> {
        self.change_head(tx, |head| {
            head.accounting =
                with_projects(std::mem::replace(&mut head.accounting, Accounting::None));
            head.flags = head.flags.with(ObjsetFlags::PROJECT_QUOTA_COMPLETE);
        });
        let (bytes, objects) = self.sums(USER_USED, tx, operation, |_| true)?;
        let others = |name: &str| name != NO_PROJECT_SAID;
        let (of_others, objects_of_others) = self.sums(PROJECT_USED, tx, operation, others)?;
        let zap = self.account(PROJECT_USED, tx, operation)?;
        let name_of_objects = format!("{OBJECT_COUNT_PREFIX}{NO_PROJECT_SAID}");
        for (name, sum) in [
            (NO_PROJECT_SAID, bytes.wrapping_sub(of_others)),
            (
                name_of_objects.as_str(),
                objects.wrapping_sub(objects_of_others),
            ),
        ] {
            let failed = |why| zap.object().zap_error(why);
            let now = zap
                .lookup_word(Name::from(name))
                .map_err(failed)?
                .unwrap_or(0);
            let more = sum.wrapping_sub(now).cast_signed();
            zap.increment(tx, name.as_bytes(), more).map_err(failed)?;
        }
        let mut policy = self.policy();
        policy.counts_projects = true;
        self.set_policy(policy);
        Ok(())
    }

    /// Objects are counted when they are stored, from this group on. Those that are not stored
    /// again are for [`ObjectSet::count_objects`].
    pub fn begin_to_count_objects(&self, tx: &SyncTx) {
        self.change_head(tx, |head| {
            if head.accounting == Accounting::None {
                let none = || Box::new(Dnode::free());
                head.accounting = Accounting::Users {
                    user: none(),
                    group: none(),
                };
            }
        });
        let mut policy = self.policy();
        policy.counts_objects = true;
        self.set_policy(policy);
    }

    /// Counts some of the objects behind this one that are not counted yet, in the open group: when
    /// that is stored they are. Gives the last it has looked at; none behind which there are no
    /// more. What cannot be read is passed over.
    ///
    /// # Errors
    /// The pool does not store anything now, or the dnodes cannot be found.
    #[doc(alias = "dmu_objset_space_upgrade")]
    pub fn count_objects(
        &self,
        after: ObjectId,
        operation: &Operation,
    ) -> Result<Option<ObjectId>, CountError> {
        let mut waiting: Vec<Arc<Object>> = Vec::new();
        let mut last = Some(after);
        for _ in 0..OBJECTS_PER_TX {
            let Some(at) = last else {
                break;
            };
            last = self.next_object(at, operation)?;
            let object = last.and_then(|id| self.object(id, operation).ok());
            waiting.extend(object.filter(|object| !is_counted(&object.stored_dnode())));
        }
        if !waiting.is_empty() {
            let tx = self.env().txgs.assign(&TxEstimate::writing(0), operation)?;
            for object in waiting {
                match object.touch(&tx) {
                    // It was freed meanwhile.
                    Ok(()) | Err(ObjectError::NoSuchObject { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        self.drop_idle();
        Ok(last)
    }

    /// All objects are counted, and from this group on the head says so. False where they are not:
    /// the set was closed meanwhile, and counting is to begin again.
    pub fn end_counting_objects(&self, tx: &SyncTx) -> bool {
        let is_so = self.policy().counts_objects;
        if is_so {
            let complete =
                ObjsetFlags::OBJECT_ACCOUNTING_COMPLETE.with(ObjsetFlags::USER_ACCOUNTING_COMPLETE);
            self.change_head(tx, |head| head.flags = head.flags.with(complete));
        }
        is_so
    }

    /// The sums over an account, of bytes and of objects: of those whose numbers are wanted.
    fn sums(
        &self,
        account: ObjectId,
        tx: &SyncTx,
        operation: &Operation,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<(u64, u64), ObjectError> {
        let zap: ObjectZap<'_> = self.account(account, tx, operation)?;
        let entries = zap.entries().map_err(|why| zap.object().zap_error(why))?;
        let (mut bytes, mut objects) = (0_u64, 0_u64);
        for entry in entries {
            let (OwnedName::Text(name), Some(count)) = (entry.name, entry.value.as_word()) else {
                continue;
            };
            let name = String::from_utf8_lossy(&name).into_owned();
            let (sum, number) = match name.strip_prefix(OBJECT_COUNT_PREFIX) {
                Some(number) => (&mut objects, number),
                None => (&mut bytes, name.as_str()),
            };
            if is_wanted(number) {
                *sum = sum.wrapping_add(count);
            }
        }
        Ok((bytes, objects))
    }
}

/// Why objects could not be counted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CountError {
    /// The pool does not store anything now.
    #[error(transparent)]
    Stopped(#[from] crate::AssignError),
    /// The dnodes cannot be read.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

fn is_counted(dnode: &Dnode) -> bool {
    let counted = DnodeFlags::USED_ACCOUNTED.with(DnodeFlags::OBJECT_ACCOUNTED);
    dnode.flags.contains(counted)
}

/// The same accounts, with one for projects.
fn with_projects(accounting: Accounting) -> Accounting {
    let none = || Box::new(Dnode::free());
    let (user, group) = match accounting {
        projects @ Accounting::Projects { .. } => return projects,
        Accounting::Users { user, group } => (user, group),
        Accounting::None => (none(), none()),
    };
    Accounting::Projects {
        user,
        group,
        project: none(),
    }
}
