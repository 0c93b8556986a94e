//! What an answer must not be, whatever was asked.

use std::time::Duration;

use tarn_oracle::program::Spoken;

/// How long an answer may take.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Pieces of text that no user should see: numbers of the system's errors, values as a debugger
/// shows them, panics, and what says that our own parts did not understand each other.
const INNARDS: &[&str] = &[
    "(os error",
    "panicked",
    "RUST_BACKTRACE",
    "stack backtrace",
    "internal error",
    "does not understand",
    "went away before it answered",
    "unreachable",
    "Some(\"",
    "Ok(\"",
    "Err(",
    "Os { code",
    "kind: ",
    "Custom {",
    "ParseIntError",
    "Utf8Error",
    "InvalidInput",
    "IntErrorKind",
    "called `",
    "at line 1 column",
    "core/",
    "/src/",
    ".rs:",
    "tarn_",
];

/// What is wrong with a text for users.
pub fn innards_of(text: &str) -> Option<&'static str> {
    INNARDS.iter().copied().find(|piece| text.contains(piece))
}

/// What is wrong with how a command ended, if anything. What it was given may be in its message,
/// and does not count.
pub fn fault_of(spoken: &Spoken, arguments: &[Vec<u8>]) -> Option<String> {
    let Some(code) = spoken.code else {
        return Some("it was ended by a signal".to_string());
    };
    let said = format!("{}\n{}", spoken.stderr, spoken.stdout);
    let given = |piece: &str| {
        let mut arguments = arguments.iter();
        arguments.any(|word| String::from_utf8_lossy(word).contains(piece))
    };
    if let Some(piece) = innards_of(&said).filter(|piece| !given(piece)) {
        return Some(format!("its message has `{piece}`"));
    }
    if code == 101 || code > 128 && code != 255 {
        return Some(format!("exit code {code}"));
    }
    // `tarn kstat` finds nothing, as `grep` does; OpenZFS's `zdb -l -q` prints no label, and not
    // that there is none.
    let is_quiet = arguments.iter().any(|word| word == b"-q") && spoken.command.contains("zdb");
    let is_silent = !spoken.command.contains("kstat")
        && !is_quiet
        && spoken.stderr.trim().is_empty()
        && spoken.stdout.trim().is_empty();
    (code != 0 && is_silent).then(|| format!("exit code {code} without a word"))
}

/// Whether a command that failed says that it did its work all the same, but for mounting.
pub fn has_changed(spoken: &Spoken) -> bool {
    [
        "successfully created",
        "property may be set",
        "cannot mount",
        "cannot unmount",
    ]
    .iter()
    .any(|words| spoken.stderr.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spoken(code: Option<i32>, stderr: &str) -> Spoken {
        Spoken {
            command: String::new(),
            code,
            stdout: String::new(),
            stderr: stderr.to_string(),
            duration: Duration::ZERO,
        }
    }

    #[test]
    fn what_no_user_should_see_is_found() {
        let given = [b"a.rs:1".to_vec()];
        for (code, said, is_wrong) in [
            (Some(1), "cannot open 'x': no such pool", false),
            (Some(1), "cannot open 'x': No such file (os error 2)", true),
            (Some(1), "thread 'main' panicked", true),
            (Some(1), "bad value Some(\"x\")", true),
            (
                Some(1),
                "cannot open 'a.rs:1': dataset does not exist",
                false,
            ),
            (Some(1), "", true),
            (Some(101), "x", true),
            (None, "x", true),
            (Some(0), "", false),
        ] {
            let fault = fault_of(&spoken(code, said), &given);
            assert_eq!(fault.is_some(), is_wrong, "{code:?} {said}: {fault:?}");
        }
    }

    #[test]
    fn a_zdb_that_is_asked_to_print_no_label_may_say_nothing() {
        let command = "/programs/zdb -l -q /images/tiny".to_string();
        let silent = Spoken {
            command,
            ..spoken(Some(2), "")
        };
        assert_eq!(fault_of(&silent, &[b"-q".to_vec()]), None);
        assert!(fault_of(&silent, &[b"-l".to_vec()]).is_some());
    }
}
