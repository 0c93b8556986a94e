//! Finds the condition of a pool: the first that holds, in OpenZFS's order of seriousness.

use crate::messages::condition::Condition;
use std::collections::BTreeSet;
use tarn_engine::importing::compatibility;
use tarn_host::Host;
use tarn_ondisk::features::Feature;
use tarn_ondisk::rebuild::COMPLETE;
use tarn_ondisk::scan::FINISHED;
use tarn_pool::features::PoolFeatures;
use tarn_pool::{RebuildStatus, ScanStatus};
use tarn_vdev::{PoolFacts, PoolState, Reason, VdevHealth, VdevKind, VdevState};

/// The version of pools with feature flags.
const VERSION_FEATURES: u64 = 5000;

/// The facts that decide the condition.
pub(crate) struct Evidence<'a> {
    /// Health of the vdevs.
    pub(crate) health: &'a VdevHealth,
    /// Facts from the labels.
    pub(crate) facts: &'a PoolFacts,
    /// What became of its scans.
    pub(crate) scanned: Scanned,
    /// The pool's features, where they could be read.
    pub(crate) features: Option<&'a PoolFeatures>,
    /// The features that the property `compatibility` asks for.
    pub(crate) requested: Requested,
    /// For a pool that is not open: this host's id, and the obstacles to its import.
    pub(crate) import: Option<ImportEvidence>,
    /// Number of known data errors.
    pub(crate) error_count: u64,
    /// The pool is suspended, and its writers wait or fail (`failmode`).
    pub(crate) suspended: Option<Suspended>,
}

/// What scans say of the condition of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// A resilver or a sequential rebuild runs.
    is_resilvering: bool,
    /// A sequential rebuild ended, and no scrub after it.
    is_unverified: bool,
}

impl Scanned {
    /// From the last scan, and the last rebuild of each vdev.
    pub(crate) fn of<'a>(
        scan: Option<&ScanStatus>,
        rebuilds: impl Iterator<Item = &'a RebuildStatus> + Clone,
    ) -> Scanned {
        let is_resilvering = scan.is_some_and(|scan| scan.is_resilver() && scan.is_running());
        let complete = rebuilds
            .clone()
            .filter(|status| status.rebuild.state == COMPLETE);
        let rebuilt_s = complete.map(|status| status.rebuild.end_time_s).max();
        let is_unverified = rebuilt_s.is_some_and(|rebuilt_s| match scan {
            None => true,
            Some(scan) => {
                let is_done = scan.is_scrub() && scan.scan.state == FINISHED;
                is_done && rebuilt_s > scan.scan.end_time_s
            }
        });
        Scanned {
            is_resilvering: is_resilvering || rebuilds.clone().any(RebuildStatus::is_active),
            is_unverified,
        }
    }

    fn condition(self) -> Option<Condition> {
        match (self.is_resilvering, self.is_unverified) {
            (true, _) => Some(Condition::Resilvering),
            (false, true) => Some(Condition::RebuildScrub),
            (false, false) => None,
        }
    }
}

/// Obstacles to an import.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ImportEvidence {
    /// This host's id.
    pub(crate) host_id: u64,
    /// The MOS cannot be read.
    pub(crate) is_corrupt: bool,
    /// Its version is unknown.
    pub(crate) is_newer: bool,
    /// It has unknown features, which are needed for this.
    pub(crate) unsupported: Option<Unsupported>,
}

/// What unknown features are needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsupported {
    /// Even for reading.
    ToRead,
    /// Only for writing.
    ToWrite,
}

/// The features that a pool's property `compatibility` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Requested {
    /// All known features.
    All,
    /// These.
    Only(BTreeSet<Feature>),
    /// The files cannot be read, or have unknown words.
    Unreadable,
}

impl Requested {
    /// The request in a pool's labels.
    pub(crate) fn by(host: &Host, facts: &PoolFacts) -> Requested {
        let sets = facts.compatibility.as_ref().map(ToString::to_string);
        match sets.as_deref() {
            None | Some("" | "off") => Requested::All,
            Some(sets) => match compatibility::allowed(host, sets) {
                Ok(features) => Requested::Only(features),
                Err(_) => Requested::Unreadable,
            },
        }
    }

    fn has(&self, feature: Feature) -> bool {
        match self {
            Requested::All => true,
            Requested::Only(features) => features.contains(&feature),
            Requested::Unreadable => false,
        }
    }
}

/// The effect of a suspension on writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suspended {
    /// They wait.
    Wait,
    /// They get errors.
    Continue,
    /// No heartbeat was written in time (`multihost`).
    Multihost,
}

/// The most serious condition.
#[doc(alias = "check_status")]
pub(crate) fn find(evidence: &Evidence<'_>) -> Option<Condition> {
    (evidence.scanned.condition())
        .or_else(|| of_import(evidence))
        .or_else(|| of_suspension(evidence))
        .or_else(|| of_unavailable(evidence.health))
        .or_else(|| (evidence.error_count > 0).then_some(Condition::CorruptData))
        .or_else(|| of_devices(evidence.health, evidence.import.is_some()))
        .or_else(|| of_errata(evidence))
        .or_else(|| of_version(evidence))
}

fn of_import(evidence: &Evidence<'_>) -> Option<Condition> {
    let import = evidence.import?;
    let facts = evidence.facts;
    let is_others = facts.host_id != 0 && facts.host_id != import.host_id;
    if is_others && facts.state == PoolState::Active {
        return Some(Condition::HostIdMismatch);
    }
    if import.is_newer {
        return Some(Condition::VersionNewer);
    }
    match import.unsupported {
        Some(Unsupported::ToRead) => return Some(Condition::UnsupportedFeatureRead),
        Some(Unsupported::ToWrite) => return Some(Condition::UnsupportedFeatureWrite),
        None => {}
    }
    let misses_top = |top: &VdevHealth| top.kind == VdevKind::Missing;
    if evidence.health.children.iter().any(misses_top) {
        return Some(Condition::BadGuidSum);
    }
    let is_whole = evidence.health.standing.state.is_usable();
    (import.is_corrupt && is_whole).then_some(Condition::CorruptPool)
}

fn of_suspension(evidence: &Evidence<'_>) -> Option<Condition> {
    evidence.suspended.map(|suspended| match suspended {
        Suspended::Wait => Condition::IoFailureWait,
        Suspended::Continue => Condition::IoFailureContinue,
        Suspended::Multihost => Condition::IoFailureMultihost,
    })
}

/// The condition of an unavailable pool.
fn of_unavailable(root: &VdevHealth) -> Option<Condition> {
    if root.standing.state != VdevState::Unavailable {
        return None;
    }
    if any_leaf(root, &is_faulted) {
        return Some(Condition::FaultedUnreplicated);
    }
    if any_leaf(root, &is_missing) {
        return Some(Condition::MissingUnreplicated);
    }
    if any_leaf(root, &is_unusable) {
        return Some(Condition::CorruptLabelUnreplicated);
    }
    Some(Condition::CorruptPool)
}

/// The condition of a usable pool's devices.
fn of_devices(root: &VdevHealth, is_import: bool) -> Option<Condition> {
    type Test = fn(&VdevHealth) -> bool;
    let tests: [(Test, Condition); 6] = [
        (is_faulted, Condition::FaultedReplicated),
        (is_missing, Condition::MissingReplicated),
        (is_unusable, Condition::CorruptLabelReplicated),
        (is_failing, Condition::FailingDevice),
        (is_offline, Condition::OfflineDevice),
        (is_removed, Condition::RemovedDevice),
    ];
    let found = tests.into_iter().find(|(test, condition)| {
        let counts = !is_import || *condition != Condition::FailingDevice;
        counts && any_leaf(root, test)
    });
    found.map(|(_, condition)| condition)
}

/// The condition of encrypted datasets that an old program damaged: labels name the errata, or
/// features show it.
fn of_errata(evidence: &Evidence<'_>) -> Option<Condition> {
    let features = evidence.features.filter(|_| evidence.import.is_none())?;
    let is_enabled = |feature: Feature| features.count(feature.guid()).is_some();
    errata(
        evidence.facts.errata,
        is_enabled(Feature::Encryption),
        is_enabled(Feature::BookmarkV2),
    )
}

/// The condition for the errata number in the labels.
#[doc(alias = "zpool_errata_t")]
fn errata(named: u64, has_encryption: bool, has_bookmark_v2: bool) -> Option<Condition> {
    /// `ZPOOL_ERRATA_ZOL_6845_ENCRYPTION`.
    const OLD_ENCRYPTION: u64 = 3;
    /// `ZPOOL_ERRATA_ZOL_8308_ENCRYPTION`.
    const NO_IV_SETS: u64 = 4;
    match named {
        OLD_ENCRYPTION => Some(Condition::ErrataOldEncryption),
        NO_IV_SETS => Some(Condition::ErrataNoIvSets),
        _ if has_encryption && !has_bookmark_v2 => Some(Condition::ErrataNoIvSets),
        _ => None,
    }
}

fn of_version(evidence: &Evidence<'_>) -> Option<Condition> {
    let facts = evidence.facts;
    let compatibility = facts.compatibility.as_ref().map(ToString::to_string);
    let is_legacy = compatibility.as_deref() == Some("legacy");
    if facts.version < VERSION_FEATURES {
        return (!is_legacy).then_some(Condition::VersionOlder);
    }
    let features = evidence.features?;
    if evidence.requested == Requested::Unreadable {
        return Some(Condition::CompatibilityError);
    }
    Feature::ALL.iter().find_map(|feature| {
        let is_enabled = features.count(feature.guid()).is_some();
        match (evidence.requested.has(*feature), is_enabled) {
            (true, false) if feature.is_enabled_by_default() => Some(Condition::FeaturesDisabled),
            (false, true) => Some(Condition::IncompatibleFeature),
            _ => None,
        }
    })
}

/// Whether `is_so` holds for any leaf, except leaves that are being replaced.
#[doc(alias = "find_vdev_problem")]
fn any_leaf(vdev: &VdevHealth, is_so: &dyn Fn(&VdevHealth) -> bool) -> bool {
    match vdev.kind {
        VdevKind::Replacing => false,
        _ if vdev.children.is_empty() => is_so(vdev),
        _ => vdev.children.iter().any(|child| any_leaf(child, is_so)),
    }
}

fn is_faulted(leaf: &VdevHealth) -> bool {
    leaf.standing.state == VdevState::Faulted
}

fn is_missing(leaf: &VdevHealth) -> bool {
    is_unusable(leaf) && leaf.standing.reason == Some(Reason::OpenFailed)
}

fn is_unusable(leaf: &VdevHealth) -> bool {
    leaf.standing.state == VdevState::Unavailable
}

fn is_failing(leaf: &VdevHealth) -> bool {
    let errors = leaf.errors;
    let has_errors = errors.read + errors.write + errors.checksum > 0;
    leaf.standing.state == VdevState::Degraded || has_errors
}

fn is_offline(leaf: &VdevHealth) -> bool {
    leaf.standing.state == VdevState::Offline
}

fn is_removed(leaf: &VdevHealth) -> bool {
    leaf.standing.state == VdevState::Removed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errata_are_named_by_labels_or_shown_by_features() {
        assert_eq!(errata(0, false, false), None);
        assert_eq!(errata(0, true, true), None);
        assert_eq!(errata(0, true, false), Some(Condition::ErrataNoIvSets));
        assert_eq!(errata(3, true, true), Some(Condition::ErrataOldEncryption));
        let text = Condition::ErrataOldEncryption.status();
        assert!(text.starts_with("Errata #3 detected.\n\tExisting encrypted datasets"));
    }
}
