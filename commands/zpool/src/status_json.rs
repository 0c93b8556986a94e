//! `zpool status -j`.
//!
//! What is zero is left out, errors excepted, as OpenZFS does. Statistics of removals and
//! checkpoints are not in the reply as numbers, and left out too.

use crate::free_space;
use crate::pools;
use crate::status::{MESSAGES, Request, action_text, message_id, root, status_text};
use crate::vdev_json;
use crate::vdevs::{CLASSES, with_role};
use serde_json::Value;
use tarn_administration::messages::pool::{
    ErrorScrubStats, FreeSpaceStatus, PoolDescription, RebuildStats, ScanStats, VdevRole,
    VdevStatus,
};
use tarn_terminal::json::{Numbers, Object};
use tarn_terminal::number::{nice_bytes, nice_count, nice_time};
use tarn_terminal::timestamp;

/// The members for how far a device is initialized: state, what was done and is to be done, time,
/// errors.
const INITIALIZATION: [&str; 5] = [
    "init_state",
    "initialized",
    "to_initialize",
    "init_time",
    "init_errors",
];

/// The same for how far it is trimmed.
const TRIM: [&str; 5] = [
    "trim_state",
    "trimmed",
    "to_trim",
    "trim_time",
    "trim_errors",
];

/// The pools as JSON, by name or guid.
pub fn objects(request: &Request, numbers: Numbers, pools: &[PoolDescription]) -> Object {
    let writer = Writer { request, numbers };
    let mut objects = Object::new();
    for pool in pools.iter().filter(|pool| !request.leaves_out(pool)) {
        let key = match request.are_keys_guids {
            true => pool.guid.to_string(),
            false => pool.name.clone(),
        };
        objects.insert(key, writer.pool(pool).into());
    }
    objects
}

/// A number and what it counts.
#[derive(Debug, Clone, Copy)]
enum Quantity {
    Bytes(u64),
    Count(u64),
    /// Shown whole in any case.
    Whole(u64),
}

struct Writer<'a> {
    request: &'a Request,
    numbers: Numbers,
}

impl Writer<'_> {
    fn number(&self, quantity: Quantity) -> Value {
        let (Quantity::Bytes(exact) | Quantity::Count(exact) | Quantity::Whole(exact)) = quantity;
        if self.request.is_exact {
            return self.numbers.number(exact);
        }
        match quantity {
            Quantity::Bytes(bytes) => nice_bytes(bytes).into(),
            Quantity::Count(count) => nice_count(count).into(),
            Quantity::Whole(number) => number.to_string().into(),
        }
    }

    fn pool(&self, pool: &PoolDescription) -> Object {
        let request = self.request;
        let mut object = pools::object(pool, false, self.numbers);
        let texts = [("status", status_text(pool)), ("action", action_text(pool))];
        for (member, text) in texts {
            if let Some(text) = text {
                object.insert(member.into(), text.into());
            }
        }
        if let Some(id) = message_id(pool) {
            object.insert("msgid".into(), id.into());
            object.insert("moreinfo".into(), format!("{MESSAGES}{id}").into());
        }
        let mut scans = pool
            .scan_stats
            .as_ref()
            .map_or_else(Object::new, |stats| self.scan_stats(stats));
        let scrubbed_s = pool
            .scan_stats
            .as_ref()
            .map_or(0, |stats| stats.start_time_s);
        let known = pool.error_scrub_stats.as_ref();
        if let Some(known) = known.filter(|known| known.start_time_s > scrubbed_s) {
            self.error_scrub_stats(known, &mut scans);
        }
        let mut rebuilds = Object::new();
        for stats in &pool.rebuild_stats {
            rebuilds.insert(stats.name.clone(), self.rebuild_stats(stats).into());
        }
        if !rebuilds.is_empty() {
            scans.insert("rebuild_stats".into(), rebuilds.into());
        }
        if !scans.is_empty() {
            object.insert("scan_stats".into(), scans.into());
        }
        let mut vdevs = Object::new();
        self.root(pool, &mut vdevs);
        let lists = CLASSES
            .into_iter()
            .chain([(VdevRole::Cache, "l2cache"), (VdevRole::Spare, "spares")]);
        if request.is_flat {
            for (role, _) in lists {
                self.list(pool, role, &mut vdevs);
            }
            object.insert("vdevs".into(), vdevs.into());
        } else {
            object.insert("vdevs".into(), vdevs.into());
            for (role, key) in lists {
                let mut list = Object::new();
                self.list(pool, role, &mut list);
                if !list.is_empty() {
                    object.insert(key.into(), list.into());
                }
            }
        }
        object.insert(
            "error_count".into(),
            self.number(Quantity::Count(pool.error_count)),
        );
        if pool.error_count > 0 && request.is_verbose {
            object.insert("errlist".into(), pool.errors.clone().into());
        }
        object
    }

    fn time(&self, seconds: u64) -> Value {
        match (seconds, self.request.is_exact) {
            (0, _) => Value::from("-"),
            (seconds, true) => self.numbers.number(seconds),
            (seconds, false) => timestamp::ctime(i64::try_from(seconds).unwrap_or(i64::MAX)).into(),
        }
    }

    /// The last scrub of known errors, or the one that runs.
    fn error_scrub_stats(&self, stats: &ErrorScrubStats, into: &mut Object) {
        let count = |count| self.number(Quantity::Count(count));
        into.insert("err_scrub_func".into(), "ERRORSCRUB".into());
        into.insert("err_scrub_state".into(), stats.state.clone().into());
        into.insert("err_scrub_start_time".into(), self.time(stats.start_time_s));
        into.insert("err_scrub_end_time".into(), self.time(stats.end_time_s));
        into.insert("err_scrub_examined".into(), count(stats.examined));
        into.insert("err_scrub_to_examine".into(), count(stats.to_examine));
        let paused = self.number(Quantity::Whole(stats.paused_since_s));
        into.insert("err_scrub_pause".into(), paused);
    }

    /// The last sequential rebuild of a vdev, or the one that runs.
    fn rebuild_stats(&self, stats: &RebuildStats) -> Object {
        let vdev = VdevStatus {
            kind: stats.kind.clone(),
            guid: stats.guid,
            path: stats.path.clone(),
            ..VdevStatus::default()
        };
        let bytes = |bytes: u64| self.number(Quantity::Bytes(bytes));
        let lasted = |milliseconds: u64| match self.request.is_exact {
            true => self.numbers.number(milliseconds.saturating_mul(1_000_000)),
            false => nice_time(milliseconds.saturating_mul(1_000_000)).into(),
        };
        let mut object = vdev_json::object(&stats.name, &vdev, self.numbers);
        object.insert("state".into(), stats.state.clone().into());
        object.insert("start_time".into(), self.time(stats.start_time_s));
        object.insert("end_time".into(), self.time(stats.end_time_s));
        object.insert("scan_time".into(), lasted(stats.scan_time_ms));
        object.insert("scanned".into(), bytes(stats.scanned_bytes));
        object.insert("issued".into(), bytes(stats.issued_bytes));
        object.insert("rebuilt".into(), bytes(stats.rebuilt_bytes));
        object.insert("to_scan".into(), bytes(stats.estimated_bytes));
        object.insert("errors".into(), self.number(Quantity::Count(stats.errors)));
        object.insert("pass_time".into(), lasted(stats.pass_ms));
        object.insert("pass_scanned".into(), bytes(stats.pass_scanned_bytes));
        object.insert("pass_issued".into(), bytes(stats.pass_issued_bytes));
        object.insert("pass_skipped".into(), bytes(0));
        object
    }

    /// The last scrub or resilver, or the one that runs.
    fn scan_stats(&self, stats: &ScanStats) -> Object {
        let time = |seconds| self.time(seconds);
        let bytes = |bytes: u64| self.number(Quantity::Bytes(bytes));
        let whole = |number: u64| self.number(Quantity::Whole(number));
        let mut object = Object::new();
        object.insert("function".into(), stats.function.clone().into());
        object.insert("state".into(), stats.state.clone().into());
        object.insert("start_time".into(), time(stats.start_time_s));
        object.insert("end_time".into(), time(stats.end_time_s));
        object.insert("to_examine".into(), bytes(stats.to_examine_bytes));
        object.insert("examined".into(), bytes(stats.examined_bytes));
        object.insert("skipped".into(), bytes(stats.skipped_bytes));
        object.insert("processed".into(), bytes(stats.processed_bytes));
        object.insert("errors".into(), whole(stats.errors));
        object.insert("bytes_per_scan".into(), bytes(stats.pass_examined_bytes));
        object.insert("pass_start".into(), whole(stats.pass_start_s));
        object.insert("scrub_pause".into(), time(stats.paused_since_s));
        object.insert("scrub_spent_paused".into(), whole(stats.spent_paused_s));
        object.insert(
            "issued_bytes_per_scan".into(),
            bytes(stats.pass_issued_bytes),
        );
        object.insert("issued".into(), bytes(stats.issued_bytes));
        object
    }

    /// The whole pool, and below or beside it its vdevs.
    fn root(&self, pool: &PoolDescription, into: &mut Object) {
        let root = VdevStatus {
            children: with_role(&pool.layout, VdevRole::Data).cloned().collect(),
            ..root(pool)
        };
        self.vdev(&root, &pool.name, None, into);
    }

    fn list(&self, pool: &PoolDescription, role: VdevRole, into: &mut Object) {
        for vdev in with_role(&pool.layout, role) {
            if !self.request.leaves_out_vdev(vdev) {
                self.vdev(vdev, &self.request.names.of(vdev), None, into);
            }
        }
    }

    fn vdev(&self, vdev: &VdevStatus, name: &str, parent: Option<&str>, into: &mut Object) {
        let mut object = vdev_json::object(name, vdev, self.numbers);
        if let Some(parent) = parent.filter(|_| self.request.is_flat) {
            object.insert("parent".into(), parent.into());
        }
        self.measures(vdev, &mut object);
        self.state(vdev, &mut object);
        let children = vdev.children.iter();
        let children = children.filter(|child| !self.request.leaves_out_vdev(child));
        if self.request.is_flat {
            for child in children {
                self.vdev(child, &self.request.names.of(child), Some(name), into);
            }
        } else {
            let mut below = Object::new();
            for child in children {
                self.vdev(child, &self.request.names.of(child), Some(name), &mut below);
            }
            if !below.is_empty() {
                object.insert("vdevs".into(), below.into());
            }
        }
        into.insert(name.to_string(), object.into());
    }

    fn measures(&self, vdev: &VdevStatus, object: &mut Object) {
        let is_leaf = vdev.children.is_empty();
        let mut add = |member: &str, quantity| {
            object.insert(member.to_string(), self.number(quantity));
        };
        if vdev.role != VdevRole::Spare {
            let physical = if is_leaf { vdev.physical_bytes } else { 0 };
            for (member, bytes) in [
                ("alloc_space", vdev.allocated_bytes),
                ("total_space", vdev.size_bytes),
                ("def_space", vdev.deflated_bytes),
                ("rep_dev_size", vdev.replacement_bytes),
                ("ex_dev_size", vdev.expandable_bytes),
                ("phys_space", physical),
            ] {
                if bytes > 0 {
                    add(member, Quantity::Bytes(bytes));
                }
            }
            add("read_errors", Quantity::Count(vdev.read_errors));
            add("write_errors", Quantity::Count(vdev.write_errors));
            add("checksum_errors", Quantity::Count(vdev.checksum_errors));
            if vdev.scan_written_bytes > 0 {
                add("scan_processed", Quantity::Bytes(vdev.scan_written_bytes));
            }
            if vdev.is_resilver_deferred {
                add("resilver_deferred", Quantity::Whole(1));
            }
            if is_leaf {
                add("slow_ios", Quantity::Count(vdev.slow_ios));
            }
        }
        if self.request.shows_direct {
            add("dio_verify_errors", Quantity::Count(vdev.direct_errors));
        }
    }

    /// How far a device is initialized or trimmed.
    fn free_space(&self, status: &FreeSpaceStatus, members: &[&str; 5], object: &mut Object) {
        let [state, done, all, time, errors] = *members;
        let word = free_space::state_word(status.state);
        object.insert(state.into(), word.into());
        let mut add = |member: &str, value| object.insert(member.to_string(), value);
        add(done, self.number(Quantity::Bytes(status.done_bytes)));
        add(all, self.number(Quantity::Bytes(status.estimated_bytes)));
        let seconds = i64::try_from(status.time_s).unwrap_or(i64::MAX);
        add(
            time,
            match self.request.is_exact {
                true => self.numbers.number(status.time_s),
                false => timestamp::ctime(seconds).into(),
            },
        );
        add(errors, self.number(Quantity::Count(status.errors)));
    }

    fn state(&self, vdev: &VdevStatus, object: &mut Object) {
        if vdev.role == VdevRole::Spare && vdev.state == "AVAIL" {
            object.insert("state".into(), "AVAIL".into());
        }
        if self.request.shows_power && vdev.role != VdevRole::Spare {
            object.insert("power_state".into(), "-".into());
        }
        if let Some(remark) = &vdev.remark {
            match remark.strip_prefix("was ") {
                Some(path) => {
                    object.insert("not_present".into(), self.number(Quantity::Whole(1)));
                    object.insert("was".into(), path.into());
                }
                None => _ = object.insert("aux".into(), vdev_json::reason(remark).into()),
            }
        }
        if vdev.children.is_empty() && self.request.shows_initialization {
            match &vdev.initialization {
                Some(status) => self.free_space(status, &INITIALIZATION, object),
                None => _ = object.insert("init_state".into(), "UNINITIALIZED".into()),
            }
        }
        if vdev.children.is_empty() && self.request.shows_trim {
            match &vdev.trim {
                _ if !vdev.trim_supported => {}
                Some(status) => self.free_space(status, &TRIM, object),
                None => _ = object.insert("trim_state".into(), "UNTRIMMED".into()),
            }
            let unsupported = u64::from(!vdev.trim_supported);
            object.insert(
                "trim_notsup".into(),
                self.number(Quantity::Whole(unsupported)),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use crate::status::parse;

    fn shown(request: &Request, numbers: Numbers, pool: PoolDescription) -> String {
        Value::from(objects(request, numbers, &[pool])).to_string()
    }

    #[test]
    fn a_pool_has_its_vdevs_below_it() {
        let request = Request::default();
        assert_eq!(
            shown(&request, Numbers::Text, samples::basic()),
            concat!(
                r#"{"fxbasic":{"name":"fxbasic","state":"ONLINE","pool_guid":"4711","txg":"96","#,
                r#""spa_version":"5000","zpl_version":"5","vdevs":{"fxbasic":{"name":"fxbasic","#,
                r#""vdev_type":"root","guid":"4711","class":"normal","state":"ONLINE","#,
                r#""alloc_space":"46.0M","total_space":"176M","read_errors":"0","write_errors":"0","#,
                r#""checksum_errors":"0","vdevs":{"/run/0.img":{"name":"/run/0.img","vdev_type":"file","#,
                r#""guid":"100","path":"/run/0.img","class":"normal","state":"ONLINE","#,
                r#""alloc_space":"46.0M","total_space":"176M","phys_space":"192M","read_errors":"0","#,
                r#""write_errors":"0","checksum_errors":"0","slow_ios":"0"}}}},"error_count":"0"}}"#
            )
        );
    }

    #[test]
    fn numbers_may_be_integers_and_vdevs_flat() {
        let words = ["-j", "--json-int", "--json-flat-vdevs"].map(str::to_string);
        let request = parse(&words).unwrap();
        let text = shown(&request, Numbers::Integers, samples::mixed());
        assert!(
            text.contains(r#""parent":"mirror-0","read_errors":0,"#),
            "{text}"
        );
        assert!(!text.contains(r#""logs""#), "{text}");
    }

    #[test]
    fn lists_stand_beside_the_vdevs() {
        let text = shown(&Request::default(), Numbers::Text, samples::mixed());
        assert!(text.contains(r#""logs":{"mirror-2":{"#), "{text}");
        assert!(text.contains(r#""spares":{"/run/6.img":{"#), "{text}");
        assert!(
            text.contains(r#""class":"spare","state":"AVAIL"}"#),
            "{text}"
        );
    }

    #[test]
    fn what_a_scan_wrote_to_a_device_and_that_it_waits_are_members() {
        let mut pool = samples::basic();
        pool.layout[0].scan_written_bytes = 3 << 20;
        pool.layout[0].is_resilver_deferred = true;
        let text = shown(&Request::default(), Numbers::Text, pool);
        let members = concat!(
            r#""checksum_errors":"0","scan_processed":"3M","#,
            r#""resilver_deferred":"1","slow_ios":"0""#
        );
        assert!(text.contains(members), "{text}");
    }

    #[test]
    fn a_bad_state_has_its_reason() {
        let mut pool = samples::basic();
        pool.layout[0].state = "UNAVAIL".into();
        pool.layout[0].remark = Some("was /dev/sda".into());
        let text = shown(&Request::default(), Numbers::Text, pool);
        assert!(
            text.contains(r#""not_present":"1","was":"/dev/sda""#),
            "{text}"
        );
        assert!(text.contains(r#""state":"CANT_OPEN""#), "{text}");
    }
}
