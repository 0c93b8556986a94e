//! `zpool initialize` and `zpool trim`: commands for devices, and how far they are.
//!
//! A device that is refused leaves the others to be: they are begun all the same. A name that no
//! device has refuses the whole command.

use super::vdev_change::{FoundVdev, NO_SUCH_DEVICE, find_vdev};
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::pool::{
    FreeSpaceCommand, FreeSpaceReply, FreeSpaceState, FreeSpaceStatus, Initialize, Trim, VdevStatus,
};
use crate::messages::{Refusal, RefusalKind};
use tarn_engine::engine::OpenPool;
use tarn_engine::refusals::of_task;
use tarn_ondisk::units::Guid;
use tarn_pool::Pool;
use tarn_pool::initialize_trim::{FreeSpaceWork, WorkCommand, WorkRefusal, WorkState, WorkStatus};
use tarn_probe::Operation;
use tarn_vdev::AuxiliaryKind;
use tarn_vdev::health::vdev_name;

/// What is asked of which devices.
struct Asked<'a> {
    name: &'a str,
    devices: &'a [String],
    kind: FreeSpaceWork,
    command: WorkCommand,
}

/// A device as it was named.
struct Named {
    name: String,
    guid: Guid,
}

impl Administrator {
    #[doc(alias = "zfs_ioc_pool_initialize")]
    pub(crate) fn initialize(
        &self,
        call: &Call,
        request: &Initialize,
        operation: &Operation,
    ) -> Result<FreeSpaceReply, Refusal> {
        let asked = Asked {
            name: &request.name,
            devices: &request.devices,
            kind: FreeSpaceWork::Initialize,
            command: command_of(request.command, 0, false),
        };
        let refused = self.command_free_space(call, &asked, operation)?;
        Ok(refused.0)
    }

    #[doc(alias = "zfs_ioc_pool_trim")]
    pub(crate) fn trim(
        &self,
        call: &Call,
        request: &Trim,
        operation: &Operation,
    ) -> Result<FreeSpaceReply, Refusal> {
        if request.command == FreeSpaceCommand::Forget {
            let reason = "trimming is not forgotten";
            return Err(Refusal::new(RefusalKind::Invalid, "cannot trim", reason));
        }
        let asked = Asked {
            name: &request.name,
            devices: &request.devices,
            kind: FreeSpaceWork::Trim,
            command: command_of(request.command, request.rate, request.secure),
        };
        let (mut reply, unsupported) = self.command_free_space(call, &asked, operation)?;
        // Devices that cannot are not told of where all devices of the pool were meant.
        if request.devices.is_empty() && !request.secure {
            let count = reply.devices.len() + reply.refused.len();
            if !unsupported.is_empty() && unsupported.len() == count {
                let reason = "no devices in pool support trim operations";
                return Err(Refusal::new(
                    RefusalKind::Unsupported,
                    "cannot trim",
                    reason,
                ));
            }
            let is_told = |refusal: &Refusal| !unsupported.contains(&refusal.action);
            reply.refused.retain(is_told);
        }
        Ok(reply)
    }

    /// Gives the command to each device. Besides the reply, the actions of refusals of devices that
    /// do not support it.
    fn command_free_space(
        &self,
        call: &Call,
        asked: &Asked<'_>,
        operation: &Operation,
    ) -> Result<(FreeSpaceReply, Vec<String>), Refusal> {
        let open = self.engine.require_pool(asked.name)?;
        let _turn = self.engine.turn(&open)?;
        let verb = asked.kind.name();
        let devices = match asked.devices {
            [] => all_devices(&open),
            names => match named_devices(&open, names, verb) {
                Ok(devices) => devices,
                Err(refused) => {
                    let devices = Vec::new();
                    return Ok((FreeSpaceReply { devices, refused }, Vec::new()));
                }
            },
        };
        let (mut reply, mut unsupported) = (FreeSpaceReply::default(), Vec::new());
        for device in devices {
            let (guid, pool) = (device.guid, &open.pool);
            match pool.command_work(guid, asked.kind, asked.command, operation) {
                Ok(()) => reply.devices.push(guid.get()),
                Err(why) => {
                    let action = format!("cannot {verb} '{}'", device.name);
                    if matches!(why, WorkRefusal::Unsupported) {
                        unsupported.push(action.clone());
                    }
                    reply.refused.push(refusal_of(action, asked.kind, &why));
                }
            }
        }
        if !reply.devices.is_empty() {
            let stored = open.pool.sync_all(operation);
            stored.map_err(|error| of_task("operation failed", &error))?;
            self.record_command(call, asked.name, operation);
        }
        Ok((reply, unsupported))
    }
}

const fn command_of(command: FreeSpaceCommand, rate: u64, is_secure: bool) -> WorkCommand {
    match command {
        FreeSpaceCommand::Start => WorkCommand::Start { rate, is_secure },
        FreeSpaceCommand::Cancel => WorkCommand::Cancel,
        FreeSpaceCommand::Suspend => WorkCommand::Suspend,
        FreeSpaceCommand::Forget => WorkCommand::Forget,
    }
}

/// All devices of the tree.
#[doc(alias = "zpool_collect_leaves")]
fn all_devices(open: &OpenPool) -> Vec<Named> {
    let root = open.pool.vdevs().config();
    let leaves = root.leaves().into_iter();
    let named = leaves.map(|leaf| Named {
        name: vdev_name(leaf.kind, leaf.id, leaf.guid, leaf.path.as_ref()),
        guid: leaf.guid,
    });
    named.collect()
}

/// The devices of these names, or a refusal for each name that no device of the tree has.
#[doc(alias = "zpool_translate_vdev_guids")]
fn named_devices(
    open: &OpenPool,
    names: &[String],
    verb: &str,
) -> Result<Vec<Named>, Vec<Refusal>> {
    let (mut devices, mut refused) = (Vec::new(), Vec::new());
    for name in names {
        let reason = match find_vdev(open, name) {
            Some(FoundVdev::Tree(vdev)) => {
                devices.push(Named {
                    name: name.clone(),
                    guid: vdev.config.guid,
                });
                continue;
            }
            Some(FoundVdev::Auxiliary(AuxiliaryKind::Spare, _)) => {
                "device is reserved as a hot spare"
            }
            Some(FoundVdev::Auxiliary(AuxiliaryKind::Cache, _)) => "device is in use as a cache",
            None => NO_SUCH_DEVICE,
        };
        let action = format!("cannot {verb} '{name}'");
        refused.push(Refusal::new(RefusalKind::NotFound, action, reason));
    }
    match refused.is_empty() {
        true => Ok(devices),
        false => Err(refused),
    }
}

fn refusal_of(action: String, kind: FreeSpaceWork, why: &WorkRefusal) -> Refusal {
    let is_trim = kind == FreeSpaceWork::Trim;
    let (kind, reason) = match why {
        WorkRefusal::NoDevice => (RefusalKind::NotFound, NO_SUCH_DEVICE),
        WorkRefusal::Busy if is_trim => (RefusalKind::Busy, "currently trimming"),
        WorkRefusal::Busy => (RefusalKind::Busy, "currently initializing"),
        WorkRefusal::NotActive if is_trim => (RefusalKind::NotFound, "there is no active trim"),
        WorkRefusal::NotActive => (RefusalKind::NotFound, "there is no active initialization"),
        WorkRefusal::Unsupported => (
            RefusalKind::Unsupported,
            "trim operations are not supported by this device",
        ),
        WorkRefusal::Pool(error) => return of_task(action, error),
        _ => (RefusalKind::Invalid, "invalid device"),
    };
    Refusal::new(kind, action, reason)
}

/// Adds how far devices are initialized and trimmed, and whether a scan writes to them, to their
/// status.
pub(super) fn add_status(pool: &Pool, vdev: &mut VdevStatus) {
    if vdev.children.is_empty() {
        let guid = Guid::from(vdev.guid);
        let status = |kind| pool.work_status(guid, kind).and_then(status_of);
        vdev.initialization = status(FreeSpaceWork::Initialize);
        vdev.trim = status(FreeSpaceWork::Trim);
        vdev.scan_note = pool.scan_of_leaf(guid).map(|scan| scan.text().to_string());
        vdev.is_resilver_deferred = pool.is_resilver_deferred(guid);
        let leaf = pool.vdevs().leaf(guid);
        vdev.scan_written_bytes = leaf.as_ref().map_or(0, |leaf| leaf.scan_written_bytes());
        vdev.trim_supported = leaf.is_some_and(|leaf| leaf.can_discard());
    }
    vdev.children
        .iter_mut()
        .for_each(|child| add_status(pool, child));
}

fn status_of(status: WorkStatus) -> Option<FreeSpaceStatus> {
    Some(FreeSpaceStatus {
        state: match status.state {
            WorkState::None => return None,
            WorkState::Active => FreeSpaceState::Active,
            WorkState::Canceled => FreeSpaceState::Canceled,
            WorkState::Suspended => FreeSpaceState::Suspended,
            WorkState::Complete => FreeSpaceState::Complete,
        },
        time_s: status.action_time_s,
        done_bytes: status.done_bytes,
        estimated_bytes: status.estimated_bytes,
        errors: status.errors,
    })
}
