//! Refusals of `zpool import`: the cause, and its remedy.
//!
//! # Whose fault it is
//! Unsupported parts of a pool, and limits of the machine (a device that is read-only, in use, or
//! reports errors) are no damage: the refusal names them, and says that the pool is as it was. Only
//! where stored data cannot be decoded does the text say, as OpenZFS does, that a backup is needed.

use crate::engine::Engine;
use crate::inspect::{DEVICE_ERROR, errno_of};
use crate::refusals::{Refusal, RefusalKind, of_task};
use std::path::Path;
use tarn_dataset::error::DatasetError;
use tarn_host::{OpenError as DeviceRefusal, OpenMode};
use tarn_object::ObjectError;
use tarn_object::zap::ZapError;
use tarn_ondisk::features::Feature;
use tarn_pool::{ImportError, Mode, PoolError};
use tarn_vdev::import_search::CandidatePool;
use tarn_vdev::{ConfigError, OpenError, VdevConfig, open_window};

/// The remedy for parts of a pool that this version does not support.
pub const AS_IT_WAS: &str = "The pool is as it was.";

/// The same, where OpenZFS supports them.
pub const OPENZFS_CAN: &str = "The pool is as it was; OpenZFS can import it.";

const READ_ONLY_CURE: &str = "The pool can be imported using '-o readonly=on'.";

impl Engine {
    /// The obstacle to opening a pool's devices, where that is why it could not be imported.
    pub fn obstacle(
        &self,
        error: &ImportError,
        candidate: &CandidatePool,
        mode: Mode,
        action: &str,
    ) -> Option<Refusal> {
        let may_be_devices = matches!(
            error,
            ImportError::NoUberblock | ImportError::Devices(OpenError::Unavailable { .. })
        );
        let leaves = candidate.root.leaves();
        let mut leaves = leaves.iter().filter(|_| may_be_devices);
        leaves.find_map(|leaf| self.obstacle_at(leaf, mode, action))
    }

    fn obstacle_at(&self, leaf: &VdevConfig, mode: Mode, action: &str) -> Option<Refusal> {
        let path = Path::new(leaf.path.as_ref()?.as_str()?);
        let mode = match mode {
            Mode::ReadOnly => OpenMode::ReadOnly,
            Mode::ReadWrite => OpenMode::ReadWriteExclusive,
        };
        let shown = path.display();
        let (reason, detail) = match open_window(&self.host, path, mode).err()? {
            DeviceRefusal::ReadOnly { .. } => {
                let reason = "one or more devices is read only";
                let cure = format!("{shown} cannot be written. {READ_ONLY_CURE}");
                let refusal = Refusal::new(RefusalKind::ReadOnly, action, reason);
                return Some(refusal.with_hint(cure));
            }
            DeviceRefusal::Busy { .. } => {
                let user = match self.host.lock_holder(path) {
                    Some(holder) => holder.to_string(),
                    None => "another process or file system".to_string(),
                };
                let detail = format!("{shown} is in use by {user}.");
                ("one or more devices are already in use", detail)
            }
            DeviceRefusal::PermissionDenied { .. } => {
                let detail = format!("{shown} cannot be opened.");
                ("permission denied", detail)
            }
            _ => return None,
        };
        let refusal = Refusal::new(RefusalKind::Busy, action, reason);
        Some(refusal.with_hint(format!("{detail} {AS_IT_WAS}")))
    }
}

/// Why a pool could not be opened, in OpenZFS's words.
pub fn import_refusal(error: &ImportError, action: String) -> Refusal {
    let unsupported = |reason: String| Refusal::new(RefusalKind::Unsupported, &*action, reason);
    match error {
        ImportError::Devices(OpenError::Unavailable { .. }) => {
            let reason = "one or more devices is currently unavailable";
            Refusal::new(RefusalKind::Device, action, reason)
        }
        ImportError::Devices(OpenError::Unsupported { name, what }) => {
            let reason = format!("vdev {name} is not supported by this version of tarn: {what}");
            unsupported(reason).with_hint(OPENZFS_CAN)
        }
        ImportError::Devices(OpenError::Config(ConfigError::UnknownType { .. }))
        | ImportError::Configuration(ConfigError::UnknownType { .. }) => {
            unsupported(error.to_string()).with_hint(AS_IT_WAS)
        }
        ImportError::Version { .. } => {
            unsupported("pool is formatted using an unsupported ZFS version".to_string())
        }
        ImportError::UnsupportedFeatures { features } => with_features(&action, features, None),
        ImportError::OnlyReadable { features } => {
            let cure = "All unsupported features are only required for writing to the pool.\n\
                        The pool can be imported using '-o readonly=on'.";
            with_features(&action, features, Some(cure))
        }
        ImportError::NoHostId => {
            let reason = "pool has the multihost property on and the\n\
                          system's hostid is not set. Set a unique system hostid with the \
                          zgenhostid(8) command.";
            Refusal::new(RefusalKind::OtherHost, action, reason)
        }
        ImportError::NoCheckpoint => Refusal::new(RefusalKind::NotFound, action, error.to_string()),
        ImportError::CallerGone => Refusal::new(RefusalKind::Invalid, action, error.to_string()),
        ImportError::Deduplicated { .. } => {
            let reason = "deduplicated blocks can be read and not be freed";
            unsupported(reason.to_string()).with_hint(READ_ONLY_CURE)
        }
        ImportError::IntentLog { dataset, why } => {
            let reason = format!("the intent log of '{dataset}' cannot be replayed: {why}");
            unsupported(reason)
                .with_hint(format!("{AS_IT_WAS} {READ_ONLY_CURE}"))
                .with_hint("OpenZFS may be able to replay the log; '-o discardlog' gives it up.")
        }
        ImportError::WrittenElsewhere | ImportError::InUseElsewhere => {
            Refusal::new(RefusalKind::OtherHost, action, error.to_string())
        }
        ImportError::NoSpaceMaps { .. } => {
            let refusal = Refusal::new(RefusalKind::Corrupt, action, error.to_string());
            refusal.with_hint(READ_ONLY_CURE)
        }
        ImportError::SectorsTooLarge | ImportError::Open(_) => {
            Refusal::new(RefusalKind::Device, action, error.to_string()).with_hint(AS_IT_WAS)
        }
        ImportError::Sync(cause) => of_task(action, cause),
        ImportError::Pool(cause) if is_of_devices(cause) => {
            let cure = "A device reports errors: make sure that all are connected and work.";
            Refusal::new(RefusalKind::Device, action, "I/O error")
                .with_hint(format!("\t{cure}"))
                .with_hint(format!("\t({error})"))
        }
        damaged => {
            let refusal = Refusal::new(RefusalKind::Corrupt, action, "I/O error");
            let cure = "\tDestroy and re-create the pool from\n\ta backup source.";
            refusal.with_hint(cure).with_hint(format!("\t({damaged})"))
        }
    }
}

/// Adds the features that prevent an import to its refusal.
fn with_features(action: &str, features: &[String], cure: Option<&str>) -> Refusal {
    let reason = "unsupported version or feature";
    let head = "This pool uses the following feature(s) not supported by this system:";
    let refusal = Refusal::new(RefusalKind::Unsupported, action, reason).with_hint(head);
    let lines = features.iter().map(|guid| format!("\t{}", described(guid)));
    let refusal = lines.fold(refusal, Refusal::with_hint);
    refusal.with_hint(cure.unwrap_or_else(|| remedy_for(features)))
}

/// A feature as `guid (description)`.
pub fn described(guid: &str) -> String {
    match Feature::from_guid(guid) {
        Some(feature) => format!("{guid} ({})", feature.facts().description),
        None => guid.to_string(),
    }
}

/// The remedy for a pool with these features: OpenZFS can import it if it knows them all.
pub fn remedy_for(features: &[String]) -> &'static str {
    let is_known = |guid: &String| Feature::from_guid(guid).is_some();
    match features.iter().all(is_known) {
        true => OPENZFS_CAN,
        false => AS_IT_WAS,
    }
}

/// Whether devices failed, rather than their contents.
pub fn is_of_devices(error: &PoolError) -> bool {
    let of_object = |error: &ObjectError| match error {
        ObjectError::Read { why, .. } => errno_of(why) == DEVICE_ERROR,
        _ => false,
    };
    let of_zap = |error: &ZapError| match error {
        ZapError::Block { cause, .. } => cause.downcast_ref().is_some_and(of_object),
        _ => false,
    };
    match error {
        PoolError::Object { cause, .. }
        | PoolError::Dataset(DatasetError::Object { cause, .. }) => of_object(cause),
        PoolError::Zap { cause, .. } | PoolError::Dataset(DatasetError::Zap { cause, .. }) => {
            of_zap(cause)
        }
        PoolError::Write(_) | PoolError::Sync(_) | PoolError::Free(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_pool::TaskError;

    /// Errors of unsupported parts and of the machine.
    fn of_others() -> Vec<ImportError> {
        let device = || tarn_host::OpenError::Busy {
            path: "/dev/x".into(),
        };
        vec![
            ImportError::Devices(OpenError::Unsupported {
                name: "draid1-0".into(),
                what: "dRAID",
            }),
            ImportError::Configuration(ConfigError::UnknownType { name: "new".into() }),
            ImportError::Devices(OpenError::Unavailable { vdevs: Vec::new() }),
            ImportError::Open(device()),
            ImportError::Version { version: 6000 },
            ImportError::UnsupportedFeatures {
                features: vec!["org.openzfs:draid".into(), "org.example:new".into()],
            },
            ImportError::OnlyReadable {
                features: vec!["org.example:new".into()],
            },
            ImportError::Deduplicated {
                table: "DDT-sha256-zap-unique".into(),
            },
            ImportError::IntentLog {
                dataset: "tank/a".into(),
                why: "a record of an unknown kind".into(),
            },
            ImportError::NoHostId,
            ImportError::WrittenElsewhere,
            ImportError::SectorsTooLarge,
            ImportError::Sync(TaskError::ReadOnly),
            ImportError::NoSpaceMaps {
                vdev: "mirror-0".into(),
            },
        ]
    }

    #[test]
    fn only_damage_leads_to_the_advice_to_destroy() {
        let words = |error: &ImportError| {
            import_refusal(error, "cannot import 'tank'".to_string()).to_string()
        };
        for error in of_others() {
            let words = words(&error);
            assert!(!words.contains("Destroy"), "{error:?}: {words}");
        }
        let damaged = words(&ImportError::NoUberblock);
        assert!(damaged.contains("Destroy and re-create"), "{damaged}");
    }

    #[test]
    fn a_feature_that_openzfs_has_is_left_to_it() {
        let known = ["org.openzfs:draid".to_string()];
        assert_eq!(remedy_for(&known), OPENZFS_CAN);
        let known = [known[0].clone(), "org.example:new".to_string()];
        assert_eq!(remedy_for(&known), AS_IT_WAS);
        assert_eq!(described(&known[1]), "org.example:new");
    }
}
