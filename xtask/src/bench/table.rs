//! What was measured, as a table with ratios and verdicts.

use std::collections::{BTreeMap, HashMap};

use tarn_workload::load::Load;

use super::bar;
use super::peers::OURS;

/// How much rates of one and the same differ between runs, after the median of all rounds. A bar of
/// "not slower" allows for it.
pub const NOISE: f64 = 0.03;

/// A ratio that is off its bar by less, on whichever side, is measured longer: that is how much
/// medians of five rounds differ here.
const NEAR: f64 = 0.15;

/// The rates of every load of every peer, one for each round; and what went wrong.
#[derive(Default)]
pub struct Rates {
    rates: HashMap<(Load, String), BTreeMap<usize, f64>>,
    notes: Vec<String>,
}

impl Rates {
    /// Adds a round's rate.
    pub fn add(&mut self, round: usize, load: Load, peer: &str, rate: f64) {
        let key = (load, peer.to_string());
        self.rates.entry(key).or_default().insert(round, rate);
    }

    /// Notes why a peer has no rate.
    pub fn note(&mut self, peer: &str, why: &str) {
        let note = format!("{peer}: {why}");
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Those of the loads whose ratio to a peer is so near to its bar that more rounds may tell on
    /// which side it is.
    pub fn near_bars(&self, loads: &[Load], peers: &[&str]) -> Vec<Load> {
        let is_near = |load: &Load, peer: &&str| {
            let (ratio, bar) = (self.ratio(*load, peer), bar(*load, peer));
            ratio
                .zip(bar)
                .is_some_and(|(ratio, bar)| (ratio / bar - 1.0).abs() < NEAR)
        };
        let near = |load: &&Load| peers.iter().any(|peer| is_near(load, peer));
        loads.iter().filter(near).copied().collect()
    }

    fn of(&self, load: Load, peer: &str) -> Option<&BTreeMap<usize, f64>> {
        self.rates.get(&(load, peer.to_string()))
    }

    /// The median over the rounds.
    fn rate(&self, load: Load, peer: &str) -> Option<f64> {
        median(self.of(load, peer)?.values().copied().collect())
    }

    /// Ours by theirs: the median of the ratios of those rounds that have both.
    fn ratio(&self, load: Load, peer: &str) -> Option<f64> {
        let theirs = self.of(load, peer)?;
        let rounds = self.of(load, OURS)?.iter();
        let ratios = rounds.filter_map(|(round, ours)| Some(ours / theirs.get(round)?));
        median(ratios.collect())
    }
}

/// The middle one, or the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// Prints the table, and gives the bars that were not reached.
pub fn print(rates: &Rates, loads: &[Load], peers: &[&str]) -> Vec<String> {
    let mut failed = Vec::new();
    print!("{:<26} {:>6} {OURS:>10}", "", "");
    for peer in peers {
        print!(" {peer:>10} {:>7}", "ratio");
    }
    println!("  bar");
    for &load in loads {
        print!(
            "{load:<26} {:>6} {:>10}",
            load.unit().to_string(),
            rate(rates.rate(load, OURS))
        );
        let mut verdicts = Vec::new();
        for peer in peers {
            let ratio = rates.ratio(load, peer);
            let shown = ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}"));
            print!(" {:>10} {shown:>7}", rate(rates.rate(load, peer)));
            if let Some(bar) = bar(load, peer) {
                // What the kernel answers from its own cache is equally fast for all, give or take.
                let least = if bar > 1.0 { bar } else { bar - NOISE };
                let (word, passed) = match ratio {
                    Some(ratio) if ratio >= least => ("PASS", true),
                    Some(_) => ("FAIL", false),
                    None => ("not judged", false),
                };
                verdicts.push(format!("{bar} x {peer}: {word}"));
                if !passed {
                    failed.push(format!("{load} ({shown} of {bar} x {peer})"));
                }
            }
        }
        println!("  {}", verdicts.join(", "));
    }
    for note in &rates.notes {
        println!("{note}");
    }
    failed
}

/// Three digits, or as many as stand before the point.
pub fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_string(),
        Some(rate) if rate < 10.0 => format!("{rate:.2}"),
        Some(rate) if rate < 100.0 => format!("{rate:.1}"),
        Some(rate) => format!("{rate:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_median_of_those_of_the_rounds() {
        let mut rates = Rates::default();
        for (round, (ours, theirs)) in [(100.0, 10.0), (20.0, 10.0), (30.0, 1.0)]
            .into_iter()
            .enumerate()
        {
            rates.add(round, Load::Create, OURS, ours);
            rates.add(round, Load::Create, "zfs-fuse", theirs);
        }
        // A round that only one of them finished says nothing.
        rates.add(3, Load::Create, "zfs-fuse", 1000.0);
        assert_eq!(rates.ratio(Load::Create, "zfs-fuse"), Some(10.0));
        assert_eq!(rates.rate(Load::Create, OURS), Some(30.0));
        assert_eq!(rates.ratio(Load::Create, "btrfs"), None);
    }

    #[test]
    fn what_is_near_its_bar_on_either_side_is_measured_longer() {
        let mut rates = Rates::default();
        for (load, ours) in [
            (Load::CachedRead, 90.0),
            (Load::RandomRead, 110.0),
            (Load::UncachedRead, 130.0),
            (Load::Create, 260.0),
            (Load::Unlink, 240.0),
        ] {
            rates.add(0, load, OURS, ours);
            rates.add(0, load, "zfs-fuse", 100.0);
        }
        let near = rates.near_bars(&Load::ALL, &["zfs-fuse", "btrfs"]);
        assert_eq!(near, [Load::CachedRead, Load::RandomRead, Load::Create]);
    }

    #[test]
    fn what_is_below_its_bar_or_was_not_judged_is_named() {
        let mut rates = Rates::default();
        rates.add(0, Load::Create, OURS, 29.0);
        rates.add(0, Load::Create, "zfs-fuse", 10.0);
        rates.add(0, Load::Unlink, OURS, 30.0);
        rates.add(0, Load::Unlink, "zfs-fuse", 10.0);
        rates.add(0, Load::Postmark, OURS, 1.0);
        for (load, ours) in [(Load::CachedRead, 98.0), (Load::RandomRead, 96.0)] {
            rates.add(0, load, OURS, ours);
            rates.add(0, load, "zfs-fuse", 100.0);
        }
        let loads = [
            Load::CachedRead,
            Load::RandomRead,
            Load::Create,
            Load::Unlink,
            Load::Postmark,
        ];
        let failed = print(&rates, &loads, &["zfs-fuse", "btrfs"]);
        let expected = [
            "4 KiB random read, cached (0.96 of 1 x zfs-fuse)",
            "create empty files (2.90 of 3 x zfs-fuse)",
            "postmark (- of 1 x zfs-fuse)",
        ];
        assert_eq!(failed, expected);
    }
}
