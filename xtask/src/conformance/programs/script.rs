//! Scripts of programs: steps of `bash`, each in a process of its own.
//!
//! # Mechanism
//! `### title` begins a step. `#snapshot` and `#restart` are steps that [`Side`] does. A step
//! `### [away] title` runs while the daemon stops and starts again: it makes `$WORK/ready` when it
//! may go, waits for `$WORK/away`, and after that for `$WORK/back`. Each step begins in `$ROOT`
//! with the functions of [`PRELUDE`]; `$WORK` is a folder of the machine that steps leave files in.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tarn_oracle::program;
use tarn_workload::tree::{self, TreeSize};

use super::side::Side;
use crate::workspace::{Outcome, programs};

/// What a step may call.
const PRELUDE: &str = r#"
# Says what is run, what it says and how it ends.
try() { printf '$ %s\n' "$*"; "$@"; local code=$?; echo "=> $code"; return $code; }
# Says what a program says only when it fails.
quietly() { if "$@" >$WORK/.said 2>&1; then echo "$1: ends well"; else echo "$1: ends with $?: $(tail -n 20 $WORK/.said)"; false; fi; }
# As somebody who is nobody in particular.
as_user() { setpriv --reuid=12345 --regid=12345 --clear-groups "$@"; }
# Everything that can be asked of each file below a folder, in an order that does not depend on the file system.
listing() {
  ( cd "$1" && export LC_ALL=C
    find . -printf '%p\t%y\t%m\t%U:%G\t%n\t%s\t%l\t%T@\t%i\n' | sort |
      awk -F'\t' -v OFS='\t' '{ if ($2 == "d") $6 = ""; if (!($9 in first)) first[$9] = $1; $9 = first[$9]; print }'
    find . -type f -print0 | sort -z | xargs -0r sha256sum
    find . ! -type l -print0 | sort -z | xargs -0r getfacl -n 2>/dev/null
    find . -print0 | sort -z | xargs -0r getfattr -h -d -m - -e hex 2>/dev/null )
}
# Whether two folders have the same files; what a third and later argument names (extended expressions) is left out of lines.
same() {
  local a=$1 b=$2 out; shift 2
  listing "$a" | sed -E "${@:-}" >$WORK/.a; listing "$b" | sed -E "${@:-}" >$WORK/.b
  if out=$(diff $WORK/.a $WORK/.b); then echo "same: $(grep -c . $WORK/.a) lines"; else echo "not the same:"; grep '^[<>]' <<<"$out" | cut -f1 | cut -c3- | sort -u | head -n 20; false; fi
}
# Waits for a condition for at most ten seconds.
await() { local i; for i in $(seq 400); do "$@" && return 0; sleep 0.025; done; echo "never: $*"; false; }
umask 022; export TAR_OPTIONS=--warning=no-timestamp
"#;

/// Files of every awkward shape, with times that do not depend on the day.
const TREE_TIMES: &str = r#"
mkdir -p tree/private tree/shared && chmod 700 tree/private && chmod 2775 tree/shared
echo listed > tree/shared/listed; setfacl -m u:1234:rw,g:99:r tree/shared/listed
setfacl -m d:u:1234:rwx,d:g::rx tree/shared; echo inherits > tree/shared/inherits
for size in 1 7 100; do head -c $size /dev/zero | tr '\0' x > tree/private/of-$size; done
find tree -depth ! -type d -print0 | xargs -0 touch -h -d '2001-09-09 01:46:40.123456789Z'
touch -h -d '1965-03-02 01:02:03.5Z' tree/text-1; touch -h -d '2200-01-01Z' tree/text-13
find tree -depth -type d -print0 | xargs -0 touch -d '2004-11-09 11:33:20.987654321Z'
"#;

/// One step.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// A piece of `bash`.
    Script {
        title: String,
        text: String,
    },
    /// The same, beside a daemon that stops and starts.
    Away {
        title: String,
        text: String,
    },
    Snapshot,
    Restart,
}

/// Takes a script apart.
pub fn parse(script: &str) -> Outcome<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    for line in script.lines() {
        if let Some(title) = line.strip_prefix("### [away] ") {
            let (title, text) = (title.to_string(), String::new());
            steps.push(Step::Away { title, text });
        } else if let Some(title) = line.strip_prefix("### ") {
            let (title, text) = (title.to_string(), String::new());
            steps.push(Step::Script { title, text });
        } else if line == "#snapshot" {
            steps.push(Step::Snapshot);
        } else if line == "#restart" {
            steps.push(Step::Restart);
        } else if let Some(Step::Script { text, .. } | Step::Away { text, .. }) = steps.last_mut() {
            text.push_str(line);
            text.push('\n');
        } else if !line.trim().is_empty() {
            return Err(format!("a line that belongs to no step: {line}").into());
        }
    }
    Ok(steps)
}

/// Makes `$ROOT/tree`.
pub fn make_tree(side: &Side) -> Outcome {
    let folder = side.place("root").join("tree");
    std::fs::create_dir(&folder)?;
    tree::fill(&folder, 42, TreeSize::Small)?;
    let mut command = command(side, &format!("set -e\n{TREE_TIMES}"));
    program::run(&mut command, Duration::from_secs(60))?.expect_success()?;
    Ok(())
}

/// A `bash` that runs a step. What it leaves running ends with it. It is a process group of its
/// own: some servers end by a signal to their whole group.
pub fn command(side: &Side, text: &str) -> Command {
    let mut command = Command::new("unshare");
    command
        .process_group(0)
        .args(["--pid", "--fork", "--kill-child", "--", "bash", "-c"])
        .arg(format!("exec 2>&1\n{PRELUDE}\n{text}"))
        .current_dir(side.place("root"))
        .env_clear();
    for (name, place) in [
        ("ROOT", side.place("root")),
        ("OTHER", side.place("other")),
        ("FULL", side.place("full")),
        ("QUOTA", side.place("quota")),
        ("SNAP", side.snapshot_place()),
        ("WORK", side.work()),
        ("HOME", side.work().join("home")),
    ] {
        command.env(name, place);
    }
    let cargo = std::env::var_os("CARGO").map(std::path::PathBuf::from);
    let cargo = cargo.as_deref().and_then(Path::parent);
    let tools = cargo.map_or(String::new(), |folder| format!(":{}", folder.display()));
    for name in ["CARGO_HOME", "RUSTUP_HOME"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "UTC")
        .env("USER", "root")
        .env("LOGNAME", "root")
        .env("SHELL", "/bin/bash")
        .env("TERM", "dumb")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env(
            "PATH",
            format!(
                "/usr/sbin:/usr/bin:/sbin:/bin:/usr/games{tools}:{}",
                programs().display()
            ),
        );
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_taken_apart_at_its_titles() {
        let text = "\n### one\necho a\n#snapshot\n### [away] two\necho b\n#restart\n";
        let script = |title: &str, text: &str| Step::Script {
            title: title.into(),
            text: text.into(),
        };
        let away = Step::Away {
            title: "two".into(),
            text: "echo b\n".into(),
        };
        let expected = vec![
            script("one", "echo a\n"),
            Step::Snapshot,
            away,
            Step::Restart,
        ];
        assert_eq!(parse(text).unwrap(), expected);
        assert!(parse("echo lost\n### one\n").is_err());
    }
}
