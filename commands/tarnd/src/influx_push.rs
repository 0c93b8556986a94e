//! Pushes metrics to an InfluxDB, every so many seconds.
//!
//! # Mechanism
//! A thread gathers the lines that `tarn export -f influx --signed-int` prints, and posts them.
//! While the server is away they wait in a bounded queue. That it is away, and that it is back, is
//! logged once each.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tarn_administration::Administrator;
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::Refusal;
use tarn_administration::messages::pool::Describe;
use tarn_administration::messages::statistics::{IoSample, Metrics};
use tarn_exports::{LineOptions, PostError, PostTarget, PushQueue, metric_lines, pool_lines};

/// Between two pushes, unless given: as Telegraf does.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// How long each step of sending may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of a file with a token.
const TOKEN_MAX: usize = 4096;

/// Where metrics are pushed, and how often.
#[derive(Debug, Clone)]
pub struct InfluxPush {
    /// The server's address for writing.
    pub target: PostTarget,
    /// Between two pushes.
    pub interval: Duration,
    /// Tags of each line.
    pub tags: String,
    /// The file with the token of InfluxDB 2, where it wants one.
    pub token: Option<PathBuf>,
}

/// The thread; it ends soon after this is dropped.
pub struct Pushing {
    _stop: Sender<()>,
}

impl InfluxPush {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no room for it.
    pub fn start(
        self,
        administrator: Arc<Administrator>,
        log: fn(&str),
    ) -> std::io::Result<Pushing> {
        let (stop, stopped) = channel();
        std::thread::Builder::new()
            .name("tarnd-push".to_string())
            .spawn(move || self.run(&administrator, &stopped, log))?;
        Ok(Pushing { _stop: stop })
    }

    fn run(&self, administrator: &Administrator, stopped: &Receiver<()>, log: fn(&str)) {
        let mut queue = PushQueue::default();
        let mut was_away = false;
        let mut next = Instant::now();
        loop {
            let wait = next.saturating_duration_since(Instant::now());
            if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            next = (next + self.interval).max(Instant::now());
            match lines(administrator, &self.tags) {
                Ok(batch) => queue.add(batch),
                Err(refusal) => log(&format!("cannot gather metrics to push: {refusal}")),
            }
            let sent = queue.send(|batch| self.post(batch));
            let dropped = queue.take_dropped();
            if dropped > 0 {
                log(&format!(
                    "InfluxDB is away for long: {dropped} pushes were given up"
                ));
            }
            match sent {
                Ok(()) if was_away => {
                    log("InfluxDB takes metrics again");
                    was_away = false;
                }
                Ok(()) => {}
                Err(error @ PostError::Refused(..)) => {
                    log(&format!("InfluxDB does not take metrics: {error}"));
                }
                Err(error) if !was_away => {
                    log(&format!(
                        "cannot push metrics to InfluxDB, they wait: {error}"
                    ));
                    was_away = true;
                }
                Err(_) => {}
            }
        }
    }

    fn post(&self, batch: &str) -> Result<(), PostError> {
        let token = self.token.as_ref().map(|path| {
            let text = std::fs::read_to_string(path).map_err(PostError::Away)?;
            let token = text.trim();
            let is_plain = token.len() < TOKEN_MAX && token.bytes().all(|b| b.is_ascii_graphic());
            match is_plain {
                true => Ok(format!("Token {token}")),
                false => {
                    let why = format!("{} has no token on one line", path.display());
                    Err(PostError::Refused(0, why))
                }
            }
        });
        let token = token.transpose()?;
        let mut headers = vec![("content-type", "text/plain; charset=utf-8")];
        headers.extend(token.as_deref().map(|token| ("authorization", token)));
        self.target.post(&headers, batch.as_bytes(), PATIENCE)
    }
}

/// What is pushed: all pools, then all metrics.
fn lines(administrator: &Administrator, tags: &str) -> Result<String, Refusal> {
    let options = LineOptions {
        tags: tags.to_owned(),
        // InfluxDB 1 takes no unsigned numbers, InfluxDB 2 takes both.
        is_signed: true,
        ..LineOptions::default()
    };
    let call = Call::default();
    let described = administrator.pool_describe(&call, Describe::default())?;
    let sampled = administrator.pool_iostat(&call, IoSample::default())?;
    let metrics = administrator.statistics_metrics(&call, Metrics {})?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let now_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for described in &described.pools {
        let of_pool = sampled
            .pools
            .iter()
            .find(|sample| sample.name == described.name);
        if let Some(sample) = of_pool {
            text.push_str(&pool_lines(described, sample, &options, now_ns));
        }
    }
    text.push_str(&metric_lines(&metrics, &options, now_ns));
    Ok(text)
}
