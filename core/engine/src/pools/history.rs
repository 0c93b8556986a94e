//! `zpool history`: who did what, since the pool was made.

use crate::engine::Engine;
use crate::messages::pool::{History, HistoryRecord, HistoryRecords};
use crate::messages::{Refusal, RefusalKind};
use crate::turns::stuck;
use tarn_ondisk::history::name;
use tarn_ondisk::nvlist::NvList;

/// How far what a call was given is moved in.
const CALL_INDENT: usize = 8;
/// How far a record of an unknown kind is moved in.
const UNKNOWN_INDENT: usize = 4;

impl Engine {
    pub(crate) fn history(&self, request: &History) -> Result<HistoryRecords, Refusal> {
        let open = self.require_pool(&request.name)?;
        let records = self.look(&open, |open, operation| {
            tarn_pool::history::read(open.pool.directory(operation), operation)
        });
        let records = records.ok_or_else(|| stuck(&request.name))?;
        let records = records.map_err(|cause| {
            let action = format!("cannot get history for '{}'", request.name);
            Refusal::new(RefusalKind::Device, action, cause.to_string())
        })?;
        Ok(HistoryRecords {
            records: records.iter().map(record).collect(),
        })
    }
}

fn record(list: &NvList) -> HistoryRecord {
    let text = |name: &str| Some(list.text(name).ok()?.to_string());
    let number = |name: &str| list.u64(name).ok();
    let signed = |name: &str| list.i64(name).ok();
    let lines = |name: &str| Some(list.list(name).ok()?.indented(CALL_INDENT).to_string());
    let is_known = [name::COMMAND, name::EVENT_NAME, name::CALL]
        .iter()
        .any(|name| list.contains(name));
    HistoryRecord {
        time_s: number(name::TIME).map_or(0, |time| i64::try_from(time).unwrap_or(i64::MAX)),
        command: text(name::COMMAND),
        internal_name: text(name::EVENT_NAME),
        internal_text: text(name::EVENT_TEXT),
        internal_event: number(name::EVENT_NUMBER),
        txg: number(name::TXG),
        dataset: text(name::DATASET),
        dataset_id: number(name::DATASET_OBJECT),
        ioctl: text(name::CALL),
        user_id: number(name::WHO),
        user: None,
        host: text(name::HOST),
        zone: text(name::ZONE),
        elapsed_ns: signed(name::ELAPSED_NS),
        input: lines(name::INPUT),
        output: lines(name::OUTPUT),
        output_bytes: signed(name::OUTPUT_SIZE),
        error_number: signed(name::ERRNO),
        contents: (!is_known).then(|| list.indented(UNKNOWN_INDENT).to_string()),
    }
}
