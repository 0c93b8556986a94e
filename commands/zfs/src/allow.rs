//! `zfs allow` and `zfs unallow`.

use crate::allow_usage::{Verb, misused, text};
use std::collections::BTreeMap;
use tarn_administration::messages::delegation::{
    Allow, Allowed, AllowedAt, Grant, Holder, ListAllowed, Unallow,
};
use tarn_api::client::{CallError, Client};
use tarn_engine::{AccountKind, account_name, find_account};
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output::say;
use tarn_terminal::program::Session;

const ALLOW: Grammar = Grammar {
    short: "ldugecsh",
    long: &[],
};

const UNALLOW: Grammar = Grammar {
    short: "ldugecsrh",
    long: &[],
};

/// OpenZFS gives its `-1` on as an exit code where it cannot open the dataset.
const NOT_OPENED: u8 = 255;

/// How wide the line is that says which dataset it is.
const HEADING_WIDTH: usize = 70;

/// The options.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Chosen {
    local: bool,
    descendent: bool,
    user: bool,
    group: bool,
    everyone: bool,
    create: bool,
    set: bool,
    recursive: bool,
    help: bool,
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Help,
    Show { dataset: String },
    Change(Change),
}

/// What is given or taken back.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    whom: Whom,
    local: bool,
    descendent: bool,
    /// None to take back all.
    permissions: Option<String>,
    recursive: bool,
    dataset: String,
}

/// The receivers, as they were given.
#[derive(Debug, PartialEq, Eq)]
enum Whom {
    Set(String),
    Creator,
    Everyone,
    /// Names or numbers, with commas between.
    Users(String),
    Groups(String),
    /// The same; users first.
    Either(String),
}

/// Runs `zfs allow`.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn allow(session: &Session, arguments: &[String]) -> Outcome {
    run(session, arguments, Verb::Allow)
}

/// Runs `zfs unallow`.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn unallow(session: &Session, arguments: &[String]) -> Outcome {
    run(session, arguments, Verb::Unallow)
}

fn run(session: &Session, arguments: &[String], verb: Verb) -> Outcome {
    let change = match parse(arguments, verb)? {
        Asked::Help => {
            say(&text(verb, None));
            return Ok(0);
        }
        Asked::Show { dataset } => {
            let allowed = look(&session.connect()?, dataset)?;
            say(&shown(&allowed, &name_of));
            return Ok(0);
        }
        Asked::Change(change) => change,
    };
    let client = session.connect()?;
    look(&client, change.dataset.clone())?;
    let holders = match holders(&change.whom) {
        Ok(holders) => holders,
        Err(unknown) => {
            // As OpenZFS has it: as if the text had been asked for.
            say(&text(verb, Some(&unknown)));
            return Ok(0);
        }
    };
    let permissions = change.permissions.as_deref().unwrap_or_default();
    let permissions = permissions.split(',').filter(|name| !name.is_empty());
    let permissions: Vec<String> = permissions.map(str::to_string).collect();
    let grants = holders.into_iter().map(|holder| Grant {
        holder,
        local: change.local,
        descendent: change.descendent,
        permissions: permissions.clone(),
    });
    let grants: Vec<Grant> = grants.collect();
    match verb {
        Verb::Allow => client.dataset_allow(Allow {
            name: change.dataset,
            grants,
        })?,
        Verb::Unallow => client.dataset_unallow(Unallow {
            name: change.dataset,
            grants,
            recursive: change.recursive,
        })?,
    };
    Ok(0)
}

/// What is delegated there, or why it cannot be found out.
fn look(client: &Client, dataset: String) -> Result<Allowed, Failure> {
    let listed = client.dataset_list_allowed(ListAllowed {
        name: dataset.clone(),
    });
    match listed {
        Err(CallError::Refused(refusal)) if refusal.action.starts_with("cannot open") => {
            complain(&refusal);
            complain(format!("Failed to open dataset: {dataset}"));
            Err(Failure::Silent(NOT_OPENED))
        }
        listed => Ok(listed?),
    }
}

fn parse(arguments: &[String], verb: Verb) -> Result<Asked, Failure> {
    let grammar = match verb {
        Verb::Allow => ALLOW,
        Verb::Unallow => UNALLOW,
    };
    let mut chosen = Chosen::default();
    let mut options = Options::new(grammar, arguments);
    while let Some((option, _)) = options.take()? {
        let flag = match option {
            "l" => &mut chosen.local,
            "d" => &mut chosen.descendent,
            "u" => &mut chosen.user,
            "g" => &mut chosen.group,
            "e" => &mut chosen.everyone,
            "c" => &mut chosen.create,
            "s" => &mut chosen.set,
            "r" => &mut chosen.recursive,
            _ => &mut chosen.help,
        };
        *flag = true;
    }
    understand(chosen, &options.operands(), verb)
}

/// Refuses options that do not go together, and finds out what the operands are.
#[doc(alias = "parse_allow_args")]
fn understand(chosen: Chosen, operands: &[String], verb: Verb) -> Result<Asked, Failure> {
    let count = |flags: &[bool]| flags.iter().filter(|flag| **flag).count();
    let Chosen {
        local,
        descendent,
        user,
        group,
        everyone,
        create,
        set,
        recursive,
        help,
    } = chosen;
    let holders = count(&[user, group, everyone]);
    let kinds = holders + count(&[create, set]);
    let all = kinds + count(&[local, descendent]);
    if holders > 1 {
        return Err(misused(verb, "-u, -g, and -e are mutually exclusive"));
    }
    if help {
        return match operands.is_empty() && all + count(&[recursive]) == 0 {
            true => Ok(Asked::Help),
            false => Err(Failure::usage("")),
        };
    }
    let (whom, rest): (Whom, &[String]) = if set {
        if kinds > 1 {
            return Err(misused(verb, "invalid options combined with -s"));
        }
        let rest = counted(operands, 3, verb)?;
        if !operands[0].starts_with('@') {
            return Err(misused(verb, "invalid set name: missing '@' prefix"));
        }
        (Whom::Set(operands[0].clone()), rest)
    } else if create {
        if all > 1 {
            return Err(misused(verb, "invalid options combined with -c"));
        }
        (Whom::Creator, counted(operands, 2, verb)?)
    } else if everyone {
        if kinds > 1 {
            return Err(misused(verb, "invalid options combined with -e"));
        }
        (Whom::Everyone, counted(operands, 2, verb)?)
    } else if holders == 0 && operands.first().is_some_and(|first| first == "everyone") {
        (Whom::Everyone, counted(&operands[1..], 2, verb)?)
    } else if let ([dataset], Verb::Allow) = (operands, verb) {
        let dataset = dataset.clone();
        return Ok(Asked::Show { dataset });
    } else {
        let rest = counted(operands, 3, verb)?;
        let names = operands[0].clone();
        let whom = match (user, group) {
            (true, _) => Whom::Users(names),
            (_, true) => Whom::Groups(names),
            _ => Whom::Either(names),
        };
        (whom, rest)
    };
    let says_where = local || descendent;
    let (permissions, dataset) = match rest {
        [permissions, dataset] => (Some(permissions.clone()), dataset),
        [.., dataset] => (None, dataset),
        [] => return Err(misused(verb, "wrong number of parameters")),
    };
    Ok(Asked::Change(Change {
        whom,
        local: local || !says_where,
        descendent: descendent || !says_where,
        permissions,
        recursive,
        dataset: dataset.clone(),
    }))
}

/// The permissions and the dataset, which are the last of so many operands. To take back,
/// permissions may be missing.
#[doc(alias = "munge_args")]
fn counted(operands: &[String], expected: usize, verb: Verb) -> Result<&[String], Failure> {
    let count = operands.len();
    match verb {
        _ if count == expected => Ok(&operands[count - 2..]),
        Verb::Unallow if count + 1 == expected => Ok(&operands[count - 1..]),
        _ => Err(misused(verb, "wrong number of parameters")),
    }
}

/// The numbers of those that are named, or the message for an unknown name.
#[doc(alias = "construct_fsacl_list")]
fn holders(whom: &Whom) -> Result<Vec<Holder>, String> {
    use AccountKind::{Group, User};
    let (names, kinds, what): (_, &[AccountKind], _) = match whom {
        Whom::Set(name) => return Ok(vec![Holder::Set(name.clone())]),
        Whom::Creator => return Ok(vec![Holder::Creator]),
        Whom::Everyone => return Ok(vec![Holder::Everyone]),
        Whom::Users(names) => (names, &[User], "user"),
        Whom::Groups(names) => (names, &[Group], "group"),
        Whom::Either(names) => (names, &[User, Group], "user/group"),
    };
    let holder = |kind, id| match kind {
        User => Holder::User(id),
        Group => Holder::Group(id),
    };
    let names = names.split(',').filter(|name| !name.is_empty());
    let found = names.map(|name| {
        let number = number(name);
        let is_known = |kind: &AccountKind| match number {
            Some(id) => account_name(*kind, id).map(|_| id),
            None => find_account(*kind, name),
        };
        let known = kinds
            .iter()
            .find_map(|kind| Some(holder(*kind, is_known(kind)?)));
        // A number may be unknown, where `-u` or `-g` says what it is.
        let any = match kinds {
            [kind] => number.map(|id| holder(*kind, id)),
            _ => None,
        };
        known
            .or(any)
            .ok_or_else(|| format!("invalid {what} {name}"))
    });
    found.collect()
}

/// A number as the C library reads one: decimal, or octal or hexadecimal by how it begins.
#[doc(alias = "strtol")]
fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match (text.strip_prefix("0x"), text.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (text, 10),
    };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(digits, radix)
        .ok()
        .filter(|_| is_number)
}

/// A user or group, by name or number.
fn name_of(kind: AccountKind, id: u32) -> Option<String> {
    account_name(kind, id)
}

/// Permissions by name, with where they are for: the dataset itself, what is below it.
type Permissions = BTreeMap<String, (bool, bool)>;

/// What is delegated, as OpenZFS prints it.
#[doc(alias = "print_fs_perms")]
fn shown(allowed: &Allowed, name_of: &dyn Fn(AccountKind, u32) -> Option<String>) -> String {
    let places = allowed.places.iter();
    places.map(|place| shown_place(place, name_of)).collect()
}

fn shown_place(place: &AllowedAt, name_of: &dyn Fn(AccountKind, u32) -> Option<String>) -> String {
    let mut sets: BTreeMap<String, Permissions> = BTreeMap::new();
    let mut creators = Permissions::new();
    // By kind of holder, and then by the digits of the number.
    let mut holders: BTreeMap<(u8, String), (String, Permissions)> = BTreeMap::new();
    for grant in &place.grants {
        let mut of_holder = |rank: u8, id: String, shown: String| {
            let entry = holders.entry((rank, id));
            add(&mut entry.or_insert((shown, Permissions::new())).1, grant);
        };
        let named = |word, kind, id: u32| match name_of(kind, id) {
            Some(name) => format!("{word} {name}"),
            None => format!("{word} (unknown: {})", id.cast_signed()),
        };
        match &grant.holder {
            Holder::Set(name) => add(sets.entry(name.clone()).or_default(), grant),
            Holder::Creator => add(&mut creators, grant),
            Holder::User(id) => {
                of_holder(0, id.to_string(), named("user", AccountKind::User, *id));
            }
            Holder::Group(id) => {
                of_holder(1, id.to_string(), named("group", AccountKind::Group, *id));
            }
            Holder::Everyone => of_holder(2, String::new(), "everyone".to_string()),
        }
    }
    let heading = format!("---- Permissions on {} ", place.dataset);
    let mut text = format!("{heading:-<HEADING_WIDTH$}\n");
    let all = |permissions: &Permissions| -> String {
        let names: Vec<&str> = permissions.keys().map(String::as_str).collect();
        names.join(",")
    };
    if !sets.is_empty() {
        text += "Permission sets:\n";
        for (name, permissions) in &sets {
            text += &format!("\t{name} {}\n", all(permissions));
        }
    }
    if !creators.is_empty() {
        text += &format!("Create time permissions:\n\t{}\n", all(&creators));
    }
    for (title, scope) in [
        ("Local permissions:\n", (true, false)),
        ("Descendent permissions:\n", (false, true)),
        ("Local+Descendent permissions:\n", (true, true)),
    ] {
        let lines = holders.values().filter_map(|(holder, permissions)| {
            let here = permissions.iter().filter(|(_, found)| **found == scope);
            let names: Vec<&str> = here.map(|(name, _)| name.as_str()).collect();
            (!names.is_empty()).then(|| format!("\t{holder} {}\n", names.join(",")))
        });
        let lines: String = lines.collect();
        if !lines.is_empty() {
            text += title;
            text += &lines;
        }
    }
    text
}

fn add(permissions: &mut Permissions, grant: &Grant) {
    for name in &grant.permissions {
        let (local, descendent) = permissions.entry(name.clone()).or_default();
        *local |= grant.local;
        *descendent |= grant.descendent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str, verb: Verb) -> Result<Asked, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words, verb)
    }

    fn change(line: &str, verb: Verb) -> Change {
        match parsed(line, verb).unwrap() {
            Asked::Change(change) => change,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_form_has_receivers_permissions_and_places() {
        let of = change("-u ann,bob send,@a tank/a", Verb::Allow);
        assert_eq!(of.whom, Whom::Users("ann,bob".to_string()));
        assert_eq!(of.permissions.as_deref(), Some("send,@a"));
        assert!(of.local && of.descendent);
        let of = change("-ld everyone send tank", Verb::Allow);
        assert_eq!(of.whom, Whom::Everyone);
        let of = change("-d -e send tank", Verb::Allow);
        assert!(of.whom == Whom::Everyone && !of.local && of.descendent);
        let of = change("-c send tank", Verb::Allow);
        assert_eq!(of.whom, Whom::Creator);
        let of = change("-s @a send tank", Verb::Allow);
        assert_eq!(of.whom, Whom::Set("@a".to_string()));
        let of = change("-g wheel send tank", Verb::Allow);
        assert_eq!(of.whom, Whom::Groups("wheel".to_string()));
        let of = change("ann send tank", Verb::Allow);
        assert_eq!(of.whom, Whom::Either("ann".to_string()));
        let of = change("-r ann tank", Verb::Unallow);
        assert!(of.recursive && of.permissions.is_none());
        let of = change("everyone tank", Verb::Unallow);
        assert!(of.whom == Whom::Everyone && of.permissions.is_none());
        let dataset = "tank/a".to_string();
        assert_eq!(parsed("tank/a", Verb::Allow), Ok(Asked::Show { dataset }));
        assert_eq!(parsed("-h", Verb::Allow), Ok(Asked::Help));
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for line in [
            "-u -g ann send tank",
            "-s a send tank",
            "-s -c @a send tank",
            "-c -l send tank",
            "-e -s send tank",
            "ann tank",
            "ann send tank more",
            "",
        ] {
            assert_eq!(parsed(line, Verb::Allow), Err(Failure::Silent(2)), "{line}");
        }
        assert_eq!(parsed("tank", Verb::Unallow), Err(Failure::Silent(2)));
        assert_eq!(parsed("-h tank", Verb::Allow), Err(Failure::usage("")));
        let unknown = Err(Failure::usage("invalid option 'r'"));
        assert_eq!(parsed("-r ann send tank", Verb::Allow), unknown);
    }

    #[test]
    fn numbers_are_read_as_the_library_reads_them() {
        assert_eq!(number("1000"), Some(1000));
        assert_eq!(number("0x3e8"), Some(1000));
        assert_eq!(number("010"), Some(8));
        assert_eq!(number("0"), Some(0));
        assert_eq!(number("ann"), None);
        assert_eq!(number("7a"), None);
        assert_eq!(number("+7"), None);
        let nobody = Whom::Users("4294967000".to_string());
        assert_eq!(holders(&nobody), Ok(vec![Holder::User(4_294_967_000)]));
        let nobody = Whom::Either("no-such-user".to_string());
        let told = "invalid user/group no-such-user".to_string();
        assert_eq!(holders(&nobody), Err(told));
    }

    #[test]
    fn permissions_are_shown_as_openzfs_shows_them() {
        let grant = |holder, local, descendent, names: &str| Grant {
            holder,
            local,
            descendent,
            permissions: names.split(',').map(str::to_string).collect(),
        };
        let set = || Holder::Set("@basic".to_string());
        let allowed = Allowed {
            places: vec![AllowedAt {
                dataset: "tank/users".to_string(),
                grants: vec![
                    grant(set(), false, false, "snapshot,hold"),
                    grant(set(), false, false, "@more"),
                    grant(Holder::Creator, false, false, "destroy"),
                    grant(Holder::Everyone, true, true, "mount"),
                    grant(Holder::User(1000), true, false, "create,send"),
                    grant(Holder::User(1000), false, true, "create"),
                    grant(Holder::User(7), true, false, "send"),
                    grant(Holder::Group(50), false, true, "@basic"),
                ],
            }],
        };
        let name_of = |_, id| (id == 1000).then(|| "ann".to_string());
        let expected = "---- Permissions on tank/users ---------------------------------------\n\
                        Permission sets:\n\
                        \t@basic @more,hold,snapshot\n\
                        Create time permissions:\n\
                        \tdestroy\n\
                        Local permissions:\n\
                        \tuser ann send\n\
                        \tuser (unknown: 7) send\n\
                        Descendent permissions:\n\
                        \tgroup (unknown: 50) @basic\n\
                        Local+Descendent permissions:\n\
                        \tuser ann create\n\
                        \teveryone mount\n";
        assert_eq!(shown(&allowed, &name_of), expected);
    }
}
