//! How much the archive takes, and the picture it keeps.

mod support;

use support::{
    BEGIN_S, answer, archive_on, bytes_in, directory, files_in_memory, latencies, second,
};
use tarn_archive::{Cell, DEFAULT_CAP_BYTES, SeriesId};
use tarn_host::Host;
use tarn_host::sim::Random;
use tarn_probe::HistogramSnapshot;

const BLOCK_S: u64 = 300;

/// What the blocks of seconds take of ten minutes, by the second.
fn bytes_a_second(host: &Host) -> u64 {
    let files = host.list_directory(directory()).unwrap().into_iter();
    let is_block = |path: &std::path::Path| path.to_str().unwrap().ends_with(".block");
    let blocks = files.filter(|file| is_block(&file.path));
    let bytes: u64 = blocks
        .map(|file| host.file_size_bytes(&file.path).unwrap())
        .sum();
    bytes / (2 * BLOCK_S)
}

/// Bar B12: a heat map of 20,000 operations a second takes at most 150 bytes a second.
#[test]
fn a_heat_map_of_a_busy_server_takes_150_bytes_a_second_at_most() {
    let host = files_in_memory();
    let archive = archive_on(&host, DEFAULT_CAP_BYTES);
    let mut random = Random::new(6);
    for start_s in BEGIN_S..BEGIN_S + 2 * BLOCK_S + 4 {
        let series = SeriesId::new("nfs.ops[cause]:latency", &["disk"]);
        let cell = latencies(&mut random, 20_000);
        archive
            .append(second(start_s, vec![(series, cell)]))
            .unwrap();
    }
    let bytes = bytes_a_second(&host);
    println!("a heat map takes {bytes} bytes a second");
    assert!((60..=150).contains(&bytes), "{bytes} bytes a second");
}

/// Bar B12: a scalar takes at most a byte a sample, if it goes as those of machines do: most stand
/// still or nearly, some are rates around a mean, some are bytes in pages.
#[test]
fn a_scalar_takes_a_byte_a_sample_at_most() {
    let host = files_in_memory();
    let archive = archive_on(&host, DEFAULT_CAP_BYTES);
    let mut random = Random::new(7);
    let mut pages = vec![1_000_000_u64; 200];
    for start_s in BEGIN_S..BEGIN_S + 2 * BLOCK_S + 4 {
        let cells = (0..200).map(|number: usize| {
            let value = match number % 10 {
                0..5 => 0,
                5 => random.below(4),
                6 => 80 + random.below(20),
                7 => 3000 + random.below(400),
                8 => 7,
                _ => {
                    pages[number] = pages[number] + random.below(200) - 100;
                    pages[number] * 4096
                }
            };
            let series = SeriesId::new("disk.bytes", &[&format!("sd{number}"), "read"]);
            (series, Cell::of_sample(value))
        });
        archive.append(second(start_s, cells.collect())).unwrap();
    }
    let bytes = bytes_a_second(&host);
    println!("200 scalars take {bytes} bytes a second");
    assert!(
        (20..=200).contains(&bytes),
        "{bytes} bytes a second for 200 samples"
    );
}

/// Bar B12: twelve heat maps at full load and 200 scalars take at most 180 MB a day: the maps 1,800
/// bytes a second, the scalars 200, as above. With its tail the directory has no more.
#[test]
fn the_tail_takes_little_beside_the_blocks() {
    let host = files_in_memory();
    let archive = archive_on(&host, DEFAULT_CAP_BYTES);
    let mut random = Random::new(8);
    for start_s in BEGIN_S..BEGIN_S + BLOCK_S {
        let series = SeriesId::new("nfs.ops[cause]:latency", &["disk"]);
        archive
            .append(second(
                start_s,
                vec![(series, latencies(&mut random, 5000))],
            ))
            .unwrap();
    }
    let bytes = bytes_in(&host, directory());
    assert!(bytes < BLOCK_S * 400, "{bytes} bytes");
    assert_eq!(archive.state().bytes, bytes);
}

const PICTURE: [&str; 5] = ["#...#", ".#.#.", "..#..", ".#.#.", "#...#"];
const LOWEST_BUCKET: usize = 200;

/// Bar B21: operations that draw a picture come out as that picture, from seconds and, where each
/// column of it is a minute, from minutes; from the files of a process that has ended.
#[test]
fn a_picture_comes_out_of_the_archive_as_it_was_drawn() {
    for column_s in [1, 60] {
        let host = files_in_memory();
        let archive = archive_on(&host, DEFAULT_CAP_BYTES);
        for offset in 0..4000 {
            let mut cell = Cell::default();
            let column = usize::try_from(offset / column_s % 5).unwrap();
            for (row, _) in
                (PICTURE.iter().enumerate()).filter(|(_, line)| line.as_bytes()[column] == b'#')
            {
                let bucket = LOWEST_BUCKET + PICTURE.len() - row;
                let (low, high) = HistogramSnapshot::range_of(bucket);
                cell.merge(&Cell {
                    count: 3,
                    sum: 3,
                    range: Some((low, high)),
                    buckets: vec![(u16::try_from(bucket).unwrap(), 3)],
                });
            }
            let series = SeriesId::new("nfs.ops[cause]:latency", &["log"]);
            archive
                .append(second(BEGIN_S + offset, vec![(series, cell)]))
                .unwrap();
        }
        drop(archive);
        let archive = archive_on(&host, DEFAULT_CAP_BYTES);
        let until_s = BEGIN_S + 5 * column_s;
        let map = answer(&archive, "nfs.ops:latency", BEGIN_S, until_s, column_s);
        let mut drawn = vec![String::new(); PICTURE.len()];
        for cell in &map.total {
            assert!(cell.buckets.iter().all(|(_, count)| *count == 3 * column_s));
            for (row, line) in drawn.iter_mut().enumerate() {
                let bucket = LOWEST_BUCKET + PICTURE.len() - row;
                let is_set = cell
                    .buckets
                    .iter()
                    .any(|(set, _)| usize::from(*set) == bucket);
                line.push(if is_set { '#' } else { '.' });
            }
        }
        assert_eq!(
            drawn, PICTURE,
            "columns of {column_s} s from the tier {:?}",
            map.tier
        );
        assert_eq!(
            map.total
                .iter()
                .map(|cell| cell.buckets.len())
                .sum::<usize>(),
            9
        );
    }
}
