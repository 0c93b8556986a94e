//! `zpool create`: from a layout and properties to an open and mounted pool.
//!
//! Everything is checked before a device is written. An error after that says what exists by then.

use super::vdev_status::layout_of_pool;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::create::devices::{self, Asking, Layout, Redundancy};
use crate::create::new_filesystem::{FilesystemSettings, Fill};
use crate::datasets::create::refuse_encryption;
use crate::datasets::owners::QuotaSetting;
use crate::messages::pool::{Create, Created, VdevRole, VdevSpec, VdevStatus};
use crate::messages::{Refusal, RefusalKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tarn_dataset::names::{check_pool_name, pool_reason};
use tarn_dataset::ops::set::{SetProperties, Source, check_root};
use tarn_dataset::properties::parse::Checked;
use tarn_dataset::task::TaskRefusal;
use tarn_engine::engine::OpenPool;
use tarn_engine::importing::apply_settings::remembered;
use tarn_engine::importing::settings::{Occasion, PoolSettings};
use tarn_engine::refusals::of_task;
use tarn_ondisk::features::Feature;
use tarn_pool::{CacheContents, CreateRequest, ImportError, Leaving, Pool, TaskError};
use tarn_posix::FileOwnership;
use tarn_probe::Operation;
use tarn_vdev::import_search::{DevicePaths, search};

/// The version of pools with features, the only one that is created.
const VERSION_FEATURES: u64 = 5000;

/// Properties of the root dataset with effects beyond their stored value: limits, and those that
/// activate a feature.
const ROOT_ACTS: [&str; 6] = [
    "quota",
    "reservation",
    "refreservation",
    "filesystem_limit",
    "snapshot_limit",
    "compression",
];

/// The checked request.
struct Plan {
    settings: PoolSettings,
    root: FilesystemSettings,
    /// Properties of the root dataset with effects beyond their stored value.
    root_acts: Vec<Checked>,
    quotas: Vec<QuotaSetting>,
    features: Vec<Feature>,
    layout: Layout,
    notes: Vec<String>,
}

impl Administrator {
    pub(crate) fn create_pool(
        &self,
        call: &Call,
        request: &Create,
        operation: &Operation,
    ) -> Result<Created, Refusal> {
        let _changes = self.engine.changes.lock();
        let plan = self.plan(request)?;
        if request.dry_run {
            return Ok(Created {
                layout: planned_layout(&request.vdevs),
                ..Created::default()
            });
        }
        let altroot = plan.settings.altroot.clone();
        let remembered = remembered(&plan.settings, altroot.is_some());
        let (notes, quotas) = (plan.notes.clone(), plan.quotas.clone());
        let root_acts = plan.root_acts.clone();
        let pool = self.make(request, plan, operation)?;
        pool.set_fails_writers(is_given(&request.properties, "failmode", "continue"));
        pool.set_autotrim(is_given(&request.properties, "autotrim", "on"));
        let open = OpenPool::new(pool, altroot, remembered, self.engine.mounter.clone());
        self.find_auxiliary(&open, &request.vdevs, operation)?;
        if let Err(refusal) = set_root(&open.pool, &request.name, root_acts, operation) {
            let closed = open.pool.close(Leaving::Destroyed, operation);
            return match closed {
                Ok(()) => Err(refusal),
                Err(error) => Err(refusal.with_hint(error.to_string())),
            };
        }
        self.engine.add_pool(open.clone());
        let _turn = self.engine.turn(&open)?;
        let mut notes = notes;
        notes.extend(crate::inert::warnings(&request.dataset_properties));
        let mut created = Created {
            layout: layout_of_pool(&open, &open.pool.vdevs().health()),
            notes,
            ..Created::default()
        };
        if let Err(refusal) = self.engine.remember_pools(&[]) {
            created.warnings.push(refusal.to_string());
        }
        self.record_command(call, &request.name, operation);
        let action = format!("cannot set property for '{}'", request.name);
        self.set_quotas(&open, &request.name, &action, &quotas, operation)?;
        if let Err(refusal) = self.engine.mount_new(&open, &request.name, operation) {
            created.warnings.push(refusal.to_string());
        }
        Ok(created)
    }

    /// Checks everything that can be checked without writing to a device.
    fn plan(&self, request: &Create) -> Result<Plan, Refusal> {
        let action = format!("cannot create '{}'", request.name);
        let refuse = |kind, reason: String| Refusal::new(kind, action.clone(), reason);
        let invalid = |reason: String| refuse(RefusalKind::Invalid, reason);
        check_pool_name(&request.name, true).map_err(|bad| {
            invalid(pool_reason(bad)).with_hint("pool name may have been omitted")
        })?;
        if request.temporary_name.is_some() {
            let reason = "zpool create -t (a temporary name) is not supported by this version";
            return Err(refuse(RefusalKind::Unsupported, reason.to_string()));
        }
        if self.engine.find_pool(&request.name).is_some() {
            return Err(refuse(
                RefusalKind::Exists,
                "pool already exists".to_string(),
            ));
        }
        let mut settings =
            PoolSettings::parse(&self.engine.host, &request.properties, Occasion::Create)
                .map_err(invalid)?;
        if let Some(altroot) = &request.altroot {
            settings.altroot = Some(altroot.clone());
        }
        if let Some(version) = settings.version.filter(|v| *v != VERSION_FEATURES) {
            let reason = format!("making pools of version {version} is not supported");
            return Err(refuse(RefusalKind::Unsupported, reason));
        }
        refuse_encryption(&action, &request.dataset_properties)?;
        let mut of_root = request.dataset_properties.clone();
        let mountpoint = request.mountpoint.clone();
        of_root.extend(mountpoint.map(|path| ("mountpoint".to_string(), path)));
        let (mut quotas, of_root) =
            QuotaSetting::take_from(&self.engine.host, &of_root).map_err(invalid)?;
        let mut root = FilesystemSettings::parse(&of_root).map_err(invalid)?;
        quotas.extend(QuotaSetting::take_defaults(&mut root.stored));
        let root_acts = root.take(&ROOT_ACTS);
        self.check_mountpoint(&request.name, &root, settings.altroot.as_deref())?;
        let features = settings.wanted_features(&self.engine.host, request.no_features);
        let features = features.map_err(invalid)?;
        check_root(&root.stored, &features)
            .map_err(|refusal| of_task(action.clone(), &TaskError::Refused(refusal)))?;
        let notes = settings.incompatible_features(&self.engine.host, &features);
        let asking = Asking {
            action: &action,
            force: request.force,
            use_here: &|found| self.use_here(found),
            own_mount: &|path| self.engine.own_mount_below(path),
            redundancy: match request.force {
                true => Redundancy::Any,
                false => Redundancy::Even(None),
            },
        };
        let layout = devices::check(&self.engine.host, &request.vdevs, &asking)?;
        Ok(Plan {
            settings,
            root,
            root_acts,
            quotas,
            features,
            layout,
            notes,
        })
    }

    /// Refuses a mount point that is a folder with contents.
    fn check_mountpoint(
        &self,
        pool: &str,
        root: &FilesystemSettings,
        altroot: Option<&str>,
    ) -> Result<(), Refusal> {
        let path = match root.text("mountpoint") {
            Some("none" | "legacy") => return Ok(()),
            Some(path) => path.to_string(),
            None => format!("/{pool}"),
        };
        let is_off = |checked: &&tarn_dataset::properties::parse::Checked| {
            checked.name == "canmount"
                && checked.setting == tarn_dataset::properties::parse::Setting::Number(0)
        };
        if root.stored.iter().any(|checked| is_off(&checked)) {
            return Ok(());
        }
        let path = format!("{}{path}", altroot.unwrap_or_default());
        let entries = self.engine.host.list_directory(Path::new(&path));
        match entries.is_ok_and(|entries| !entries.is_empty()) {
            true => {
                let reason = format!("mountpoint '{path}' exists and is not empty");
                let refusal = Refusal::new(RefusalKind::Busy, "", reason);
                Err(refusal.with_hint("use '-m' option to provide a different default"))
            }
            false => Ok(()),
        }
    }

    /// Creates the pool.
    fn make(
        &self,
        request: &Create,
        plan: Plan,
        operation: &Operation,
    ) -> Result<Arc<Pool>, Refusal> {
        let stored = plan.settings.stored.iter();
        let create = CreateRequest {
            name: &request.name,
            vdevs: plan.layout.vdevs,
            spares: plan.layout.spares,
            caches: plan.layout.caches,
            ashift: plan.settings.ashift,
            features: plan.features,
            properties: stored
                .map(|(name, value, _)| (name.clone(), value.clone()))
                .collect(),
            comment: plan.settings.comment.clone(),
            compatibility: plan.settings.compatibility.clone(),
            root_properties: plan.root.zap_values(),
            root_facts: plan.root.facts,
            fill: Arc::new(Fill),
            ownership: Arc::new(FileOwnership),
            owner: self.engine.owner(),
            version_text: format!(
                "pool version {VERSION_FEATURES}; software version tarn-{}",
                env!("CARGO_PKG_VERSION")
            ),
        };
        Pool::create(&self.engine.host, &self.engine.cache, create, operation)
            .map_err(|error| create_refusal(&request.name, &error))
    }

    /// Records the hot spares and cache devices of a new pool, and begins to use the latter.
    fn find_auxiliary(
        &self,
        open: &OpenPool,
        specs: &[VdevSpec],
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let is_auxiliary =
            |spec: &&VdevSpec| matches!(spec.role, VdevRole::Spare | VdevRole::Cache);
        let auxiliary = specs.iter().filter(is_auxiliary);
        let paths: Vec<PathBuf> = auxiliary
            .filter_map(|spec| spec.path.as_ref().map(PathBuf::from))
            .collect();
        let paths = DevicePaths::of(&search(&self.engine.host, &paths));
        open.pool
            .load_auxiliary(&paths, operation)
            .map_err(|error| {
                let action = format!("cannot open '{}'", open.pool.name());
                Refusal::new(RefusalKind::Device, action, error.to_string())
            })?;
        open.pool.start_caches(CacheContents::Keep, operation);
        Ok(())
    }
}

/// Sets the properties with effects on the root dataset of the new pool.
fn set_root(
    pool: &Pool,
    name: &str,
    settings: Vec<Checked>,
    operation: &Operation,
) -> Result<(), Refusal> {
    if settings.is_empty() {
        return Ok(());
    }
    let set = SetProperties {
        name: name.to_string(),
        settings,
        source: Source::Local,
    };
    let action = format!("cannot create '{name}'");
    match pool.run(set, operation) {
        Ok(()) => Ok(()),
        Err(TaskError::Refused(TaskRefusal::NoSpace { .. })) => Err(Refusal::new(
            RefusalKind::NoSpace,
            action,
            "one or more devices is out of space",
        )),
        Err(error) => Err(of_task(action, &error)),
    }
}

/// Whether a property was given with this value.
fn is_given(properties: &[(String, String)], name: &str, value: &str) -> bool {
    let last = properties.iter().rfind(|(given, _)| given == name);
    last.is_some_and(|(_, given)| given == value)
}

/// Why a pool could not be created, in OpenZFS's words.
fn create_refusal(name: &str, error: &ImportError) -> Refusal {
    let action = format!("cannot create '{name}'");
    let reason = match error {
        ImportError::Open(_) | ImportError::Devices(_) => {
            "one or more devices could not be opened".to_string()
        }
        ImportError::SectorsTooLarge => "block size out of range or does not match".to_string(),
        other => other.to_string(),
    };
    let refusal = Refusal::new(RefusalKind::Device, action, reason);
    match error {
        ImportError::Open(_) | ImportError::Devices(_) => refusal.with_hint(error.to_string()),
        _ => refusal,
    }
}

/// The layout that `-n` shows.
pub(super) fn planned_layout(specs: &[VdevSpec]) -> Vec<VdevStatus> {
    specs
        .iter()
        .enumerate()
        .map(|(index, spec)| planned_vdev(spec, Some(index)))
        .collect()
}

fn planned_vdev(spec: &VdevSpec, index: Option<usize>) -> VdevStatus {
    use crate::messages::pool::VdevKind;
    let kind = match spec.kind {
        VdevKind::Leaf => "file",
        VdevKind::Mirror => "mirror",
        VdevKind::Raidz1 => "raidz1",
        VdevKind::Raidz2 => "raidz2",
        VdevKind::Raidz3 => "raidz3",
        VdevKind::Draid => "draid",
    };
    let name = match (&spec.path, index) {
        (Some(path), _) => path.clone(),
        (None, Some(index)) => format!("{kind}-{index}"),
        (None, None) => kind.to_string(),
    };
    VdevStatus {
        name,
        kind: kind.to_string(),
        path: spec.path.clone(),
        role: spec.role,
        state: "ONLINE".to_string(),
        children: spec
            .children
            .iter()
            .map(|child| planned_vdev(child, None))
            .collect(),
        ..VdevStatus::default()
    }
}
