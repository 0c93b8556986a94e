//! `zfs receive`.
//!
//! # Mechanism
//! The stream does not come through here: the daemon reads the command's standard input itself.
//! What happens meanwhile is asked for beside that, and shown when it has happened. On a screen a
//! line says how much came of the stream that is coming, and how fast; it is wiped out by what
//! follows.

use crate::assignments::Assignments;
use crate::{pace, watching};
use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use tarn_administration::messages::RefusalKind;
use tarn_administration::messages::dataset::{
    AbortReceive, Receive, ReceiveEvent, ReceiveLine, ReceiveNames, ReceiveProgress, Received,
    WatchReceive,
};
use tarn_api::client::Client;
use tarn_engine::properties::parse::meant;
use tarn_terminal::connection::hand_over;
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::number::nice_bytes;
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output::say;
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: ":o:x:dehMnuvFsAc",
    long: &[],
};

/// How soon it is asked again for a receive that has yet to begin.
const SOON: Duration = Duration::from_millis(20);

/// What the command line asks for.
#[derive(Debug, PartialEq)]
enum Asked {
    Receive { request: Receive, verbose: bool },
    Abort(AbortReceive),
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let (request, verbose) = match parse(arguments)? {
        Asked::Abort(request) => {
            session.connect()?.dataset_abort_receive(request)?;
            return Ok(0);
        }
        Asked::Receive { request, verbose } => (request, verbose),
    };
    let stream = std::io::stdin();
    if stream.is_terminal() {
        let text = "Error: Backup stream can not be read from a terminal.\n\
                    You must redirect standard input.";
        return Err(Failure::error(text));
    }
    let client = session.connect()?;
    let mut board = Board::new(&request, verbose, std::io::stdout().is_terminal());
    let received = watched(&client, request, stream.as_fd(), &mut board)?;
    Ok(u8::from(received.is_incomplete))
}

/// Receives, and shows what happens.
fn watched(
    client: &Client,
    mut request: Receive,
    stream: BorrowedFd<'_>,
    board: &mut Board,
) -> Result<Received, Failure> {
    let watch = watching::name();
    request.watch = Some(watch.clone());
    let (tell, told) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || follow(client, watch, &told, board));
        let received = receive(client, request, stream);
        drop(tell);
        received
    })
}

fn receive(client: &Client, request: Receive, stream: BorrowedFd<'_>) -> Result<Received, Failure> {
    let (client, _line) = hand_over(client, stream)?;
    Ok(client.dataset_receive(request)?)
}

/// Asks what happens until there is nothing more. `told` is closed when the receive has ended, or
/// could not begin.
fn follow(client: &Client, watch: String, told: &Receiver<()>, board: &mut Board) {
    let mut question = WatchReceive { watch, seen: 0 };
    let mut has_ended = false;
    loop {
        let answer = client.dataset_watch_receive(question.clone());
        match answer {
            Ok(progress) if progress.is_known => {
                question.seen += u64::try_from(progress.lines.len()).unwrap_or(0);
                board.show(&progress);
                if progress.is_over {
                    return;
                }
            }
            // It has told everything, or nothing.
            _ if has_ended => return,
            _ => has_ended = told.recv_timeout(SOON) != Err(RecvTimeoutError::Timeout),
        }
    }
}

/// Wipes out what follows on the line.
const WIPE: &str = "\x1b[K";

/// Streams that are shorter are in before their speed could be read.
const SHORT: Duration = Duration::from_secs(1);

/// Where it is shown.
struct Board {
    verbose: bool,
    manner: Manner,
    /// Standard output is a terminal.
    is_screen: bool,
    /// A line is to be wiped out.
    has_line: bool,
}

/// What is shown: on standard output, as it is, or as a line of standard error.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Out(String),
    Error(String),
}

/// What the words depend on.
#[derive(Debug, Clone, Copy, Default)]
struct Manner {
    dry_run: bool,
    /// What a clone shall be of was said on the command line.
    has_origin: bool,
}

impl Board {
    fn new(request: &Receive, verbose: bool, is_screen: bool) -> Board {
        let mut said = request.properties.iter();
        Board {
            verbose,
            is_screen,
            has_line: false,
            manner: Manner {
                dry_run: request.dry_run,
                has_origin: said.any(|(name, _)| name == "origin"),
            },
        }
    }

    fn show(&mut self, progress: &ReceiveProgress) {
        for piece in self.pieces(progress) {
            match piece {
                Piece::Out(text) => say(&text),
                Piece::Error(text) => complain(text),
            }
        }
    }

    fn pieces(&mut self, progress: &ReceiveProgress) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let elapsed = Duration::from_nanos(progress.nanoseconds);
        let is_coming = progress.is_coming && !progress.is_over && elapsed >= SHORT;
        if std::mem::take(&mut self.has_line) {
            pieces.push(Piece::Out(WIPE.to_string()));
        }
        for line in &progress.lines {
            match line {
                ReceiveLine::Event(event) if self.verbose => {
                    pieces.push(Piece::Out(told(event, self.manner)));
                }
                ReceiveLine::Event(_) => {}
                ReceiveLine::Warning(warning) => pieces.push(Piece::Error(warning.clone())),
            }
        }
        if is_coming && self.verbose && self.is_screen {
            let bytes = nice_bytes(progress.bytes);
            let rate = pace::rate_text(progress.bytes, elapsed);
            // The sender may write to the same screen: its lines begin where this one does.
            pieces.push(Piece::Out(format!("{bytes} received, {rate}{WIPE}\r")));
            self.has_line = true;
        }
        pieces
    }
}

/// What OpenZFS prints of an event.
fn told(event: &ReceiveEvent, manner: Manner) -> String {
    match event {
        ReceiveEvent::Receiving {
            sent,
            snapshot,
            incremental,
            origin,
        } => {
            let origin = match origin {
                Some(origin) if manner.has_origin => {
                    format!("using provided clone origin {origin}\n")
                }
                Some(origin) => format!("found clone origin {origin}\n"),
                None => String::new(),
            };
            let verb = if manner.dry_run {
                "would receive"
            } else {
                "receiving"
            };
            let kind = if *incremental { "incremental" } else { "full" };
            format!("{origin}{verb} {kind} stream of {sent} into {snapshot}\n")
        }
        ReceiveEvent::Exists { snapshot } => {
            format!("snap {snapshot} already exists; ignoring\n")
        }
        ReceiveEvent::Received { bytes, nanoseconds } => {
            let nanoseconds = u128::from((*nanoseconds).max(1));
            let rate = u128::from(*bytes) * 1_000_000_000 / nanoseconds;
            let rate = u64::try_from(rate).unwrap_or(u64::MAX);
            let hundredths = (nanoseconds + 5_000_000) / 10_000_000;
            format!(
                "received {} stream in {}.{:02} seconds ({}/sec)\n",
                nice_bytes(*bytes),
                hundredths / 100,
                hundredths % 100,
                nice_bytes(rate)
            )
        }
        ReceiveEvent::Promoting { name } => format!("promoting {name}\n"),
        ReceiveEvent::Destroying { name } => format!("attempting destroy {name}\n"),
        ReceiveEvent::Renaming { from, to } => format!("attempting rename {from} to {to}\n"),
        ReceiveEvent::RenamingAside { from, to } => {
            format!("failed - trying rename {from} to {to}\n")
        }
        ReceiveEvent::Succeeded => "success\n".to_string(),
        ReceiveEvent::Failed { kind, is_again } => {
            let again = match is_again {
                true => " - will try again on next pass",
                false => "",
            };
            format!("failed ({}){again}\n", number_of(*kind))
        }
        ReceiveEvent::AnotherPass => "another pass:\n".to_string(),
        ReceiveEvent::WithoutFirst { name, from } => format!(
            "local fs {name} does not have fromsnap ({from} in stream); must have been deleted locally; ignoring\n"
        ),
        ReceiveEvent::WithoutParent { name } => format!("local fs {name} new parent not found\n"),
    }
}

/// The number that the system has for a failure of this kind.
fn number_of(kind: RefusalKind) -> u32 {
    match kind {
        RefusalKind::NotFound => 2,
        RefusalKind::Device | RefusalKind::Corrupt => 5,
        RefusalKind::Denied => 13,
        RefusalKind::Busy => 16,
        RefusalKind::Exists => 17,
        RefusalKind::NoSpace => 28,
        RefusalKind::ReadOnly => 30,
        RefusalKind::Unsupported => 95,
        _ => 22,
    }
}

fn parse(arguments: &[String]) -> Result<Asked, Failure> {
    let mut request = Receive::default();
    let (mut verbose, mut aborts) = (false, false);
    let mut assignments = Assignments::default();
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "o" => add(&mut assignments, &request.excluded, &value)?,
            "x" => exclude(&mut request.excluded, &assignments, value)?,
            "d" => choose(&mut request.names, ReceiveNames::AllButPool)?,
            "e" => choose(&mut request.names, ReceiveNames::Last)?,
            "h" => request.skip_holds = true,
            "M" => request.force_unmount = true,
            "n" => request.dry_run = true,
            "u" => request.no_mount = true,
            "v" => verbose = true,
            "F" => request.force = true,
            "s" => request.resumable = true,
            "A" => aborts = true,
            _ => {
                let text = "corrective receive ('-c') is not supported by this version";
                return Err(Failure::error(text));
            }
        }
    }
    request.target = match options.operands().as_slice() {
        [target] => target.clone(),
        [] => return Err(Failure::usage("missing snapshot argument")),
        _ => return Err(Failure::usage("too many arguments")),
    };
    if aborts {
        let is_named = request.names != ReceiveNames::AsGiven;
        if is_named || request.dry_run || request.resumable || request.no_mount {
            return Err(Failure::usage("invalid option"));
        }
        let name = request.target;
        return Ok(Asked::Abort(AbortReceive { name }));
    }
    request.properties = assignments.0;
    Ok(Asked::Receive { request, verbose })
}

fn add(assignments: &mut Assignments, excluded: &[String], text: &str) -> Result<(), Failure> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(Failure::usage("missing '=' for property=value argument"));
    };
    let name = meant(name);
    is_first(assignments, excluded, name)?;
    assignments.0.push((name.to_string(), value.to_string()));
    Ok(())
}

fn exclude(
    excluded: &mut Vec<String>,
    assignments: &Assignments,
    name: String,
) -> Result<(), Failure> {
    if name.contains('=') {
        return Err(Failure::usage("invalid character '=' in property argument"));
    }
    let name = meant(&name);
    is_first(assignments, excluded, name)?;
    excluded.push(name.to_string());
    Ok(())
}

fn is_first(assignments: &Assignments, excluded: &[String], name: &str) -> Result<(), Failure> {
    let is_known = excluded.iter().any(|other| other == name);
    match is_known || assignments.find(name).is_some() {
        true => Err(Failure::usage(format!(
            "property '{name}' specified multiple times"
        ))),
        false => Ok(()),
    }
}

fn choose(names: &mut ReceiveNames, chosen: ReceiveNames) -> Result<(), Failure> {
    if *names != ReceiveNames::AsGiven && *names != chosen {
        let text = "invalid option combination: -d and -e are mutually exclusive";
        return Err(Failure::usage(text));
    }
    *names = chosen;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Asked, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn options_say_where_a_stream_goes_and_what_it_may_change() {
        let asked = parsed("-vFsud -o atime=off -x mountpoint tank/b").unwrap();
        let expected = Receive {
            target: "tank/b".to_string(),
            names: ReceiveNames::AllButPool,
            force: true,
            no_mount: true,
            resumable: true,
            properties: vec![("atime".to_string(), "off".to_string())],
            excluded: vec!["mountpoint".to_string()],
            ..Receive::default()
        };
        let verbose = true;
        assert_eq!(
            asked,
            Asked::Receive {
                request: expected,
                verbose
            }
        );
        let name = "tank/b".to_string();
        assert_eq!(parsed("-A tank/b"), Ok(Asked::Abort(AbortReceive { name })));
    }

    #[test]
    fn following_the_sender_is_told_as_openzfs_tells_it() {
        let name = || "tank/b/x".to_string();
        for (event, text) in [
            (
                ReceiveEvent::Promoting { name: name() },
                "promoting tank/b/x\n",
            ),
            (
                ReceiveEvent::Destroying { name: name() },
                "attempting destroy tank/b/x\n",
            ),
            (
                ReceiveEvent::Renaming {
                    from: name(),
                    to: "tank/b/y".to_string(),
                },
                "attempting rename tank/b/x to tank/b/y\n",
            ),
            (
                ReceiveEvent::RenamingAside {
                    from: name(),
                    to: "tank/b/recv-7-1".to_string(),
                },
                "failed - trying rename tank/b/x to tank/b/recv-7-1\n",
            ),
            (
                ReceiveEvent::Failed {
                    kind: RefusalKind::Busy,
                    is_again: true,
                },
                "failed (16) - will try again on next pass\n",
            ),
            (
                ReceiveEvent::WithoutFirst {
                    name: name(),
                    from: "s".to_string(),
                },
                "local fs tank/b/x does not have fromsnap (s in stream); must have been deleted locally; ignoring\n",
            ),
        ] {
            assert_eq!(told(&event, Manner::default()), text);
        }
    }

    #[test]
    fn how_much_came_is_shown_on_a_screen_until_something_happens() {
        let shown = |is_screen, verbose| {
            let mut board = Board::new(&Receive::default(), verbose, is_screen);
            let coming = ReceiveProgress {
                is_known: true,
                is_coming: true,
                bytes: 8 << 20,
                nanoseconds: 4_000_000_000,
                ..ReceiveProgress::default()
            };
            let exists = ReceiveEvent::Exists {
                snapshot: "tank/b@x".to_string(),
            };
            let next = ReceiveProgress {
                lines: vec![
                    ReceiveLine::Warning("no".to_string()),
                    ReceiveLine::Event(exists),
                ],
                nanoseconds: 0,
                ..coming.clone()
            };
            let mut pieces = board.pieces(&coming);
            pieces.extend(board.pieces(&next));
            pieces
        };
        let out = |text: &str| Piece::Out(text.to_string());
        let error = Piece::Error("no".to_string());
        let exists = "snap tank/b@x already exists; ignoring\n";
        assert_eq!(
            shown(true, true),
            [
                out("8M received, 2M/s\x1b[K\r"),
                out(WIPE),
                error,
                out(exists)
            ]
        );
        let error = Piece::Error("no".to_string());
        assert_eq!(shown(false, true), [error, out(exists)]);
        assert_eq!(shown(true, false), [Piece::Error("no".to_string())]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, text) in [
            ("", "missing snapshot argument"),
            ("a b", "too many arguments"),
            (
                "-d -e a",
                "invalid option combination: -d and -e are mutually exclusive",
            ),
            ("-q a", "invalid option 'q'"),
            ("a -o", "missing argument for 'o' option"),
            ("-A -s a", "invalid option"),
            ("-o atime a", "missing '=' for property=value argument"),
            (
                "-x atime=on a",
                "invalid character '=' in property argument",
            ),
            (
                "-x atime -o atime=on a",
                "property 'atime' specified multiple times",
            ),
        ] {
            assert_eq!(parsed(line), Err(Failure::usage(text)), "{line}");
        }
        assert!(matches!(parsed("-c a"), Err(Failure::Error(_))));
    }
}
