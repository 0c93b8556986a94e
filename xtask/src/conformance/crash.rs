//! What tests share that kill the daemon: work that must come to its end, and what is left to look
//! at.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::workspace::Outcome;

/// After a kill, every call must have failed by then.
pub const HANG_LIMIT: Duration = Duration::from_secs(30);

/// A thread, and the news of its end.
pub struct Work {
    name: &'static str,
    ended: Receiver<()>,
}

impl Work {
    /// Starts it.
    pub fn begin(name: &'static str, work: impl FnOnce() + Send + 'static) -> Work {
        let (done, ended) = channel();
        thread::spawn(move || {
            work();
            // No thread waits any more when another one hung.
            let _ = done.send(());
        });
        Work { name, ended }
    }
}

/// All of it has come to its end, within [`HANG_LIMIT`] from now.
pub fn expect_ended(work: &[Work]) -> Outcome {
    let deadline = Instant::now() + HANG_LIMIT;
    for work in work {
        let left = deadline.saturating_duration_since(Instant::now());
        if work.ended.recv_timeout(left).is_err() {
            return Err(format!(
                "{} s after the daemon was killed, {} hangs",
                HANG_LIMIT.as_secs(),
                work.name
            )
            .into());
        }
    }
    Ok(())
}

/// Copies the images as they are, holes kept.
pub fn copy_images(images: &Path, copy: &Path) -> Outcome {
    let _ = std::fs::remove_dir_all(copy);
    let mut command = Command::new("cp");
    command
        .args(["-r", "--sparse=always", "--reflink=auto"])
        .arg(images)
        .arg(copy);
    crate::workspace::run(&mut command)
}
