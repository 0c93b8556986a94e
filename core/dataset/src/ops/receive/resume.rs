//! Interrupted receives: their stored position, the resume token, and the check that a stream is
//! the rest.

use super::half_received::resumes;
use super::receiver::{Receiver, busy, receive_name};
use super::stream_facts::StreamFacts;
use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::names::RECEIVE_COMPONENT;
use crate::namespace::View;
use crate::ops::set::find;
use crate::stored::is_zap;
use crate::task::{TaskContext, TaskRefusal};
use tarn_object::zap::ZapValue;
use tarn_ondisk::dataset::{
    DatasetFlags, RESUME_BYTES, RESUME_COMPRESSED, RESUME_EMBEDDED, RESUME_FROM_GUID,
    RESUME_LARGE_BLOCK, RESUME_OBJECT, RESUME_OFFSET, RESUME_RAW, RESUME_REDACTION_SNAPSHOTS,
    RESUME_TO_GUID, RESUME_TO_NAME,
};
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::stream::StreamFeatures;
use tarn_ondisk::units::ObjectId;

/// Says of the head what a stream that goes on must be.
pub(super) fn note_resume_facts(
    context: &TaskContext<'_>,
    head: ObjectId,
    stream: &StreamFacts,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    writing.extend(head, context.features)?;
    let put = |name: &str, value: u64| writing.put(head, name, &ZapValue::word(value));
    if stream.from_guid != 0 {
        put(RESUME_FROM_GUID, stream.from_guid)?;
    }
    put(RESUME_TO_GUID, stream.to_guid)?;
    writing.put(head, RESUME_TO_NAME, &ZapValue::text(&stream.to_name))?;
    put(RESUME_OBJECT, 1)?;
    put(RESUME_OFFSET, 0)?;
    put(RESUME_BYTES, 0)?;
    for (feature, name) in [
        (StreamFeatures::LARGE_BLOCKS, RESUME_LARGE_BLOCK),
        (StreamFeatures::EMBEDDED, RESUME_EMBEDDED),
        (StreamFeatures::COMPRESSED, RESUME_COMPRESSED),
        (StreamFeatures::RAW, RESUME_RAW),
    ] {
        if stream.features.has(feature) {
            put(name, 1)?;
        }
    }
    Ok(())
}

/// The stream has come to its end: nothing goes on.
pub(super) fn forget_resume_facts(
    context: &TaskContext<'_>,
    head: ObjectId,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    if !is_zap(&*writing.reading().object(head)?) {
        return Ok(());
    }
    for name in [
        RESUME_FROM_GUID,
        RESUME_TO_GUID,
        RESUME_TO_NAME,
        RESUME_OBJECT,
        RESUME_OFFSET,
        RESUME_BYTES,
        RESUME_LARGE_BLOCK,
        RESUME_EMBEDDED,
        RESUME_COMPRESSED,
        RESUME_RAW,
        RESUME_REDACTION_SNAPSHOTS,
    ] {
        writing.remove(head, name)?;
    }
    Ok(())
}

/// The list of a resume token: for the head itself, or for the clone with its partly received
/// increment. None where there is no partial state.
///
/// # Errors
/// When it cannot be read.
#[doc(alias = "dsl_get_receive_resume_token")]
pub fn resume_list(head: &Dataset<'_>) -> Result<Option<NvList>, DatasetError> {
    let clone = head.directory().child(RECEIVE_COMPONENT)?;
    let clone = match clone {
        Some(directory) => directory.head()?,
        None => None,
    };
    let Some(head) = [Some(head.clone()), clone]
        .into_iter()
        .flatten()
        .find(|head| resumes(head).unwrap_or(false))
    else {
        return Ok(None);
    };
    let mut list = NvList::new();
    for (name, stored) in [
        ("fromguid", RESUME_FROM_GUID),
        ("object", RESUME_OBJECT),
        ("offset", RESUME_OFFSET),
        ("bytes", RESUME_BYTES),
        ("toguid", RESUME_TO_GUID),
    ] {
        if let Some(number) = head.extension(stored)? {
            list.set(name, number);
        }
    }
    let reading = head.directory().view().mos();
    if let Some(name) = reading.lookup(head.id(), RESUME_TO_NAME)? {
        let name = name.as_text().unwrap_or_default();
        list.set("toname", String::from_utf8_lossy(name).as_ref());
    }
    for (name, stored) in [
        ("largeblockok", RESUME_LARGE_BLOCK),
        ("embedok", RESUME_EMBEDDED),
        ("compressok", RESUME_COMPRESSED),
        ("rawok", RESUME_RAW),
    ] {
        if head.extension(stored)?.is_some() {
            list.set_flag(name);
        }
    }
    Ok(Some(list))
}

/// The head with the partial state of an interrupted receive, and whether that is the target
/// itself.
///
/// # Errors
/// The stream is not the rest of the interrupted one.
#[doc(alias = "dmu_recv_resume_begin_check")]
pub fn resumable(
    view: View<'_>,
    target: &str,
    stream: &StreamFacts,
    force: bool,
) -> Result<Receiver, TaskRefusal> {
    let mismatch = |why: &str| TaskRefusal::BadValue {
        property: "receive_resume_token".to_string(),
        why: why.to_string(),
    };
    let clone = match view.directory(&receive_name(target)) {
        Ok(directory) => directory.head()?,
        Err(DatasetError::NotFound { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let is_new = clone.is_none();
    let head = match clone {
        Some(clone) => clone,
        None => find(view, target)?,
    };
    if !is_new && stream.from_guid == 0 && !force {
        return Err(TaskRefusal::Exists {
            name: target.to_string(),
        });
    }
    let stored = head.stored()?;
    if !stored.flags.contains(DatasetFlags::INCONSISTENT) || !resumes(&head)? {
        return Err(mismatch("nothing was partially received here"));
    }
    if head.extension(RESUME_TO_GUID)? != Some(stream.to_guid) {
        return Err(mismatch("another snapshot was partially received here"));
    }
    if head.extension(RESUME_FROM_GUID)?.unwrap_or(0) != stream.from_guid {
        return Err(mismatch(
            "what was partially received goes on from another snapshot",
        ));
    }
    if view.namespace().is_receiving(head.id()) {
        return Err(busy("dataset is busy"));
    }
    Ok(Receiver {
        head: head.id(),
        is_new,
    })
}
