//! Tokens: what a person shows to log in.
//!
//! # Mechanism
//! A file has two lines, `administrator TOKEN` and `viewer TOKEN`, of 256 random bits each. The
//! first start makes it, for the daemon's user alone (mode 0600). A user that can read it
//! could as well use the control socket, so a token gives an administrator nothing new.

use std::io::{Error, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use subtle::ConstantTimeEq;

/// Bytes of a token, in hexadecimal digits.
const TOKEN_DIGITS: usize = 64;

/// More has no file of tokens.
const FILE_BYTES_MAX: u64 = 4096;

/// The mode of the file: of its owner alone.
const FILE_MODE: u32 = 0o600;

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Everything that the daemon's user may do.
    Administrator,
    /// Some operations that change nothing, with names of clients, users and files hidden.
    Viewer,
}

impl Role {
    /// As it is in the file and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Role::Administrator => "administrator",
            Role::Viewer => "viewer",
        }
    }
}

/// Why there are no tokens.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or made.
    #[error("cannot use {}: {}", .path.display(), tarn_engine::words_of(.cause))]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: Error,
    },
    /// Others may read it.
    #[error("{} can be read by other users: run 'chmod 600' on it, or remove it and restart tarnd, which makes new tokens", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// It has no such line.
    #[error("{} has no line '{role} TOKEN' with 64 hexadecimal digits: remove it and restart tarnd, which makes new tokens", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is missing.
        role: &'static str,
    },
}

/// The tokens of an instance.
#[derive(Clone)]
pub struct Tokens {
    administrator: String,
    viewer: String,
}

impl Tokens {
    /// Reads the file, and makes it where there is none.
    ///
    /// # Errors
    /// It cannot be made or read, others may read it, or it is malformed.
    pub fn open(path: &Path) -> Result<Tokens, TokenError> {
        match Tokens::read(path) {
            Err(TokenError::File { cause, .. }) if cause.kind() == ErrorKind::NotFound => {
                Tokens::make(path).map_err(|cause| TokenError::File {
                    path: path.to_path_buf(),
                    cause,
                })?;
                Tokens::read(path)
            }
            read => read,
        }
    }

    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, others may read it, or it is malformed.
    pub fn read(path: &Path) -> Result<Tokens, TokenError> {
        let failed = |cause| TokenError::File {
            path: path.to_path_buf(),
            cause,
        };
        let file = std::fs::File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.permissions().mode();
        if mode & 0o077 != 0 {
            let path = path.to_path_buf();
            return Err(TokenError::Open { path });
        }
        let mut text = String::new();
        let mut file = file.take(FILE_BYTES_MAX);
        file.read_to_string(&mut text).map_err(failed)?;
        let token = |role: Role| {
            let words = text.lines().filter_map(|line| line.split_once(' '));
            let mut tokens = words.filter(|(name, token)| {
                let is_digits = token.bytes().all(|byte| byte.is_ascii_hexdigit());
                *name == role.name() && token.len() == TOKEN_DIGITS && is_digits
            });
            let token = tokens.next().map(|(_, token)| token.to_owned());
            token.ok_or_else(|| TokenError::Malformed {
                path: path.to_path_buf(),
                role: role.name(),
            })
        };
        Ok(Tokens {
            administrator: token(Role::Administrator)?,
            viewer: token(Role::Viewer)?,
        })
    }

    /// The token of a role.
    pub fn of(&self, role: Role) -> &str {
        match role {
            Role::Administrator => &self.administrator,
            Role::Viewer => &self.viewer,
        }
    }

    /// What these bytes allow. It takes as long for a wrong token as for a right one.
    pub(crate) fn role_of(&self, shown: &str) -> Option<Role> {
        let is = |token: &str| bool::from(token.as_bytes().ct_eq(shown.as_bytes()));
        let (administrator, viewer) = (is(&self.administrator), is(&self.viewer));
        match (administrator, viewer) {
            (true, _) => Some(Role::Administrator),
            (false, true) => Some(Role::Viewer),
            (false, false) => None,
        }
    }

    fn make(path: &Path) -> Result<(), Error> {
        let (administrator, viewer) = (random_token()?, random_token()?);
        let mut options = std::fs::OpenOptions::new();
        let options = options.write(true).create_new(true).mode(FILE_MODE);
        let mut file = options.open(path)?;
        let text = format!("administrator {administrator}\nviewer {viewer}\n");
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }
}

/// 256 random bits in hexadecimal digits.
pub(crate) fn random_token() -> Result<String, Error> {
    let mut bytes = [0; TOKEN_DIGITS / 2];
    let count = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    // The system gives up to 256 bytes whole.
    assert_eq!(count, bytes.len(), "the system gives random bytes whole");
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_start_makes_tokens_for_the_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web-tokens");
        let made = Tokens::open(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, FILE_MODE);
        let again = Tokens::open(&path).unwrap();
        for role in [Role::Administrator, Role::Viewer] {
            assert_eq!(made.of(role), again.of(role));
            assert_eq!(again.role_of(made.of(role)), Some(role));
        }
        assert_ne!(made.administrator, made.viewer);
        assert_eq!(again.role_of(""), None);
        assert_eq!(again.role_of(&made.administrator[1..]), None);
    }

    #[test]
    fn a_file_that_others_read_or_that_is_cut_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web-tokens");
        Tokens::open(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let open = Tokens::open(&path).err().unwrap().to_string();
        assert!(open.contains("chmod 600"), "{open}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 3]).unwrap();
        let cut = Tokens::open(&path).err().unwrap().to_string();
        assert!(cut.contains("viewer TOKEN"), "{cut}");
    }
}
