//! Used space and quotas of users, groups and projects: properties of one owner (`userused@ann`),
//! and `zfs userspace`, `groupspace` and `projectspace`.
//!
//! # Mechanism
//! Counts and quotas are stored in the file system itself, not among the dataset's properties. For
//! a served file system they are read from memory, for others from disk. To change a quota the file
//! system is opened as for a mount, so that its intent log is replayed first.
//!
//! A caller without privilege sees the space of its own user and groups, and nothing of others.

use super::bad_name;
use super::cannot_open;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::command_permissions::{need, require, user_of};
use crate::messages::dataset::{ListOwners, OwnerDefaults, OwnerKind, OwnerUse, Owners};
use crate::messages::{Caller, Refusal, RefusalKind};
use std::collections::BTreeMap;
use std::sync::Arc;
use tarn_dataset::contents::{self, Contents};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::error::DatasetError;
use tarn_dataset::in_use::Use;
use tarn_dataset::names::DatasetName;
use tarn_dataset::properties::parse::{Checked, Setting};
use tarn_dataset::properties::size;
use tarn_engine::engine::OpenPool;
use tarn_engine::files::Tree;
use tarn_engine::turns::stuck;
use tarn_host::{AccountKind, Host};
use tarn_ondisk::fuid::{Fuid, FuidTable};
use tarn_posix::{NO_PROJECT, PosixError, QuotaKind, Quotas};
use tarn_probe::Operation;

/// What a property of an owner tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    Used,
    Quota,
}

/// The beginnings of the properties of owners.
#[doc(alias = "zfs_userquota_prop_prefixes")]
const PROPERTIES: [(&str, QuotaKind, Asks); 12] = [
    ("userused@", QuotaKind::User, Asks::Used),
    ("userquota@", QuotaKind::User, Asks::Quota),
    ("groupused@", QuotaKind::Group, Asks::Used),
    ("groupquota@", QuotaKind::Group, Asks::Quota),
    ("userobjused@", QuotaKind::UserObjects, Asks::Used),
    ("userobjquota@", QuotaKind::UserObjects, Asks::Quota),
    ("groupobjused@", QuotaKind::GroupObjects, Asks::Used),
    ("groupobjquota@", QuotaKind::GroupObjects, Asks::Quota),
    ("projectused@", QuotaKind::Project, Asks::Used),
    ("projectquota@", QuotaKind::Project, Asks::Quota),
    ("projectobjused@", QuotaKind::ProjectObjects, Asks::Used),
    ("projectobjquota@", QuotaKind::ProjectObjects, Asks::Quota),
];

/// The reason where the file system has no place for a quota.
const TOO_OLD: &str = "pool and or dataset must be upgraded to set this property or value";

/// Properties and values as given.
type Given = Vec<(String, String)>;

/// The kind of an owner's property, and the owner's name in it.
fn find(name: &str) -> Option<(QuotaKind, Asks, &str)> {
    PROPERTIES.iter().find_map(|(beginning, kind, asks)| {
        name.strip_prefix(beginning)
            .map(|whom| (*kind, *asks, whom))
    })
}

/// The permission for properties with this beginning.
#[doc(alias = "userquota_perms")]
fn permission_of(beginning: &str) -> &str {
    beginning.trim_end_matches('@')
}

/// Whether a property is one of a user, a group or a project.
pub(super) fn is_of_owner(name: &str) -> bool {
    find(name).is_some()
}

/// The kind of account that has names on this machine; none for projects.
fn account_kind(kind: QuotaKind) -> Option<AccountKind> {
    match kind {
        QuotaKind::User | QuotaKind::UserObjects => Some(AccountKind::User),
        QuotaKind::Group | QuotaKind::GroupObjects => Some(AccountKind::Group),
        QuotaKind::Project | QuotaKind::ProjectObjects => None,
    }
}

/// The number of a named owner: by its name on this machine, or the number itself. None for unknown
/// names, and for users and groups of Windows domains, which this machine does not know.
#[doc(alias = "userquota_propname_decode")]
fn number_of(host: &Host, kind: QuotaKind, whom: &str) -> Option<u64> {
    let known = account_kind(kind).and_then(|kind| host.find_account(kind, whom));
    let is_number = !whom.is_empty() && whom.bytes().all(|byte| byte.is_ascii_digit());
    let number = || whom.parse::<u32>().ok().filter(|_| is_number);
    known.or_else(number).map(u64::from)
}

/// A quota to set: of one owner, or the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuotaSetting {
    kind: QuotaKind,
    /// None for the default.
    id: Option<u64>,
    /// 0 for none.
    quota: u64,
}

impl QuotaSetting {
    /// Parses a quota of an owner. None for other properties.
    ///
    /// # Errors
    /// The reason, in OpenZFS's words.
    pub(crate) fn parse(
        host: &Host,
        name: &str,
        value: &str,
    ) -> Result<Option<QuotaSetting>, String> {
        let Some((kind, asks, whom)) = find(name) else {
            return Ok(None);
        };
        let id = number_of(host, kind, whom)
            .ok_or_else(|| format!("'{name}' has an invalid user/group name"))?;
        if asks == Asks::Used {
            return Err(format!("'{name}' is readonly"));
        }
        if kind.is_of_projects() && id == NO_PROJECT {
            return Err("Invalid argument".to_string());
        }
        let quota = match value {
            "none" => 0,
            text => size::size(text).map_err(|bad| bad.reason)?,
        };
        Ok(Some(QuotaSetting {
            kind,
            id: Some(id),
            quota,
        }))
    }

    /// A default quota among checked properties.
    pub(super) fn of_default(checked: &Checked) -> Option<QuotaSetting> {
        let mut kinds = QuotaKind::ALL.into_iter();
        let kind = kinds.find(|kind| kind.default_name() == checked.name)?;
        match checked.setting {
            Setting::Number(quota) => Some(QuotaSetting {
                kind,
                id: None,
                quota,
            }),
            Setting::Text(_) => None,
        }
    }

    /// Takes the quotas of owners out of the properties of a new file system.
    ///
    /// # Errors
    /// The reason against the first bad one.
    pub(crate) fn take_from(
        host: &Host,
        given: &[(String, String)],
    ) -> Result<(Vec<QuotaSetting>, Given), String> {
        let (mut quotas, mut others) = (Vec::new(), Vec::new());
        for (name, value) in given {
            match QuotaSetting::parse(host, name, value)? {
                Some(quota) => quotas.push(quota),
                None => others.push((name.clone(), value.clone())),
            }
        }
        Ok((quotas, others))
    }

    /// Takes the default quotas out of checked properties.
    pub(crate) fn take_defaults(settings: &mut Vec<Checked>) -> Vec<QuotaSetting> {
        let quotas = settings.iter().filter_map(QuotaSetting::of_default);
        let quotas = quotas.collect();
        settings.retain(|checked| QuotaSetting::of_default(checked).is_none());
        quotas
    }
}

impl Administrator {
    /// Sets quotas of a file system and waits until they are stored. The caller has the pool's
    /// turn.
    pub(crate) fn set_quotas(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        action: &str,
        settings: &[QuotaSetting],
        operation: &Operation,
    ) -> Result<(), Refusal> {
        if settings.is_empty() {
            return Ok(());
        }
        let outcome = self.engine.with_files(open, name, operation, |files| {
            for setting in settings {
                match setting.id {
                    Some(id) => files.set_quota(setting.kind, id, setting.quota, operation)?,
                    None => files.set_default_quota(setting.kind, setting.quota, operation)?,
                }
            }
            Ok::<(), PosixError>(())
        })?;
        outcome.map_err(|error| {
            let (kind, reason) = match &error {
                PosixError::NotSupported(_) => (RefusalKind::Unsupported, TOO_OLD.to_string()),
                PosixError::NoSpace | PosixError::QuotaExceeded => {
                    (RefusalKind::NoSpace, "out of space".to_string())
                }
                PosixError::Invalid(_) => (RefusalKind::Invalid, error.to_string()),
                _ => (RefusalKind::Device, error.to_string()),
            };
            Refusal::new(kind, action, reason)
        })
    }

    pub(crate) fn list_owners(
        &self,
        caller: &Caller,
        request: &ListOwners,
    ) -> Result<Owners, Refusal> {
        let name = self.dataset_named(&request.name)?;
        let parsed = DatasetName::parse(&name).map_err(|bad| bad_name(&name, bad))?;
        let open = self.engine.require_pool_of(&name)?;
        let wanted = request.clone();
        let looked_at = parsed.clone();
        let found = self.engine.look(&open, move |open, operation| {
            let view = open.pool.namespace().view(operation);
            let dataset = view.dataset(&looked_at)?;
            Accounts::of(open, &dataset, &wanted, operation)
        });
        let found = found.ok_or_else(|| stuck(&name))?;
        let cannot = || format!("cannot get used/quota for {name}");
        let mut owners = found.map_err(|error| match error {
            OwnersError::Dataset(error) => cannot_open(&name, &error),
            OwnersError::NotFiles => {
                let reason = "operation is only applicable to filesystems and their snapshots";
                Refusal::new(RefusalKind::Invalid, "", reason)
            }
            OwnersError::NotCounted => {
                let reason = "unsupported version or feature";
                Refusal::new(RefusalKind::Unsupported, cannot(), reason)
            }
            OwnersError::Files(error) => {
                Refusal::new(RefusalKind::Corrupt, cannot(), error.to_string())
            }
        })?;
        let asked = [
            (request.users, AccountKind::User),
            (request.groups, AccountKind::Group),
        ];
        let is_asked = |kind: QuotaKind| match account_kind(kind) {
            None => request.projects,
            Some(of) => asked.contains(&(true, of)),
        };
        let rows = PROPERTIES.iter().filter(|(_, kind, _)| is_asked(*kind));
        let permissions: Vec<&str> = rows
            .map(|(beginning, ..)| permission_of(beginning))
            .collect();
        let call = Call {
            caller: caller.clone(),
            ..Call::default()
        };
        let operation = self.engine.operation(caller.uid);
        let needs = [need(&name, &permissions)];
        self.permit(&call, &open, cannot(), &needs, &operation)?;
        if request.wants_names {
            for row in owners.rows.iter_mut().filter(|row| row.domain.is_none()) {
                let kind = match row.kind {
                    OwnerKind::User => AccountKind::User,
                    OwnerKind::Group => AccountKind::Group,
                    OwnerKind::Project => continue,
                };
                row.name = self.engine.host.account_name(kind, row.id);
            }
        }
        Ok(owners)
    }
}

/// Why a dataset has no list of owners.
#[derive(Debug)]
enum OwnersError {
    Dataset(DatasetError),
    /// It is no file system, nor a snapshot of one.
    NotFiles,
    /// Its version is too old to count users.
    NotCounted,
    Files(PosixError),
}

impl From<DatasetError> for OwnersError {
    fn from(error: DatasetError) -> OwnersError {
        OwnersError::Dataset(error)
    }
}

impl From<PosixError> for OwnersError {
    fn from(error: PosixError) -> OwnersError {
        OwnersError::Files(error)
    }
}

/// Calls `act` with the quotas of a dataset: from memory where it is served, from disk elsewhere.
/// None where it is no file system.
fn with_quotas<T>(
    open: &OpenPool,
    dataset: &Dataset<'_>,
    operation: &Operation,
    then: impl FnOnce(&Quotas) -> T,
) -> Result<Option<T>, OwnersError> {
    if !matches!(contents::outline(dataset)?, Contents::Filesystem(_)) {
        return Ok(None);
    }
    if !dataset.is_snapshot()
        && let Some(tree) = open.served_files.peek(dataset.id())
    {
        return Ok(Some(then(tree.files().quotas())));
    }
    let _uses = kept(open, dataset, operation)?;
    let set = contents::objset(dataset)?;
    Ok(Some(then(&Quotas::load(&set, operation)?)))
}

/// Keeps a snapshot while it is read. A head is not kept, as that would prevent mounting and
/// changing it.
fn kept<'a>(
    open: &'a OpenPool,
    dataset: &Dataset<'_>,
    operation: &Operation,
) -> Result<Vec<Use<'a>>, DatasetError> {
    if !dataset.is_snapshot() {
        return Ok(Vec::new());
    }
    let (namespace, name) = (open.pool.namespace(), dataset.name());
    let not_found = || DatasetError::NotFound { name: name.clone() };
    let find = || {
        let parsed = DatasetName::parse(&name).map_err(|_| not_found())?;
        Ok(namespace.view(operation).dataset(&parsed)?.id())
    };
    match namespace.use_found(find, |id| vec![*id])? {
        Some((id, uses)) if id == dataset.id() => Ok(uses),
        // It is being destroyed, or another snapshot has its name.
        _ => Err(not_found()),
    }
}

/// Which owners a caller may see.
#[derive(Debug, Clone)]
pub(super) struct Viewer {
    host: Host,
    caller: Caller,
    is_trusted: bool,
}

impl Viewer {
    /// The view of a caller.
    pub(super) fn new(administrator: &Administrator, caller: &Caller) -> Viewer {
        Viewer {
            host: administrator.engine.host.clone(),
            caller: caller.clone(),
            is_trusted: administrator.trusts(caller),
        }
    }

    /// Whether the caller may know the space of an owner.
    #[doc(alias = "zfs_secpolicy_userspace_one")]
    fn may_know(&self, dataset: &Dataset<'_>, name: &str, kind: QuotaKind, id: u64) -> bool {
        let (uid, gid) = (self.caller.uid, self.caller.gid);
        let group = u32::try_from(id).ok();
        let is_own = match account_kind(kind) {
            Some(AccountKind::User) => id == u64::from(uid),
            Some(AccountKind::Group) => group.is_some_and(|group| {
                self.caller.groups.contains(&group) || self.host.is_member(uid, gid, group)
            }),
            None => false,
        };
        let is_allowed = || {
            let beginning = name.split('@').next().unwrap_or_default();
            require(dataset, &[permission_of(beginning)], &user_of(&self.caller)).is_ok()
        };
        self.is_trusted || is_own || is_allowed()
    }

    /// The value of an owner's property; none where there is no value, or where the caller may not
    /// see it.
    #[doc(alias = "zfs_prop_get_userquota_common")]
    pub(super) fn answer(&self, open: &OpenPool, dataset: &Dataset<'_>, name: &str) -> Option<u64> {
        let (kind, asks, whom) = find(name)?;
        let id = number_of(&self.host, kind, whom)?;
        if !self.may_know(dataset, name, kind, id) || (kind.is_of_projects() && id == NO_PROJECT) {
            return None;
        }
        let operation = dataset.directory().view().operation();
        let answer = with_quotas(open, dataset, operation, |quotas| {
            if !quotas.is_counted(kind) {
                return Ok(None);
            }
            Ok::<_, PosixError>(Some(match asks {
                Asks::Used => quotas.used_by(kind, id, operation)?,
                Asks::Quota => quotas.of(kind, id, operation)?.unwrap_or(0),
            }))
        });
        // A value that cannot be read is left out, like other properties of contents.
        answer.ok().flatten()?.ok().flatten()
    }
}

/// Rows of owners while they are gathered.
struct Accounts {
    domains: FuidTable,
    rows: BTreeMap<(OwnerKind, u64), OwnerUse>,
}

impl Accounts {
    /// All owners with used space or a quota.
    fn of(
        open: &OpenPool,
        dataset: &Dataset<'_>,
        wanted: &ListOwners,
        operation: &Operation,
    ) -> Result<Owners, OwnersError> {
        let listed = with_quotas(open, dataset, operation, |quotas| {
            Accounts::list(quotas, wanted, operation)
        });
        listed?.ok_or(OwnersError::NotFiles)?
    }

    fn list(
        quotas: &Quotas,
        wanted: &ListOwners,
        operation: &Operation,
    ) -> Result<Owners, OwnersError> {
        let mut accounts = Accounts {
            domains: quotas.domains(operation)?,
            rows: BTreeMap::new(),
        };
        let mut defaults = Vec::new();
        for (is_wanted, owner, space, objects) in [
            (
                wanted.users,
                OwnerKind::User,
                QuotaKind::User,
                QuotaKind::UserObjects,
            ),
            (
                wanted.groups,
                OwnerKind::Group,
                QuotaKind::Group,
                QuotaKind::GroupObjects,
            ),
            (
                wanted.projects,
                OwnerKind::Project,
                QuotaKind::Project,
                QuotaKind::ProjectObjects,
            ),
        ] {
            if !is_wanted {
                continue;
            }
            match (quotas.is_counted(space), owner) {
                (true, _) => accounts.add(quotas, owner, space, operation)?,
                // A file system without projects has no rows of them.
                (false, OwnerKind::Project) => {}
                (false, _) => return Err(OwnersError::NotCounted),
            }
            if quotas.is_counted(objects) {
                accounts.add(quotas, owner, objects, operation)?;
            }
            defaults.push(OwnerDefaults {
                kind: owner,
                quota: quotas.default_of(space),
                object_quota: quotas.default_of(objects),
            });
        }
        Ok(Owners {
            rows: accounts.rows.into_values().collect(),
            defaults,
        })
    }

    fn add(
        &mut self,
        quotas: &Quotas,
        owner: OwnerKind,
        kind: QuotaKind,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let is_of_objects = kind.counts_objects();
        for (id, used) in quotas.usage(kind, operation)? {
            let row = self.row(owner, id);
            match is_of_objects {
                true => row.objects_used = Some(used),
                false => row.used = Some(used),
            }
        }
        for (id, quota) in quotas.all(kind, operation)? {
            let row = self.row(owner, id);
            match is_of_objects {
                true => row.object_quota = Some(quota),
                false => row.quota = Some(quota),
            }
        }
        Ok(())
    }

    fn row(&mut self, kind: OwnerKind, id: u64) -> &mut OwnerUse {
        let fuid = Fuid::from_word(id);
        let domain = match kind {
            OwnerKind::Project => None,
            _ => self.domains.domain(fuid.domain()),
        };
        let domain = domain
            .filter(|domain| !domain.is_empty())
            .map(str::to_string);
        self.rows.entry((kind, id)).or_insert_with(|| OwnerUse {
            kind,
            domain,
            id: fuid.number(),
            name: None,
            used: None,
            quota: None,
            objects_used: None,
            object_quota: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_host::RealOptions;

    fn parsed(name: &str, value: &str) -> Result<Option<QuotaSetting>, String> {
        QuotaSetting::parse(&Host::real(RealOptions::default()), name, value)
    }

    #[test]
    fn quotas_are_of_names_and_numbers() {
        let setting = |kind, id, quota| {
            Ok(Some(QuotaSetting {
                kind,
                id: Some(id),
                quota,
            }))
        };
        assert_eq!(
            parsed("userquota@root", "10G"),
            setting(QuotaKind::User, 0, 10 << 30)
        );
        assert_eq!(
            parsed("groupobjquota@4000000000", "1000"),
            setting(QuotaKind::GroupObjects, 4_000_000_000, 1000)
        );
        assert_eq!(
            parsed("projectquota@7", "none"),
            setting(QuotaKind::Project, 7, 0)
        );
        assert_eq!(parsed("quota", "1G"), Ok(None));
    }

    #[test]
    fn unknown_owners_and_bad_quotas_are_refused() {
        for (name, value, reason) in [
            (
                "userquota@no such user",
                "1G",
                "'userquota@no such user' has an invalid user/group name",
            ),
            (
                "userquota@ann@example",
                "1G",
                "'userquota@ann@example' has an invalid user/group name",
            ),
            (
                "groupquota@S-1-5-21-1-500",
                "1G",
                "'groupquota@S-1-5-21-1-500' has an invalid user/group name",
            ),
            (
                "userquota@",
                "1G",
                "'userquota@' has an invalid user/group name",
            ),
            (
                "projectquota@root",
                "1G",
                "'projectquota@root' has an invalid user/group name",
            ),
            ("userused@0", "1G", "'userused@0' is readonly"),
            ("userquota@0", "much", "bad numeric value 'much'"),
            ("projectquota@4294967295", "1G", "Invalid argument"),
        ] {
            assert_eq!(parsed(name, value), Err(reason.to_string()), "{name}");
        }
    }
}
