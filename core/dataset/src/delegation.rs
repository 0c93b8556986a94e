//! Delegation: permissions of users without privilege for datasets.
//!
//! # Mechanism
//! A permission is granted in a directory of the tree, for the dataset itself or for datasets below
//! it, to a user, a group or everyone; by itself, or as a member of a set. A user's permission for
//! a dataset is looked up from its directory to the root: grants in the dataset's own directory
//! count where they are *local*, grants above where they are for *descendents*. Snapshots are
//! descendents of their dataset. A set may be defined in any directory on that path; the nearest
//! definition counts.
//!
//! The creator of a dataset gets the permissions of create time of the directories above, as grants
//! of its own.
//!
//! `engine` checks permissions before it carries out a command; the tasks that change the tree
//! check limits only ([`on_behalf`](crate::ops::on_behalf)).

use crate::dataset::Dataset;
use crate::directory::Directory;
use crate::error::DatasetError;
use crate::namespace::View;
use crate::stored::Reading;
use crate::task::TaskContext;
use crate::writing::Writing;
use std::collections::BTreeMap;
use tarn_object::zap::ZapValue;
use tarn_ondisk::dataset_dir::DatasetDirectory;
use tarn_ondisk::delegation::{Holder, Key, Listed, Scope};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::{POOL_DIRECTORY, PROPERTIES};
use tarn_ondisk::units::ObjectId;

/// The property of a pool without which nothing counts.
const POOL_PROPERTY: &str = "delegation";

/// A user with its groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// Its number.
    pub uid: u32,
    /// The number of its primary group.
    pub gid: u32,
    /// The numbers of its other groups.
    pub groups: Vec<u32>,
}

impl User {
    /// The receivers that he is: user, groups, everyone.
    fn holders(&self) -> Vec<Holder> {
        let groups = std::iter::once(&self.gid).chain(&self.groups);
        std::iter::once(Holder::User(self.uid))
            .chain([Holder::Everyone])
            .chain(groups.map(|gid| Holder::Group(*gid)))
            .collect()
    }
}

/// What is delegated to a receiver in one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegated {
    /// The receiver, and where it holds.
    pub key: Key,
    /// Names of permissions, or of sets.
    pub names: Vec<String>,
}

/// Whether the pool's property `delegation` is on.
///
/// # Errors
/// What could not be read.
#[doc(alias = "dsl_delegation_on")]
pub fn is_on(view: View<'_>) -> Result<bool, DatasetError> {
    let mos = view.mos();
    let Some(properties) = mos.number(POOL_DIRECTORY, PROPERTIES)? else {
        return Ok(true);
    };
    let stored = mos.number(ObjectId::new(properties), POOL_PROPERTY)?;
    Ok(stored != Some(0))
}

/// Whether a permission for a dataset is delegated to a user, and the pool's property `delegation`
/// is on.
///
/// # Errors
/// What could not be read.
#[doc(alias = "dsl_deleg_access_impl")]
pub fn is_granted(
    dataset: &Dataset<'_>,
    permission: &str,
    user: &User,
) -> Result<bool, DatasetError> {
    let first = match dataset.is_snapshot() {
        true => Scope::Descendent,
        false => Scope::Local,
    };
    search(dataset.directory(), first, permission, user, As::Anybody)
}

/// Whether a user would have a permission for a new dataset below this one, with the permissions of
/// create time.
///
/// # Errors
/// What could not be read.
pub fn would_be_granted(
    parent: &Directory<'_>,
    permission: &str,
    user: &User,
) -> Result<bool, DatasetError> {
    search(parent, Scope::Descendent, permission, user, As::Creator)
}

/// The user, with his groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum As {
    Anybody,
    Creator,
}

/// Looks for a permission from a directory up to the root. `first` is for that directory.
fn search(
    directory: &Directory<'_>,
    first: Scope,
    permission: &str,
    user: &User,
    asks_as: As,
) -> Result<bool, DatasetError> {
    let holders = user.holders();
    // Sets that he has, and whether it is known what they are.
    let mut sets: BTreeMap<String, bool> = BTreeMap::new();
    let mut scope = first;
    for directory in directory.lineage()? {
        let here = std::mem::replace(&mut scope, Scope::Descendent);
        let Some(table) = Table::of(&directory)? else {
            continue;
        };
        let keys = |listed| {
            let aside = (asks_as == As::Creator).then_some((&Holder::Creator, Scope::Unsaid));
            let own = holders.iter().map(move |holder| (holder, here));
            own.chain(aside)
                .map(move |(holder, scope)| key(holder, scope, listed))
                .collect::<Vec<Key>>()
        };
        for key in keys(Listed::Sets) {
            for name in table.names(&key)?.unwrap_or_default() {
                sets.entry(name).or_insert(false);
            }
        }
        if table.is_in_sets(&mut sets, permission)? {
            return Ok(true);
        }
        for key in keys(Listed::Permissions) {
            if table.has(&key, permission)? == Some(true) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The delegated permissions of the directories from this one up to the root, each with its name.
///
/// # Errors
/// What could not be read.
#[doc(alias = "dsl_deleg_get")]
pub fn list(directory: &Directory<'_>) -> Result<Vec<(String, Vec<Delegated>)>, DatasetError> {
    let mut all = Vec::new();
    for directory in directory.lineage()? {
        let Some(table) = Table::of(&directory)? else {
            continue;
        };
        let mut delegated = Vec::new();
        for (name, _) in table.mos.entries(table.id)? {
            if let Some(key) = Key::from_name(&name) {
                let names = table.names(&key)?.unwrap_or_default();
                delegated.push(Delegated { key, names });
            }
        }
        if !delegated.is_empty() {
            all.push((directory.name().to_string(), delegated));
        }
    }
    Ok(all)
}

fn key(holder: &Holder, scope: Scope, listed: Listed) -> Key {
    Key {
        holder: holder.clone(),
        scope,
        listed,
    }
}

fn key_of_set(name: &str, listed: Listed) -> Key {
    key(&Holder::Set(name.to_string()), Scope::Unsaid, listed)
}

/// What one directory delegates.
struct Table<'a> {
    mos: Reading<'a>,
    id: ObjectId,
}

impl<'a> Table<'a> {
    fn of(directory: &Directory<'a>) -> Result<Option<Table<'a>>, DatasetError> {
        let id = directory.stored()?.permissions;
        let mos = directory.view().mos();
        Ok((!id.is_zero()).then_some(Table { mos, id }))
    }

    fn inner(&self, key: &Key) -> Result<Option<ObjectId>, DatasetError> {
        let inner = self.mos.number(self.id, &key.to_name())?;
        Ok(inner.map(ObjectId::new))
    }

    /// What is listed under a key; none where there is no such key.
    fn names(&self, key: &Key) -> Result<Option<Vec<String>>, DatasetError> {
        let Some(inner) = self.inner(key)? else {
            return Ok(None);
        };
        let entries = self.mos.entries(inner)?.into_iter();
        Ok(Some(entries.map(|(name, _)| name).collect()))
    }

    /// Whether something is listed under a key; none where there is no such key.
    #[doc(alias = "dsl_check_access")]
    fn has(&self, key: &Key, name: &str) -> Result<Option<bool>, DatasetError> {
        match self.inner(key)? {
            None => Ok(None),
            Some(inner) => Ok(Some(self.mos.lookup(inner, name)?.is_some())),
        }
    }

    /// Whether one of the sets, as this directory defines them, has a permission. Sets within sets
    /// join the others.
    fn is_in_sets(
        &self,
        sets: &mut BTreeMap<String, bool>,
        permission: &str,
    ) -> Result<bool, DatasetError> {
        loop {
            let unknown = sets.iter().filter(|(_, is_known)| !**is_known);
            let unknown: Vec<String> = unknown.map(|(name, _)| name.clone()).collect();
            let mut has_grown = false;
            for name in unknown {
                let listed = self.has(&key_of_set(&name, Listed::Permissions), permission)?;
                if listed == Some(true) {
                    return Ok(true);
                }
                let within = self.names(&key_of_set(&name, Listed::Sets))?;
                if listed.is_some() || within.is_some() {
                    sets.insert(name, true);
                }
                for name in within.unwrap_or_default() {
                    has_grown |= !sets.contains_key(&name);
                    sets.entry(name).or_insert(false);
                }
            }
            if !has_grown {
                return Ok(false);
            }
        }
    }
}

/// Adds names under a key of a directory, which delegates nothing yet perhaps.
pub(crate) fn add(
    context: &TaskContext<'_>,
    directory: ObjectId,
    key: &Key,
    names: &[String],
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let table = table_to_write(writing, directory)?;
    let name = key.to_name();
    let inner = match writing.reading().number(table, &name)? {
        Some(inner) => ObjectId::new(inner),
        None => {
            let made = writing.create_zap(ObjectType::DslPermissions)?;
            writing.put(table, &name, &ZapValue::word(made.get()))?;
            made
        }
    };
    names
        .iter()
        .try_for_each(|name| writing.put(inner, name, &ZapValue::word(0)))
}

fn table_to_write(writing: Writing<'_>, directory: ObjectId) -> Result<ObjectId, DatasetError> {
    let stored: DatasetDirectory = writing.reading().bonus_of(directory)?;
    if !stored.permissions.is_zero() {
        return Ok(stored.permissions);
    }
    let made = writing.create_zap(ObjectType::DslPermissions)?;
    writing.change(directory, |stored: &mut DatasetDirectory| {
        stored.permissions = made;
    })?;
    Ok(made)
}

/// Removes names under a key, or the key with all it has. Nothing is no error.
pub(crate) fn remove(
    context: &TaskContext<'_>,
    table: ObjectId,
    key: &Key,
    names: Option<&[String]>,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let name = key.to_name();
    let Some(inner) = writing.reading().number(table, &name)? else {
        return Ok(());
    };
    let inner = ObjectId::new(inner);
    for name in names.unwrap_or_default() {
        writing.remove(inner, name)?;
    }
    if names.is_none() || writing.reading().count(inner)? == 0 {
        writing.remove(table, &name)?;
        writing.free(inner)?;
    }
    Ok(())
}

/// A dataset was made: gives its maker what is set aside for creators above it.
#[doc(alias = "dsl_deleg_set_create_perms")]
pub(crate) fn give_to_creator(
    context: &TaskContext<'_>,
    directory: &Directory<'_>,
    uid: u32,
) -> Result<(), DatasetError> {
    for above in directory.lineage()?.iter().skip(1) {
        let Some(table) = Table::of(above)? else {
            continue;
        };
        for listed in [Listed::Permissions, Listed::Sets] {
            let aside = key(&Holder::Creator, Scope::Unsaid, listed);
            if let Some(names) = table.names(&aside)? {
                let own = key(&Holder::User(uid), Scope::Local, listed);
                add(context, directory.id(), &own, &names)?;
            }
        }
    }
    Ok(())
}
