//! From the arguments to a subcommand, and back to an exit code.
//!
//! Each program has a table of subcommands in the order in which its usage lists them. A subcommand
//! that OpenZFS has and this program has not is in the table too, without anything to run: it says
//! so instead of being unknown.

use crate::connection;
use crate::failure::{Failure, Outcome};
use crate::output;
use tarn_api::client::Client;

/// One line of the table.
#[derive(Debug, Clone, Copy)]
pub struct Subcommand {
    /// Its name; empty for an empty line in the usage.
    pub name: &'static str,
    /// Its usage: lines that begin with a tab.
    pub usage: &'static str,
    /// What it does; `None` for what this version cannot do.
    pub run: Option<fn(&Session, &[String]) -> Outcome>,
}

/// An empty line in the usage.
pub const BLANK: Subcommand = Subcommand {
    name: "",
    usage: "\n",
    run: None,
};

/// A program.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// `zfs` or `zpool`.
    pub name: &'static str,
    /// Its subcommands.
    pub subcommands: &'static [Subcommand],
    /// Other names of subcommands.
    pub aliases: &'static [(&'static str, &'static str)],
    /// What follows the list of all subcommands in the usage.
    pub usage_end: &'static str,
    /// What follows the usage of one subcommand.
    pub usage_notes: fn(&str) -> String,
}

/// What a subcommand knows of how it was called.
#[derive(Debug, Clone)]
pub struct Session {
    /// The program: `zfs`.
    pub program: &'static str,
    /// The subcommand: `list`.
    pub subcommand: &'static str,
    /// The command line as history shows it: the program without its path, and the arguments.
    pub command_line: String,
}

impl Session {
    /// A way to the daemon, which is started first when it does not run.
    ///
    /// # Errors
    /// Why there is none.
    pub fn connect(&self) -> Result<Client, Failure> {
        connection::connect(&self.command_line)
    }

    /// Both names, as JSON output has them: `zfs list`.
    pub fn name(&self) -> String {
        format!("{} {}", self.program, self.subcommand)
    }
}

impl Program {
    /// Runs the program with the arguments of this process.
    pub fn main(&self) -> std::process::ExitCode {
        match text_of(std::env::args_os()) {
            Ok(arguments) => std::process::ExitCode::from(self.run(&arguments)),
            Err(refusal) => {
                output::complain(&format!("{}: {refusal}", self.name));
                std::process::ExitCode::FAILURE
            }
        }
    }

    /// Runs one command line, program's name first; gives the exit code.
    pub fn run(&self, arguments: &[String]) -> u8 {
        let Some(word) = arguments.get(1) else {
            return self.misused(None, "missing command");
        };
        match word.as_str() {
            "-?" | "--help" => {
                output::say(&self.usage(None));
                return 0;
            }
            "help" => return self.help(arguments.get(2)),
            _ => {}
        }
        let word = match word.as_str() {
            "-V" | "--version" => "version",
            other => other,
        };
        let name = self
            .aliases
            .iter()
            .find(|(alias, _)| *alias == word)
            .map_or(word, |(_, name)| name);
        let (found, operands) = match self.find(name) {
            Some(found) => (found, &arguments[2..]),
            // `zfs compression=on tank` is a short form of `zfs set`.
            None if word.contains('=') => match self.find("set") {
                Some(set) => (set, &arguments[1..]),
                None => return self.misused(None, &format!("unrecognized command '{word}'")),
            },
            None => return self.misused(None, &format!("unrecognized command '{word}'")),
        };
        if matches!(operands.first().map(String::as_str), Some("--help" | "-?")) {
            return self.misused(Some(found), "");
        }
        self.dispatch(found, arguments, operands)
    }

    fn dispatch(&self, found: &Subcommand, arguments: &[String], operands: &[String]) -> u8 {
        let Some(run) = found.run else {
            output::complain(&format!(
                "{} {}: not supported by this version of Tarn",
                self.name, found.name
            ));
            return 1;
        };
        let session = Session {
            program: self.name,
            subcommand: found.name,
            command_line: command_line(arguments),
        };
        match run(&session, operands) {
            Ok(code) => code,
            Err(Failure::Usage(text)) => self.misused(Some(found), &text),
            Err(Failure::Error(text)) => {
                output::complain(&text);
                1
            }
            Err(Failure::Silent(code)) => code,
        }
    }

    fn find(&self, name: &str) -> Option<&'static Subcommand> {
        self.subcommands
            .iter()
            .find(|row| !row.name.is_empty() && row.name == name)
    }

    /// Says what is wrong and how it is used.
    fn misused(&self, of: Option<&Subcommand>, text: &str) -> u8 {
        if !text.is_empty() {
            output::complain(text);
        }
        output::complain(&self.usage(of));
        2
    }

    /// The usage of one subcommand, or of all.
    pub fn usage(&self, of: Option<&Subcommand>) -> String {
        if let Some(one) = of {
            return format!("usage:\n{}{}", one.usage, (self.usage_notes)(one.name));
        }
        let head = format!(
            "usage: {} command args ...\nwhere 'command' is one of the following:\n\n",
            self.name
        );
        let body: String = self.subcommands.iter().map(|row| row.usage).collect();
        head + &body + self.usage_end
    }

    /// `zfs help list`: the usage on standard output.
    fn help(&self, topic: Option<&String>) -> u8 {
        let Some(topic) = topic else {
            output::say(&self.usage(None));
            return 0;
        };
        match self.find(topic) {
            Some(found) => {
                output::say(&self.usage(Some(found)));
                0
            }
            None => self.misused(None, &format!("unrecognized command '{topic}'")),
        }
    }
}

/// Arguments as text. Names of datasets are ASCII; a path or value in another encoding would become
/// another one if it were changed to fit.
///
/// # Errors
/// The first that is not UTF-8.
pub fn text_of(
    arguments: impl IntoIterator<Item = std::ffi::OsString>,
) -> Result<Vec<String>, String> {
    let text = arguments.into_iter().map(|argument| {
        let refusal = |argument: std::ffi::OsString| {
            let shown = argument.to_string_lossy().into_owned();
            format!(
                "argument '{shown}' is not UTF-8, which is not supported by this version of Tarn"
            )
        };
        argument.into_string().map_err(refusal)
    });
    text.collect()
}

/// The command line as `zpool history` shows it.
fn command_line(arguments: &[String]) -> String {
    let program = arguments
        .first()
        .map_or("", |path| path.rsplit('/').next().unwrap_or(path));
    std::iter::once(program)
        .chain(arguments.iter().skip(1).map(String::as_str))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_utf_8_is_refused_and_not_changed() {
        use std::os::unix::ffi::OsStringExt;
        let words =
            |last: &[u8]| [b"zfs".to_vec(), last.to_vec()].map(std::ffi::OsString::from_vec);
        assert_eq!(text_of(words("é".as_bytes())).unwrap()[1], "é");
        assert!(
            text_of(words(b"/a\xff"))
                .unwrap_err()
                .contains("is not UTF-8")
        );
    }

    #[test]
    fn history_shows_the_program_without_its_path() {
        let arguments = ["/usr/sbin/zfs", "create", "-o", "atime=off", "tank/a"];
        let arguments: Vec<String> = arguments.iter().map(|text| text.to_string()).collect();
        assert_eq!(command_line(&arguments), "zfs create -o atime=off tank/a");
    }
}
