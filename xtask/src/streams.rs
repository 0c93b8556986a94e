//! Streams on their way between our commands: sent into files, cut, and gone on with.
//!
//! # Mechanism
//! What a network does to a stream is done to a file here: it ends too soon. What then arrived
//! stays (`zfs receive -s`), says by a token how far it came, and `zfs send -t` makes the rest,
//! which may be cut again.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tarn_oracle::instance::Instance;
use tarn_oracle::program::{self, Spoken};

use crate::workspace::Outcome;

/// No stream here takes longer.
const LIMIT: Duration = Duration::from_secs(300);

/// `zfs send` into a file.
pub fn send(instance: &Instance, options: &[&str], stream: &Path) -> Outcome {
    let mut command = instance.command("zfs");
    command.arg("send").args(options);
    let output = Stdio::from(File::create(stream)?);
    program::run_writing(&mut command, output, LIMIT)?.expect_success()?;
    Ok(())
}

/// `zfs receive` from a file; it may be refused.
pub fn receive(instance: &Instance, options: &[&str], stream: &Path) -> Outcome<Spoken> {
    let mut command = instance.command("zfs");
    command.arg("receive").args(options);
    let input = Stdio::from(File::open(stream)?);
    Ok(program::run_reading(&mut command, input, LIMIT)?)
}

/// The token of a file system that got part of a stream.
pub fn token(instance: &Instance, target: &str) -> Outcome<Option<String>> {
    let words = ["get", "-H", "-o", "value", "receive_resume_token", target];
    let spoken = instance.run("zfs", &words)?;
    let value = spoken.stdout.trim();
    let is_token = spoken.succeeded() && !value.is_empty() && value != "-";
    Ok(is_token.then(|| value.to_string()))
}

/// Ends a stream after so many bytes.
pub fn cut(stream: &Path, bytes: u64) -> Outcome {
    File::options().write(true).open(stream)?.set_len(bytes)?;
    Ok(())
}

/// Receives a stream that is cut at each of these places, and goes on until it is whole. `place` is
/// given the length of what is left, and gives where to cut it, or nothing when it shall arrive.
/// Gives back how often a token was gone on from. `target` is the file system, `options` what else
/// `zfs receive` is told.
pub fn receive_in_pieces(
    instance: &Instance,
    options: &[&str],
    target: &str,
    whole: &Path,
    mut place: impl FnMut(u64) -> Option<u64>,
) -> Outcome<u32> {
    let left = whole.with_extension("left");
    fs::copy(whole, &left)?;
    let options = [&["-s"][..], options, &[target]].concat();
    let mut resumed = 0;
    while let Some(at) = place(fs::metadata(&left)?.len()) {
        cut(&left, at)?;
        let spoken = receive(instance, &options, &left)?;
        if spoken.succeeded() {
            return Err(format!("{target}: a stream that ends after {at} bytes was taken").into());
        }
        match token(instance, target)? {
            Some(token) => {
                send(instance, &["-t", &token], &left)?;
                resumed += 1;
            }
            // It was too short to be anything.
            None if resumed == 0 => {
                fs::copy(whole, &left)?;
            }
            None => return Err(format!("{target} lost its token: {spoken:?}").into()),
        }
    }
    receive(instance, &options, &left)?.expect_success()?;
    fs::remove_file(&left)?;
    match token(instance, target)? {
        None => Ok(resumed),
        Some(token) => Err(format!("{target} is whole, and has the token {token}").into()),
    }
}
