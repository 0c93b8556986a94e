//! The way to the daemon.

use crate::daemon;
use crate::failure::Failure;
use tarn_api::client::Client;
use tarn_engine::instance::Instance;

/// The instance that the environment names.
///
/// # Errors
/// When nothing says where it could be.
pub fn instance() -> Result<Instance, Failure> {
    Instance::from_environment().map_err(|error| Failure::error(error.to_string()))
}

/// A client of this instance's daemon, which is started when it does not run. `command` is what history shows.
///
/// # Errors
/// Why there is none.
pub fn connect(command: &str) -> Result<Client, Failure> {
    let instance = instance()?;
    let client = Client::new(&instance.socket(), command);
    if !client.is_reachable() {
        daemon::start(&instance, &[]).map_err(|error| Failure::error(error.to_string()))?;
    }
    Ok(client)
}
