//! `zfs mount`: one file system, or all of them, in the order of their mount points.

use super::cannot_open;
use super::mountpoint::{self, MountPoint};
use crate::administration::Call;
use crate::engine::{Engine, OpenPool};
use crate::files::{FileSystem, Tree};
use crate::messages::dataset::{Mount, MountEntry, Mounted as MountedReply};
use crate::messages::{Refusal, RefusalKind};
use crate::mounts::{
    DISCARD_LOG, MountKey, MountOptions, MountRefusal, MountRequest, Mounted, MountedBefore,
    TemporaryOptions,
};
use crate::tree::{MountedTree, TreeChoices};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use tarn_dataset::contents::{self, Contents};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::error::DatasetError;
use tarn_dataset::look_through::Look;
use tarn_dataset::properties::native::{self, NativeValue, Shown};
use tarn_dataset::properties::size;
use tarn_ondisk::dataset::DatasetFlags;
use tarn_ondisk::dataset_dir::CRYPTO_KEY;
use tarn_ondisk::units::LogicalSize;
use tarn_pool::Mode;
use tarn_posix::{
    AccessTimes, AclType, LogBias, MountProperties, SnapshotDirectory, SyncPolicy, Unlinked,
    XattrStore,
};
use tarn_probe::Operation;
use tarn_zil::LogClosing;

/// A file system to mount.
#[derive(Debug, Clone)]
struct Candidate {
    name: String,
    point: MountPoint,
    values: Values,
    is_received_half: bool,
    /// It is being sent as it is now.
    is_in_use: bool,
    /// Its key is not here.
    is_encrypted: bool,
}

/// The properties that matter to a mount, as words.
#[derive(Debug, Clone, Default)]
pub(super) struct Values(Vec<(&'static str, String)>);

impl Values {
    const NAMES: [&'static str; 16] = [
        "atime",
        "relatime",
        "devices",
        "exec",
        "setuid",
        "readonly",
        "canmount",
        "zoned",
        "overlay",
        "snapdir",
        "xattr",
        "acltype",
        "recordsize",
        "dnodesize",
        "sync",
        "logbias",
    ];

    /// Reads them.
    pub(super) fn read(dataset: &Dataset<'_>) -> Result<Values, DatasetError> {
        let natives = native::of_dataset(dataset, |row| Values::concerns(row.name))?;
        let pair = |native: NativeValue| {
            let text = match native.value {
                Shown::Number(number) => number.to_string(),
                Shown::Text(text) => text,
            };
            (native.property.name, text)
        };
        Ok(Values(natives.into_iter().map(pair).collect()))
    }

    fn word(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(key, _)| *key == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    fn is_on(&self, name: &str) -> bool {
        self.word(name) == "on"
    }

    /// What posix needs to know, with what a mount overrides.
    pub(super) fn mount_properties(&self, temporary: &TemporaryOptions) -> MountProperties {
        let atime = temporary.atime.unwrap_or(self.is_on("atime"));
        let relatime = temporary.relatime.unwrap_or(self.is_on("relatime"));
        let record_size = size::size(self.word("recordsize")).unwrap_or(128 << 10);
        MountProperties {
            is_read_only: temporary.read_only.unwrap_or(self.is_on("readonly")),
            access_times: match (atime, relatime) {
                (false, _) => AccessTimes::Never,
                (true, true) => AccessTimes::Relative,
                (true, false) => AccessTimes::Always,
            },
            xattrs: match (temporary.xattr, self.word("xattr")) {
                (Some(false), _) | (_, "off") => XattrStore::Off,
                (_, "dir") => XattrStore::Directory,
                _ => XattrStore::Attributes,
            },
            acl_type: match self.word("acltype") {
                "posix" | "posixacl" => AclType::Posix,
                "nfsv4" => AclType::Nfs4,
                _ => AclType::Off,
            },
            record_size: LogicalSize::from(record_size),
            snapshot_directory: match self.word("snapdir") {
                "visible" => SnapshotDirectory::Visible,
                "disabled" => SnapshotDirectory::Disabled,
                _ => SnapshotDirectory::Hidden,
            },
            dnode_slots: match self.word("dnodesize") {
                "auto" | "1k" => 2,
                "2k" => 4,
                "4k" => 8,
                "8k" => 16,
                "16k" => 32,
                _ => 1,
            },
            has_long_names: self.is_on("longname"),
            sync: match self.word("sync") {
                "always" => SyncPolicy::Always,
                "disabled" => SyncPolicy::Disabled,
                _ => SyncPolicy::Standard,
            },
            log_bias: match self.word("logbias") {
                "throughput" => LogBias::Throughput,
                _ => LogBias::Latency,
            },
        }
    }

    /// Whether a property matters to what is mounted.
    pub(super) fn concerns(property: &str) -> bool {
        Values::NAMES.contains(&property) || property == "longname"
    }

    /// What the system enforces.
    pub(super) fn mount_options(&self, temporary: &TemporaryOptions) -> MountOptions {
        MountOptions {
            read_only: temporary.read_only.unwrap_or(self.is_on("readonly")),
            devices: temporary.devices.unwrap_or(self.is_on("devices")),
            exec: temporary.exec.unwrap_or(self.is_on("exec")),
            setuid: temporary.setuid.unwrap_or(self.is_on("setuid")),
            atime: temporary.atime.unwrap_or(self.is_on("atime")),
        }
    }
}

/// How a mount was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// By its name: what stands against it is told.
    ByName,
    /// With others: what is not meant to be mounted is passed over.
    WithAll,
    /// It was mounted before: as with others, but it need not be automatic.
    Again,
    /// The same; and more may come for it, so mounting must not change it.
    Untouched,
}

/// For whom something is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beneficiary {
    /// Somebody who may do everything.
    Administrator,
    /// Somebody who must not get anything by it but his files.
    User,
}

/// How a file system is mounted.
#[derive(Debug, Clone, Copy)]
struct How<'a> {
    asked: Asked,
    whom: Beneficiary,
    /// What stands above its properties.
    temporary: TemporaryOptions,
    /// Something may be in the folder.
    over_contents: bool,
    /// The same mount, where it was undone for a change.
    before: Option<&'a MountedBefore>,
}

impl How<'_> {
    /// With the others that are meant to be mounted.
    fn with_all(temporary: TemporaryOptions) -> How<'static> {
        How {
            asked: Asked::WithAll,
            whom: Beneficiary::Administrator,
            temporary,
            over_contents: false,
            before: None,
        }
    }
}

impl Engine {
    pub(crate) fn mount(
        &self,
        call: &Call,
        request: &Mount,
        operation: &Operation,
    ) -> Result<MountedReply, Refusal> {
        if let Some(name) = &request.name
            && !self.trusts(&call.caller)
        {
            return self.mount_for_user(call, name, operation);
        }
        let Some(name) = &request.name else {
            self.permit_all_mounts(call)?;
            let mut all = MountedReply::default();
            for open in self.pools() {
                let turn = self.turn(&open);
                let mounted = match &turn {
                    Ok(_) => self.mount_pool(&open, &request.options, operation),
                    Err(refusal) => MountedReply {
                        refused: vec![refusal.clone()],
                        ..MountedReply::default()
                    },
                };
                all.mounts.extend(mounted.mounts);
                all.refused.extend(mounted.refused);
            }
            return Ok(all);
        };
        let open = self.require_pool_of(name)?;
        let _turn = self.turn(&open)?;
        let how = How {
            over_contents: request.overlay,
            ..How::with_all(TemporaryOptions::parse(&request.options))
        };
        let mut reply = MountedReply::default();
        if request.recursive {
            let candidates = candidates_below(&open, Some(name), operation);
            let candidates = candidates.map_err(|error| cannot_open(name, &error))?;
            self.mount_candidates(&open, candidates, how, operation, &mut reply);
            return Ok(reply);
        }
        let candidate = candidate_of(&open, name, operation)?;
        let how = How {
            asked: Asked::ByName,
            ..how
        };
        let path = self.mount_one(&open, &candidate, how, operation)?;
        let entry = path.map(|path| entry_of(name, &path));
        reply.mounts.extend(entry);
        Ok(reply)
    }

    /// Mounts all file systems of a pool that are meant to be.
    pub(crate) fn mount_pool(
        &self,
        open: &Arc<OpenPool>,
        options: &[String],
        operation: &Operation,
    ) -> MountedReply {
        let mut reply = MountedReply::default();
        let how = How::with_all(TemporaryOptions::parse(options));
        match candidates_below(open, None, operation) {
            Ok(candidates) => self.mount_candidates(open, candidates, how, operation, &mut reply),
            Err(error) => reply.refused.push(cannot_open(open.pool.name(), &error)),
        }
        reply
    }

    /// Mounts what is meant to be, parents first: a path is mounted before those below it.
    fn mount_candidates(
        &self,
        open: &Arc<OpenPool>,
        mut candidates: Vec<Candidate>,
        how: How<'_>,
        operation: &Operation,
        reply: &mut MountedReply,
    ) {
        let key = |candidate: &Candidate| match &candidate.point {
            MountPoint::Path(path) => path.clone(),
            MountPoint::Legacy | MountPoint::None => PathBuf::new(),
        };
        candidates.sort_by_cached_key(key);
        for candidate in candidates {
            match self.mount_one(open, &candidate, how, operation) {
                Ok(Some(path)) => reply.mounts.push(entry_of(&candidate.name, &path)),
                Ok(None) => {}
                Err(refusal) => reply.refused.push(refusal),
            }
        }
    }

    /// Mounts one file system. None when it is not meant to be mounted.
    #[doc(alias = "share_mount_one")]
    fn mount_one(
        &self,
        open: &Arc<OpenPool>,
        candidate: &Candidate,
        how: How<'_>,
        operation: &Operation,
    ) -> Result<Option<PathBuf>, Refusal> {
        let name = &candidate.name;
        if let Some(refusal) = standing_against(open, candidate, how.asked) {
            return match how.asked {
                Asked::ByName => Err(refusal),
                Asked::WithAll | Asked::Again | Asked::Untouched => Ok(None),
            };
        }
        let MountPoint::Path(path) = &candidate.point else {
            return Ok(None);
        };
        let mut temporary = how.temporary;
        if open.pool.mode() == Mode::ReadOnly {
            temporary.read_only = Some(true);
        }
        if how.whom == Beneficiary::User {
            (temporary.setuid, temporary.devices) = (Some(false), Some(false));
        }
        let place = self.mount_place(name, path, how.before)?;
        if how.whom == Beneficiary::User && !self.host.is_guarded(path) {
            let reason = format!("others can lead {} elsewhere", path.display());
            return Err(Refusal::new(
                RefusalKind::Denied,
                cannot_mount(name),
                reason,
            ));
        }
        let may_overlay = how.over_contents || candidate.values.is_on("overlay");
        self.prepare_folder(&place, may_overlay)?;
        let unlinked = match how.asked {
            Asked::Untouched => Unlinked::Kept,
            _ => Unlinked::Freed,
        };
        let tree = self.open_tree(open, candidate, &temporary, unlinked, operation)?;
        let mount_options = candidate.values.mount_options(&temporary);
        let mounted = Mounted {
            path: path.clone(),
            place,
            key: MountKey(0),
            options: mount_options,
            temporary,
            tree,
        };
        self.hand_to_mounter(open, name, mounted)?;
        Ok(Some(path.clone()))
    }

    /// Mounts a file system that was just made, or got another mount point. What is not meant to be mounted is passed
    /// over.
    pub(crate) fn mount_new(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        operation: &Operation,
    ) -> Result<Option<PathBuf>, Refusal> {
        self.mount_new_for(open, name, Beneficiary::Administrator, operation)
    }

    /// The same for somebody.
    pub(super) fn mount_new_for(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        whom: Beneficiary,
        operation: &Operation,
    ) -> Result<Option<PathBuf>, Refusal> {
        let candidate = candidate_of(open, name, operation)?;
        let how = How {
            whom,
            ..How::with_all(TemporaryOptions::default())
        };
        self.mount_one(open, &candidate, how, operation)
    }

    /// Mounts a file system where it belongs after a change, with the options that it had before.
    pub(super) fn mount_follower(
        &self,
        call: &Call,
        open: &Arc<OpenPool>,
        name: &str,
        asked: Asked,
        before: Option<&MountedBefore>,
        operation: &Operation,
    ) -> Result<Option<PathBuf>, Refusal> {
        let candidate = candidate_of(open, name, operation)?;
        let temporary = before.map(|before| before.temporary);
        let how = How {
            asked,
            whom: self.beneficiary(call),
            before,
            ..How::with_all(temporary.unwrap_or_default())
        };
        self.mount_one(open, &candidate, how, operation)
    }

    fn open_tree(
        &self,
        open: &Arc<OpenPool>,
        candidate: &Candidate,
        temporary: &TemporaryOptions,
        unlinked: Unlinked,
        operation: &Operation,
    ) -> Result<Arc<MountedTree>, Refusal> {
        let name = &candidate.name;
        let view = open.pool.namespace().view(operation);
        let head = view.directory(name).and_then(|directory| directory.head());
        let head = head.map_err(|error| cannot_open(name, &error))?;
        let head = head.ok_or_else(|| {
            let error = DatasetError::NotFound { name: name.clone() };
            cannot_open(name, &error)
        })?;
        let properties = candidate.values.mount_properties(temporary);
        let discards_log = temporary.discards_log;
        let choices = TreeChoices {
            discards_log,
            fixes_snapshot_names: self.fixes_snapshot_names,
            unlinked,
        };
        let opened = MountedTree::open(open, &head, properties, choices, operation);
        opened.map_err(|error| {
            let refusal = Refusal::new(RefusalKind::Corrupt, cannot_mount(name), error.why);
            match error.is_log {
                true => refusal.with_hint(format!(
                    "use 'zfs mount -o {DISCARD_LOG} {name}' to give up what the log has that is not replayed"
                )),
                false => refusal,
            }
        })
    }

    /// Does something with the files of a dataset, mounted or not. What is not is opened as if it were to be mounted, and nothing of it is left
    /// open. The caller has the pool's turn.
    pub(super) fn with_files<T>(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        operation: &Operation,
        then: impl FnOnce(&FileSystem) -> T,
    ) -> Result<T, Refusal> {
        if let Some(mounted) = open.mount_of(name) {
            return Ok(then(mounted.tree.files()));
        }
        let candidate = candidate_of(open, name, operation)?;
        if candidate.is_encrypted {
            let action = format!("cannot open '{name}'");
            let reason = "encryption key not loaded";
            return Err(Refusal::new(RefusalKind::Invalid, action, reason));
        }
        if candidate.is_received_half || candidate.is_in_use {
            let action = format!("cannot open '{name}'");
            return Err(Refusal::new(RefusalKind::Busy, action, "dataset is busy"));
        }
        let (temporary, unlinked) = (TemporaryOptions::default(), Unlinked::Freed);
        let tree = self.open_tree(open, &candidate, &temporary, unlinked, operation)?;
        let outcome = then(tree.files());
        let namespace = open.pool.namespace();
        let closed = namespace.close_log(tree.head(), operation);
        let failed =
            |why: String| Refusal::new(RefusalKind::Device, format!("cannot open '{name}'"), why);
        let stored = match closed {
            Ok(LogClosing::WithGroup) => {
                let stored = open.pool.sync_all(operation);
                stored.map_err(|error| failed(error.to_string()))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(failed(error.to_string())),
        };
        namespace.forget_log(tree.head());
        stored?;
        Ok(outcome)
    }

    /// Has it mounted, and notes it. The system may end a mount without asking us, before it is even noted.
    fn hand_to_mounter(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        mounted: Mounted,
    ) -> Result<(), Refusal> {
        let (path, options, tree) = (mounted.place.clone(), mounted.options, mounted.tree.clone());
        // Of this mount: when it ends late, the same file system may be mounted on the same folder again.
        let own = Arc::downgrade(&tree);
        open.mounts.lock().insert(name.to_string(), mounted);
        let weak: Weak<OpenPool> = Arc::downgrade(open);
        let ended = Box::new(move || {
            if let Some(open) = weak.upgrade() {
                let mut mounts = open.mounts.lock();
                mounts.retain(|_, mounted| Arc::as_ptr(&mounted.tree) != own.as_ptr());
            }
        });
        let request = MountRequest {
            source: name,
            path: &path,
            options,
            tree,
            ended,
        };
        match self.mounter.mount(request) {
            Ok(key) => {
                if let Some(mounted) = open.mounts.lock().get_mut(name) {
                    mounted.key = key;
                }
                Ok(())
            }
            Err(refusal) => {
                open.mounts.lock().remove(name);
                Err(mount_refusal(name, &refusal))
            }
        }
    }

    /// Makes the folder if it is not there, and refuses one that is not empty where that matters.
    fn prepare_folder(&self, path: &Path, may_overlay: bool) -> Result<(), Refusal> {
        let failed = |reason: String| {
            Refusal::new(
                RefusalKind::Busy,
                cannot_mount(&path.display().to_string()),
                reason,
            )
        };
        if self.host.file_kind(path) != tarn_host::FileKind::Directory {
            self.host
                .create_directories(path)
                .map_err(|error| failed(format!("failed to create mountpoint: {}", error.errno)))?;
        }
        if may_overlay {
            return Ok(());
        }
        match self.host.list_directory(path) {
            Ok(entries) if !entries.is_empty() => Err(failed("directory is not empty".to_string())),
            _ => Ok(()),
        }
    }
}

/// What stands against mounting, in OpenZFS's words.
fn standing_against(open: &OpenPool, candidate: &Candidate, asked: Asked) -> Option<Refusal> {
    let name = &candidate.name;
    let refuse = |kind, reason: &str| Some(Refusal::new(kind, cannot_mount(name), reason));
    if candidate.values.is_on("zoned") {
        return refuse(RefusalKind::Busy, "dataset is exported to a local zone");
    }
    match candidate.point {
        MountPoint::Legacy => {
            let refusal = refuse(RefusalKind::Invalid, "legacy mountpoint");
            let hint = "use mount(8) to mount this filesystem";
            return refusal.map(|refusal| refusal.with_hint(hint));
        }
        MountPoint::None => return refuse(RefusalKind::Invalid, "no mountpoint set"),
        MountPoint::Path(_) => {}
    }
    match (candidate.values.word("canmount"), asked) {
        ("off", _) => {
            return refuse(RefusalKind::Invalid, "'canmount' property is set to 'off'");
        }
        ("noauto", Asked::WithAll) => return refuse(RefusalKind::Invalid, "it is not automatic"),
        _ => {}
    }
    if candidate.is_encrypted {
        return refuse(RefusalKind::Invalid, "encryption key not loaded");
    }
    if candidate.is_received_half {
        let reason = "Contains partially-completed state from \"zfs receive -s\", which can be \
                      resumed with \"zfs send -t\"";
        return refuse(RefusalKind::Busy, reason);
    }
    match open.mount_of(name) {
        Some(_) => refuse(RefusalKind::Busy, "filesystem already mounted"),
        None if candidate.is_in_use => refuse(RefusalKind::Busy, BUSY),
        None => None,
    }
}

/// What OpenZFS says of what cannot be mounted right now.
const BUSY: &str = "mountpoint or dataset is busy";

pub(super) fn cannot_mount(name: &str) -> String {
    format!("cannot mount '{name}'")
}

fn mount_refusal(name: &str, refusal: &MountRefusal) -> Refusal {
    match refusal {
        MountRefusal::Busy => Refusal::new(RefusalKind::Busy, cannot_mount(name), BUSY),
        MountRefusal::Failed(why) => {
            Refusal::new(RefusalKind::Device, cannot_mount(name), why.clone())
        }
    }
}

pub(super) fn entry_of(name: &str, path: &Path) -> MountEntry {
    MountEntry {
        dataset: name.to_string(),
        path: path.display().to_string(),
    }
}

/// One file system by name.
fn candidate_of(open: &OpenPool, name: &str, operation: &Operation) -> Result<Candidate, Refusal> {
    let view = open.pool.namespace().view(operation);
    let head = view.directory(name).and_then(|directory| directory.head());
    let head = head.map_err(|error| cannot_open(name, &error))?;
    let found = match &head {
        Some(head) => candidate(open, head).map_err(|error| cannot_open(name, &error))?,
        None => None,
    };
    found.ok_or_else(|| {
        let reason = "operation not applicable to datasets of this type";
        Refusal::new(
            RefusalKind::Invalid,
            format!("cannot open '{name}'"),
            reason,
        )
    })
}

/// All file systems of a pool, or of one dataset and below, that are mounted without being named.
fn candidates_below(
    open: &OpenPool,
    name: Option<&str>,
    operation: &Operation,
) -> Result<Vec<Candidate>, DatasetError> {
    let first = name.unwrap_or(open.pool.name());
    let namespace = open.pool.namespace();
    namespace.look_through(first, None, operation, |directory| {
        let head = directory.head()?;
        let candidate = match head {
            Some(head) if is_automatic(&head)? => candidate(open, &head)?,
            _ => None,
        };
        Ok(Look {
            found: candidate.into_iter().collect(),
            goes_on: true,
        })
    })
}

/// Whether a dataset is mounted without being named.
fn is_automatic(head: &Dataset<'_>) -> Result<bool, DatasetError> {
    let canmount = native::of_dataset(head, |row| row.name == "canmount")?;
    let on = Shown::Text("on".to_string());
    Ok(canmount.first().is_some_and(|found| found.value == on))
}

/// What is needed to mount a dataset; none when it is no file system.
fn candidate(open: &OpenPool, head: &Dataset<'_>) -> Result<Option<Candidate>, DatasetError> {
    if !matches!(contents::outline(head)?, Contents::Filesystem(_)) {
        return Ok(None);
    }
    let (point, _) = mountpoint::of_dataset(head, open.altroot.as_deref())?;
    Ok(Some(Candidate {
        name: head.name(),
        point,
        values: Values::read(head)?,
        is_received_half: head.stored()?.flags.contains(DatasetFlags::INCONSISTENT),
        is_in_use: open.pool.namespace().is_in_use(head.id()),
        is_encrypted: head.directory().extension(CRYPTO_KEY)?.is_some(),
    }))
}
