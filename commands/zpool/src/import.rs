//! `zpool import`.

use crate::assignments::Assignments;
use crate::importable;
use crate::paths;
use tarn_administration::messages::pool::{FindImportable, Import, Imported, Search};
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: ":aCc:d:DEfFlmnNo:R:stT:VX",
    long: &[("rewind-to-checkpoint", "rewind-to-checkpoint")],
};

/// A command line, understood.
#[derive(Debug, PartialEq)]
enum Request {
    /// What could be imported.
    Find(Search),
    /// This pool, or all of them.
    Import(Box<Import>),
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why nothing was imported.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    match parse(arguments)? {
        Request::Find(search) => {
            let found = session
                .connect()?
                .pool_find_importable(FindImportable { search })?;
            if found.pools.is_empty() {
                complain("no pools available to import");
            }
            output::say(&importable::text(&found.pools));
            Ok(0)
        }
        Request::Import(import) => {
            let is_all = import.pool.is_none();
            let imported = session.connect()?.pool_import(*import)?;
            Ok(tell(&imported, is_all))
        }
    }
}

/// Says what went wrong, and gives the exit code.
fn tell(imported: &Imported, is_all: bool) -> u8 {
    for note in &imported.notes {
        output::say(&format!("{note}\n"));
    }
    imported.warnings.iter().for_each(complain);
    imported.refused.iter().for_each(complain);
    if is_all
        && imported.pools.is_empty()
        && imported.refused.is_empty()
        && !imported.is_trial_failed
    {
        complain("no pools available to import");
    }
    u8::from(!imported.refused.is_empty() || imported.is_trial_failed)
}

/// The options that are not values of the request itself.
#[derive(Debug, Default)]
struct Flags {
    is_all: bool,
    scans: bool,
    loads_keys: bool,
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut import = Import::default();
    let mut flags = Flags::default();
    let mut assignments = Assignments::of_pool();
    let mut mount_options = None;
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "a" => flags.is_all = true,
            "c" => import.search.cache_file = Some(paths::absolute(&value)),
            "d" => import.search.places.push(paths::absolute(&value)),
            "D" => import.search.destroyed = true,
            "f" => import.force = true,
            "F" => import.rewind = true,
            "l" => flags.loads_keys = true,
            "m" => import.missing_log = true,
            "n" => import.dry_run = true,
            "N" => import.no_mount = true,
            "o" => match value.split_once('=') {
                Some((name, value)) => assignments.add(name, value)?,
                None => mount_options = Some(value),
            },
            "R" => {
                assignments.add("altroot", &value)?;
                assignments.add_default("cachefile", "none");
            }
            "s" => flags.scans = true,
            "t" => {
                import.temporary = true;
                assignments.add_default("cachefile", "none");
            }
            // All that -F and -X do, from there on.
            "T" => {
                import.txg = Some(txg(&value)?);
                import.rewind = true;
                import.extreme = true;
            }
            "V" => return Err(unbuilt(option)),
            "rewind-to-checkpoint" => import.rewinds_to_checkpoint = true,
            "X" => import.extreme = true,
            // Letters that OpenZFS takes and does not use.
            _ => {}
        }
    }
    let operands = options.operands();
    check(&import, &flags, operands.len())?;
    if flags.loads_keys {
        return Err(unbuilt("l"));
    }
    if import.search.places.is_empty() && import.search.cache_file.is_none() {
        import.search.places = places_of_environment();
    }
    import.altroot = assignments.take("altroot");
    import.properties = assignments.into_pairs();
    import
        .properties
        .extend(mount_options.map(|words| (words, String::new())));
    let mut operands = operands.into_iter();
    import.pool = operands.next();
    import.rename = operands.next();
    Ok(match import.pool.is_some() || flags.is_all {
        true => Request::Import(Box::new(import)),
        false => Request::Find(import.search),
    })
}

/// Refuses options that do not go together.
fn check(import: &Import, flags: &Flags, operand_count: usize) -> Result<(), Failure> {
    let has_cache_file = import.search.cache_file.is_some();
    let operands_max = if flags.is_all { 0 } else { 2 };
    for (is_wrong, text) in [
        (
            has_cache_file && !import.search.places.is_empty(),
            "-c is incompatible with -d",
        ),
        (has_cache_file && flags.scans, "-c is incompatible with -s"),
        (
            flags.loads_keys && import.no_mount,
            "-l is incompatible with -N",
        ),
        (
            flags.loads_keys && !flags.is_all && operand_count == 0,
            "-l is only meaningful during an import",
        ),
        (
            (import.dry_run || import.extreme) && !import.rewind,
            "-n or -X only meaningful with -F",
        ),
        (operand_count > operands_max, "too many arguments"),
    ] {
        if is_wrong {
            return Err(Failure::usage(text));
        }
    }
    Ok(())
}

fn unbuilt(option: &str) -> Failure {
    let dashes = if option.len() == 1 { "-" } else { "--" };
    Failure::error(format!(
        "zpool import {dashes}{option}: not supported by this version of Tarn"
    ))
}

/// A number of a txg, in any of the bases of C.
fn txg(text: &str) -> Result<u64, Failure> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(text, 8),
        None => text.parse(),
    };
    parsed.map_err(|_| Failure::usage("invalid txg value"))
}

/// Where to look when no option says it.
fn places_of_environment() -> Vec<String> {
    let places = std::env::var("ZPOOL_IMPORT_PATH").unwrap_or_default();
    let places = places.split(':').filter(|place| !place.is_empty());
    places.map(paths::absolute).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    fn import(line: &str) -> Import {
        match parsed(line).unwrap() {
            Request::Import(import) => *import,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_a_name_pools_are_only_found() {
        let search = Search {
            places: vec!["/a".into(), "/b".into()],
            destroyed: true,
            ..Search::default()
        };
        assert_eq!(parsed("-D -d /a -d /b"), Ok(Request::Find(search)));
    }

    #[test]
    fn a_pool_may_be_imported_under_another_name_and_root() {
        let import = import("-fN -d /a -o readonly=on -o noatime -R /mnt tank other");
        assert_eq!(import.pool.as_deref(), Some("tank"));
        assert_eq!(import.rename.as_deref(), Some("other"));
        assert_eq!(import.altroot.as_deref(), Some("/mnt"));
        assert!(import.force && import.no_mount);
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(
            import.properties,
            [
                pair("readonly", "on"),
                pair("cachefile", "none"),
                pair("noatime", "")
            ]
        );
    }

    #[test]
    fn a_pool_is_rewound_to_its_checkpoint_on_demand() {
        assert!(import("--rewind-to-checkpoint tank").rewinds_to_checkpoint);
        assert!(!import("tank").rewinds_to_checkpoint);
    }

    #[test]
    fn all_pools_have_no_names() {
        assert_eq!(import("-a -m").pool, None);
        assert!(import("-a -m").missing_log);
    }

    #[test]
    fn what_makes_no_sense_or_is_missing_is_refused() {
        for (line, failure) in [
            ("-c /x -d /y", Failure::usage("-c is incompatible with -d")),
            ("-c /x -s", Failure::usage("-c is incompatible with -s")),
            (
                "-n tank",
                Failure::usage("-n or -X only meaningful with -F"),
            ),
            ("-a tank", Failure::usage("too many arguments")),
            ("a b c", Failure::usage("too many arguments")),
            ("-d", Failure::usage("missing argument for 'd' option")),
            ("-T x tank", Failure::usage("invalid txg value")),
            (
                "-l",
                Failure::usage("-l is only meaningful during an import"),
            ),
            (
                "-l tank",
                Failure::error("zpool import -l: not supported by this version of Tarn"),
            ),
            ("-o nonsense=on tank", Failure::Silent(1)),
        ] {
            assert_eq!(parsed(line).unwrap_err(), failure, "{line}");
        }
    }

    #[test]
    fn one_pool_that_is_refused_is_a_failure() {
        use tarn_administration::messages::{Refusal, RefusalKind};
        let refusal = Refusal::new(RefusalKind::Device, "cannot import 'tank'", "I/O error");
        let imported = Imported {
            refused: vec![refusal],
            ..Imported::default()
        };
        assert_eq!(tell(&imported, true), 1);
        assert_eq!(tell(&Imported::default(), true), 0);
    }
}
