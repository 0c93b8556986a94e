//! Files: their attributes and paths.

use crate::look::Look;
use crate::out::Out;
use crate::set::SetView;
use crate::zap_view;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use tarn_object::zap::{OwnedName, ZapValue};
use tarn_object::{Object, ObjectSet};
use tarn_ondisk::attributes::{
    Attributes, FileAttribute, LAYOUTS_NAME, Layouts, REGISTRY_NAME, Registry,
};
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::fuid::{Fuid, FuidTable};
use tarn_ondisk::nvlist::{NvList, NvValue};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::{DirectoryEntry, MASTER_NODE, ZnodeFlags, master};
use tarn_terminal::timestamp::ctime;

/// Most components of a path: a guard against circular directories.
const PATH_DEPTH_MAX: usize = 4096;

/// The file type in a mode, and two of its values.
const MODE_KIND: u64 = 0o170_000;
const MODE_DIRECTORY: u64 = 0o040_000;
const MODE_LINK: u64 = 0o120_000;

/// Longest symbolic link target that is printed.
const TARGET_BYTES_MAX: usize = 4096;

/// Why a file has no path.
enum NoPath {
    /// Its last name was removed while it was open.
    Unlinked,
    /// No directory has it.
    Lost,
}

/// The names in a directory, by object.
type Names = BTreeMap<ObjectId, Vec<u8>>;

/// The registries needed to decode the files of a set.
pub struct Files {
    set: Arc<ObjectSet>,
    registry: Registry,
    layouts: Layouts,
    domains: Option<FuidTable>,
    unlinked: Names,
    /// Directories that were read.
    directories: RefCell<BTreeMap<ObjectId, Names>>,
    /// Number of files without a path.
    pub leaked: Cell<u64>,
}

impl Files {
    /// Loads the registries of an object set. An unreadable one counts as missing.
    fn of(look: &Look<'_>, set: &Arc<ObjectSet>) -> Files {
        let number = |zap: ObjectId, name: &str| {
            let object = set.object(zap, look.operation()).ok()?;
            let value = zap_view::open(look, &object).lookup_word(name);
            value.ok().flatten().map(ObjectId::new)
        };
        let entries = |zap: ObjectId| {
            let object = set.object(zap, look.operation()).ok()?;
            zap_view::open(look, &object).entries().ok()
        };
        let mut registry = Registry::of_old_files();
        let mut layouts = Layouts::new();
        if let Some(own) = number(MASTER_NODE, master::ATTRIBUTES) {
            let stored = number(own, REGISTRY_NAME)
                .and_then(entries)
                .unwrap_or_default();
            let words = stored.iter().filter_map(|entry| match &entry.name {
                OwnedName::Text(name) => Some((name.as_slice(), entry.value.as_word()?)),
                OwnedName::Words(_) => None,
            });
            registry = Registry::from_entries(words).unwrap_or(registry);
            for entry in number(own, LAYOUTS_NAME)
                .and_then(entries)
                .unwrap_or_default()
            {
                if let (OwnedName::Text(name), ZapValue::Halves(ids)) = (&entry.name, &entry.value)
                {
                    // A malformed layout is an error only for files that use it.
                    let _ = layouts.add_entry(name, ids);
                }
            }
        }
        let unlinked = number(MASTER_NODE, master::UNLINKED).and_then(entries);
        let unlinked = unlinked.unwrap_or_default().into_iter();
        let unlinked = unlinked
            .filter_map(|entry| Some((ObjectId::new(entry.value.as_word()?), Vec::new())))
            .collect();
        let domains =
            number(MASTER_NODE, master::FUID_TABLE).and_then(|table| domains(look, set, table));
        Files {
            set: set.clone(),
            registry,
            layouts,
            domains,
            unlinked,
            directories: RefCell::default(),
            leaked: Cell::new(0),
        }
    }

    /// The attributes of a file.
    fn attributes(&self, look: &Look<'_>, object: &Object) -> Result<Attributes, String> {
        let (bonus_type, bonus) = object.typed_bonus();
        if bonus_type == ObjectType::Znode {
            return Attributes::of_old_file(&bonus, ByteOrder::Little)
                .map_err(|error| error.to_string());
        }
        if bonus_type != ObjectType::SystemAttributes {
            return Err("it is no file".to_string());
        }
        let mut attributes = Attributes::new();
        let added = attributes.add_buffer(&bonus, &self.registry, &self.layouts);
        added.map_err(|error| error.to_string())?;
        let spill = object
            .spill(look.operation())
            .map_err(|error| error.to_string())?;
        if let Some(spill) = spill {
            let added = attributes.add_buffer(&spill, &self.registry, &self.layouts);
            added.map_err(|error| error.to_string())?;
        }
        Ok(attributes)
    }

    fn bytes<'a>(&self, attributes: &'a Attributes, wanted: FileAttribute) -> Option<&'a [u8]> {
        attributes.get(self.registry.id(wanted)?)
    }

    fn word(&self, attributes: &Attributes, wanted: FileAttribute) -> Option<u64> {
        attributes.word(self.registry.id(wanted)?)
    }

    /// The path of a file.
    #[doc(alias = "zfs_obj_to_path")]
    fn path(&self, look: &Look<'_>, id: ObjectId) -> Result<Vec<u8>, NoPath> {
        if self.unlinked.contains_key(&id) {
            return Err(NoPath::Unlinked);
        }
        let mut components: Vec<Vec<u8>> = Vec::new();
        let mut current = id;
        for _ in 0..PATH_DEPTH_MAX {
            let object = self.set.object(current, look.operation());
            let object = object.map_err(|_| NoPath::Lost)?;
            let attributes = self.attributes(look, &object).map_err(|_| NoPath::Lost)?;
            let word = |wanted| self.word(&attributes, wanted).ok_or(NoPath::Lost);
            let parent = ObjectId::new(word(FileAttribute::Parent)?);
            if parent == current {
                components.reverse();
                let mut path = Vec::new();
                for component in &components {
                    path.push(b'/');
                    path.extend_from_slice(component);
                }
                return Ok(if path.is_empty() { b"/".to_vec() } else { path });
            }
            let flags = ZnodeFlags::from_word(word(FileAttribute::Flags)?);
            let is_directory = word(FileAttribute::Mode)? & MODE_KIND == MODE_DIRECTORY;
            let component = match flags.has(ZnodeFlags::XATTR) && is_directory {
                true => b"<xattrdir>".to_vec(),
                false => self.name_in(look, parent, current).ok_or(NoPath::Lost)?,
            };
            components.push(component);
            current = parent;
        }
        Err(NoPath::Lost)
    }

    /// The first name under which a directory has a file.
    fn name_in(&self, look: &Look<'_>, directory: ObjectId, id: ObjectId) -> Option<Vec<u8>> {
        let mut directories = self.directories.borrow_mut();
        let names = directories.entry(directory).or_insert_with(|| {
            let mut names = Names::new();
            if let Ok(object) = self.set.object(directory, look.operation()) {
                let entries = zap_view::open(look, &object).entries();
                for entry in entries.unwrap_or_default() {
                    if let (OwnedName::Text(name), Some(word)) = (entry.name, entry.value.as_word())
                    {
                        let leads_to = DirectoryEntry::from_word(word).object;
                        names.entry(leads_to).or_insert(name);
                    }
                }
            }
            names
        });
        names.get(&id).cloned()
    }
}

/// The table of owners' domains.
fn domains(look: &Look<'_>, set: &Arc<ObjectSet>, table: ObjectId) -> Option<FuidTable> {
    let object = set.object(table, look.operation()).ok()?;
    let size = usize::try_from(u64::from_le_bytes(*object.bonus().first_chunk::<8>()?)).ok()?;
    let mut bytes = vec![0; size.min(1 << 24)];
    object.read(0, &mut bytes, look.operation()).ok()?;
    FuidTable::decode(&bytes).ok()
}

/// Prints the attributes of a file.
pub fn show(out: &mut Out, look: &Look<'_>, view: &SetView, object: &Arc<Object>) {
    let Some(set) = &view.set else { return };
    let files = view.files.get_or_init(|| Files::of(look, set));
    let attributes = match files.attributes(look, object) {
        Ok(attributes) => attributes,
        Err(error) => {
            look.is_corrupt.set(true);
            writeln!(out, "\tFailed to get handle for SA znode: {error}");
            return;
        }
    };
    let Some(facts) = Facts::of(files, &attributes) else {
        return;
    };
    if look.depth() > 4 {
        path(out, look, files, object.id());
    }
    if facts.mode & MODE_KIND == MODE_LINK {
        target(out, files, &attributes);
    }
    owner(out, files, "uid", facts.owner);
    owner(out, files, "gid", facts.group);
    for (name, seconds) in [
        ("atime", facts.times[0]),
        ("mtime", facts.times[1]),
        ("ctime", facts.times[2]),
        ("crtime", facts.times[3]),
    ] {
        writeln!(out, "\t{name}\t{}", ctime(seconds.cast_signed()));
    }
    writeln!(out, "\tgen\t{}", facts.generation);
    writeln!(out, "\tmode\t{:o}", facts.mode);
    writeln!(out, "\tsize\t{}", facts.size);
    writeln!(out, "\tparent\t{}", facts.parent);
    writeln!(out, "\tlinks\t{}", facts.links);
    writeln!(out, "\tpflags\t{:x}", facts.flags);
    let word = |wanted| files.word(&attributes, wanted);
    if ZnodeFlags::from_word(facts.flags).has(ZnodeFlags::HAS_PROJECT)
        && let Some(project) = word(FileAttribute::Project)
    {
        writeln!(out, "\tprojid\t{project}");
    }
    if let Some(xattr) = word(FileAttribute::XattrDirectory) {
        writeln!(out, "\txattr\t{xattr}");
    }
    if let Some(device) = word(FileAttribute::Device) {
        writeln!(out, "\trdev\t0x{device:016x}");
    }
    if let Some(bytes) = files.bytes(&attributes, FileAttribute::Xattrs) {
        xattrs(out, look, bytes);
    }
}

/// The attributes that every file has.
struct Facts {
    owner: u64,
    group: u64,
    links: u64,
    generation: u64,
    mode: u64,
    parent: u64,
    size: u64,
    flags: u64,
    /// Of access, modification, change, creation: seconds.
    times: [u64; 4],
}

impl Facts {
    fn of(files: &Files, attributes: &Attributes) -> Option<Facts> {
        let word = |wanted| files.word(attributes, wanted);
        let seconds = |wanted| {
            let id = files.registry.id(wanted)?;
            attributes.two_words(id).map(|[seconds, _]| seconds)
        };
        Some(Facts {
            owner: word(FileAttribute::Owner)?,
            group: word(FileAttribute::Group)?,
            links: word(FileAttribute::Links)?,
            generation: word(FileAttribute::Generation)?,
            mode: word(FileAttribute::Mode)?,
            parent: word(FileAttribute::Parent)?,
            size: word(FileAttribute::Size)?,
            flags: word(FileAttribute::Flags)?,
            times: [
                seconds(FileAttribute::AccessTime)?,
                seconds(FileAttribute::ModificationTime)?,
                seconds(FileAttribute::ChangeTime)?,
                seconds(FileAttribute::CreationTime)?,
            ],
        })
    }
}

fn path(out: &mut Out, look: &Look<'_>, files: &Files, id: ObjectId) {
    write!(out, "\tpath\t");
    match files.path(look, id) {
        Ok(path) => out.bytes(&path),
        Err(NoPath::Unlinked) => write!(out, "on delete queue"),
        Err(NoPath::Lost) => {
            files.leaked.set(files.leaked.get() + 1);
            write!(out, "path not found, possibly leaked");
        }
    }
    writeln!(out);
}

fn target(out: &mut Out, files: &Files, attributes: &Attributes) {
    match files.bytes(attributes, FileAttribute::LinkTarget) {
        None | Some([]) => {}
        Some(target) if target.len() >= TARGET_BYTES_MAX => {
            writeln!(out, "symlink size {} is too large", target.len());
        }
        Some(target) => {
            write!(out, "\ttarget\t");
            let end = target.iter().position(|byte| *byte == 0);
            out.bytes(&target[..end.unwrap_or(target.len())]);
            writeln!(out);
        }
    }
}

fn owner(out: &mut Out, files: &Files, name: &str, word: u64) {
    let fuid = Fuid::from_word(word);
    match fuid.domain() {
        0 => writeln!(out, "\t{name}     {word}"),
        index => {
            let table = files.domains.as_ref();
            let domain = table
                .and_then(|table| table.domain(index))
                .unwrap_or("(null)");
            writeln!(out, "\t{name}     {word:x} [{domain}-{}]", fuid.number());
        }
    }
}

/// Extended attributes in the system attributes.
fn xattrs(out: &mut Out, look: &Look<'_>, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let Ok(list) = NvList::decode(bytes) else {
        return;
    };
    writeln!(
        out,
        "\tSA xattrs: {} bytes, {} entries\n",
        bytes.len(),
        list.len()
    );
    for (name, value) in list.iter() {
        write!(out, "\t\t{name} = ");
        if let NvValue::ByteArray(value) = value {
            let is_text = value.iter().all(|byte| (0x20..0x7f).contains(byte));
            if is_text && !look.options.has('P') {
                out.bytes(value);
            } else {
                value.iter().for_each(|byte| write!(out, "\\{byte:03o}"));
            }
        }
        writeln!(out);
    }
}
