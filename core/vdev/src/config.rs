//! The configuration of a vdev, as labels, the MOS and the cache file keep it.
//!
//! # Mechanism
//! A [`VdevConfig`] is parsed once from a name-value list. After that, a mirror has children, a
//! RAID-Z has one to three parities, and the ashift of a top-level vdev is one that the format
//! allows. Pairs with unknown names are carried through, so that a configuration that a newer
//! program wrote loses none.
//!
//! # Invariants
//! - A list of OpenZFS that is parsed and written again has the same pairs.
//! - A top-level vdev's `id` is its index among the children of the root.

use crate::error::ConfigError;
use crate::sizes::metaslab_count;
use tarn_ondisk::nvlist::{NvError, NvList, NvValue, Text};
use tarn_ondisk::units::{AllocatedSize, Guid, ObjectId, Txg};

/// The smallest sector that the format knows is `2^9` bytes.
pub const ASHIFT_MIN: u32 = 9;
/// The largest is `2^16` bytes.
pub const ASHIFT_MAX: u32 = 16;
/// A RAID-Z vdev has at most this many children, by the format.
#[doc(alias = "VDEV_RAIDZ_MAX_CHILDREN")]
pub const RAIDZ_WIDTH_MAX: usize = 255;
/// A metaslab has at most `2^56` bytes: larger ones cannot be counted.
const METASLAB_SHIFT_MAX: u64 = 56;

/// No vdev has more metaslabs: a new one gets 2^17 at most, and more as its devices grow. A bound,
/// since each takes memory.
#[doc(alias = "zfs_vdev_ms_count_limit")]
const METASLABS_MAX: u64 = 1 << 22;

/// The kind of a vdev (`type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VdevKind {
    /// The pool itself; its children are the top-level vdevs.
    Root,
    /// The same bytes on every child.
    Mirror,
    /// Data spread over the children, with parity.
    Raidz {
        /// How many children may be lost: 1 to 3.
        parity: u8,
    },
    /// Data and spares spread over the children by a permutation.
    Draid {
        /// How many children may be lost: 1 to 3.
        parity: u8,
    },
    /// A device and the one that replaces it, while that is resilvered.
    Replacing,
    /// A failed device and the hot spare that is in use for it.
    Spare,
    /// A file.
    File,
    /// A block device.
    Disk,
    /// A distributed spare: space on all children of a dRAID.
    DistributedSpare,
    /// A vdev that was removed after its contents were copied to others.
    Indirect,
    /// An index that is not in use.
    Hole,
    /// A top-level vdev of which nothing was found.
    Missing,
}

impl VdevKind {
    /// The name that is stored.
    pub const fn name(self) -> &'static str {
        match self {
            VdevKind::Root => "root",
            VdevKind::Mirror => "mirror",
            VdevKind::Raidz { .. } => "raidz",
            VdevKind::Draid { .. } => "draid",
            VdevKind::Replacing => "replacing",
            VdevKind::Spare => "spare",
            VdevKind::File => "file",
            VdevKind::Disk => "disk",
            VdevKind::DistributedSpare => "dspare",
            VdevKind::Indirect => "indirect",
            VdevKind::Hole => "hole",
            VdevKind::Missing => "missing",
        }
    }

    /// True for a vdev without children: a device or a distributed spare.
    pub const fn is_leaf(self) -> bool {
        matches!(
            self,
            VdevKind::File | VdevKind::Disk | VdevKind::DistributedSpare
        )
    }

    /// True where every child has the same bytes.
    pub const fn is_mirrored(self) -> bool {
        matches!(
            self,
            VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare
        )
    }

    fn parse(list: &NvList) -> Result<VdevKind, ConfigError> {
        let name = list.text("type")?;
        let parity = || match list.optional_u64("nparity")? {
            // Versions before double parity did not store the number.
            None => Ok(1),
            Some(parity @ 1..=3) => Ok(u8::try_from(parity).expect("it is at most 3")),
            Some(parity) => Err(ConfigError::Parity { parity }),
        };
        Ok(match name.as_bytes() {
            b"root" => VdevKind::Root,
            b"mirror" => VdevKind::Mirror,
            b"raidz" => VdevKind::Raidz { parity: parity()? },
            b"draid" => VdevKind::Draid { parity: parity()? },
            b"replacing" => VdevKind::Replacing,
            b"spare" => VdevKind::Spare,
            b"file" => VdevKind::File,
            b"disk" => VdevKind::Disk,
            b"dspare" => VdevKind::DistributedSpare,
            b"indirect" => VdevKind::Indirect,
            b"hole" => VdevKind::Hole,
            b"missing" => VdevKind::Missing,
            _ => return Err(ConfigError::UnknownType { name: name.clone() }),
        })
    }
}

/// What only a top-level vdev has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopLevelConfig {
    /// The object that lists its space maps; zero until the first txg made it.
    pub metaslab_array: ObjectId,
    /// A metaslab is `2^metaslab_shift` bytes.
    pub metaslab_shift: u32,
    /// A sector is `2^ashift` bytes.
    pub ashift: u32,
    /// The room for data and parity, over all children.
    pub asize: AllocatedSize,
    /// It holds the intent log.
    pub is_log: bool,
    /// Nothing new is placed on it.
    pub non_allocating: bool,
    /// It is being emptied.
    pub removing: bool,
}

/// The stored condition of a leaf, by `zpool offline` or an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoredCondition {
    /// Taken out of use by an administrator.
    pub offline: bool,
    /// It failed and is not to be used.
    pub faulted: bool,
    /// It is in use, though it made too many errors.
    pub degraded: bool,
    /// It was pulled out.
    pub removed: bool,
    /// Why it is faulted or degraded.
    pub reason: Option<StoredReason>,
}

/// Why a leaf is faulted or degraded, as far as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredReason {
    /// It made too many errors.
    ErrorsExceeded,
    /// `zpool offline -f` or another program declared it faulted.
    External,
}

impl StoredReason {
    const fn name(self) -> &'static str {
        match self {
            StoredReason::ErrorsExceeded => "err_exceeded",
            StoredReason::External => "external",
        }
    }

    fn parse(name: &Text) -> Option<StoredReason> {
        match name.as_bytes() {
            b"err_exceeded" => Some(StoredReason::ErrorsExceeded),
            b"external" => Some(StoredReason::External),
            _ => None,
        }
    }
}

/// The configuration of a vdev and of everything below it.
#[derive(Debug, Clone, PartialEq)]
pub struct VdevConfig {
    /// What it is.
    pub kind: VdevKind,
    /// Its index among its siblings.
    pub id: u64,
    /// Its name for good.
    pub guid: Guid,
    /// Where it was when this was stored: the path of a file, or of a device.
    pub path: Option<Text>,
    /// The identifier of its hardware (`devid`).
    pub device_id: Option<Text>,
    /// The slot of its hardware (`phys_path`).
    pub physical_path: Option<Text>,
    /// Its enclosure, in sysfs.
    pub enclosure_path: Option<Text>,
    /// Its field replaceable unit.
    pub replaceable_unit: Option<Text>,
    /// The whole disk was given to the pool, so that we may partition it. None for what is no disk.
    pub whole_disk: Option<bool>,
    /// It is a hot spare, or was one and is in use.
    pub is_spare: bool,
    /// It was not found when the pool was last opened, and may be gone.
    pub not_present: bool,
    /// What only a top-level vdev has.
    pub top_level: Option<TopLevelConfig>,
    /// The sectors of a cache device, which is in no top-level vdev, are `2^n` bytes.
    pub cache_ashift: Option<u32>,
    /// The space map with its dirty time log.
    pub dtl: Option<ObjectId>,
    /// The txg in which it joined the pool.
    pub create_txg: Txg,
    /// What happened to it.
    pub condition: StoredCondition,
    /// Pairs with unknown names, in their order.
    pub other: Vec<(Text, NvValue)>,
    /// The vdevs it is made of.
    pub children: Vec<VdevConfig>,
    /// The hot spares of a root.
    pub spares: Vec<VdevConfig>,
    /// The second-level cache devices of a root.
    pub caches: Vec<VdevConfig>,
}

/// Names that are parsed; all others are carried through.
const KNOWN: &[&str] = &[
    "type",
    "id",
    "guid",
    "path",
    "devid",
    "phys_path",
    "vdev_enc_sysfs_path",
    "fru",
    "nparity",
    "whole_disk",
    "not_present",
    "is_spare",
    "metaslab_array",
    "metaslab_shift",
    "ashift",
    "asize",
    "is_log",
    "non_allocating",
    "removing",
    "DTL",
    "create_txg",
    "children",
    "spares",
    "l2cache",
    "offline",
    "faulted",
    "degraded",
    "removed",
    "aux_state",
];

/// Names that only the MOS has: the objects with what belongs to a vdev.
const ONLY_IN_MOS: &[&str] = &[
    "com.delphix:vdev_zap_leaf",
    "com.delphix:vdev_zap_top",
    "com.klarasystems:vdev_zap_root",
    "com.datto:resilver_defer",
    "org.openzfs:rebuild_stats",
    "vdev_stats",
    "vdev_stats_ex",
];

/// A pair that only Tarn writes and other programs pass over: the first birth in the device's dirty
/// time log that the MOS may not have. Labels have it for a device that failed after the last sync
/// pass of their txg, and for devices of log vdevs, which have no log in the MOS. Before the value
/// was a birth, it was 1: all births.
const UNSAVED_DTL: &str = "tarn:missed_writes";

/// The pair with the txg in which a device joined that is not resilvered yet.
const RESILVER_TXG: &str = "resilver_txg";

/// The pair with the txg in which a device joined that a sequential rebuild has not filled yet.
const REBUILD_TXG: &str = "rebuild_txg";

/// The pair of a device whose siblings below a `spare` vdev are not needed once it is whole.
const UNSPARE: &str = "unspare";

impl VdevConfig {
    /// A new vdev of this kind, with its guid and nothing else.
    pub fn new(kind: VdevKind, guid: Guid) -> VdevConfig {
        VdevConfig {
            kind,
            id: 0,
            guid,
            path: None,
            device_id: None,
            physical_path: None,
            enclosure_path: None,
            replaceable_unit: None,
            whole_disk: None,
            is_spare: false,
            not_present: false,
            top_level: None,
            cache_ashift: None,
            dtl: None,
            create_txg: Txg::ZERO,
            condition: StoredCondition::default(),
            other: Vec::new(),
            children: Vec::new(),
            spares: Vec::new(),
            caches: Vec::new(),
        }
    }

    /// Parses a stored configuration: a `vdev_tree`, which is a root or one top-level vdev, or a
    /// vdev below one.
    pub fn parse(list: &NvList) -> Result<VdevConfig, ConfigError> {
        let kind = VdevKind::parse(list)?;
        let text = |name: &str| list.optional_text(name).map(|text| text.cloned());
        let flag = |name: &str| {
            list.optional_u64(name)
                .map(|number| number.unwrap_or(0) != 0)
        };
        let config = VdevConfig {
            kind,
            // Hot spares have no index.
            id: list.optional_u64("id")?.unwrap_or(0),
            guid: Guid::from(list.u64("guid")?),
            path: text("path")?,
            device_id: text("devid")?,
            physical_path: text("phys_path")?,
            enclosure_path: text("vdev_enc_sysfs_path")?,
            replaceable_unit: text("fru")?,
            whole_disk: list.optional_u64("whole_disk")?.map(|whole| whole != 0),
            is_spare: flag("is_spare")?,
            not_present: flag("not_present")?,
            top_level: TopLevelConfig::parse(list)?,
            cache_ashift: cache_ashift(list)?,
            dtl: list.optional_u64("DTL")?.map(ObjectId::from),
            create_txg: Txg::from(list.optional_u64("create_txg")?.unwrap_or(0)),
            condition: StoredCondition {
                offline: flag("offline")?,
                faulted: flag("faulted")?,
                degraded: flag("degraded")?,
                removed: flag("removed")?,
                reason: list
                    .optional_text("aux_state")?
                    .and_then(StoredReason::parse),
            },
            other: carried(list),
            children: parse_all(list, "children")?,
            spares: parse_all(list, "spares")?,
            caches: parse_all(list, "l2cache")?,
        };
        config.check_shape()?;
        Ok(config)
    }

    /// The configuration as labels have it: without the objects that only the MOS knows.
    pub fn to_label_list(&self) -> NvList {
        self.to_list(&|name| !ONLY_IN_MOS.iter().any(|only| name == only))
    }

    /// The configuration as the MOS and the cache file have it.
    pub fn to_mos_list(&self) -> NvList {
        self.to_list(&|_| true)
    }

    /// The object that a pair of this name carries, such as "com.delphix:vdev_zap_top".
    pub fn other_object(&self, name: &str) -> Option<ObjectId> {
        match self.other.iter().find(|(other, _)| *other == name) {
            Some((_, NvValue::Uint64(object))) => Some(ObjectId::from(*object)),
            _ => None,
        }
    }

    /// Sets a pair that is only carried through.
    pub fn set_other(&mut self, name: &str, value: impl Into<NvValue>) {
        self.other.retain(|(other, _)| *other != name);
        self.other.push((Text::from(name), value.into()));
    }

    /// The txg in which a device joined that has not been resilvered since: a resilver that began
    /// before it fills the device only in part.
    #[doc(alias = "ZPOOL_CONFIG_RESILVER_TXG")]
    pub fn resilver_txg(&self) -> Option<Txg> {
        self.txg_pair(RESILVER_TXG)
    }

    /// Sets the txg in which a device joined that is not resilvered yet.
    pub fn set_resilver_txg(&mut self, txg: Option<Txg>) {
        self.set_txg_pair(RESILVER_TXG, txg);
    }

    /// The txg in which a device joined that has not been filled by a sequential rebuild since.
    #[doc(alias = "ZPOOL_CONFIG_REBUILD_TXG")]
    pub fn rebuild_txg(&self) -> Option<Txg> {
        self.txg_pair(REBUILD_TXG)
    }

    /// Sets the txg in which a device joined that is not rebuilt yet.
    pub fn set_rebuild_txg(&mut self, txg: Option<Txg>) {
        self.set_txg_pair(REBUILD_TXG, txg);
    }

    fn txg_pair(&self, name: &str) -> Option<Txg> {
        let pair = self.other.iter().find(|(other, _)| *other == name);
        pair.and_then(|(_, value)| match value {
            NvValue::Uint64(txg) => Some(Txg::from(*txg)),
            _ => None,
        })
    }

    fn set_txg_pair(&mut self, name: &str, txg: Option<Txg>) {
        match txg {
            Some(txg) => self.set_other(name, txg.get()),
            None => self.other.retain(|(other, _)| *other != name),
        }
    }

    /// Whether the siblings of this device below a `spare` vdev are detached when it is whole.
    #[doc(alias = "vdev_unspare")]
    pub fn is_unspare(&self) -> bool {
        let pair = self.other.iter().find(|(name, _)| *name == UNSPARE);
        pair.is_some_and(|(_, value)| *value != NvValue::Uint64(0))
    }

    /// Sets whether the siblings of this device below a `spare` vdev are detached when it is whole.
    pub fn set_unspare(&mut self, is_unspare: bool) {
        match is_unspare {
            true => self.set_other(UNSPARE, 1u64),
            false => self.other.retain(|(name, _)| *name != UNSPARE),
        }
    }

    /// The first birth in the device's dirty time log that the MOS may not have.
    pub fn unsaved_dtl(&self) -> Option<Txg> {
        let pair = self.other.iter().find(|(name, _)| *name == UNSAVED_DTL);
        pair.map(|(_, value)| match value {
            NvValue::Uint64(birth) => Txg::from(*birth),
            _ => Txg::ZERO,
        })
    }

    /// Sets the first birth in the device's dirty time log that the MOS may not have.
    pub(crate) fn set_unsaved_dtl(&mut self, first: Option<Txg>) {
        match first {
            Some(first) => self.set_other(UNSAVED_DTL, first.get()),
            None => self.other.retain(|(name, _)| *name != UNSAVED_DTL),
        }
    }

    /// Adds the unsaved births that another configuration has: labels can have some that the MOS of
    /// their txg lacks.
    pub fn add_unsaved_dtls(&mut self, other: &VdevConfig) {
        let leaves = other.leaves().into_iter();
        let unsaved = leaves.filter_map(|leaf| Some((leaf.guid, leaf.unsaved_dtl()?)));
        let unsaved: Vec<(Guid, Txg)> = unsaved.collect();
        self.change_each(&mut |vdev| {
            if let Some((_, first)) = unsaved.iter().find(|(guid, _)| *guid == vdev.guid) {
                let known = vdev.unsaved_dtl().unwrap_or(*first);
                vdev.set_unsaved_dtl(Some(known.min(*first)));
            }
        });
    }

    /// This vdev and all below it, parents first. Hot spares and caches are not below.
    pub fn walk(&self) -> Vec<&VdevConfig> {
        let mut found = vec![self];
        found.extend(self.children.iter().flat_map(VdevConfig::walk));
        found
    }

    /// The devices at or below this vdev, in order.
    pub fn leaves(&self) -> Vec<&VdevConfig> {
        let all = self.walk().into_iter();
        all.filter(|vdev| vdev.kind.is_leaf()).collect()
    }

    /// Calls `change` for this vdev and all below it, hot spares and caches included.
    pub fn change_each(&mut self, change: &mut dyn FnMut(&mut VdevConfig)) {
        change(self);
        let lists = [&mut self.children, &mut self.spares, &mut self.caches];
        for vdev in lists.into_iter().flatten() {
            vdev.change_each(change);
        }
    }

    /// The vdev of this guid, at or below this one.
    pub fn find(&self, guid: Guid) -> Option<&VdevConfig> {
        self.walk().into_iter().find(|vdev| vdev.guid == guid)
    }

    /// The sum over the guids of this vdev and all below it, as the uberblock has it.
    #[doc(alias = "vdev_guid_sum")]
    pub fn guid_sum(&self) -> Guid {
        let guids = self.walk().into_iter().map(|vdev| vdev.guid);
        guids.fold(Guid::ZERO, Guid::wrapping_add)
    }

    /// Gives every child its index, all the way down.
    pub fn number_children(&mut self) {
        for (id, child) in (0..).zip(&mut self.children) {
            child.id = id;
            child.number_children();
        }
    }

    fn to_list(&self, is_wanted: &dyn Fn(&Text) -> bool) -> NvList {
        let mut list = NvList::new();
        list.set("type", self.kind.name());
        // Hot spares and cache devices have no index.
        if !self.is_idle_spare() && self.cache_ashift.is_none() {
            list.set("id", self.id);
        }
        list.set("guid", self.guid.get());
        let texts = [
            ("path", &self.path),
            ("devid", &self.device_id),
            ("phys_path", &self.physical_path),
            ("vdev_enc_sysfs_path", &self.enclosure_path),
            ("fru", &self.replaceable_unit),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                list.set(name, text.clone());
            }
        }
        if let VdevKind::Raidz { parity } | VdevKind::Draid { parity } = self.kind {
            list.set("nparity", u64::from(parity));
        }
        if let Some(whole) = self.whole_disk {
            list.set("whole_disk", u64::from(whole));
        }
        set_if(&mut list, "not_present", self.not_present);
        set_if(&mut list, "is_spare", self.is_spare);
        if let Some(top_level) = &self.top_level {
            top_level.write_to(&mut list);
        }
        if let Some(shift) = self.cache_ashift {
            list.set("ashift", u64::from(shift));
        }
        if let Some(object) = self.dtl {
            list.set("DTL", object.get());
        }
        if !self.create_txg.is_zero() {
            list.set("create_txg", self.create_txg.get());
        }
        for (name, value) in self.other.iter().filter(|(name, _)| is_wanted(name)) {
            list.set(name, value.clone());
        }
        self.write_lists_to(&mut list, is_wanted);
        self.condition.write_to(&mut list);
        list
    }

    fn write_lists_to(&self, list: &mut NvList, is_wanted: &dyn Fn(&Text) -> bool) {
        let lists = [
            ("children", &self.children),
            ("spares", &self.spares),
            ("l2cache", &self.caches),
        ];
        for (name, vdevs) in lists {
            if !vdevs.is_empty() {
                let lists: Vec<_> = vdevs.iter().map(|vdev| vdev.to_list(is_wanted)).collect();
                list.set(name, lists);
            }
        }
    }

    fn is_idle_spare(&self) -> bool {
        self.is_spare && self.create_txg.is_zero() && self.kind.is_leaf()
    }

    /// Refuses a vdev with too many or too few children.
    fn check_shape(&self) -> Result<(), ConfigError> {
        let count = self.children.len();
        let fits = match self.kind {
            VdevKind::Root => true,
            VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => count >= 1,
            VdevKind::Raidz { parity } | VdevKind::Draid { parity } => {
                count > usize::from(parity) && count <= RAIDZ_WIDTH_MAX
            }
            VdevKind::File | VdevKind::Disk | VdevKind::DistributedSpare => count == 0,
            VdevKind::Indirect | VdevKind::Hole | VdevKind::Missing => true,
        };
        if !fits {
            return Err(ConfigError::Children {
                kind: self.kind.name(),
                guid: self.guid,
                count,
            });
        }
        if self.kind == VdevKind::Root {
            for (index, child) in (0..).zip(&self.children) {
                if child.id != index {
                    return Err(ConfigError::Misnumbered {
                        guid: child.guid,
                        id: child.id,
                        index,
                    });
                }
            }
        }
        Ok(())
    }
}

/// The sector shift of a vdev without a size, which only a cache device has.
fn cache_ashift(list: &NvList) -> Result<Option<u32>, ConfigError> {
    let Some(found) = list.optional_u64("ashift")? else {
        return Ok(None);
    };
    if list.optional_u64("asize")?.is_some() || list.optional_u64("metaslab_array")?.is_some() {
        return Ok(None);
    }
    match u32::try_from(found) {
        Ok(shift) if (ASHIFT_MIN..=ASHIFT_MAX).contains(&shift) => Ok(Some(shift)),
        // A malformed one is replaced by that of the device.
        _ => Ok(None),
    }
}

impl TopLevelConfig {
    /// None for a vdev below the top level, and for a hole, which may have some of these pairs
    /// without meaning.
    fn parse(list: &NvList) -> Result<Option<TopLevelConfig>, ConfigError> {
        let Some(ashift) = list.optional_u64("ashift")? else {
            return Ok(None);
        };
        let Some(asize) = list.optional_u64("asize")? else {
            return Ok(None);
        };
        let shift = |name: &'static str, found: u64, range: std::ops::RangeInclusive<u64>| {
            match u32::try_from(found) {
                Ok(shift) if range.contains(&found) => Ok(shift),
                _ => Err(ConfigError::Number { name, found }),
            }
        };
        let flag = |name: &str| {
            list.optional_u64(name)
                .map(|number| number.unwrap_or(0) != 0)
        };
        let found = list.optional_u64("metaslab_shift")?.unwrap_or(0);
        let metaslab_shift = shift("metaslab_shift", found, 0..=METASLAB_SHIFT_MAX)?;
        let metaslab_array = ObjectId::from(list.optional_u64("metaslab_array")?.unwrap_or(0));
        let metaslab_count = metaslab_count(AllocatedSize::from(asize), metaslab_shift);
        if !metaslab_array.is_zero() && metaslab_count > METASLABS_MAX {
            let name = "metaslab_shift";
            return Err(ConfigError::Number { name, found });
        }
        Ok(Some(TopLevelConfig {
            metaslab_array,
            metaslab_shift,
            // A hole and a removed vdev may have no sectors.
            ashift: match ashift {
                0 => 0,
                _ => shift(
                    "ashift",
                    ashift,
                    u64::from(ASHIFT_MIN)..=u64::from(ASHIFT_MAX),
                )?,
            },
            asize: AllocatedSize::from(asize),
            is_log: flag("is_log")?,
            non_allocating: flag("non_allocating")?,
            removing: flag("removing")?,
        }))
    }

    fn write_to(&self, list: &mut NvList) {
        list.set("metaslab_array", self.metaslab_array.get());
        list.set("metaslab_shift", u64::from(self.metaslab_shift));
        list.set("ashift", u64::from(self.ashift));
        list.set("asize", self.asize.get());
        list.set("is_log", u64::from(self.is_log));
        set_if(list, "non_allocating", self.non_allocating);
        set_if(list, "removing", self.removing);
    }
}

impl StoredCondition {
    fn write_to(self, list: &mut NvList) {
        set_if(list, "offline", self.offline);
        set_if(list, "faulted", self.faulted);
        set_if(list, "degraded", self.degraded);
        set_if(list, "removed", self.removed);
        if let Some(reason) = self.reason {
            list.set("aux_state", reason.name());
        }
    }
}

fn set_if(list: &mut NvList, name: &str, is_set: bool) {
    if is_set {
        list.set(name, 1u64);
    }
}

fn parse_all(list: &NvList, name: &str) -> Result<Vec<VdevConfig>, ConfigError> {
    let lists = list.optional_lists(name).map_err(ConfigError::List)?;
    lists.unwrap_or(&[]).iter().map(VdevConfig::parse).collect()
}

fn carried(list: &NvList) -> Vec<(Text, NvValue)> {
    let unknown = |(name, _): &(&Text, &NvValue)| !KNOWN.iter().any(|known| *name == known);
    let pairs = list.iter().filter(unknown);
    pairs
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

impl From<NvError> for ConfigError {
    fn from(error: NvError) -> ConfigError {
        ConfigError::List(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(id: u64) -> NvList {
        NvList::new()
            .with("type", "file")
            .with("id", id)
            .with("guid", 100 + id)
            .with("path", format!("/share/{id}.img"))
            .with("create_txg", 4u64)
    }

    fn raidz() -> NvList {
        NvList::new()
            .with("type", "raidz")
            .with("id", 0u64)
            .with("guid", 7u64)
            .with("nparity", 2u64)
            .with("metaslab_array", 135u64)
            .with("metaslab_shift", 25u64)
            .with("ashift", 12u64)
            .with("asize", 383_778_816u64)
            .with("is_log", 0u64)
            .with("create_txg", 4u64)
            .with("com.delphix:vdev_zap_top", 129u64)
            .with("children", (0..4).map(file).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_stored_comes_back_in_its_order() {
        let list = raidz();
        let config = VdevConfig::parse(&list).unwrap();
        assert_eq!(config.kind, VdevKind::Raidz { parity: 2 });
        assert_eq!(config.top_level.as_ref().unwrap().ashift, 12);
        assert_eq!(
            config.other_object("com.delphix:vdev_zap_top"),
            Some(ObjectId::from(129))
        );
        assert_eq!(config.to_mos_list(), list);
        assert!(!config.to_label_list().contains("com.delphix:vdev_zap_top"));
    }

    #[test]
    fn a_device_says_from_which_birth_on_it_missed_writes_that_the_mos_may_not_have() {
        let since = |first| Some(Txg::new(first));
        let mut config = VdevConfig::parse(&file(1)).unwrap();
        assert_eq!(config.unsaved_dtl(), None);
        config.set_unsaved_dtl(since(9));
        let stored = VdevConfig::parse(&config.to_label_list()).unwrap();
        assert_eq!(stored.unsaved_dtl(), since(9));
        let mut other = VdevConfig::parse(&file(2)).unwrap();
        other.add_unsaved_dtls(&config);
        assert_eq!(other.unsaved_dtl(), None, "it is another one");
        let mut same = VdevConfig::parse(&file(1)).unwrap();
        same.add_unsaved_dtls(&config);
        assert_eq!(same.unsaved_dtl(), since(9));
        config.set_unsaved_dtl(None);
        same.add_unsaved_dtls(&config);
        assert_eq!(same.unsaved_dtl(), since(9), "one of them knows it");
        config.set_unsaved_dtl(since(7));
        same.add_unsaved_dtls(&config);
        assert_eq!(same.unsaved_dtl(), since(7));
        config.set_unsaved_dtl(None);
        assert_eq!(config.to_label_list(), file(1));
        let of_before = file(1).with(UNSAVED_DTL, 1u64);
        let of_before = VdevConfig::parse(&of_before).unwrap();
        assert_eq!(of_before.unsaved_dtl(), since(1), "all births");
    }

    #[test]
    fn the_sum_of_guids_covers_the_tree() {
        let config = VdevConfig::parse(&raidz()).unwrap();
        assert_eq!(config.guid_sum().get(), 7 + 100 + 101 + 102 + 103);
        assert_eq!(config.leaves().len(), 4);
    }

    #[test]
    fn an_offline_child_says_so_behind_everything_else() {
        let list = file(2).with("offline", 1u64).with("aux_state", "external");
        let config = VdevConfig::parse(&list).unwrap();
        assert!(config.condition.offline);
        assert_eq!(config.condition.reason, Some(StoredReason::External));
        assert_eq!(config.to_label_list(), list);
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let wide = raidz().with("nparity", 4u64);
        assert!(matches!(
            VdevConfig::parse(&wide),
            Err(ConfigError::Parity { parity: 4 })
        ));
        let narrow = raidz().with("children", vec![file(0), file(1)]);
        assert!(matches!(
            VdevConfig::parse(&narrow),
            Err(ConfigError::Children { count: 2, .. })
        ));
        let odd = raidz().with("type", "tape");
        assert!(matches!(
            VdevConfig::parse(&odd),
            Err(ConfigError::UnknownType { .. })
        ));
        let metaslabs = raidz()
            .with("ashift", 12u64)
            .with("asize", 1u64 << 30)
            .with("metaslab_array", 7u64)
            .with("metaslab_shift", 1u64);
        let refused = VdevConfig::parse(&metaslabs).expect_err("they are too many");
        assert!(refused.to_string().contains("metaslab_shift"), "{refused}");
        let sectors = raidz().with("ashift", 40u64);
        assert!(matches!(
            VdevConfig::parse(&sectors),
            Err(ConfigError::Number { .. })
        ));
        let root = NvList::new()
            .with("type", "root")
            .with("id", 0u64)
            .with("guid", 1u64)
            .with("children", vec![raidz().with("id", 1u64)]);
        assert!(matches!(
            VdevConfig::parse(&root),
            Err(ConfigError::Misnumbered { .. })
        ));
    }
}
