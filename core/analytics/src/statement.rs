//! Statements: a statistic, filters and breakdowns in one line.
//!
//! `nfs.ops[client=10.0.0.1][op=read]:latency` means the operations of NFS that one client asked
//! for, only reads, by latency. A field alone in brackets is a breakdown, so the names of Fishworks
//! are statements: `nfs4.ops[file]`, `iscsi.bytes[initiator]`. The grammar is in
//! `predicate_text.rs`.

use tarn_probe::{OperationKind, Protocol};

use crate::breakdown::{Breakdown, DISCRETE_MAX, Measure};
use crate::error::{PredicateError, Wrong};
use crate::field::Field;
use crate::predicate::{Comparison, Operator, Predicate};
use crate::predicate_text::Reader;

/// A statistic, filters and breakdowns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Of a statistic `nfs.ops`: what stands before the point.
    pub module: String,
    /// What is summed up.
    pub measure: Measure,
    /// Which operations: those of the statistic, and of all filters.
    pub predicate: Predicate,
    /// The filters alone, in their order.
    pub(crate) filters: Vec<Predicate>,
    /// By which discrete fields, at most [`DISCRETE_MAX`].
    by: Vec<Field>,
    /// By which numeric field.
    numeric: Option<Field>,
}

/// The protocols of each module; of `all`: any, but for requests to devices, which are parts of
/// operations. `io` is what Fishworks calls `vdev`.
pub(crate) const MODULES: [(&str, &[Protocol]); 13] = [
    ("nfs", &[Protocol::Nfs3, Protocol::Nfs4]),
    ("nfs3", &[Protocol::Nfs3]),
    ("nfs4", &[Protocol::Nfs4]),
    ("iscsi", &[Protocol::Iscsi]),
    ("nbd", &[Protocol::Nbd]),
    ("fuse", &[Protocol::Fuse]),
    ("blockdev", &[Protocol::BlockDevice]),
    ("library", &[Protocol::Library]),
    ("control", &[Protocol::Control]),
    ("internal", &[Protocol::Internal]),
    ("vdev", &[Protocol::Device]),
    ("io", &[Protocol::Device]),
    ("all", &[]),
];

impl Statement {
    /// The statement of a text.
    pub fn parse(text: &str) -> Result<Statement, PredicateError> {
        let mut reader = Reader::new(text)?;
        let mut statement = read_statistic(&mut reader)?;
        reader.skip_space();
        while reader.take("[") {
            match reader.bare_field()? {
                Some(field) => statement.break_down(field, &reader)?,
                None => {
                    let filter = reader.expression(0)?;
                    statement.add_filter(filter);
                }
            }
            if !reader.take("]") {
                return Err(reader.expected("`and`, `or` or `]`"));
            }
            reader.skip_space();
        }
        if reader.take(":") {
            reader.skip_space();
            let field = reader.field()?;
            statement.break_down(field, &reader)?;
            reader.skip_space();
        }
        match reader.rest().is_empty() {
            true => Ok(statement),
            false => Err(reader.expected("`[`, `:` or the end")),
        }
    }

    /// Another filter: operations must be meant by this one, too.
    pub fn add_filter(&mut self, filter: Predicate) {
        if filter != Predicate::Always {
            let before = std::mem::replace(&mut self.predicate, Predicate::Always);
            self.predicate = before.and(filter.clone());
            self.filters.push(filter);
        }
    }

    /// The discrete fields that it is broken down by.
    pub fn by(&self) -> &[Field] {
        &self.by
    }

    /// The numeric field that it is broken down by.
    pub fn numeric(&self) -> Option<Field> {
        self.numeric
    }

    /// The breakdown of its fields.
    pub fn breakdown(&self) -> Breakdown {
        let breakdown = Breakdown::new(&self.by, self.numeric, self.measure);
        breakdown.expect("the parser took as many fields as a breakdown has")
    }

    fn break_down(&mut self, field: Field, reader: &Reader<'_>) -> Result<(), PredicateError> {
        match field.is_numeric() {
            true if self.numeric.is_none() => self.numeric = Some(field),
            false if self.by.len() < DISCRETE_MAX => self.by.push(field),
            _ => return Err(reader.wrong(Wrong::TooManyBreakdowns)),
        }
        assert!(self.by.len() <= DISCRETE_MAX, "a breakdown takes them");
        Ok(())
    }
}

/// Reads `nfs.ops`, and gives the statement without filters.
fn read_statistic(reader: &mut Reader<'_>) -> Result<Statement, PredicateError> {
    reader.skip_space();
    let place = reader.place();
    let name = reader.take_while(|character| !"[: \t\n".contains(character));
    let unknown = || {
        let name = name.to_owned();
        Wrong::UnknownStatistic { name }.at(&place)
    };
    let (module, unit) = name.split_once('.').ok_or_else(unknown)?;
    let known = MODULES.iter().find(|(known, _)| *known == module);
    let (_, protocols) = known.ok_or_else(unknown)?;
    let measure = match unit {
        "ops" => Measure::Operations,
        "bytes" => Measure::Bytes,
        "wait" => Measure::WaitTime,
        _ => return Err(unknown()),
    };
    let compare = |field, operator, values: Vec<&str>| {
        Predicate::Compare(Comparison {
            field,
            operator,
            values: values.into_iter().map(str::to_owned).collect(),
            place: place.clone(),
        })
    };
    let one_of = |field, values| compare(field, Operator::In, values);
    let of_module = match protocols {
        [] => {
            let device = Protocol::Device.name();
            compare(Field::Protocol, Operator::NotEqual, vec![device])
        }
        some => {
            let names = some.iter().map(|protocol| protocol.name());
            one_of(Field::Protocol, names.collect())
        }
    };
    let of_measure = match measure {
        // Other kinds have sizes too, such as that of a directory's listing: no data.
        Measure::Bytes => {
            let kinds = [OperationKind::Read, OperationKind::Write];
            let kinds = kinds.into_iter().map(OperationKind::name).collect();
            one_of(Field::Operation, kinds)
        }
        Measure::Operations | Measure::WaitTime => Predicate::Always,
    };
    Ok(Statement {
        module: module.to_owned(),
        measure,
        predicate: of_module.and(of_measure),
        filters: Vec::new(),
        by: Vec::new(),
        numeric: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Place;
    use tarn_host::sim::Random;

    #[test]
    fn filters_and_breakdowns_are_told_apart() {
        let statement =
            Statement::parse("nfs.ops[client=10.0.0.1][op=read or op=write][file][cause]:latency");
        let statement = statement.unwrap();
        assert_eq!(statement.by, [Field::File, Field::Cause]);
        assert_eq!(statement.numeric, Some(Field::Latency));
        assert!(matches!(&statement.predicate, Predicate::All(parts) if parts.len() == 3));
        let statement = Statement::parse("nfs4.ops[ hit/miss ] [offset]").unwrap();
        assert_eq!(statement.by, [Field::Cause]);
        assert_eq!(statement.numeric, Some(Field::Offset));
        let statement = Statement::parse("all.ops").unwrap();
        assert_eq!(statement.predicate.to_string(), "protocol!=device");
        let statement = Statement::parse("iscsi.bytes[initiator]").unwrap();
        assert_eq!(
            (statement.measure, statement.by),
            (Measure::Bytes, vec![Field::Client])
        );
    }

    #[test]
    fn requests_to_devices_are_a_statistic_of_their_own() {
        use crate::column_batch::{Batch, Mask};
        use tarn_probe::{ClientId, DatasetId, HolderId, OperationRecord, Stage, What, Who};
        let record = |protocol, user| {
            let who = Who {
                client: ClientId(20),
                protocol,
                user,
                holder: HolderId::NONE,
            };
            let what = What::plain(OperationKind::Read, DatasetId(1), 7);
            OperationRecord::new(0, 1000, &who, &what, 0, &[0; Stage::COUNT])
        };
        let mut names = crate::ValueNames::new();
        let device = tarn_probe::device_number(0xdd, "/dev/disk/by-id/wwn-1");
        names.add_device(device, "/dev/disk/by-id/wwn-1");
        let class = u32::try_from(tarn_probe::IoPriority::Scrub.index()).unwrap();
        let mut batch = Batch::new();
        batch.push(&record(Protocol::Device, device.number() << 8 | class));
        batch.push(&record(Protocol::Nfs3, 1000));
        for (text, expected) in [
            ("all.ops", 0b10),
            ("vdev.ops", 0b01),
            ("io.ops[disk=wwn-1][class=scrub]", 0b01),
            ("vdev.ops[device=none]", 0b00),
            ("all.ops[device=none][class=none][user=1000]", 0b10),
            ("vdev.ops[client=#20][file=#1:7][user=0]", 0b01),
        ] {
            let statement = Statement::parse(text).unwrap();
            let meant = statement.predicate.compile(&names).unwrap();
            let mut found = 0;
            let mask = meant.mask(&batch, Mask::first(batch.len()));
            mask.for_each(|place| found |= 1 << place);
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn errors_name_the_place_in_the_statement() {
        for (text, at) in [
            ("", 0),
            ("nfs", 0),
            ("smb.ops", 0),
            ("nfs.ops[colour]", 8),
            ("nfs.ops[op=read", 15),
            ("nfs.ops[op]x", 11),
            ("nfs.ops[op][file][client]", 24),
            ("nfs.ops:latency:size", 15),
            ("nfs.ops[size]:latency", 21),
        ] {
            let error = Statement::parse(text).unwrap_err();
            assert_eq!(error.place, Place::Byte(at), "{text}: {error}");
        }
    }

    /// Statements are cut, doubled and overwritten at random: each is read or refused.
    #[test]
    fn any_text_is_read_or_refused() {
        let mut random = Random::new(5);
        let seed =
            "nfs.ops[client=\"10.0.0.1\"][op in (read,write) and not (latency≥1.5ms)][file]:size";
        let pieces = [
            "[", "]", "(", ")", "not ", "\"", "\\", "≠", "µ", " in ", ",", "prefix", "\0",
        ];
        for _ in 0..20_000 {
            let mut text: Vec<char> = seed.chars().collect();
            for _ in 0..=random.index(4) {
                let (from, to) = (random.index(text.len() + 1), random.index(text.len() + 1));
                let piece = pieces[random.index(pieces.len())].chars();
                text.splice(from.min(to)..from.max(to).min(from.min(to) + 3), piece);
            }
            let text: String = text.into_iter().collect();
            if let Err(error) = Statement::parse(&text) {
                let Place::Byte(at) = error.place else {
                    panic!("{text}: {error}");
                };
                assert!(at <= text.len(), "{text}: {error}");
            }
        }
    }
}
