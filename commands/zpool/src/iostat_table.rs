//! The tables of `zpool iostat`.
//!
//! A line has the rates of one vdev: its counters now, less those of the sample before, by the time
//! between them. The first sample has none before it, so its rates are those since the pool was
//! opened. A histogram is a table of its own for each vdev.

use crate::vdevs::Names;
use std::fmt::Write;
use tarn_administration::messages::pool::VdevRole;
use tarn_administration::messages::statistics::VdevIo;
use tarn_terminal::number::{nice_count, nice_time};

/// Classes of vdevs below a pool, beside those for data, in the order of printing, with titles.
const CLASSES: [(VdevRole, &str); 4] = [
    (VdevRole::Dedup, "dedup"),
    (VdevRole::Special, "special"),
    (VdevRole::Log, "logs"),
    (VdevRole::Cache, "cache"),
];

/// Buckets of histograms of waits, and of sizes.
const WAIT_BUCKETS: usize = 37;
const SIZE_BUCKETS: usize = 25;

/// The first bucket of sizes that is shown: no request is smaller than a sector.
const SIZE_FIRST: usize = 9;

/// What is shown of a vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Room, operations and bytes.
    Rates,
    /// `-l`: how long requests take.
    Waits,
    /// `-q`: how many requests there are.
    Queues,
    /// `-w`: how long requests take, as a histogram.
    WaitHistogram,
    /// `-r`: how large they are.
    SizeHistogram,
}

/// A title over several columns.
type Title = (&'static str, usize);

impl Part {
    /// True for those that have a table for each vdev.
    pub fn is_histogram(self) -> bool {
        matches!(self, Part::WaitHistogram | Part::SizeHistogram)
    }

    fn titles(self) -> &'static [Title] {
        match self {
            Part::Rates => &[("capacity", 2), ("operations", 2), ("bandwidth", 2)],
            Part::Waits => &[
                ("total_wait", 2),
                ("disk_wait", 2),
                ("syncq_wait", 2),
                ("asyncq_wait", 2),
                ("scrub", 1),
                ("trim", 1),
                ("rebuild", 1),
            ],
            Part::Queues => &[
                ("syncq_read", 2),
                ("syncq_write", 2),
                ("asyncq_read", 2),
                ("asyncq_write", 2),
                ("scrubq_read", 2),
                ("trimq_write", 2),
                ("rebuildq_write", 2),
            ],
            Part::WaitHistogram => &[
                ("total_wait", 2),
                ("disk_wait", 2),
                ("syncq_wait", 2),
                ("asyncq_wait", 2),
            ],
            Part::SizeHistogram => &[
                ("sync_read", 2),
                ("sync_write", 2),
                ("async_read", 2),
                ("async_write", 2),
                ("scrub", 2),
                ("trim", 2),
                ("rebuild", 2),
            ],
        }
    }

    fn columns(self) -> &'static [&'static str] {
        match self {
            Part::Rates => &["alloc", "free", "read", "write", "read", "write"],
            Part::Waits => &[
                "read", "write", "read", "write", "read", "write", "read", "write", "wait", "wait",
                "wait",
            ],
            Part::Queues => &[
                "pend", "activ", "pend", "activ", "pend", "activ", "pend", "activ", "pend",
                "activ", "pend", "activ", "pend", "activ",
            ],
            Part::WaitHistogram => &[
                "read", "write", "read", "write", "read", "write", "read", "write", "scrub",
                "trim", "rebuild",
            ],
            Part::SizeHistogram => &[
                "ind", "agg", "ind", "agg", "ind", "agg", "ind", "agg", "ind", "agg", "ind", "agg",
                "ind", "agg",
            ],
        }
    }

    /// The series that are shown, by the names of the engine.
    fn series(self) -> &'static [&'static str] {
        match self {
            Part::Rates => &[],
            Part::Waits | Part::WaitHistogram => &[
                "total_wait_read",
                "total_wait_write",
                "disk_wait_read",
                "disk_wait_write",
                "syncq_wait_read",
                "syncq_wait_write",
                "asyncq_wait_read",
                "asyncq_wait_write",
                "scrub_wait",
                "trim_wait",
                "rebuild_wait",
            ],
            Part::Queues => &[
                "pending_sync_read",
                "active_sync_read",
                "pending_sync_write",
                "active_sync_write",
                "pending_async_read",
                "active_async_read",
                "pending_async_write",
                "active_async_write",
                "pending_scrub",
                "active_scrub",
                "pending_trim",
                "active_trim",
                "pending_rebuild",
                "active_rebuild",
            ],
            Part::SizeHistogram => &[
                "individual_sync_read",
                "aggregated_sync_read",
                "individual_sync_write",
                "aggregated_sync_write",
                "individual_async_read",
                "aggregated_async_read",
                "individual_async_write",
                "aggregated_async_write",
                "individual_scrub",
                "aggregated_scrub",
                "individual_trim",
                "aggregated_trim",
                "individual_rebuild",
                "aggregated_rebuild",
            ],
        }
    }

    /// How wide exact numbers are thought to be.
    fn exact_width(self) -> usize {
        match self {
            Part::Rates => 15,
            Part::Waits | Part::WaitHistogram => 10,
            Part::Queues | Part::SizeHistogram => 6,
        }
    }

    /// What stands above the names.
    fn heading(self) -> &'static str {
        match self {
            Part::WaitHistogram => "latency",
            Part::SizeHistogram => "req_size",
            _ => "pool",
        }
    }
}

/// How tables are printed.
#[derive(Debug, Clone)]
pub struct Form {
    /// What is shown, in this order.
    pub parts: Vec<Part>,
    /// `-H`.
    pub is_scripted: bool,
    /// `-p`.
    pub is_exact: bool,
    /// Also the vdevs below the pool.
    pub has_vdevs: bool,
    /// These vdevs only.
    pub vdevs: Vec<String>,
    /// How vdevs are named.
    pub names: Names,
    /// The width of the column of names.
    pub name_width: usize,
}

impl Form {
    /// True for histograms, which stand alone.
    pub fn has_histograms(&self) -> bool {
        self.parts.iter().any(|part| part.is_histogram())
    }

    /// The heading of a table.
    pub fn header(&self) -> String {
        self.header_of(None, None)
    }

    /// A line of dashes below a table.
    pub fn separator(&self) -> String {
        self.dashes(None) + "\n"
    }

    /// Everything of a pool.
    pub fn pool(&self, old: Option<&VdevIo>, new: &VdevIo) -> String {
        let mut text = String::new();
        let is_shown = self.vdev(&mut text, &new.name, old, new, 0);
        let is_closed = !self.has_histograms() && !self.is_scripted && self.vdevs.is_empty();
        if is_shown && is_closed && self.has_vdevs {
            text.push_str(&self.separator());
        }
        text
    }

    /// Whether a vdev goes by one of its names.
    pub fn is_named(&self, vdev: &VdevIo, name: &str) -> bool {
        self.name_of(vdev) == name
            || vdev.name == name
            || vdev.path.as_deref() == Some(name)
            || vdev.guid.to_string() == name
    }

    fn name_of(&self, vdev: &VdevIo) -> String {
        let path = vdev.path.as_deref();
        self.names
            .name(&vdev.name, &vdev.kind, vdev.guid, path, false)
    }

    /// A vdev and what is below it; false when nothing was shown.
    fn vdev(
        &self,
        text: &mut String,
        name: &str,
        old: Option<&VdevIo>,
        new: &VdevIo,
        depth: usize,
    ) -> bool {
        let is_asked = self.vdevs.iter().any(|vdev| self.is_named(new, vdev));
        let mut is_shown = false;
        if self.vdevs.is_empty() || is_asked {
            let depth = if is_asked { 0 } else { depth };
            self.line(text, name, old, new, depth);
            is_shown = true;
        }
        if !self.has_vdevs {
            return is_shown;
        }
        let mut child = |text: &mut String, new: &VdevIo| {
            let old = old.and_then(|old| old.children.iter().find(|vdev| vdev.guid == new.guid));
            is_shown |= self.vdev(text, &self.name_of(new), old, new, depth + 2);
        };
        // Only children of a pool have classes; below, all go with their parent.
        let of_role = |role| {
            let children = new.children.iter().filter(|vdev| vdev.kind != "hole");
            children.filter(move |vdev| depth > 0 || vdev.role == role)
        };
        of_role(VdevRole::Data).for_each(|vdev| child(text, vdev));
        for (role, title) in CLASSES.into_iter().filter(|_| depth == 0) {
            let mut vdevs = of_role(role).peekable();
            if vdevs.peek().is_some() {
                if !self.has_histograms() && !self.is_scripted && self.vdevs.is_empty() {
                    text.push_str(&self.dashes(Some(title)));
                }
                text.push('\n');
            }
            vdevs.for_each(|vdev| child(text, vdev));
        }
        is_shown
    }

    fn line(
        &self,
        text: &mut String,
        name: &str,
        old: Option<&VdevIo>,
        new: &VdevIo,
        depth: usize,
    ) {
        if self.has_histograms() {
            text.push('\n');
            for part in &self.parts {
                self.histogram(text, *part, name, old, new);
            }
            return;
        }
        match self.is_scripted {
            true => text.push_str(name),
            false => {
                let shown = format!("{:depth$}{name}", "");
                let width = self.name_width;
                text.push_str(&format!("{shown:<width$}"));
            }
        }
        for part in &self.parts {
            match part {
                Part::Rates => self.rates(text, old, new),
                Part::Waits => self.waits(text, old, new),
                _ => self.queues(text, new),
            }
        }
        text.push('\n');
    }

    fn rates(&self, text: &mut String, old: Option<&VdevIo>, new: &VdevIo) {
        let width = self.width(Part::Rates);
        if new.allocated_bytes == 0 && new.free_bytes == 0 {
            // Only pools and top-level vdevs have room.
            let none = if self.is_exact { "0" } else { "-" };
            self.cell(text, none, width);
            self.cell(text, none, width);
        } else {
            self.count(text, new.allocated_bytes, width);
            self.count(text, new.free_bytes, width);
        }
        let scale = per_second(old, new);
        let counters: [fn(&VdevIo) -> u64; 4] = [
            |vdev| vdev.reads,
            |vdev| vdev.writes,
            |vdev| vdev.read_bytes,
            |vdev| vdev.written_bytes,
        ];
        for counter in counters {
            let change = counter(new).saturating_sub(old.map_or(0, counter));
            self.count(text, scaled(change, scale), width);
        }
    }

    fn waits(&self, text: &mut String, old: Option<&VdevIo>, new: &VdevIo) {
        let width = self.width(Part::Waits);
        for name in Part::Waits.series() {
            let average = average(&change(name, old, new, WAIT_BUCKETS));
            let shown = match (self.is_exact, average) {
                (_, 0) => "-".to_string(),
                (true, average) => average.to_string(),
                (false, average) => nice_time(average),
            };
            self.cell(text, &shown, width);
        }
    }

    fn queues(&self, text: &mut String, new: &VdevIo) {
        let width = self.width(Part::Queues);
        for name in Part::Queues.series() {
            let length = new.series.get(*name).and_then(|numbers| numbers.first());
            self.count(text, length.copied().unwrap_or(0), width);
        }
    }

    fn histogram(
        &self,
        text: &mut String,
        part: Part,
        name: &str,
        old: Option<&VdevIo>,
        new: &VdevIo,
    ) {
        let buckets = match part {
            Part::SizeHistogram => SIZE_BUCKETS,
            _ => WAIT_BUCKETS,
        };
        let series = part.series().iter();
        let series: Vec<Vec<u64>> = series.map(|name| change(name, old, new, buckets)).collect();
        let width = match self.is_exact {
            true => {
                let largest = series.iter().flatten().max().copied().unwrap_or(0);
                largest.to_string().len().max(5)
            }
            false => 5,
        };
        match self.is_scripted {
            true => text.push_str(&format!("{name}\n")),
            false => text.push_str(&self.header_of(Some(width), Some(name))),
        }
        // What is shown without an interval is everything, and no rate.
        let scale = old.map_or(1.0, |_| per_second(old, new));
        let name_width = self.name_width.max(part.heading().len());
        let first = if part == Part::SizeHistogram {
            SIZE_FIRST
        } else {
            0
        };
        for bucket in first..buckets {
            let label = label(part, bucket, self.is_scripted);
            match self.is_scripted {
                true => text.push_str(&label),
                false => text.push_str(&format!("{label:<name_width$}")),
            }
            for numbers in &series {
                self.count(text, scaled(numbers[bucket], scale), width);
            }
            text.push('\n');
        }
        if !self.is_scripted {
            let length = name_width + (width + 2) * part.columns().len();
            text.push_str(&("-".repeat(length) + "\n"));
        }
    }

    fn count(&self, text: &mut String, number: u64, width: usize) {
        let shown = match self.is_exact {
            true => number.to_string(),
            false => nice_count(number),
        };
        self.cell(text, &shown, width);
    }

    /// One value: behind a tab, or at the right of its column.
    fn cell(&self, text: &mut String, shown: &str, width: usize) {
        // Writing to a string does not fail.
        let _ = match self.is_scripted {
            true => write!(text, "\t{shown}"),
            false => write!(text, "  {shown:>width$}"),
        };
    }

    fn width(&self, part: Part) -> usize {
        match self.is_exact {
            true => part.exact_width(),
            false => 5,
        }
    }

    fn heading(&self) -> &'static str {
        let first = self.parts.first().copied().unwrap_or(Part::Rates);
        match first.is_histogram() || self.vdevs.is_empty() {
            true => first.heading(),
            false => "vdev",
        }
    }

    /// Titles, columns and dashes; above a histogram with the name of its vdev.
    fn header_of(&self, forced_width: Option<usize>, name: Option<&str>) -> String {
        let heading = self.heading();
        let name = name.unwrap_or_default();
        let name_width = self.name_width.max(heading.len()).max(name.len());
        let mut above = format!("{name:<name_width$}");
        let mut below = format!("{heading:<name_width$}");
        for part in &self.parts {
            let width = forced_width.unwrap_or_else(|| self.width(*part));
            for (title, columns) in part.titles() {
                above.push_str(&centered(title, *columns, width));
            }
            for column in part.columns() {
                below.push_str(&centered(column, 1, width));
            }
        }
        format!("{above}\n{below}\n{}\n", self.dashes_of(forced_width, None))
    }

    fn dashes(&self, title: Option<&str>) -> String {
        self.dashes_of(None, title)
    }

    /// Dashes below all columns, or one in each behind a title.
    fn dashes_of(&self, forced_width: Option<usize>, title: Option<&str>) -> String {
        let least = title.map_or(0, str::len);
        let name_width = self.name_width.max(self.heading().len()).max(least);
        let mut text = match title {
            Some(title) => format!("{title:<name_width$}"),
            None => "-".repeat(name_width),
        };
        for part in &self.parts {
            let width = forced_width.unwrap_or_else(|| self.width(*part));
            for _ in part.columns() {
                text.push_str(&match title {
                    Some(_) => format!("  {:>width$}", "-"),
                    None => format!("  {}", "-".repeat(width.min(20))),
                });
            }
        }
        text
    }
}

/// A title over columns of this width.
fn centered(title: &str, columns: usize, width: usize) -> String {
    let room = width * columns + 2 * (columns - 1);
    let before = (room / columns).saturating_sub(title.len() / columns);
    let after = room.saturating_sub(before + title.len());
    format!("  {:before$}{title}{:after$}", "", "")
}

/// The label of a bucket: where waits of it end, or where sizes begin.
fn label(part: Part, bucket: usize, is_exact: bool) -> String {
    let power = |exponent: usize| 1_u64 << exponent;
    let (number, nice) = match part {
        Part::SizeHistogram => (power(bucket), nice_count(power(bucket))),
        _ => (power(bucket + 1) - 1, nice_time(power(bucket + 1) - 1)),
    };
    match is_exact {
        true => number.to_string(),
        false => nice,
    }
}

/// What was counted since the sample before, or ever.
fn change(name: &str, old: Option<&VdevIo>, new: &VdevIo, buckets: usize) -> Vec<u64> {
    let of = |vdev: &VdevIo| vdev.series.get(name).cloned().unwrap_or_default();
    let (new, old) = (of(new), old.map(of).unwrap_or_default());
    let at = |numbers: &[u64], index: usize| numbers.get(index).copied().unwrap_or(0);
    (0..buckets)
        .map(|index| at(&new, index).saturating_sub(at(&old, index)))
        .collect()
}

/// The average of a histogram whose buckets are powers of two, each taken by its middle.
fn average(histogram: &[u64]) -> u64 {
    let (mut count, mut total) = (0_u128, 0_u128);
    for (exponent, number) in histogram.iter().enumerate() {
        let lower = 1_u128 << exponent;
        total += u128::from(*number) * (lower + lower / 2);
        count += u128::from(*number);
    }
    let average = total.checked_div(count).unwrap_or(0);
    u64::try_from(average).unwrap_or(u64::MAX)
}

/// What turns a change into one for each second.
fn per_second(old: Option<&VdevIo>, new: &VdevIo) -> f64 {
    let elapsed_ns = new.time_ns.saturating_sub(old.map_or(0, |old| old.time_ns));
    match elapsed_ns {
        0 => 1.0,
        elapsed_ns => 1e9 / elapsed_ns as f64,
    }
}

/// A rate, whose fraction is not shown.
fn scaled(change: u64, scale: f64) -> u64 {
    (change as f64 * scale) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(parts: &[Part]) -> Form {
        Form {
            parts: parts.to_vec(),
            is_scripted: false,
            is_exact: false,
            has_vdevs: false,
            vdevs: Vec::new(),
            names: Names::default(),
            name_width: 10,
        }
    }

    fn vdev(name: &str, role: VdevRole, children: Vec<VdevIo>) -> VdevIo {
        let room = if children.is_empty() { 0 } else { 1 << 30 };
        VdevIo {
            name: name.to_string(),
            kind: "file".to_string(),
            guid: u64::try_from(name.len()).unwrap(),
            role,
            time_ns: 2_000_000_000,
            allocated_bytes: room,
            free_bytes: 3 * room,
            reads: 20,
            writes: 4096,
            read_bytes: 1 << 20,
            written_bytes: 3 << 20,
            children,
            ..VdevIo::default()
        }
    }

    fn tank() -> VdevIo {
        let leaf = |name: &str, role| vdev(name, role, Vec::new());
        let mirror = vdev(
            "mirror-0",
            VdevRole::Data,
            vec![leaf("sda", VdevRole::Data), leaf("sdbb", VdevRole::Data)],
        );
        vdev(
            "tank",
            VdevRole::Data,
            vec![mirror, leaf("sdccc", VdevRole::Log)],
        )
    }

    #[test]
    fn rates_have_openzfs_columns() {
        let form = form(&[Part::Rates]);
        assert_eq!(
            form.header() + &form.pool(None, &tank()),
            "              capacity     operations     bandwidth \n\
             pool        alloc   free   read  write   read  write\n\
             ----------  -----  -----  -----  -----  -----  -----\n\
             tank           1G     3G     10     2K   512K  1.50M\n"
        );
    }

    #[test]
    fn rates_are_those_between_two_samples() {
        let form = form(&[Part::Rates]);
        let mut new = tank();
        new.time_ns += 500_000_000;
        new.reads += 5;
        new.written_bytes += 1 << 10;
        assert_eq!(
            form.pool(Some(&tank()), &new),
            "tank           1G     3G     10      0      0     2K\n"
        );
    }

    #[test]
    fn vdevs_are_below_their_pool_and_logs_below_a_title() {
        let form = Form {
            has_vdevs: true,
            ..form(&[Part::Rates])
        };
        assert_eq!(
            form.pool(None, &tank()),
            "tank           1G     3G     10     2K   512K  1.50M\n  \
               mirror-0     1G     3G     10     2K   512K  1.50M\n    \
                 sda         -      -     10     2K   512K  1.50M\n    \
                 sdbb        -      -     10     2K   512K  1.50M\n\
             logs            -      -      -      -      -      -\n  \
               sdccc         -      -     10     2K   512K  1.50M\n\
             ----------  -----  -----  -----  -----  -----  -----\n"
        );
    }

    #[test]
    fn script_mode_has_tabs_and_exact_numbers_on_request() {
        let form = Form {
            is_scripted: true,
            is_exact: true,
            has_vdevs: true,
            vdevs: vec!["sda".to_string()],
            ..form(&[Part::Rates])
        };
        assert_eq!(
            form.pool(None, &tank()),
            "sda\t0\t0\t10\t2048\t524288\t1572864\n\n"
        );
    }

    #[test]
    fn waits_are_averages_of_their_histograms() {
        let form = form(&[Part::Waits]);
        let mut new = tank();
        let histogram = [vec![0; 20], vec![2]].concat();
        new.series.insert("total_wait_read".to_string(), histogram);
        let text = form.pool(None, &new);
        assert!(
            text.starts_with("tank          1ms      -      -"),
            "{text}"
        );
        assert_eq!(average(&[0, 0, 1, 1]), 9);
        assert_eq!(average(&[]), 0);
    }

    #[test]
    fn histograms_have_a_table_for_each_vdev() {
        let form = form(&[Part::SizeHistogram]);
        let mut new = tank();
        let histogram = [vec![0; 12], vec![7]].concat();
        new.series
            .insert("individual_async_write".to_string(), histogram);
        let text = form.pool(None, &new);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "");
        assert!(
            lines[1].starts_with("tank          sync_read    sync_write"),
            "{text}"
        );
        assert!(lines[2].starts_with("req_size      ind    agg"), "{text}");
        assert!(lines[4].starts_with("512             0      0"), "{text}");
        assert!(
            lines[7].starts_with("4K              0      0      0      0      0      0      7")
        );
        assert_eq!(lines.len(), 1 + 3 + 16 + 1);
        assert_eq!(lines.last().unwrap().len(), 10 + 7 * 14);
    }

    #[test]
    fn titles_are_centred_over_their_columns() {
        assert_eq!(centered("capacity", 2, 5), "    capacity  ");
        assert_eq!(centered("rebuild", 1, 5), "  rebuild");
        assert_eq!(centered("read", 1, 5), "   read");
    }
}
