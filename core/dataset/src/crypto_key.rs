//! Wrapped keys of encrypted datasets, as they are stored.
//!
//! # Mechanism
//! Every directory of an encrypted file system or volume names an object of the MOS, a ZAP, with
//! the keys of its blocks; clones share that of their origin, with a count. The keys in it are
//! encrypted with a wrapping key, which comes from the passphrase or key of an *encryption root*;
//! datasets below inherit it.
//!
//! No key is unwrapped here. A raw stream brings the object ([`KeyFacts`]), and a send includes it;
//! the object is created, shared, and removed with the last directory that uses it.
//!
//! # Invariants
//! - A directory leads to a key exactly when its blocks are sealed with it.

use crate::dataset::Dataset;
use crate::directory::Directory;
use crate::error::DatasetError;
use crate::feature_use;
use crate::properties::parse::Setting;
use crate::properties::set::{Entry, store};
use crate::stored::Reading;
use crate::task::{TaskContext, TaskRefusal};
use tarn_object::zap::ZapValue;
use tarn_object::{HeadSealing, NewSealedSet, ObjectSet};
use tarn_ondisk::checksum::ChecksumKind;
use tarn_ondisk::compression::Compression;
use tarn_ondisk::dataset::IVSET_GUID;
use tarn_ondisk::dataset_dir::CRYPTO_KEY;
use tarn_ondisk::dnode::{INDIRECT_SHIFT_MAX, INDIRECT_SHIFT_MIN, LEVELS_MAX, POINTERS_MAX};
use tarn_ondisk::features::Feature;
use tarn_ondisk::nvlist::{NvList, NvValue};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{BlockId, LogicalSize, ObjectId};

/// The only version there is. Earlier ones sealed what does not travel.
#[doc(alias = "ZIO_CRYPT_KEY_CURRENT_VERSION")]
const VERSION: u64 = 1;

/// The stored numbers of ciphers: the property `encryption`.
const SUITES: std::ops::RangeInclusive<u64> = 3..=8;

/// The stored numbers of the property `keyformat` that say something.
const KEY_FORMATS: std::ops::RangeInclusive<u64> = 1..=3;

/// The one of them whose key is made from a passphrase.
const PASSPHRASE: u64 = 3;

/// Names in a key's object.
mod names {
    pub(super) const SUITE: &str = "DSL_CRYPTO_SUITE";
    pub(super) const GUID: &str = "DSL_CRYPTO_GUID";
    pub(super) const VERSION: &str = "DSL_CRYPTO_VERSION";
    pub(super) const MASTER_KEY: &str = "DSL_CRYPTO_MASTER_KEY_1";
    pub(super) const HMAC_KEY: &str = "DSL_CRYPTO_HMAC_KEY_1";
    pub(super) const VECTOR: &str = "DSL_CRYPTO_IV";
    pub(super) const CODE: &str = "DSL_CRYPTO_MAC";
    pub(super) const ROOT: &str = "DSL_CRYPTO_ROOT_DDOBJ";
    pub(super) const REFERENCES: &str = "DSL_CRYPTO_REFCOUNT";
    pub(super) const FORMAT: &str = "keyformat";
    pub(super) const SALT: &str = "pbkdf2salt";
    pub(super) const ITERATIONS: &str = "pbkdf2iters";
}

/// Where the owner's key is by default: at the prompt.
const PROMPT: &str = "prompt";

/// The list of this name in the description of a raw stream.
pub const KEY_DATA: &str = "crypt_keydata";

/// The facts in a raw stream about the key and its object set.
#[doc(alias = "dsl_crypto_key_phys")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFacts {
    suite: u64,
    guid: u64,
    master_key: [u8; 32],
    hmac_key: [u8; 64],
    vector: [u8; 12],
    code: [u8; 16],
    format: u64,
    iterations: u64,
    salt: u64,
    /// The code of the object set.
    portable_code: [u8; 32],
    checksum: u8,
    compression: u8,
    levels: u8,
    block_size: u64,
    indirect_shift: u8,
    max_block: u64,
    /// Which set of vectors the snapshot has; zero where that is not known.
    pub to_ivset_guid: u64,
    /// Which one the snapshot before it has.
    pub from_ivset_guid: u64,
}

fn invalid(what: &str) -> TaskRefusal {
    TaskRefusal::BadValue {
        property: KEY_DATA.to_string(),
        why: format!("invalid stream (its key cannot be: {what})"),
    }
}

impl KeyFacts {
    /// Parses the list in a stream.
    ///
    /// # Errors
    /// What cannot be.
    #[doc(alias = "dsl_crypto_recv_raw_key_check")]
    #[doc(alias = "dsl_crypto_recv_raw_objset_check")]
    pub fn parse(list: &NvList) -> Result<KeyFacts, TaskRefusal> {
        let number = |name: &str| list.u64(name).map_err(|why| invalid(&why.to_string()));
        let within = |name: &str, bounds: std::ops::RangeInclusive<u64>| {
            let found = number(name)?;
            match bounds.contains(&found) {
                true => Ok(found),
                false => Err(invalid(&format!("{name} is {found}"))),
            }
        };
        let byte = |name: &str, low: u8, high: u8| {
            let found = within(name, u64::from(low)..=u64::from(high))?;
            Ok::<u8, TaskRefusal>(u8::try_from(found).expect("it is within two bytes"))
        };
        let version = number(names::VERSION)?;
        if version != VERSION {
            return Err(TaskRefusal::NotSupported {
                what: format!("a key of version {version}"),
            });
        }
        let format = within(names::FORMAT, KEY_FORMATS)?;
        let (iterations, salt) = (number(names::ITERATIONS)?, number(names::SALT)?);
        let is_passphrase = format == PASSPHRASE;
        if is_passphrase == (iterations == 0) || is_passphrase == (salt == 0) {
            return Err(invalid(
                "a passphrase without salt, or a salt without passphrase",
            ));
        }
        within("mdn_nblkptr", {
            let most = u64::try_from(POINTERS_MAX).expect("three");
            most..=most
        })?;
        let block_size = within("mdn_blksz", 512..=16 << 20)?;
        if !block_size.is_power_of_two() {
            return Err(invalid(&format!("mdn_blksz is {block_size}")));
        }
        let guid_of = |name: &str| list.optional_u64(name).ok().flatten().unwrap_or(0);
        Ok(KeyFacts {
            suite: within(names::SUITE, SUITES)?,
            guid: number(names::GUID)?,
            master_key: bytes(list, names::MASTER_KEY)?,
            hmac_key: bytes(list, names::HMAC_KEY)?,
            vector: bytes(list, names::VECTOR)?,
            code: bytes(list, names::CODE)?,
            format,
            iterations,
            salt,
            portable_code: bytes(list, "portable_mac")?,
            checksum: byte("mdn_checksum", 0, 14)?,
            compression: byte("mdn_compress", 0, 16)?,
            levels: byte("mdn_nlevels", 1, LEVELS_MAX)?,
            block_size,
            indirect_shift: byte("mdn_indblkshift", INDIRECT_SHIFT_MIN, INDIRECT_SHIFT_MAX)?,
            max_block: number("mdn_maxblkid")?,
            to_ivset_guid: guid_of("to_ivset_guid"),
            from_ivset_guid: guid_of("from_ivset_guid"),
        })
    }

    /// What a stream of this snapshot says, that begins where `from_ivset_guid` tells.
    ///
    /// # Errors
    /// When it cannot be read, or its key is of a kind that does not travel.
    #[doc(alias = "dsl_crypto_populate_key_nvlist")]
    pub fn of(
        dataset: &Dataset<'_>,
        objset: &tarn_ondisk::objset::Objset,
        from_ivset_guid: u64,
    ) -> Result<KeyFacts, DatasetError> {
        let directory = dataset.directory();
        let mos = directory.view().mos();
        let key = key_of(directory)?.ok_or_else(|| no_key(directory.id()))?;
        let number = |id, name: &str| -> Result<u64, DatasetError> {
            mos.number(id, name)?.ok_or_else(|| no_key(id))
        };
        if number(key, names::VERSION)? != VERSION {
            return Err(DatasetError::Inconsistent {
                object: key,
                why: "the key is of a version that cannot be sent",
            });
        }
        let root = Directory::open(
            directory.view(),
            ObjectId::new(number(key, names::ROOT)?),
            String::new(),
        )?;
        let root_key = key_of(&root)?.ok_or_else(|| no_key(root.id()))?;
        let format = number(root_key, names::FORMAT)?;
        let (iterations, salt) = match format {
            PASSPHRASE => (
                number(root_key, names::ITERATIONS)?,
                number(root_key, names::SALT)?,
            ),
            _ => (0, 0),
        };
        let meta = &objset.meta_dnode;
        Ok(KeyFacts {
            suite: number(key, names::SUITE)?,
            guid: number(key, names::GUID)?,
            master_key: stored_bytes(mos, key, names::MASTER_KEY)?,
            hmac_key: stored_bytes(mos, key, names::HMAC_KEY)?,
            vector: stored_bytes(mos, key, names::VECTOR)?,
            code: stored_bytes(mos, key, names::CODE)?,
            format,
            iterations,
            salt,
            portable_code: objset.portable_mac,
            checksum: meta.checksum.code(),
            compression: meta.compression.code(),
            levels: meta.levels,
            block_size: meta.data_block_size.get(),
            indirect_shift: meta.indirect_shift,
            max_block: meta.max_block.get(),
            to_ivset_guid: dataset.extension(IVSET_GUID)?.unwrap_or(0),
            from_ivset_guid,
        })
    }

    /// As a stream has it.
    pub fn to_list(&self) -> NvList {
        let of = |bytes: &[u8]| NvValue::Uint8Array(bytes.to_vec());
        let pointers = u64::try_from(POINTERS_MAX).expect("three");
        NvList::new()
            .with(names::SUITE, self.suite)
            .with(names::GUID, self.guid)
            .with(names::VERSION, VERSION)
            .with(names::MASTER_KEY, of(&self.master_key))
            .with(names::HMAC_KEY, of(&self.hmac_key))
            .with(names::VECTOR, of(&self.vector))
            .with(names::CODE, of(&self.code))
            .with("portable_mac", of(&self.portable_code))
            .with(names::FORMAT, self.format)
            .with(names::ITERATIONS, self.iterations)
            .with(names::SALT, self.salt)
            .with("mdn_checksum", u64::from(self.checksum))
            .with("mdn_compress", u64::from(self.compression))
            .with("mdn_nlevels", u64::from(self.levels))
            .with("mdn_blksz", self.block_size)
            .with("mdn_indblkshift", u64::from(self.indirect_shift))
            .with("mdn_nblkptr", pointers)
            .with("mdn_maxblkid", self.max_block)
            .with("to_ivset_guid", self.to_ivset_guid)
            .with("from_ivset_guid", self.from_ivset_guid)
    }

    /// The object set that the stream is for.
    pub fn new_set(&self) -> NewSealedSet {
        NewSealedSet {
            levels: self.levels,
            block_size: LogicalSize::from(self.block_size),
            indirect_shift: self.indirect_shift,
        }
    }

    /// What the object set says when the stream has ended.
    pub fn head(&self) -> HeadSealing {
        HeadSealing {
            portable_code: self.portable_code,
            checksum: ChecksumKind::from_code(self.checksum),
            compression: Compression::from_code(self.compression),
            max_block: BlockId::from(self.max_block),
        }
    }

    /// Whether an object set that is there can become the one of the stream.
    pub fn fits(&self, set: &ObjectSet) -> bool {
        let meta = set.phys().meta_dnode;
        set.is_sealed()
            && meta.levels == self.levels
            && meta.data_block_size.get() == self.block_size
            && meta.indirect_shift == self.indirect_shift
            && meta.pointers.len() == POINTERS_MAX
    }

    /// Whether this is the key of a directory, perhaps wrapped anew.
    ///
    /// # Errors
    /// When that cannot be read.
    pub(crate) fn is_key_of(&self, directory: &Directory<'_>) -> Result<bool, DatasetError> {
        let Some(key) = key_of(directory)? else {
            return Ok(false);
        };
        let guid = directory.view().mos().number(key, names::GUID)?;
        Ok(guid == Some(self.guid))
    }

    /// Makes the key of a new head, which is its own encryption root.
    #[doc(alias = "dsl_crypto_recv_raw_key_sync")]
    pub(crate) fn create(
        &self,
        context: &TaskContext<'_>,
        head: &Dataset<'_>,
    ) -> Result<(), DatasetError> {
        let writing = context.writing();
        let directory = head.directory();
        writing.extend(directory.id(), context.features)?;
        let key = writing.create_zap(ObjectType::ZapMetadata)?;
        writing.put(key, names::REFERENCES, &ZapValue::word(1))?;
        writing.put(key, names::VERSION, &ZapValue::word(VERSION))?;
        feature_use::activate(context, head.id(), Feature::Encryption)?;
        writing.put(directory.id(), CRYPTO_KEY, &ZapValue::word(key.get()))?;
        let asked = Setting::Text(PROMPT.to_string());
        store(context, head, "keylocation", &Entry::Local(&asked))?;
        self.store(context, key, directory.id())
    }

    /// The key was wrapped anew at the sender.
    pub(crate) fn replace(
        &self,
        context: &TaskContext<'_>,
        directory: &Directory<'_>,
    ) -> Result<(), DatasetError> {
        let key = key_of(directory)?.ok_or_else(|| no_key(directory.id()))?;
        let reading = context.writing().reading();
        let root = reading.number(key, names::ROOT)?;
        let root = root.map_or(directory.id(), ObjectId::new);
        self.store(context, key, root)
    }

    #[doc(alias = "dsl_crypto_key_sync_impl")]
    fn store(
        &self,
        context: &TaskContext<'_>,
        key: ObjectId,
        root: ObjectId,
    ) -> Result<(), DatasetError> {
        let writing = context.writing();
        for (name, number) in [
            (names::SUITE, self.suite),
            (names::ROOT, root.get()),
            (names::GUID, self.guid),
            (names::FORMAT, self.format),
            (names::SALT, self.salt),
            (names::ITERATIONS, self.iterations),
        ] {
            writing.put(key, name, &ZapValue::word(number))?;
        }
        for (name, bytes) in [
            (names::VECTOR, &self.vector[..]),
            (names::CODE, &self.code),
            (names::MASTER_KEY, &self.master_key),
            (names::HMAC_KEY, &self.hmac_key),
        ] {
            writing.put(key, name, &ZapValue::Bytes(bytes.to_vec()))?;
        }
        Ok(())
    }
}

/// The object with the key of a directory; none where nothing is encrypted.
pub(crate) fn key_of(directory: &Directory<'_>) -> Result<Option<ObjectId>, DatasetError> {
    Ok(directory.extension(CRYPTO_KEY)?.map(ObjectId::new))
}

/// Whether a directory is an encryption root.
///
/// # Errors
/// When that cannot be read.
pub fn is_root(directory: &Directory<'_>) -> Result<bool, DatasetError> {
    let Some(key) = key_of(directory)? else {
        return Ok(false);
    };
    let root = directory.view().mos().number(key, names::ROOT)?;
    Ok(root == Some(directory.id().get()))
}

/// The directory that a directory is opened with the key of; none where nothing is encrypted.
pub(crate) fn root_of(directory: &Directory<'_>) -> Result<Option<ObjectId>, DatasetError> {
    match key_of(directory)? {
        Some(key) => Ok(directory
            .view()
            .mos()
            .number(key, names::ROOT)?
            .map(ObjectId::new)),
        None => Ok(None),
    }
}

/// Says which directory's key a directory is opened with.
pub(crate) fn set_root(
    context: &TaskContext<'_>,
    directory: &Directory<'_>,
    root: ObjectId,
) -> Result<(), DatasetError> {
    let key = key_of(directory)?.ok_or_else(|| no_key(directory.id()))?;
    let writing = context.writing();
    writing.put(key, names::ROOT, &ZapValue::word(root.get()))
}

/// Has the directory of a clone use the key of its origin's.
#[doc(alias = "dsl_crypto_key_clone_sync")]
pub(crate) fn share(
    context: &TaskContext<'_>,
    from: &Directory<'_>,
    to: &Directory<'_>,
) -> Result<(), DatasetError> {
    let Some(key) = key_of(from)? else {
        return Ok(());
    };
    let writing = context.writing();
    let count = writing.reading().number(key, names::REFERENCES)?;
    let count = count.ok_or_else(|| no_key(key))?.saturating_add(1);
    writing.put(key, names::REFERENCES, &ZapValue::word(count))?;
    writing.extend(to.id(), context.features)?;
    writing.put(to.id(), CRYPTO_KEY, &ZapValue::word(key.get()))
}

/// A directory that goes does not use its key any more.
#[doc(alias = "dsl_crypto_key_destroy_sync")]
pub(crate) fn release(
    context: &TaskContext<'_>,
    directory: &Directory<'_>,
) -> Result<(), DatasetError> {
    let Some(key) = key_of(directory)? else {
        return Ok(());
    };
    let writing = context.writing();
    match writing.reading().number(key, names::REFERENCES)? {
        Some(count) if count > 1 => writing.put(key, names::REFERENCES, &ZapValue::word(count - 1)),
        _ => writing.free(key),
    }
}

/// The properties of a dataset's key that are known without the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyProperties {
    /// The stored number of the property `encryption`.
    pub suite: u64,
    /// Of `keyguid`.
    pub guid: u64,
    /// Of `keyformat`.
    pub format: u64,
    /// Of `pbkdf2salt`.
    pub salt: u64,
    /// Of `pbkdf2iters`.
    pub iterations: u64,
    /// The name of the encryption root, if it can be found.
    pub root: Option<String>,
}

/// The properties of a directory's key; none for one that is not encrypted.
///
/// # Errors
/// When it cannot be read.
#[doc(alias = "dsl_dataset_crypt_stats")]
pub fn properties(directory: &Directory<'_>) -> Result<Option<KeyProperties>, DatasetError> {
    let Some(key) = key_of(directory)? else {
        return Ok(None);
    };
    let mos = directory.view().mos();
    let number = |name| -> Result<u64, DatasetError> { Ok(mos.number(key, name)?.unwrap_or(0)) };
    let root = ObjectId::new(number(names::ROOT)?);
    let lineage = directory.lineage()?;
    let root = match lineage.iter().find(|above| above.id() == root) {
        Some(above) => Some(above.name().to_string()),
        // A clone may be far from the root it is opened with.
        None if root.is_zero() => None,
        None => Some(directory.view().directory_name(root)?),
    };
    Ok(Some(KeyProperties {
        suite: number(names::SUITE)?,
        guid: number(names::GUID)?,
        format: number(names::FORMAT)?,
        salt: number(names::SALT)?,
        iterations: number(names::ITERATIONS)?,
        root,
    }))
}

fn no_key(object: ObjectId) -> DatasetError {
    DatasetError::Inconsistent {
        object,
        why: "an encrypted dataset has no key, or not all of it",
    }
}

fn bytes<const SIZE: usize>(list: &NvList, name: &str) -> Result<[u8; SIZE], TaskRefusal> {
    let found = list.u8s(name).map_err(|why| invalid(&why.to_string()))?;
    found
        .try_into()
        .map_err(|_| invalid(&format!("{name} has {} bytes", found.len())))
}

fn stored_bytes<const SIZE: usize>(
    mos: Reading<'_>,
    key: ObjectId,
    name: &str,
) -> Result<[u8; SIZE], DatasetError> {
    let found = mos.lookup(key, name)?;
    match found {
        Some(ZapValue::Bytes(bytes)) => bytes.try_into().map_err(|_| no_key(key)),
        _ => Err(no_key(key)),
    }
}
