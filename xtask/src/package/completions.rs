//! Completions for bash, zsh and fish, made from the usage texts of the programs.
//!
//! # Mechanism
//! A program's usage lists its subcommands, each with its options and operands, in OpenZFS's
//! notation: `create [-fnd] [-o property=value] ... <pool> <vdev> ...`. [`Subcommand::read`] takes
//! from it the names, the options, and which names the operands are of. The shells ask `zpool list`
//! and `zfs list` for these names when the user presses the key; nothing is asked where no daemon
//! runs, since completing a word must not start one.

use std::collections::BTreeSet;
use std::fmt::Write;

/// What the operands of a subcommand name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operands {
    Pools,
    /// File systems and volumes.
    Datasets,
    /// Those, and snapshots.
    Snapshots,
    Files,
}

/// A subcommand of a program: what its usage says.
#[derive(Debug, PartialEq, Eq)]
struct Subcommand {
    name: String,
    options: BTreeSet<String>,
    operands: Operands,
}

/// A program with subcommands.
pub struct Program<'a> {
    /// Its name.
    pub name: &'a str,
    /// What `PROGRAM help` prints.
    pub usage: &'a str,
}

impl Subcommand {
    /// All subcommands of a usage text, in its order. One that stands on several lines is one.
    fn read(usage: &str) -> Vec<Subcommand> {
        let mut found: Vec<Subcommand> = Vec::new();
        let mut last = None;
        for line in usage.lines() {
            let Some(form) = line.strip_prefix('\t') else {
                continue;
            };
            // What is indented further goes on with the line above.
            if !form.starts_with(' ') {
                let name = form.split_whitespace().next().unwrap_or_default();
                let at = found.iter().position(|one| one.name == name);
                last = Some(at.unwrap_or_else(|| {
                    found.push(Subcommand {
                        name: name.to_owned(),
                        options: BTreeSet::new(),
                        operands: Operands::Files,
                    });
                    found.len() - 1
                }));
            }
            if let Some(subcommand) = last.and_then(|at| found.get_mut(at)) {
                subcommand.add(form);
            }
        }
        found
    }

    /// Adds what one line of the usage says.
    fn add(&mut self, form: &str) {
        self.options.extend(options(form));
        let names = |word: &str| form.contains(word);
        let operands = match () {
            () if names("snapshot") || names("<snap>") => Operands::Snapshots,
            () if names("filesystem") || names("<volume>") => Operands::Datasets,
            () if names("pool>") || names("[pool") || names("<pool") => Operands::Pools,
            () => Operands::Files,
        };
        let rank = |operands| match operands {
            Operands::Snapshots => 3,
            Operands::Datasets => 2,
            Operands::Pools => 1,
            Operands::Files => 0,
        };
        if rank(operands) > rank(self.operands) {
            self.operands = operands;
        }
    }
}

/// The options in a line of usage, each with its dashes: `[-fnd]` has three.
fn options(form: &str) -> BTreeSet<String> {
    let is_end = |character: char| !(character.is_ascii_alphanumeric() || character == '-');
    let mut options = BTreeSet::new();
    // What is in brackets inside a word, as `[-Pnp[p]uv]`, repeats letters.
    let form = form.replace("[p]", "");
    for word in form.split(is_end) {
        match word.strip_prefix('-') {
            Some(long) if long.starts_with('-') && long.len() > 1 => {
                options.insert(word.to_owned());
            }
            Some(letters) if !letters.is_empty() && !letters.contains('-') => {
                options.extend(letters.chars().map(|letter| format!("-{letter}")));
            }
            _ => {}
        }
    }
    options
}

/// The shell command that prints the names of operands, a line each. It fails at once where no
/// daemon runs, which the shell takes for no names.
const fn lister(operands: Operands) -> Option<&'static str> {
    match operands {
        Operands::Pools => Some("zpool list -H -o name"),
        Operands::Datasets => Some("zfs list -H -o name -t filesystem,volume"),
        Operands::Snapshots => Some("zfs list -H -o name -t filesystem,volume,snapshot"),
        Operands::Files => None,
    }
}

/// A script that says whether a daemon runs: its control socket is there.
const DAEMON_RUNS: &str = "test -S \"${TARN_DIR:-/run/tarn}/tarnd.sock\"";

fn joined(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let mut text = String::new();
    for word in words {
        let _ = write!(
            text,
            "{}{}",
            if text.is_empty() { "" } else { " " },
            word.as_ref()
        );
    }
    text
}

/// The completion of one program for bash.
pub fn bash(program: &Program<'_>) -> String {
    let name = program.name;
    let subcommands = Subcommand::read(program.usage);
    let names = joined(subcommands.iter().map(|one| &one.name));
    let mut text = format!(
        "# bash completion for {name}(8)\n\n_tarn_{name}_names() {{\n    {DAEMON_RUNS} || return\n    \"$@\" 2>/dev/null\n}}\n\n\
         _tarn_{name}() {{\n    local word=${{COMP_WORDS[COMP_CWORD]}} options= names=\n    \
         # Names of snapshots have a @, which bash would cut words at.\n    \
         COMPREPLY=()\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        \
         COMPREPLY=($(compgen -W '{names}' -- \"$word\"))\n        return\n    fi\n    \
         case ${{COMP_WORDS[1]}} in\n"
    );
    for one in &subcommands {
        let _ = write!(
            text,
            "    {})\n        options='{}'\n",
            one.name,
            joined(&one.options)
        );
        if let Some(lister) = lister(one.operands) {
            let _ = writeln!(text, "        names=$(_tarn_{name}_names {lister})");
        }
        text.push_str("        ;;\n");
    }
    let _ = write!(
        text,
        "    esac\n    case $word in\n    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n    \
         /*) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n    *)\n        \
         if [ -n \"$names\" ]; then\n            COMPREPLY=($(compgen -W \"$names\" -- \"$word\"))\n        \
         else\n            COMPREPLY=($(compgen -f -- \"$word\"))\n        fi\n        ;;\n    esac\n    \
         if declare -F __ltrim_colon_completions >/dev/null; then\n        __ltrim_colon_completions \"$word\"\n    fi\n}}\n\n\
         complete -o filenames -o bashdefault -F _tarn_{name} {name}\n"
    );
    text
}

/// The completion of one program for zsh.
pub fn zsh(program: &Program<'_>) -> String {
    let name = program.name;
    let subcommands = Subcommand::read(program.usage);
    let names = joined(subcommands.iter().map(|one| &one.name));
    let mut text = format!(
        "#compdef {name}\n\n_tarn_{name}_names() {{\n    {DAEMON_RUNS} || return\n    \
         compadd -- ${{(f)\"$(\"$@\" 2>/dev/null)\"}}\n}}\n\n\
         if (( CURRENT == 2 )); then\n    compadd -- {names}\n    return\nfi\n\
         local -a options lister\ncase $words[2] in\n"
    );
    for one in &subcommands {
        let _ = write!(
            text,
            "{})\n    options=({})\n",
            one.name,
            joined(&one.options)
        );
        if let Some(lister) = lister(one.operands) {
            let _ = writeln!(text, "    lister=({lister})");
        }
        text.push_str("    ;;\n");
    }
    let _ = write!(
        text,
        "esac\nif [[ $PREFIX == -* ]]; then\n    compadd -- $options\n\
         elif (( $#lister )) && [[ $PREFIX != /* ]]; then\n    _tarn_{name}_names $lister\nelse\n    _files\nfi\n"
    );
    text
}

/// The completion of one program for fish.
pub fn fish(program: &Program<'_>) -> String {
    let name = program.name;
    let mut text = format!(
        "# fish completion for {name}(8)\n\nfunction __tarn_{name}_names\n    \
         set -l folder /run/tarn\n    set -q TARN_DIR; and set folder $TARN_DIR\n    \
         test -S $folder/tarnd.sock; or return\n    $argv 2>/dev/null\nend\n\n"
    );
    for one in Subcommand::read(program.usage) {
        let subcommand = &one.name;
        let _ = writeln!(
            text,
            "complete -c {name} -n __fish_use_subcommand -f -a {subcommand}"
        );
        let seen = format!("-n '__fish_seen_subcommand_from {subcommand}'");
        for option in &one.options {
            let _ = match option.strip_prefix("--") {
                Some(long) => writeln!(text, "complete -c {name} {seen} -l {long}"),
                None => writeln!(text, "complete -c {name} {seen} -s {}", &option[1..]),
            };
        }
        if let Some(lister) = lister(one.operands) {
            let _ = writeln!(
                text,
                "complete -c {name} {seen} -a '(__tarn_{name}_names {lister})'"
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Operands, Program, Subcommand, bash, fish, options, zsh};

    const USAGE: &str = "usage: zfs command args ...\nwhere 'command' is one of the following:\n\n\
        \tversion [-j]\n\n\
        \tcreate [-Pnp[p]uv] [-o property=value] ... <filesystem>\n\
        \tcreate [-Pnp[p]sv] [-b blocksize] ... -V <size> <volume>\n\
        \tlist [-Hp] [-j [--json-int]] [-r|-d max]\n\
        \t    [-S property]... [filesystem|volume|snapshot] ...\n\n\
        For further help\n";

    #[test]
    fn usage_is_read_over_several_lines() {
        let found = Subcommand::read(USAGE);
        let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["version", "create", "list"]);
        let kinds: Vec<Operands> = found.iter().map(|one| one.operands).collect();
        assert_eq!(
            kinds,
            [Operands::Files, Operands::Datasets, Operands::Snapshots]
        );
        let of_list: Vec<&str> = found[2].options.iter().map(String::as_str).collect();
        assert_eq!(of_list, ["--json-int", "-H", "-S", "-d", "-j", "-p", "-r"]);
        assert!(found[1].options.contains("-V"), "{:?}", found[1].options);
    }

    #[test]
    fn options_of_one_group_are_apart() {
        let found = options("[-fnd] <pool-name> [--rewind-to-checkpoint] -- x");
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(found, ["--rewind-to-checkpoint", "-d", "-f", "-n"]);
    }

    #[test]
    fn every_shell_gets_every_subcommand() {
        let program = Program {
            name: "zfs",
            usage: USAGE,
        };
        for text in [bash(&program), zsh(&program), fish(&program)] {
            for name in ["version", "create", "list"] {
                assert!(text.contains(name), "{name} is not in {text}");
            }
            assert!(
                text.contains("zfs list -H -o name -t filesystem,volume,snapshot"),
                "{text}"
            );
        }
    }
}
