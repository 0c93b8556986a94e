//! `tarn top`: what goes on, in a terminal: how long operations take, what the cache had, and the
//! files and clients with the most of them.

use crate::asked_operations::{connect, duration_of, note_time, statement_of};
use crate::top_picture::{self, Frame, Look};
use std::time::{Duration, Instant};
use tarn_administration::messages::analytics::{Answer, Query, When};
use tarn_api::client::Client;
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::keyboard::{Key, Keyboard};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;
use tarn_terminal::{output, screen};

/// The usage.
pub const USAGE: &str =
    "\ttop [-bs] [-n count] [-i interval] [--until time] [statement | condition]\n";

/// What follows it.
pub const NOTES: &str = "\n\
\t-b           text without colours, a picture after the other, for scripts\n\
\t-i interval  seconds between pictures, and of a column; 1 unless given\n\
\t-n count     so many pictures; without an end unless given, one with -b\n\
\t-s           misses upon hits: the height is the load\n\
\t--until time\n\
\t             the time before this one, standing still: unix seconds, HH:MM, HH:MM:SS or\n\
\t             \"YYYY-MM-DD HH:MM\"\n\
\nKeys: q ends, p pauses, s stacks misses upon hits; left and right, and up and down, choose\n\
what the two tables tell apart: files, clients, datasets, users, kinds of operations, causes, protocols.\n\
\nThe heat map has a column for each second and a row for each range of latency; the more\n\
operations, the darker the sign (. : - = + * % #); ? was not collected. The colour is the\n\
cause of most. Below it, operations that the cache answered go up in green, those that\n\
waited for a device down in red; with -s, or after the key s, both go up.\n\
\nA condition is such as 'op=read and file prefix /tank/home/', a statement 'nfs.ops'.\n\
\nExit codes: 0 done, 1 not done, 2 wrong usage.\n";

const GRAMMAR: Grammar = Grammar {
    short: ":bsn:i:u:",
    long: &[
        ("batch", "b"),
        ("stacked", "s"),
        ("count", "n"),
        ("interval", "i"),
        ("until", "u"),
    ],
};

/// What the tables tell apart, in the order of the arrows.
const FIELDS: [&str; 7] = [
    "file", "client", "dataset", "user", "op", "cause", "protocol",
];

/// Columns and rows of a picture that goes to no terminal.
const BATCH_SIZE: (usize, usize) = (100, 30);
/// Beyond it a picture is no clearer.
const COLUMNS_MAX: usize = 400;

#[derive(Debug, Clone)]
struct Asked {
    statement: String,
    is_batch: bool,
    is_stacked: bool,
    count: Option<u64>,
    interval: Duration,
    when: When,
}

/// What the arrows have chosen, and whether time goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Chosen {
    left: usize,
    right: usize,
    is_paused: bool,
    is_stacked: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why there is no answer.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let asked = parse(arguments)?;
    let client = connect(session)?;
    // Asked once before the terminal is switched: what is refused is told in the terminal.
    let mut chosen = Chosen {
        left: 0,
        right: 1,
        is_paused: false,
        is_stacked: asked.is_stacked,
    };
    take(&client, &asked, &chosen, asked.when, BATCH_SIZE.0)?;
    let keyboard = match asked.is_batch {
        true => None,
        false => Keyboard::open(),
    };
    let Some(keyboard) = keyboard else {
        return batch(&client, &asked, &chosen);
    };
    let (mut done, mut when) = (0, asked.when);
    loop {
        let size = (
            screen::columns().min(COLUMNS_MAX),
            screen::rows()
                .and_then(|rows| usize::try_from(rows).ok())
                .unwrap_or(24),
        );
        let frame = take(&client, &asked, &chosen, when, size.0)?;
        let look = Look {
            size,
            is_coloured: true,
            is_paused: chosen.is_paused,
            is_stacked: chosen.is_stacked,
        };
        // Lines overwrite those of before, so that nothing flickers.
        let picture = top_picture::lines(&frame, &look);
        let picture: Vec<String> = picture.iter().map(|line| format!("{line}\x1b[K")).collect();
        output::say(&format!("\x1b[H{}\x1b[J", picture.join("\r\n")));
        done += 1;
        if asked.count.is_some_and(|count| done >= count) {
            return Ok(0);
        }
        match wait(&keyboard, asked.interval, &mut chosen) {
            Then::End => return Ok(0),
            Then::Anew => {
                when = match chosen.is_paused && when.until.is_none() {
                    true => When {
                        until: Some(end_of(&frame.heat)),
                        ..asked.when
                    },
                    false if chosen.is_paused => when,
                    false => asked.when,
                };
            }
        }
    }
}

enum Then {
    Anew,
    End,
}

/// Waits for the next picture, or for a key that changes it.
fn wait(keyboard: &Keyboard, interval: Duration, chosen: &mut Chosen) -> Then {
    let until = Instant::now() + interval;
    loop {
        match keyboard.wait(until) {
            Some(Key::End | Key::Letter('q')) => return Then::End,
            Some(key) if press(chosen, key) => return Then::Anew,
            Some(_) => {}
            None if Instant::now() >= until => return Then::Anew,
            None => {}
        }
    }
}

/// What a key changes; says whether it changes anything.
fn press(chosen: &mut Chosen, key: Key) -> bool {
    let count = FIELDS.len();
    match key {
        Key::Letter('p' | ' ') => chosen.is_paused = !chosen.is_paused,
        Key::Letter('s') => chosen.is_stacked = !chosen.is_stacked,
        Key::Right => chosen.left = (chosen.left + 1) % count,
        Key::Left => chosen.left = (chosen.left + count - 1) % count,
        Key::Down => chosen.right = (chosen.right + 1) % count,
        Key::Up => chosen.right = (chosen.right + count - 1) % count,
        _ => return false,
    }
    true
}

fn batch(client: &Client, asked: &Asked, chosen: &Chosen) -> Outcome {
    let look = Look {
        size: BATCH_SIZE,
        is_coloured: false,
        is_paused: false,
        is_stacked: chosen.is_stacked,
    };
    let count = asked.count.unwrap_or(1);
    for done in 0..count {
        if done > 0 {
            std::thread::sleep(asked.interval);
            output::say("\n");
        }
        let frame = take(client, asked, chosen, asked.when, look.size.0)?;
        output::say(&(top_picture::lines(&frame, &look).join("\n") + "\n"));
    }
    Ok(0)
}

/// Asks for everything of a picture.
fn take(
    client: &Client,
    asked: &Asked,
    chosen: &Chosen,
    when: When,
    width: usize,
) -> Result<Frame, Failure> {
    let columns = u32::try_from(top_picture::map_columns(width)).unwrap_or(1);
    let when = When {
        last: Some((asked.interval * columns).as_secs_f64()),
        ..when
    };
    let query = |breakdown: &str, keys: u32| -> Result<Answer, Failure> {
        let statement = format!("{}{breakdown}", asked.statement);
        let column_ms = u64::try_from(asked.interval.as_millis()).unwrap_or(u64::MAX);
        Ok(client.analytics_query(Query {
            column_ms,
            keys,
            ..Query::of(&statement, when)
        })?)
    };
    let by = |field: usize| query(&format!("[{}]:latency", FIELDS[field]), KEYS);
    Ok(Frame {
        heat: query("[cause]:latency", 16)?,
        left: by(chosen.left)?,
        right: by(chosen.right)?,
    })
}

/// Keys of a table.
const KEYS: u32 = 20;

/// The unix time at which an answer ends.
fn end_of(answer: &Answer) -> f64 {
    let end_ms = answer.from_ms + answer.columns * answer.column_ms;
    Duration::from_millis(end_ms).as_secs_f64()
}

fn parse(arguments: &[String]) -> Result<Asked, Failure> {
    let mut options = Options::new(GRAMMAR, arguments);
    let mut asked = Asked {
        statement: String::new(),
        is_batch: false,
        is_stacked: false,
        count: None,
        interval: Duration::from_secs(1),
        when: When::default(),
    };
    while let Some((name, value)) = options.take()? {
        match name {
            "b" => asked.is_batch = true,
            "s" => asked.is_stacked = true,
            "u" => note_time(&mut asked.when, "until", &value)?,
            "i" => {
                let seconds = duration_of(&value)?;
                let interval = Duration::from_millis((seconds * 1000.0) as u64);
                if interval < Duration::from_millis(100) {
                    return Err(Failure::usage("the interval is 0.1 or more"));
                }
                asked.interval = interval;
            }
            _ => {
                let count = value.parse().ok().filter(|count| *count > 0);
                let wrong = || Failure::usage(format!("'{value}' is no count"));
                asked.count = Some(count.ok_or_else(wrong)?);
            }
        }
    }
    let operands = options.operands();
    asked.statement = match operands.as_slice() {
        [] => statement_of(None),
        [one] => statement_of(Some(one)),
        _ => return Err(Failure::usage("too many arguments: quote the condition")),
    };
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_choose_what_the_tables_tell_apart_and_p_pauses() {
        let mut chosen = Chosen {
            left: 0,
            right: 1,
            is_paused: false,
            is_stacked: false,
        };
        assert!(press(&mut chosen, Key::Left));
        assert_eq!(FIELDS[chosen.left], "protocol");
        assert!(press(&mut chosen, Key::Down) && press(&mut chosen, Key::Letter('p')));
        assert_eq!(FIELDS[chosen.right], "dataset");
        assert!(chosen.is_paused && !chosen.is_stacked);
        assert!(press(&mut chosen, Key::Letter('s')) && chosen.is_stacked);
        assert!(!press(&mut chosen, Key::Letter('x')));
    }

    #[test]
    fn the_command_line_is_read() {
        let words = ["-bsn2", "-i0.5", "nfs.ops"].map(str::to_string);
        let asked = parse(&words).unwrap();
        assert_eq!(
            (asked.count, asked.is_batch, asked.is_stacked),
            (Some(2), true, true)
        );
        assert_eq!(asked.interval, Duration::from_millis(500));
        assert_eq!(asked.statement, "nfs.ops");
        for wrong in [&["-n0"][..], &["-i0"], &["-i", "0.01"], &["a", "b"]] {
            let words: Vec<String> = wrong.iter().map(|word| word.to_string()).collect();
            assert!(matches!(parse(&words), Err(Failure::Usage(_))), "{wrong:?}");
        }
    }
}
