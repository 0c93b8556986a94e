//! `zfs diff`.
//!
//! # Mechanism
//! The daemon writes a line of JSON for each file that changed into a pipe of ours, while the call
//! lasts. Here it becomes what OpenZFS prints.

use std::io::{BufRead, BufReader, PipeReader};
use std::os::fd::AsFd;
use tarn_administration::messages::dataset::{
    Diff, DiffLine, FileChange, FileDifference, FileType,
};
use tarn_administration::messages::unescape;
use tarn_terminal::color::{self, Color};
use tarn_terminal::connection::hand_over;
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output::say_bytes;
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "FHth",
    long: &[],
};

/// As much is written at once, where lines come faster than they are written.
const TOGETHER_BYTES: usize = 64 << 10;

/// How lines are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Style {
    /// `-F`.
    classify: bool,
    /// `-H`.
    scripted: bool,
    /// `-t`.
    timestamps: bool,
    /// `-h`.
    raw_names: bool,
    colors: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let (request, mut style) = parse(arguments)?;
    style.colors = color::is_wanted();
    let client = session.connect()?;
    let no_pipe = |cause: std::io::Error| {
        let text = format!(
            "zfs diff failed: {}\npipe error",
            tarn_engine::words_of(&cause)
        );
        Failure::error(text)
    };
    let (lines, pipe) = std::io::pipe().map_err(no_pipe)?;
    let (client, line) = hand_over(&client, pipe.as_fd())?;
    drop(pipe);
    std::thread::scope(|scope| {
        let call = scope.spawn(move || {
            let done = client.dataset_diff(request);
            // The pipe ends with it, if the daemon has not taken it.
            drop(line);
            done
        });
        print(lines, style);
        call.join().expect("a call does not panic")
    })?;
    Ok(0)
}

fn parse(arguments: &[String]) -> Result<(Diff, Style), Failure> {
    let mut style = Style::default();
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, _)) = options.take()? {
        match option {
            "F" => style.classify = true,
            "H" => style.scripted = true,
            "t" => style.timestamps = true,
            _ => style.raw_names = true,
        }
    }
    let request = match options.operands().as_slice() {
        [] => {
            return Err(Failure::usage("must provide at least one snapshot name"));
        }
        // Of which dataset?
        [from] if from.starts_with('@') => return Err(Failure::usage("")),
        [from] => Diff {
            from: from.clone(),
            to: None,
        },
        [from, to] => Diff {
            from: from.clone(),
            to: Some(to.clone()),
        },
        _ => return Err(Failure::usage("too many arguments")),
    };
    Ok((request, style))
}

/// Prints lines until the daemon has no more.
fn print(lines: PipeReader, style: Style) {
    let mut lines = BufReader::with_capacity(TOGETHER_BYTES, lines);
    let (mut line, mut out) = (Vec::new(), Vec::new());
    while lines
        .read_until(b'\n', &mut line)
        .is_ok_and(|read| read > 0)
    {
        match serde_json::from_slice(&line) {
            Ok(DiffLine::File(file)) => shown(&file, style, &mut out),
            Ok(DiffLine::Warning(text)) => {
                say_bytes(&std::mem::take(&mut out));
                complain(text);
            }
            // Only the last line of a daemon that died is cut; the call tells.
            Err(_) => {}
        }
        line.clear();
        if lines.buffer().is_empty() || out.len() >= TOGETHER_BYTES {
            say_bytes(&out);
            out.clear();
        }
    }
    say_bytes(&out);
}

/// One line, as OpenZFS prints it.
fn shown(file: &FileDifference, style: Style, out: &mut Vec<u8>) {
    let (letter, color) = match &file.change {
        FileChange::Added => ('+', Color::Green),
        FileChange::Removed => ('-', Color::Red),
        FileChange::Modified | FileChange::Links(_) => ('M', Color::Yellow),
        FileChange::Renamed(_) => ('R', Color::BoldBlue),
    };
    let name = |path: &str| match style.raw_names {
        true => unescape(path),
        false => path.as_bytes().to_vec(),
    };
    if style.colors {
        out.extend_from_slice(color.start().as_bytes());
    }
    if style.timestamps {
        let time = format!("{:>10}.{:09}\t", file.changed_s, file.changed_ns);
        out.extend_from_slice(time.as_bytes());
    }
    out.extend_from_slice(format!("{letter}\t").as_bytes());
    if style.classify {
        out.extend_from_slice(&[mark(file.file_type), b'\t']);
    }
    out.extend_from_slice(&name(&file.path));
    match &file.change {
        FileChange::Renamed(to) => {
            out.extend_from_slice(if style.scripted { b"\t" } else { b" -> " });
            out.extend_from_slice(&name(to));
        }
        FileChange::Links(links) => out.extend_from_slice(format!("\t({links:+})").as_bytes()),
        _ => {}
    }
    out.push(b'\n');
    if style.colors {
        out.extend_from_slice(Color::END.as_bytes());
    }
}

/// What `-F` shows.
#[doc(alias = "get_what")]
fn mark(file_type: FileType) -> u8 {
    match file_type {
        FileType::BlockDevice => b'B',
        FileType::CharacterDevice => b'C',
        FileType::Directory => b'/',
        FileType::Fifo => b'|',
        FileType::SymbolicLink => b'@',
        FileType::Socket => b'=',
        FileType::Regular => b'F',
        FileType::Unknown => b'?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<(Diff, Style), Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    fn file(change: FileChange, path: &str) -> FileDifference {
        FileDifference {
            change,
            path: path.to_string(),
            file_type: FileType::Regular,
            changed_s: 1_700_000_000,
            changed_ns: 42,
        }
    }

    fn line(file: &FileDifference, style: Style) -> String {
        let mut out = Vec::new();
        shown(file, style, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn one_snapshot_is_needed_and_two_are_enough() {
        let (request, style) = parsed("-FHt tank@a @b").unwrap();
        assert_eq!(request.to, Some("@b".to_string()));
        assert!(style.classify && style.scripted && style.timestamps && !style.raw_names);
        let missing = "must provide at least one snapshot name";
        assert_eq!(parsed("").unwrap_err(), Failure::usage(missing));
        assert_eq!(parsed("@a").unwrap_err(), Failure::usage(""));
        let many = parsed("a@b c d").unwrap_err();
        assert_eq!(many, Failure::usage("too many arguments"));
        let unknown = parsed("-x a@b").unwrap_err();
        assert_eq!(unknown, Failure::usage("invalid option 'x'"));
    }

    #[test]
    fn lines_are_those_of_openzfs() {
        let plain = Style::default();
        let added = file(FileChange::Added, "/t/a\\0040b");
        assert_eq!(line(&added, plain), "+\t/t/a\\0040b\n");
        let raw_names = Style {
            raw_names: true,
            ..plain
        };
        assert_eq!(line(&added, raw_names), "+\t/t/a b\n");
        let renamed = file(FileChange::Renamed("/t/b".to_string()), "/t/a");
        assert_eq!(line(&renamed, plain), "R\t/t/a -> /t/b\n");
        let scripted = Style {
            scripted: true,
            classify: true,
            timestamps: true,
            ..plain
        };
        assert_eq!(
            line(&renamed, scripted),
            "1700000000.000000042\tR\tF\t/t/a\t/t/b\n"
        );
        let fewer = file(FileChange::Links(-1), "/t/a");
        assert_eq!(line(&fewer, plain), "M\t/t/a\t(-1)\n");
        let colors = Style {
            colors: true,
            ..plain
        };
        let removed = file(FileChange::Removed, "/t/a");
        assert_eq!(line(&removed, colors), "\x1b[0;31m-\t/t/a\n\x1b[0m");
    }
}
