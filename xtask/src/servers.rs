//! Servers that tasks start beside our daemon, and ports for them.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::workspace::Outcome;

/// A server that takes longer does not start.
pub const START_LIMIT: Duration = Duration::from_secs(30);

/// A process that ends with this value.
pub struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port of 127.0.0.1 that nothing listens on now.
pub fn free_port() -> Outcome<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    Ok(listener.local_addr()?.port())
}

/// Waits until a server answers at a port or a socket in the file system.
pub fn await_server(answers: impl Fn() -> bool, name: &str) -> Outcome {
    let began = Instant::now();
    while !answers() {
        if began.elapsed() > START_LIMIT {
            return Err(format!("{name} does not answer").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Starts a server that says nothing.
pub fn start(command: &mut Command) -> Outcome<Server> {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok(Server(quiet.spawn()?))
}
