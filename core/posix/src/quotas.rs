//! Quotas of users, groups and projects, and the space and objects that they use.
//!
//! # Mechanism
//! The sync counts the use of each in accounting objects of the set (`object`'s door `Ownership`).
//! Quotas are in six ZAPs that the master node names, made when the first quota is set: space and
//! numbers of objects, for users, groups and projects. A user, group or project without an entry
//! has the default quota of its kind, a word in the master node itself. A change that takes more is
//! refused once the counted use has reached a quota. Since counts lag behind by a txg or two,
//! writes meanwhile can exceed a quota, as in OpenZFS.
//!
//! # Invariants
//! - No quota refuses a replay.
//! - Project 0 is the project of files without one: it has no quota.

use std::sync::Arc;

use tarn_host::lock::RwLock;
use tarn_object::zap::ZapValue;
use tarn_object::{
    GROUP_USED, OBJECT_COUNT_PREFIX, ObjectError, ObjectSet, PROJECT_USED, USER_USED,
};
use tarn_ondisk::declare::narrow;
use tarn_ondisk::fuid::{Fuid, FuidTable};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::objset::ObjsetFlags;
use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::{MASTER_NODE, master};
use tarn_probe::Operation;

use crate::directory::{create_zap, open_zap};
use crate::error::{PosixError, table_error};
use crate::facts::Facts;
use crate::filesystem::FileSystem;
use crate::ops::text_of;
use crate::ranks;
use tarn_dataset::space_door::Uncounted;

/// File systems have quotas of users from this version on.
#[doc(alias = "ZPL_VERSION_USERSPACE")]
const VERSION_QUOTAS: u64 = 4;
/// About how much setting a quota writes.
const QUOTA_BYTES: u64 = 16 << 10;
/// The number that no project has.
#[doc(alias = "ZFS_INVALID_PROJID")]
pub const NO_PROJECT: u64 = u32::MAX as u64;
/// The largest table of Windows domains that is read. A guess: many thousands of domains.
const DOMAINS_BYTES_MAX: u64 = 4 << 20;

/// The kind of a quota: space or objects, of users, groups or projects.
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

    /// The name of the default quota in the master node, which is also the property's name.
    pub fn default_name(self) -> &'static str {
        match self {
            QuotaKind::User => master::DEFAULT_USER_QUOTA,
            QuotaKind::Group => master::DEFAULT_GROUP_QUOTA,
            QuotaKind::Project => master::DEFAULT_PROJECT_QUOTA,
            QuotaKind::UserObjects => master::DEFAULT_USER_OBJECT_QUOTA,
            QuotaKind::GroupObjects => master::DEFAULT_GROUP_OBJECT_QUOTA,
            QuotaKind::ProjectObjects => master::DEFAULT_PROJECT_OBJECT_QUOTA,
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

    /// Whether objects are counted and not their space.
    pub fn counts_objects(self) -> bool {
        self.account().1
    }

    /// Whether it is of projects.
    pub fn is_of_projects(self) -> bool {
        self.account().0 == PROJECT_USED
    }

    /// The prefix of numbers in the accounting object.
    fn prefix(self) -> &'static str {
        if self.counts_objects() {
            OBJECT_COUNT_PREFIX
        } else {
            ""
        }
    }

    fn index(self) -> usize {
        let found = QuotaKind::ALL.iter().position(|kind| *kind == self);
        found.expect("all are listed")
    }
}

/// The quotas in the master node: tables and defaults.
#[derive(Debug, Clone, Copy, Default)]
struct Places {
    tables: [Option<ObjectId>; 6],
    /// Zero where there is none.
    defaults: [u64; 6],
}

/// The quotas of one file system or snapshot, and the use of its users, groups and projects.
pub struct Quotas {
    set: Arc<ObjectSet>,
    places: RwLock<Places>,
}

/// A user's, group's or project's number, and bytes or objects. A user's or group's may be a FUID.
pub type QuotaEntry = (u64, u64);

impl Quotas {
    /// The quotas of the file system in this object set.
    ///
    /// # Errors
    /// The master node cannot be read.
    pub fn load(set: &Arc<ObjectSet>, operation: &Operation) -> Result<Quotas, PosixError> {
        let object = set.object(MASTER_NODE, operation)?;
        let zap = open_zap(&object, operation);
        let word = |name: &str| zap.lookup_word(name).map_err(table_error(MASTER_NODE));
        let mut places = Places::default();
        for kind in QuotaKind::ALL {
            places.tables[kind.index()] = word(kind.name())?.map(ObjectId::from);
            places.defaults[kind.index()] = word(kind.default_name())?.unwrap_or(0);
        }
        Ok(Quotas {
            set: set.clone(),
            places: RwLock::new(ranks::QUOTAS, places),
        })
    }

    /// Whether all objects of the set were counted for this kind, so that the counts are complete.
    #[doc(alias(
        "dmu_objset_userspace_present",
        "dmu_objset_userobjspace_present",
        "dmu_objset_projectquota_present"
    ))]
    pub fn is_counted(&self, kind: QuotaKind) -> bool {
        let flags = self.set.flags();
        flags.contains(ObjsetFlags::USER_ACCOUNTING_COMPLETE)
            && (!kind.counts_objects() || flags.contains(ObjsetFlags::OBJECT_ACCOUNTING_COMPLETE))
            && (!kind.is_of_projects() || flags.contains(ObjsetFlags::PROJECT_QUOTA_COMPLETE))
    }

    /// Whether objects and projects are counted.
    fn counts_all(&self) -> bool {
        let all = ObjsetFlags::OBJECT_ACCOUNTING_COMPLETE.with(ObjsetFlags::PROJECT_QUOTA_COMPLETE);
        self.set.flags().contains(all)
    }

    fn table(&self, kind: QuotaKind) -> Option<ObjectId> {
        self.places.read().tables[kind.index()]
    }

    /// Whether there is a quota of this kind, a default included.
    fn is_limited(&self, kind: QuotaKind) -> bool {
        let places = self.places.read();
        places.tables[kind.index()].is_some() || places.defaults[kind.index()] != 0
    }

    /// The default quota; zero for none.
    pub fn default_of(&self, kind: QuotaKind) -> u64 {
        self.places.read().defaults[kind.index()]
    }

    /// The quota of this user, group or project; none where the default counts.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn of(
        &self,
        kind: QuotaKind,
        id: u64,
        operation: &Operation,
    ) -> Result<Option<u64>, PosixError> {
        let Some(table) = self.table(kind) else {
            return Ok(None);
        };
        let object = self.set.object(table, operation)?;
        let quota = open_zap(&object, operation).lookup_word(format!("{id:x}").as_str());
        quota.map_err(table_error(table))
    }

    /// The use of this user, group or project, as of the last stored txg.
    ///
    /// # Errors
    /// The account cannot be read.
    #[doc(alias = "zfs_userspace_one")]
    pub fn used_by(
        &self,
        kind: QuotaKind,
        id: u64,
        operation: &Operation,
    ) -> Result<u64, PosixError> {
        let (account, _) = kind.account();
        let object = match self.set.object(account, operation) {
            Ok(object) => object,
            Err(ObjectError::NoSuchObject { .. }) => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        let name = format!("{}{id:x}", kind.prefix());
        let used = open_zap(&object, operation).lookup_word(name.as_str());
        Ok(used.map_err(table_error(account))?.unwrap_or(0))
    }

    /// All quotas of a kind that were set.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn all(
        &self,
        kind: QuotaKind,
        operation: &Operation,
    ) -> Result<Vec<QuotaEntry>, PosixError> {
        match self.table(kind) {
            Some(table) => self.numbered_entries(table, "", operation),
            None => Ok(Vec::new()),
        }
    }

    /// The use of all users, groups or projects, as of the last stored txg.
    ///
    /// # Errors
    /// The account cannot be read.
    #[doc(alias = "zfs_userspace_many")]
    pub fn usage(
        &self,
        kind: QuotaKind,
        operation: &Operation,
    ) -> Result<Vec<QuotaEntry>, PosixError> {
        let (account, _) = kind.account();
        match self.set.object(account, operation) {
            Ok(_) => self.numbered_entries(account, kind.prefix(), operation),
            Err(ObjectError::NoSuchObject { .. }) => Ok(Vec::new()),
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

    /// The Windows domains that FUIDs of this file system name.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn domains(&self, operation: &Operation) -> Result<FuidTable, PosixError> {
        let master = self.set.object(MASTER_NODE, operation)?;
        let id = open_zap(&master, operation).lookup_word(master::FUID_TABLE);
        let Some(id) = id.map_err(table_error(MASTER_NODE))? else {
            return Ok(FuidTable::default());
        };
        let id = ObjectId::from(id);
        let damaged = |why| PosixError::Damaged { object: id, why };
        let object = self.set.object(id, operation)?;
        let size = object
            .bonus()
            .first_chunk()
            .map(|size| u64::from_le_bytes(*size));
        let size = size.filter(|size| *size <= DOMAINS_BYTES_MAX);
        let size = size.ok_or(damaged("the table of domains has no size that can be"))?;
        let mut bytes = vec![0; narrow(size)];
        object.read(0, &mut bytes, operation)?;
        FuidTable::decode(&bytes).map_err(|_| damaged("the table of domains is none"))
    }
}

impl FileSystem {
    /// Its quotas, and their use.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

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
    #[doc(alias = "zfs_acl_ids_overquota")]
    pub(crate) fn check_new_file_quota(
        &self,
        user: Fuid,
        group: Fuid,
        project: u64,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        if !self.quotas.counts_all() {
            (self.space.count_owners)(Uncounted::Something);
        }
        let project = Some(project).filter(|project| *project != 0);
        self.check_new_owner_quota(Some(user), Some(group), project, operation)
    }

    /// Refuses to give a file to a user or group that has used up a quota.
    #[doc(alias = "zfs_id_overquota")]
    pub(crate) fn check_new_owner_quota(
        &self,
        user: Option<Fuid>,
        group: Option<Fuid>,
        project: Option<u64>,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        for (space, objects, id) in [
            (
                QuotaKind::User,
                QuotaKind::UserObjects,
                user.map(Fuid::word),
            ),
            (
                QuotaKind::Group,
                QuotaKind::GroupObjects,
                group.map(Fuid::word),
            ),
            (QuotaKind::Project, QuotaKind::ProjectObjects, project),
        ] {
            if let Some(id) = id {
                self.check_quota(space, id, operation)?;
                self.check_quota(objects, id, operation)?;
            }
        }
        Ok(())
    }

    #[doc(alias("zfs_id_overblockquota", "zfs_id_overobjquota"))]
    fn check_quota(
        &self,
        kind: QuotaKind,
        id: u64,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let quotas = &self.quotas;
        if !quotas.is_limited(kind) || !quotas.is_counted(kind) {
            return Ok(());
        }
        let quota = match quotas.of(kind, id, operation)? {
            Some(quota) => quota,
            None => quotas.default_of(kind),
        };
        match quota {
            0 => Ok(()),
            quota if quotas.used_by(kind, id, operation)? < quota => Ok(()),
            _ => Err(PosixError::QuotaExceeded),
        }
    }

    /// The space within the quotas of a project, which a directory shows that passes its project
    /// on.
    #[doc(alias = "zfs_statfs_project")]
    pub(crate) fn room_of_project(
        &self,
        project: u64,
        operation: &Operation,
    ) -> Result<ProjectRoom, PosixError> {
        let quotas = &self.quotas;
        let room = |kind| {
            if !quotas.is_limited(kind) || !quotas.is_counted(kind) {
                return Ok(None);
            }
            let own = quotas.of(kind, project, operation)?;
            let quota = own.unwrap_or(quotas.default_of(kind));
            if quota == 0 {
                return Ok(None);
            }
            let used = quotas.used_by(kind, project, operation)?;
            Ok::<_, PosixError>(Some((quota, quota.saturating_sub(used))))
        };
        Ok(ProjectRoom {
            bytes: room(QuotaKind::Project)?,
            objects: room(QuotaKind::ProjectObjects)?,
        })
    }

    /// Sets a quota, and waits until it is stored; 0 removes it. A read-only mount permits it.
    ///
    /// # Errors
    /// `NotSupported` in file systems that are too old, `Invalid` for a project number that no file
    /// can have, `NoSpace`, `ReadOnly` in a snapshot or read-only pool.
    #[doc(alias = "zfs_set_userquota")]
    pub fn set_quota(
        &self,
        kind: QuotaKind,
        id: u64,
        quota: u64,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        if self.version() < VERSION_QUOTAS {
            return Err(PosixError::NotSupported("quotas of users in this version"));
        }
        if kind.is_of_projects() {
            self.check_project(id)?;
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
                    // Another thread has made the table meanwhile.
                    Err(PosixError::Exists) => {
                        self.set.free_object(&tx, made, operation)?;
                        drop(tx);
                        return self.set_quota(kind, id, quota, operation);
                    }
                    Err(error) => return Err(error),
                }
                self.quotas.places.write().tables[kind.index()] = Some(made);
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
            Ok(()) | Err(PosixError::NotFound) => {}
            Err(error) => return Err(error),
        }
        let txg = tx.txg();
        drop(tx);
        self.wait_stored(txg, operation)
    }

    /// Sets the default quota, and waits until it is stored; 0 removes it.
    ///
    /// # Errors
    /// `NoSpace`, `ReadOnly` in a snapshot or read-only pool.
    #[doc(alias = "zfs_set_default_quota")]
    pub fn set_default_quota(
        &self,
        kind: QuotaKind,
        quota: u64,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let tx = self.begin(QUOTA_BYTES, operation)?;
        let master = self.set.object(MASTER_NODE, operation)?;
        let zap = open_zap(&master, operation);
        let changed = match quota {
            0 => zap.remove(&tx, kind.default_name()),
            quota => zap.update(&tx, kind.default_name(), &ZapValue::word(quota)),
        };
        match changed.map_err(table_error(MASTER_NODE)) {
            Ok(()) | Err(PosixError::NotFound) => {}
            Err(error) => return Err(error),
        }
        self.quotas.places.write().defaults[kind.index()] = quota;
        let txg = tx.txg();
        drop(tx);
        self.wait_stored(txg, operation)
    }

    /// Refuses a project that no file can have here.
    pub(crate) fn check_project(&self, project: u64) -> Result<(), PosixError> {
        if !self.counts_projects() {
            (self.space.count_owners)(Uncounted::Projects);
        }
        if !self.counts_projects() {
            return Err(PosixError::NotSupported("projects (feature project_quota)"));
        }
        match project < NO_PROJECT {
            true => Ok(()),
            false => Err(PosixError::Invalid("no project has this number")),
        }
    }
}

/// The quotas of a project, each with what it leaves; none where it has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProjectRoom {
    /// Of space.
    pub bytes: Option<(u64, u64)>,
    /// Of objects.
    pub objects: Option<(u64, u64)>,
}
