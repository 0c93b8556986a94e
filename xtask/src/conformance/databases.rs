//! `kill -9` of the daemon under databases and a load of `fsync`s: every transaction that was
//! acknowledged is there.
//!
//! # Mechanism
//! A pool, with and without a log device. On its file systems SQLite with a rollback journal and
//! with a write-ahead log, PostgreSQL where its server is installed, and threads that have page
//! after page made durable ([`Promises`]). Each database has one client, which sends one numbered
//! transaction after the other through the database's own shell; a line that comes back is the
//! acknowledgement. A transaction adds a row whose text follows from its number, takes an old one
//! away and sets a counter: half of it would be seen.
//!
//! After a random time the daemon is killed. Clients must end, OpenZFS's `zdb` must find the pool
//! clean as it was left, the next daemon opens it, the databases recover, and must then hold all
//! transactions up to one that is not before the last acknowledged one.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Gid, Pid, Signal, Uid, kill_process};
use tarn_oracle::instance::Instance;
use tarn_oracle::judge;
use tarn_oracle::program;
use tarn_oracle::tools::{Unpacked, is_in_path};
use tarn_workload::promises::Promises;
use tarn_workload::twister::Twister;

use super::crash::{self, HANG_LIMIT, Work, copy_images};
use super::{Arguments, POOL};
use crate::debian_packages;
use crate::workspace::{Outcome, openzfs, programs, scratch};

/// Sparse.
const IMAGE_BYTES: u64 = 2 << 30;
/// The daemon is killed within this time after work began.
const WORK_MS: u32 = 3000;
/// Threads that are promised pages.
const PROMISED_THREADS: usize = 2;
/// So many rows are kept.
const ROWS: u64 = 400;
/// The longest text of a row: on a page of its own in PostgreSQL, and beyond.
const TEXT_MAX: u64 = 9000;
/// Where Debian keeps PostgreSQL's servers.
const SERVERS: &str = "/usr/lib/postgresql";
/// A server that recovers is ready within this time.
const READY: Duration = Duration::from_secs(120);

/// Kills the daemon as often as asked, half of it on a pool with a log device.
pub fn databases(arguments: &Arguments) -> Outcome {
    if !is_in_path("sqlite3") {
        debian_packages::install(&["sqlite3"])?;
    }
    let tools = openzfs()?;
    let mut chance = Twister::new(arguments.seed ^ 0x6461_7461);
    let with_log = arguments.kills / 2;
    for (log, kills) in [(false, arguments.kills - with_log), (true, with_log)] {
        if kills == 0 {
            continue;
        }
        let scene = Scene::make(log)?;
        for round in 1..=kills {
            let told = scene.round(&tools, &mut chance)?;
            let place = ["no log device", "a log device"][usize::from(log)];
            println!("  {place}, kill {round} of {kills}: {told}");
        }
        scene.instance.must("zpool", &["destroy", POOL])?;
        let folder = scene.folder.clone();
        drop(scene);
        if !arguments.keep {
            fs::remove_dir_all(&folder)?;
        }
    }
    Ok(())
}

/// A pool with databases.
struct Scene {
    instance: Instance,
    folder: PathBuf,
    images: PathBuf,
    mount: PathBuf,
    promises: Arc<Promises>,
    databases: Vec<Arc<Database>>,
    server: Option<Server>,
}

impl Scene {
    fn make(log: bool) -> Outcome<Scene> {
        let folder = scratch("conformance-databases");
        let images = folder.join("images");
        let instance = Instance::new(&programs(), &folder)?;
        fs::create_dir_all(&images)?;
        for image in ["data", "log"] {
            fs::File::create(images.join(image))?.set_len(IMAGE_BYTES)?;
        }
        let mount = instance.root().join("pool");
        let path = |name: &str| images.join(name).display().to_string();
        let (mountpoint, data, log_device) =
            (mount.display().to_string(), path("data"), path("log"));
        let mut create = vec!["create", "-m", &mountpoint, POOL, &data];
        if log {
            create.extend(["log", &log_device]);
        }
        instance.must("zpool", &create)?;
        for options in ["sqlite", "postgresql -o recordsize=8k", "promised"] {
            let (name, options) = options.split_once(' ').unwrap_or((options, ""));
            instance.zfs(&format!("create {options} {POOL}/{name}"))?;
        }
        let sqlite = mount.join("sqlite");
        let mut databases = vec![
            Database::sqlite("journal", &sqlite.join("journal.db"))?,
            Database::sqlite("wal", &sqlite.join("wal.db"))?,
        ];
        let server = Server::find(&mount.join("postgresql"))?;
        match &server {
            Some(server) => {
                let mut running = server.start()?;
                databases.push(server.database()?);
                running.stop()?;
            }
            None => println!("  there is no PostgreSQL server below {SERVERS}: without one"),
        }
        Ok(Scene {
            instance,
            folder,
            images,
            mount,
            promises: Arc::new(Promises::new(PROMISED_THREADS)),
            databases: databases.into_iter().map(Arc::new).collect(),
            server,
        })
    }

    /// Works, kills, judges, and starts again.
    fn round(&self, tools: &Unpacked, chance: &mut Twister) -> Outcome<String> {
        let mut running = match &self.server {
            Some(server) => Some(server.start()?),
            None => None,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let mut work: Vec<Work> = (0..PROMISED_THREADS)
            .map(|thread| {
                let (promises, stop) = (self.promises.clone(), stop.clone());
                let place = self.mount.join("promised");
                Work::begin("a thread that is promised pages", move || {
                    // Ends with the error of the call that met the kill.
                    let _ = promises.run(thread, &place, &stop);
                })
            })
            .collect();
        work.extend(self.databases.iter().map(|database| {
            let (database, stop) = (database.clone(), stop.clone());
            Work::begin("a client of a database", move || {
                // Ends when its shell does.
                let _ = database.work(&stop);
            })
        }));
        let worked_ms = 50 + chance.below(WORK_MS);
        thread::sleep(Duration::from_millis(u64::from(worked_ms)));
        if !self.instance.kill_daemon() {
            return Err("there was no daemon to kill: it ended by itself".into());
        }
        stop.store(true, Ordering::Relaxed);
        crash::expect_ended(&work)?;
        if let Some(running) = &mut running {
            running.stop()?;
        }

        let crashed = self.folder.join("crashed");
        copy_images(&self.images, &crashed)?;
        let clean = judge::judge(tools, &crashed, POOL)
            .map_err(|verdict| format!("as the daemon left it after {worked_ms} ms: {verdict}"))?;
        self.instance.must("zpool", &["status", POOL])?;
        let pages = self.promises.check(&self.mount.join("promised"))?;
        let mut told = format!(
            "after {worked_ms} ms, {} blocks clean; {pages} pages promised",
            clean.block_count
        );
        let running = match &self.server {
            Some(server) => Some(server.start()?),
            None => None,
        };
        for database in &self.databases {
            let (acknowledged, found) = database.check()?;
            write!(
                told,
                "; {}: {acknowledged} acknowledged, {found} found",
                database.name
            )?;
        }
        if let Some(mut running) = running {
            running.stop()?;
        }
        fs::remove_dir_all(&crashed)?;
        Ok(told)
    }
}

/// A database of one kind with its table.
struct Database {
    name: &'static str,
    /// Its shell, which reads statements and ends at the first that is refused.
    shell: Vec<String>,
    /// The user that the shell runs as.
    user: Option<(Uid, Gid)>,
    /// The file system it is on.
    mount: PathBuf,
    /// Said to the shell before anything else.
    preface: &'static str,
    /// The number of the last transaction that was acknowledged, or found.
    acknowledged: AtomicU64,
}

impl Database {
    fn sqlite(name: &'static str, path: &Path) -> Outcome<Database> {
        let shell = ["sqlite3", "-batch", "-bail"].map(str::to_string);
        let database = Database {
            name,
            shell: [&shell[..], &[path.display().to_string()]].concat(),
            user: None,
            mount: path.parent().unwrap_or(path).to_path_buf(),
            preface: SQLITE_SYNC,
            acknowledged: AtomicU64::new(0),
        };
        database.say(&format!("PRAGMA journal_mode={name};").replace("journal;", "delete;"))?;
        database.make_table()?;
        Ok(database)
    }

    fn make_table(&self) -> Outcome {
        self.say(
            "CREATE TABLE rows (number BIGINT PRIMARY KEY, text TEXT); \
             CREATE TABLE counter (value BIGINT); INSERT INTO counter VALUES (0);",
        )
        .map(drop)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.shell[0]);
        command.args(&self.shell[1..]).current_dir("/");
        if let Some((user, group)) = self.user {
            command.uid(user.as_raw()).gid(group.as_raw());
        }
        command
    }

    /// Has the shell say something, and gives what comes back.
    fn say(&self, statements: &str) -> Outcome<String> {
        let mut child = self
            .command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let text = format!("{}\n{statements}\n", self.preface);
        child
            .stdin
            .take()
            .ok_or("no input")?
            .write_all(text.as_bytes())?;
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.success() && said.trim().is_empty() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("{}: {statements}: {said}", self.name).into()),
        }
    }

    /// One transaction after the other, until the shell ends or we are told to stop.
    fn work(&self, stop: &AtomicBool) -> Outcome {
        let mut child = self
            .command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let outcome = self.transactions(&mut child, stop);
        // It may have ended by itself.
        let _ = child.kill();
        child.wait()?;
        outcome
    }

    fn transactions(&self, child: &mut Child, stop: &AtomicBool) -> Outcome {
        let mut input = child.stdin.take().ok_or("no input")?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        writeln!(input, "{}", self.preface)?;
        while !stop.load(Ordering::Relaxed) {
            let number = self.acknowledged.load(Ordering::SeqCst) + 1;
            let (text, old) = (text_of(number), number.saturating_sub(ROWS));
            writeln!(
                input,
                "BEGIN; INSERT INTO rows VALUES ({number}, '{text}'); DELETE FROM rows WHERE number <= {old}; \
                 UPDATE counter SET value = {number}; COMMIT; SELECT 'done {number}';"
            )?;
            input.flush()?;
            let Some(line) = lines.next().transpose()? else {
                return Ok(());
            };
            if line != format!("done {number}") {
                return Err(format!("{} answered {line}", self.name).into());
            }
            if rustix::fs::statvfs(&self.mount).is_err() {
                // What SQLite says when the daemon is dead counts for nothing: a folder that it
                // cannot open it takes for one that needs no fsync.
                return Ok(());
            }
            self.acknowledged.store(number, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Compares what is there with what was acknowledged. Gives the number of the last transaction
    /// of each.
    fn check(&self) -> Outcome<(u64, u64)> {
        let acknowledged = self.acknowledged.load(Ordering::SeqCst);
        let name = self.name;
        if name != POSTGRESQL {
            let verdict = self.say("PRAGMA integrity_check;")?;
            if verdict.trim() != "ok" {
                return Err(format!("{name} is broken: {verdict}").into());
            }
        }
        let counter = self.say("SELECT value FROM counter;")?;
        let found: u64 = counter.trim().parse()?;
        if found != acknowledged && found != acknowledged + 1 {
            return Err(format!("{name}: transaction {acknowledged} was acknowledged, {found} is the last that is there").into());
        }
        let rows = self.say("SELECT number || ' ' || text FROM rows ORDER BY number;")?;
        let first = found.saturating_sub(ROWS) + 1;
        let expected = (first..=found).map(|number| format!("{number} {}", text_of(number)));
        if !rows.lines().eq(expected) {
            return Err(format!(
                "{name}: the rows are not those of transactions {first} to {found}"
            )
            .into());
        }
        self.acknowledged.store(found, Ordering::SeqCst);
        Ok((acknowledged, found))
    }
}

/// The text of a row, short or long.
fn text_of(number: u64) -> String {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let length = match mixed >> 61 {
        0 => TEXT_MAX,
        1 | 2 => 2000,
        _ => 60,
    };
    let mut text = String::new();
    for part in 0.. {
        if text.len() as u64 >= length {
            break;
        }
        // Writing to a text does not fail.
        let _ = write!(text, "{:016x}", mixed.rotate_left(part) ^ u64::from(part));
    }
    text
}

/// With less, the removal of the rollback journal, which is the commit, need not be durable when it
/// is acknowledged.
const SQLITE_SYNC: &str = "PRAGMA synchronous=EXTRA;";

/// The name of the one that has a server.
const POSTGRESQL: &str = "postgresql";

/// PostgreSQL on a mount, when it is installed.
struct Server {
    programs: PathBuf,
    data: PathBuf,
    /// Its socket and its log are not on the mount. The path of a socket has to be short.
    runtime: tempfile::TempDir,
    user: (Uid, Gid),
}

impl Server {
    /// Makes a cluster on `mount`.
    fn find(mount: &Path) -> Outcome<Option<Server>> {
        let versions = fs::read_dir(SERVERS).into_iter().flatten().flatten();
        let programs = versions
            .map(|version| version.path().join("bin"))
            .filter(|programs| programs.join("initdb").is_file())
            .max();
        let (Some(programs), Some(user)) = (programs, user_named("postgres")?) else {
            return Ok(None);
        };
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let runtime = tempfile::Builder::new().prefix("tarn-pg").tempdir()?;
        let (owner, group) = (Some(user.0.as_raw()), Some(user.1.as_raw()));
        for folder in [mount, runtime.path()] {
            std::os::unix::fs::chown(folder, owner, group)?;
        }
        let server = Server {
            programs,
            data: mount.join("cluster"),
            runtime,
            user,
        };
        let mut initdb = server.command("initdb");
        initdb.args(["--auth=trust", "--no-locale", "--data-checksums", "-D"]);
        program::run(initdb.arg(&server.data), READY)?.expect_success()?;
        Ok(Some(server))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command
            .uid(self.user.0.as_raw())
            .gid(self.user.1.as_raw())
            .current_dir("/");
        command
    }

    /// Starts it, and waits until it has recovered.
    fn start(&self) -> Outcome<Running> {
        let log_path = self.runtime.path().join("log");
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(&log_path)?;
        let sockets = format!("unix_socket_directories={}", self.runtime.path().display());
        let mut command = self.command("postgres");
        command
            .arg("-D")
            .arg(&self.data)
            .args(["-c", &sockets, "-c", "listen_addresses="])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let deadline = Instant::now() + READY;
        let mut running = Running(command.spawn()?);
        loop {
            let mut ready = self.command("pg_isready");
            ready.arg("-q").arg("-h").arg(self.runtime.path());
            if program::run(&mut ready, READY)?.succeeded() {
                return Ok(running);
            }
            if running.0.try_wait()?.is_some() {
                // What its predecessor shared may still be in use by a process that is ending.
                thread::sleep(Duration::from_millis(100));
                running = Running(command.spawn()?);
            }
            if Instant::now() > deadline {
                let log = fs::read_to_string(&log_path).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(12).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                return Err(format!("PostgreSQL does not start:\n{}", tail.join("\n")).into());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Its database, with a new table.
    fn database(&self) -> Outcome<Database> {
        let shell = [
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            "postgres",
            "-h",
        ];
        let mut words = vec![self.programs.join("psql").display().to_string()];
        words.extend(shell.map(str::to_string));
        words.push(self.runtime.path().display().to_string());
        let database = Database {
            name: POSTGRESQL,
            shell: words,
            user: Some(self.user),
            mount: self.data.clone(),
            preface: "SET synchronous_commit = on;",
            acknowledged: AtomicU64::new(0),
        };
        database.make_table()?;
        Ok(database)
    }
}

/// A server that runs. It is ended, as if by a crash, when this goes.
struct Running(Child);

impl Running {
    /// Ends it at once: nothing is stored any more.
    fn stop(&mut self) -> Outcome {
        if let Some(process) = Pid::from_raw(i32::try_from(self.0.id())?) {
            // It may have ended by itself.
            let _ = kill_process(process, Signal::QUIT);
        }
        let deadline = Instant::now() + HANG_LIMIT;
        while self.0.try_wait()?.is_none() {
            if Instant::now() > deadline {
                self.0.kill()?;
                self.0.wait()?;
                return Err("PostgreSQL does not end".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that needs its result has stopped it before.
        let _ = self.stop();
    }
}

/// A user's and his group's numbers, when there is one of this name.
fn user_named(name: &str) -> Outcome<Option<(Uid, Gid)>> {
    for line in fs::read_to_string("/etc/passwd")?.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        if let [user, _, uid, gid, ..] = fields[..]
            && user == name
        {
            return Ok(Some((
                Uid::from_raw(uid.parse()?),
                Gid::from_raw(gid.parse()?),
            )));
        }
    }
    Ok(None)
}
