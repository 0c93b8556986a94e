//! `tarn-analytics-cost`: what Analytics costs a server that is saturated.
//!
//! # Mechanism
//! Three daemons serve a volume each, all of it cached, by NBD on a Unix socket: without Analytics,
//! with it as it is by default (the archive too), and with twelve instrumentations besides. As many
//! clients as there are processors ask each of them in turn for blocks of 4 KiB at random, 32 at a
//! time, for a part of a second; the order changes from round to round. A round gives a ratio of
//! rates, the result is the median of the rounds: what disturbs the machine for longer than a round
//! disturbs all three.
//!
//! Prints tab-separated lines as the examples of `tarn-analytics` do. It needs no FUSE, and any
//! user may run it.
//!
//! Arguments: the folder of `tarnd`, `zpool` and `zfs`; the seconds that all rounds take together,
//! 60 without.

use std::error::Error;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const POOL: &str = "cost";
const DISK_BYTES: u64 = 512 << 20;
const VOLUME_BYTES: u64 = 64 << 20;
const LARGE_BYTES: u32 = 1 << 20;
const BLOCK_BYTES: u32 = 4 << 10;
/// Requests of a client that wait for their replies.
const DEPTH: u64 = 32;
/// A server is asked for so long before the next one is.
const SLICE: Duration = Duration::from_millis(250);
const START_LIMIT: Duration = Duration::from_secs(60);
/// Bars B5 and B6 of the specification: percent of the rate, and of a processor.
const LOSS_MAX: &str = "1";
const WATCHED_LOSS_MAX: &str = "2";
const WATCHED: [&str; 4] = [
    "nbd.ops[op=read][client]:latency",
    "nbd.ops[dataset]:offset",
    "nbd.ops[cause]:size",
    "all.wait[protocol]:latency",
];
const INSTRUMENTATIONS: usize = 12;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds = arguments.get(1).map_or(Ok(60), |seconds| seconds.parse());
    let (Some(programs), Ok(seconds)) = (arguments.first(), seconds) else {
        eprintln!("usage: tarn-analytics-cost FOLDER-OF-PROGRAMS [SECONDS]");
        return ExitCode::FAILURE;
    };
    match measure(Path::new(programs), Duration::from_secs(seconds)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tarn-analytics-cost: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tell(bar: &str, what: &str, measured: f64, unit: &str, target: &str) {
    println!("{bar}\t{what}\t{measured:.2}\t{unit}\t{target}");
}

fn measure(programs: &Path, time: Duration) -> Outcome {
    let folder = Folder::make()?;
    let plain = Server::start(programs, &folder, "off", &["--analytics", "off"])?;
    let kept = Server::start(programs, &folder, "on", &[])?;
    let watched = Server::start(programs, &folder, "watched", &[])?;
    for number in 0..INSTRUMENTATIONS {
        watched.instrument(WATCHED[number % WATCHED.len()])?;
    }
    let servers = [plain, kept, watched];
    servers.iter().try_for_each(Server::fill)?;
    let rounds = time.as_millis() / (SLICE.as_millis() * servers.len() as u128);
    let mut rates: [Vec<f64>; 3] = Default::default();
    let before = servers.each_ref().map(Server::collector_ns);
    for round in 0..usize::try_from(rounds)?.max(1) {
        for turn in 0..servers.len() {
            let number = (round + turn) % servers.len();
            rates[number].push(servers[number].rate()?);
        }
    }
    let [plain, kept, with_watched] = rates.each_ref();
    let loss = |rates: &[f64]| {
        let ratios = rates.iter().zip(plain).map(|(rate, plain)| rate / plain);
        (1.0 - median(ratios.collect())) * 100.0
    };
    let processors = std::thread::available_parallelism()?.get();
    let rounds = plain.len();
    assert!(
        rounds == kept.len() && rounds == with_watched.len(),
        "a round asks all of them"
    );
    let rate = median(plain.clone());
    eprintln!("{rate:.0} reads of 4 KiB a second, {processors} processors, {rounds} rounds");
    let on = "loss at saturation, analytics on";
    tell("B5", on, loss(kept), "%", LOSS_MAX);
    let watching = "loss at saturation, 12 drill-downs";
    tell("B5", watching, loss(with_watched), "%", WATCHED_LOSS_MAX);
    let operations: f64 = kept.iter().sum::<f64>() * SLICE.as_secs_f64();
    let took_ns = servers[1].collector_ns() - before[1];
    for (rate, name, target) in [(1e5, "100,000", "3"), (5e5, "500,000", "15")] {
        let what = format!("collector and archive at {name} op/s");
        let percent = took_ns / operations * rate / 1e9 * 100.0;
        tell("B6", &what, percent, "% of a core", target);
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A folder in memory, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Outcome<Folder> {
        let memory = Path::new("/dev/shm");
        let all = match memory.is_dir() {
            true => memory.to_owned(),
            false => std::env::temp_dir(),
        };
        let folder = all.join(format!("tarn-analytics-cost-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Folder(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A daemon with a volume, killed when this is dropped.
struct Server {
    state: PathBuf,
    daemon: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

impl Server {
    fn start(programs: &Path, folder: &Folder, name: &str, options: &[&str]) -> Outcome<Server> {
        let state = folder.0.join(name);
        fs::create_dir_all(&state)?;
        let disk = state.join("disk");
        File::create(&disk)?.set_len(DISK_BYTES)?;
        let mut daemon = Command::new(programs.join("tarnd"));
        daemon
            .args(["--foreground", "--web", "off", "--block-devices", "none"])
            .args(["--cache-size", "256M"])
            .args(options)
            .env("TARN_DIR", &state)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let daemon = daemon.spawn()?;
        let server = Server { state, daemon };
        server.await_socket()?;
        let disk = disk.display();
        let pool =
            format!("create -f -o ashift=12 -O compression=off -O mountpoint=none {POOL} {disk}");
        server.command(programs, "zpool", &pool)?;
        server.command(
            programs,
            "zfs",
            &format!("create -V {VOLUME_BYTES} {POOL}/volume"),
        )?;
        Ok(server)
    }

    fn await_socket(&self) -> Outcome {
        let deadline = Instant::now() + START_LIMIT;
        while UnixStream::connect(self.state.join("tarnd.sock")).is_err() {
            if Instant::now() > deadline {
                return Err("tarnd does not come to serve".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn command(&self, programs: &Path, program: &str, line: &str) -> Outcome {
        let mut command = Command::new(programs.join(program));
        command
            .args(line.split_whitespace())
            .env("TARN_DIR", &self.state);
        let said = command.output()?;
        match said.status.success() {
            true => Ok(()),
            false => Err(format!(
                "{program} {line}: {}",
                String::from_utf8_lossy(&said.stderr)
            )
            .into()),
        }
    }

    /// Has the daemon count a statement live.
    fn instrument(&self, statement: &str) -> Outcome {
        let body = format!(r#"{{"request":{{"statement":"{statement}"}}}}"#);
        let length = body.len();
        let mut control = UnixStream::connect(self.state.join("tarnd.sock"))?;
        write!(
            control,
            "POST /v1/analytics/instrument HTTP/1.1\r\nhost: tarn\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )?;
        let mut reply = String::new();
        control.read_to_string(&mut reply)?;
        match reply.starts_with("HTTP/1.1 200") {
            true => Ok(()),
            false => Err(format!("{statement} is not counted: {reply}").into()),
        }
    }

    /// What the threads of Analytics took of processors.
    fn collector_ns(&self) -> f64 {
        let tasks = format!("/proc/{}/task", self.daemon.id());
        let threads = fs::read_dir(tasks).into_iter().flatten().flatten();
        let took_ns = threads.filter_map(|thread| {
            let name = fs::read_to_string(thread.path().join("comm")).ok()?;
            let is_meant = ["tarn-analytics", "tarn-archive"].contains(&name.trim_end());
            let told = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            let first: f64 = told.split(' ').next()?.parse().ok()?;
            is_meant.then_some(first)
        });
        took_ns.sum()
    }

    fn connect(&self) -> Outcome<Client> {
        Client::connect(&self.state.join("nbd.sock"))
    }

    /// Writes the volume, and has all of it read once.
    fn fill(&self) -> Outcome {
        let mut client = self.connect()?;
        let data = vec![0xab; usize::try_from(LARGE_BYTES)?];
        for offset in (0..VOLUME_BYTES).step_by(data.len()) {
            client.ask(WRITE, offset, LARGE_BYTES);
            client.requests.extend_from_slice(&data);
            client.send()?;
            client.take_replies(1, 0)?;
        }
        for offset in (0..VOLUME_BYTES).step_by(data.len()) {
            client.ask(READ, offset, LARGE_BYTES);
            client.send()?;
            client.take_replies(1, LARGE_BYTES)?;
        }
        Ok(())
    }

    /// Reads each second of all clients together.
    fn rate(&self) -> Outcome<f64> {
        let count = std::thread::available_parallelism()?.get();
        let together = Barrier::new(count);
        let reads: Vec<Outcome<u64>> = std::thread::scope(|scope| {
            let each = |number: usize| {
                let together = &together;
                scope.spawn(move || {
                    let client = self.connect();
                    together.wait();
                    client?.read_at_random(number as u64 + 1)
                })
            };
            let running: Vec<_> = (0..count).map(each).collect();
            let ended = running.into_iter().map(|thread| {
                let lost = |_| Err("a client's thread panicked".into());
                thread.join().unwrap_or_else(lost)
            });
            ended.collect()
        });
        let reads = reads.into_iter().sum::<Outcome<u64>>()?;
        Ok(reads as f64 / SLICE.as_secs_f64())
    }
}

const READ: u16 = 0;
const WRITE: u16 = 1;
/// Numbers of the protocol of NBD: `proto.md` of its project.
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const EXPORT_NAME: u32 = 1;
/// Fixed negotiation, and no zeros after it.
const CLIENT_FLAGS: u32 = 3;
const REPLY_BYTES: usize = 16;

/// A client of NBD.
struct Client {
    socket: UnixStream,
    requests: Vec<u8>,
    replies: Vec<u8>,
}

impl Client {
    fn connect(path: &Path) -> Outcome<Client> {
        let mut socket = UnixStream::connect(path)?;
        // Two magic words and flags; later the size of the volume and its flags.
        socket.read_exact(&mut [0; 18])?;
        let name = format!("{POOL}/volume");
        let mut chosen = CLIENT_FLAGS.to_be_bytes().to_vec();
        chosen.extend_from_slice(OPTION_MAGIC);
        chosen.extend_from_slice(&EXPORT_NAME.to_be_bytes());
        chosen.extend_from_slice(&u32::try_from(name.len())?.to_be_bytes());
        chosen.extend_from_slice(name.as_bytes());
        socket.write_all(&chosen)?;
        socket.read_exact(&mut [0; 10])?;
        let (requests, replies) = (Vec::new(), Vec::new());
        Ok(Client {
            socket,
            requests,
            replies,
        })
    }

    /// Adds a request to those that are sent next.
    fn ask(&mut self, kind: u16, offset: u64, bytes: u32) {
        self.requests
            .extend_from_slice(&REQUEST_MAGIC.to_be_bytes());
        self.requests.extend_from_slice(&[0; 2]);
        self.requests.extend_from_slice(&kind.to_be_bytes());
        self.requests.extend_from_slice(&offset.to_be_bytes());
        self.requests.extend_from_slice(&offset.to_be_bytes());
        self.requests.extend_from_slice(&bytes.to_be_bytes());
    }

    fn send(&mut self) -> Outcome {
        self.socket.write_all(&self.requests)?;
        self.requests.clear();
        Ok(())
    }

    /// Takes replies with so many bytes each.
    fn take_replies(&mut self, count: u64, bytes: u32) -> Outcome {
        assert!(self.requests.is_empty(), "what is waited for was sent");
        let length = REPLY_BYTES + usize::try_from(bytes)?;
        self.replies.resize(length * usize::try_from(count)?, 0);
        self.socket.read_exact(&mut self.replies)?;
        let good = [&REPLY_MAGIC.to_be_bytes()[..], &[0; 4]].concat();
        match self
            .replies
            .chunks(length)
            .all(|reply| reply.starts_with(&good))
        {
            true => Ok(()),
            false => Err("the server refused a request".into()),
        }
    }

    /// Reads for a slice of time; gives how often.
    fn read_at_random(&mut self, seed: u64) -> Outcome<u64> {
        let blocks = VOLUME_BYTES / u64::from(BLOCK_BYTES);
        let (mut random, mut reads) = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), 0);
        let until = Instant::now() + SLICE;
        while Instant::now() < until {
            for _ in 0..DEPTH {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let block = (random >> 33) % blocks;
                self.ask(READ, block * u64::from(BLOCK_BYTES), BLOCK_BYTES);
            }
            self.send()?;
            self.take_replies(DEPTH, BLOCK_BYTES)?;
            reads += DEPTH;
        }
        Ok(reads)
    }
}
