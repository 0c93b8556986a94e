//! Checks of devices for a pool, and the vdevs that a layout makes.
//!
//! A device that belongs to a pool that is open here is never taken. One that belongs to another
//! pool, or has another file system on it, is taken with `-f` only. All objections are listed, not
//! only the first.

use super::replication;
use crate::administrator::Administrator;
use crate::messages::pool::{VdevKind as Kind, VdevRole, VdevSpec};
use crate::messages::{Refusal, RefusalKind};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use tarn_engine::engine::OpenPool;
use tarn_engine::importing::own_mounts::lies_on_own_mount;
use tarn_host::{FileKind, Host, OpenMode};
use tarn_ondisk::units::Guid;
use tarn_pool::NewVdev;
use tarn_vdev::in_use::{LabelledUse, foreign_format, labelled_use};
use tarn_vdev::sizes::{SectorShifts, choose_ashift};
use tarn_vdev::{PoolState, VdevConfig, VdevKind, Window, open_window};

/// Smallest device that is taken.
#[doc(alias = "SPA_MINDEVSIZE")]
pub(crate) const DEVICE_BYTES_MIN: u64 = 64 << 20;

/// The reason against a device that is given twice, or is a hot spare of the pool already.
pub(crate) const SAME_DEVICE: &str = "one or more vdevs refer to the same device, or one of\n\
                the devices is part of an active md or lvm device";

/// The vdevs that a layout makes.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// Top-level vdevs.
    pub(crate) vdevs: Vec<NewVdev>,
    /// Hot spares.
    pub(crate) spares: Vec<VdevConfig>,
    /// Cache devices.
    pub(crate) caches: Vec<VdevConfig>,
}

/// The command that asks, as far as the checks of devices need it.
pub(crate) struct Asking<'a> {
    /// `cannot create 'tank'`.
    pub(crate) action: &'a str,
    /// `-f`.
    pub(crate) force: bool,
    /// The use of a device in the pools that are open here.
    pub(crate) use_here: &'a dyn Fn(&LabelledUse) -> UseHere,
    /// The dataset of this daemon on whose mount a path lies, if it does.
    pub(crate) own_mount: &'a dyn Fn(&Path) -> Option<String>,
    /// How redundant the vdevs must be.
    pub(crate) redundancy: Redundancy<'a>,
}

/// The use of a device with a label in the pools that are open here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UseHere {
    /// Its pool is not open.
    NotOpen,
    /// It is a member of an open pool.
    Member,
    /// It was a member, and was offlined or removed while it could not be written, so its label is
    /// out of date.
    Left,
    /// It is a hot spare or cache device of this open pool. Its label names no pool.
    Beside(String),
}

impl Administrator {
    /// The use of a device with this label in the pools that are open here.
    pub(crate) fn use_here(&self, found: &LabelledUse) -> UseHere {
        let pools = self.engine.pools();
        if found.state.is_auxiliary() {
            let has_it = |open: &&Arc<OpenPool>| {
                let devices = open.pool.vdevs().auxiliary();
                devices.iter().any(|vdev| vdev.guid == found.guid)
            };
            return match pools.iter().find(has_it) {
                Some(open) => UseHere::Beside(open.pool.name().to_string()),
                None => UseHere::NotOpen,
            };
        }
        let is_its_pool = |pool: &&Arc<OpenPool>| Some(pool.pool.facts().guid) == found.pool_guid;
        match pools.iter().find(is_its_pool) {
            None => UseHere::NotOpen,
            Some(open) => {
                let root = open.pool.vdevs().config();
                match root.leaves().iter().any(|leaf| leaf.guid == found.guid) {
                    true => UseHere::Member,
                    false => UseHere::Left,
                }
            }
        }
    }
}

/// The redundancy that top-level vdevs must have.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Redundancy<'a> {
    /// Any.
    Any,
    /// All alike, and like the vdevs of an existing pool.
    Even(Option<&'a VdevConfig>),
}

/// Checks all devices of a layout, and makes vdevs of it.
///
/// # Errors
/// All objections.
pub(crate) fn check(
    host: &Host,
    specs: &[VdevSpec],
    asking: &Asking<'_>,
) -> Result<Layout, Refusal> {
    if let Some(reason) = specs.iter().find_map(misshapen) {
        let action = "invalid vdev specification";
        return Err(Refusal::new(RefusalKind::Invalid, action, reason));
    }
    let mut objections = Vec::new();
    let mut seen = BTreeSet::new();
    let mut paths = Vec::new();
    specs.iter().for_each(|spec| collect(spec, &mut paths));
    for (path, role) in &paths {
        if !seen.insert(host.resolve(Path::new(path))) {
            return Err(Refusal::new(
                RefusalKind::Invalid,
                asking.action,
                SAME_DEVICE,
            ));
        }
        if let Some(dataset) = (asking.own_mount)(Path::new(path)) {
            return Err(lies_on_own_mount(asking.action, path, &dataset));
        }
        let window = open(host, path)?;
        if window.size_bytes() < DEVICE_BYTES_MIN {
            let reason = "one or more devices is less than the minimum size (64M)";
            return Err(Refusal::new(RefusalKind::Invalid, asking.action, reason));
        }
        objections.extend(objection(path, *role, &window, asking));
    }
    refuse(objections, asking)?;
    let layout = assemble(specs, asking.action)?;
    if let Redundancy::Even(current) = asking.redundancy {
        refuse(
            replication::objections(host, current, &layout.vdevs),
            asking,
        )?;
    }
    Ok(layout)
}

/// Most members of a RAID-Z vdev.
#[doc(alias = "VDEV_RAIDZ_MAXWIDTH")]
const RAIDZ_MEMBERS_MAX: usize = 255;

/// What is wrong with the shape of a vdev. `zpool` checks the same, but a request may come from
/// another client.
fn misshapen(spec: &VdevSpec) -> Option<String> {
    let (word, least) = match spec.kind {
        Kind::Leaf => {
            let is_leaf = spec.path.is_some() && spec.children.is_empty();
            return (!is_leaf).then(|| "a device has a path and no members".to_string());
        }
        // dRAID is refused by name later.
        Kind::Draid => return None,
        Kind::Mirror => ("mirror", 2),
        Kind::Raidz1 => ("raidz1", 2),
        Kind::Raidz2 => ("raidz2", 3),
        Kind::Raidz3 => ("raidz3", 4),
    };
    let count = spec.children.len();
    if count < least {
        return Some(format!("{word} requires at least {least} devices"));
    }
    if spec.kind != Kind::Mirror && count > RAIDZ_MEMBERS_MAX {
        return Some(format!(
            "{word} supports no more than {RAIDZ_MEMBERS_MAX} devices"
        ));
    }
    if spec.path.is_some() || spec.children.iter().any(|child| child.kind != Kind::Leaf) {
        return Some(format!("{word} has devices as members, and no path"));
    }
    spec.children.iter().find_map(misshapen)
}

/// Lists all objections, if there are any.
fn refuse(objections: Vec<String>, asking: &Asking<'_>) -> Result<(), Refusal> {
    if !objections.is_empty() {
        let hint = match asking.force {
            true => "the following errors must be manually repaired:",
            false => "use '-f' to override the following errors:",
        };
        let mut refusal = Refusal::new(RefusalKind::Busy, "", "invalid vdev specification");
        refusal = refusal.with_hint(hint);
        return Err(objections.into_iter().fold(refusal, Refusal::with_hint));
    }
    Ok(())
}

/// The sector shift that a new vdev gets by default; none where its devices cannot be opened.
pub(crate) fn natural_ashift(host: &Host, vdev: &VdevConfig) -> Option<u32> {
    let mut sectors = Vec::new();
    for leaf in vdev.leaves() {
        let path = leaf.path.as_ref()?.as_str()?;
        let window = open_window(host, Path::new(path), OpenMode::ReadOnly).ok()?;
        let info = window.info();
        sectors.push(match info.is_block_device {
            true => SectorShifts::from_bytes(
                u64::from(info.logical_sector_bytes),
                u64::from(info.physical_sector_bytes),
            ),
            false => SectorShifts::FILE,
        });
    }
    choose_ashift(&sectors)
}

fn collect<'a>(spec: &'a VdevSpec, paths: &mut Vec<(&'a str, VdevRole)>) {
    if let Some(path) = &spec.path {
        paths.push((path, spec.role));
    }
    spec.children.iter().for_each(|child| collect(child, paths));
}

fn open(host: &Host, path: &str) -> Result<Window, Refusal> {
    let cannot = |why: String| {
        let action = format!("cannot open '{path}'");
        Refusal::new(RefusalKind::Device, action, why)
    };
    match host.file_kind(Path::new(path)) {
        FileKind::Directory => Err(Refusal::new(
            RefusalKind::Invalid,
            format!("cannot use '{path}'"),
            "must be a block device or regular file",
        )),
        FileKind::File | FileKind::BlockDevice => {
            let window = open_window(host, Path::new(path), OpenMode::ReadOnly);
            window.map_err(|error| cannot(error.to_string()))
        }
        FileKind::Other => Err(cannot("No such file or directory".to_string())),
    }
}

/// The objection to a device, if there is one.
fn objection(path: &str, role: VdevRole, window: &Window, asking: &Asking<'_>) -> Option<String> {
    if let Some(found) = labelled_use(window) {
        return labelled_objection(path, role, &found, asking);
    }
    let format = foreign_format(window).filter(|_| !asking.force)?;
    Some(format!("{path} contains a filesystem of type '{format}'"))
}

fn labelled_objection(
    path: &str,
    role: VdevRole,
    found: &LabelledUse,
    asking: &Asking<'_>,
) -> Option<String> {
    let pool = found.pool_name.as_ref().map(ToString::to_string);
    let pool = pool.unwrap_or_default();
    let use_here = (asking.use_here)(found);
    let is_open = use_here == UseHere::Member;
    let state = match found.state {
        // The device's pool was not created to its end, so the device is free.
        PoolState::Active if found.txg.is_zero() && !is_open => return None,
        PoolState::Active | PoolState::Exported if use_here == UseHere::Left => return None,
        // A hot spare in use in one pool can be an idle one of another.
        PoolState::Active if is_open && found.is_spare && role == VdevRole::Spare => return None,
        PoolState::Active if is_open => "active",
        PoolState::Active => "potentially active",
        PoolState::Exported => "exported",
        // Pools can share a hot spare.
        PoolState::Spare if role == VdevRole::Spare => return None,
        PoolState::Spare | PoolState::Cache => {
            let UseHere::Beside(pool) = use_here else {
                return None;
            };
            return Some(match found.state {
                PoolState::Spare => format!("{path} is reserved as a hot spare for pool {pool}"),
                _ => format!("{path} is in use as a cache of pool {pool}"),
            });
        }
        // The pool of the device was destroyed.
        PoolState::Destroyed | PoolState::Other(_) => return None,
    };
    let counts = is_open || !asking.force;
    counts.then(|| format!("{path} is part of {state} pool '{pool}'"))
}

fn assemble(specs: &[VdevSpec], action: &str) -> Result<Layout, Refusal> {
    let mut layout = Layout::default();
    let not_built = |what: &str| {
        let reason = format!("{what} vdevs are not supported by this version of tarn");
        Refusal::new(RefusalKind::Unsupported, action, reason)
    };
    for spec in specs {
        let config = config_of(spec).ok_or_else(|| not_built("dRAID"))?;
        match spec.role {
            VdevRole::Data => layout.vdevs.push(NewVdev {
                config,
                is_log: false,
            }),
            VdevRole::Log => layout.vdevs.push(NewVdev {
                config,
                is_log: true,
            }),
            VdevRole::Spare => layout.spares.push(config),
            VdevRole::Cache if !config.kind.is_leaf() => {
                let reason = "a cache device is a single device";
                return Err(Refusal::new(RefusalKind::Invalid, action, reason));
            }
            VdevRole::Cache => layout.caches.push(config),
            VdevRole::Special => return Err(not_built("special")),
            VdevRole::Dedup => return Err(not_built("dedup")),
        }
    }
    Ok(layout)
}

/// The configuration of a vdev, without guids and sizes. None for unsupported kinds.
fn config_of(spec: &VdevSpec) -> Option<VdevConfig> {
    let kind = match spec.kind {
        Kind::Leaf => VdevKind::File,
        Kind::Mirror => VdevKind::Mirror,
        Kind::Raidz1 => VdevKind::Raidz { parity: 1 },
        Kind::Raidz2 => VdevKind::Raidz { parity: 2 },
        Kind::Raidz3 => VdevKind::Raidz { parity: 3 },
        Kind::Draid => return None,
    };
    let mut config = VdevConfig::new(kind, Guid::ZERO);
    config.path = spec.path.as_deref().map(Into::into);
    for child in &spec.children {
        config.children.push(config_of(child)?);
    }
    Some(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(kind: Kind, members: usize) -> VdevSpec {
        let leaf = |number| VdevSpec {
            kind: Kind::Leaf,
            path: Some(format!("/dev/d{number}")),
            children: Vec::new(),
            role: VdevRole::Data,
        };
        VdevSpec {
            kind,
            path: None,
            children: (0..members).map(leaf).collect(),
            role: VdevRole::Data,
        }
    }

    #[test]
    fn vdevs_with_too_few_members_or_members_of_members_are_refused() {
        for (kind, least) in [
            (Kind::Mirror, 2),
            (Kind::Raidz1, 2),
            (Kind::Raidz2, 3),
            (Kind::Raidz3, 4),
        ] {
            assert_eq!(misshapen(&spec(kind, least)), None);
            for few in 0..least {
                assert!(misshapen(&spec(kind, few)).is_some(), "{kind:?} {few}");
            }
            let mut nested = spec(kind, least);
            nested.children.push(spec(Kind::Mirror, 2));
            assert!(misshapen(&nested).is_some());
        }
        assert!(misshapen(&spec(Kind::Leaf, 0)).is_some(), "it has no path");
        assert!(misshapen(&spec(Kind::Raidz1, 256)).is_some());
    }
}
