//! `zdb -h`: the pool's history, internal events included.

use crate::look::Look;
use crate::out::Out;
use tarn_engine::inspect::InspectError;
use tarn_ondisk::history::name;
use tarn_ondisk::nvlist::{NvList, NvValue};
use tarn_terminal::timestamp::local;

/// The names of internal events from the time when they had numbers.
#[doc(alias = "zfs_history_event_names")]
const EVENTS: [&str; 41] = [
    "invalid event",
    "pool create",
    "vdev add",
    "pool remove",
    "pool destroy",
    "pool export",
    "pool import",
    "vdev attach",
    "vdev replace",
    "vdev detach",
    "vdev online",
    "vdev offline",
    "vdev upgrade",
    "pool clear",
    "pool scrub",
    "pool property set",
    "create",
    "clone",
    "destroy",
    "destroy_begin_sync",
    "inherit",
    "property set",
    "quota set",
    "permission update",
    "permission remove",
    "permission who remove",
    "promote",
    "receive",
    "rename",
    "reservation set",
    "replay_inc_sync",
    "replay_full_sync",
    "rollback",
    "snapshot",
    "filesystem version upgrade",
    "refquota set",
    "refreservation set",
    "pool scrub done",
    "user hold",
    "user release",
    "pool split",
];

/// Prints all records, and with `-hh` all their fields.
pub fn show(out: &mut Out, look: &Look<'_>) -> Result<(), InspectError> {
    let records = tarn_pool::history::read(look.directory(), look.operation())?;
    writeln!(out, "\nHistory:");
    for record in &records {
        let is_known = show_record(out, record);
        if look.options.level('h') > 1 {
            if !is_known {
                writeln!(out, "unrecognized record:");
            }
            write!(out, "{}", record.indented(2));
        }
    }
    Ok(())
}

/// Prints a record. Returns whether it was understood.
fn show_record(out: &mut Out, record: &NvList) -> bool {
    let number = |name: &str| record.optional_u64(name).ok().flatten();
    let text = |name: &str| record.optional_text(name).ok().flatten();
    let time = number(name::TIME).map(|time| {
        let time = i64::try_from(time).unwrap_or(i64::MAX);
        local(time, "%Y-%m-%d.%H:%M:%S")
    });
    let time = time.unwrap_or_default();
    let txg = number(name::TXG).unwrap_or(0);
    if let Some(command) = text(name::COMMAND) {
        write!(out, "{time} ");
        out.bytes(command.as_bytes());
        writeln!(out);
    } else if let Some(event) = number(name::EVENT_NUMBER) {
        let event = usize::try_from(event)
            .ok()
            .and_then(|event| EVENTS.get(event));
        let Some(event) = event else { return false };
        write!(out, " {time} [internal {event} txg:{txg}] ");
        out.bytes(text(name::EVENT_TEXT).map_or(&[], |text| text.as_bytes()));
        writeln!(out);
    } else if let Some(event) = text(name::EVENT_NAME) {
        write!(out, "{time} [txg:{txg}] {event}");
        if let Some(dataset) = text(name::DATASET) {
            let object = number(name::DATASET_OBJECT).unwrap_or(0);
            write!(out, " {dataset} ({object})");
        }
        write!(out, " ");
        out.bytes(text(name::EVENT_TEXT).map_or(&[], |text| text.as_bytes()));
        writeln!(out);
    } else if let Some(call) = text(name::CALL) {
        writeln!(out, "{time} ioctl {call}");
        for (title, name) in [("input", name::INPUT), ("output", name::OUTPUT)] {
            if let Ok(Some(list)) = record.optional_list(name) {
                write!(out, "    {title}:\n{}", list.indented(8));
            }
        }
        if let Some(NvValue::Int64(errno)) = record.get(name::ERRNO) {
            writeln!(out, "    errno: {errno}");
        }
    } else {
        return false;
    }
    true
}
