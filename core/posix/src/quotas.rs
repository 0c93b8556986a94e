//! Quotas of users, groups and projects, and what they use.
//!
//! # Mechanism
//! What each uses is counted in objects of the set when a group is stored (`object`'s door `Ownership`). The quotas are six ZAPs
//! that the master node names, made when the first quota is set: space and numbers of objects, for users, groups and projects. A change that
//! takes more is refused once what is counted has reached a quota. Since counts lag behind by a group or two, a quota can be
//! passed by what is written meanwhile, here as in OpenZFS.

use std::sync::Arc;

use tarn_host::lock::RwLock;
use tarn_object::zap::ZapValue;
use tarn_object::{GROUP_USED, OBJECT_COUNT_PREFIX, ObjectSet, PROJECT_USED, USER_USED};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::{MASTER_NODE, master};
use tarn_probe::Operation;

use crate::directory::{create_zap, open_zap};
use crate::error::{PosixError, table_error};
use crate::facts::Facts;
use crate::filesystem::FileSystem;
use crate::ops::text_of;
use crate::ranks;

/// File systems have quotas of users from this version on.
#[doc(alias = "ZPL_VERSION_USERSPACE")]
const VERSION_QUOTAS: u64 = 4;
/// About what setting a quota writes.
const QUOTA_BYTES: u64 = 16 << 10;

/// What is limited, and for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaKind {
    /// A user's space.
    User,
    /// A group's space.
    Group,
    /// A project's space.
    Project,
    /// How many objects a user has.
    UserObjects,
    /// How many objects a group has.
    GroupObjects,
    /// How many objects a project has.
    ProjectObjects,
}

impl QuotaKind {
    /// All of them.
    pub const ALL: [QuotaKind; 6] = [
        QuotaKind::User,
        QuotaKind::Group,
        QuotaKind::Project,
        QuotaKind::UserObjects,
        QuotaKind::GroupObjects,
        QuotaKind::ProjectObjects,
    ];

    /// The name of the quotas in the master node.
    fn name(self) -> &'static str {
        match self {
            QuotaKind::User => master::USER_QUOTA,
            QuotaKind::Group => master::GROUP_QUOTA,
            QuotaKind::Project => master::PROJECT_QUOTA,
            QuotaKind::UserObjects => master::USER_OBJECT_QUOTA,
            QuotaKind::GroupObjects => master::GROUP_OBJECT_QUOTA,
            QuotaKind::ProjectObjects => master::PROJECT_OBJECT_QUOTA,
        }
    }

    /// The object that counts the use, and whether it counts objects.
    fn account(self) -> (ObjectId, bool) {
        match self {
            QuotaKind::User => (USER_USED, false),
            QuotaKind::Group => (GROUP_USED, false),
            QuotaKind::Project => (PROJECT_USED, false),
            QuotaKind::UserObjects => (USER_USED, true),
            QuotaKind::GroupObjects => (GROUP_USED, true),
            QuotaKind::ProjectObjects => (PROJECT_USED, true),
        }
    }

    fn index(self) -> usize {
        let found = QuotaKind::ALL.iter().position(|kind| *kind == self);
        found.expect("all are listed")
    }
}

/// Where the quotas are.
pub(crate) struct Quotas {
    tables: RwLock<[Option<ObjectId>; 6]>,
}

impl Quotas {
    /// From the master node.
    pub fn load(set: &Arc<ObjectSet>, operation: &Operation) -> Result<Quotas, PosixError> {
        let object = set.object(MASTER_NODE, operation)?;
        let zap = open_zap(&object, operation);
        let mut tables = [None; 6];
        for kind in QuotaKind::ALL {
            let id = zap
                .lookup_word(kind.name())
                .map_err(table_error(MASTER_NODE))?;
            tables[kind.index()] = id.map(ObjectId::from);
        }
        Ok(Quotas {
            tables: RwLock::new(ranks::QUOTAS, tables),
        })
    }

    fn table(&self, kind: QuotaKind) -> Option<ObjectId> {
        self.tables.read()[kind.index()]
    }
}

/// A user's, group's or project's number, and bytes or objects.
pub type QuotaEntry = (u64, u64);

impl FileSystem {
    /// Refuses a file more space where its owner, group or project has used up a quota.
    pub(crate) fn check_space_quota(
        &self,
        facts: &Facts,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        self.check_quota(QuotaKind::User, facts.owner.word(), operation)?;
        self.check_quota(QuotaKind::Group, facts.group.word(), operation)?;
        match facts.project {
            0 => Ok(()),
            project => self.check_quota(QuotaKind::Project, project, operation),
        }
    }

    /// Refuses a new file where owner, group or project has used up a quota.
    pub(crate) fn check_new_file_quota(
        &self,
        user: u64,
        group: u64,
        project: u64,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        self.check_quota(QuotaKind::User, user, operation)?;
        self.check_quota(QuotaKind::UserObjects, user, operation)?;
        self.check_quota(QuotaKind::Group, group, operation)?;
        self.check_quota(QuotaKind::GroupObjects, group, operation)?;
        if project != 0 {
            self.check_quota(QuotaKind::Project, project, operation)?;
            self.check_quota(QuotaKind::ProjectObjects, project, operation)?;
        }
        Ok(())
    }

    fn check_quota(
        &self,
        kind: QuotaKind,
        id: u64,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let Some(table) = self.quotas.table(kind) else {
            return Ok(());
        };
        let object = self.set.object(table, operation)?;
        let quota = open_zap(&object, operation).lookup_word(format!("{id:x}").as_str());
        let Some(quota) = quota.map_err(table_error(table))? else {
            return Ok(());
        };
        match self.used_by(kind, id, operation)? {
            used if used >= quota => Err(PosixError::QuotaExceeded),
            _ => Ok(()),
        }
    }

    /// What somebody uses, as of the last stored group.
    pub fn used_by(
        &self,
        kind: QuotaKind,
        id: u64,
        operation: &Operation,
    ) -> Result<u64, PosixError> {
        let (account, counts_objects) = kind.account();
        let Ok(object) = self.set.object(account, operation) else {
            return Ok(0);
        };
        let prefix = if counts_objects {
            OBJECT_COUNT_PREFIX
        } else {
            ""
        };
        let used = open_zap(&object, operation).lookup_word(format!("{prefix}{id:x}").as_str());
        Ok(used.map_err(table_error(account))?.unwrap_or(0))
    }

    /// Sets a quota; 0 takes it away.
    #[doc(alias = "zfs_set_userquota")]
    pub fn set_quota(
        &self,
        kind: QuotaKind,
        id: u64,
        quota: u64,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        self.check_writable()?;
        if self.version() < VERSION_QUOTAS {
            return Err(PosixError::NotSupported("quotas of users in this version"));
        }
        let tx = self.begin(QUOTA_BYTES, operation)?;
        let table = match self.quotas.table(kind) {
            Some(table) => table,
            None if quota == 0 => return Ok(()),
            None => {
                let master = self.set.object(MASTER_NODE, operation)?;
                let made = create_zap(&self.set, &tx, ObjectType::UserQuota, operation)?.id();
                let word = ZapValue::word(made.get());
                let added = open_zap(&master, operation).insert(&tx, kind.name(), &word);
                match added.map_err(table_error(MASTER_NODE)) {
                    Ok(()) => {}
                    // Somebody else was faster.
                    Err(PosixError::Exists) => {
                        self.set.free_object(&tx, made, operation)?;
                        drop(tx);
                        return self.set_quota(kind, id, quota, operation);
                    }
                    Err(error) => return Err(error),
                }
                self.quotas.tables.write()[kind.index()] = Some(made);
                made
            }
        };
        let object = self.set.object(table, operation)?;
        let zap = open_zap(&object, operation);
        let name = format!("{id:x}");
        let changed = match quota {
            0 => zap.remove(&tx, name.as_str()),
            quota => zap.update(&tx, name.as_str(), &ZapValue::word(quota)),
        };
        match changed.map_err(table_error(table)) {
            Err(PosixError::NotFound) => Ok(()),
            other => other,
        }
    }

    /// All quotas of a kind.
    pub fn quotas(
        &self,
        kind: QuotaKind,
        operation: &Operation,
    ) -> Result<Vec<QuotaEntry>, PosixError> {
        let Some(table) = self.quotas.table(kind) else {
            return Ok(Vec::new());
        };
        self.numbered_entries(table, "", operation)
    }

    /// What everybody uses, as of the last stored group.
    #[doc(alias = "zfs_userspace_many")]
    pub fn usage(
        &self,
        kind: QuotaKind,
        operation: &Operation,
    ) -> Result<Vec<QuotaEntry>, PosixError> {
        let (account, counts_objects) = kind.account();
        let prefix = if counts_objects {
            OBJECT_COUNT_PREFIX
        } else {
            ""
        };
        match self.set.object(account, operation) {
            Ok(_) => self.numbered_entries(account, prefix, operation),
            Err(tarn_object::ObjectError::NoSuchObject { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// The entries of a ZAP whose names are numbers after a prefix.
    fn numbered_entries(
        &self,
        table: ObjectId,
        prefix: &str,
        operation: &Operation,
    ) -> Result<Vec<QuotaEntry>, PosixError> {
        let object = self.set.object(table, operation)?;
        let entries = open_zap(&object, operation).entries();
        let entries = entries.map_err(table_error(table))?;
        let numbered = entries.into_iter().filter_map(|entry| {
            let name = String::from_utf8(text_of(entry.name)?).ok()?;
            let id = u64::from_str_radix(name.strip_prefix(prefix)?, 16).ok()?;
            Some((id, entry.value.as_word()?))
        });
        let mut numbered: Vec<QuotaEntry> = numbered.collect();
        numbered.sort_unstable();
        Ok(numbered)
    }
}
