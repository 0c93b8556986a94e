//! The fields of `zilstat`: their names and widths, and of which statistics of intent logs they are
//! made. Those are of OpenZFS's `zilstat`.

use super::arc_fields::Counted;
use super::number_columns;

/// How a field is made.
#[derive(Debug, Clone, Copy)]
enum Source {
    Time,
    Pool,
    Dataset,
    Objset,
    /// The sum of statistics.
    Count(&'static [&'static str]),
    /// The same, of bytes.
    Bytes(&'static [&'static str]),
    /// What the first sum is of the second, in percent.
    Share(&'static [&'static str], &'static [&'static str]),
}

use Source::{Bytes, Count, Dataset, Objset, Pool, Share, Time};

/// A field.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name, which heads its column.
    pub name: &'static str,
    /// How wide its column is.
    pub width: usize,
    /// What it is, for people: the names of statistics without `zil_itx_` and `zil_commit_`.
    pub about: &'static str,
    source: Source,
}

/// All fields.
#[rustfmt::skip]
pub const FIELDS: &[Field] = &[
    field("time", 8, "time", Time),
    field("pool", 12, "pool", Pool),
    field("ds", 12, "dataset_name", Dataset),
    field("obj", 12, "objset", Objset),
    field("cc", 5, "zil_commit_count", Count(&["zil_commit_count"])),
    field("cwc", 5, "zil_commit_writer_count", Count(&["zil_commit_writer_count"])),
    field("cec", 5, "zil_commit_error_count", Count(&["zil_commit_error_count"])),
    field("csc", 5, "zil_commit_stall_count", Count(&["zil_commit_stall_count"])),
    field("cSc", 5, "zil_commit_suspend_count", Count(&["zil_commit_suspend_count"])),
    field("ic", 5, "zil_itx_count", Count(&["zil_itx_count"])),
    field("iic", 5, "zil_itx_indirect_count", Count(&["zil_itx_indirect_count"])),
    field("iib", 5, "zil_itx_indirect_bytes", Bytes(&["zil_itx_indirect_bytes"])),
    field("icc", 5, "zil_itx_copied_count", Count(&["zil_itx_copied_count"])),
    field("icb", 5, "zil_itx_copied_bytes", Bytes(&["zil_itx_copied_bytes"])),
    field("inc", 5, "zil_itx_needcopy_count", Count(&["zil_itx_needcopy_count"])),
    field("inb", 5, "zil_itx_needcopy_bytes", Bytes(&["zil_itx_needcopy_bytes"])),
    field("idc", 5, "icc+inc", Count(&["zil_itx_copied_count", "zil_itx_needcopy_count"])),
    field("idb", 5, "icb+inb", Bytes(&["zil_itx_copied_bytes", "zil_itx_needcopy_bytes"])),
    field("iwc", 5, "iic+idc", Count(&["zil_itx_indirect_count", "zil_itx_copied_count", "zil_itx_needcopy_count"])),
    field("iwb", 5, "iib+idb", Bytes(&["zil_itx_indirect_bytes", "zil_itx_copied_bytes", "zil_itx_needcopy_bytes"])),
    field("imnc", 6, "zil_itx_metaslab_normal_count", Count(&["zil_itx_metaslab_normal_count"])),
    field("imnb", 6, "zil_itx_metaslab_normal_bytes", Bytes(&["zil_itx_metaslab_normal_bytes"])),
    field("imnw", 6, "zil_itx_metaslab_normal_write", Bytes(&["zil_itx_metaslab_normal_write"])),
    field("imna", 6, "zil_itx_metaslab_normal_alloc", Bytes(&["zil_itx_metaslab_normal_alloc"])),
    field("imsc", 6, "zil_itx_metaslab_slog_count", Count(&["zil_itx_metaslab_slog_count"])),
    field("imsb", 6, "zil_itx_metaslab_slog_bytes", Bytes(&["zil_itx_metaslab_slog_bytes"])),
    field("imsw", 6, "zil_itx_metaslab_slog_write", Bytes(&["zil_itx_metaslab_slog_write"])),
    field("imsa", 6, "zil_itx_metaslab_slog_alloc", Bytes(&["zil_itx_metaslab_slog_alloc"])),
    field("imc", 5, "imnc+imsc", Count(&["zil_itx_metaslab_normal_count", "zil_itx_metaslab_slog_count"])),
    field("imb", 5, "imnb+imsb", Bytes(BYTES)),
    field("imw", 5, "imnw+imsw", Bytes(WRITTEN)),
    field("ima", 5, "imna+imsa", Bytes(ALLOCATED)),
    field("se%", 3, "imb/ima", Share(BYTES, ALLOCATED)),
    field("sen%", 4, "imnb/imna", Share(&["zil_itx_metaslab_normal_bytes"], &["zil_itx_metaslab_normal_alloc"])),
    field("ses%", 4, "imsb/imsa", Share(&["zil_itx_metaslab_slog_bytes"], &["zil_itx_metaslab_slog_alloc"])),
    field("te%", 3, "imb/imw", Share(BYTES, WRITTEN)),
    field("ten%", 4, "imnb/imnw", Share(&["zil_itx_metaslab_normal_bytes"], &["zil_itx_metaslab_normal_write"])),
    field("tes%", 4, "imsb/imsw", Share(&["zil_itx_metaslab_slog_bytes"], &["zil_itx_metaslab_slog_write"])),
];

const BYTES: &[&str] = &[
    "zil_itx_metaslab_normal_bytes",
    "zil_itx_metaslab_slog_bytes",
];
const WRITTEN: &[&str] = &[
    "zil_itx_metaslab_normal_write",
    "zil_itx_metaslab_slog_write",
];
const ALLOCATED: &[&str] = &[
    "zil_itx_metaslab_normal_alloc",
    "zil_itx_metaslab_slog_alloc",
];

const fn field(name: &'static str, width: usize, about: &'static str, source: Source) -> Field {
    Field {
        name,
        width,
        about,
        source,
    }
}

impl Field {
    /// Whether it is a number that is counted, of which there are so many in a second.
    pub fn is_counted(&self) -> bool {
        matches!(self.source, Count(_) | Bytes(_))
    }
}

/// The field of a name.
pub fn find(name: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.name == name)
}

/// An intent log, or all of them, and what it counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Log {
    /// The pool; empty for all logs.
    pub pool: String,
    /// The dataset; empty for all logs.
    pub dataset: String,
    /// The object of the dataset, as its statistics are called: `0x36`.
    pub objset: String,
    /// What it counted, since it was opened or within some seconds.
    pub counted: Counted,
}

impl Log {
    /// What it has counted since an earlier moment, in seconds: whole numbers of a second.
    pub fn since(&self, before: Option<&Log>, interval_s: u64) -> Log {
        let grown = |(name, count): (&String, &i128)| {
            let before = before.and_then(|before| before.counted.get(name));
            let grown = count - before.copied().unwrap_or(0);
            (name.clone(), grown.div_euclid(interval_s.max(1).into()))
        };
        Log {
            counted: self.counted.iter().map(grown).collect(),
            ..self.clone()
        }
    }

    /// The number of a field; none where it is a text.
    ///
    /// # Errors
    /// The name of a statistic that it is made of and that is not counted.
    pub fn number(&self, field: &Field) -> Result<Option<i128>, &'static str> {
        Ok(Some(match field.source {
            Time | Pool | Dataset | Objset => return Ok(None),
            Count(names) | Bytes(names) => self.sum(names)?,
            Share(part, whole) => match self.sum(whole)? {
                0 => 100,
                whole => self.sum(part)? * 100 / whole,
            },
        }))
    }

    fn sum(&self, names: &'static [&'static str]) -> Result<i128, &'static str> {
        let each = names.iter();
        let each = each.map(|name| self.counted.get(*name).copied().ok_or(*name));
        each.sum()
    }

    /// A field as its column has it.
    ///
    /// # Errors
    /// As [`number`](Log::number).
    pub fn cell(&self, field: &Field, time: &str) -> Result<String, &'static str> {
        let width = field.width;
        let text = |text: &str| format!("{text:>width$}");
        let number = self.number(field)?.unwrap_or(0);
        Ok(match field.source {
            Time => text(time),
            Pool => text(&self.pool),
            Dataset => text(&self.dataset),
            Objset => text(&self.objset),
            Count(_) => number_columns::cut(number, width, Some(1000.0)),
            Bytes(_) => number_columns::cut(number, width, Some(1024.0)),
            Share(..) => number_columns::cut(number, width, None),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(pairs: &[(&str, i128)]) -> Log {
        let names = FIELDS.iter().flat_map(|field| match field.source {
            Count(names) | Bytes(names) => names,
            _ => &[],
        });
        let mut counted: Counted = names.map(|name| (name.to_string(), 0)).collect();
        counted.extend(pairs.iter().map(|(name, n)| (name.to_string(), *n)));
        Log {
            counted,
            ..Log::default()
        }
    }

    fn cells(log: &Log, names: &str) -> String {
        let each = names.split(',').map(|name| {
            let cell = log.cell(find(name).unwrap(), "12:00:00").unwrap();
            cell.trim().to_owned()
        });
        each.collect::<Vec<_>>().join(" ")
    }

    const NAMES: &str = "cc,cwc,ic,inc,inb,iib,imsc,imsb,imsw,imsa,ses%,tes%,se%,te%,sen%,idc,iwb";

    /// The numbers of a kernel of OpenZFS 2.3.2, and what its `zilstat` printed of them.
    #[test]
    fn a_log_is_printed_as_zilstat_prints_it() {
        let before = log(&[
            ("zil_commit_count", 5),
            ("zil_commit_writer_count", 5),
            ("zil_itx_count", 91),
            ("zil_itx_needcopy_count", 88),
            ("zil_itx_needcopy_bytes", 3_997_696),
            ("zil_itx_metaslab_slog_count", 35),
            ("zil_itx_metaslab_slog_bytes", 4_021_368),
            ("zil_itx_metaslab_slog_write", 4_042_752),
            ("zil_itx_metaslab_slog_alloc", 4_104_192),
        ]);
        let mut now = before.clone();
        for (name, grown) in [
            ("zil_commit_count", 3),
            ("zil_commit_writer_count", 2001),
            ("zil_itx_count", 1000),
            ("zil_itx_needcopy_count", 1001),
            ("zil_itx_needcopy_bytes", 1536),
            ("zil_itx_indirect_bytes", 1024),
            ("zil_itx_metaslab_slog_count", 7),
            ("zil_itx_metaslab_slog_bytes", 1000),
            ("zil_itx_metaslab_slog_write", 3000),
            ("zil_itx_metaslab_slog_alloc", 4096),
        ] {
            *now.counted.get_mut(name).unwrap() += grown;
        }
        assert_eq!(
            cells(&now, NAMES),
            "8 2.0K 1.1K 1.1K 3.8M 1024 42 3.8M 3.9M 3.9M 97 99 97 99 100 1.1K 3.8M"
        );
        for (interval_s, expected) in [
            (
                1,
                "3 2.0K 1000 1.0K 1.5K 1024 7 1000 2.9K 4.0K 24 33 24 33 100 1.0K 2.5K",
            ),
            (
                2,
                "1 1000 500 500 768 512 3 500 1.5K 2.0K 24 33 24 33 100 500 1.2K",
            ),
            (
                3,
                "1 667 333 333 512 341 2 333 1000 1.3K 24 33 24 33 100 333 853",
            ),
        ] {
            let rates = now.since(Some(&before), interval_s);
            assert_eq!(cells(&rates, NAMES), expected, "{interval_s}");
        }
    }

    #[test]
    fn a_field_names_the_statistic_that_is_not_counted() {
        let mut lacking = log(&[]);
        lacking.counted.remove("zil_itx_copied_bytes");
        assert_eq!(
            lacking.number(find("idb").unwrap()),
            Err("zil_itx_copied_bytes")
        );
        assert_eq!(lacking.number(find("cc").unwrap()), Ok(Some(0)));
        assert_eq!(lacking.number(find("ds").unwrap()), Ok(None));
    }
}
