//! The archive against a model: what it says of each tier is the sum of the seconds that were
//! appended, whatever is cut, killed or damaged meanwhile.

mod support;

use std::collections::BTreeSet;

use support::{
    BEGIN_S, Model, answer, any_second, archive_on, bytes_in, directory, files_in_memory,
    real_host, second,
};
use tarn_analytics::Collected;
use tarn_archive::{
    Archive, ArchiveError, Cell, Column, DEFAULT_CAP_BYTES, LEAST_CAP_BYTES, SeriesId, Tier,
    WhySkipped,
};
use tarn_host::sim::Random;
use tarn_host::{SimHost, SimOptions};

const LATENCY: &str = "nfs.ops:latency";

/// The archive says what the model does, at several widths of columns.
fn judge(archive: &Archive, model: &Model, from_s: u64, until_s: u64) {
    for column_s in [60, 300, 3600] {
        let from_s = from_s - from_s % column_s;
        let answer = answer(archive, LATENCY, from_s, until_s, column_s);
        assert_eq!(answer.column_s, column_s);
        let model = model.columns(from_s, until_s, column_s);
        assert_eq!(answer.total, model, "columns of {column_s} s from {from_s}");
    }
}

#[test]
fn minutes_and_hours_are_the_merge_of_their_seconds_bit_by_bit() {
    let host = files_in_memory();
    let archive = archive_on(&host, DEFAULT_CAP_BYTES);
    let (mut random, mut model) = (Random::new(1), Model::default());
    let until_s = BEGIN_S + 2 * 3600 + 1000;
    for second in BEGIN_S..until_s {
        let column = any_second(&mut random, second);
        model.add(&column);
        archive.append(column).unwrap();
    }
    let seconds = answer(&archive, LATENCY, BEGIN_S + 250, BEGIN_S + 1000, 1);
    assert_eq!(seconds.tier, Tier::Second);
    assert_eq!(
        seconds.total,
        model.columns(BEGIN_S + 250, BEGIN_S + 1000, 1)
    );
    judge(&archive, &model, BEGIN_S, until_s);
    let minutes = answer(&archive, LATENCY, BEGIN_S, until_s, 60);
    assert_eq!(minutes.tier, Tier::Minute);
    let is_whole = |column: &tarn_archive::ArchivedColumn| column.collected == Collected::Whole;
    assert!(minutes.columns.iter().all(is_whole));
    let (least, most) = minutes.total[7].range.unwrap();
    assert!(least < 20_000 && most > 1_000_000);
    // Again from the files, as another process reads them.
    let reader = Archive::open_to_read(&host, directory()).unwrap();
    judge(&reader, &model, BEGIN_S, until_s);
    let refused = reader.append(Column::new(until_s));
    assert!(matches!(refused, Err(ArchiveError::ReadOnly { .. })));
}

#[test]
fn a_time_without_seconds_is_not_collected_and_one_without_operations_is_zero() {
    let archive = archive_on(&files_in_memory(), DEFAULT_CAP_BYTES);
    for start_s in (BEGIN_S..BEGIN_S + 600).chain(BEGIN_S + 900..BEGIN_S + 1205) {
        archive.append(second(start_s, Vec::new())).unwrap();
    }
    let answer = answer(&archive, LATENCY, BEGIN_S, BEGIN_S + 1500, 60);
    let states: Vec<Collected> = answer
        .columns
        .iter()
        .map(|column| column.collected)
        .collect();
    let mut expected = vec![Collected::Whole; 10];
    expected.extend([Collected::NotCollected; 5]);
    expected.extend([Collected::Whole; 5]);
    expected.push(Collected::Partly);
    expected.extend([Collected::NotCollected; 4]);
    assert_eq!(states, expected);
    assert!(answer.total.iter().all(|cell| *cell == Cell::default()));
}

/// A mean is over the samples there were; keys are added up or told apart.
#[test]
fn sampled_statistics_are_means_or_sums() {
    let archive = archive_on(&files_in_memory(), DEFAULT_CAP_BYTES);
    for offset in 0..400 {
        let mut cells = vec![(SeriesId::new("arc.hits", &[]), Cell::of_sample(offset))];
        for (cpu, percent) in [("0", 40), ("1", offset % 2 * 100)] {
            let series = SeriesId::new("cpu.utilization", &[cpu, "user"]);
            cells.push((series, Cell::of_sample(percent)));
        }
        archive.append(second(BEGIN_S + offset, cells)).unwrap();
    }
    let sums = |text: &str| -> Vec<u64> {
        let answer = answer(&archive, text, BEGIN_S, BEGIN_S + 360, 60);
        answer.total.iter().map(|cell| cell.sum).collect()
    };
    assert_eq!(sums("cpu.utilization"), [90; 6]);
    assert_eq!(sums("cpu.utilization[cpu=1]"), [50; 6]);
    assert_eq!(sums("arc.hits")[1], (60..120).sum::<u64>());
    let by_cpu = answer(&archive, "cpu.utilization[cpu]", BEGIN_S, BEGIN_S + 420, 60);
    let keys: Vec<&str> = by_cpu
        .groups
        .iter()
        .map(|group| group.key[0].as_str())
        .collect();
    assert_eq!(keys, ["1", "0"]);
    assert_eq!(by_cpu.columns[5].collected, Collected::Whole);
    assert_eq!(by_cpu.columns[6].collected, Collected::Partly);
}

#[test]
fn operations_that_come_late_are_counted_in_their_second() {
    let archive = archive_on(&files_in_memory(), DEFAULT_CAP_BYTES);
    let (mut random, mut model) = (Random::new(2), Model::default());
    for start_s in BEGIN_S..BEGIN_S + 700 {
        archive.append(any_second(&mut random, start_s)).unwrap();
        let late = any_second(&mut random, start_s.max(BEGIN_S + 2) - 2);
        model.add(&late);
        archive.append(late).unwrap();
    }
    let until_s = BEGIN_S + 660;
    let judged = answer(&archive, LATENCY, BEGIN_S, until_s, 1);
    assert_eq!(judged.total, model.columns(BEGIN_S, until_s, 1));
    judge(&archive, &model, BEGIN_S, until_s);
    let late = archive.append(second(BEGIN_S + 10, Vec::new()));
    assert!(matches!(late, Err(ArchiveError::Late { .. })));
}

/// The power is cut in each change of a file in turn, or nearly: at most the second that was being
/// appended is lost.
#[test]
fn a_power_cut_loses_at_most_the_second_being_appended() {
    let (mut random, mut model) = (Random::new(3), Model::default());
    let mut next_s = BEGIN_S + 86_400 - 900;
    let mut machine = SimHost::new(SimOptions::seed(3));
    for round in 0..60 {
        // Changes of files come in a bunch where blocks are sealed.
        let changes = 1 + if round % 3 == 0 {
            random.below(400)
        } else {
            random.below(8)
        };
        machine.cut_power_in_file_change(machine.file_changes() + changes);
        let mut appending = next_s;
        let run = machine.run(|host| {
            let archive = archive_on(host, DEFAULT_CAP_BYTES);
            loop {
                let column = any_second(&mut random, appending);
                model.add(&column);
                archive.append(column).unwrap();
                appending += 1;
            }
        });
        assert!(run.is_err(), "the power was cut");
        machine = machine.reboot();
        let found = machine.run(|host| {
            let archive = archive_on(host, DEFAULT_CAP_BYTES);
            let from_s = BEGIN_S + 86_400 - 900;
            let seconds = answer(&archive, LATENCY, from_s, appending + 1, 1);
            let is_there = seconds.columns.last().unwrap().collected == Collected::Whole;
            if !is_there {
                model.forget(appending);
            }
            assert_eq!(
                seconds.total,
                model.columns(from_s, appending + 1, 1),
                "round {round}"
            );
            judge(&archive, &model, from_s, appending + 1);
            assert!(
                archive
                    .skipped()
                    .iter()
                    .all(|one| one.why == WhySkipped::DamagedEnd)
            );
        });
        found.unwrap();
        next_s = appending + 1 + random.below(3);
    }
    assert!(model.newest_s() > BEGIN_S + 86_400 + 600);
}

/// A day of load in compressed time, in which the power is cut twenty times: the cap is held, each
/// cut loses a second at most, and all tiers have the same sums.
#[test]
fn a_day_with_twenty_power_cuts_has_the_same_sums_in_all_tiers() {
    let (mut random, mut model) = (Random::new(9), Model::default());
    let until_s = BEGIN_S + 86_400;
    let mut next_s = BEGIN_S;
    let mut machine = SimHost::new(SimOptions::seed(9));
    let mut cuts = 0;
    while next_s < until_s {
        let changes = machine.file_changes() + 1 + random.below(4_400);
        machine.cut_power_in_file_change(if cuts < 20 { changes } else { u64::MAX });
        let run = machine.run(|host| {
            let archive = archive_on(host, LEAST_CAP_BYTES);
            while next_s < until_s + 4 {
                let column = any_second(&mut random, next_s);
                model.add(&column);
                archive.append(column).unwrap();
                next_s += 1;
            }
            assert!(archive.state().bytes <= LEAST_CAP_BYTES);
        });
        machine = machine.reboot();
        if run.is_err() {
            cuts += 1;
            let lost = machine.run(|host| {
                let archive = archive_on(host, LEAST_CAP_BYTES);
                let last = answer(&archive, LATENCY, next_s, next_s + 1, 1);
                last.columns[0].collected != Collected::Whole
            });
            if lost.unwrap() {
                model.forget(next_s);
            }
            next_s += 1;
        }
    }
    assert_eq!(cuts, 20);
    let judged = machine.run(|host| {
        let archive = archive_on(host, LEAST_CAP_BYTES);
        assert!(bytes_in(host, directory()) <= LEAST_CAP_BYTES);
        for (tier, column_s) in [(Tier::Second, 1), (Tier::Minute, 60), (Tier::Hour, 3600)] {
            for from_s in (BEGIN_S..until_s).step_by(3600) {
                let answer = answer(&archive, LATENCY, from_s, from_s + 3600, column_s);
                assert_eq!(answer.tier, tier);
                assert_eq!(answer.total, model.columns(from_s, from_s + 3600, column_s));
            }
        }
    });
    judged.unwrap();
}

/// A day and more of load within a cap that is far too small for it.
#[test]
fn the_cap_is_never_exceeded_and_coarse_tiers_outlive_fine_ones() {
    let host = files_in_memory();
    let mut archive = archive_on(&host, LEAST_CAP_BYTES);
    let (mut random, mut model) = (Random::new(4), Model::default());
    let days = 4;
    for start_s in (BEGIN_S..BEGIN_S + days * 86_400).step_by(10) {
        let mut column = any_second(&mut random, start_s);
        model.add(&column);
        // Numbers without any order take the room of a busy server.
        let noise = (0..60).map(|number| {
            let series = SeriesId::new("net.bytes", &[&number.to_string(), "in"]);
            (series.into(), Cell::of_sample(random.draw()))
        });
        column.cells.extend(noise);
        archive.append(column).unwrap();
        if start_s % 3000 == 0 {
            assert!(bytes_in(&host, directory()) <= LEAST_CAP_BYTES);
            assert_eq!(archive.state().bytes, bytes_in(&host, directory()));
        }
        if start_s % 43_200 == 0 {
            archive = archive_on(&host, LEAST_CAP_BYTES);
        }
    }
    let state = archive.state();
    assert!(
        state.bytes > LEAST_CAP_BYTES / 2 && state.refused == 0,
        "{state:?}"
    );
    let [seconds, minutes, hours] = state.oldest_s.map(Option::unwrap);
    assert!(seconds > minutes && minutes > hours, "{state:?}");
    assert_eq!(hours, BEGIN_S);
    // What each tier still has is the sum of its seconds.
    let until_s = BEGIN_S + days * 86_400;
    for (tier, from_s, column_s) in [
        (Tier::Second, until_s - 600, 1),
        (Tier::Minute, until_s - 7200, 60),
        (Tier::Hour, BEGIN_S, 3600),
    ] {
        let answer = answer(&archive, LATENCY, from_s, until_s, column_s);
        assert_eq!(answer.tier, tier);
        assert_eq!(answer.total, model.columns(from_s, until_s, column_s));
    }
    let refused = Archive::open(&host, directory(), LEAST_CAP_BYTES - 1);
    assert!(matches!(refused, Err(ArchiveError::CapTooSmall { .. })));
}

/// Opening reads no block: what a block has is looked at when it is asked for, also for minutes and
/// hours that were in memory alone when the archive was closed.
#[test]
fn an_archive_that_is_opened_again_has_minutes_and_hours_that_were_in_no_block() {
    let host = files_in_memory();
    let archive = archive_on(&host, DEFAULT_CAP_BYTES);
    let (mut random, mut model) = (Random::new(6), Model::default());
    let until_s = BEGIN_S + 26 * 3600 + 2000;
    let append = |archive: &Archive, model: &mut Model, random: &mut Random, second| {
        let column = any_second(random, second);
        model.add(&column);
        archive.append(column).unwrap();
    };
    for second in (BEGIN_S..until_s).step_by(5) {
        append(&archive, &mut model, &mut random, second);
    }
    drop(archive);
    let archive = archive_on(&host, DEFAULT_CAP_BYTES);
    let before = archive.state();
    assert_eq!(before.oldest_s, [Some(BEGIN_S); 3]);
    judge(&archive, &model, BEGIN_S, until_s);
    assert_eq!(archive.state(), before, "questions change nothing");
    // The block of minutes that is due now is made of blocks that were not read until now.
    let later_s = until_s + 3600;
    for second in (until_s..later_s).step_by(5) {
        append(&archive, &mut model, &mut random, second);
    }
    judge(&archive, &model, BEGIN_S, later_s);
    // A damaged block among them is named when it is read, and its time is not collected.
    let starts = (0..).map(|number| later_s - later_s % 300 - 300 * number);
    let mut paths = starts.map(|start_s| directory().join(format!("1s-{start_s}.block")));
    let newest = paths
        .find(|path| host.file_size_bytes(path).is_ok())
        .unwrap();
    let mut bytes = host.read_file(&newest).unwrap();
    bytes[40] ^= 1;
    host.write_file_atomically(&newest, &bytes).unwrap();
    drop(archive);
    let archive = archive_on(&host, DEFAULT_CAP_BYTES);
    assert!(archive.skipped().is_empty());
    let name = newest.file_stem().unwrap().to_string_lossy().into_owned();
    let start_s: u64 = name.trim_start_matches("1s-").parse().unwrap();
    let minutes = answer(&archive, LATENCY, start_s - 60, start_s + 300, 60);
    let states = minutes.columns.iter().map(|column| column.collected);
    let mut expected = vec![Collected::NotCollected; 6];
    expected[0] = Collected::Partly;
    assert!(states.eq(expected), "{:?}", minutes.columns);
    let skipped = archive.skipped();
    assert_eq!(skipped.len(), 1);
    assert_eq!(
        (&skipped[0].path, skipped[0].why),
        (&newest, WhySkipped::Damaged)
    );
}

/// A long range of seconds is answered from minutes, whose sums are the same.
#[test]
fn a_long_range_of_narrow_columns_is_answered_from_the_next_tier() {
    let archive = archive_on(&files_in_memory(), DEFAULT_CAP_BYTES);
    let (mut random, mut model) = (Random::new(7), Model::default());
    let until_s = BEGIN_S + 12 * 3600;
    for second in (BEGIN_S..until_s).step_by(5) {
        let column = any_second(&mut random, second);
        model.add(&column);
        archive.append(column).unwrap();
    }
    for (length_s, column_s, tier) in [
        (12 * 3600, 25, Tier::Minute),
        (12 * 3600, 19, Tier::Second),
        (9 * 3600, 25, Tier::Second),
    ] {
        let until_s = BEGIN_S + length_s;
        let answer = answer(&archive, LATENCY, BEGIN_S, until_s, column_s);
        assert_eq!(answer.tier, tier, "{column_s} s of {length_s} s");
        assert_eq!(answer.column_s, column_s.next_multiple_of(tier.column_s()));
        assert_eq!(
            answer.total,
            model.columns(BEGIN_S, until_s, answer.column_s)
        );
    }
}

#[test]
fn one_process_at_a_time_archives_in_a_directory_and_others_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Archive::open(&real_host(), folder.path(), DEFAULT_CAP_BYTES);
    let archive = open().unwrap();
    archive.append(second(BEGIN_S, Vec::new())).unwrap();
    let refused = open().unwrap_err();
    assert!(matches!(refused, ArchiveError::InUse { .. }));
    let cure = refused.to_string();
    assert!(
        cure.contains("--archive") && cure.contains(&format!("process {}", std::process::id()))
    );
    let reader = Archive::open_to_read(&real_host(), folder.path()).unwrap();
    let read = answer(&reader, LATENCY, BEGIN_S, BEGIN_S + 1, 1);
    assert_eq!(read.columns[0].collected, Collected::Whole);
    assert!(reader.skipped().is_empty(), "the lock is no foreign file");
    drop(archive);
    open().unwrap();
}

/// Bytes of blocks are overwritten and blocks cut: their time is not collected or right.
#[test]
fn damaged_and_foreign_files_are_skipped_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::new(5);
    let archive = Archive::open(&real_host(), folder.path(), DEFAULT_CAP_BYTES).unwrap();
    let mut model = Model::default();
    for start_s in BEGIN_S..BEGIN_S + 320 {
        let column = any_second(&mut random, start_s);
        model.add(&column);
        archive.append(column).unwrap();
    }
    drop(archive);
    std::fs::write(folder.path().join("notes.txt"), b"mine").unwrap();
    std::fs::write(folder.path().join("1h-1700006400.block.new"), b"half").unwrap();
    let block = folder.path().join(format!("1s-{BEGIN_S}.block"));
    let whole = std::fs::read(&block).unwrap();
    let expected = model.columns(BEGIN_S, BEGIN_S + 320, 1);
    let mut reasons = BTreeSet::new();
    for round in 0..600 {
        let mut bytes = whole.clone();
        match round % 4 {
            0 => bytes.truncate(random.index(whole.len())),
            1 => bytes[round % 200] ^= 1 << random.below(8),
            _ => {
                let at = random.index(whole.len());
                bytes[at] = bytes[at].wrapping_add(1 + random.byte() % 255);
            }
        }
        std::fs::write(&block, &bytes).unwrap();
        let archive = Archive::open(&real_host(), folder.path(), DEFAULT_CAP_BYTES).unwrap();
        let answer = answer(&archive, LATENCY, BEGIN_S, BEGIN_S + 320, 1);
        for (column, (state, cell)) in answer.columns.iter().zip(&answer.total).enumerate() {
            if state.collected == Collected::Whole {
                assert_eq!(*cell, expected[column], "round {round}, column {column}");
            }
        }
        let skipped = archive.skipped();
        let why = |name: &str| {
            let one = skipped.iter().find(|one| one.path.ends_with(name));
            one.map(|one| one.why)
        };
        assert_eq!(why("notes.txt"), Some(WhySkipped::Foreign));
        if let Some(why) = why(&format!("1s-{BEGIN_S}.block")) {
            reasons.insert(why.to_string());
        }
    }
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(!folder.path().join("1h-1700006400.block.new").exists());
    assert!(folder.path().join("notes.txt").exists());
}
