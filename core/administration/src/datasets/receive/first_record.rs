//! The first record of a stream (`DRR_BEGIN`), and the stream features that this program can
//! receive.

use super::CANNOT;
use crate::messages::{Refusal, RefusalKind};
use tarn_dataset::names::{DatasetName, NameKind};
use tarn_dataset::ops::receive::StreamFacts;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::stream::{Begin, StreamFeatures, begin_flags};

/// The stream features that this program can receive.
#[doc(alias = "DMU_BACKUP_FEATURE_MASK")]
const RECEIVABLE: StreamFeatures = StreamFeatures::SPILL
    .with(StreamFeatures::EMBEDDED)
    .with(StreamFeatures::LZ4)
    .with(StreamFeatures::LARGE_BLOCKS)
    .with(StreamFeatures::RESUMING)
    .with(StreamFeatures::COMPRESSED)
    .with(StreamFeatures::LARGE_DNODES)
    .with(StreamFeatures::ZSTD)
    .with(StreamFeatures::HOLDS)
    .with(StreamFeatures::SWITCH_TO_LARGE_BLOCKS)
    .with(StreamFeatures::LONG_NAMES)
    .with(StreamFeatures::LARGE_MICROZAPS)
    .with(StreamFeatures::RAW);

/// The facts of the first record, if this program can receive the stream.
pub(super) fn facts_of(begin: &Begin) -> Result<StreamFacts, Refusal> {
    let invalid = |reason: String| Refusal::new(RefusalKind::Invalid, CANNOT, reason);
    let unsupported = |reason: String| Refusal::new(RefusalKind::Unsupported, CANNOT, reason);
    let features = begin.features();
    if features.has(StreamFeatures::DEDUP) {
        return Err(unsupported(
            "\"zfs receive\" no longer supports deduplicated send streams.  Use\nthe \"zstream redup\" command to convert this stream to a regular,\nnon-deduplicated stream."
                .to_string(),
        ));
    }
    let unknown = features.without(RECEIVABLE);
    if unknown != StreamFeatures::NONE {
        return Err(unsupported(format!(
            "stream has unsupported feature, feature flags = {:x} (unknown flags = {:x}: {unknown})",
            features.0, unknown.0
        )));
    }
    let name = begin.to_name.as_str().unwrap_or_default();
    let is_snapshot =
        DatasetName::parse(name).is_ok_and(|parsed| parsed.kind() == NameKind::Snapshot);
    if !is_snapshot {
        return Err(invalid("invalid stream (bad snapshot name)".to_string()));
    }
    let objset_type = ObjsetType::from_code(u64::from(begin.objset_type));
    if !matches!(objset_type, ObjsetType::Zfs | ObjsetType::Zvol) {
        return Err(invalid(format!(
            "invalid record type: 0x{:x}",
            begin.objset_type
        )));
    }
    let has = |flag| begin.flags & flag != 0;
    Ok(StreamFacts {
        to_guid: begin.to_guid,
        from_guid: begin.from_guid,
        to_name: name.to_string(),
        creation_time_s: begin.creation_time_s,
        objset_type,
        is_clone: has(begin_flags::CLONE),
        has_free_records: has(begin_flags::FREE_RECORDS),
        is_case_insensitive: has(begin_flags::CASE_INSENSITIVE),
        features,
    })
}
