//! What happened to pools in a time: marks on the time axis of answers.
//!
//! # Mechanism
//! Txgs are those of the history that `tarn kstat zfs/POOL:0:txgs` shows. Everything else comes
//! from the ring of events: a scan that began and ended is one event of some length, an internal
//! event of the history is a snapshot or another change. Both have bounds, so that old times have
//! fewer marks than happened.

use super::asked_statement::invalid;
use super::wall_clock::WallClock;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::Refusal;
use crate::messages::analytics::{Event, Events, Happened};
use std::ops::Range;
use tarn_ondisk::nvlist::{NvList, NvValue};
use tarn_probe::{Value, registry};

/// Most events of a reply: the newest.
const EVENTS_MAX: usize = 10_000;
const SECOND_MS: u64 = 1000;
const MILLISECOND_NS: u64 = 1_000_000;

impl Administrator {
    /// What happened. Only root and the daemon's user may know: it names files and commands.
    pub(crate) fn happened(&self, call: &Call, request: &Events) -> Result<Happened, Refusal> {
        self.may_see_names(call)?;
        let clock = self.wall_clock.lock().look(&self.engine.host);
        let range = clock.range(&request.when, &self.engine.host);
        let (from, until) = range.map_err(|why| invalid("events", why))?;
        let millisecond = |time_ns: i64| u64::try_from(time_ns).unwrap_or(0) / MILLISECOND_NS;
        let range_ms = millisecond(from)..millisecond(until).saturating_add(1);
        let ring = self.engine.events.after(0, usize::MAX).events;
        let posted = ring.iter().filter_map(|event| told(&event.list));
        let mut events = joined_scans(posted.collect());
        events.extend(txgs(clock));
        let now_ms = clock.unix_ms(self.engine.host.monotonic_ns());
        events.extend(self.alerts.lock().happened(now_ms));
        events.retain(|event| is_within(event, &range_ms));
        events.sort_by(|a, b| (a.at_ms, &a.kind, &a.text).cmp(&(b.at_ms, &b.kind, &b.text)));
        let extra = events.len().saturating_sub(EVENTS_MAX);
        events.drain(..extra);
        Ok(Happened { events })
    }
}

fn is_within(event: &Event, range_ms: &Range<u64>) -> bool {
    event.at_ms < range_ms.end && event.until_ms.unwrap_or(event.at_ms) >= range_ms.start
}

/// An event of the ring; none of those that a graph would be full of.
fn told(list: &NvList) -> Option<Event> {
    let class = list.text("class").ok()?.to_string();
    let pool = list.text("pool").ok()?.to_string();
    let at_ms = match list.get("time") {
        Some(NvValue::Int64Array(time)) => match time.as_slice() {
            [seconds, nanoseconds, ..] => {
                let part_ms = u64::try_from(*nanoseconds).unwrap_or(0) / MILLISECOND_NS;
                u64::try_from(*seconds).ok()? * SECOND_MS + part_ms
            }
            _ => return None,
        },
        _ => return None,
    };
    let name = class.rsplit('.').next().unwrap_or_default();
    let device = list.text("vdev_path").map(|path| format!(" {path}"));
    let device = device.unwrap_or_default();
    let (kind, text) = match name {
        _ if class.starts_with("ereport.") => ("fault", format!("{name}{device}")),
        _ if class.starts_with("resource.") => ("fault", format!("{name}{device}")),
        "config_sync" => return None,
        "history_event" => of_history(list)?,
        "pool_import" => ("import", "imported".to_owned()),
        "pool_create" => ("import", "created".to_owned()),
        "pool_export" => ("import", "exported".to_owned()),
        "pool_destroy" => ("import", "destroyed".to_owned()),
        name if name.starts_with("resilver_") => ("resilver", name.to_owned()),
        name if name.contains("scrub_") => ("scrub", name.to_owned()),
        "io_failure" => ("fault", "suspended".to_owned()),
        name => ("history", format!("{name}{device}")),
    };
    Some(Event {
        at_ms,
        until_ms: None,
        kind: kind.to_owned(),
        pool,
        text,
    })
}

/// An internal event of the history; none of the steps of a scan, which have events of their own.
fn of_history(list: &NvList) -> Option<(&'static str, String)> {
    let name = list.text("history_internal_name").ok()?.to_string();
    let dataset = list.text("history_dsname").map(|name| name.to_string());
    let dataset = dataset.unwrap_or_default();
    match name.as_str() {
        "snapshot" => Some(("snapshot", dataset)),
        name if name.starts_with("scan ") => None,
        name => Some(("history", format!("{name} {dataset}").trim_end().to_owned())),
    }
}

/// Scans that began and ended, each as one event.
fn joined_scans(posted: Vec<Event>) -> Vec<Event> {
    const SCANS: [(&str, &str); 3] = [
        ("scrub_", "scrub"),
        ("errorscrub_", "scrub of known errors"),
        ("resilver_", "resilver"),
    ];
    let mut events: Vec<Event> = Vec::new();
    for event in posted {
        let scan = SCANS.iter().find_map(|(prefix, name)| {
            let step = event.text.strip_prefix(prefix)?;
            Some((*name, step.to_owned()))
        });
        match scan {
            Some((name, step)) if step == "start" => events.push(Event {
                text: name.to_owned(),
                ..event
            }),
            Some((name, step)) if matches!(step.as_str(), "finish" | "abort") => {
                let begun = events.iter_mut().rev().find(|begun| {
                    begun.pool == event.pool && begun.text == name && begun.until_ms.is_none()
                });
                match begun {
                    Some(begun) => {
                        begun.until_ms = Some(event.at_ms);
                        if step == "abort" {
                            begun.text += ", ended early";
                        }
                    }
                    // It began before what the ring has.
                    None => events.push(event),
                }
            }
            _ => events.push(event),
        }
    }
    events
}

/// The txgs that were stored lately, each from when its sync began until it was stored.
fn txgs(clock: WallClock) -> Vec<Event> {
    let snapshot = registry().snapshot("zfs/*:0:txgs");
    let mut events = Vec::new();
    for (module, _, _, rows) in snapshot.iter() {
        let pool = module.trim_start_matches("zfs/");
        for (txg, row) in rows {
            let Value::Row(columns) = row else { continue };
            let number = |name: &str| {
                let column = columns.iter().find(|(column, _)| *column == name);
                match column {
                    Some((_, Value::Counter(number))) => *number,
                    _ => 0,
                }
            };
            let phases = ["birth", "otime", "qtime", "wtime"].map(number);
            let (begun_ns, took_ns) = (phases.iter().sum::<u64>(), number("stime"));
            if took_ns > 0 {
                let dirty = number("ndirty");
                events.push(Event {
                    at_ms: clock.unix_ms(begun_ns),
                    until_ms: Some(clock.unix_ms(begun_ns + took_ns)),
                    kind: "txg".to_owned(),
                    pool: pool.to_owned(),
                    text: format!("txg {txg}, {dirty} bytes"),
                });
            }
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted(text: &str, at_ms: u64) -> Event {
        Event {
            at_ms,
            kind: "scrub".to_owned(),
            pool: "tank".to_owned(),
            text: text.to_owned(),
            ..Event::default()
        }
    }

    #[test]
    fn a_scan_that_began_and_ended_is_one_event() {
        let events = joined_scans(vec![
            posted("scrub_finish", 1),
            posted("scrub_start", 5),
            posted("resilver_start", 6),
            posted("scrub_abort", 9),
        ]);
        let told: Vec<(&str, u64, Option<u64>)> = events
            .iter()
            .map(|event| (event.text.as_str(), event.at_ms, event.until_ms))
            .collect();
        let expected = [
            ("scrub_finish", 1, None),
            ("scrub, ended early", 5, Some(9)),
            ("resilver", 6, None),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn events_of_the_ring_have_a_kind_and_a_text() {
        let list = |class: &str| {
            NvList::new()
                .with("class", class)
                .with("pool", "tank")
                .with("vdev_path", "/dev/sda")
                .with("time", NvValue::Int64Array(vec![7, 9_000_000]))
        };
        let told_of = |list: NvList| told(&list).map(|event| (event.kind, event.text, event.at_ms));
        let fault = told_of(list("ereport.fs.zfs.checksum")).unwrap();
        assert_eq!(fault, ("fault".into(), "checksum /dev/sda".into(), 7009));
        let snapshot = list("sysevent.fs.zfs.history_event")
            .with("history_internal_name", "snapshot")
            .with("history_dsname", "tank@a");
        assert_eq!(told_of(snapshot).unwrap().1, "tank@a");
        assert_eq!(told_of(list("sysevent.fs.zfs.config_sync")), None);
        assert_eq!(told(&NvList::new()), None);
    }
}
