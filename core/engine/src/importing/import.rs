//! `zpool import NAME`: finds a pool, checks that this host may use it, opens it, mounts it, and
//! adds it to the cache file.
//!
//! # Which host
//! Labels name the host that used the pool last. A pool that was not exported, and whose last host
//! is another, may be in use there at this moment: it is refused without `-f`. A pool with the
//! property `multihost` is refused even with `-f` while another host writes it
//! ([`multihost`](tarn_pool::multihost)).

use super::apply_settings::{apply_properties, changes_of, remembered};
use super::dates::date;
use super::import_refusal::import_refusal;
use super::own_mounts::lies_on_own_mount;
use super::search::Found;
use super::settings::{Occasion, PoolSettings};
use crate::engine::{Engine, OpenPool, Remembered};
use crate::importing::requests::{Import, Imported};
use crate::mount_options::Words;
use crate::mounts::Mounter;
use crate::presence::Presence;
use crate::refusals::{Refusal, RefusalKind, of_task};
use crate::volumes;
use std::path::Path;
use std::sync::Arc;
use tarn_dataset::names::{check_pool_name, pool_reason};
use tarn_host::OpenMode;
use tarn_ondisk::units::Txg;
use tarn_pool::rewind::{Reach, Rewind, find_rewind, may_be_better_before};
use tarn_pool::{CacheContents, ImportError, ImportRequest, Leaving, Mode, Pool, PoolError};
use tarn_posix::FileOwnership;
use tarn_probe::Operation;
use tarn_vdev::health::vdev_name;
use tarn_vdev::import_search::{CandidatePool, DevicePaths};
use tarn_vdev::{ExpectedLabels, Need, OpenError, OpenOptions, PoolState, VdevConfig, VdevTree};

/// The reason when a pool was imported and some of its file systems could not be mounted.
const NOT_ALL_MOUNTED: &str = "Import was successful, but unable to mount some datasets";

/// The options of an import.
#[derive(Debug, Clone)]
struct Options {
    mode: Mode,
    need: Need,
    altroot: Option<String>,
    remembered: Remembered,
    mount_options: Vec<String>,
    is_forced: bool,
    mounts: bool,
    /// Whether the caller still waits.
    presence: Presence,
    /// `-F`, `-X`, `-T` and `-n`.
    rewinding: Option<Rewinding>,
    rewinds_to_checkpoint: bool,
    settings: PoolSettings,
}

/// What to do when the newest txg cannot be opened.
#[derive(Debug, Clone, Copy)]
struct Rewinding {
    reach: Reach,
    /// `-T`.
    until: Txg,
    /// `-n`.
    is_trial: bool,
}

/// Reads the parts of an open pool that only an import needs.
fn complete(
    pool: &Arc<Pool>,
    options: &Options,
    paths: &DevicePaths,
    mounter: &Arc<dyn Mounter>,
    operation: &Operation,
) -> Result<Arc<OpenPool>, PoolError> {
    apply_properties(pool, operation)?;
    let (altroot, remembered) = (options.altroot.clone(), options.remembered.clone());
    let open = OpenPool::new(pool.clone(), altroot, remembered, mounter.clone());
    pool.load_auxiliary(paths, operation)?;
    let has_gone_back = options.rewinds_to_checkpoint || options.rewinding.is_some();
    let contents = match has_gone_back {
        true => CacheContents::Discard,
        false => CacheContents::Keep,
    };
    pool.start_caches(contents, operation);
    Ok(open)
}

/// Whether intent log records that cannot be replayed are discarded. The error names an unknown
/// mount option.
fn discards_logs(mount_options: &[String]) -> bool {
    Words::parse(mount_options).is_ok_and(|words| words.temporary.discards_log)
}

impl Engine {
    /// Imports pools, and mounts their file systems.
    ///
    /// # Errors
    /// Why the named pool was not imported.
    pub fn import(
        &self,
        presence: &Presence,
        request: &Import,
        operation: &Operation,
    ) -> Result<Imported, Refusal> {
        let _changes = self.changes.lock();
        refuse_unbuilt(request)?;
        let options = self.import_options(presence, request)?;
        let found = self.look_for_pools(&request.search)?;
        let mut imported = match &request.pool {
            Some(wanted) => self.import_one(wanted, request, &found, &options, operation)?,
            None => self.import_all(&found, &options, operation),
        };
        if let Err(refusal) = self.remember_pools(&[]) {
            imported.warnings.push(refusal.to_string());
        }
        Ok(imported)
    }

    /// Imports the pool of this name or guid.
    fn import_one(
        &self,
        wanted: &str,
        request: &Import,
        found: &Found,
        options: &Options,
        operation: &Operation,
    ) -> Result<Imported, Refusal> {
        let candidate = self.choose(wanted, request.rename.as_deref(), found)?;
        let name = request.rename.as_deref();
        let mut imported = Imported::default();
        let paths = &found.paths;
        let opened = self.open_candidate(candidate, paths, name, options, &mut imported, operation);
        let Some(open) = opened? else {
            return Ok(imported);
        };
        if let Err(refusal) = self.set_imported(&open, &options.settings, operation) {
            imported.warnings.push(refusal.to_string());
        }
        imported.pools.push(open.pool.name().to_string());
        let _turn = self.turn(&open)?;
        self.mount_imported(&open, options, &mut imported, operation);
        Ok(imported)
    }

    /// Imports all found pools. A pool that cannot be imported leaves the others to be.
    fn import_all(&self, found: &Found, options: &Options, operation: &Operation) -> Imported {
        let mut imported = Imported::default();
        for candidate in &found.candidates {
            let paths = &found.paths;
            let opened =
                self.open_candidate(candidate, paths, None, options, &mut imported, operation);
            match opened {
                Ok(None) => {}
                Ok(Some(open)) => {
                    if let Err(refusal) = self.set_imported(&open, &options.settings, operation) {
                        imported.warnings.push(refusal.to_string());
                    }
                    imported.pools.push(open.pool.name().to_string());
                    match self.turn(&open) {
                        Ok(_turn) => {
                            self.mount_imported(&open, options, &mut imported, operation);
                        }
                        Err(refusal) => imported.refused.push(refusal),
                    }
                }
                Err(refusal) => imported.refused.push(refusal),
            }
        }
        imported
    }

    /// The one pool of this name or guid.
    fn choose<'a>(
        &self,
        wanted: &str,
        rename: Option<&str>,
        found: &'a Found,
    ) -> Result<&'a CandidatePool, Refusal> {
        let action = || format!("cannot import '{wanted}'");
        let guid = wanted.parse::<u64>().ok();
        let is_wanted = |candidate: &&CandidatePool| match guid {
            Some(guid) => candidate.facts.guid.get() == guid,
            None => candidate.facts.name.as_bytes() == wanted.as_bytes(),
        };
        let is_open = match guid {
            Some(guid) => self
                .pools()
                .iter()
                .any(|open| open.pool.facts().guid.get() == guid),
            None => self.find_pool(wanted).is_some(),
        };
        let matching: Vec<&CandidatePool> = found.candidates.iter().filter(is_wanted).collect();
        match matching.as_slice() {
            [] if is_open => {
                let reason = "a pool with that name is already created/imported,";
                let hint = "and no additional pools with that name were found";
                Err(Refusal::new(RefusalKind::Exists, action(), reason).with_hint(hint))
            }
            [] => {
                let reason = "no such pool available";
                Err(Refusal::new(RefusalKind::NotFound, action(), reason))
            }
            _ if is_open && rename.is_none_or(|rename| rename == wanted) => {
                Err(name_is_taken(action()))
            }
            [one] => Ok(one),
            _ => {
                let reason = "more than one matching pool";
                let refusal = Refusal::new(RefusalKind::Invalid, action(), reason);
                Err(refusal.with_hint("import by numeric ID instead"))
            }
        }
    }

    /// Opens a found pool, if this host may use it.
    fn open_candidate(
        &self,
        candidate: &CandidatePool,
        paths: &DevicePaths,
        rename: Option<&str>,
        options: &Options,
        imported: &mut Imported,
        operation: &Operation,
    ) -> Result<Option<Arc<OpenPool>>, Refusal> {
        let own_name = candidate.facts.name.to_string();
        let name = rename.unwrap_or(&own_name);
        check_pool_name(name, false).map_err(|bad| {
            let action = format!("cannot import '{name}'");
            Refusal::new(RefusalKind::Invalid, action, pool_reason(bad))
        })?;
        if self.find_pool(name).is_some() {
            return Err(name_is_taken(format!("cannot import '{own_name}'")));
        }
        self.refuse_on_own_mount(candidate)?;
        if !options.is_forced {
            self.refuse_other_host(candidate)?;
        }
        let presence = &options.presence;
        let goes_on = || !presence.has_ended() && !self.presence.has_ended();
        let mut request = ImportRequest {
            candidate,
            paths,
            name: Some(name),
            mode: options.mode,
            need: options.need,
            until: Txg::MAX,
            rewinds_to_checkpoint: options.rewinds_to_checkpoint,
            discards_logs: discards_logs(&options.mount_options),
            goes_on: &goes_on,
            owner: self.owner(),
            split: None,
        };
        let action = match rename {
            None => format!("cannot import '{name}'"),
            Some(_) => format!("cannot import '{own_name}' as '{name}'"),
        };
        if let Some(rewinding) = &options.rewinding {
            let found = self.rewind(&mut request, rewinding, operation);
            let found = found.map_err(|error| import_refusal(&error, action.clone()))?;
            imported
                .notes
                .extend(rewound(&own_name, found.as_ref(), rewinding.is_trial));
            if rewinding.is_trial {
                imported.is_trial_failed |= found.is_none_or(|found| !found.is_newest);
                return Ok(None);
            }
        }
        let pool = Pool::import(&self.host, &self.cache, &request, operation);
        let pool = pool.map_err(|error| {
            if let Some(obstacle) = self.obstacle(&error, candidate, options.mode, &action) {
                return obstacle;
            }
            let refusal = import_refusal(&error, action.clone());
            match (&error, options.rewinding) {
                (ImportError::InUseElsewhere | ImportError::WrittenElsewhere, _) => {
                    in_use_elsewhere(candidate, action.clone())
                }
                (ImportError::CallerGone, _) if self.presence.has_ended() => {
                    let reason = "the daemon is about to end";
                    Refusal::new(RefusalKind::Busy, action.clone(), reason)
                }
                (ImportError::Devices(OpenError::Unavailable { vdevs }), _) => {
                    let names = vdevs.iter().map(|(name, _)| name.as_str());
                    self.explain_missing_logs(refusal, names, &request, operation)
                }
                (_, None) if is_damaged(&refusal) && may_be_better_before(&error) => {
                    self.explain_rewind(refusal, &request, operation)
                }
                _ => refusal,
            }
        })?;
        pool.namespace().set_ownership(Arc::new(FileOwnership));
        let completed =
            complete(&pool, options, paths, &self.mounter, operation).map_err(|error| {
                // Closing stops its threads, which hold the devices.
                drop(pool.close(Leaving::Kept, operation));
                Refusal::new(RefusalKind::Corrupt, action, error.to_string())
            });
        let open = completed?;
        imported.warnings.extend(given_up_logs(&open.pool));
        self.add_pool(open.clone());
        Ok(Some(open))
    }

    /// Finds the txg to open.
    fn rewind(
        &self,
        request: &mut ImportRequest<'_>,
        rewinding: &Rewinding,
        operation: &Operation,
    ) -> Result<Option<Rewind>, ImportError> {
        request.until = rewinding.until;
        let found = find_rewind(&self.host, &self.cache, request, rewinding.reach, operation)?;
        if let Some(found) = &found {
            request.until = found.txg;
        }
        Ok(found)
    }

    /// Adds to the refusal that only log devices are missing, if that is so.
    fn explain_missing_logs<'a>(
        &self,
        refusal: Refusal,
        names: impl Iterator<Item = &'a str>,
        request: &ImportRequest<'_>,
        operation: &Operation,
    ) -> Refusal {
        let trial = ImportRequest {
            mode: Mode::ReadOnly,
            need: Need::AllButLogs,
            owner: self.owner(),
            ..*request
        };
        match Pool::import(&self.host, &self.cache, &trial, operation) {
            Ok(pool) if request.need == Need::All => {
                close_trial(&pool);
                let head = "The devices below are missing or corrupted, use '-m' to import the pool anyway:";
                let root = pool.vdevs().config();
                let lines = names.flat_map(|name| missing_log(&root, name));
                lines.fold(refusal.with_hint(head), Refusal::with_hint)
            }
            Ok(pool) => {
                close_trial(&pool);
                refusal
            }
            Err(_) => refusal,
        }
    }

    /// Adds to the refusal whether an earlier txg could be opened.
    #[doc(alias = "zpool_explain_recover")]
    fn explain_rewind(
        &self,
        refusal: Refusal,
        request: &ImportRequest<'_>,
        operation: &Operation,
    ) -> Refusal {
        let found = find_rewind(&self.host, &self.cache, request, Reach::Safe, operation);
        let Ok(Some(found)) = found else {
            return refusal;
        };
        let mut text = format!(
            "\tRecovery is possible, but will result in some data loss.\n\
             \tReturning the pool to its state as of {}\n\
             \tshould correct the problem.  ",
            date(found.timestamp_s)
        );
        if let Some(lost) = amount(found.loss_s) {
            text += &format!("Approximately {lost} of data\n\tmust be discarded, irreversibly.  ");
        }
        match found.data_errors {
            0 => {}
            1 => text += "After rewind, at least\n\tone persistent user-data error will remain.  ",
            _ => text += "After rewind, several\n\tpersistent user-data errors will remain.  ",
        }
        text += &format!(
            "Recovery can be attempted\n\tby executing 'zpool import -F {}'.  A scrub of the pool\n\
             \tis strongly recommended after recovery.",
            request.candidate.facts.name
        );
        Refusal {
            hints: vec![text],
            ..refusal
        }
    }

    /// Refuses a pool whose devices lie on mounts of this daemon.
    fn refuse_on_own_mount(&self, candidate: &CandidatePool) -> Result<(), Refusal> {
        let leaves = candidate.root.leaves();
        let paths = leaves
            .iter()
            .filter_map(|leaf| leaf.path.as_ref()?.as_str());
        for path in paths {
            if let Some(dataset) = self.own_mount_below(Path::new(path)) {
                let action = format!("cannot import '{}'", candidate.facts.name);
                return Err(lies_on_own_mount(action, path, &dataset));
            }
        }
        Ok(())
    }

    /// Refuses a pool that another host may be using.
    #[doc(alias = "zfs_force_import_required")]
    pub fn refuse_other_host(&self, candidate: &CandidatePool) -> Result<(), Refusal> {
        let facts = &candidate.facts;
        let own_id = u64::from(self.host.identity().hostid);
        if facts.state == PoolState::Exported || facts.host_id == own_id {
            return Ok(());
        }
        let last = format!(
            "Last accessed by {} (hostid={:x}) at {}",
            match facts.host_name.is_empty() {
                true => "<unknown>".to_string(),
                false => facts.host_name.to_string(),
            },
            facts.host_id,
            date(self.last_written_s(candidate)),
        );
        let action = format!("cannot import '{}'", facts.name);
        let reason = "pool was previously in use from another system.";
        let cure = "The pool can be imported, use 'zpool import -f' to import the pool.";
        Err(Refusal::new(RefusalKind::OtherHost, action, reason)
            .with_hint(last)
            .with_hint(cure))
    }

    /// When the pool was last written.
    fn last_written_s(&self, candidate: &CandidatePool) -> u64 {
        let options = OpenOptions {
            mode: OpenMode::ReadOnly,
            need: Need::Nothing,
            labels: ExpectedLabels::OfPool(candidate.facts.guid),
        };
        let Ok(tree) = VdevTree::open(&self.host, &candidate.root, &options) else {
            return 0;
        };
        let newest = tree.newest_uberblock();
        tree.close();
        newest.map_or(0, |uberblock| uberblock.timestamp_s)
    }

    /// Replays the logs of volumes of a pool that was just imported, and mounts its file systems.
    fn mount_imported(
        &self,
        open: &Arc<OpenPool>,
        options: &Options,
        imported: &mut Imported,
        operation: &Operation,
    ) {
        let discards_logs = discards_logs(&options.mount_options);
        let not_replayed = volumes::replay::replay_logs(open, discards_logs, operation);
        imported.warnings.extend(not_replayed);
        if !options.mounts {
            return;
        }
        let mounted = self.mount_pool(open, &options.mount_options, operation);
        if mounted.refused.is_empty() {
            return;
        }
        let refused = mounted.refused.iter().map(ToString::to_string);
        imported.warnings.extend(refused);
        imported.warnings.push(NOT_ALL_MOUNTED.to_string());
    }

    /// The request to open a pool for a moment.
    pub fn trial_request<'a>(
        &self,
        candidate: &'a CandidatePool,
        paths: &'a DevicePaths,
    ) -> ImportRequest<'a> {
        ImportRequest {
            candidate,
            paths,
            name: None,
            mode: Mode::ReadOnly,
            need: Need::AllButLogs,
            until: Txg::MAX,
            rewinds_to_checkpoint: false,
            discards_logs: false,
            goes_on: &|| true,
            owner: self.owner(),
            split: None,
        }
    }

    fn import_options(&self, presence: &Presence, request: &Import) -> Result<Options, Refusal> {
        let is_mount_option = |(_, value): &&(String, String)| value.is_empty();
        let given = request.properties.iter();
        let mount_options = given.clone().filter(is_mount_option);
        let mount_options = mount_options.map(|(words, _)| words.clone()).collect();
        let of_pool = given.filter(|pair| !is_mount_option(pair)).cloned();
        let of_pool: Vec<(String, String)> = of_pool.collect();
        let settings = PoolSettings::parse(&self.host, &of_pool, Occasion::Import);
        let mut settings = settings.map_err(|reason| {
            let action = format!(
                "cannot import pool '{}'",
                request.pool.as_deref().unwrap_or_default()
            );
            Refusal::new(RefusalKind::Invalid, action, reason)
        })?;
        let altroot = request.altroot.clone().or(settings.altroot.take());
        Ok(Options {
            mode: match settings.read_only {
                Some(true) => Mode::ReadOnly,
                _ => Mode::ReadWrite,
            },
            need: match request.missing_log {
                true => Need::AllButLogs,
                false => Need::All,
            },
            remembered: remembered(&settings, altroot.is_some()),
            altroot,
            mount_options,
            rewinding: (request.rewind || request.txg.is_some()).then(|| Rewinding {
                reach: match request.extreme || request.txg.is_some() {
                    true => Reach::Extreme,
                    false => Reach::Safe,
                },
                until: request.txg.map_or(Txg::MAX, Txg::from),
                is_trial: request.dry_run,
            }),
            rewinds_to_checkpoint: request.rewinds_to_checkpoint,
            is_forced: request.force,
            mounts: !request.no_mount,
            presence: presence.clone(),
            settings,
        })
    }

    /// Sets the properties of `-o`.
    fn set_imported(
        &self,
        open: &OpenPool,
        settings: &PoolSettings,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        if open.pool.mode() == Mode::ReadOnly {
            return Ok(());
        }
        let action = || format!("cannot set property for '{}'", open.pool.name());
        let changes = changes_of(open, settings.clone(), operation)
            .map_err(|reason| Refusal::new(RefusalKind::Invalid, action(), reason))?;
        if changes.is_empty() {
            return Ok(());
        }
        let changed = open.pool.change_properties(changes, operation);
        changed.map_err(|error| of_task(action(), &error))?;
        apply_properties(&open.pool, operation)
            .map_err(|error| Refusal::new(RefusalKind::Corrupt, action(), error.to_string()))
    }
}

/// Closes a pool that was opened read-only.
pub fn close_trial(pool: &Pool) {
    pool.cache().forget_all();
    pool.vdevs().close();
}

/// Whether stored data is damaged, so that an earlier txg may be readable.
fn is_damaged(refusal: &Refusal) -> bool {
    refusal.kind == RefusalKind::Corrupt
}

/// Refuses unsupported options by name.
fn refuse_unbuilt(request: &Import) -> Result<(), Refusal> {
    let unbuilt = [(request.temporary, "-t (a temporary name)")];
    for (is_asked, what) in unbuilt {
        if is_asked {
            let name = request.pool.as_deref().unwrap_or("pools");
            let action = format!("cannot import '{name}'");
            let reason = format!("zpool import {what} is not supported by this version");
            return Err(Refusal::new(RefusalKind::Unsupported, action, reason));
        }
    }
    Ok(())
}

/// A duration in minutes or seconds; none when it is zero.
fn amount(seconds: u64) -> Option<String> {
    match seconds {
        0 => None,
        1..=120 => Some(format!("{seconds} seconds")),
        _ => Some(format!("{} minutes", (seconds + 30) / 60)),
    }
}

/// The lines about a pool that was rewound, or could be.
#[doc(alias = "zpool_rewind_exclaim")]
fn rewound(name: &str, found: Option<&Rewind>, is_trial: bool) -> Vec<String> {
    let Some(found) = found.filter(|found| !found.is_newest) else {
        return Vec::new();
    };
    let as_of = date(found.timestamp_s);
    let (done, lost) = match is_trial {
        true => (
            format!("Would be able to return {name} to its state as of {as_of}."),
            "Would discard",
        ),
        false => (
            format!("Pool {name} returned to its state as of {as_of}."),
            "Discarded",
        ),
    };
    let lost = amount(found.loss_s)
        .map(|amount| format!("{lost} approximately {amount} of transactions."));
    std::iter::once(done).chain(lost).collect()
}

/// The lines of `zpool import` for a missing log vdev, with its devices.
fn missing_log(root: &VdevConfig, name: &str) -> Vec<String> {
    let name_of = |vdev: &VdevConfig| vdev_name(vdev.kind, vdev.id, vdev.guid, vdev.path.as_ref());
    let top = root.children.iter().find(|top| name_of(top) == name);
    let children = top.map_or(&[][..], |top| &top.children);
    let children = children
        .iter()
        .map(|child| format!("\t      {}", name_of(child)));
    std::iter::once(format!("\t    {name} [log]"))
        .chain(children)
        .collect()
}

/// The lines about intent logs that could not be read.
fn given_up_logs(pool: &Pool) -> Vec<String> {
    let warning = |dataset: &String| {
        format!(
            "the intent log of '{dataset}' could not be read and was given up: \
             what applications were promised in the last seconds before the pool was last in use may be lost"
        )
    };
    pool.given_up_logs().iter().map(warning).collect()
}

fn name_is_taken(action: String) -> Refusal {
    let reason = "a pool with that name already exists";
    let hint = "use the form 'zpool import <pool | id> <newpool>' to give it a new name";
    Refusal::new(RefusalKind::Exists, action, reason).with_hint(hint)
}

/// The refusal of a pool with `multihost` that another host uses.
fn in_use_elsewhere(candidate: &CandidatePool, action: String) -> Refusal {
    let facts = &candidate.facts;
    let host = match facts.host_name.is_empty() {
        true => "<unknown>".to_string(),
        false => facts.host_name.to_string(),
    };
    let id = facts.host_id;
    let reason = format!("pool is imported on host '{host}' (hostid={id:x}).");
    let cure = "Export the pool on the other system, then run 'zpool import'.";
    Refusal::new(RefusalKind::OtherHost, action, reason).with_hint(cure)
}
