//! `zpool events`: what happened to the pools of this instance.

use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::pool::{
    EventPair, EventRecord, EventValue, Events, EventsCleared, ListEvents,
};
use std::time::Duration;
use tarn_ondisk::declare::widen;
use tarn_ondisk::nvlist::{NvList, NvValue, Text};

/// Most events in one answer.
const ANSWER_MAX: usize = 256;

/// How long an answer may wait for an event.
const PATIENCE: Duration = Duration::from_secs(10);

/// Interval at which it looks whether the caller still waits.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Deepest list in an event that is shown. Events have lists in themselves, and no deeper.
const DEPTH_MAX: usize = 4;

impl Administrator {
    /// Events behind a number.
    #[doc(alias("zfs_ioc_events_next", "zfs_zevent_next"))]
    pub(crate) fn list_events(&self, call: &Call, request: &ListEvents) -> Events {
        let ring = &self.engine.events;
        let mut after = ring.after(request.after, ANSWER_MAX);
        let mut waited = Duration::ZERO;
        while request.wait
            && after.events.is_empty()
            && waited < PATIENCE
            && !ring.is_closed()
            && !call.presence.has_ended()
        {
            after = ring.wait_after(request.after, ANSWER_MAX, LOOK_INTERVAL);
            waited += LOOK_INTERVAL;
        }
        let events = after.events.iter().map(|event| EventRecord {
            id: event.id,
            values: pairs(&event.list, DEPTH_MAX),
        });
        Events {
            events: events.collect(),
            dropped: after.dropped,
        }
    }

    /// Forgets all events.
    #[doc(alias = "zfs_ioc_events_clear")]
    pub(crate) fn clear_events(&self) -> EventsCleared {
        EventsCleared {
            count: widen(self.engine.events.clear()),
        }
    }
}

fn pairs(list: &NvList, depth: usize) -> Vec<EventPair> {
    let pairs = list.iter().map(|(name, value)| EventPair {
        name: name.to_string(),
        value: value_of(value, depth),
    });
    pairs.collect()
}

fn value_of(value: &NvValue, depth: usize) -> EventValue {
    let texts = |texts: &Vec<Text>| texts.iter().map(ToString::to_string).collect();
    match value {
        NvValue::Boolean => EventValue::Flag(true),
        NvValue::BooleanValue(flag) => EventValue::Flag(*flag),
        NvValue::Uint8(number) => EventValue::Number(u64::from(*number)),
        NvValue::Int32(number) => EventValue::Number(u64::from(number.cast_unsigned())),
        NvValue::Uint32(number) => EventValue::Number(u64::from(*number)),
        NvValue::Int64(number) => EventValue::Number(number.cast_unsigned()),
        NvValue::Uint64(number) => EventValue::Number(*number),
        NvValue::Int64Array(numbers) => EventValue::Numbers(
            numbers
                .iter()
                .map(|number| number.cast_unsigned())
                .collect(),
        ),
        NvValue::Uint64Array(numbers) => EventValue::Numbers(numbers.clone()),
        NvValue::String(text) => EventValue::Text(text.to_string()),
        NvValue::StringArray(many) => EventValue::Texts(texts(many)),
        NvValue::List(list) if depth > 0 => EventValue::List(pairs(list, depth - 1)),
        _ => EventValue::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_numbers_keep_the_bits_of_their_type() {
        let list = NvList::new()
            .with("error", NvValue::Int32(-1))
            .with("level", NvValue::Int64(-2))
            .with("detector", NvList::new().with("pool", 7u64));
        let values: Vec<EventValue> = pairs(&list, DEPTH_MAX)
            .into_iter()
            .map(|pair| pair.value)
            .collect();
        let inner = EventPair {
            name: "pool".to_string(),
            value: EventValue::Number(7),
        };
        assert_eq!(
            values,
            [
                EventValue::Number(0xffff_ffff),
                EventValue::Number(u64::MAX - 1),
                EventValue::List(vec![inner]),
            ]
        );
    }
}
