//! `metrics`: Prometheus and InfluxDB of Debian's packages take what we give, and their own queries
//! give the same sums as ours.
//!
//! # Mechanism
//! A load of files on a mount and of blocks over NBD is done; then it is quiet. Two Prometheus
//! scrape the daemon meanwhile: one takes text, one native histograms. Into an InfluxDB go the
//! metrics, as the daemon pushes them and as `tarn export` prints them, and the columns of a
//! statement. All are asked for the operations, their bytes, their time and those below a bound, by
//! protocol; `tarn export` of a statement says what is right. The answer of ours must be the same
//! before and after, so that nothing came between.
//!
//! The names that the dashboard for Grafana asks for must all be there.

mod collectors;
mod plain_http;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use tarn_oracle::instance::Instance;
use tarn_oracle::tools::{Source, unpack_debian};
use tarn_workload::twister::Twister;

use self::collectors::{InfluxDb, Prometheus};
use super::nbd_client::{BLOCK_BYTES, NbdClient};
use crate::servers::free_port;
use crate::workspace::{Outcome, checkout, programs, remove_folder, scratch, target};

const PACKAGES: [&str; 2] = ["prometheus", "influxdb"];
const POOL: &str = "measured";
const FILES: u32 = 300;
const BLOCKS: u64 = 400;
/// What is waited for: a scrape of each Prometheus after the last operation.
const LIMIT: Duration = Duration::from_secs(60);
const START_LIMIT: Duration = Duration::from_secs(30);
/// A bound of buckets of ours and of classic ones, in nanoseconds and in seconds.
const BOUND_NS: u64 = 1 << 17;
const BOUND_S: &str = "0.000131072";

/// Protocols of the load.
const PROTOCOLS: [&str; 2] = ["fuse", "nbd"];

/// Serves, loads, and compares.
pub fn metrics(seed: u64, keep: bool) -> Outcome {
    let packages = unpack_debian(&target().join("collectors"), &PACKAGES, Source::Release)?;
    let collectors = packages.root().join("usr/bin");
    // The daemon's folder is made anew with it, so this one is beside it.
    let database = scratch("conformance-metrics-influx");
    let _ = fs::remove_dir_all(&database);
    let influx = InfluxDb::start(&collectors.join("influxd"), &database)?;
    let scene = Scene::make(collectors, influx.port)?;
    let _watchdog = scene.instance.watchdog("metrics", Duration::from_secs(300));
    let text = scene.prometheus("text", false)?;
    let native = scene.prometheus("native", true)?;
    scene.load(seed)?;
    scene.compare_prometheus(&text, &native)?;
    scene.compare_influx(&influx)?;
    scene.expect_dashboard_names()?;
    scene.expect_refusals()?;
    scene.instance.must("zpool", &["export", POOL])?;
    let folder = scene.folder.clone();
    drop((scene, influx));
    match keep {
        true => Ok(()),
        false => {
            fs::remove_dir_all(&database)?;
            remove_folder(&folder)
        }
    }
}

struct Scene {
    instance: Instance,
    folder: PathBuf,
    /// Where the programs of the packages are.
    collectors: PathBuf,
    /// Of the page's listener.
    port: u16,
}

/// What is compared, of one protocol.
#[derive(Debug, Clone, PartialEq)]
struct Sums {
    operations: f64,
    bytes: f64,
    seconds: f64,
    below: f64,
}

impl Scene {
    fn make(collectors: PathBuf, influx: u16) -> Outcome<Scene> {
        let folder = scratch("conformance-metrics");
        let (instance, port) = (Instance::new(&programs(), &folder)?, free_port()?);
        let address = format!("127.0.0.1:{port}");
        let nfs = free_port()?.to_string();
        let push = format!("http://127.0.0.1:{influx}/write?db=tarn");
        let words = [
            ["--web", &address],
            ["--nfs-port", &nfs],
            ["--influx-push", &push],
            ["--influx-interval", "1"],
            ["--influx-tags", "host=pushed"],
        ];
        instance.start_daemon(&words.concat(), START_LIMIT)?;
        let image = folder.join("image");
        File::create(&image)?.set_len(2 << 30)?;
        let mount = folder.join("mount").display().to_string();
        let image = image.display().to_string();
        instance.must("zpool", &["create", "-m", &mount, POOL, &image])?;
        instance.must("zfs", &["create", "-V", "64m", &format!("{POOL}/block")])?;
        Ok(Scene {
            instance,
            folder,
            collectors,
            port,
        })
    }

    fn token(&self) -> Outcome<String> {
        let spoken = self.instance.must("tarn", &["web", "token", "-v"])?;
        Ok(spoken.stdout.trim().to_owned())
    }

    fn prometheus(&self, name: &str, is_native: bool) -> Outcome<Prometheus> {
        let (program, folder) = (self.collectors.join("prometheus"), self.folder.join(name));
        Prometheus::start(&program, &folder, self.port, &self.token()?, is_native)
    }

    /// Files that are written, read and removed, and blocks of a volume.
    fn load(&self, seed: u64) -> Outcome {
        let mut chance = Twister::new(seed ^ 0x6d65_7472);
        let folder = self.folder.join("mount");
        for number in 0..FILES {
            let path = folder.join(format!("{number}"));
            let length = usize::try_from(chance.below(200_000))?;
            fs::write(&path, vec![7; length])?;
            if number % 3 == 0 {
                File::open(&path)?.sync_all()?;
            }
            if fs::read(&path)?.len() != length {
                return Err("a file is cut".into());
            }
            if number % 2 == 0 {
                fs::remove_file(&path)?;
            }
        }
        let socket = self.instance.state().join("nbd.sock");
        let mut client = NbdClient::connect(&socket, &format!("{POOL}/block"))?;
        let bytes = vec![5; usize::try_from(BLOCK_BYTES)?];
        for _ in 0..BLOCKS {
            let block = u64::from(chance.below(1000));
            client.write_durably(block, &bytes)?;
            client.read(block)?;
        }
        self.instance.must("zpool", &["sync", POOL])?;
        Ok(())
    }

    /// A sum of ours, since the collector began.
    fn ours(&self, statement: &str) -> Outcome<Value> {
        let words = [
            "export", "-f", "json", "--last", "1h", "-i", "60m", statement,
        ];
        let spoken = self.instance.must("tarn", &words)?;
        Ok(serde_json::from_str(&spoken.stdout)?)
    }

    fn our_sums(&self, protocol: &str) -> Outcome<Sums> {
        let of = |statistic: &str| self.ours(&format!("all.{statistic}[protocol={protocol}]"));
        let heat = self.ours(&format!("all.ops[protocol={protocol}]:latency"))?;
        let numbers = |value: &Value| -> Vec<u64> {
            value
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_u64)
                .collect()
        };
        let sum = |answer: &Value| numbers(&answer["total"]["sums"]).iter().sum::<u64>();
        let buckets: Vec<Vec<u64>> = (heat["buckets"].as_array().into_iter().flatten())
            .map(numbers)
            .collect();
        let cells = numbers(&heat["total"]["cells"]);
        let below = cells.chunks_exact(3).filter(|cell| {
            let bucket = usize::try_from(cell[1])
                .ok()
                .and_then(|place| buckets.get(place));
            bucket.is_some_and(|bucket| bucket[1] <= BOUND_NS)
        });
        Ok(Sums {
            operations: sum(&heat) as f64,
            bytes: sum(&of("bytes")?) as f64,
            seconds: sum(&of("wait")?) as f64 / 1e9,
            below: below.map(|cell| cell[2]).sum::<u64>() as f64,
        })
    }

    fn compare_prometheus(&self, text: &Prometheus, native: &Prometheus) -> Outcome {
        let name = "tarn_operation_latency_seconds";
        for protocol in PROTOCOLS {
            let of = |metric: &str, more: &str| {
                format!("sum({metric}{{protocol=\"{protocol}\"{more}}})")
            };
            let below = format!(",le=\"{BOUND_S}\"");
            let ask = |prometheus: &Prometheus, expressions: [String; 4]| -> Outcome<Sums> {
                let [operations, bytes, seconds, below] = expressions
                    .map(|expression| prometheus.sum(&expression).map(Option::unwrap_or_default));
                Ok(Sums {
                    operations: operations?,
                    bytes: bytes?,
                    seconds: seconds?,
                    below: below?,
                })
            };
            let bytes = of("tarn_operation_bytes_total", "");
            self.await_equal(protocol, "Prometheus, text", || {
                ask(
                    text,
                    [
                        of(&format!("{name}_count"), ""),
                        bytes.clone(),
                        of(&format!("{name}_sum"), ""),
                        of(&format!("{name}_bucket"), &below),
                    ],
                )
            })?;
            let mut inexact = 0.0;
            self.await_equal(protocol, "Prometheus, native", || {
                let whole = of(name, "");
                let mut sums = ask(
                    native,
                    [
                        format!("histogram_count({whole})"),
                        bytes.clone(),
                        format!("histogram_sum({whole})"),
                        format!(
                            "histogram_count({whole}) * histogram_fraction(0, {BOUND_S}, {whole})"
                        ),
                    ],
                )?;
                // Native buckets have other bounds: this one is near.
                inexact = sums.below;
                sums.below = self.our_sums(protocol)?.below;
                Ok(sums)
            })?;
            let exact = self.our_sums(protocol)?;
            if (inexact - exact.below).abs() > exact.operations * 0.1 {
                let below = exact.below;
                return Err(format!(
                    "{inexact} below the bound by native buckets, and not {below}"
                )
                .into());
            }
        }
        let errors = [text.scrape_error()?, native.scrape_error()?];
        match errors.iter().find(|error| !error.is_empty()) {
            Some(error) => Err(format!("a scrape failed: {error}").into()),
            None => Ok(()),
        }
    }

    /// Waits until theirs is ours, while ours does not change.
    fn await_equal(
        &self,
        protocol: &str,
        whose: &str,
        mut theirs: impl FnMut() -> Outcome<Sums>,
    ) -> Outcome {
        let began = Instant::now();
        loop {
            let before = self.our_sums(protocol)?;
            let told = theirs()?;
            let is_near = |one: f64, other: f64| (one - other).abs() <= 1e-9 * other.abs();
            let is_same = told.operations == before.operations
                && told.bytes == before.bytes
                && told.below == before.below
                && is_near(told.seconds, before.seconds)
                && before.operations > 0.0;
            if is_same && self.our_sums(protocol)? == before {
                println!(
                    "  {protocol:<5} {whose:<20} {} operations, {} bytes, {:.6} s, {} below {BOUND_S} s: as ours",
                    told.operations, told.bytes, told.seconds, told.below
                );
                return Ok(());
            }
            if began.elapsed() > LIMIT {
                return Err(format!("{protocol}, {whose}: {told:?}, and ours {before:?}").into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn compare_influx(&self, influx: &InfluxDb) -> Outcome {
        let export = |words: &[&str]| -> Outcome<String> {
            let words = [&["export", "-f", "influx", "--signed-int"], words].concat();
            Ok(self.instance.must("tarn", &words)?.stdout)
        };
        influx.write(&export(&["--tags", "host=here"])?)?;
        for statistic in ["ops", "bytes", "wait"] {
            let statement = format!("all.{statistic}[protocol]");
            influx.write(&export(&["--last", "10m", "-i", "1s", &statement])?)?;
        }
        let latency = "\"tarn_operation_latency_seconds\"";
        for protocol in PROTOCOLS {
            let number =
                |query: String| -> Outcome<f64> { Ok(influx.number(&query)?.unwrap_or_default()) };
            let is_of = format!("\"protocol\" = '{protocol}'");
            let last = |host: &str, field: &str, measurement: &str, more: &str| {
                number(format!(
                    "SELECT sum(c) FROM (SELECT last(\"{field}\") AS c FROM {measurement} \
                     WHERE {is_of} AND \"host\" = '{host}'{more} GROUP BY *)"
                ))
            };
            let below = (10..=17).map(|power| {
                let bound = f64::from(1 << power) / 1e9;
                format!("\"le\" = '{bound:?}'")
            });
            let below = format!(" AND ({})", below.collect::<Vec<_>>().join(" OR "));
            // What tarn export printed once, and what the daemon pushes each second.
            for host in ["here", "pushed"] {
                self.await_equal(protocol, &format!("InfluxDB, {host}"), || {
                    Ok(Sums {
                        operations: last(host, "count", latency, "")?,
                        bytes: last(host, "value", "\"tarn_operation_bytes\"", "")?,
                        seconds: last(host, "sum", latency, "")?,
                        below: last(host, "bucket", latency, &below)?,
                    })
                })?;
            }
            let sum = |field: &str, statistic: &str| {
                number(format!(
                    "SELECT sum(\"{field}\") FROM \"all.{statistic}\" WHERE {is_of}"
                ))
            };
            self.await_equal(protocol, "InfluxDB, columns", || {
                Ok(Sums {
                    operations: sum("operations", "ops")?,
                    bytes: sum("bytes", "bytes")?,
                    seconds: sum("wait_ns", "wait")? / 1e9,
                    below: self.our_sums(protocol)?.below,
                })
            })?;
        }
        // The measurements of zpool_influxdb are there, and sum up.
        let root = "\"vdev\" = 'root' AND \"host\" = 'here'";
        let written = influx.number(&format!(
            "SELECT last(write_bytes) FROM zpool_stats WHERE {root}"
        ))?;
        let requests = influx.number(&format!(
            "SELECT last(write_ops) FROM zpool_stats WHERE {root}"
        ))?;
        let buckets = influx.number(&format!(
            "SELECT sum(c) FROM (SELECT last(disk_write) AS c FROM zpool_latency WHERE {root} GROUP BY le)"
        ))?;
        println!(
            "  zpool_stats {written:?} bytes, {requests:?} writes; zpool_latency {buckets:?} writes"
        );
        match (requests, buckets) {
            (Some(requests), Some(buckets)) if requests == buckets && requests > 0.0 => Ok(()),
            _ => Err("zpool_latency has not the writes of zpool_stats".into()),
        }
    }

    /// Each name that the dashboard asks for is one that is exported.
    fn expect_dashboard_names(&self) -> Outcome {
        let path = checkout().join("docs/grafana/tarn.json");
        let dashboard = fs::read_to_string(&path)?;
        let exported = self.instance.must("tarn", &["export"])?.stdout;
        let exported: BTreeSet<&str> = (exported.lines())
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split(['{', ' ']).next())
            .collect();
        let missing: Vec<&str> = (names_in(&dashboard).into_iter())
            .filter(|name| !exported.contains(name))
            .collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(format!("{} asks for {missing:?}", path.display()).into()),
        }
    }

    /// Without a token nothing is told.
    fn expect_refusals(&self) -> Outcome {
        let answer = plain_http::answer_of(self.port, "GET", "/metrics", &[], "")?;
        let wrong = ["authorization: Bearer 0".to_owned()];
        let with_wrong = plain_http::answer_of(self.port, "GET", "/metrics", &wrong, "")?;
        match (answer.0, with_wrong.0) {
            (401, 401) => Ok(()),
            other => Err(format!("without a token metrics are answered by {other:?}").into()),
        }
    }
}

/// Names of metrics in a text.
fn names_in(text: &str) -> BTreeSet<&str> {
    let is_end = |character: char| !(character.is_ascii_alphanumeric() || character == '_');
    text.split(is_end)
        .filter(|word| word.starts_with("tarn_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dashboard_is_one_of_grafana() {
        let path = checkout().join("docs/grafana/tarn.json");
        let text = fs::read_to_string(&path).unwrap();
        let dashboard: Value = serde_json::from_str(&text).unwrap();
        assert!(
            dashboard["schemaVersion"]
                .as_u64()
                .is_some_and(|version| version >= 36)
        );
        assert!(dashboard["title"].is_string() && dashboard["uid"].is_string());
        let panels = dashboard["panels"].as_array().unwrap();
        let mut ids = BTreeSet::new();
        for panel in panels {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
            assert!(panel["title"].is_string(), "{panel}");
            let place = ["h", "w", "x", "y"].map(|side| panel["gridPos"][side].as_u64());
            let [Some(_), Some(width), Some(left), Some(_)] = place else {
                panic!("{panel}");
            };
            assert!(left + width <= 24, "{panel}");
            if panel["type"] == "row" {
                continue;
            }
            for query in panel["targets"].as_array().unwrap() {
                let expression = query["expr"].as_str().unwrap();
                assert!(!names_in(expression).is_empty(), "{expression}");
                let count = |sign| expression.matches(sign).count();
                assert_eq!(count('('), count(')'), "{expression}");
                assert_eq!(count('{'), count('}'), "{expression}");
            }
        }
        assert!(ids.len() > 10);
    }

    #[test]
    fn names_of_metrics_are_found() {
        let names = names_in("sum by (le)(rate(tarn_a_bucket{b=\"tarn\"}[1m])) / tarn_c_total");
        assert_eq!(names, BTreeSet::from(["tarn_a_bucket", "tarn_c_total"]));
    }
}
