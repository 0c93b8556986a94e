//! Object sets: the MOS and datasets, with their deadlists and objects.

use crate::intent_log;
use crate::look::Look;
use crate::object::ObjectShower;
use crate::options::ObjectRange;
use crate::out::Out;
use crate::pointer;
use crate::zap_view;
use crate::znode::Files;
use std::cell::OnceCell;
use std::sync::Arc;
use tarn_engine::inspect::InspectError;
use tarn_object::{
    GROUP_USED, MOS_ID, ObjectError, ObjectSet, PROJECT_USED, PointerList, Step, USER_USED,
};
use tarn_ondisk as ondisk;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::bookmark::Bookmark;
use tarn_ondisk::bpobj::{PointerListHead, PointerListVersion};
use tarn_ondisk::dataset::DatasetFlags;
use tarn_ondisk::deadlist::{DeadlistForm, DeadlistHead, entry_txg};
use tarn_ondisk::declare::{ByteOrder, widen};
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_pool::PoolError;

/// Deepest nesting of pointer lists.
const NESTING_MAX: usize = 64;

/// The facts of a DSL directory that its dataset needs.
#[derive(Debug, Clone)]
pub struct DirectoryFacts {
    /// The stored directory.
    pub stored: ondisk::dataset_dir::DatasetDirectory,
    /// The livelist of its head, if there is one.
    pub livelist: Option<ObjectId>,
}

/// An object set to print.
pub struct SetView {
    /// Its number.
    pub id: ObjectId,
    /// Its full name.
    pub name: String,
    /// Its objset block.
    pub root: BlockPointer,
    /// The set; none for one that was never filled, or cannot be read.
    pub set: Option<Arc<ObjectSet>>,
    /// The stored dataset; none for the MOS.
    pub dataset: Option<ondisk::dataset::Dataset>,
    /// The directory of a dataset.
    pub directory: Option<DirectoryFacts>,
    /// Referenced bytes.
    pub referenced: u64,
    /// When it was made.
    pub created: Txg,
    /// Whether its contents are encrypted, so that they cannot be read.
    pub is_encrypted: bool,
    /// The compression that its objects inherit.
    pub compression: String,
    /// The registries of attributes, loaded on demand.
    pub files: OnceCell<Files>,
}

impl SetView {
    /// The MOS.
    pub fn of_mos(look: &Look<'_>) -> Result<SetView, InspectError> {
        let directory = look.directory();
        let root: ondisk::dataset_dir::DatasetDirectory =
            directory.bonus(directory.require(ondisk::pool_directory::ROOT_DATASET)?)?;
        let own = directory.value_in(root.children, "$MOS")?;
        let own = own.and_then(|value| value.as_word()).map(ObjectId::new);
        let used = match own {
            Some(own) => directory
                .bonus::<ondisk::dataset_dir::DatasetDirectory>(own)?
                .used
                .get(),
            None => 0,
        };
        Ok(SetView {
            id: MOS_ID,
            name: "mos".to_string(),
            root: look.pool().uberblock().root,
            set: Some(look.pool().mos().clone()),
            dataset: None,
            directory: None,
            referenced: used,
            created: Txg::INITIAL,
            is_encrypted: false,
            compression: "on".to_string(),
            files: OnceCell::new(),
        })
    }

    /// A dataset, by its object and full name.
    pub fn of_dataset(
        look: &Look<'_>,
        id: ObjectId,
        name: String,
    ) -> Result<SetView, InspectError> {
        let directory = look.directory();
        let stored: ondisk::dataset::Dataset = directory.bonus(id)?;
        let facts = DirectoryFacts {
            stored: directory.bonus(stored.directory)?,
            livelist: extension(look, stored.directory, ondisk::dataset_dir::LIVELIST)?,
        };
        let crypto = extension(look, stored.directory, ondisk::dataset_dir::CRYPTO_KEY)?;
        let mos = look.pool().mos();
        let set = match stored.root.is_hole() {
            true => None,
            false => {
                let (env, policy) = (mos.env().clone(), mos.policy());
                let opened = ObjectSet::open(env, id, &stored.root, policy, None, look.operation());
                Some(opened.map_err(|cause| InspectError::Object { object: id, cause })?)
            }
        };
        Ok(SetView {
            id,
            root: stored.root,
            set,
            dataset: Some(stored),
            referenced: stored.referenced.get(),
            created: stored.creation_txg,
            is_encrypted: crypto.is_some(),
            compression: match stored.is_snapshot() {
                // Nothing is written to a snapshot, so OpenZFS does not ask for its property.
                true => "inherit".to_string(),
                false => compression(look, &facts.stored),
            },
            directory: Some(facts),
            name,
            files: OnceCell::new(),
        })
    }

    /// What the set contains.
    pub fn kind(&self) -> ObjsetType {
        self.set
            .as_ref()
            .map_or(ObjsetType::None, |set| set.objset_type())
    }
}

/// A number under a name in an object that may also be a ZAP.
pub fn extension(
    look: &Look<'_>,
    id: ObjectId,
    name: &str,
) -> Result<Option<ObjectId>, InspectError> {
    let directory = look.directory();
    if !directory.object(id)?.object_type().is_zap() {
        return Ok(None);
    }
    let value = directory.value_in(id, name)?;
    Ok(value.and_then(|value| value.as_word()).map(ObjectId::new))
}

/// The compression set on a directory or the nearest ancestor, as block pointers name it.
fn compression(look: &Look<'_>, directory: &ondisk::dataset_dir::DatasetDirectory) -> String {
    use ondisk::compression::Compression;
    let mut current = *directory;
    for _ in 0..NESTING_MAX {
        let found = look.directory().value_in(current.properties, "compression");
        let word = found.ok().flatten().and_then(|value| value.as_word());
        match word.map(Setting::of) {
            Some(Setting::Named(name)) => return name,
            Some(Setting::Default) => break,
            Some(Setting::Inherited) | None => {}
        }
        if current.parent.is_zero() {
            break;
        }
        match look.directory().bonus(current.parent) {
            Ok(parent) => current = parent,
            Err(_) => break,
        }
    }
    let has_lz4 = look
        .pool()
        .features()
        .count("org.illumos:lz4_compress")
        .is_some();
    let default = if has_lz4 {
        Compression::Lz4
    } else {
        Compression::Lzjb
    };
    default.to_string()
}

/// The compression in a property's number.
enum Setting {
    /// As the directory above has it.
    Inherited,
    /// The default function.
    Default,
    /// This function, with its level.
    Named(String),
}

impl Setting {
    fn of(word: u64) -> Setting {
        use ondisk::compression::Compression;
        // Levels are above the function's number.
        let (code, level) = (word & 0x7f, word >> 7);
        match Compression::from_code(u8::try_from(code).unwrap_or(0)) {
            Compression::Inherit => Setting::Inherited,
            Compression::On => Setting::Default,
            Compression::Zstd => Setting::Named(match level {
                0 => "zstd".to_string(),
                1..=100 => format!("zstd-{level}"),
                101..=110 => format!("zstd-fast-{}", level - 100),
                111..=119 => format!("zstd-fast-{}", (level - 109) * 10),
                120 => "zstd-fast-500".to_string(),
                _ => "zstd-fast-1000".to_string(),
            }),
            plain => Setting::Named(plain.to_string()),
        }
    }
}

/// Calls `each` for every dataset and snapshot, in OpenZFS's order: children first, then snapshots,
/// in the order of their ZAPs.
pub fn for_each_dataset(
    look: &Look<'_>,
    each: &mut dyn FnMut(ObjectId, String) -> Result<(), InspectError>,
) -> Result<(), InspectError> {
    let root = look
        .directory()
        .require(ondisk::pool_directory::ROOT_DATASET)?;
    below(
        look,
        root,
        look.pool().name().to_string(),
        NESTING_MAX,
        each,
    )
}

fn below(
    look: &Look<'_>,
    id: ObjectId,
    name: String,
    nesting_left: usize,
    each: &mut dyn FnMut(ObjectId, String) -> Result<(), InspectError>,
) -> Result<(), InspectError> {
    let directory = look.directory();
    let stored: ondisk::dataset_dir::DatasetDirectory = directory.bonus(id)?;
    if nesting_left > 0 && !stored.children.is_zero() {
        for (component, value) in zap_view::entries(look, stored.children)? {
            if let Some(child) = value.as_word().filter(|_| !component.starts_with('$')) {
                let name = format!("{name}/{component}");
                below(look, ObjectId::new(child), name, nesting_left - 1, each)?;
            }
        }
    }
    if stored.head_dataset.is_zero() {
        return Ok(());
    }
    let head: ondisk::dataset::Dataset = directory.bonus(stored.head_dataset)?;
    if !head.snapshot_names.is_zero() {
        for (snapshot, value) in zap_view::entries(look, head.snapshot_names)? {
            if let Some(id) = value.as_word() {
                each(ObjectId::new(id), format!("{name}@{snapshot}"))?;
            }
        }
    }
    each(stored.head_dataset, name)
}

/// Prints an object set: its first line, and details as the options choose. With ranges only their
/// objects.
///
/// # Errors
/// An object of a range does not exist.
pub fn show(
    out: &mut Out,
    look: &Look<'_>,
    view: &SetView,
    ranges: &[ObjectRange],
) -> Result<(), InspectError> {
    head_line(out, look, view);
    let mut shower = ObjectShower {
        look,
        view,
        wants_heading: true,
    };
    if !ranges.is_empty() {
        for range in ranges {
            show_range(out, &mut shower, range)?;
        }
        return Ok(());
    }
    if let Some(set) = &view.set
        && (look.options.has('i') || look.depth() >= 2)
    {
        intent_log::show(out, look, view, set);
    }
    if let (Some(dataset), Some(directory)) = (&view.dataset, &view.directory) {
        show_dead_blocks(out, look, dataset.deadlist, "Deadlist")?;
        if let Some(livelist) = directory.livelist.filter(|_| !dataset.is_snapshot()) {
            show_dead_blocks(out, look, livelist, "Livelist")?;
        }
        let remapped = extension(look, view.id, ondisk::dataset::REMAP_DEADLIST)?;
        if let Some(remapped) = remapped {
            writeln!(out, "ds_remap_deadlist:");
            show_dead_blocks(out, look, remapped, "Deadlist")?;
        }
        bookmarks(out, look, view.id)?;
    }
    if look.depth() >= 2
        && let Some(set) = &view.set
    {
        show_all(out, &mut shower, set);
    }
    Ok(())
}

fn head_line(out: &mut Out, look: &Look<'_>, view: &SetView) {
    let kind = match view.kind() {
        ObjsetType::None => "NONE",
        ObjsetType::Meta => "META",
        ObjsetType::Zfs => "ZPL",
        ObjsetType::Zvol => "ZVOL",
        _ => "OTHER",
    };
    let root = match look.depth() >= 4 {
        true => format!(", rootbp {}", view.root),
        false => String::new(),
    };
    let is_inconsistent = view
        .dataset
        .is_some_and(|dataset| dataset.flags.contains(DatasetFlags::INCONSISTENT));
    writeln!(
        out,
        "Dataset {} [{kind}], ID {}, cr_txg {}, {}, {} objects{root}{}",
        view.name,
        view.id,
        view.created,
        look.nice(view.referenced),
        view.root.fill(),
        if is_inconsistent {
            " (inconsistent)"
        } else {
            ""
        },
    );
}

fn no_such(object: ObjectId) -> InspectError {
    let set = MOS_ID;
    InspectError::Object {
        object,
        cause: ObjectError::NoSuchObject { set, object },
    }
}

fn show_range(
    out: &mut Out,
    shower: &mut ObjectShower<'_, '_>,
    range: &ObjectRange,
) -> Result<(), InspectError> {
    let (first, last) = (ObjectId::new(range.first), ObjectId::new(range.last));
    let set = shower.view.set.clone().ok_or_else(|| no_such(first))?;
    let operation = shower.look.operation();
    let in_set = |object| move |cause| InspectError::Object { object, cause };
    if range.is_single() || first.is_zero() {
        set.object(first, operation).map_err(in_set(first))?;
        show_one(out, shower, first, range.kinds);
    }
    if range.is_single() {
        return Ok(());
    }
    let mut last_shown = ObjectId::new(range.first.saturating_sub(1));
    while let Some(id) = set
        .next_object(last_shown, operation)
        .map_err(in_set(last_shown))?
    {
        if id > last {
            break;
        }
        show_one(out, shower, id, range.kinds);
        last_shown = id;
    }
    Ok(())
}

/// Prints an object, or the error.
fn show_one(
    out: &mut Out,
    shower: &mut ObjectShower<'_, '_>,
    id: ObjectId,
    kinds: Option<u64>,
) -> u64 {
    match shower.show(out, id, kinds) {
        Ok(slots) => slots,
        Err(error) => {
            shower.look.is_corrupt.set(true);
            writeln!(
                out,
                "{:>10}  cannot be read: {error}",
                id.get().cast_signed()
            );
            0
        }
    }
}

/// All objects; returns the number of their slots.
fn show_all(out: &mut Out, shower: &mut ObjectShower<'_, '_>, set: &Arc<ObjectSet>) {
    show_one(out, shower, tarn_object::META_DNODE, None);
    for account in [USER_USED, GROUP_USED, PROJECT_USED] {
        if set.object(account, shower.look.operation()).is_ok() {
            show_one(out, shower, account, None);
        }
    }
    let (mut used, mut highest) = (0u64, 0u64);
    let mut last = ObjectId::ZERO;
    loop {
        match set.next_object(last, shower.look.operation()) {
            Ok(Some(id)) => {
                let slots = show_one(out, shower, id, None);
                used += slots;
                highest = id.get().saturating_add(slots).saturating_sub(1);
                last = id;
            }
            Ok(None) => break,
            Err(error) => {
                shower.look.is_corrupt.set(true);
                writeln!(out, "\tobjects after {last} cannot be read: {error}");
                break;
            }
        }
    }
    let empty = highest.saturating_sub(used) as f64 * 100.0 / highest as f64;
    writeln!(out, "\n    Dnode slots:");
    writeln!(out, "\tTotal used:    {used:10}");
    writeln!(out, "\tMax used:      {highest:10}");
    writeln!(out, "\tPercent empty: {empty:10.6}\n");
    let leaked = shower
        .view
        .files
        .get()
        .map_or(0, |files| files.leaked.replace(0));
    if leaked != 0 {
        writeln!(out, "{leaked} potentially leaked objects detected");
    }
}

/// The lists of a deadlist or livelist.
pub fn show_dead_blocks(
    out: &mut Out,
    look: &Look<'_>,
    id: ObjectId,
    title: &str,
) -> Result<(), InspectError> {
    if look.depth() < 3 || id.is_zero() {
        return Ok(());
    }
    let directory = look.directory();
    let object = directory.object(id)?;
    if DeadlistForm::of(object.object_type()) == Some(DeadlistForm::List) {
        return show_list(out, look, id, "old-format deadlist", 0);
    }
    let head: DeadlistHead = directory.bonus(id)?;
    let lists = lists_of(look, id)?;
    writeln!(
        out,
        "\n    {title}: {} ({}/{} comp), {} entries",
        look.nice(head.used.get()),
        look.nice(head.compressed.get()),
        look.nice(head.uncompressed.get()),
        look.nice(widen(lists.len()))
    );
    if look.depth() < 4 {
        return Ok(());
    }
    writeln!(out);
    for (txg, list) in lists {
        let name = format!("mintxg {txg} -> obj {list}");
        match look.depth() {
            5.. => show_list(out, look, list, &name, 0)?,
            _ => writeln!(out, "{name}"),
        }
    }
    Ok(())
}

/// The lists of a deadlist, by txg.
pub fn lists_of(look: &Look<'_>, deadlist: ObjectId) -> Result<Vec<(Txg, ObjectId)>, InspectError> {
    let entries = look.directory().entries(deadlist)?;
    let mut lists: Vec<(Txg, ObjectId)> = entries
        .into_iter()
        .filter_map(|(name, value)| Some((entry_txg(&name)?, ObjectId::new(value.as_word()?))))
        .collect();
    lists.sort();
    Ok(lists)
}

/// A list of pointers with its sublists.
pub fn show_list(
    out: &mut Out,
    look: &Look<'_>,
    id: ObjectId,
    name: &str,
    indent: usize,
) -> Result<(), InspectError> {
    if look.depth() < 3 {
        return Ok(());
    }
    let object = look.directory().object(id)?;
    let (head, version) = PointerListHead::from_bonus(&object.bonus(), ByteOrder::Little)
        .map_err(|cause| PoolError::Corrupt { object: id, cause })?;
    let allocated = look.nice(head.allocated.get());
    let freed = match version {
        PointerListVersion::Freed => format!(" {} freed,", head.freed_count),
        _ => String::new(),
    };
    let width = indent * 8;
    if head.sublists.is_zero() {
        writeln!(
            out,
            "    {name:>width$}: object {id}, {} blkptrs,{freed} {allocated}",
            head.count
        );
    } else {
        writeln!(
            out,
            "    {name:>width$}: object {id}, {} local blkptrs,{freed} {} subobjs in object {}, {allocated} ({}/{} comp)",
            head.count,
            head.sublist_count,
            head.sublists,
            look.nice(head.compressed.get()),
            look.nice(head.uncompressed.get())
        );
        let names = look.directory().object(head.sublists)?;
        for index in 0..head.sublist_count {
            let mut word = [0; 8];
            names
                .read(index.saturating_mul(8), &mut word, look.operation())
                .map_err(|cause| InspectError::Object {
                    object: head.sublists,
                    cause,
                })?;
            let list = ObjectId::new(u64::from_le_bytes(word));
            if indent < NESTING_MAX {
                show_list(out, look, list, "subobj", indent + 1)?;
            }
        }
    }
    if look.depth() < 5 || indent > 0 {
        return Ok(());
    }
    let in_list = |cause| InspectError::Object { object: id, cause };
    let list = PointerList::open(look.pool().mos(), id, look.operation()).map_err(in_list)?;
    let visited = list.for_each(look.operation(), |entry| {
        let text = pointer::compact(&entry.pointer, look.depth() > 5, entry.is_freed);
        writeln!(out, "\t{text}");
        Step::Continue
    });
    visited.map_err(in_list)?;
    writeln!(out);
    Ok(())
}

fn bookmarks(out: &mut Out, look: &Look<'_>, dataset: ObjectId) -> Result<(), InspectError> {
    if look.depth() < 4 {
        return Ok(());
    }
    let Some(names) = extension(look, dataset, ondisk::dataset::BOOKMARK_NAMES)? else {
        return Ok(());
    };
    for (name, value) in look.directory().entries(names)? {
        let bytes: Vec<u8> = value
            .to_words()
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let Ok(bookmark) = Bookmark::from_stored(&bytes, ByteOrder::Little) else {
            look.is_corrupt.set(true);
            writeln!(out, "\t#{name}: makes no sense");
            continue;
        };
        writeln!(
            out,
            "\t#{name}: {{guid: {:x} creation_txg: {} creation_time: {} redaction_obj: {}}}",
            bookmark.guid.get(),
            bookmark.creation_txg,
            bookmark.creation_time_s,
            bookmark.redaction
        );
    }
    Ok(())
}
