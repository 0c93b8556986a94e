//! Scrubs begin by themselves as the property `tarn:scrub_schedule` says, in simulated time.

use std::time::Duration;
use tarn_administration::administration::Administration;
use tarn_administration::messages::pool::{Create, Import, Set, VdevKind, VdevRole, VdevSpec};
use tarn_host::Host;
use tarn_host::sim::{SimHost, SimOptions};
use tarn_hostile::house::{DISKS, House, call, search};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Longer than between two looks of the thread.
const SOON: Duration = Duration::from_secs(200);

fn create(house: &House) {
    let vdev = VdevSpec {
        kind: VdevKind::Leaf,
        path: Some(format!("{DISKS}/a")),
        children: Vec::new(),
        role: VdevRole::Data,
    };
    let request = Create {
        name: "tank".to_string(),
        vdevs: vec![vdev],
        ..Create::default()
    };
    house.administrator.pool_create(&call(), request).unwrap();
}

fn set(house: &House, value: &str) -> Result<(), String> {
    let request = Set {
        name: "tank".to_string(),
        property: "tarn:scrub_schedule".to_string(),
        value: value.to_string(),
    };
    let set = house.administrator.pool_set(&call(), request);
    set.map(drop).map_err(|refusal| refusal.to_string())
}

/// When the last scrub ended.
fn scrubbed_s(house: &House) -> Option<u64> {
    let stats = house.status("tank").unwrap().scan_stats?;
    assert_eq!((&*stats.function, &*stats.state), ("SCRUB", "FINISHED"));
    Some(stats.end_time_s)
}

fn machine() -> SimHost {
    let machine = SimHost::new(SimOptions::seed(3));
    machine.add_disk(format!("{DISKS}/a"), 64 << 20);
    machine
}

#[test]
fn a_pool_is_scrubbed_each_day_and_soon_after_an_import_that_is_late() {
    let run = machine().run(|host: &Host| {
        let house = House::new(host);
        house.engine.start_scheduled_scrubs();
        create(&house);
        host.sleep(10 * HOUR);
        assert_eq!(scrubbed_s(&house), None, "no schedule is set");
        assert!(set(&house, "each moon").unwrap_err().contains("weekly"));
        set(&house, "daily").unwrap();
        host.sleep(13 * HOUR);
        assert_eq!(scrubbed_s(&house), None, "it is not due");
        host.sleep(HOUR + SOON);
        let first = scrubbed_s(&house).expect("it was due");
        host.sleep(20 * HOUR);
        assert_eq!(scrubbed_s(&house), Some(first), "it is not due again");
        host.sleep(4 * HOUR + SOON);
        let second = scrubbed_s(&house).unwrap();
        let day_s = 24 * HOUR.as_secs();
        assert!((day_s..day_s + SOON.as_secs()).contains(&(second - first)));
        house.export("tank", false).unwrap();
        drop(house);
        host.sleep(100 * HOUR);
        let house = House::new(host);
        house.engine.start_scheduled_scrubs();
        let request = Import {
            search: search(),
            pool: Some("tank".to_string()),
            ..Import::default()
        };
        house.administrator.pool_import(&call(), request).unwrap();
        host.sleep(SOON);
        let third = scrubbed_s(&house).unwrap();
        assert!(third > second, "a scrub that was missed begins soon");
        set(&house, "off").unwrap();
        host.sleep(30 * HOUR);
        assert_eq!(scrubbed_s(&house), Some(third));
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}
