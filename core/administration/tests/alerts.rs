//! Alerts, from records of operations to notices: the operations of the control interface, the file
//! that keeps them, and a watch that looks at seconds of the past.

mod support;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use support::{Bench, call};
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::Caller;
use tarn_administration::messages::alerts::{
    AddAlert, Alert, AlertChange, AlertMeasure, AlertSide, AlertState, ListAlerts, RemoveAlert,
};
use tarn_administration::messages::analytics::{Events, When};
use tarn_administration::{Administrator, AlertWatch};
use tarn_engine::analytics::Analytics;
use tarn_engine::files::{ClientId, HolderId, OperationKind, Protocol, Who, monotonic_ns};
use tarn_probe::{DatasetId, OperationRecord, Stage, What};

const SECOND_NS: u64 = 1_000_000_000;

fn alert(name: &str, measure: AlertMeasure, statement: &str, threshold: f64) -> Alert {
    Alert {
        name: name.to_owned(),
        statement: statement.to_owned(),
        measure,
        slower_ns: (measure == AlertMeasure::Share).then_some(1_000_000),
        of: (measure == AlertMeasure::Ratio).then(|| "nfs.ops".to_owned()),
        side: AlertSide::Above,
        threshold,
        clear: None,
        window_s: 2,
        for_s: 0,
        clear_for_s: 0,
        repeat_s: 0,
        webhook: None,
        program: None,
    }
}

fn reads(ended_ns: u64, latency_ns: u64, count: usize) -> Vec<OperationRecord> {
    let who = Who {
        client: ClientId(4242),
        protocol: Protocol::Nfs3,
        user: 0,
        holder: HolderId::NONE,
    };
    let what = What::plain(OperationKind::Read, DatasetId::NONE, 0);
    let record = OperationRecord::new(
        ended_ns - latency_ns,
        latency_ns,
        &who,
        &what,
        0,
        &[0; Stage::COUNT],
    );
    vec![record; count]
}

#[test]
fn slow_reads_of_two_seconds_are_told_when_they_begin_and_end() {
    let bench = Bench::new();
    let analytics = Arc::new(Analytics::new(0));
    bench.engine.answer_from(analytics.clone());
    let administrator = &bench.administrator;
    for alert in [
        alert("slow", AlertMeasure::P99, "nfs.ops[op=read]:latency", 1e7),
        alert("share", AlertMeasure::Share, "nfs.ops", 0.4),
        alert("ratio", AlertMeasure::Ratio, "nfs.ops[latency>1ms]", 0.9),
        alert("idle", AlertMeasure::Rate, "iscsi.ops", 0.0),
    ] {
        administrator
            .analytics_add_alert(&call(""), AddAlert { alert })
            .unwrap();
    }
    // Seconds of the past: ten of fast reads, in the middle two with slow ones.
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let ahead_ns = u64::try_from(unix.as_nanos()).unwrap() - monotonic_ns();
    let first_s = unix.as_secs() - 20;
    let clock_ns = |second: u64| second * SECOND_NS - ahead_ns;
    let mut records = Vec::new();
    for second in first_s..first_s + 10 {
        let middle_ns = clock_ns(second) + SECOND_NS / 2;
        records.extend(reads(middle_ns, 100_000, 10));
        if (4..6).contains(&(second - first_s)) {
            records.extend(reads(middle_ns, 50_000_000, 10));
        }
    }
    analytics.take(&records);
    analytics.note_collected(clock_ns(first_s)..clock_ns(first_s + 10), 0);

    let mut watch = AlertWatch::new(administrator.clone());
    let mut told = Vec::new();
    for second in first_s..first_s + 11 {
        for notice in watch.look_at(second).unwrap() {
            let at = notice.at_ms / 1000 - first_s;
            told.push((notice.alert.name.clone(), notice.change, at, notice.text));
        }
    }
    let of = |name: &str| -> Vec<(AlertChange, u64)> {
        let of_name = told.iter().filter(|(known, ..)| known == name);
        of_name.map(|(_, change, at, _)| (*change, *at)).collect()
    };
    assert_eq!(
        of("slow"),
        [(AlertChange::Begun, 5), (AlertChange::Ended, 8)]
    );
    // The window has a fast second and a slow one at first, and at last.
    assert_eq!(
        of("share"),
        [(AlertChange::Begun, 6), (AlertChange::Ended, 7)]
    );
    assert_eq!((of("ratio"), of("idle")), (Vec::new(), Vec::new()));
    let (_, _, _, text) = told.iter().find(|(name, ..)| name == "slow").unwrap();
    assert_eq!(
        text,
        "slow: p99 of nfs.ops[op=read]:latency above 10ms (50ms)"
    );

    let when = When {
        from: Some(Duration::from_secs(first_s).as_secs_f64()),
        ..When::default()
    };
    let happened = administrator.analytics_events(&call(""), Events { when });
    let happened = happened.unwrap().events;
    let alerts: Vec<_> = happened
        .iter()
        .filter(|event| event.kind == "alert")
        .collect();
    assert_eq!(alerts.len(), 2, "{happened:?}");
    assert!(
        alerts
            .iter()
            .all(|event| event.until_ms > Some(event.at_ms))
    );
    let listed = administrator.analytics_list_alerts(&call(""), ListAlerts {});
    let listed = listed.unwrap().alerts;
    let states: Vec<_> = listed
        .iter()
        .map(|status| (status.alert.name.as_str(), status.state))
        .collect();
    let quiet = ["idle", "ratio", "share", "slow"].map(|name| (name, AlertState::Quiet));
    assert_eq!(states, quiet);
    assert_eq!(listed[3].value, Some(100_000.0));
}

#[test]
fn alerts_are_kept_in_a_file_and_what_cannot_be_is_refused() {
    let bench = Bench::new();
    bench.engine.answer_from(Arc::new(Analytics::new(0)));
    let administrator = &bench.administrator;
    let add = |alert: Alert| administrator.analytics_add_alert(&call(""), AddAlert { alert });
    add(alert("a", AlertMeasure::Rate, "nfs.ops[op=read]", 5.0)).unwrap();
    add(alert("b", AlertMeasure::Value, "arc.size", 5.0)).unwrap();
    add(alert("a", AlertMeasure::Rate, "nfs.ops[op=read]", 7.0)).unwrap();
    for (measure, statement, why) in [
        (AlertMeasure::P99, "nfs.ops", "':latency' or ':size'"),
        (AlertMeasure::Rate, "nfs.ops[client]", "do not break down"),
        (AlertMeasure::Rate, "nfs.oops", "nfs.oops"),
        (AlertMeasure::Rate, "arc.size", "sampled"),
        (AlertMeasure::Value, "nfs.ops", "sampled"),
    ] {
        let refused = add(alert("c", measure, statement, 1.0))
            .unwrap_err()
            .to_string();
        assert!(refused.contains(why), "{statement}: {refused}");
    }
    // Another administrator of the instance finds them.
    let again = Administrator::new(bench.engine.clone());
    let listed = again
        .analytics_list_alerts(&call(""), ListAlerts {})
        .unwrap();
    let thresholds: Vec<f64> = listed
        .alerts
        .iter()
        .map(|status| status.alert.threshold)
        .collect();
    assert_eq!(thresholds, [7.0, 5.0]);
    let name = "a".to_owned();
    let removed =
        administrator.analytics_remove_alert(&call(""), RemoveAlert { name: name.clone() });
    removed.unwrap();
    let gone = administrator.analytics_remove_alert(&call(""), RemoveAlert { name });
    assert!(gone.unwrap_err().to_string().contains("no alert 'a'"));
    let path = bench.engine.instance.alerts();
    std::fs::write(&path, "{}").unwrap();
    let mut watch = AlertWatch::new(Administrator::new(bench.engine.clone()));
    let damaged = watch.look_at(1).unwrap_err();
    assert!(damaged.contains("no list of alerts"), "{damaged}");
    assert_eq!(watch.look_at(2).unwrap().len(), 0);
    let stranger = Call {
        caller: Caller {
            uid: 4_000_999,
            ..Caller::default()
        },
        ..Call::default()
    };
    assert!(
        administrator
            .analytics_list_alerts(&stranger, ListAlerts {})
            .is_err()
    );
}
