//! `zpool wait`, and the waiting of other subcommands (`-w`).
//!
//! # Mechanism
//! The daemon is asked until nothing goes on any more of what was asked for; each answer waits up
//! to a second for that. With an interval a second thread prints what is left. A pool that is gone
//! meanwhile has nothing going on.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use tarn_administration::messages::RefusalKind;
use tarn_administration::messages::pool::{Activities, Activity, ListActivities};
use tarn_api::client::{CallError, Client};
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::interval::Interval;
use tarn_terminal::number::nice_count;
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;
use tarn_terminal::screen;
use tarn_terminal::timestamp::TimeForm;

const GRAMMAR: Grammar = Grammar {
    short: "HpT:t:",
    long: &[],
};

/// A command line, understood.
#[derive(Debug, Clone, PartialEq)]
struct Request {
    pool: String,
    /// `-t`, in the order of [`Activity::ALL`].
    activities: Vec<Activity>,
    form: Form,
    /// How often to print what is left; zero for never.
    pause: Duration,
}

/// How what is left is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Form {
    /// `-H`.
    is_scripted: bool,
    /// `-p`.
    is_exact: bool,
    /// `-T`.
    time: Option<TimeForm>,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let client = session.connect()?;
    // Refused before anything is printed.
    ask(&client, &request, false)?;
    if request.pause.is_zero() {
        wait(&client, &request.pool, &request.activities, &[])?;
        return Ok(0);
    }
    let (is_over, over) = channel();
    let waiting = std::thread::scope(|scope| {
        let (client, request) = (&client, &request);
        let rows = scope.spawn(move || print_rows(client, request, &over));
        let waited = wait(client, &request.pool, &request.activities, &[]);
        drop(is_over);
        // A panic was reported by its thread.
        let printed = rows.join().unwrap_or(Ok(()));
        waited.and(printed)
    });
    waiting.map(|()| 0)
}

/// Waits until none of these goes on, at these devices where they are named by their guids.
///
/// # Errors
/// The pool is not there, or why nothing could be asked.
pub fn wait(
    client: &Client,
    pool: &str,
    activities: &[Activity],
    devices: &[u64],
) -> Result<(), Failure> {
    let question = ListActivities {
        name: pool.to_string(),
        activities: activities.to_vec(),
        devices: devices.to_vec(),
        wait: true,
    };
    let mut has_waited = false;
    loop {
        match client.pool_list_activities(question.clone()) {
            Ok(Activities { under_way }) if under_way.is_empty() => return Ok(()),
            Ok(_) => has_waited = true,
            Err(error) if has_waited && is_gone(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn ask(client: &Client, request: &Request, wait: bool) -> Result<Activities, CallError> {
    client.pool_list_activities(ListActivities {
        name: request.pool.clone(),
        activities: request.activities.clone(),
        devices: Vec::new(),
        wait,
    })
}

fn is_gone(error: &CallError) -> bool {
    matches!(error, CallError::Refused(refusal) if refusal.kind == RefusalKind::NotFound)
}

/// Prints what is left until the end.
fn print_rows(client: &Client, request: &Request, over: &Receiver<()>) -> Result<(), Failure> {
    let mut row = 0_u64;
    loop {
        let left = match ask(client, request, false) {
            Ok(left) => left,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => {
                complain(&error);
                return Err(Failure::Silent(1));
            }
        };
        output::say(&row_text(request, &left, row, screen::rows()));
        row += 1;
        match over.recv_timeout(request.pause) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// One row, with the time and the headers where they belong.
fn row_text(request: &Request, left: &Activities, row: u64, height: Option<u64>) -> String {
    let form = request.form;
    let mut text = match form.time {
        Some(time) => format!("{}\n", time.now()),
        None => String::new(),
    };
    let is_new_page = height.is_some_and(|height| height > 1 && row.is_multiple_of(height - 1));
    if !form.is_scripted && (row == 0 || is_new_page) {
        for activity in &request.activities {
            let width = width(*activity);
            text.push_str(&format!("{:>width$}", header(*activity)));
        }
        text.push('\n');
    }
    for activity in &request.activities {
        let mut all = left.under_way.iter();
        let found = all.find(|under_way| under_way.activity == *activity);
        let bytes = found.map_or(0, |under_way| under_way.left_bytes);
        let number = match form.is_exact {
            true => bytes.to_string(),
            false => nice_count(bytes),
        };
        match (form.is_scripted, activity) {
            // As OpenZFS: the tab is left out before the first of all columns only.
            (true, Activity::Discard) => text.push_str(&number),
            (true, _) => text.push_str(&format!("\t{number}")),
            (false, activity) => {
                let width = width(*activity) - 1;
                text.push_str(&format!(" {number:>width$}"));
            }
        }
    }
    text + "\n"
}

fn header(activity: Activity) -> String {
    activity.name().to_ascii_uppercase()
}

/// The width of a column: its header or a number, and two spaces.
fn width(activity: Activity) -> usize {
    header(activity).len().max(6) + 2
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut form = Form::default();
    let mut activities = Activity::ALL.to_vec();
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "H" => form.is_scripted = true,
            "p" => form.is_exact = true,
            "T" => form.time = Some(TimeForm::parse(&value)?),
            _ => activities = parse_activities(&value)?,
        }
    }
    let mut operands = options.operands();
    let interval = Interval::take(&mut operands)?;
    if interval.count != 0 {
        return Err(Failure::usage("too many arguments"));
    }
    match operands.as_slice() {
        [] => Err(Failure::usage("missing 'pool' argument")),
        [pool] => Ok(Request {
            pool: pool.clone(),
            activities,
            form,
            pause: interval.pause,
        }),
        _ => Err(Failure::usage("too many arguments")),
    }
}

/// A list of activities separated by commas, in their order.
fn parse_activities(list: &str) -> Result<Vec<Activity>, Failure> {
    let known = |name: &str| Activity::ALL.iter().any(|activity| activity.name() == name);
    if let Some(unknown) = list.split(',').find(|name| !known(name)) {
        return Err(Failure::usage(format!("invalid activity '{unknown}'")));
    }
    let all = Activity::ALL.into_iter();
    let asked = all.filter(|activity| list.split(',').any(|name| name == activity.name()));
    Ok(asked.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_administration::messages::pool::UnderWay;

    fn parsed(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn one_pool_is_waited_for() {
        assert_eq!(parsed("tank").unwrap().activities, Activity::ALL);
        let some = parsed("-H -t trim,scrub tank 0.5").unwrap();
        assert_eq!(some.activities, [Activity::Scrub, Activity::Trim]);
        assert_eq!(some.pause, Duration::from_millis(500));
        for (line, told) in [
            ("-t scrub,nonsense tank", "invalid activity 'nonsense'"),
            ("-t scrub, tank", "invalid activity ''"),
            ("", "missing 'pool' argument"),
            ("-t scrub", "missing 'pool' argument"),
            ("a b", "too many arguments"),
            ("tank 1 2", "too many arguments"),
            ("tank 0", "interval cannot be zero"),
            ("-x tank", "invalid option 'x'"),
        ] {
            assert_eq!(parsed(line), Err(Failure::usage(told)), "{line}");
        }
    }

    #[test]
    fn what_is_left_is_in_columns() {
        let request = parsed("-t scrub,initialize tank 1").unwrap();
        let scrub = UnderWay {
            activity: Activity::Scrub,
            left_bytes: 1536,
        };
        let left = Activities {
            under_way: vec![scrub],
        };
        let first = row_text(&request, &left, 0, None);
        assert_eq!(first, "  INITIALIZE   SCRUB\n           0   1.50K\n");
        assert_eq!(row_text(&request, &left, 1, None).lines().count(), 1);
        let request = parsed("-Hp -t scrub,initialize tank 1").unwrap();
        assert_eq!(row_text(&request, &left, 0, None), "\t0\t1536\n");
    }
}
