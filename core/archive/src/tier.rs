//! Tiers: how long a column is, for how long it is kept, and what the files of a tier are called.

/// A tier of the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Columns of a second, for 14 days.
    Second,
    /// Columns of a minute, for 180 days.
    Minute,
    /// Columns of an hour, for five years.
    Hour,
}

const DAY_S: u64 = 86_400;

impl Tier {
    /// All, the finest first.
    pub const ALL: [Tier; 3] = [Tier::Second, Tier::Minute, Tier::Hour];

    /// Its name: what its files begin with.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Second => "1s",
            Tier::Minute => "1m",
            Tier::Hour => "1h",
        }
    }

    /// The seconds of a column.
    pub fn column_s(self) -> u64 {
        match self {
            Tier::Second => 1,
            Tier::Minute => 60,
            Tier::Hour => 3600,
        }
    }

    /// The columns of a block, which is a file. A file of five minutes has some 600 KiB at 180 MB
    /// a day; 14 days, 180 days and five years are some ten thousand files.
    pub(crate) fn block_columns(self) -> usize {
        match self {
            Tier::Second => 300,
            Tier::Minute => 60,
            Tier::Hour => 24,
        }
    }

    /// The seconds of a block.
    pub(crate) fn block_s(self) -> u64 {
        let columns = u64::try_from(self.block_columns()).expect("a small number");
        self.column_s() * columns
    }

    /// For how many seconds columns are kept: bar B13 of the specification.
    pub(crate) fn retention_s(self) -> u64 {
        match self {
            Tier::Second => 14 * DAY_S,
            Tier::Minute => 180 * DAY_S,
            Tier::Hour => 5 * 365 * DAY_S,
        }
    }

    /// The part of the cap, in thousandths, that the tier may fill when all of it is needed: what
    /// each of them takes of 4 GiB with the default set of statistics.
    pub(crate) fn share_permille(self) -> u64 {
        match self {
            Tier::Second => 600,
            Tier::Minute => 320,
            Tier::Hour => 80,
        }
    }

    /// Where the block begins that has this second.
    pub(crate) fn block_of(self, second: u64) -> u64 {
        second - second % self.block_s()
    }

    /// Where the column begins that has this second.
    pub(crate) fn column_of(self, second: u64) -> u64 {
        second - second % self.column_s()
    }

    /// The next coarser one.
    pub(crate) fn coarser(self) -> Option<Tier> {
        match self {
            Tier::Second => Some(Tier::Minute),
            Tier::Minute => Some(Tier::Hour),
            Tier::Hour => None,
        }
    }
}

/// What a file of the archive is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileOfArchive {
    /// The block of a tier that begins at that second.
    Block(Tier, u64),
    /// The seconds since then that are in no block yet.
    Tail(u64),
}

const BLOCK_SUFFIX: &str = ".block";
const TAIL_PREFIX: &str = "tail-";

impl FileOfArchive {
    /// `1s-1700000100.block`, `tail-1700000100`.
    pub(crate) fn name(self) -> String {
        match self {
            FileOfArchive::Block(tier, start) => format!("{}-{start}{BLOCK_SUFFIX}", tier.name()),
            FileOfArchive::Tail(start) => format!("{TAIL_PREFIX}{start}"),
        }
    }

    /// What a file of that name is; `None` if the archive has no such file.
    pub(crate) fn of_name(name: &str) -> Option<FileOfArchive> {
        let found = match name.strip_prefix(TAIL_PREFIX) {
            Some(start) => FileOfArchive::Tail(start.parse().ok()?),
            None => {
                let (tier, start) = name.strip_suffix(BLOCK_SUFFIX)?.split_once('-')?;
                let tier = Tier::ALL.into_iter().find(|known| known.name() == tier)?;
                FileOfArchive::Block(tier, start.parse().ok()?)
            }
        };
        let is_aligned = match found {
            FileOfArchive::Block(tier, start) => tier.block_of(start) == start,
            FileOfArchive::Tail(start) => Tier::Second.block_of(start) == start,
        };
        // A number may be written in several ways; one of them is ours.
        (is_aligned && found.name() == name && found.start() <= LATEST_S).then_some(found)
    }

    /// The second at which it begins.
    pub(crate) fn start(self) -> u64 {
        match self {
            FileOfArchive::Block(_, start) | FileOfArchive::Tail(start) => start,
        }
    }
}

/// The latest second that is archived: the year 36,812. Sums of times do not overflow.
pub(crate) const LATEST_S: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_say_what_they_are_and_foreign_names_are_none() {
        for file in [
            FileOfArchive::Block(Tier::Second, 1_700_000_100),
            FileOfArchive::Block(Tier::Hour, 86_400 * 20_000),
            FileOfArchive::Tail(0),
        ] {
            assert_eq!(FileOfArchive::of_name(&file.name()), Some(file));
        }
        for foreign in [
            "1s-1700000101.block",
            "1s-+1700000100.block",
            "1s-01700000100.block",
            "2s-1700000100.block",
            "1s-1700000100.block.new",
            "1s-18446744073709551600.block",
            "tail-7",
            "tail-",
            "notes.txt",
            "",
        ] {
            assert_eq!(FileOfArchive::of_name(foreign), None, "{foreign}");
        }
    }
}
