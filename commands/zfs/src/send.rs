//! `zfs send`.
//!
//! # Mechanism
//! The daemon writes the stream into our standard output itself. `-n` asks for a plan first, which
//! has the size; `-v` and `-V` ask, once a second, how far it is. On a screen there are columns
//! after those of OpenZFS: how fast it goes, and how long it will go on.

use crate::{pace, watching};
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tarn_administration::messages::dataset::{
    DatasetKind, Describe, ReadToken, Send, SendPlan, SendProgress, SendStep, Series, WatchSend,
};
use tarn_administration::messages::{Refusal, Value};
use tarn_api::client::{CallError, Client};
use tarn_engine::names::{DatasetName, NameKind};
use tarn_terminal::connection::hand_over;
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::number::{nice_bytes, nice_count};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output::{self, say};
use tarn_terminal::process_title::ProcessTitle;
use tarn_terminal::program::Session;
use tarn_terminal::timestamp::local;

const GRAMMAR: Grammar = Grammar {
    short: ":i:I:RsDpVvnPLeht:cwbd:SX:",
    long: &[
        ("replicate", "R"),
        ("skip-missing", "s"),
        ("redact", "d"),
        ("props", "p"),
        ("parsable", "P"),
        ("dedup", "D"),
        ("proctitle", "V"),
        ("verbose", "v"),
        ("dryrun", "n"),
        ("large-block", "L"),
        ("embed", "e"),
        ("resume", "t"),
        ("compressed", "c"),
        ("raw", "w"),
        ("backup", "b"),
        ("holds", "h"),
        ("saved", "S"),
        ("exclude", "X"),
    ],
};

/// How often the progress is shown.
const SECOND: Duration = Duration::from_secs(1);

/// OpenZFS gives its `-1` on as an exit code where a token cannot be used.
const TOKEN_FAILED: u8 = 255;

/// What the options say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Wishes {
    /// What the options alone decide of the request.
    request: Send,
    series: Series,
    from: Option<String>,
    token: Option<String>,
    redact: bool,
    saved: bool,
    dry_run: bool,
    parsable: bool,
    title: bool,
    verbosity: u32,
    /// `-v`: lines while it goes.
    progress: bool,
    operands: Vec<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line; or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let mut wishes = parse(arguments)?;
    check(&wishes)?;
    if !wishes.dry_run && std::io::stdout().is_terminal() {
        return Err(Failure::error(
            "Error: Stream can not be written to a terminal.\nYou must redirect standard output.",
        ));
    }
    if wishes.saved {
        return Err(not_supported("sending what was received in part (-S)"));
    }
    if wishes.redact {
        return Err(not_supported("redacted streams (--redact)"));
    }
    if let Some(token) = wishes.token.take() {
        return resume(session, &wishes, token);
    }
    if wishes.series.skip_missing && !wishes.series.replicate {
        return Err(Failure::usage(
            "skip-missing flag can only be used in conjunction with replicate",
        ));
    }
    let request = match wishes.series.replicate || wishes.series.all_between {
        false => single(&wishes),
        true => several(session, &wishes)?,
    };
    carry_out(session, &wishes, request)
}

fn not_supported(what: &str) -> Failure {
    Failure::error(format!("{what}: not supported by this version of Tarn"))
}

fn parse(arguments: &[String]) -> Result<Wishes, Failure> {
    let mut wishes = Wishes::default();
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        let (request, series) = (&mut wishes.request, &mut wishes.series);
        match option {
            "i" | "I" if wishes.from.is_some() => return Err(Failure::usage("")),
            "i" => wishes.from = Some(value),
            "I" => {
                wishes.from = Some(value);
                series.all_between = true;
            }
            "R" => series.replicate = true,
            "s" => series.skip_missing = true,
            "X" => series.exclude.extend(excluded(&value)?),
            "p" => request.properties = true,
            "b" => request.backup = true,
            "h" => request.holds = true,
            "L" => request.large_blocks = true,
            "e" => request.embedded = true,
            "c" => request.compressed = true,
            "w" => {
                request.raw = true;
                request.compressed = true;
                request.embedded = true;
                request.large_blocks = true;
            }
            "P" => wishes.parsable = true,
            "V" => wishes.title = true,
            "v" => {
                wishes.verbosity += 1;
                wishes.progress = true;
            }
            "n" => wishes.dry_run = true,
            "t" => wishes.token = Some(value),
            "S" => wishes.saved = true,
            "d" => wishes.redact = true,
            _ => complain(
                "WARNING: deduplicated send is no longer supported.  A regular,\nnon-deduplicated stream will be generated.\n",
            ),
        }
    }
    if (wishes.parsable || wishes.title) && wishes.verbosity == 0 {
        wishes.verbosity = 1;
    }
    wishes.series.verbose = wishes.verbosity > 0;
    wishes.operands = options.operands();
    Ok(wishes)
}

/// The names that one `-X` excludes.
fn excluded(value: &str) -> Result<Vec<String>, Failure> {
    let names = value.split(',').map(|name| {
        let is_dataset = DatasetName::parse(name).is_ok_and(|name| name.kind() == NameKind::Head);
        match is_dataset && name.contains('/') {
            true => Ok(name.to_string()),
            false => Err(Failure::usage(format!(
                "-X {name}: not a valid non-root dataset name."
            ))),
        }
    });
    names.collect()
}

/// Refuses options that do not go together.
fn check(wishes: &Wishes) -> Result<(), Failure> {
    let (request, series) = (&wishes.request, &wishes.series);
    if !series.exclude.is_empty() && !series.replicate {
        return Err(Failure::error(
            "Cannot specify dataset exclusion (-X) on a non-recursive send.",
        ));
    }
    let says_more = wishes.from.is_some()
        || series.replicate
        || request.properties
        || request.backup
        || request.holds
        || wishes.redact;
    match (&wishes.token, wishes.operands.as_slice()) {
        (Some(_), _) if says_more || wishes.saved => {
            return Err(Failure::usage("invalid flags combined with -t"));
        }
        (Some(_), [_, ..]) | (None, [_, _, ..]) => {
            return Err(Failure::usage("too many arguments"));
        }
        (None, []) => return Err(Failure::usage("missing snapshot argument")),
        _ => {}
    }
    let has_form = request.large_blocks || request.embedded || request.compressed || request.raw;
    if wishes.saved && (says_more || has_form) {
        return Err(Failure::usage(
            "incompatible flags combined with saved send flag",
        ));
    }
    if wishes.saved && wishes.operands[0].contains('@') {
        return Err(Failure::usage(
            "saved send must specify the dataset with partially-received state",
        ));
    }
    if request.raw && wishes.redact {
        return Err(Failure::error("Error: raw sends may not be redacted."));
    }
    let is_series = series.replicate || series.all_between;
    let is_bookmark = wishes.from.as_ref().is_some_and(|from| from.contains('#'));
    if wishes.token.is_none() && is_series {
        if is_bookmark {
            return Err(Failure::error(
                "Error: multiple snapshots cannot be sent from a bookmark.",
            ));
        }
        if wishes.redact {
            return Err(Failure::error(
                "Error: multiple snapshots cannot be sent redacted.",
            ));
        }
        if !wishes.operands[0].contains('@') {
            return Err(Failure::error(
                "Error: Unsupported flag with filesystem or bookmark.",
            ));
        }
    }
    Ok(())
}

/// One snapshot. What it goes on from may be short for one of the same dataset.
fn single(wishes: &Wishes) -> Send {
    let name = wishes.operands[0].clone();
    let mut from = wishes.from.clone();
    if let Some(source) = &mut from {
        if !source.contains(['@', '#']) {
            complain(
                "Warning: incremental source didn't specify type, assuming snapshot. Use '@' or '#' prefix to avoid ambiguity.",
            );
            source.insert(0, '@');
        }
        if source.starts_with(['@', '#']) {
            let head = name.split('@').next().unwrap_or_default();
            source.insert_str(0, head);
        }
    }
    Send {
        name,
        from,
        ..wishes.request.clone()
    }
}

/// Several snapshots. What they go on from is one of the same file system, or what that is a clone
/// of.
fn several(session: &Session, wishes: &Wishes) -> Result<Send, Failure> {
    let name = wishes.operands[0].clone();
    let head = name.split('@').next().unwrap_or_default().to_string();
    let mut series = wishes.series.clone();
    let mut from = None;
    match &wishes.from {
        None => {}
        Some(source) if !source.contains('@') => from = Some(format!("{head}@{source}")),
        Some(source) if Some(source) == origin_of(session, &head)?.as_ref() => {
            series.from_origin = true;
        }
        Some(source) => {
            let (of, short) = source.split_once('@').unwrap_or_default();
            if !of.is_empty() && of != head {
                return Err(Failure::usage(
                    "incremental source must be in same filesystem",
                ));
            }
            if short.contains(['@', '/']) {
                return Err(Failure::usage("invalid incremental source"));
            }
            from = Some(format!("{head}@{short}"));
        }
    }
    series.all_between |= series.replicate && from.is_none();
    Ok(Send {
        name,
        from,
        series: Some(series),
        ..wishes.request.clone()
    })
}

/// What a file system is a clone of.
fn origin_of(session: &Session, head: &str) -> Result<Option<String>, Failure> {
    let described = session.connect()?.dataset_describe(Describe {
        names: vec![head.to_string()],
        depth: Some(0),
        kinds: vec![DatasetKind::Filesystem, DatasetKind::Volume],
        properties: vec!["origin".to_string()],
        ..Describe::default()
    })?;
    if let Some(refusal) = described.refused.into_iter().next() {
        return Err(refusal.into());
    }
    let found = described.datasets.into_iter().next();
    let value = found.and_then(|mut found| found.properties.remove("origin"));
    Ok(match value.map(|value| value.value) {
        Some(Value::Text(origin)) => Some(origin),
        _ => None,
    })
}

/// `-t`: what the token asks for, with the options of this command too.
fn resume(session: &Session, wishes: &Wishes, token: String) -> Outcome {
    let read = session.connect()?.dataset_read_token(ReadToken { token });
    let failed = |error: &dyn std::fmt::Display| {
        complain(error);
        Failure::Silent(TOKEN_FAILED)
    };
    let read = match read {
        Ok(read) => read,
        Err(CallError::Refused(refusal)) => return Err(failed(&refusal)),
        Err(error) => return Err(error.into()),
    };
    if wishes.verbosity > 0 {
        show(wishes, &format!("resume token contents:\n{}", read.text));
    }
    let Some(send) = read.send else {
        let refusal = read.refused.unwrap_or_else(unusable);
        return Err(failed(&refusal));
    };
    let options = &wishes.request;
    let request = Send {
        large_blocks: send.large_blocks || options.large_blocks,
        embedded: send.embedded || options.embedded,
        compressed: send.compressed || options.compressed,
        raw: send.raw || options.raw,
        ..send
    };
    match carry_out(session, wishes, request) {
        Err(Failure::Error(text)) => Err(failed(&text)),
        outcome => outcome,
    }
}

fn unusable() -> Refusal {
    Refusal::new(
        tarn_administration::messages::RefusalKind::Invalid,
        "cannot resume send",
        "resume token is corrupt",
    )
}

/// Says how large it will be, where that is wanted, and sends it.
fn carry_out(session: &Session, wishes: &Wishes, request: Send) -> Outcome {
    let client = session.connect()?;
    let is_described = request.properties || request.backup || request.holds;
    let mut plan = SendPlan::default();
    if wishes.verbosity > 0 || (wishes.dry_run && (is_described || request.series.is_some())) {
        plan = client.dataset_plan_send(request.clone())?;
        plan.warnings.iter().for_each(complain);
    }
    if wishes.verbosity > 0 && (request.series.is_some() || wishes.progress || wishes.parsable) {
        show(wishes, &told(&plan, &request, wishes.parsable));
    }
    if wishes.dry_run {
        return Ok(match (plan.is_incomplete, wishes.verbosity) {
            (true, _) => 1,
            (false, 0) if plan.steps.is_empty() => {
                check_names(&client, &request)?;
                0
            }
            (false, _) => 0,
        });
    }
    let sent = match wishes.verbosity {
        0 => send(&client, request)?,
        _ => watched(&client, wishes, &plan, request)?,
    };
    // Those of the plan are the same.
    if wishes.verbosity == 0 {
        sent.warnings.iter().for_each(complain);
    }
    Ok(u8::from(sent.is_incomplete))
}

/// Whether what would be sent is there, for `-n`.
fn check_names(client: &Client, request: &Send) -> Result<(), Failure> {
    let names = [Some(request.name.clone()), request.from.clone()];
    for name in names
        .into_iter()
        .flatten()
        .filter(|name| !name.contains('#'))
    {
        let described = client.dataset_describe(Describe {
            names: vec![name],
            depth: Some(0),
            kinds: vec![DatasetKind::Snapshot],
            properties: vec!["name".to_string()],
            ..Describe::default()
        })?;
        if let Some(refusal) = described.refused.into_iter().next() {
            return Err(refusal.into());
        }
    }
    Ok(())
}

/// What the plan says, as OpenZFS prints it.
fn told(plan: &SendPlan, request: &Send, parsable: bool) -> String {
    let mut text = String::new();
    let mut total = 0u64;
    for step in &plan.steps {
        let Some(bytes) = step.estimated_bytes else {
            continue;
        };
        total = total.wrapping_add(bytes);
        let name = &step.name;
        text += &match (&step.from, parsable) {
            (Some(from), true) => format!("incremental\t{from}\t{name}\t{bytes}\n"),
            (None, true) => format!("full\t{name}\t{bytes}\n"),
            (from, false) => {
                let what = match from {
                    Some(from) if from.contains(['@', '#']) => {
                        format!("send from {from} to {name}")
                    }
                    Some(from) => format!("send from @{from} to {name}"),
                    None => format!("full send of {name}"),
                };
                match bytes {
                    0 => format!("{what}\n"),
                    bytes => format!("{what} estimated size is {}\n", nice_bytes(bytes)),
                }
            }
        };
    }
    text + &match (parsable, request.series.is_some()) {
        (true, _) => format!("size\t{total}\n"),
        (false, true) => format!("total estimated size is {}\n", nice_bytes(total)),
        (false, false) => format!("total estimated size is {}\n", nice_count(total)),
    }
}

/// Shows what is said about the stream: beside it, or in its place.
fn show(wishes: &Wishes, text: &str) {
    match wishes.dry_run {
        true => say(text),
        false => output::complain(text),
    }
}

fn send(
    client: &Client,
    request: Send,
) -> Result<tarn_administration::messages::dataset::Sent, Failure> {
    let out = std::io::stdout();
    let (client, _line) = hand_over(client, out.as_fd())?;
    Ok(client.dataset_send(request)?)
}

/// Sends, and shows how far it is, once a second.
fn watched(
    client: &Client,
    wishes: &Wishes,
    plan: &SendPlan,
    mut request: Send,
) -> Result<tarn_administration::messages::dataset::Sent, Failure> {
    let watch = watching::name();
    request.watch = Some(watch.clone());
    let is_screen = std::io::stderr().is_terminal();
    let mut board = Board::new(wishes, plan, request.series.is_some(), is_screen);
    board.begin(0);
    let (tell, told) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while told.recv_timeout(SECOND) == Err(RecvTimeoutError::Timeout) {
                let question = WatchSend {
                    watch: watch.clone(),
                };
                if let Ok(progress) = client.dataset_watch_send(question) {
                    board.show(&progress);
                }
            }
            board.begin(usize::MAX);
        });
        let sent = send(client, request);
        drop(tell);
        sent
    })
}

/// Where the progress is shown.
struct Board<'a> {
    wishes: &'a Wishes,
    plan: &'a SendPlan,
    is_series: bool,
    /// It is a terminal.
    is_screen: bool,
    /// How many snapshots were announced, and when the last was.
    begun: usize,
    begun_at: Instant,
    title: Option<ProcessTitle>,
}

impl<'a> Board<'a> {
    fn new(wishes: &'a Wishes, plan: &'a SendPlan, is_series: bool, is_screen: bool) -> Board<'a> {
        Board {
            wishes,
            plan,
            is_series,
            is_screen,
            begun: 0,
            begun_at: Instant::now(),
            title: wishes.title.then(ProcessTitle::find).flatten(),
        }
    }

    /// In a series OpenZFS shows no counts of blocks.
    fn has_blocks(&self) -> bool {
        self.wishes.verbosity >= 2 && !self.is_series
    }

    /// Announces the snapshots up to this one, as far as there are some.
    fn begin(&mut self, index: usize) {
        let steps = &self.plan.steps;
        while self.begun <= index && self.begun < steps.len() {
            let header = self.header(&steps[self.begun]);
            self.begun += 1;
            self.begun_at = Instant::now();
            if self.wishes.progress && !self.wishes.parsable {
                output::complain(&header);
            }
        }
    }

    fn header(&self, step: &SendStep) -> String {
        let blocks = match self.has_blocks() {
            true => "   BLOCKS    ",
            false => "",
        };
        let more = match (self.is_screen, step.estimated_bytes) {
            (false, _) => "",
            (true, None) => "   RATE",
            (true, Some(_)) => "   RATE    LEFT",
        };
        format!("TIME        SENT   {blocks}SNAPSHOT {}{more}", step.name)
    }

    /// What a screen shows after a snapshot's name.
    fn more(&self, bytes: u64, expected_bytes: Option<u64>, elapsed: Duration) -> String {
        if !self.is_screen || self.wishes.parsable {
            return String::new();
        }
        let rate = pace::rate_text(bytes, elapsed);
        match expected_bytes {
            None => format!("   {rate}"),
            Some(expected) => {
                let left = pace::left_text(bytes, expected, elapsed);
                format!("   {rate:>7}   {left}")
            }
        }
    }

    fn show(&mut self, progress: &SendProgress) {
        let Some(name) = &progress.name else {
            return;
        };
        let index = usize::try_from(progress.index).unwrap_or(usize::MAX);
        self.begin(index);
        let (bytes, blocks) = (progress.bytes, progress.blocks);
        if let Some(title) = &self.title {
            title.set(&self.title_of(name, bytes));
        }
        if !self.wishes.progress {
            return;
        }
        let expected = self.plan.steps.get(index);
        let expected = expected.and_then(|step| step.estimated_bytes);
        let more = self.more(bytes, expected, self.begun_at.elapsed());
        output::complain(&(self.line(&clock(), name, bytes, blocks) + &more));
    }

    /// OpenZFS's columns.
    fn line(&self, time: &str, name: &str, bytes: u64, blocks: u64) -> String {
        match (self.wishes.parsable, self.has_blocks()) {
            (true, true) => format!("{time}\t{bytes}\t{blocks}\t{name}"),
            (false, true) => {
                let bytes = nice_count(bytes);
                format!("{time}   {bytes:>5}    {blocks:>8}    {name}")
            }
            (true, false) => format!("{time}\t{bytes}\t{name}"),
            (false, false) => format!("{time}   {:>5}   {name}", nice_bytes(bytes)),
        }
    }

    fn title_of(&self, name: &str, bytes: u64) -> String {
        let sizes = self
            .plan
            .steps
            .iter()
            .filter_map(|step| step.estimated_bytes);
        let size: u64 = sizes.fold(0, u64::wrapping_add);
        let percent = bytes.checked_div(size / 100).unwrap_or(100).min(100);
        let (bytes, size) = (nice_count(bytes), nice_count(size));
        format!("sending {name} ({percent}%: {bytes}/{size})")
    }
}

/// The time of day.
fn clock() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = now.map_or(0, |now| now.as_secs());
    local(i64::try_from(seconds).unwrap_or(0), "%H:%M:%S")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Wishes, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        let wishes = parse(&words)?;
        check(&wishes).map(|()| wishes)
    }

    #[test]
    fn options_have_short_and_long_names() {
        let wishes = parsed("-cLe -i @a tank@b").unwrap();
        let request = single(&wishes);
        assert_eq!(request.from.as_deref(), Some("tank@a"));
        assert!(request.compressed && request.large_blocks && request.embedded && !request.raw);
        let long = "--compressed --large-block --embed --raw --props --holds --backup --dryrun --verbose tank@b";
        let wishes = parsed(long).unwrap();
        assert!(wishes.request.raw && wishes.request.properties && wishes.request.backup);
        assert!(wishes.dry_run && wishes.progress && wishes.verbosity == 1);
        let wishes = parsed("--replicate --exclude=tank/a,tank/b --skip-missing tank@b").unwrap();
        assert_eq!(wishes.series.exclude, ["tank/a", "tank/b"]);
        assert_eq!(
            parsed("--resume 1-2-3-4").unwrap().token.as_deref(),
            Some("1-2-3-4")
        );
    }

    #[test]
    fn what_an_increment_goes_on_from_can_be_short() {
        let from = |line: &str| single(&parsed(line).unwrap()).from;
        assert_eq!(from("-i #m tank/a@b").as_deref(), Some("tank/a#m"));
        assert_eq!(from("-i old tank/a@b").as_deref(), Some("tank/a@old"));
        assert_eq!(from("-i tank/o@x tank/a@b").as_deref(), Some("tank/o@x"));
        assert_eq!(from("tank/a@b"), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_openzfs_words() {
        let usage = |text: &str| Failure::usage(text);
        let error = |text: &str| Failure::error(text);
        for (line, failure) in [
            ("", usage("missing snapshot argument")),
            ("a b", usage("too many arguments")),
            ("-t x a", usage("too many arguments")),
            ("-t x -R", usage("invalid flags combined with -t")),
            ("-i", usage("missing argument for 'i' option")),
            ("--resume", usage("missing argument for 't' option")),
            ("-Q a@b", usage("invalid option 'Q'")),
            ("-i @a -I @a a@b", usage("")),
            (
                "-X tank a@b",
                usage("-X tank: not a valid non-root dataset name."),
            ),
            (
                "-X tank/a a@b",
                error("Cannot specify dataset exclusion (-X) on a non-recursive send."),
            ),
            (
                "-I #b a@b",
                error("Error: multiple snapshots cannot be sent from a bookmark."),
            ),
            (
                "-R --redact b a@b",
                error("Error: multiple snapshots cannot be sent redacted."),
            ),
            (
                "-w --redact b a@b",
                error("Error: raw sends may not be redacted."),
            ),
            (
                "-R a",
                error("Error: Unsupported flag with filesystem or bookmark."),
            ),
            (
                "-S -c a",
                usage("incompatible flags combined with saved send flag"),
            ),
            (
                "-S a@b",
                usage("saved send must specify the dataset with partially-received state"),
            ),
        ] {
            assert_eq!(parsed(line).unwrap_err(), failure, "{line}");
        }
    }

    /// The lines are those that OpenZFS 2.3.2 printed.
    #[test]
    fn a_plan_is_told_as_openzfs_tells_it() {
        let step = |name: &str, from: Option<&str>, bytes| SendStep {
            name: name.to_string(),
            from: from.map(str::to_string),
            estimated_bytes: Some(bytes),
        };
        let plan = SendPlan {
            steps: vec![
                step("own/a@s1", None, 7_613_984),
                step("own/a@s2", Some("s1"), 881_344),
                step("own/a@s3", Some("s2"), 624),
            ],
            ..SendPlan::default()
        };
        let series = Send {
            series: Some(Series::default()),
            ..Send::default()
        };
        assert_eq!(
            told(&plan, &series, false),
            "full send of own/a@s1 estimated size is 7.26M\n\
             send from @s1 to own/a@s2 estimated size is 861K\n\
             send from @s2 to own/a@s3 estimated size is 624B\n\
             total estimated size is 8.10M\n"
        );
        assert_eq!(
            told(&plan, &series, true),
            "full\town/a@s1\t7613984\nincremental\ts1\town/a@s2\t881344\n\
             incremental\ts2\town/a@s3\t624\nsize\t8495952\n"
        );
        let one = SendPlan {
            steps: vec![step("own/a@s2", Some("own/a#b1"), 881_344)],
            ..SendPlan::default()
        };
        assert_eq!(
            told(&one, &Send::default(), false),
            "send from own/a#b1 to own/a@s2 estimated size is 861K\n\
             total estimated size is 861K\n"
        );
    }

    /// The lines without the columns of a screen are those that OpenZFS 2.3.2 printed.
    #[test]
    fn a_screen_has_columns_after_those_of_openzfs() {
        let plan = SendPlan::default();
        let step = |estimated_bytes| SendStep {
            name: "own/a@s1".to_string(),
            from: None,
            estimated_bytes,
        };
        let elapsed = Duration::from_secs(4);
        let shown = |options: &str, is_screen, expected| {
            let wishes = parsed(&format!("{options} own/a@s1")).unwrap();
            let board = Board::new(&wishes, &plan, false, is_screen);
            let line = board.line("12:34:56", "own/a@s1", 8 << 20, 321);
            let more = board.more(8 << 20, expected, elapsed);
            (board.header(&step(expected)), line + &more)
        };
        let own = |header: &str, line: &str| (header.to_string(), line.to_string());
        let known = Some(128 << 20);
        assert_eq!(
            shown("-v", false, known),
            own(
                "TIME        SENT   SNAPSHOT own/a@s1",
                "12:34:56      8M   own/a@s1"
            )
        );
        assert_eq!(
            shown("-v", true, known),
            own(
                "TIME        SENT   SNAPSHOT own/a@s1   RATE    LEFT",
                "12:34:56      8M   own/a@s1      2M/s   00:01:00"
            )
        );
        assert_eq!(
            shown("-vv", true, None),
            own(
                "TIME        SENT      BLOCKS    SNAPSHOT own/a@s1   RATE",
                "12:34:56      8M         321    own/a@s1   2M/s"
            )
        );
        let (_, line) = shown("-vP", true, known);
        assert_eq!(line, "12:34:56\t8388608\town/a@s1");
    }
}
