//! `zpool create`.

use crate::assignments::Assignments;
use crate::planned;
use crate::vdev_grammar;
use crate::vdevs::Names;
use tarn_administration::messages::pool::{Create, Created, VdevRole};
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: ":fndR:m:o:O:t:",
    long: &[],
};

/// The version from which pools have features.
const VERSION_FEATURES: u64 = 5000;

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let (mut request, vdevs) = parse(arguments)?;
    request.vdevs = vdev_grammar::parse(&vdevs).map_err(Failure::Error)?;
    check_vdevs(&request)?;
    if let Some(bad) = bad_path(&request) {
        return Err(Failure::Error(bad));
    }
    let is_dry = request.dry_run;
    let shown = dry_run_text(&request);
    let created = session.connect()?.pool_create(request)?;
    if is_dry {
        output::say(&shown);
        return Ok(0);
    }
    Ok(tell(&created))
}

/// What `-n` prints.
fn dry_run_text(request: &Create) -> String {
    format!(
        "would create '{}' with the following layout:\n\n{}",
        request.name,
        planned::tree(&request.name, &[], &request.vdevs, Names::default())
    )
}

/// Says what is worth knowing; a pool that was made and could not be mounted is a failure.
fn tell(created: &Created) -> u8 {
    created.notes.iter().for_each(complain);
    created.warnings.iter().for_each(complain);
    u8::from(!created.warnings.is_empty())
}

/// The request without its vdevs, and the words that name these.
fn parse(arguments: &[String]) -> Result<(Create, Vec<String>), Failure> {
    let mut request = Create::default();
    let mut of_pool = Assignments::of_pool();
    let mut of_dataset = Assignments::of_dataset();
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "f" => request.force = true,
            "n" => request.dry_run = true,
            "d" => request.no_features = true,
            "R" => {
                of_pool.add("altroot", &value)?;
                of_pool.add_default("cachefile", "none");
            }
            "m" => request.mountpoint = Some(value),
            "o" => {
                let (name, value) = assignment(option, &value)?;
                of_pool.add(name, value)?;
                let is_old = |text: &str| text.parse().is_ok_and(|v: u64| v < VERSION_FEATURES);
                request.no_features |= name == "version" && is_old(value);
            }
            "O" => match assignment(option, &value)? {
                ("mountpoint", path) => request.mountpoint = Some(path.to_string()),
                (name, value) => of_dataset.add(name, value)?,
            },
            _ => {
                check_temporary_name(&value)?;
                of_pool.add_default("cachefile", "none");
                request.temporary_name = Some(value);
            }
        }
    }
    let mut operands = options.operands();
    match operands.len() {
        0 => return Err(Failure::usage("missing pool name argument")),
        1 => return Err(Failure::usage("missing vdev specification")),
        _ => request.name = operands.remove(0),
    }
    if request.name.contains('/') {
        return Err(Failure::error(format!(
            "cannot create '{}': invalid character '/' in pool name\n\
             use 'zfs create' to create a dataset",
            request.name
        )));
    }
    request.altroot = of_pool.take("altroot");
    request.properties = of_pool.into_pairs();
    request.dataset_properties = of_dataset.into_pairs();
    Ok((request, operands))
}

/// `name=value` of an option.
pub fn assignment<'a>(option: &str, text: &'a str) -> Result<(&'a str, &'a str), Failure> {
    text.split_once('=')
        .ok_or_else(|| Failure::error(format!("missing '=' for -{option} option")))
}

fn check_temporary_name(name: &str) -> Result<(), Failure> {
    match name.contains('/') {
        true => Err(Failure::error(format!(
            "cannot create '{name}': invalid character '/' in temporary name\n\
             use 'zfs create' to create a dataset"
        ))),
        false => Ok(()),
    }
}

/// Something has to be there to store data in.
fn check_vdevs(request: &Create) -> Result<(), Failure> {
    let stores = |role| !matches!(role, VdevRole::Spare | VdevRole::Cache);
    if !request.vdevs.iter().any(|spec| stores(spec.role)) {
        return Err(Failure::error(
            "invalid vdev specification: at least one toplevel vdev must be specified",
        ));
    }
    if !request.vdevs.iter().any(|spec| spec.role == VdevRole::Data) {
        let hint = match request.force {
            true => "the following errors must be manually repaired:",
            false => "use '-f' to override the following errors:",
        };
        return Err(Failure::error(format!(
            "invalid vdev specification\n{hint}\nat least one general top-level vdev must be specified"
        )));
    }
    Ok(())
}

/// What is wrong with the alternate root or the mount point.
fn bad_path(request: &Create) -> Option<String> {
    let is_whole = |path: &str| path.starts_with('/');
    if let Some(root) = request.altroot.as_deref().filter(|root| !is_whole(root)) {
        return Some(format!(
            "invalid alternate root '{root}': must be an absolute path"
        ));
    }
    let is_good = |path: &str| is_whole(path) || path == "legacy" || path == "none";
    let path = request
        .mountpoint
        .as_deref()
        .filter(|path| !is_good(path))?;
    Some(format!(
        "invalid mountpoint '{path}': must be an absolute path, 'legacy', or 'none'"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_administration::messages::pool::{VdevKind, VdevSpec};

    fn parsed(line: &str) -> Result<(Create, Vec<String>), Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    fn with_roles(roles: &[VdevRole], force: bool) -> Create {
        let spec = |role: &VdevRole| VdevSpec {
            kind: VdevKind::Leaf,
            path: Some("/a".to_string()),
            children: Vec::new(),
            role: *role,
        };
        Create {
            vdevs: roles.iter().map(spec).collect(),
            force,
            ..Create::default()
        }
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_string(), value.to_string())
    }

    #[test]
    fn properties_go_to_the_pool_or_to_its_root() {
        let (request, vdevs) = parsed(
            "-f -o ashift=12 -o feature@zstd_compress=disabled -O compress=zstd -O mountpoint=none \
             -R /mnt tank mirror a b",
        )
        .unwrap();
        assert_eq!(vdevs, ["mirror", "a", "b"]);
        assert!(request.force && !request.dry_run && !request.no_features);
        assert_eq!(request.altroot.as_deref(), Some("/mnt"));
        assert_eq!(request.mountpoint.as_deref(), Some("none"));
        assert_eq!(
            request.properties,
            [
                pair("ashift", "12"),
                pair("feature@zstd_compress", "disabled"),
                pair("cachefile", "none")
            ]
        );
        assert_eq!(request.dataset_properties, [pair("compression", "zstd")]);
    }

    #[test]
    fn the_last_mountpoint_counts_and_an_old_version_has_no_features() {
        let (request, _) = parsed("-O mountpoint=/a -m /b -o version=28 tank a").unwrap();
        assert_eq!(request.mountpoint.as_deref(), Some("/b"));
        assert!(request.no_features);
        assert!(!parsed("-o version=5000 tank a").unwrap().0.no_features);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, failure) in [
            ("", Failure::usage("missing pool name argument")),
            ("tank", Failure::usage("missing vdev specification")),
            ("-o", Failure::usage("missing argument for 'o' option")),
            ("-Q tank a", Failure::usage("invalid option 'Q'")),
            (
                "-o ashift tank a",
                Failure::error("missing '=' for -o option"),
            ),
            (
                "-O atime tank a",
                Failure::error("missing '=' for -O option"),
            ),
            ("-o nonsense=1 tank a", Failure::Silent(1)),
            (
                "tank/a b",
                Failure::error(
                    "cannot create 'tank/a': invalid character '/' in pool name\n\
                     use 'zfs create' to create a dataset",
                ),
            ),
        ] {
            assert_eq!(parsed(line).unwrap_err(), failure, "{line}");
        }
    }

    #[test]
    fn a_pool_has_something_to_store_data_in() {
        assert!(check_vdevs(&with_roles(&[VdevRole::Data, VdevRole::Log], false)).is_ok());
        assert_eq!(
            check_vdevs(&with_roles(&[VdevRole::Spare], false)),
            Err(Failure::error(
                "invalid vdev specification: at least one toplevel vdev must be specified"
            ))
        );
        assert_eq!(
            check_vdevs(&with_roles(&[VdevRole::Log], true)),
            Err(Failure::error(
                "invalid vdev specification\nthe following errors must be manually repaired:\n\
                 at least one general top-level vdev must be specified"
            ))
        );
    }

    #[test]
    fn paths_begin_at_the_root() {
        let with = |mountpoint: &str, altroot: Option<&str>| Create {
            mountpoint: Some(mountpoint.to_string()),
            altroot: altroot.map(str::to_string),
            ..Create::default()
        };
        assert_eq!(bad_path(&with("legacy", Some("/mnt"))), None);
        assert_eq!(
            bad_path(&with("/a", Some("mnt"))).unwrap(),
            "invalid alternate root 'mnt': must be an absolute path"
        );
        assert_eq!(
            bad_path(&with("a", None)).unwrap(),
            "invalid mountpoint 'a': must be an absolute path, 'legacy', or 'none'"
        );
    }

    #[test]
    fn a_pool_that_is_not_mounted_is_a_failure_and_a_note_is_none() {
        let noted = Created {
            notes: vec!["Warning: a feature".to_string()],
            ..Created::default()
        };
        assert_eq!(tell(&noted), 0);
        let unmounted = Created {
            warnings: vec!["cannot mount 'tank': busy".to_string()],
            ..Created::default()
        };
        assert_eq!(tell(&unmounted), 1);
    }
}
