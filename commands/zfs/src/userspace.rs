//! `zfs userspace`, `zfs groupspace` and `zfs projectspace`.
//!
//! # Columns
//! Widths follow what was counted and own quotas, but not default quotas:
//! OpenZFS does so. Widths are found before anything is left out.

use std::cmp::Ordering;
use tarn_administration::messages::dataset::{ListOwners, OwnerKind, OwnerUse, Owners};
use tarn_api::client::CallError;
use tarn_engine::properties::table::find;
use tarn_engine::{names::is_user_property, properties::value::Property};
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::number::{nice_bytes, nice_count};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "nHpo:s:S:t:i",
    long: &[],
};

/// What OpenZFS exits with where it returns -1.
const FAILED: u8 = 255;

/// How a refusal begins that is about the counts themselves.
const NO_COUNTS: &str = "cannot get used/quota for ";

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Type,
    Name,
    Used,
    Quota,
    ObjectsUsed,
    ObjectQuota,
}

impl Field {
    const ALL: [Field; 6] = [
        Field::Type,
        Field::Name,
        Field::Used,
        Field::Quota,
        Field::ObjectsUsed,
        Field::ObjectQuota,
    ];

    fn word(self) -> &'static str {
        match self {
            Field::Type => "type",
            Field::Name => "name",
            Field::Used => "used",
            Field::Quota => "quota",
            Field::ObjectsUsed => "objused",
            Field::ObjectQuota => "objquota",
        }
    }

    fn heading(self) -> String {
        self.word().to_ascii_uppercase()
    }

    fn aligns_right(self) -> bool {
        !matches!(self, Field::Type | Field::Name)
    }
}

/// User or group, POSIX or SMB, in the order in which OpenZFS sorts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Type {
    PosixGroup,
    PosixUser,
    SmbGroup,
    SmbUser,
    Project,
}

impl Type {
    /// What `-t` takes, and which it means.
    const WORDS: [(&'static str, &'static [Type]); 5] = [
        ("posixgroup", &[Type::PosixGroup]),
        ("posixuser", &[Type::PosixUser]),
        ("smbgroup", &[Type::SmbGroup]),
        ("smbuser", &[Type::SmbUser]),
        (
            "all",
            &[
                Type::PosixGroup,
                Type::PosixUser,
                Type::SmbGroup,
                Type::SmbUser,
            ],
        ),
    ];

    #[doc(alias = "us_type2str")]
    fn text(self) -> &'static str {
        match self {
            Type::PosixGroup => "POSIX Group",
            Type::PosixUser => "POSIX User",
            Type::SmbGroup => "SMB Group",
            Type::SmbUser => "SMB User",
            Type::Project => "Project",
        }
    }
}

/// One `-s` or `-S`.
#[derive(Debug, Clone, Copy)]
struct SortKey {
    by: &'static str,
    descending: bool,
}

/// A command line, understood.
#[derive(Debug)]
struct Request {
    name: String,
    fields: Vec<Field>,
    types: Vec<Type>,
    keys: Vec<SortKey>,
    is_scripted: bool,
    is_exact: bool,
    wants_names: bool,
    wants_posix_ids: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why nothing can be told.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(session.subcommand, arguments)?;
    let list = ListOwners {
        name: absolute(&request.name),
        users: request.has(&[Type::PosixUser, Type::SmbUser]),
        groups: request.has(&[Type::PosixGroup, Type::SmbGroup]),
        projects: request.has(&[Type::Project]),
        wants_names: request.wants_names,
    };
    let owners = session.connect()?.dataset_list_owners(list);
    let owners = owners.map_err(refused)?;
    let rows = rows(&request, &owners)?;
    output::say(&table(&request, &rows));
    Ok(0)
}

fn refused(error: CallError) -> Failure {
    let text = error.to_string();
    match text.starts_with(NO_COUNTS) {
        true => {
            complain(text);
            Failure::Silent(FAILED)
        }
        false => Failure::Error(text),
    }
}

/// A path of this process as the daemon finds it.
fn absolute(name: &str) -> String {
    match name.strip_prefix("./") {
        Some(_) => std::path::absolute(name)
            .map_or_else(|_| name.to_string(), |path| path.display().to_string()),
        None => name.to_string(),
    }
}

fn parse(subcommand: &str, arguments: &[String]) -> Result<Request, Failure> {
    let is_of_projects = subcommand == "projectspace";
    let mut request = Request {
        name: String::new(),
        fields: Field::ALL.to_vec(),
        types: match subcommand {
            "groupspace" => vec![Type::PosixGroup, Type::SmbGroup],
            "projectspace" => vec![Type::Project],
            _ => vec![Type::PosixUser, Type::SmbUser],
        },
        keys: Vec::new(),
        is_scripted: false,
        is_exact: false,
        wants_names: !is_of_projects,
        wants_posix_ids: false,
    };
    if arguments.is_empty() {
        return Err(Failure::usage(""));
    }
    let (mut fields, mut types) = (None, None);
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "n" | "t" | "i" if is_of_projects => {
                return Err(Failure::usage(format!("invalid option '{option}'")));
            }
            "n" => request.wants_names = false,
            "H" => request.is_scripted = true,
            "p" => request.is_exact = true,
            "o" => fields = Some(value),
            "t" => types = Some(value),
            "i" => request.wants_posix_ids = true,
            direction => request.keys.push(SortKey {
                by: sort_field(&value)?,
                descending: direction == "S",
            }),
        }
    }
    let mut operands = options.operands().into_iter();
    request.name = match (operands.next(), operands.next()) {
        (None, _) => return Err(Failure::usage("missing dataset name")),
        (Some(_), Some(_)) => return Err(Failure::usage("too many arguments")),
        (Some(name), None) => name,
    };
    if let Some(fields) = fields {
        request.fields = parse_fields(&fields)?;
    }
    if let Some(types) = types {
        request.types = parse_types(&types)?;
    }
    for by in ["type", "name"] {
        request.keys.push(SortKey {
            by,
            descending: false,
        });
    }
    Ok(request)
}

/// What `-s` and `-S` sort by: any property is taken, and some have an effect.
fn sort_field(name: &str) -> Result<&'static str, Failure> {
    match find(name) {
        Some(Property { name, .. }) => Ok(name),
        None if is_user_property(name) => Ok(""),
        None => Err(Failure::usage(format!("invalid field '{name}'"))),
    }
}

fn parse_fields(text: &str) -> Result<Vec<Field>, Failure> {
    let field = |word: &str| {
        let found = Field::ALL.into_iter().find(|field| field.word() == word);
        found.ok_or_else(|| {
            complain(format!("invalid type '{word}' for -o option"));
            Failure::Silent(FAILED)
        })
    };
    text.split(',').map(field).collect()
}

fn parse_types(text: &str) -> Result<Vec<Type>, Failure> {
    let mut types = Vec::new();
    for word in text.split(',') {
        let Some((_, meant)) = Type::WORDS.iter().find(|(known, _)| *known == word) else {
            complain(format!("invalid type '{word}' for -t option"));
            return Err(Failure::Silent(FAILED));
        };
        types.extend(meant.iter().copied());
    }
    Ok(types)
}

impl Request {
    fn has(&self, types: &[Type]) -> bool {
        self.types.iter().any(|one| types.contains(one))
    }
}

/// Name or number: names go before numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Text(String),
    Number(u32),
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Text(text) => write!(f, "{text}"),
            Name::Number(number) => write!(f, "{number}"),
        }
    }
}

/// A number of a row, and whether it counts for the width of its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Number {
    value: u64,
    is_own: bool,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    of: Type,
    name: Name,
    used: Option<Number>,
    quota: Option<Number>,
    objects_used: Option<Number>,
    object_quota: Option<Number>,
}

#[doc(alias = "userspace_cb")]
fn rows(request: &Request, owners: &Owners) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for owner in &owners.rows {
        let default = owners.defaults.iter().find(|one| one.kind == owner.kind);
        let (quota, object_quota) = default.map_or((0, 0), |one| (one.quota, one.object_quota));
        let (of, name) = who(request, owner)?;
        let (used, quota) = pair(owner.used, owner.quota, quota);
        let (objects_used, object_quota) =
            pair(owner.objects_used, owner.object_quota, object_quota);
        rows.push(Row {
            of,
            name,
            used,
            quota,
            objects_used,
            object_quota,
        });
    }
    rows.sort_by(|one, other| compare(request, one, other));
    Ok(rows)
}

/// What is used and what may be: users of space have a quota, if only the default, and those with a
/// quota uses something, if only nothing.
fn pair(used: Option<u64>, quota: Option<u64>, default: u64) -> (Option<Number>, Option<Number>) {
    let own = |value| Number {
        value,
        is_own: true,
    };
    let implied = |value| Number {
        value,
        is_own: false,
    };
    (
        used.map(own).or(quota.map(|_| implied(0))),
        quota.map(own).or(used.map(|_| implied(default))),
    )
}

fn who(request: &Request, owner: &OwnerUse) -> Result<(Type, Name), Failure> {
    let of = match (owner.kind, owner.domain.is_some()) {
        (OwnerKind::User, false) => Type::PosixUser,
        (OwnerKind::User, true) => Type::SmbUser,
        (OwnerKind::Group, false) => Type::PosixGroup,
        (OwnerKind::Group, true) => Type::SmbGroup,
        (OwnerKind::Project, _) => Type::Project,
    };
    let name = match (&owner.domain, &owner.name) {
        (Some(domain), _) => {
            let sid = format!("{domain}-{}", owner.id);
            if request.wants_posix_ids {
                let text = format!(
                    "cannot translate '{sid}' to a POSIX ID: not supported by this version of Tarn"
                );
                return Err(Failure::error(text));
            }
            Name::Text(sid)
        }
        (None, Some(name)) => Name::Text(name.clone()),
        (None, None) => Name::Number(owner.id),
    };
    Ok((of, name))
}

#[doc(alias = "us_compare")]
fn compare(request: &Request, one: &Row, other: &Row) -> Ordering {
    let value = |number: Option<Number>| number.map_or(0, |number| number.value);
    for key in &request.keys {
        let order = match key.by {
            "type" => one.of.cmp(&other.of),
            "name" => one.name.cmp(&other.name),
            "used" => value(one.used).cmp(&value(other.used)),
            "quota" => value(one.quota).cmp(&value(other.quota)),
            _ => Ordering::Equal,
        };
        if order != Ordering::Equal {
            return if key.descending {
                order.reverse()
            } else {
                order
            };
        }
    }
    Ordering::Equal
}

impl Row {
    fn number(&self, field: Field) -> Option<Number> {
        match field {
            Field::Type | Field::Name => None,
            Field::Used => self.used,
            Field::Quota => self.quota,
            Field::ObjectsUsed => self.objects_used,
            Field::ObjectQuota => self.object_quota,
        }
    }

    fn text(&self, field: Field, is_exact: bool) -> String {
        let is_quota = matches!(field, Field::Quota | Field::ObjectQuota);
        match (field, self.number(field)) {
            (Field::Type, _) => self.of.text().to_string(),
            (Field::Name, _) => self.name.to_string(),
            (_, None) => "-".to_string(),
            (_, Some(number)) if is_exact => number.value.to_string(),
            (_, Some(Number { value: 0, .. })) if is_quota => "none".to_string(),
            (Field::Used | Field::Quota, Some(number)) => nice_bytes(number.value),
            (_, Some(number)) => nice_count(number.value),
        }
    }

    /// What the width of a column looks at.
    fn width(&self, field: Field, is_exact: bool) -> usize {
        let counts = self.number(field).is_none_or(|number| number.is_own);
        match counts {
            true => self.text(field, is_exact).len(),
            false => 0,
        }
    }
}

#[doc(alias = "print_us")]
fn table(request: &Request, rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let width = |field: &Field| {
        let widths = rows.iter().map(|row| row.width(*field, request.is_exact));
        widths.fold(field.heading().len(), usize::max)
    };
    let widths: Vec<usize> = request.fields.iter().map(width).collect();
    let line = |cells: Vec<String>| {
        if request.is_scripted {
            return cells.join("\t") + "\n";
        }
        let padded = cells.iter().zip(&request.fields).zip(&widths);
        let padded = padded.map(|((cell, field), width)| match field.aligns_right() {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        padded.collect::<Vec<_>>().join("  ") + "\n"
    };
    let mut text = String::new();
    if !request.is_scripted {
        text.push_str(&line(
            request.fields.iter().map(|field| field.heading()).collect(),
        ));
    }
    for row in rows.iter().filter(|row| request.types.contains(&row.of)) {
        let cells = request.fields.iter();
        let cells = cells.map(|field| row.text(*field, request.is_exact));
        text.push_str(&line(cells.collect()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_administration::messages::dataset::OwnerDefaults;

    fn try_request(line: &str) -> Result<Request, Failure> {
        let mut words = line.split_whitespace().map(str::to_string);
        let subcommand = words.next().unwrap();
        parse(&subcommand, &words.collect::<Vec<_>>())
    }

    fn owner(kind: OwnerKind, id: u32, name: Option<&str>) -> OwnerUse {
        OwnerUse {
            kind,
            domain: None,
            id,
            name: name.map(str::to_string),
            used: None,
            quota: None,
            objects_used: None,
            object_quota: None,
        }
    }

    fn owners() -> Owners {
        let user = OwnerKind::User;
        let root = OwnerUse {
            used: Some(1536),
            objects_used: Some(7),
            ..owner(user, 0, Some("root"))
        };
        let ann = OwnerUse {
            used: Some(10 << 20),
            quota: Some(1 << 30),
            objects_used: Some(2048),
            object_quota: Some(4096),
            ..owner(user, 1000, Some("ann"))
        };
        let nobody = OwnerUse {
            quota: Some(5 << 20),
            ..owner(user, 7777, None)
        };
        Owners {
            rows: vec![root, ann, nobody],
            defaults: vec![OwnerDefaults {
                kind: user,
                quota: 2 << 30,
                object_quota: 0,
            }],
        }
    }

    fn shown(line: &str) -> String {
        let request = try_request(line).unwrap();
        table(&request, &rows(&request, &owners()).unwrap())
    }

    #[test]
    fn columns_are_those_of_openzfs() {
        assert_eq!(
            shown("userspace tank"),
            "TYPE        NAME   USED  QUOTA  OBJUSED  OBJQUOTA\n\
             POSIX User  ann     10M     1G       2K        4K\n\
             POSIX User  root  1.50K     2G        7      none\n\
             POSIX User  7777     0B     5M        -         -\n"
        );
        assert_eq!(
            shown("userspace -Hp -o name,used,quota tank"),
            "ann\t10485760\t1073741824\nroot\t1536\t2147483648\n7777\t0\t5242880\n"
        );
    }

    #[test]
    fn widths_look_at_what_was_set_and_not_at_defaults() {
        let text = shown("userspace -p -o quota -s used tank");
        assert_eq!(text, "     QUOTA\n   5242880\n2147483648\n1073741824\n");
    }

    #[test]
    fn rows_are_sorted_by_several_fields() {
        let names = |line: &str| shown(line).lines().map(str::to_string).collect::<Vec<_>>();
        assert_eq!(
            names("userspace -Ho name -S used tank"),
            ["ann", "root", "7777"]
        );
        assert_eq!(
            names("userspace -Ho name -s type -S name tank"),
            ["7777", "root", "ann"]
        );
        assert_eq!(
            names("userspace -Ho name -s quota tank"),
            ["7777", "ann", "root"]
        );
        assert_eq!(names("userspace -Ho name -t posixgroup tank"), [""; 0]);
    }

    #[test]
    fn nothing_has_no_heading() {
        let request = try_request("groupspace tank").unwrap();
        assert_eq!(table(&request, &[]), "");
    }

    #[test]
    fn users_of_windows_domains_have_sids_and_no_posix_ids() {
        let smb = OwnerUse {
            domain: Some("S-1-5-21-1".to_string()),
            used: Some(512),
            ..owner(OwnerKind::User, 500, None)
        };
        let owners = Owners {
            rows: vec![smb],
            defaults: Vec::new(),
        };
        let request = try_request("userspace -Ho type,name tank").unwrap();
        let found = rows(&request, &owners).unwrap();
        assert_eq!(table(&request, &found), "SMB User\tS-1-5-21-1-500\n");
        let request = try_request("userspace -i tank").unwrap();
        let refused = rows(&request, &owners).unwrap_err();
        assert_eq!(
            refused,
            Failure::error(
                "cannot translate 'S-1-5-21-1-500' to a POSIX ID: not supported by this version of Tarn"
            )
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, text) in [
            ("userspace", ""),
            ("userspace -H", "missing dataset name"),
            ("userspace tank dozer", "too many arguments"),
            ("userspace -s objused tank", "invalid field 'objused'"),
            ("projectspace -n tank", "invalid option 'n'"),
            ("projectspace -t all tank", "invalid option 't'"),
            ("groupspace -x tank", "invalid option 'x'"),
        ] {
            assert_eq!(
                try_request(line).unwrap_err(),
                Failure::usage(text),
                "{line}"
            );
        }
        for line in ["userspace -o size tank", "userspace -t smb tank"] {
            assert_eq!(
                try_request(line).unwrap_err(),
                Failure::Silent(255),
                "{line}"
            );
        }
        assert!(try_request("userspace -s creation -s a:b tank").is_ok());
    }
}
