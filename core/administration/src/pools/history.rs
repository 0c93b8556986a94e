//! `zpool history`: commands and internal events since the pool was created.

use crate::administrator::Administrator;
use crate::bounded_text::{TooLong, bounded};
use crate::messages::pool::{History, HistoryRecord, HistoryRecords};
use crate::messages::{Refusal, RefusalKind};
use tarn_engine::turns::stuck;
use tarn_ondisk::declare::narrow;
use tarn_ondisk::history::name;
use tarn_ondisk::nvlist::NvList;
use tarn_pool::history::READ_BYTES_MAX;

/// Indent of an ioctl's input and output.
const CALL_INDENT: usize = 8;
/// Indent of a record of an unknown kind.
const UNKNOWN_INDENT: usize = 4;

/// Bytes of text that the lists in one answer may take: four times the bytes that are read of the
/// ring. Only a pool that is made to exhaust memory has more.
const LISTS_TEXT_BYTES_MAX: u64 = 4 * READ_BYTES_MAX;

impl Administrator {
    pub(crate) fn history(&self, request: &History) -> Result<HistoryRecords, Refusal> {
        let open = self.engine.require_pool(&request.name)?;
        let records = self.engine.look(&open, |open, operation| {
            tarn_pool::history::read(open.pool.directory(operation), operation)
        });
        let records = records.ok_or_else(|| stuck(&request.name))?;
        let records = records.map_err(|cause| {
            let action = format!("cannot get history for '{}'", request.name);
            Refusal::new(RefusalKind::Device, action, cause.to_string())
        })?;
        let mut room = narrow(LISTS_TEXT_BYTES_MAX);
        let records = records.iter().map(|list| record(list, &mut room));
        Ok(HistoryRecords {
            records: records.collect(),
        })
    }
}

/// The fields of a record. The text of its lists is subtracted from `room`, in bytes.
fn record(list: &NvList, room: &mut usize) -> HistoryRecord {
    let text = |name: &str| Some(list.text(name).ok()?.to_string());
    let number = |name: &str| list.u64(name).ok();
    let signed = |name: &str| list.i64(name).ok();
    let mut call = |name: &str| Some(lines(list.list(name).ok()?, CALL_INDENT, room));
    let (input, output) = (call(name::INPUT), call(name::OUTPUT));
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
        input,
        output,
        output_bytes: signed(name::OUTPUT_SIZE),
        error_number: signed(name::ERRNO),
        contents: (!is_known).then(|| lines(list, UNKNOWN_INDENT, room)),
    }
}

/// The lines of a list, as far as `room` suffices.
fn lines(list: &NvList, indent: usize, room: &mut usize) -> String {
    match bounded(list.indented(indent), *room) {
        Ok(text) => {
            *room -= text.len();
            text
        }
        Err(TooLong { mut beginning }) => {
            *room = 0;
            let why = "(the rest is not shown: the lists of this history are too long)";
            beginning.push_str(&format!("{:indent$}{why}\n", ""));
            beginning
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_cut_to_the_room_for_text() {
        let list = NvList::new()
            .with(name::CALL, "create")
            .with(name::INPUT, NvList::new().with("numbers", vec![7u64, 8]));
        let whole = "        numbers[0]: 7\n        numbers[1]: 8\n";
        let mut room = whole.len() + 30;
        assert_eq!(record(&list, &mut room).input.as_deref(), Some(whole));
        assert_eq!(room, 30);
        let cut = record(&list, &mut room).input.expect("it begins");
        let first = "        numbers[0]: 7\n        (the rest is not shown";
        assert!(cut.starts_with(first), "{cut}");
        assert_eq!(room, 0);
        let none = record(&list, &mut room).input.expect("it is told of");
        assert!(none.starts_with("        (the rest"), "{none}");
    }
}
