//! `zfs mount`.

use serde_json::json;
use tarn_administration::messages::dataset::{ListMounts, Mount, MountEntry, Mounted};
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::json;
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: ":ajRlvo:Of",
    long: &[("json", "j")],
};

/// A command line, understood.
#[derive(Debug, PartialEq)]
enum Request {
    /// What is mounted.
    List { is_json: bool },
    /// Each of these.
    Mount(Vec<Mount>),
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why nothing could be asked.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let client = session.connect()?;
    let requests = match request {
        Request::Mount(requests) => requests,
        Request::List { is_json } => {
            let mounts = client.dataset_list_mounts(ListMounts {})?.mounts;
            match is_json {
                false => output::say(&table(&mounts)),
                true if mounts.is_empty() => {}
                true => {
                    let mut out = json::frame(session);
                    out.insert("datasets".into(), objects(&mounts));
                    json::print(out);
                }
            }
            return Ok(0);
        }
    };
    let mut has_failed = false;
    for request in requests {
        let Mounted { refused, .. } = client.dataset_mount(request)?;
        refused.iter().for_each(complain);
        has_failed |= !refused.is_empty();
    }
    Ok(u8::from(has_failed))
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut mount = Mount::default();
    let (mut is_all, mut is_json, mut loads_keys) = (false, false, false);
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "a" => is_all = true,
            "R" => mount.recursive = true,
            "j" => is_json = true,
            "l" => loads_keys = true,
            "o" if value.is_empty() => {
                return Err(Failure::usage("empty mount options (-o) specified"));
            }
            "o" => mount.options.extend(value.split(',').map(str::to_string)),
            "O" => mount.overlay = true,
            "f" => mount.force = true,
            // `-v` shows progress of what takes more than two seconds; the engine mounts all at
            // once.
            _ => {}
        }
    }
    let operands = options.operands();
    if (is_json || is_all) && !operands.is_empty() {
        return Err(Failure::usage("too many arguments"));
    }
    if mount.recursive && !is_all && operands.is_empty() {
        return Err(Failure::usage("no dataset provided"));
    }
    if loads_keys {
        return Err(Failure::error(
            "zfs mount -l: not supported by this version of Tarn",
        ));
    }
    match operands.as_slice() {
        [] if is_all => Ok(Request::Mount(vec![mount])),
        [] if !mount.options.is_empty() => Err(Failure::usage(
            "missing filesystem argument (specify -a for all)",
        )),
        [] => Ok(Request::List { is_json }),
        [_, _, ..] if !mount.recursive => Err(Failure::usage("too many arguments")),
        names => {
            let one = |name: &String| Mount {
                name: Some(name.clone()),
                ..mount.clone()
            };
            Ok(Request::Mount(names.iter().map(one).collect()))
        }
    }
}

fn table(mounts: &[MountEntry]) -> String {
    mounts
        .iter()
        .map(|mount| format!("{:<30}  {}\n", mount.dataset, mount.path))
        .collect()
}

fn objects(mounts: &[MountEntry]) -> serde_json::Value {
    let mut objects = json::Object::new();
    for mount in mounts {
        let object = json!({ "filesystem": mount.dataset, "mountpoint": mount.path });
        objects.insert(mount.dataset.clone(), object);
    }
    objects.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    fn mounts(line: &str) -> Vec<Mount> {
        match parsed(line) {
            Ok(Request::Mount(mounts)) => mounts,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_are_taken_apart() {
        let one = mounts("-O -o ro,noatime -o noexec tank/a").remove(0);
        assert_eq!(one.options, ["ro", "noatime", "noexec"]);
        assert!(one.overlay);
        assert_eq!(one.name.as_deref(), Some("tank/a"));
    }

    #[test]
    fn all_has_no_name_and_several_need_to_be_recursive() {
        assert_eq!(mounts("-a")[0].name, None);
        assert_eq!(mounts("-R tank/a tank/b").len(), 2);
        assert_eq!(
            parsed("tank/a tank/b"),
            Err(Failure::usage("too many arguments"))
        );
        assert_eq!(parsed("-a tank"), Err(Failure::usage("too many arguments")));
        assert_eq!(parsed("-R"), Err(Failure::usage("no dataset provided")));
        assert_eq!(
            parsed("-o ro"),
            Err(Failure::usage(
                "missing filesystem argument (specify -a for all)"
            ))
        );
    }

    #[test]
    fn mounts_are_listed_as_openzfs_does() {
        let mounts = [MountEntry {
            dataset: "tank/a".into(),
            path: "/tank/a".into(),
        }];
        assert_eq!(table(&mounts), "tank/a                          /tank/a\n");
        assert_eq!(
            objects(&mounts).to_string(),
            r#"{"tank/a":{"filesystem":"tank/a","mountpoint":"/tank/a"}}"#
        );
        assert_eq!(parsed("-j"), Ok(Request::List { is_json: true }));
    }
}
