//! The report of `zarcsummary`: sections of titles, shares and values in 72 columns, as OpenZFS's
//! `arc_summary` lays them out. A line whose statistic is not counted is left out.

use super::arc_fields::{self, Between, Counted, Moment, Number};

/// How wide a line is.
const WIDTH: usize = 72;
/// Before the label of a line below a title.
const INDENT: &str = "        ";
/// How wide a value is, at least.
const VALUE_WIDTH: usize = 9;

/// The sections, in their order.
pub const SECTIONS: &[&str] = &["arc", "archits", "dmu", "l2arc", "zil"];

/// What a number is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    /// Divided by thousands.
    Count,
    /// With all digits.
    Plain,
}

use Unit::{Bytes, Count, Plain};

/// What a line shows of.
pub struct Report<'a> {
    moment: &'a Moment,
    logs: &'a Counted,
}

type Value = Option<i128>;

/// A line, unless its statistic is not counted.
type Line = Option<String>;

impl<'a> Report<'a> {
    pub fn new(moment: &'a Moment, logs: &'a Counted) -> Report<'a> {
        Report { moment, logs }
    }

    /// The text of a section; none if there is no section of that name.
    pub fn section(&self, name: &str) -> Option<String> {
        let blocks = match name {
            "arc" => self.sizes(),
            "archits" => self.accesses(),
            "dmu" => vec![self.prefetchers()],
            "l2arc" => self.second_level(),
            "zil" => vec![self.intent_logs()],
            _ => return None,
        };
        Some(blocks.concat())
    }

    fn cache(&self, name: &str) -> Value {
        self.moment.cache.get(name).copied()
    }

    /// The sum of statistics of the cache.
    fn sum(&self, names: &[&str]) -> Value {
        names.iter().map(|name| self.cache(name)).sum()
    }

    fn sizes(&self) -> Vec<String> {
        let of = |name| self.cache(name);
        let (all, size) = (of("memory_all_bytes"), of("size"));
        let share_of_target = (size, of("c_max"));
        let status = block(
            Some("ARC status:".to_owned()),
            [
                item("Total memory size:", all, Bytes),
                part("Min target size:", (of("c_min"), all), of("c_min"), Bytes),
                part("Max target size:", (of("c_max"), all), of("c_max"), Bytes),
                part("Target size (adaptive):", share_of_target, of("c"), Bytes),
                part("Current size:", share_of_target, size, Bytes),
                item("Free memory size:", of("memory_free_bytes"), Bytes),
                item(
                    "Available memory size:",
                    of("memory_available_bytes"),
                    Bytes,
                ),
            ],
        );
        let of_size = |label, name| part(label, (of(name), size), of(name), Bytes);
        let structure = block(
            title("ARC structural breakdown (current size):", size, Bytes),
            [
                of_size("Compressed size:", "compressed_size"),
                of_size("Overhead size:", "overhead_size"),
                of_size("Bonus size:", "bonus_size"),
                of_size("Dnode size:", "dnode_size"),
                of_size("Dbuf size:", "dbuf_size"),
                of_size("Header size:", "hdr_size"),
                of_size("L2 header size:", "l2_hdr_size"),
                of_size("ABD chunk waste size:", "abd_chunk_waste_size"),
            ],
        );
        let count = |label, name| item(label, of(name), Count);
        let hash = block(
            Some("ARC hash breakdown:".to_owned()),
            [
                count("Elements:", "hash_elements"),
                count("Collisions:", "hash_collisions"),
                count("Chain max:", "hash_chain_max"),
                count("Chains:", "hash_chains"),
            ],
        );
        vec![
            status,
            structure,
            self.types(),
            self.states(),
            hash,
            self.evictions(),
        ]
    }

    /// Bytes of all blocks in the lists of the cache.
    fn all_states(&self) -> Value {
        let states = ["anon", "mfu", "mru", "uncached"];
        let kinds = |state| [format!("{state}_data"), format!("{state}_metadata")];
        let names = states.into_iter().flat_map(kinds);
        names.map(|name| self.cache(&name)).sum()
    }

    fn types(&self) -> String {
        let all = self.all_states();
        let of = |label, name| part(label, (self.cache(name), all), self.cache(name), Bytes);
        block(
            title("ARC types breakdown (compressed + overhead):", all, Bytes),
            [
                of("Data size:", "data_size"),
                of("Metadata size:", "metadata_size"),
            ],
        )
    }

    fn states(&self) -> String {
        let all = self.all_states();
        let of =
            |label: &str, name: &str| part(label, (self.cache(name), all), self.cache(name), Bytes);
        let between = Between {
            before: self.moment,
            now: self.moment,
            interval_s: 1,
        };
        let target = |label: &str, field: &str, share: Option<f64>| {
            let field = arc_fields::find(field)?;
            let bytes = between.number(field).ok()?.real();
            let share = percent(share, Some(1.0))?;
            Some(right(label, Some(share), &bytes_text(bytes)))
        };
        let of_metadata = self.target("meta");
        let of_data = of_metadata.map(|share| 1.0 - share);
        let of_recent = |name| self.target(name);
        let ghost = |label: &str, name: &str| item(label, self.cache(name), Bytes);
        let mut lines = vec![
            of("Anonymous data size:", "anon_data"),
            of("Anonymous metadata size:", "anon_metadata"),
        ];
        for (list, field) in [("MFU", "mfu"), ("MRU", "mru")] {
            for (kind, of_target, whole, recent) in [
                ("data", "dt", of_data, of_recent("pd")),
                ("metadata", "mt", of_metadata, of_recent("pm")),
            ] {
                let of_list = match field {
                    "mru" => recent,
                    _ => recent.map(|recent| 1.0 - recent),
                };
                let share = whole.zip(of_list).map(|(whole, part)| whole * part);
                let wanted = format!("{field}{of_target}");
                lines.extend([
                    target(&format!("{list} {kind} target:"), &wanted, share),
                    of(&format!("{list} {kind} size:"), &format!("{field}_{kind}")),
                    of(
                        &format!("{list} evictable {kind} size:"),
                        &format!("{field}_evictable_{kind}"),
                    ),
                    ghost(
                        &format!("{list} ghost {kind} size:"),
                        &format!("{field}_ghost_{kind}"),
                    ),
                ]);
            }
        }
        lines.extend([
            of("Uncached data size:", "uncached_data"),
            of("Uncached metadata size:", "uncached_metadata"),
        ]);
        let heading = title("ARC states breakdown (compressed + overhead):", all, Bytes);
        block(heading, lines)
    }

    /// What a target is of all, which the cache has in 2^32ths.
    fn target(&self, name: &str) -> Option<f64> {
        Some(self.cache(name)? as f64 / 4_294_967_296.0)
    }

    fn evictions(&self) -> String {
        let of = |label, name, unit| item(label, self.cache(name), unit);
        let eligible = |label, name| {
            let (part_of, whole) = (self.cache(name), self.cache("evict_l2_eligible"));
            part(label, (part_of, whole), part_of, Bytes)
        };
        block(
            Some("ARC misc:".to_owned()),
            [
                of("Memory throttles:", "memory_throttle_count", Plain),
                of("Memory direct reclaims:", "memory_direct_count", Plain),
                of("Memory indirect reclaims:", "memory_indirect_count", Plain),
                of("Deleted:", "deleted", Count),
                of("Mutex misses:", "mutex_miss", Count),
                of("Eviction skips:", "evict_skip", Count),
                of("Eviction skips due to L2 writes:", "evict_l2_skip", Count),
                of("L2 cached evictions:", "evict_l2_cached", Bytes),
                of("L2 eligible evictions:", "evict_l2_eligible", Bytes),
                eligible("L2 eligible MFU evictions:", "evict_l2_eligible_mfu"),
                eligible("L2 eligible MRU evictions:", "evict_l2_eligible_mru"),
                of("L2 ineligible evictions:", "evict_l2_ineligible", Bytes),
            ],
        )
    }

    fn accesses(&self) -> Vec<String> {
        let all = self.sum(&["hits", "iohits", "misses"]);
        let share = |label: &str, name: &str, whole: Value| {
            let value = self.cache(name);
            part(label, (value, whole), value, Count)
        };
        let mut blocks = vec![block(
            title("ARC total accesses:", all, Count),
            [
                share("Total hits:", "hits", all),
                share("Total I/O hits:", "iohits", all),
                share("Total misses:", "misses", all),
            ],
        )];
        for (how, asked) in [("demand", "Demand"), ("prefetch", "Prefetch")] {
            for kind in ["data", "metadata"] {
                let name = |what| format!("{how}_{kind}_{what}");
                let names = [name("hits"), name("iohits"), name("misses")];
                let of_kind = names.iter().map(|name| self.cache(name)).sum::<Value>();
                let heading = format!("ARC {how} {kind} accesses:");
                let line = |what: &str, name: &str| {
                    share(&format!("{asked} {kind} {what}:"), name, of_kind)
                };
                blocks.push(block(
                    shared_title(&heading, (of_kind, all), of_kind),
                    [
                        line("hits", &names[0]),
                        line("I/O hits", &names[1]),
                        line("misses", &names[2]),
                    ],
                ));
            }
        }
        blocks.push(self.foreseen("predictive"));
        blocks.push(self.foreseen("prescient"));
        blocks.push(block(
            Some("ARC states hits of all accesses:".to_owned()),
            [
                share("Most frequently used (MFU):", "mfu_hits", all),
                share("Most recently used (MRU):", "mru_hits", all),
                share("Most frequently used (MFU) ghost:", "mfu_ghost_hits", all),
                share("Most recently used (MRU) ghost:", "mru_ghost_hits", all),
                share("Uncached:", "uncached_hits", all),
            ],
        ));
        blocks
    }

    /// Blocks that were read ahead, by how that was foreseen.
    fn foreseen(&self, how: &str) -> String {
        let whole = self.cache(&format!("{how}_prefetch"));
        let hits = self.cache(&format!("demand_hit_{how}_prefetch"));
        let joined = self.cache(&format!("demand_iohit_{how}_prefetch"));
        let all = self.sum(&["predictive_prefetch", "prescient_prefetch"]);
        let line = |label: &str, value: Value| {
            part(
                &format!("{label} after {how}:"),
                (value, whole),
                value,
                Count,
            )
        };
        let never = || Some(whole? - hits? - joined?);
        block(
            shared_title(&format!("ARC {how} prefetches:"), (whole, all), whole),
            [
                line("Demand hits", hits),
                line("Demand I/O hits", joined),
                line("Never demanded", never()),
            ],
        )
    }

    fn prefetchers(&self) -> String {
        let of = |name: &str| self.moment.prefetch.get(name).copied();
        let both = || Some(of("future")? + of("stride")?);
        let calls = || Some(of("hits")? + both()? + of("past")? + of("misses")?);
        let (ahead, all) = (both(), calls());
        let line =
            |label: &str, value: Value, whole: Value| part(label, (value, whole), value, Count);
        block(
            title("DMU predictive prefetcher calls:", all, Count),
            [
                line("Stream hits:", of("hits"), all),
                line("Hits ahead of stream:", ahead, all),
                line("Hits behind stream:", of("past"), all),
                line("Stream misses:", of("misses"), all),
                line("Streams limit reached:", of("max_streams"), of("misses")),
                item("Stream strides:", of("stride"), Count),
                item("Prefetches issued", of("io_issued"), Count),
            ],
        )
    }

    fn second_level(&self) -> Vec<String> {
        let of = |name: &str| self.cache(name);
        if of("l2_size").is_none_or(|size| size == 0) {
            return vec!["L2ARC not detected, skipping section\n\n".to_owned()];
        }
        let errors = ["l2_cksum_bad", "l2_io_error", "l2_writes_error"];
        let has_errors = errors
            .iter()
            .any(|name| of(name).is_some_and(|count| count > 0));
        let health = match has_errors {
            true => "DEGRADED",
            false => "HEALTHY",
        };
        let count = |label, name| item(label, of(name), Count);
        let status = block(
            Some(spread("L2ARC status:", health)),
            [
                count("Low memory aborts:", "l2_abort_lowmem"),
                count("Free on write:", "l2_free_on_write"),
                count("R/W clashes:", "l2_rw_clash"),
                count("Bad checksums:", "l2_cksum_bad"),
                count("Read errors:", "l2_io_error"),
                count("Write errors:", "l2_writes_error"),
            ],
        );
        let share = |label, name, whole| part(label, (of(name), of(whole)), of(name), Bytes);
        let sizes = block(
            title("L2ARC size (adaptive):", of("l2_size"), Bytes),
            [
                share("Compressed:", "l2_asize", "l2_size"),
                share("Header size:", "l2_hdr_size", "l2_size"),
                share("MFU allocated size:", "l2_mfu_asize", "l2_asize"),
                share("MRU allocated size:", "l2_mru_asize", "l2_asize"),
                share("Prefetch allocated size:", "l2_prefetch_asize", "l2_asize"),
                share(
                    "Data (buffer content) allocated size:",
                    "l2_bufc_data_asize",
                    "l2_asize",
                ),
                share(
                    "Metadata (buffer content) allocated size:",
                    "l2_bufc_metadata_asize",
                    "l2_asize",
                ),
            ],
        );
        let all = self.sum(&["l2_hits", "l2_misses"]);
        let ratio = |label, name| part(label, (of(name), all), of(name), Count);
        let breakdown = block(
            title("L2ARC breakdown:", all, Count),
            [
                ratio("Hit ratio:", "l2_hits"),
                ratio("Miss ratio:", "l2_misses"),
            ],
        );
        let moved = |label, bytes, count| both(label, of(bytes), of(count));
        let moved = block(
            Some("L2ARC I/O:".to_owned()),
            [
                moved("Reads:", "l2_read_bytes", "l2_hits"),
                moved("Writes:", "l2_write_bytes", "l2_writes_sent"),
            ],
        );
        let evicted = block(
            Some("L2ARC evicts:".to_owned()),
            [
                count("L1 cached:", "l2_evict_l1cached"),
                count("While reading:", "l2_evict_reading"),
            ],
        );
        vec![status, sizes, breakdown, moved, evicted]
    }

    fn intent_logs(&self) -> String {
        let of = |name: &str| self.logs.get(name).copied();
        let written = |label, to: &str| {
            let name = |what| format!("zil_itx_metaslab_{to}_{what}");
            both(label, of(&name("bytes")), of(&name("count")))
        };
        block(
            title("ZIL committed transactions:", of("zil_itx_count"), Count),
            [
                item("Commit requests:", of("zil_commit_count"), Count),
                item(
                    "Flushes to stable storage:",
                    of("zil_commit_writer_count"),
                    Count,
                ),
                written("Transactions to SLOG storage pool:", "slog"),
                written("Transactions to non-SLOG storage pool:", "normal"),
            ],
        )
    }
}

/// Statistics with all their digits, as `-r` prints them.
pub fn raw(title: &str, counted: &Counted) -> String {
    let each = counted.iter();
    let lines = each.map(|(name, count)| spread(&format!("{INDENT}{name}"), &count.to_string()));
    let lines: String = lines.map(|line| line + "\n").collect();
    format!("{title}:\n{lines}\n")
}

/// A title, and what is below it; nothing if none of that is counted.
fn block(title: Option<String>, lines: impl IntoIterator<Item = Line>) -> String {
    let lines: String = (lines.into_iter().flatten())
        .map(|line| line + "\n")
        .collect();
    match title {
        Some(title) if !lines.is_empty() => format!("{title}\n{lines}\n"),
        _ => String::new(),
    }
}

fn title(label: &str, value: Value, unit: Unit) -> Line {
    Some(spread(label, &text(value?, unit)))
}

fn shared_title(label: &str, (value, whole): (Value, Value), shown: Value) -> Line {
    let share = percent(real(value), real(whole))?;
    Some(spread(label, &beside(&share, &text(shown?, Count))))
}

fn item(label: &str, value: Value, unit: Unit) -> Line {
    Some(right(label, None, &text(value?, unit)))
}

fn part(label: &str, (value, whole): (Value, Value), shown: Value, unit: Unit) -> Line {
    let share = percent(real(value), real(whole))?;
    Some(right(label, Some(share), &text(shown?, unit)))
}

/// Bytes and how often.
fn both(label: &str, bytes: Value, count: Value) -> Line {
    Some(right(
        label,
        Some(text(bytes?, Bytes)),
        &text(count?, Count),
    ))
}

fn right(label: &str, share: Option<String>, value: &str) -> String {
    let label = format!("{INDENT}{label}");
    match share {
        Some(share) => spread(&label, &beside(&share, value)),
        None => spread(&label, value),
    }
}

fn beside(share: &str, value: &str) -> String {
    format!("{share}  {value:>VALUE_WIDTH$}")
}

fn spread(left: &str, right: &str) -> String {
    let room = WIDTH.saturating_sub(left.len());
    format!("{left}{right:>room$}")
}

fn real(value: Value) -> Option<f64> {
    value.map(|value| value as f64)
}

fn percent(value: Option<f64>, whole: Option<f64>) -> Line {
    let (value, whole) = (value?, whole?);
    if whole == 0.0 {
        return Some("n/a".to_owned());
    }
    let share = format!("{:.1}", 100.0 * value / whole);
    Some(match value > 0.0 && share == "0.0" {
        true => "< 0.1 %".to_owned(),
        false => format!("{share} %"),
    })
}

fn text(value: i128, unit: Unit) -> String {
    match unit {
        Bytes => bytes_text(value as f64),
        Count if value >= 1000 => {
            let (left, times) = divided(value as f64, 1000.0);
            format!("{left:.1}{}", ["", "k", "M", "G", "T", "P", "E"][times])
        }
        Count | Plain => value.to_string(),
    }
}

fn bytes_text(bytes: f64) -> String {
    let (left, times) = divided(bytes, 1024.0);
    match times {
        0 => format!("{} Bytes", Number::Whole(bytes as i128).exact()),
        _ => format!(
            "{left:.1} {}",
            ["", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][times]
        ),
    }
}

fn divided(number: f64, step: f64) -> (f64, usize) {
    let (mut left, mut times) = (number, 0);
    while left >= step && times < 6 {
        left /= step;
        times += 1;
    }
    (left, times)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Statistics made up of prime numbers, and the report that OpenZFS 2.3.2's `arc_summary` made
    /// of them.
    const GOLDEN: &str = include_str!("golden_arc_summary.txt");

    fn part_of(title: &str) -> &'static str {
        let text = GOLDEN.split_once(&format!("[{title}]\n"));
        let text = text.expect("the file has the part").1;
        text.split_once("[end]\n").expect("each part has an end").0
    }

    fn counted(title: &str) -> Counted {
        let lines = part_of(title).lines();
        let pair = |line: &str| {
            let (name, number) = line.split_once(' ').unwrap();
            (name.to_owned(), number.parse().unwrap())
        };
        lines.map(pair).collect()
    }

    #[test]
    fn the_report_is_that_of_arc_summary() {
        for numbers in ["primes", "idle"] {
            let moment = Moment {
                cache: counted(&format!("{numbers} arcstats")),
                prefetch: counted(&format!("{numbers} zfetchstats")),
            };
            let logs = counted(&format!("{numbers} log counts"));
            let report = Report::new(&moment, &logs);
            for section in SECTIONS {
                let expected = part_of(&format!("{numbers} {section}"));
                let made = report.section(section).unwrap();
                assert_eq!(made.trim_end(), expected.trim_end(), "{numbers} {section}");
            }
        }
    }

    #[test]
    fn what_is_not_counted_is_left_out() {
        let cache = [("size", 5), ("c", 7), ("hash_elements", 3)];
        let cache = cache.map(|(name, count)| (name.to_owned(), count));
        let moment = Moment {
            cache: cache.into(),
            ..Moment::default()
        };
        let logs = Counted::new();
        let report = Report::new(&moment, &logs);
        let sizes = report.section("arc").unwrap();
        let lines: Vec<&str> = sizes.lines().map(str::trim).collect();
        assert_eq!(lines[0], "ARC hash breakdown:");
        assert!(lines[1].starts_with("Elements:") && lines[1].ends_with('3'));
        assert_eq!(report.section("zil").unwrap(), "");
        assert_eq!(report.section("vdev"), None);
        assert!(
            report
                .section("l2arc")
                .unwrap()
                .starts_with("L2ARC not detected")
        );
        let text = raw("ARCSTATS", &moment.cache);
        assert!(text.starts_with("ARCSTATS:\n        c  ") && text.ends_with(" 5\n\n"));
    }
}
