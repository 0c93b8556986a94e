//! The host id of an instance.
//!
//! A pool's labels have the id of its last host. Root's own instance has the machine's. An instance
//! with a `TARN_DIR` of its own is another host: it gets an id at its first start, and keeps it in
//! its folder. `TARN_HOSTID` overrides both.

use std::path::PathBuf;
use tarn_engine::instance::Instance;
use tarn_engine::{Host, RealOptions, words_of};

/// Why the host id is not known.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A variable is malformed.
    #[error("{0}")]
    Variable(String),
    /// The file with the id cannot be used.
    #[error("cannot use {path}: {cause}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        cause: String,
    },
}

/// The host of this instance.
pub fn of_instance(instance: &Instance) -> Result<Host, IdentityError> {
    let mut options = RealOptions::from_environment()
        .map_err(|error| IdentityError::Variable(error.to_string()))?;
    let has_own_folder = std::env::var_os("TARN_DIR").is_some_and(|value| !value.is_empty());
    if options.hostid.is_none() && has_own_folder {
        options.hostid = Some(own_id(instance)?);
    }
    Ok(Host::real(options))
}

/// The id of the instance, chosen at random if there is none yet.
fn own_id(instance: &Instance) -> Result<u32, IdentityError> {
    let path = instance.host_id();
    let failed = |cause: String| IdentityError::File {
        path: path.clone(),
        cause,
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => u32::from_str_radix(text.trim(), 16)
            .map_err(|_| failed("it has no host id".to_string())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let random = Host::real(RealOptions::default()).random_u64();
            // Zero means that a host has no id.
            let id = u32::try_from(random >> 32).unwrap_or(1).max(1);
            std::fs::write(&path, format!("{id:08x}\n"))
                .map_err(|error| failed(words_of(&error)))?;
            Ok(id)
        }
        Err(error) => Err(failed(words_of(&error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_keeps_its_id() {
        let folder = std::env::temp_dir().join(format!("tarnd-host-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let instance = Instance::at(&folder);
        let id = own_id(&instance).unwrap();
        assert_eq!(own_id(&instance).unwrap(), id);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
