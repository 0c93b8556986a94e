//! Pools with `multihost` are not opened for writing beside the host that writes them, by force or
//! not.

use std::time::Duration;
use tarn_administration::administration::Administration;
use tarn_administration::messages::pool::{Clear, Import, Set, VdevKind};
use tarn_administration::messages::{Refusal, RefusalKind};
use tarn_host::Host;
use tarn_host::sim::{SimHost, SimOptions};
use tarn_hostile::devices::{Devices, Disk};
use tarn_hostile::house::{DISKS, House, call, search};
use tarn_hostile::lie::Liar;
use tarn_ondisk::uberblock::{Multihost, Uberblock};
use tarn_ondisk::units::Txg;

const NAMES: [&str; 2] = ["a", "b"];
const DISK_BYTES: u64 = 64 << 20;

/// A host writes each second, and gives up after ten.
const HABITS: Multihost = Multihost {
    interval_ms: Some(1000),
    sequence: Some(1),
    fail_intervals: Some(10),
};
/// So long it is waited for.
const SILENCE: Duration = Duration::from_secs(20);

const OFF: &[(&str, &str)] = &[("multihost", "off")];

/// A pool that a host left without exporting it, and which showed itself alive.
fn shown_alive() -> SimHost {
    let machine = SimHost::new(SimOptions::seed(1));
    for disk in NAMES {
        machine.add_disk(format!("{DISKS}/{disk}"), DISK_BYTES);
    }
    let run = machine.run(|host| {
        let house = House::new(host);
        house.create("tank", VdevKind::Mirror, &NAMES, &[]).unwrap();
        house.sync().unwrap();
    });
    run.unwrap();
    let machine = machine.reboot();
    change(&machine, |uberblock| {
        uberblock.set_multihost(1_000_000_000, HABITS);
    });
    machine
}

/// Changes the newest uberblock, as another host does.
fn change(machine: &SimHost, how: impl FnOnce(&mut Uberblock)) {
    let disk = |name: &&str| Disk {
        disk: machine.disk(format!("{DISKS}/{name}")).unwrap(),
        size_bytes: DISK_BYTES,
    };
    let devices = Devices::new(NAMES.iter().map(disk).collect());
    Liar::new(&devices, None).unwrap().tell_uberblock(how);
}

fn import(host: &Host, options: &[(&str, &str)]) -> Result<House, Refusal> {
    let house = House::new(host);
    // By force, as always here.
    house.import(Some("tank"), options).map(|_| house)
}

/// Has another host write the pool after half of the silence, and runs `import` meanwhile.
fn beside_another_host<T>(machine: &SimHost, host: &Host, import: impl FnOnce() -> T) -> T {
    let other = {
        let (machine, clock) = (machine.clone(), host.clone());
        host.spawn("other host", move || {
            clock.sleep(SILENCE / 2);
            change(&machine, |uberblock| {
                let sequence = Some(2);
                let habits = Multihost { sequence, ..HABITS };
                uberblock.set_multihost(1_000_000_000, habits);
            });
        })
    };
    let imported = import();
    other.join().unwrap();
    imported
}

#[test]
fn a_pool_with_multihost_is_written_by_force_only_when_its_host_is_silent() {
    let machine = shown_alive();
    let run = machine.run(|host| {
        let house = import(host, &[("readonly", "on")]).unwrap();
        house.export("tank", false).unwrap();
        let refusal = beside_another_host(&machine, host, || import(host, &[]).err().unwrap());
        assert_eq!(refusal.kind, RefusalKind::OtherHost, "{refusal}");
        assert!(
            refusal.to_string().contains("is imported on host"),
            "{refusal}"
        );
        let house = import(host, &[]).unwrap();
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

/// A host that cannot write its heartbeat stops, shows that, and takes the pool back.
#[test]
fn a_host_that_was_paused_for_long_is_suspended_until_it_is_cleared() {
    let machine = shown_alive();
    let run = machine.run(|host| {
        let house = import(host, &[]).unwrap();
        let set = |property: &str, value: &str| {
            let request = Set {
                name: "tank".to_string(),
                property: property.to_string(),
                value: value.to_string(),
            };
            house.administrator.pool_set(&call(), request)
        };
        assert!(set("tarn:multihost_interval", "99").is_err());
        set("tarn:multihost_interval", "100").unwrap();
        set("multihost", "on").unwrap();
        // Many leases pass, and the pool stays in use.
        host.sleep(Duration::from_secs(20));
        house.sync().unwrap();
        machine.pause_host(Duration::from_secs(2));
        assert!(set("comment", "1").is_err(), "its lease has expired");
        let pool = house.engine.require_pool("tank").unwrap().pool.clone();
        assert!(pool.is_lease_expired());
        let clear = || {
            let request = Clear {
                name: "tank".to_string(),
                ..Clear::default()
            };
            house.administrator.pool_clear(&call(), request)
        };
        clear().unwrap();
        house.sync().unwrap();
        set("multihost", "off").unwrap();
        // No heartbeat is needed any more.
        machine.pause_host(Duration::from_secs(2));
        set("comment", "2").unwrap();
        set("multihost", "on").unwrap();
        machine.pause_host(Duration::from_secs(2));
        assert!(set("comment", "3").is_err());
        change(&machine, |uberblock| uberblock.timestamp_s += 1);
        let refusal = clear().unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::OtherHost, "{refusal}");
        house.export("tank", true).unwrap();
    });
    run.unwrap();
}

/// What looks like rot from here may be what the other host has put there since.
#[test]
fn a_pool_that_is_refused_is_not_repaired() {
    let machine = shown_alive();
    let run = machine.run(|host| {
        let disks = NAMES.map(|disk| machine.disk(format!("{DISKS}/{disk}")).unwrap());
        // Whichever side is read first lacks something that the other has.
        let parts = 4 << 20..60 << 20;
        for (number, start) in parts.step_by(4 << 10).enumerate() {
            disks[number % 2].rot(start..start + (4 << 10));
        }
        beside_another_host(&machine, host, || import(host, &[]).err().unwrap());
        for disk in disks {
            let (reads, writes, _) = disk.requests();
            assert!(reads > 0 && writes == 0, "{reads} read, {writes} written");
        }
    });
    run.unwrap();
}

/// What counts on from such a number counts wrong.
#[test]
fn a_group_that_no_pool_has_is_refused() {
    let machine = shown_alive();
    change(&machine, |uberblock| uberblock.txg = Txg::new(1 << 50));
    let run = machine.run(|host| {
        for options in [&[][..], &[("readonly", "on")]] {
            let refusal = import(host, options).err().unwrap();
            assert!(
                refusal.to_string().contains("which no pool has"),
                "{refusal}"
            );
        }
    });
    run.unwrap();
}

#[test]
fn a_pool_is_watched_as_long_as_its_import_waits() {
    let machine = shown_alive();
    let run = machine.run(|host| {
        let house = House::new(host);
        let refused = || {
            let caller = call();
            let gone = caller.presence.clone();
            let clock = host.clone();
            let leaver = host.spawn("caller", move || {
                clock.sleep(SILENCE / 4);
                gone.end();
            });
            let request = Import {
                search: search(),
                pool: Some("tank".to_string()),
                properties: vec![("multihost".to_string(), "off".to_string())],
                force: true,
                ..Import::default()
            };
            let began_ns = host.monotonic_ns();
            let refusal = house
                .administrator
                .pool_import(&caller, request)
                .unwrap_err();
            let waited = Duration::from_nanos(host.monotonic_ns() - began_ns);
            assert!(waited < SILENCE / 2, "{waited:?}");
            leaver.join().unwrap();
            refusal.reason
        };
        assert_eq!(refused(), "the caller is gone");
        house.engine.begin_to_stop();
        assert_eq!(refused(), "the daemon is about to end");
    });
    run.unwrap();
}

#[test]
fn a_pool_that_is_silent_for_long_is_taken_if_it_gives_multihost_up() {
    let machine = shown_alive();
    let run = machine.run(|host| {
        let began_ns = host.monotonic_ns();
        let house = import(host, OFF).unwrap();
        let waited = Duration::from_nanos(host.monotonic_ns() - began_ns);
        assert!(waited >= SILENCE && waited < SILENCE * 2, "{waited:?}");
        house.export("tank", false).unwrap();
        let began_ns = host.monotonic_ns();
        let house = import(host, &[]).unwrap();
        let waited = Duration::from_nanos(host.monotonic_ns() - began_ns);
        assert!(waited < SILENCE / 2, "nobody needs to watch it any more");
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}
