//! `zfs create`: a file system or a volume, with its missing parents, mounted when it is stored.
//!
//! The command waits for the txg of the new dataset, which several commands can share: it takes the
//! pool's turn only afterwards, to mount. A mount that fails gives a warning; the dataset exists.

use super::cannot_open;
use super::kind_of;
use super::owners::QuotaSetting;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::call_record;
use crate::command_permissions::{need, of_property, parent_of, permission};
use crate::create::new_filesystem::Fill;
use crate::inert;
use crate::messages::dataset::{Create, Created, DatasetKind};
use crate::messages::{Refusal, RefusalKind};
use std::sync::Arc;
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::{BadName, DatasetName};
use tarn_dataset::ops::create::{CreateFilesystem, CreateVolume, NameRules};
use tarn_dataset::ops::destroy::Destroy;
use tarn_dataset::ops::on_behalf::{Growth, OnBehalf};
use tarn_dataset::properties::parse::{Checked, Moment, Setting, check};
use tarn_dataset::properties::table;
use tarn_dataset::properties::value::{Change, Kinds};
use tarn_engine::engine::OpenPool;
use tarn_engine::refusals::of_task;
use tarn_ondisk::history::COMMAND_BYTES_MAX;
use tarn_pool::{CallRecord, CommandRecord, Mode};
use tarn_probe::Operation;
use tarn_vdev::VdevKind;

/// The default `volblocksize`, unless the pool's devices need a larger one.
#[doc(alias = "ZVOL_DEFAULT_BLOCKSIZE")]
const VOLUME_BLOCK_BYTES: u64 = 16 << 10;

/// Properties that ask for encryption, each with the value that does not.
const ENCRYPTION: [(&str, &str); 4] = [
    ("encryption", "off"),
    ("keyformat", "none"),
    ("keylocation", "none"),
    ("pbkdf2iters", "0"),
];

/// The dataset to make, its properties for `-v`, and its quotas.
struct Planned {
    new: New,
    told: Vec<(String, String)>,
    quotas: Vec<QuotaSetting>,
}

/// The dataset to make, checked as far as it can be without the pool.
enum New {
    Filesystem(CreateFilesystem),
    Volume(CreateVolume),
}

impl Administrator {
    pub(crate) fn create_dataset(
        &self,
        call: &Call,
        request: &Create,
        operation: &Operation,
    ) -> Result<Created, Refusal> {
        let open = self.pool_for_new(&request.name)?;
        let mut created = Created::default();
        if request.parents {
            if self.is_there(&open, request, operation)? {
                return Ok(created);
            }
            created.names = missing_parents(&open, &request.name, operation)?;
        }
        let Planned { new, told, quotas } = self.plan_dataset(call, &open, request, operation)?;
        created.properties = told;
        if request.dry_run {
            created.names.push(request.name.clone());
            return Ok(created);
        }
        self.permit_creation(call, &open, &request.name, &created.properties, operation)?;
        for parent in created.names.clone() {
            self.create_parent(call, &open, &parent, request, operation)
                .map_err(|refusal| {
                    let hint = format!("failed to create ancestor '{parent}'");
                    refusal.with_hint(hint)
                })?;
            self.mount_created(call, &open, &parent, &mut created.warnings, operation);
        }
        let made = match new {
            New::Filesystem(task) => {
                let record = call_record::create_filesystem(&task.settings);
                let task = self.creating(call, task, &request.name);
                let command = self.record_with_call(call, record);
                open.pool.run_command(task, command, operation)
            }
            New::Volume(task) => {
                let (size, block_size) = (task.size_bytes, task.block_bytes);
                let record = call_record::create_volume(size, block_size, &task.settings);
                let task = self.creating(call, task, &request.name);
                let command = self.record_with_call(call, record);
                open.pool.run_command(task, command, operation)
            }
        };
        made.map_err(|error| of_task(cannot_create(&request.name), &error))?;
        self.set_first_quotas(&open, &request.name, &quotas, operation)?;
        created.names.push(request.name.clone());
        if request.volume_bytes.is_some() {
            open.touch_volumes(&request.name);
            let missing = self.engine.settle_volumes_of(&open, operation);
            created.warnings.extend(missing);
        }
        created
            .warnings
            .extend(inert::warnings(&request.properties));
        if !request.no_mount && request.volume_bytes.is_none() {
            self.mount_created(call, &open, &request.name, &mut created.warnings, operation);
        }
        Ok(created)
    }

    /// Refuses a caller without permission to create a dataset of this name with these properties.
    /// A volume's reservation needs its permission even where it is the default.
    #[doc(alias = "zfs_secpolicy_create_clone")]
    pub(super) fn permit_creation(
        &self,
        call: &Call,
        open: &OpenPool,
        name: &str,
        properties: &[(String, String)],
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let action = cannot_create(name);
        self.permit_below(call, open, &action, name, operation)?;
        let there = nearest(open, name, operation);
        let stored = properties.iter().filter(|(name, _)| !is_fact(name));
        let needed: Vec<&str> = stored.map(|(name, _)| of_property(name)).collect();
        self.permit_new(call, open, action, there, &needed, operation)
    }

    /// Refuses a caller without permission to create a dataset of this name. Missing parents are
    /// created too, each below the one before: the permissions at the nearest existing ancestor
    /// must suffice for all of them.
    pub(super) fn permit_below(
        &self,
        call: &Call,
        open: &OpenPool,
        action: &str,
        name: &str,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let needed = [permission::CREATE, permission::MOUNT];
        let there = nearest(open, name, operation);
        self.permit(call, open, action, &[need(there, &needed)], operation)?;
        match parent_of(name) {
            Ok(parent) if parent != there => {
                self.permit_new(call, open, action, there, &needed, operation)
            }
            _ => Ok(()),
        }
    }

    /// A task that creates a dataset of this name.
    pub(super) fn creating<T>(&self, call: &Call, task: T, name: &str) -> OnBehalf<T> {
        let (parent, _) = name.rsplit_once('/').unwrap_or_default();
        let growth = vec![Growth::Filesystem(parent.to_string())];
        self.on_behalf(call, task, growth, vec![name.to_string()])
    }

    /// Checks the name, and finds its pool.
    #[doc(alias = "check_parents")]
    pub(super) fn pool_for_new(&self, name: &str) -> Result<Arc<OpenPool>, Refusal> {
        let refuse = |kind, reason: String| Refusal::new(kind, cannot_create(name), reason);
        DatasetName::parse_new_head(name).map_err(|bad| {
            let reason = match bad {
                BadName::TooDeep => "maximum name nesting depth exceeded".to_string(),
                bad => bad.to_string(),
            };
            refuse(RefusalKind::Invalid, reason)
        })?;
        let Some((pool, _)) = name.split_once('/') else {
            let reason = "missing dataset name".to_string();
            return Err(refuse(RefusalKind::Invalid, reason));
        };
        let open = self.engine.find_pool(pool).ok_or_else(|| {
            let reason = format!("no such pool '{pool}'");
            refuse(RefusalKind::NotFound, reason)
        })?;
        match open.pool.mode() {
            Mode::ReadWrite => Ok(open),
            Mode::ReadOnly => Err(refuse(
                RefusalKind::ReadOnly,
                "pool is read-only".to_string(),
            )),
        }
    }

    /// Whether a dataset of this name and kind exists already.
    fn is_there(
        &self,
        open: &OpenPool,
        request: &Create,
        operation: &Operation,
    ) -> Result<bool, Refusal> {
        let wanted = match request.volume_bytes {
            Some(_) => DatasetKind::Volume,
            None => DatasetKind::Filesystem,
        };
        let view = open.pool.namespace().view(operation);
        let head = view.directory(&request.name).and_then(|found| found.head());
        let kind = match head {
            Ok(Some(head)) => kind_of(&head).map(Some),
            Ok(None) | Err(DatasetError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        };
        let kind = kind.map_err(|error| cannot_open(&request.name, &error))?;
        Ok(kind == Some(wanted))
    }

    /// The dataset to make, and its properties for `-v`.
    fn plan_dataset(
        &self,
        call: &Call,
        open: &OpenPool,
        request: &Create,
        operation: &Operation,
    ) -> Result<Planned, Refusal> {
        let action = match request.dry_run {
            true => format!("cannot verify '{}'", request.name),
            false => cannot_create(&request.name),
        };
        let invalid = |reason| Refusal::new(RefusalKind::Invalid, action.clone(), reason);
        refuse_encryption(&action, &request.properties)?;
        match request.volume_bytes {
            None => {
                let (quotas, settings) = self.checked(&request.properties).map_err(invalid)?;
                let task = filesystem(call, &request.name, settings).map_err(invalid)?;
                Ok(Planned {
                    new: New::Filesystem(task),
                    told: request.properties.clone(),
                    quotas,
                })
            }
            Some(bytes) => {
                let settings = checked(&request.properties, Kinds::VOLUME).map_err(invalid)?;
                let task = volume(open, request, bytes, settings).map_err(invalid)?;
                let reserved = task.reservation(open.pool.namespace().view(operation));
                let told = volume_properties(request, &task, reserved);
                Ok(Planned {
                    new: New::Volume(task),
                    told,
                    quotas: Vec::new(),
                })
            }
        }
    }

    /// Checks properties of a new file system, and separates quotas and others that are stored
    /// elsewhere.
    pub(super) fn checked(
        &self,
        given: &[(String, String)],
    ) -> Result<(Vec<QuotaSetting>, Vec<Checked>), String> {
        let (mut quotas, others) = QuotaSetting::take_from(&self.engine.host, given)?;
        let mut settings = checked(&others, Kinds::FILESYSTEM)?;
        quotas.extend(QuotaSetting::take_defaults(&mut settings));
        Ok((quotas, settings))
    }

    /// Sets the quotas of a new file system; destroys it again if that fails.
    pub(super) fn set_first_quotas(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        quotas: &[QuotaSetting],
        operation: &Operation,
    ) -> Result<(), Refusal> {
        if quotas.is_empty() {
            return Ok(());
        }
        let set = self
            .engine
            .turn(open)
            .and_then(|_turn| self.set_quotas(open, name, &cannot_create(name), quotas, operation));
        set.map_err(|refusal| {
            let destroy = Destroy {
                name: name.to_string(),
            };
            match open.pool.run(destroy, operation) {
                Ok(_) => refusal,
                Err(error) => refusal.with_hint(error.to_string()),
            }
        })
    }

    fn create_parent(
        &self,
        call: &Call,
        open: &OpenPool,
        name: &str,
        request: &Create,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let task = parent(call, name, request.parents_no_mount);
        let made = open.pool.run(self.creating(call, task, name), operation);
        made.map(|_| ())
            .map_err(|error| of_task(cannot_create(name), &error))
    }

    /// Mounts a new file system. Another command may have exported the pool meanwhile.
    pub(super) fn mount_created(
        &self,
        call: &Call,
        open: &Arc<OpenPool>,
        name: &str,
        warnings: &mut Vec<String>,
        operation: &Operation,
    ) {
        let Ok(_turn) = self.engine.turn(open) else {
            return;
        };
        if !self.may_mount(call, open, name, operation) {
            let text = "filesystem successfully created, but it may only be mounted by root";
            warnings.push(text.to_string());
            return;
        }
        if let Err(refusal) = self.mount_for(call, open, name, operation) {
            warnings.push(refusal.to_string());
            warnings.push("filesystem successfully created, but not mounted".to_string());
        }
    }

    /// The same for a command whose ioctl OpenZFS notes too.
    pub(crate) fn record_with_call(&self, call: &Call, record: CallRecord) -> CommandRecord {
        CommandRecord {
            call: Some(record),
            ..self.command_record(call)
        }
    }

    /// The history record of a command. The line is cut to a bound, so that one command cannot push
    /// all others out of the ring.
    pub(crate) fn command_record(&self, call: &Call) -> CommandRecord {
        let kept = call.command.floor_char_boundary(COMMAND_BYTES_MAX);
        CommandRecord {
            command: call.command[..kept].to_string(),
            call: None,
            user: call.caller.uid,
            host_name: self.engine.host.identity().hostname.clone(),
        }
    }
}

pub(super) fn cannot_create(name: &str) -> String {
    format!("cannot create '{name}'")
}

/// Whether a property is fixed in the contents. It needs no permission beyond `create`.
fn is_fact(property: &str) -> bool {
    let row = table::find(property);
    row.is_some_and(|row| row.change == Change::Once || ["version", "volsize"].contains(&row.name))
}

/// Refuses properties of a new dataset that ask for encryption or name a key.
#[doc(alias = "zfs_crypto_create")]
pub(crate) fn refuse_encryption(action: &str, given: &[(String, String)]) -> Result<(), Refusal> {
    let Some((property, _)) = given.iter().find(|given| is_encryption(given)) else {
        return Ok(());
    };
    let encryption = given.iter().rev().find(|(name, _)| name == "encryption");
    let is_on = encryption.is_some_and(is_encryption);
    let (kind, reason) = match is_on {
        true => (
            RefusalKind::Unsupported,
            format!("'{property}': making encrypted datasets is not supported by this version"),
        ),
        false => (
            RefusalKind::Invalid,
            "Encryption must be turned on to set encryption properties.".to_string(),
        ),
    };
    Err(Refusal::new(kind, action, reason))
}

fn is_encryption((name, value): &(String, String)) -> bool {
    let row = ENCRYPTION.iter().find(|(property, _)| property == name);
    row.is_some_and(|(_, off)| off != value)
}

/// A missing parent: a file system that inherits everything; `no_mount` keeps it unmounted.
pub(super) fn parent(call: &Call, name: &str, no_mount: bool) -> CreateFilesystem {
    const CANMOUNT_OFF: u64 = 0;
    let canmount = Checked {
        name: "canmount".to_string(),
        property: table::find("canmount"),
        setting: Setting::Number(CANMOUNT_OFF),
    };
    CreateFilesystem {
        name: name.to_string(),
        settings: Vec::from_iter(no_mount.then_some(canmount)),
        rules: NameRules::default(),
        user: call.caller.uid,
        group: call.caller.gid,
        fill: Arc::new(Fill),
    }
}

/// The nearest existing ancestor of a name.
pub(super) fn nearest<'n>(open: &OpenPool, name: &'n str, operation: &Operation) -> &'n str {
    let view = open.pool.namespace().view(operation);
    let mut ancestors = name.rmatch_indices('/').map(|(end, _)| &name[..end]);
    let found = ancestors.find(|ancestor| view.directory(ancestor).is_ok());
    found.unwrap_or_else(|| name.split('/').next().unwrap_or_default())
}

/// The missing ancestors of a name, the highest first.
pub(super) fn missing_parents(
    open: &OpenPool,
    name: &str,
    operation: &Operation,
) -> Result<Vec<String>, Refusal> {
    let view = open.pool.namespace().view(operation);
    let mut missing = Vec::new();
    for (end, _) in name.match_indices('/') {
        let ancestor = &name[..end];
        match view.directory(ancestor) {
            Ok(_) => {}
            Err(DatasetError::NotFound { .. }) => missing.push(ancestor.to_string()),
            Err(error) => return Err(cannot_open(ancestor, &error)),
        }
    }
    Ok(missing)
}

/// Checks properties of a new dataset. Of several values of one property the last counts.
pub(super) fn checked(given: &[(String, String)], kinds: Kinds) -> Result<Vec<Checked>, String> {
    let mut settings: Vec<Checked> = Vec::new();
    for (name, value) in given {
        let one = check(name, value, kinds, Moment::Creation)?;
        settings.retain(|other| other.name != one.name);
        settings.push(one);
    }
    Ok(settings)
}

fn filesystem(
    call: &Call,
    name: &str,
    mut settings: Vec<Checked>,
) -> Result<CreateFilesystem, String> {
    let rules = name_rules(NameRules::take_from(&mut settings))?;
    Ok(CreateFilesystem {
        settings,
        rules,
        ..parent(call, name, false)
    })
}

/// Checks the rules of names: `normalization` needs `utf8only`.
fn name_rules(rules: NameRules) -> Result<NameRules, String> {
    let is_normalised = rules.normalization.is_some_and(|form| form != 0);
    match (is_normalised, rules.utf8_only) {
        (true, Some(false)) => {
            Err("'utf8only' must be set 'on' if normalization chosen".to_string())
        }
        (true, None) => Ok(NameRules {
            utf8_only: Some(true),
            ..rules
        }),
        (false, Some(false)) => Ok(NameRules {
            normalization: Some(0),
            ..rules
        }),
        _ => Ok(rules),
    }
}

fn volume(
    open: &OpenPool,
    request: &Create,
    bytes: u64,
    mut settings: Vec<Checked>,
) -> Result<CreateVolume, String> {
    let mut block_bytes = default_block_bytes(open);
    settings.retain(|checked| match (checked.name.as_str(), &checked.setting) {
        ("volblocksize", Setting::Number(given)) => {
            block_bytes = *given;
            false
        }
        ("volsize", _) => false,
        _ => true,
    });
    let size_bytes = bytes
        .checked_next_multiple_of(block_bytes)
        .ok_or("volume size exceeds limit for this system")?;
    Ok(CreateVolume {
        name: request.name.clone(),
        size_bytes,
        block_bytes,
        sparse: request.sparse,
        settings,
    })
}

/// The default `volblocksize`: larger than the usual one where a block would use less than half of
/// the pool's smallest allocation.
#[doc(alias = "default_volblocksize")]
fn default_block_bytes(open: &OpenPool) -> u64 {
    let vdevs = open.pool.vdevs().top_levels();
    let least = vdevs.iter().map(|vdev| {
        let sector = 1_u64 << vdev.ashift.min(16);
        match vdev.kind {
            VdevKind::Raidz { parity: 1 } => 2 * sector,
            VdevKind::Raidz { .. } => 4 * sector,
            _ => sector,
        }
    });
    let least = least.max().unwrap_or(0);
    let mut bytes = VOLUME_BLOCK_BYTES;
    while bytes * 2 <= least {
        bytes *= 2;
    }
    bytes
}

/// The properties of a new volume for `-v`.
fn volume_properties(
    request: &Create,
    task: &CreateVolume,
    reserved: Option<u64>,
) -> Vec<(String, String)> {
    let mut told = vec![("volsize".to_string(), task.size_bytes.to_string())];
    told.extend(request.properties.iter().cloned());
    let mut add = |name: &str, value: u64| {
        if told.iter().all(|(other, _)| other != name) {
            told.push((name.to_string(), value.to_string()));
        }
    };
    if task.block_bytes != VOLUME_BLOCK_BYTES {
        add("volblocksize", task.block_bytes);
    }
    if let Some(reserved) = reserved {
        add("refreservation", reserved);
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalised_names_are_utf8() {
        let rules = |normalization, utf8_only| {
            name_rules(NameRules {
                normalization,
                utf8_only,
                ..NameRules::default()
            })
        };
        assert_eq!(rules(Some(16), None).unwrap().utf8_only, Some(true));
        assert_eq!(rules(None, Some(false)).unwrap().normalization, Some(0));
        assert_eq!(rules(None, None).unwrap(), NameRules::default());
        assert_eq!(
            rules(Some(16), Some(false)).unwrap_err(),
            "'utf8only' must be set 'on' if normalization chosen"
        );
    }

    #[test]
    fn encryption_is_known_by_any_of_its_properties() {
        let is = |name: &str, value: &str| is_encryption(&(name.to_string(), value.to_string()));
        assert!(is("encryption", "on"));
        assert!(is("keyformat", "passphrase"));
        assert!(!is("encryption", "off"));
        assert!(!is("compression", "on"));
    }
}
