//! The source of a stream: a snapshot, in full or since a base.
//!
//! # Mechanism
//! The facts of datasets are read first, and kept: the send itself reads only the object set, not
//! the tree of datasets, which may change meanwhile.

use super::{Choices, Resume, SendError};
use tarn_dataset::contents::{self, Contents};
use tarn_dataset::crypto_key::{KEY_DATA, KeyFacts};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::space_used::is_before;
use tarn_object::read_head;
use tarn_ondisk::bookmark::Bookmark;
use tarn_ondisk::dataset::{DatasetFlags, IVSET_GUID};
use tarn_ondisk::dataset_dir::CRYPTO_KEY;
use tarn_ondisk::features::Feature;
use tarn_ondisk::nvlist::{Encoding, NvList};
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::stream::{Begin, MAGIC, StreamFeatures, StreamKind, StreamName, begin_flags};
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_pool::Pool;
use tarn_probe::Operation;

use super::find::Search;

/// The ZPL version since which attributes can be in a spill block.
const SYSTEM_ATTRIBUTES_VERSION: u64 = 5;

/// Number of dnodes in a block.
const DNODES_PER_BLOCK: u64 = 32;

/// The base of an increment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Base {
    /// The guid of the base snapshot.
    pub guid: u64,
    /// The txg of the base snapshot.
    pub txg: Txg,
    /// Whether it is the origin of the sent dataset, which is a clone.
    pub is_origin: bool,
    /// The guid of its set of IVs, if it is encrypted; zero where that is not known.
    pub ivset_guid: u64,
}

impl Base {
    /// A base of this snapshot, which must be an ancestor of the target.
    ///
    /// # Errors
    /// The snapshot is not an ancestor.
    pub fn of_snapshot(base: &Dataset<'_>, target: &Dataset<'_>) -> Result<Base, SendError> {
        let stored = base.stored()?;
        refuse_redacted(base)?;
        if !is_before(base, stored.creation_txg, target)? {
            return Err(SendError::NotEarlier);
        }
        Ok(Base {
            guid: stored.guid.get(),
            txg: stored.creation_txg,
            is_origin: base.directory().id() != target.directory().id(),
            ivset_guid: base.extension(IVSET_GUID)?.unwrap_or(0),
        })
    }

    /// A base of this bookmark, whose snapshot must be an ancestor of the target. `of` is the
    /// bookmark's head.
    ///
    /// # Errors
    /// It is not an ancestor.
    pub fn of_bookmark(
        of: &Dataset<'_>,
        bookmark: &Bookmark,
        target: &Dataset<'_>,
    ) -> Result<Base, SendError> {
        if !bookmark.redaction.is_zero() {
            return Err(SendError::Redacted);
        }
        if !is_before(of, bookmark.creation_txg, target)? {
            return Err(SendError::NotEarlier);
        }
        Ok(Base {
            guid: bookmark.guid.get(),
            txg: bookmark.creation_txg,
            is_origin: of.directory().id() != target.directory().id(),
            ivset_guid: bookmark.ivset_guid.get(),
        })
    }
}

/// The facts of one stream.
#[derive(Debug, Clone)]
pub struct Source {
    pub(super) begin: Begin,
    pub(super) payload: Vec<u8>,
    pub(super) features: StreamFeatures,
    pub(super) search: Search,
    pub(super) base_txg: Txg,
    pub(super) numbers_end: u64,
}

impl Source {
    /// Reads the facts.
    ///
    /// # Errors
    /// They cannot be read, or the dataset cannot be sent like this.
    pub fn of(
        pool: &Pool,
        target: &Dataset<'_>,
        base: Option<Base>,
        choices: Choices,
        resume: Option<Resume>,
    ) -> Result<Source, SendError> {
        refuse_redacted(target)?;
        let stored = target.stored()?;
        let operation = target.directory().view().operation();
        let head = read_head(pool.cache(), target.id(), &stored.root, operation);
        let head = head.map_err(SendError::Object)?;
        let is_encrypted = target.directory().extension(CRYPTO_KEY)?.is_some();
        if is_encrypted && !choices.raw {
            return Err(SendError::KeyNotLoaded);
        }
        let mut features = features(pool, target, head.objset_type, choices, resume)?;
        if is_encrypted {
            // Encrypted datasets have no embedded blocks.
            features = features.without(StreamFeatures::EMBEDDED);
            features = features.with(StreamFeatures::RAW);
        }
        let mut list = NvList::new();
        let mut place = None;
        if let Some(resume) = resume {
            list.set("resume_object", resume.object);
            list.set("resume_offset", resume.offset);
            place = Some((resume.object, resume_block(target, resume, operation)?));
        }
        if is_encrypted {
            let key = KeyFacts::of(target, &head, base.map_or(0, |base| base.ivset_guid))?;
            list.set(KEY_DATA, key.to_list());
        }
        Ok(Source {
            begin: begin(target, head.objset_type, base, features)?,
            payload: packed(&list),
            features,
            search: Search {
                set: target.id(),
                root: stored.root,
                born_after: base.map_or(Txg::ZERO, |base| base.txg),
                resume: place,
                is_raw: is_encrypted,
                is_encrypted,
            },
            base_txg: base.map_or(Txg::ZERO, |base| base.txg),
            numbers_end: (head.meta_dnode.max_block.get().saturating_add(1))
                .saturating_mul(DNODES_PER_BLOCK),
        })
    }

    /// The first record.
    pub fn begin(&self) -> &Begin {
        &self.begin
    }
}

/// The payload of the first record: a list in the machine's byte order.
#[doc(alias = "fnvlist_pack")]
fn packed(list: &NvList) -> Vec<u8> {
    match list.is_empty() {
        true => Vec::new(),
        false => list.encode(Encoding::Native),
    }
}

fn begin(
    target: &Dataset<'_>,
    objset_type: ObjsetType,
    base: Option<Base>,
    features: StreamFeatures,
) -> Result<Begin, SendError> {
    let stored = target.stored()?;
    let mut flags = begin_flags::FREE_RECORDS | begin_flags::SPILL_BLOCK;
    if base.is_some_and(|base| base.is_origin) {
        flags |= begin_flags::CLONE;
    }
    if stored.flags.contains(DatasetFlags::CASE_INSENSITIVE) {
        flags |= begin_flags::CASE_INSENSITIVE;
    }
    let mut name = target.name();
    if !target.is_snapshot() {
        name.push_str("@--head--");
    }
    Ok(Begin {
        magic: MAGIC,
        version: Begin::version_of(StreamKind::Single, features),
        creation_time_s: stored.creation_time_s,
        objset_type: u32::try_from(objset_type.code()).unwrap_or(0),
        flags,
        to_guid: stored.guid.get(),
        from_guid: base.map_or(0, |base| base.guid),
        to_name: StreamName::new(&name).ok_or(SendError::NameTooLong)?,
    })
}

/// The features that a receiver needs.
#[doc(alias = "setup_featureflags")]
fn features(
    pool: &Pool,
    target: &Dataset<'_>,
    objset_type: ObjsetType,
    choices: Choices,
    resume: Option<Resume>,
) -> Result<StreamFeatures, SendError> {
    let in_pool = pool.features();
    let mut features = StreamFeatures::NONE;
    let mut set_if = |condition: bool, feature| {
        if condition {
            features = features.with(feature);
        }
        condition
    };
    let uses = |feature: Feature| target.uses_feature(feature.guid());
    if objset_type == ObjsetType::Zfs {
        let Contents::Filesystem(facts) = contents::read(target)? else {
            return Err(SendError::NoVersion);
        };
        let may_spill = facts.version >= SYSTEM_ATTRIBUTES_VERSION;
        set_if(may_spill, StreamFeatures::SPILL);
    }
    let wants_large = choices.raw || choices.large_blocks;
    let has_large = wants_large && uses(Feature::LargeBlocks)?;
    set_if(has_large, StreamFeatures::LARGE_BLOCKS);
    let embeds =
        (choices.raw || choices.embedded) && in_pool.is_active(Feature::EmbeddedData.guid());
    set_if(embeds, StreamFeatures::EMBEDDED);
    let is_compressed = set_if(
        choices.raw || choices.compressed,
        StreamFeatures::COMPRESSED,
    );
    let has_lz4 = in_pool.is_active(Feature::Lz4Compress.guid());
    set_if((embeds || is_compressed) && has_lz4, StreamFeatures::LZ4);
    set_if(
        is_compressed && uses(Feature::ZstdCompress)?,
        StreamFeatures::ZSTD,
    );
    set_if(resume.is_some(), StreamFeatures::RESUMING);
    set_if(uses(Feature::LargeDnode)?, StreamFeatures::LARGE_DNODES);
    set_if(uses(Feature::Longname)?, StreamFeatures::LONG_NAMES);
    // A large micro ZAP must not be cut into parts.
    if set_if(
        uses(Feature::LargeMicrozap)?,
        StreamFeatures::LARGE_MICROZAPS,
    ) && !has_large
    {
        return Err(SendError::LargeMicrozap);
    }
    Ok(features)
}

/// The block of an object at which a stream is resumed.
fn resume_block(
    target: &Dataset<'_>,
    resume: Resume,
    operation: &Operation,
) -> Result<u64, SendError> {
    let set = contents::objset(target)?;
    let object = set.object(ObjectId::new(resume.object), operation);
    let size = object.map_err(SendError::Object)?.block_size().get();
    Ok(resume.offset / size.max(1))
}

/// Refuses a redacted dataset, which lacks blocks.
fn refuse_redacted(dataset: &Dataset<'_>) -> Result<(), SendError> {
    match dataset.uses_feature(Feature::RedactedDatasets.guid())? {
        true => Err(SendError::Redacted),
        false => Ok(()),
    }
}
