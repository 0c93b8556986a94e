//! `mount.zfs`: what mount(8) runs for `mount -t zfs` and the lines of type `zfs` in `/etc/fstab`.
//!
//! # Mechanism
//! The program `zfs` is this when it is called by the name `mount.zfs`, as mount(8) finds it in
//! `/sbin`. It asks the daemon to mount the file system in the folder that mount(8) says. The
//! daemon mounts in its own mount namespace; a folder that is in another one is refused, for no
//! process there would see the mount.
//!
//! # What is not as in OpenZFS
//! Snapshots are not mounted by themselves: they are in `.zfs/snapshot`.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use tarn_administration::messages::dataset::{DatasetKind, Describe, Mount};
use tarn_administration::messages::{Refusal, RefusalKind, Value};
use tarn_api::client::{CallError, Client};
use tarn_engine::mount_options::is_known;
use tarn_terminal::connection;
use tarn_terminal::failure::{Failure, complain};
use tarn_terminal::output;

/// The name under which mount(8) calls.
pub const NAME: &str = "mount.zfs";

/// Exit codes that mount(8) understands.
mod code {
    /// Wrong use, or not allowed.
    pub const USAGE: u8 = 1;
    /// The system, or the daemon, cannot.
    pub const SYSTEM: u8 = 2;
    /// It is in use.
    pub const BUSY: u8 = 32;
}

const USAGE: &str = "Usage: mount.zfs [-sfnvh] [-o options] <dataset> <mountpoint>";

/// A call of mount(8), understood.
#[derive(Debug, Default, PartialEq)]
struct Request {
    /// Unknown options are passed over.
    is_sloppy: bool,
    /// Everything but mounting.
    is_fake: bool,
    is_verbose: bool,
    options: Vec<String>,
    dataset: String,
    folder: String,
}

/// Why nothing is mounted: what to say, and the exit code.
#[derive(Debug, PartialEq)]
struct Refused(String, u8);

/// Runs the helper with these arguments, the program's name left out.
pub fn run(arguments: &[String]) -> u8 {
    match parse(arguments).and_then(mount) {
        Ok(()) => 0,
        Err(Refused(text, code)) => {
            complain(text);
            code
        }
    }
}

/// Takes the arguments apart. mount(8) gives options after the operands, too.
fn parse(arguments: &[String]) -> Result<Request, Refused> {
    let mut request = Request::default();
    let mut operands = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            operands.push(word.clone());
            continue;
        };
        for (at, letter) in letters.char_indices() {
            match letter {
                's' => request.is_sloppy = true,
                'f' => request.is_fake = true,
                'v' => request.is_verbose = true,
                // There is no /etc/mtab to write.
                'n' => {}
                'o' => {
                    let rest = &letters[at + 1..];
                    let value = match rest.is_empty() {
                        true => words.next().cloned().unwrap_or_default(),
                        false => rest.to_string(),
                    };
                    request.options.extend(value.split(',').map(str::to_string));
                    break;
                }
                'h' => return Err(Refused(USAGE.to_string(), code::USAGE)),
                other => {
                    let text = format!("Invalid option '{other}'\n{USAGE}");
                    return Err(Refused(text, code::USAGE));
                }
            }
        }
    }
    let missing = |text: &str| {
        let text = format!("{text}\nusage: mount <dataset> <mountpoint>");
        Err(Refused(text, code::USAGE))
    };
    match operands.as_slice() {
        [dataset, folder] => {
            (request.dataset, request.folder) = (dataset.clone(), folder.clone());
            Ok(request)
        }
        [] => missing("missing dataset argument"),
        [_] => missing("missing mountpoint argument"),
        _ => missing("too many arguments"),
    }
}

fn mount(request: Request) -> Result<(), Refused> {
    let dataset = name_in(&request.dataset, std::env::current_dir().ok().as_deref());
    let folder = std::fs::canonicalize(&request.folder).map_err(|error| {
        let (folder, said) = (&request.folder, error.to_string());
        let said = said.split(" (os error").next().unwrap_or_default();
        let text = format!(
            "filesystem '{dataset}' cannot be mounted at '{folder}' due to canonicalization error: {said}"
        );
        Refused(text, code::SYSTEM)
    })?;
    let options = checked_options(&request, &dataset)?;
    let has = |word: &str| options.iter().any(|option| option == word);
    let (is_by_zfs, remounts) = (has("zfsutil"), has("remount"));
    let client = connection::connect(&command_line(&request)).map_err(not_reached)?;
    let point = mount_point(&client, &dataset)?;
    refuse_wrong_way(
        &dataset,
        &folder,
        &point,
        is_by_zfs,
        remounts || request.is_fake,
    )?;
    if request.is_verbose {
        let (at, words) = (folder.display(), options.join(","));
        output::say(&format!(
            "mount.zfs:\n  dataset:    \"{dataset}\"\n  mountpoint: \"{at}\"\n  mountopts:  \"{words}\"\n"
        ));
    }
    if request.is_fake {
        return Ok(());
    }
    let asked = Mount {
        name: Some(dataset.clone()),
        options,
        place: (!remounts).then(|| folder.display().to_string()),
        place_mount: mount_number(&folder).filter(|_| !remounts),
        ..Mount::default()
    };
    client
        .dataset_mount(asked)
        .map(drop)
        .map_err(|error| match error {
            CallError::Refused(refusal) if refusal.kind == RefusalKind::Busy => {
                Refused(refusal.to_string(), code::BUSY)
            }
            other => Refused(other.to_string(), code::SYSTEM),
        })
}

/// The dataset that mount(8) means, which takes a name without a slash in front for a path of the
/// folder where it was called.
fn name_in(given: &str, folder: Option<&Path>) -> String {
    let folder = folder.map(|folder| folder.display().to_string());
    let below = folder.and_then(|folder| given.strip_prefix(folder.as_str()));
    below.unwrap_or(given).trim_start_matches('/').to_string()
}

/// The options, without those that are not known where these are to be passed over.
fn checked_options(request: &Request, dataset: &str) -> Result<Vec<String>, Refused> {
    let mut options = request.options.clone();
    if request.is_sloppy {
        options.retain(|word| is_known(word));
    }
    match options.iter().find(|word| !is_known(word)) {
        None => Ok(options),
        Some(bad) => {
            let text = format!(
                "filesystem '{dataset}' cannot be mounted due to invalid option '{bad}'.\n\
                 Use the '-s' option to ignore the bad mount option."
            );
            Err(Refused(text, code::USAGE))
        }
    }
}

/// The property `mountpoint`.
fn mount_point(client: &Client, dataset: &str) -> Result<String, Refused> {
    let unable = |why: String| {
        let text =
            format!("{why}\nfilesystem '{dataset}' cannot be mounted, unable to open the dataset");
        Refused(text, code::USAGE)
    };
    if dataset.contains('@') {
        let why = format!("snapshots are in .zfs/snapshot: '{dataset}' is not mounted by itself");
        return Err(Refused(why, code::USAGE));
    }
    let request = Describe {
        names: vec![dataset.to_string()],
        depth: Some(0),
        kinds: vec![DatasetKind::Filesystem],
        properties: vec!["mountpoint".to_string()],
        ..Describe::default()
    };
    let described = client.dataset_describe(request);
    let described = described.map_err(|error| unable(error.to_string()))?;
    if let Some(refusal) = described.refused.first() {
        return Err(unable(Refusal::to_string(refusal)));
    }
    let found = described.datasets.first();
    match found.and_then(|found| found.properties.get("mountpoint")) {
        Some(point) => match &point.value {
            Value::Text(point) => Ok(point.clone()),
            Value::Number(_) | Value::Absent => Ok(String::new()),
        },
        None => Err(unable(format!(
            "cannot open '{dataset}': operation not applicable to datasets of this type"
        ))),
    }
}

/// File systems with a mount point are mounted by `zfs mount`, those without by mount(8).
fn refuse_wrong_way(
    dataset: &str,
    folder: &Path,
    point: &str,
    is_by_zfs: bool,
    is_harmless: bool,
) -> Result<(), Refused> {
    let text = match (point == "legacy", is_by_zfs) {
        (true, true) => {
            let at = folder.display();
            format!(
                "filesystem '{dataset}' cannot be mounted using 'zfs mount'.\n\
                 Use 'zfs set mountpoint={at}' or 'mount -t zfs {dataset} {at}'.\n\
                 See zfs(8) for more information."
            )
        }
        (false, false) if !is_harmless => format!(
            "filesystem '{dataset}' cannot be mounted using 'mount'.\n\
             Use 'zfs set mountpoint=legacy' or 'zfs mount {dataset}'.\n\
             See zfs(8) for more information."
        ),
        _ => return Ok(()),
    };
    Err(Refused(text, code::USAGE))
}

/// The number of the mount that a folder is in: the same folder in another mount namespace has
/// another.
fn mount_number(folder: &PathBuf) -> Option<u64> {
    let opened = std::fs::File::open(folder).ok()?;
    let facts = format!("/proc/self/fdinfo/{}", opened.as_raw_fd());
    let facts = std::fs::read_to_string(facts).ok()?;
    let number = facts
        .lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))?;
    number.trim().parse().ok()
}

fn not_reached(failure: Failure) -> Refused {
    let text = match failure {
        Failure::Usage(text) | Failure::Error(text) => text,
        Failure::Silent(_) => String::new(),
    };
    Refused(text, code::SYSTEM)
}

/// What history shows.
fn command_line(request: &Request) -> String {
    let options = match request.options.is_empty() {
        true => String::new(),
        false => format!(" -o {}", request.options.join(",")),
    };
    format!("{NAME}{options} {} {}", request.dataset, request.folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, Refused> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn options_stand_before_and_after_the_operands() {
        let expected = Request {
            is_sloppy: true,
            is_verbose: true,
            options: vec!["ro".to_string(), "noatime".to_string()],
            dataset: "tank/a".to_string(),
            folder: "/mnt".to_string(),
            ..Request::default()
        };
        assert_eq!(parsed("tank/a /mnt -sv -o ro,noatime"), Ok(expected));
        assert_eq!(parsed("-oro tank /mnt").unwrap().options, ["ro"]);
        assert!(parsed("-fn tank /mnt").unwrap().is_fake);
        let code = |line: &str| parsed(line).unwrap_err().1;
        assert_eq!(code("-x tank /mnt"), 1);
        assert_eq!(code("tank"), 1);
        assert_eq!(code("a b c"), 1);
        assert_eq!(code("-h"), 1);
    }

    #[test]
    fn a_name_that_was_taken_for_a_path_is_a_name() {
        let folder = Some(Path::new("/root"));
        assert_eq!(name_in("/root/tank/a", folder), "tank/a");
        assert_eq!(name_in("tank/a", folder), "tank/a");
        assert_eq!(name_in("tank/a", None), "tank/a");
    }

    #[test]
    fn the_mount_point_says_whether_zfs_or_mount_mounts_a_file_system() {
        let refused = |point, is_by_zfs, is_harmless| {
            refuse_wrong_way("tank/a", Path::new("/m"), point, is_by_zfs, is_harmless).is_err()
        };
        assert!(!refused("legacy", false, false));
        assert!(refused("legacy", true, false));
        assert!(refused("/tank/a", false, false));
        assert!(!refused("/tank/a", false, true));
        assert!(!refused("/tank/a", true, false));
    }

    #[test]
    fn a_folder_has_the_number_of_its_mount() {
        assert!(mount_number(&PathBuf::from("/")).is_some());
        assert!(mount_number(&PathBuf::from("/nowhere")).is_none());
    }
}
