//! The way to the daemon.

use crate::daemon;
use crate::failure::Failure;
use std::os::fd::BorrowedFd;
use tarn_api::client::Client;
use tarn_api::handover::Line;
use tarn_engine::caller::StartedBy;
use tarn_engine::instance::Instance;
use tarn_engine::words_of;

/// The instance that the environment names.
///
/// # Errors
/// When nothing says where it could be.
pub fn instance() -> Result<Instance, Failure> {
    Instance::from_environment().map_err(|error| Failure::error(error.to_string()))
}

/// A client of this instance's daemon, which is started when it does not run. `command` is what
/// history shows.
///
/// # Errors
/// Why there is none.
pub fn connect(command: &str) -> Result<Client, Failure> {
    let instance = instance()?;
    let client = Client::new(&instance.socket(), command);
    if !client.is_reachable() {
        daemon::start(&instance, &[], StartedBy::Command)
            .map_err(|error| Failure::error(error.to_string()))?;
    }
    Ok(client)
}

/// Hands a descriptor over to the daemon, which must run: for calls through which a stream flows.
/// They must be made while the line lives.
///
/// # Errors
/// Why the daemon does not take it.
pub fn hand_over(client: &Client, file: BorrowedFd<'_>) -> Result<(Client, Line), Failure> {
    let socket = instance()?.stream_socket();
    let line = Line::open(&socket, file).map_err(|cause| {
        let (path, cause) = (socket.display(), words_of(&cause));
        Failure::error(format!(
            "cannot hand the stream to tarnd at {path}: {cause}"
        ))
    })?;
    Ok((client.with_stream(&line), line))
}
