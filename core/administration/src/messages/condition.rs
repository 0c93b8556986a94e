//! Conditions of a pool, with the texts that `zpool status` and `zpool import` print.
//!
//! The engine finds the condition; its texts are kept here once, so that a program can branch on
//! the condition while people read the text. Lines of a text are separated by a newline and a tab,
//! as they are printed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The most serious condition of a pool. The variants are not in the order of seriousness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Condition {
    /// A device cannot be opened, and the others have all data.
    MissingReplicated,
    /// A device cannot be opened, and data is missing with it.
    MissingUnreplicated,
    /// A label is missing or bad, and the others have all data.
    CorruptLabelReplicated,
    /// A label is missing or bad, and data is missing with it.
    CorruptLabelUnreplicated,
    /// The guids of the devices found do not sum up: a whole top-level vdev is missing.
    BadGuidSum,
    /// The pool's own structure cannot be read.
    CorruptPool,
    /// Files are damaged.
    CorruptData,
    /// A device had errors that were corrected.
    FailingDevice,
    /// The pool's version is newer than this program.
    VersionNewer,
    /// The pool was last used by another host.
    HostIdMismatch,
    /// Another host has the pool imported now.
    HostIdActive,
    /// The pool has `multihost` on, and this host has no id.
    HostIdRequired,
    /// Suspended after I/O failed, waiting.
    IoFailureWait,
    /// Suspended after I/O failed, refusing.
    IoFailureContinue,
    /// Suspended because the activity writes of `multihost` failed.
    IoFailureMultihost,
    /// The intent log cannot be read.
    BadLog,
    /// An active feature is unknown, and nothing can be read without it.
    UnsupportedFeatureRead,
    /// An active feature is unknown, and nothing can be written without it.
    UnsupportedFeatureWrite,
    /// A device is faulted, and the others have all data.
    FaultedReplicated,
    /// A device is faulted, and data is missing with it.
    FaultedUnreplicated,
    /// Encrypted datasets are of an old format that must be replaced (errata 3 of OpenZFS).
    ErrataOldEncryption,
    /// Encrypted snapshots and bookmarks lack what receiving relies on (errata 4 of OpenZFS).
    ErrataNoIvSets,
    /// The pool's version is older than feature flags.
    VersionOlder,
    /// Features that could be enabled are not.
    FeaturesDisabled,
    /// The file that `compatibility` names cannot be read.
    CompatibilityError,
    /// A feature outside the `compatibility` set is enabled.
    IncompatibleFeature,
    /// A device is being resilvered.
    Resilvering,
    /// A device was taken offline.
    OfflineDevice,
    /// A device was removed.
    RemovedDevice,
    /// A device was rebuilt and its checksums were not verified.
    RebuildScrub,
    /// A device has larger sectors than its vdev was made for.
    NonNativeAshift,
}

impl Condition {
    /// True for conditions that `zpool status -x` does not count as problems.
    pub fn is_benign(self) -> bool {
        matches!(
            self,
            Condition::VersionOlder
                | Condition::FeaturesDisabled
                | Condition::CompatibilityError
                | Condition::IncompatibleFeature
        )
    }

    /// The message id for `see:`, where there is one.
    pub fn message_id(self) -> Option<&'static str> {
        Some(match self {
            Condition::MissingReplicated => "ZFS-8000-2Q",
            Condition::MissingUnreplicated => "ZFS-8000-3C",
            Condition::CorruptLabelReplicated => "ZFS-8000-4J",
            Condition::CorruptLabelUnreplicated => "ZFS-8000-5E",
            Condition::BadGuidSum => "ZFS-8000-6X",
            Condition::CorruptPool => "ZFS-8000-72",
            Condition::CorruptData => "ZFS-8000-8A",
            Condition::FailingDevice => "ZFS-8000-9P",
            Condition::VersionNewer => "ZFS-8000-A5",
            Condition::HostIdMismatch | Condition::HostIdActive | Condition::HostIdRequired => {
                "ZFS-8000-EY"
            }
            Condition::IoFailureWait => "ZFS-8000-HC",
            Condition::IoFailureContinue => "ZFS-8000-JQ",
            Condition::IoFailureMultihost => "ZFS-8000-MM",
            Condition::BadLog => "ZFS-8000-K4",
            Condition::ErrataOldEncryption | Condition::ErrataNoIvSets => "ZFS-8000-ER",
            _ => return None,
        })
    }

    /// The `status:` text of `zpool status`. For unsupported features their list follows.
    pub fn status(self) -> &'static str {
        match self {
            Condition::MissingReplicated => {
                "One or more devices could not be opened.  Sufficient replicas exist for\n\t\
                 the pool to continue functioning in a degraded state."
            }
            Condition::MissingUnreplicated => {
                "One or more devices could not be opened.  There are insufficient\n\t\
                 replicas for the pool to continue functioning."
            }
            Condition::CorruptLabelReplicated => {
                "One or more devices could not be used because the label is missing or\n\t\
                 invalid.  Sufficient replicas exist for the pool to continue\n\t\
                 functioning in a degraded state."
            }
            Condition::CorruptLabelUnreplicated => {
                "One or more devices could not be used because the label is missing \n\t\
                 or invalid.  There are insufficient replicas for the pool to continue\n\t\
                 functioning."
            }
            Condition::BadGuidSum | Condition::CorruptPool => {
                "The pool metadata is incomplete or corrupted and the pool cannot be opened."
            }
            Condition::CorruptData => {
                "One or more devices has experienced an error resulting in data\n\t\
                 corruption.  Applications may be affected."
            }
            Condition::FailingDevice => {
                "One or more devices has experienced an unrecoverable error.  An\n\t\
                 attempt was made to correct the error.  Applications are unaffected."
            }
            Condition::VersionNewer => {
                "The pool has been upgraded to a newer, incompatible on-disk version.\n\t\
                 The pool cannot be accessed on this system."
            }
            Condition::HostIdMismatch | Condition::HostIdActive | Condition::HostIdRequired => {
                "Mismatch between pool hostid and system hostid on imported pool.\n\t\
                 This pool was previously imported into a system with a different hostid,\n\t\
                 and then was verbatim imported into this system."
            }
            Condition::IoFailureWait | Condition::IoFailureContinue => {
                "One or more devices are faulted in response to IO failures."
            }
            Condition::IoFailureMultihost => {
                "The pool is suspended because multihost writes failed or were delayed;\n\t\
                 another system could import the pool undetected."
            }
            Condition::BadLog => {
                "An intent log record could not be read.\n\t\
                 Waiting for administrator intervention to fix the faulted pool."
            }
            Condition::UnsupportedFeatureRead => {
                "The pool cannot be accessed on this system because it uses the\n\t\
                 following feature(s) not supported on this system:"
            }
            Condition::UnsupportedFeatureWrite => {
                "The pool can only be accessed in read-only mode on this system. It\n\t\
                 cannot be accessed in read-write mode because it uses the following\n\t\
                 feature(s) not supported on this system:"
            }
            Condition::FaultedReplicated => {
                "One or more devices are faulted in response to persistent errors.\n\t\
                 Sufficient replicas exist for the pool to continue functioning in a\n\t\
                 degraded state."
            }
            Condition::FaultedUnreplicated => {
                "One or more devices are faulted in response to persistent errors.  There are \
                 insufficient replicas for the pool to\n\tcontinue functioning."
            }
            Condition::ErrataOldEncryption => {
                "Errata #3 detected.\n\t\
                 Existing encrypted datasets contain an on-disk incompatibility\n\t\
                 which needs to be corrected."
            }
            Condition::ErrataNoIvSets => {
                "Errata #4 detected.\n\t\
                 Existing encrypted snapshots and bookmarks contain an on-disk\n\t\
                 incompatibility. This may cause on-disk corruption if they are used\n\t\
                 with 'zfs recv'."
            }
            Condition::VersionOlder => {
                "The pool is formatted using a legacy on-disk format.  The pool can\n\t\
                 still be used, but some features are unavailable."
            }
            Condition::FeaturesDisabled => {
                "Some supported and requested features are not enabled on the pool.\n\t\
                 The pool can still be used, but some features are unavailable."
            }
            Condition::CompatibilityError => {
                "This pool has a compatibility list specified, but it could not be\n\t\
                 read/parsed at this time. The pool can still be used, but this\n\t\
                 should be investigated."
            }
            Condition::IncompatibleFeature => {
                "One or more features are enabled on the pool despite not being\n\t\
                 requested by the 'compatibility' property."
            }
            Condition::Resilvering => {
                "One or more devices is currently being resilvered.  The pool will\n\t\
                 continue to function, possibly in a degraded state."
            }
            Condition::OfflineDevice => {
                "One or more devices has been taken offline by the administrator.\n\t\
                 Sufficient replicas exist for the pool to continue functioning in a\n\t\
                 degraded state."
            }
            Condition::RemovedDevice => {
                "One or more devices has been removed by the administrator.\n\t\
                 Sufficient replicas exist for the pool to continue functioning in a\n\t\
                 degraded state."
            }
            Condition::RebuildScrub => {
                "One or more devices have been sequentially resilvered, scrubbing\n\t\
                 the pool is recommended."
            }
            Condition::NonNativeAshift => {
                "One or more devices are configured to use a non-native block size.\n\t\
                 Expect reduced performance."
            }
        }
    }

    /// The `action:` text of `zpool status`; empty where the engine composes it.
    pub fn action(self) -> &'static str {
        match self {
            Condition::MissingReplicated | Condition::MissingUnreplicated => {
                "Attach the missing device and online it using 'zpool online'."
            }
            Condition::CorruptLabelReplicated => "Replace the device using 'zpool replace'.",
            Condition::CorruptLabelUnreplicated
            | Condition::BadGuidSum
            | Condition::CorruptPool => "Destroy and re-create the pool from\n\ta backup source.",
            Condition::CorruptData => {
                "Restore the file in question if possible.  Otherwise restore the\n\t\
                 entire pool from backup."
            }
            Condition::FailingDevice => {
                "Determine if the device needs to be replaced, and clear the errors\n\t\
                 using 'zpool clear' or replace the device with 'zpool replace'."
            }
            Condition::VersionNewer => {
                "Access the pool from a system running more recent software."
            }
            Condition::HostIdMismatch | Condition::HostIdActive | Condition::HostIdRequired => {
                "Export this pool on all systems on which it is imported.\n\t\
                 Then import it to correct the mismatch."
            }
            Condition::IoFailureWait | Condition::IoFailureContinue => {
                "Make sure the affected devices are connected, then run 'zpool clear'."
            }
            Condition::IoFailureMultihost => {
                "Make sure the pool's devices are connected, then reboot your system and\n\t\
                 import the pool or run 'zpool clear' to resume the pool."
            }
            Condition::BadLog => {
                "Either restore the affected device(s) and run 'zpool online',\n\t\
                 or ignore the intent log records by running 'zpool clear'."
            }
            Condition::UnsupportedFeatureRead => {
                "Access the pool from a system that supports the required feature(s)."
            }
            Condition::UnsupportedFeatureWrite => {
                "The pool cannot be accessed in read-write mode. Import the pool with\n\t\
                 \"-o readonly=on\", or access the pool from a system that supports the\n\t\
                 required feature(s)."
            }
            Condition::FaultedReplicated => {
                "Replace the faulted device, or use 'zpool clear' to mark the device\n\trepaired."
            }
            Condition::FaultedUnreplicated => {
                "Destroy and re-create the pool from a backup source.  Manually marking the device\n\t\
                 repaired using 'zpool clear' may allow some data to be recovered."
            }
            Condition::ErrataOldEncryption => {
                "To correct the issue backup existing encrypted datasets to new\n\t\
                 encrypted datasets and destroy the old ones. 'zfs mount -o ro' can\n\t\
                 be used to temporarily mount existing encrypted datasets readonly."
            }
            Condition::ErrataNoIvSets => {
                "To correct the issue, enable the bookmark_v2 feature. No additional\n\t\
                 action is needed if there are no encrypted snapshots or bookmarks.\n\t\
                 If preserving the encrypted snapshots and bookmarks is required, use\n\t\
                 a non-raw send to backup and restore them. Alternately, they may be\n\t\
                 removed to resolve the incompatibility."
            }
            Condition::VersionOlder => {
                "Upgrade the pool using 'zpool upgrade'.  Once this is done, the\n\t\
                 pool will no longer be accessible on software that does not support\n\t\
                 feature flags."
            }
            Condition::FeaturesDisabled => {
                "Enable all features using 'zpool upgrade'. Once this is done,\n\t\
                 the pool may no longer be accessible by software that does not support\n\t\
                 the features. See zpool-features(7) for details."
            }
            Condition::CompatibilityError => {
                "Check the value of the 'compatibility' property against the\n\t\
                 appropriate file in /etc/zfs/compatibility.d or \
                 /usr/share/zfs/compatibility.d."
            }
            Condition::IncompatibleFeature => {
                "Consider setting 'compatibility' to an appropriate value, or\n\t\
                 adding needed features to the relevant file in\n\t\
                 /etc/zfs/compatibility.d or /usr/share/zfs/compatibility.d."
            }
            Condition::Resilvering => "Wait for the resilver to complete.",
            Condition::OfflineDevice | Condition::RemovedDevice => {
                "Online the device using 'zpool online' or replace the device with\n\t\
                 'zpool replace'."
            }
            Condition::RebuildScrub => "Use 'zpool scrub' to verify all data checksums.",
            Condition::NonNativeAshift => {
                "Replace affected devices with devices that support the\n\t\
                 configured block size, or migrate data to a properly configured\n\tpool."
            }
        }
    }

    /// The `status:` text of `zpool import`.
    pub fn import_status(self) -> &'static str {
        match self {
            Condition::MissingReplicated
            | Condition::MissingUnreplicated
            | Condition::BadGuidSum => "One or more devices are missing from the system.",
            Condition::CorruptLabelReplicated | Condition::CorruptLabelUnreplicated => {
                "One or more devices contains corrupted data."
            }
            Condition::CorruptData => "The pool data is corrupted.",
            Condition::OfflineDevice | Condition::RemovedDevice => {
                "One or more devices are offlined."
            }
            Condition::CorruptPool => "The pool metadata is incomplete or corrupted.",
            Condition::VersionOlder => "The pool is formatted using a legacy on-disk version.",
            Condition::VersionNewer => "The pool is formatted using an incompatible version.",
            Condition::FeaturesDisabled => {
                "Some supported features are not enabled on the pool.\n\t\
                 (Note that they may be intentionally disabled if the\n\t\
                 'compatibility' property is set.)"
            }
            Condition::CompatibilityError => {
                "Error reading or parsing the file(s) indicated by the 'compatibility'\n\tproperty."
            }
            Condition::UnsupportedFeatureRead => {
                "The pool uses the following feature(s) not supported on this system:"
            }
            Condition::HostIdActive => "The pool is currently imported by another system.",
            Condition::HostIdRequired => {
                "The pool has the multihost property on.  It cannot\n\t\
                 be safely imported when the system hostid is not set."
            }
            Condition::HostIdMismatch => "The pool was last accessed by another system.",
            Condition::FaultedReplicated | Condition::FaultedUnreplicated => {
                "One or more devices are faulted."
            }
            Condition::BadLog => "An intent log record cannot be read.",
            Condition::Resilvering | Condition::RebuildScrub => {
                "One or more devices were being resilvered."
            }
            // Those that are alike, and those that no exported pool can have.
            Condition::UnsupportedFeatureWrite
            | Condition::ErrataOldEncryption
            | Condition::ErrataNoIvSets
            | Condition::IncompatibleFeature
            | Condition::NonNativeAshift
            | Condition::FailingDevice
            | Condition::IoFailureWait
            | Condition::IoFailureContinue
            | Condition::IoFailureMultihost => self.status(),
        }
    }

    /// The `action:` text of `zpool import`, for a pool in this state.
    ///
    /// Where another host uses the pool ([`Condition::HostIdActive`]) the engine names that host.
    pub fn import_action(condition: Option<Condition>, state: &str) -> &'static str {
        match state {
            "ONLINE" => Condition::import_action_healthy(condition),
            "DEGRADED" => {
                "The pool can be imported despite missing or damaged devices.  The\n\t\
                 fault tolerance of the pool may be compromised if imported."
            }
            _ => Condition::import_action_unavailable(condition),
        }
    }

    fn import_action_healthy(condition: Option<Condition>) -> &'static str {
        match condition {
            Some(Condition::VersionOlder | Condition::FeaturesDisabled) => {
                "The pool can be imported using its name or numeric identifier, though\n\t\
                 some features will not be available without an explicit 'zpool upgrade'."
            }
            Some(Condition::CompatibilityError) => {
                "The pool can be imported using its name or numeric\n\t\
                 identifier, though the file(s) indicated by its 'compatibility'\n\t\
                 property cannot be parsed at this time."
            }
            Some(Condition::HostIdMismatch) => {
                "The pool can be imported using its name or numeric identifier and\n\tthe '-f' flag."
            }
            _ => "The pool can be imported using its name or numeric identifier.",
        }
    }

    fn import_action_unavailable(condition: Option<Condition>) -> &'static str {
        match condition {
            Some(Condition::VersionNewer) => {
                "The pool cannot be imported.  Access the pool on a system running newer\n\tsoftware."
            }
            Some(Condition::UnsupportedFeatureRead) => {
                "The pool cannot be imported. Access the pool on a system that supports\n\t\
                 the required feature(s)."
            }
            Some(Condition::UnsupportedFeatureWrite) => {
                "The pool cannot be imported in read-write mode. Import the pool with\n\t\
                 '-o readonly=on', or access the pool on a system that supports the\n\t\
                 required feature(s)."
            }
            Some(
                Condition::MissingReplicated
                | Condition::MissingUnreplicated
                | Condition::BadGuidSum,
            ) => "The pool cannot be imported. Attach the missing\n\tdevices and try again.",
            Some(Condition::HostIdRequired) => {
                "Set a unique system hostid with the zgenhostid(8) command."
            }
            Some(Condition::CorruptPool) => {
                "The pool cannot be imported due to missing or damaged devices.  Ensure\n\t\
                 all devices are present and not in use by another subsystem."
            }
            _ => "The pool cannot be imported due to damaged devices or data.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_serialised_by_its_name() {
        let text = serde_json::to_string(&Condition::MissingReplicated).unwrap();
        assert_eq!(text, "\"missing-replicated\"");
        let back: Condition = serde_json::from_str(&text).unwrap();
        assert_eq!(back.message_id(), Some("ZFS-8000-2Q"));
    }
}
