//! `abuse`: every command and option with arguments that are empty, too long, no text, hostile or
//! nonsense; and requests of the kind straight to the control socket. By root, and by a user to
//! which one permission after the other is delegated.
//!
//! # Mechanism
//! A seed decides which command of the table ([`commands`]) is given which words ([`words`]), and
//! as which user it runs. After each call the daemon must be the same and answer, every pool in
//! service, and the log without a panic; the answer has no innards of ours in it ([`rules`]). Calls
//! that were refused, and those that only read, must leave everything as it was: after some of them
//! the arena ([`arena`]) is compared with what it was before. What is legal may happen; when too
//! much has, the arena is made anew.
//!
//! # Canaries
//! At the end a property is set, a pool loses a device and the daemon is killed: the judge must
//! find each.

mod arena;
mod commands;
mod rules;
mod socket;
mod words;

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use rustix::process::{Gid, Uid};
use tarn_oracle::program::{self, ProgramError};
use tarn_workload::twister::Twister;

use super::Arguments;
use crate::workspace::{Outcome, remove_folder};
use arena::{Arena, USER};
use commands::{Line, TEMPLATES};
use rules::LIMIT;
use socket::{Answer, Description};
use words::Words;

/// After so many calls that may not have changed anything, the judge looks whether they did.
const LOOK_EVERY: usize = 12;

/// After so many calls the user gets another permission.
const GRANT_EVERY: u32 = 25;

/// After so many changes the arena is made anew.
const CHANGES_MAX: u32 = 60;

/// More faults than these are not collected.
const FAULTS_MAX: usize = 40;

/// What a user can be given, one at a time.
const PERMISSIONS: &[&str] = &[
    "hold",
    "release",
    "snapshot",
    "create,mount",
    "destroy,mount",
    "rename,mount,create",
    "clone,create,mount",
    "promote,mount",
    "rollback,mount",
    "bookmark",
    "send",
    "receive,create,mount",
    "receive:append",
    "diff",
    "allow",
    "userprop",
    "userquota",
    "groupquota",
    "projectquota",
    "userused",
    "groupused",
    "quota",
    "reservation",
    "refquota",
    "refreservation",
    "compression",
    "recordsize",
    "mountpoint",
    "canmount",
    "filesystem_limit",
    "snapshot_limit",
    "volsize",
    "copies",
    "mount",
    "share",
    "load-key",
    "change-key",
];

/// Operations of the control interface that change nothing.
const READING: &[&str] = &[
    "describe",
    "list-",
    "history",
    "iostat",
    "kstat",
    "metrics",
    "plan-send",
    "read-token",
    "watch-",
    "diff",
];

/// Operations that do their work for one thing after the other, and may have done it for some when
/// they fail.
const PARTIAL: &[&str] = &[
    "/mount", "/unmount", "/inherit", "/export", "/upgrade", "/offline", "/online", "/remove",
    "/destroy",
];

/// Operations that could find or change what is not the arena's: they search the machine's devices.
const SEARCHING: &[&str] = &["/v1/pool/import", "/v1/pool/find-importable"];

/// The user that calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    Root,
    User,
}

/// The judge.
struct Judge {
    arena: Arena,
    words: Words,
    description: Description,
    before: String,
    /// Calls that must have changed nothing since `before`.
    unjudged: Vec<String>,
    changes: u32,
    granted: &'static str,
    calls: u64,
    requests: u64,
    counts: BTreeMap<String, u64>,
    harmed: u64,
    faults: Vec<String>,
}

/// Runs the judge.
pub fn abuse(arguments: &Arguments) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Err("abuse: needs root, to mount and to be another user".into());
    }
    let arena = Arena::make("conformance-abuse")?;
    let _watchdog = arena.instance.watchdog("abuse", LIMIT * 120);
    let mut judge = Judge::new(arena, arguments.seed)?;
    judge.check_user()?;
    for number in 0..arguments.calls {
        if number % GRANT_EVERY == 0 {
            judge.grant()?;
        }
        let caller = match judge.words.chance.below(5) {
            0 | 1 => Caller::User,
            _ => Caller::Root,
        };
        judge.call(caller)?;
        judge.request(caller)?;
        if judge.faults.len() >= FAULTS_MAX {
            break;
        }
    }
    judge.look()?;
    judge.report();
    judge.canaries()?;
    let faults = judge.faults.len();
    let folder = judge.arena.folder.clone();
    drop(judge);
    match faults {
        0 if arguments.keep => Ok(()),
        0 => remove_folder(&folder),
        _ => Err(format!(
            "{faults} faults; replay them with --seed {}",
            arguments.seed
        )
        .into()),
    }
}

impl Judge {
    fn new(arena: Arena, seed: u64) -> Outcome<Judge> {
        let description = Description::read(&arena.socket(), LIMIT)?;
        Ok(Judge {
            words: Words {
                chance: Twister::new(seed ^ 0x6162_7573),
                folder: arena.folder.display().to_string(),
            },
            description,
            before: arena.fingerprint()?,
            arena,
            unjudged: Vec::new(),
            changes: 0,
            granted: "",
            calls: 0,
            requests: 0,
            counts: BTreeMap::new(),
            harmed: 0,
            faults: Vec::new(),
        })
    }

    /// The user must reach the programs and the socket, or his calls say nothing.
    fn check_user(&self) -> Outcome {
        let mut command = self.arena.instance.command("zfs");
        let command = command.args(["list", "abused"]).uid(USER).gid(USER);
        program::run(command, LIMIT)?.expect_success()?;
        Ok(())
    }

    /// Delegates another permission to the user.
    fn grant(&mut self) -> Outcome {
        self.look()?;
        let user = USER.to_string();
        for pool in ["abused", "plain"] {
            self.arena
                .instance
                .run("zfs", &["unallow", "-u", &user, pool])?;
            self.granted = PERMISSIONS[self.words.chance.index(PERMISSIONS.len())];
            self.arena
                .instance
                .run("zfs", &["allow", "-u", &user, self.granted, pool])?;
        }
        self.begin_anew()
    }

    /// One command.
    fn call(&mut self, caller: Caller) -> Outcome {
        let template = TEMPLATES[self.words.chance.index(TEMPLATES.len())];
        let line = Line::make(template, &mut self.words);
        let shown = self.shown(&line, caller);
        self.calls += 1;
        let what = template.trim_start_matches(['!', '<', '~']);
        let what = what.split(' ').take(2).collect::<Vec<_>>().join(" ");
        *self.counts.entry(what).or_default() += 1;
        let mut command = self.arena.instance.command(&line.program);
        command.args(line.arguments.iter().map(|word| {
            use std::os::unix::ffi::OsStrExt;
            std::ffi::OsStr::from_bytes(word)
        }));
        command.current_dir(self.arena.folder.join("empty"));
        if caller == Caller::User {
            command.uid(USER).gid(USER);
        }
        let input = self.input(&line)?;
        match program::run_reading(&mut command, input, LIMIT) {
            Err(ProgramError::NotStarted { .. }) => {}
            Err(error) => self.fault(&shown, &error.to_string()),
            Ok(spoken) => {
                if let Some(fault) = rules::fault_of(&spoken, &line.arguments) {
                    let said = spoken.stderr.lines().next().unwrap_or_default().to_string();
                    self.fault(&shown, &format!("{fault}: {}", short(said.as_bytes(), 200)));
                }
                let may_have = spoken.succeeded() || line.is_partial || rules::has_changed(&spoken);
                self.judge(&shown, may_have && !line.only_reads)?;
            }
        }
        self.look_for_harm(&shown)
    }

    /// What the command reads: a stream, a part of one, or something else.
    fn input(&mut self, line: &Line) -> Outcome<Stdio> {
        if !line.reads_stream {
            return Ok(Stdio::null());
        }
        let mut stream = std::fs::read(self.arena.stream())?;
        match self.words.chance.below(4) {
            0 => stream.truncate(self.words.chance.index(stream.len())),
            1 => {
                let at = self.words.chance.index(stream.len().min(2000));
                stream[at] ^= 1 << self.words.chance.below(8);
            }
            2 => stream = self.words.chance.bytes(5000),
            _ => {}
        }
        let path = self.arena.folder.join("input");
        std::fs::write(&path, stream)?;
        Ok(std::fs::File::open(path)?.into())
    }

    /// One request over the socket.
    fn request(&mut self, caller: Caller) -> Outcome {
        let paths = self.description.paths();
        let path = paths[self.words.chance.index(paths.len())].clone();
        if SEARCHING.contains(&path.as_str()) {
            return Ok(());
        }
        let body = self.description.request(&path, &mut self.words);
        let request = socket::request_of(&path, &body, &mut self.words.chance);
        let who = self.who(caller);
        let shown = format!(
            "{who}POST {path} {}",
            short(body.to_string().as_bytes(), 600)
        );
        self.requests += 1;
        *self.counts.entry(path.clone()).or_default() += 1;
        let socket = self.arena.socket();
        let answer = as_caller(caller, || {
            socket::send(&socket, &request, LIMIT).map_err(|error| error.to_string())
        });
        let only_reads = READING.iter().any(|word| path.contains(word));
        let is_partial = PARTIAL.iter().any(|word| path.ends_with(word));
        match answer {
            Err(error) => self.fault(&shown, &error),
            Ok(Answer { status, body }) => {
                let innards = [
                    "(os error",
                    "panicked",
                    "internal error",
                    "Some(\"",
                    "Err(",
                    ".rs:",
                ];
                if let Some(piece) = innards.iter().find(|piece| body.contains(**piece)) {
                    let said = short(body.as_bytes(), 300);
                    self.fault(&shown, &format!("its answer has `{piece}`: {said}"));
                }
                self.judge(&shown, (status == Some(200) || is_partial) && !only_reads)?;
            }
        }
        self.look_for_harm(&shown)
    }

    /// A call was made: it may have changed something, or must not have.
    fn judge(&mut self, shown: &str, may_have_changed: bool) -> Outcome {
        if !may_have_changed {
            self.unjudged.push(shown.to_string());
            return match self.unjudged.len() >= LOOK_EVERY {
                true => self.look(),
                false => Ok(()),
            };
        }
        self.changes += 1;
        if self.changes >= CHANGES_MAX || !self.arena.is_whole()? {
            self.changes = 0;
            self.arena.fill()?;
        }
        self.begin_anew()
    }

    /// Looks whether calls that must not have changed anything did.
    fn look(&mut self) -> Outcome {
        let now = self.arena.fingerprint()?;
        if now != self.before && !self.unjudged.is_empty() {
            let different = different(&self.before, &now);
            let calls = self.unjudged.join("\n    ");
            self.fault(
                &format!("one of\n    {calls}"),
                &format!("something has changed: {different}"),
            );
        }
        self.before = now;
        self.unjudged.clear();
        Ok(())
    }

    /// What is now is what refused calls are compared with.
    fn begin_anew(&mut self) -> Outcome {
        self.before = self.arena.fingerprint()?;
        self.unjudged.clear();
        Ok(())
    }

    /// Looks whether the daemon and the pools are what they were; if not, goes on with new ones.
    fn look_for_harm(&mut self, shown: &str) -> Outcome {
        let Some(harm) = self.arena.harm() else {
            return Ok(());
        };
        self.harmed += 1;
        self.fault(shown, &harm);
        self.arena.fill()?;
        self.begin_anew()
    }

    fn fault(&mut self, shown: &str, why: &str) {
        println!("  FAULT {shown}\n        {}", short_text(why, 600));
        self.faults.push(shown.to_string());
    }

    fn who(&self, caller: Caller) -> String {
        match caller {
            Caller::Root => String::new(),
            Caller::User => format!("(user with {}) ", self.granted),
        }
    }

    fn shown(&self, line: &Line, caller: Caller) -> String {
        let words = line
            .arguments
            .iter()
            .map(|word| format!("'{}'", short(word, 90)));
        format!(
            "{}{} {}",
            self.who(caller),
            line.program,
            words.collect::<Vec<_>>().join(" ")
        )
    }

    fn report(&self) {
        let (calls, requests, harmed) = (self.calls, self.requests, self.harmed);
        println!("  {calls} calls and {requests} requests, {harmed} pools harmed");
        let counts = self
            .counts
            .iter()
            .map(|(what, count)| format!("{what} {count}"));
        println!("  {}", counts.collect::<Vec<_>>().join(", "));
    }

    /// What the judge must find.
    fn canaries(&mut self) -> Outcome {
        self.arena.fill()?;
        let before = self.arena.fingerprint()?;
        self.arena.instance.zfs("set org:note=changed abused/fs")?;
        if self.arena.fingerprint()? == before {
            return Err("canary: a property that was set is not seen".into());
        }
        if let Some(harm) = self.arena.harm() {
            return Err(format!("canary: nothing was harmed, and yet: {harm}").into());
        }
        let images = self.arena.folder.join("images");
        let image = |name: &str| images.join(name).display().to_string();
        let (first, second) = (image("spare"), image("spare2"));
        let create = format!("create -f -m none another mirror {first} {second}");
        self.arena.instance.zpool(&create)?;
        self.arena.instance.zpool("export another")?;
        std::fs::remove_file(images.join("spare2"))?;
        let import = format!("import -d {} another", images.display());
        self.arena.instance.zpool(&import)?;
        let found = self.arena.harm();
        if !found.is_some_and(|harm| harm.contains("another is DEGRADED")) {
            return Err("canary: a pool that is degraded is not seen".into());
        }
        self.arena.instance.zpool("destroy -f another")?;
        let was_there = self.arena.instance.kill_daemon();
        match self.arena.harm() {
            Some(harm) if was_there && harm.contains("daemon") => Ok(()),
            _ => Err("canary: a daemon that died is not seen".into()),
        }
    }
}

/// Runs something as the caller, in a thread of his own: Linux has credentials of threads.
fn as_caller<T: Send>(
    caller: Caller,
    run: impl FnOnce() -> Result<T, String> + Send,
) -> Result<T, String> {
    if caller == Caller::Root {
        return run();
    }
    let as_user = || {
        let (uid, gid) = (Uid::from_raw(USER), Gid::from_raw(USER));
        rustix::thread::set_thread_groups(&[]).map_err(|error| error.to_string())?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(|error| error.to_string())?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(|error| error.to_string())?;
        run()
    };
    std::thread::scope(|scope| scope.spawn(as_user).join())
        .unwrap_or_else(|_| Err("the user's thread panicked".to_string()))
}

/// Bytes for people, cut where they are long.
fn short(bytes: &[u8], length: usize) -> String {
    let cut = &bytes[..bytes.len().min(length)];
    let text = cut.escape_ascii().to_string();
    match bytes.len() > length {
        true => format!("{text}…({} bytes)", bytes.len()),
        false => text,
    }
}

/// The beginning of a text.
fn short_text(text: &str, length: usize) -> &str {
    &text[..text.floor_char_boundary(length)]
}

/// The first lines that only one of two texts has.
fn different(before: &str, now: &str) -> String {
    let only = |of: &str, other: &str| {
        let others: std::collections::BTreeSet<&str> = other.lines().collect();
        let lines = of.lines().filter(|line| !others.contains(line));
        lines
            .take(4)
            .map(str::to_string)
            .collect::<Vec<_>>()
            .join(" | ")
    };
    format!("before: {}; now: {}", only(before, now), only(now, before))
}
