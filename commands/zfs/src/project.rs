//! `zfs project`: projects of files and directories, and whether they hand them down.
//!
//! # Mechanism
//! The files are asked and changed directly, as `lsattr -p` and `chattr -p` do, so the system
//! decides whether the user may, and no daemon is asked. Below a directory, what is neither a file
//! nor a directory is passed over: a link may lead anywhere, and a pipe waits for a writer.

use crate::walk::reason;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tarn_engine::FileProject;
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "0Ccdkp:rs",
    long: &[],
};

/// What OpenZFS exits with where it returns -1.
const FAILED: u8 = 255;

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    List,
    /// Tell what is not of the project, or does not hand it down.
    Check,
    Clear,
    Set,
}

/// How far below a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// What the task does by itself.
    Usual,
    /// `-d`.
    Itself,
    /// `-r`.
    All,
}

/// A command line, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Request {
    task: Task,
    depth: Depth,
    /// `-p`.
    project: Option<u32>,
    /// `-s`.
    sets_flag: bool,
    /// `-k`.
    keeps_project: bool,
    /// `-0`.
    ends_with_zero: bool,
    targets: Vec<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line.
pub fn run(_session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let mut code = 0;
    for target in &request.targets {
        let done = handle(&request, Path::new(target));
        if let Err(Failed { text, code: failed }) = done {
            complain(text);
            code = if code == 0 { failed } else { code };
        }
    }
    Ok(code)
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut request = Request {
        task: Task::List,
        depth: Depth::Usual,
        project: None,
        sets_flag: false,
        keeps_project: false,
        ends_with_zero: false,
        targets: Vec::new(),
    };
    if arguments.is_empty() {
        return Err(Failure::usage(""));
    }
    let mut task = None;
    let mut take = |one: Task| match task.replace(one) {
        Some(_) => Err(Failure::usage("cannot specify '-C' '-c' '-s' together")),
        None => Ok(()),
    };
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "0" => request.ends_with_zero = true,
            "C" => take(Task::Clear)?,
            "c" => take(Task::Check)?,
            "d" => request.depth = Depth::Itself,
            "k" => request.keeps_project = true,
            "p" => request.project = Some(parse_project(&value)?),
            "r" => request.depth = Depth::All,
            _ => {
                take(Task::Set)?;
                request.sets_flag = true;
            }
        }
    }
    request.task = match (task, request.project) {
        (Some(task), _) => task,
        (None, Some(_)) => Task::Set,
        (None, None) => Task::List,
    };
    request.check()?;
    request.targets = options.operands();
    match request.targets.is_empty() {
        true => Err(Failure::usage("missing file or directory target(s)")),
        false => Ok(request),
    }
}

/// A project's number, as C reads numbers: with `0x` in hexadecimal, with `0` in octal.
fn parse_project(text: &str) -> Result<u32, Failure> {
    let too_large = || Failure::usage(format!("project ID must be less than {}", u32::MAX));
    let (digits, radix) = match (text.strip_prefix("0x"), text.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (text, 10),
    };
    let number = u64::from_str_radix(digits, radix).map_err(|_| too_large())?;
    match u32::try_from(number) {
        Ok(number) if number < u32::MAX => Ok(number),
        _ => Err(Failure::usage("invalid project ID")),
    }
}

impl Request {
    /// Refuses options that do not go with the task.
    fn check(&self) -> Result<(), Failure> {
        let is_itself = self.depth == Depth::Itself;
        let text = match self.task {
            Task::Clear if is_itself => "'-d' is useless together with '-C'",
            Task::Set if is_itself => "'-d' is useless for set project ID and/or inherit flag",
            Task::List | Task::Check | Task::Set if self.keeps_project => {
                "'-k' is only valid together with '-C'"
            }
            Task::List | Task::Clear | Task::Set if self.ends_with_zero => {
                "'-0' is only valid together with '-c'"
            }
            Task::Clear if self.project.is_some() => "'-p' is useless together with '-C'",
            _ => return Ok(()),
        };
        Err(Failure::usage(text))
    }

    /// Whether what is in a directory is handled too.
    fn goes_below(&self) -> bool {
        match (self.depth, self.task) {
            (Depth::Itself, _) => false,
            (Depth::All, _) => true,
            (Depth::Usual, task) => matches!(task, Task::List | Task::Check),
        }
    }
}

/// Why a target was not done, and how the command ends.
#[derive(Debug, PartialEq, Eq)]
struct Failed {
    text: String,
    code: u8,
}

impl Failed {
    fn new(text: impl Into<String>) -> Failed {
        Failed {
            text: text.into(),
            code: FAILED,
        }
    }

    fn of(what: &str, path: &Path, error: &io::Error) -> Failed {
        Failed::new(format!(
            "failed to {what} {}: {}",
            path.display(),
            reason(error)
        ))
    }

    /// OpenZFS ends with the error's number here, less than zero.
    fn of_directory(what: &str, path: &Path, error: &io::Error) -> Failed {
        let number = error.raw_os_error().unwrap_or(1);
        Failed {
            code: u8::try_from(number & 0xff).unwrap_or(1).wrapping_neg(),
            ..Failed::of(what, path, error)
        }
    }
}

/// A file, and its project.
fn opened(path: &Path) -> Result<(File, FileProject), Failed> {
    let file = File::open(path).map_err(|error| Failed::of("open", path, &error))?;
    let found = FileProject::of(file.as_fd()).map_err(|errno| {
        let error = io::Error::from_raw_os_error(errno.0);
        Failed::of("get xattr for", path, &error)
    })?;
    Ok((file, found))
}

/// Does what was asked for to one target, and below it.
#[doc(alias = "zfs_project_handle")]
fn handle(request: &Request, target: &Path) -> Result<(), Failed> {
    let status = std::fs::metadata(target).map_err(|error| Failed::of("stat", target, &error))?;
    if !status.is_file() && !status.is_dir() {
        let text = "only support project quota on regular file or directory";
        return Err(Failed::new(text));
    }
    let of_directories = match request.depth {
        Depth::Itself => Some("-d"),
        Depth::All => Some("-r"),
        Depth::Usual => None,
    };
    if let Some(option) = of_directories.filter(|_| !status.is_dir()) {
        let target = target.display();
        return Err(Failed::new(format!(
            "'{option}' option on non-dir target {target}"
        )));
    }
    let project = match (request.task, request.project) {
        (Task::Set | Task::Check, None) => opened(target)?.1.project(),
        (_, project) => project.unwrap_or(0),
    };
    handle_one(request, project, target)?;
    if !status.is_dir() || !request.goes_below() {
        return Ok(());
    }
    let mut waiting = VecDeque::from([target.to_path_buf()]);
    while let Some(directory) = waiting.pop_front() {
        handle_directory(request, project, &directory, &mut waiting)?;
    }
    Ok(())
}

/// What is in a directory. Its directories wait for their turn.
fn handle_directory(
    request: &Request,
    project: u32,
    directory: &Path,
    waiting: &mut VecDeque<PathBuf>,
) -> Result<(), Failed> {
    let entries = std::fs::read_dir(directory);
    let entries = match entries {
        Ok(entries) => entries,
        // It went while the tree was looked at.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failed::of_directory("opendir", directory, &error)),
    };
    for entry in entries {
        let entry = entry.map_err(|error| Failed::of_directory("readdir", directory, &error))?;
        let path = joined(directory, &entry.file_name());
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(Failed::of_directory("readdir", directory, &error)),
        };
        if !kind.is_file() && !kind.is_dir() {
            continue;
        }
        match handle_one(request, project, &path) {
            Err(_) if !path.exists() => continue,
            done => done?,
        }
        if request.depth == Depth::All && kind.is_dir() {
            waiting.push_back(path);
        }
    }
    Ok(())
}

/// A path as OpenZFS writes it: the directory as it was given, and the name.
fn joined(directory: &Path, name: &OsStr) -> PathBuf {
    let mut path = directory.as_os_str().to_owned();
    path.push("/");
    path.push(name);
    PathBuf::from(path)
}

#[doc(alias = "zfs_project_handle_one")]
fn handle_one(request: &Request, project: u32, path: &Path) -> Result<(), Failed> {
    let (file, found) = opened(path)?;
    let Some(wanted) = wanted(request, project, &found) else {
        output::say(&told(request, project, &found, path));
        return Ok(());
    };
    if wanted == found {
        return Ok(());
    }
    wanted.set(file.as_fd()).map_err(|errno| {
        let error = io::Error::from_raw_os_error(errno.0);
        Failed::of("set xattr for", path, &error)
    })
}

/// What a file is to have; none where it is only looked at.
fn wanted(request: &Request, project: u32, found: &FileProject) -> Option<FileProject> {
    match request.task {
        Task::List | Task::Check => None,
        Task::Clear => {
            let project = match request.keeps_project {
                true => found.project(),
                false => 0,
            };
            Some(found.handing_down(false).with_project(project))
        }
        Task::Set => {
            let hands_down = request.sets_flag || found.hands_down();
            Some(found.with_project(project).handing_down(hands_down))
        }
    }
}

/// What is told of a file that is looked at.
fn told(request: &Request, project: u32, found: &FileProject, path: &Path) -> String {
    let name = String::from_utf8_lossy(path.as_os_str().as_bytes());
    let id = found.project();
    if request.task == Task::List {
        let flag = if found.hands_down() { 'P' } else { '-' };
        return format!("{id:>5} {flag} {name}\n");
    }
    let mut text = String::new();
    if request.ends_with_zero {
        if id != project || !found.hands_down() {
            text = format!("{name}\0");
        }
        return text;
    }
    if id != project {
        text = format!("{name} - project ID is not set properly ({id}/{project})\n");
    }
    if !found.hands_down() {
        text.push_str(&format!("{name} - project inherit flag is not set\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn the_options_say_what_to_do() {
        for (line, task, depth) in [
            ("a", Task::List, Depth::Usual),
            ("-r a", Task::List, Depth::All),
            ("-d -r a", Task::List, Depth::All),
            ("-rd a", Task::List, Depth::Itself),
            ("-c0 a", Task::Check, Depth::Usual),
            ("-Ckr a", Task::Clear, Depth::All),
            ("-p 7 a b", Task::Set, Depth::Usual),
            ("-s a", Task::Set, Depth::Usual),
            ("-c -p 7 a", Task::Check, Depth::Usual),
        ] {
            let request = parsed(line).unwrap();
            assert_eq!((request.task, request.depth), (task, depth), "{line}");
        }
        assert_eq!(parsed("-p 0x1f a").unwrap().project, Some(31));
        assert_eq!(parsed("-p 010 a").unwrap().project, Some(8));
        assert_eq!(parsed("-p 0 a").unwrap().project, Some(0));
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_known_words() {
        for (line, text) in [
            ("", ""),
            ("-r", "missing file or directory target(s)"),
            ("-C -s a", "cannot specify '-C' '-c' '-s' together"),
            ("-cc a", "cannot specify '-C' '-c' '-s' together"),
            ("-k a", "'-k' is only valid together with '-C'"),
            ("-0 a", "'-0' is only valid together with '-c'"),
            ("-Cd a", "'-d' is useless together with '-C'"),
            ("-C -p 7 a", "'-p' is useless together with '-C'"),
            (
                "-sd a",
                "'-d' is useless for set project ID and/or inherit flag",
            ),
            ("-p x a", "project ID must be less than 4294967295"),
            ("-p 4294967295 a", "invalid project ID"),
            ("-z a", "invalid option 'z'"),
        ] {
            assert_eq!(parsed(line), Err(Failure::usage(text)), "{line}");
        }
    }

    #[test]
    fn what_is_no_file_is_refused_with_a_reason() {
        let refused = |line: &str, path: &str| handle(&parsed(line).unwrap(), Path::new(path));
        assert_eq!(
            refused("x", "/nowhere at all"),
            Err(Failed::new(
                "failed to stat /nowhere at all: No such file or directory"
            ))
        );
        assert_eq!(
            refused("x", "/dev/null"),
            Err(Failed::new(
                "only support project quota on regular file or directory"
            ))
        );
        assert_eq!(
            refused("-r x", "/proc/self/maps"),
            Err(Failed::new("'-r' option on non-dir target /proc/self/maps"))
        );
        let text = refused("x", "/proc/self/maps").unwrap_err().text;
        assert!(
            text.starts_with("failed to get xattr for /proc/self/maps: "),
            "{text}"
        );
    }
}
