//! GSS-API (RFC 2743): the other end of a connection shows its name, by Kerberos of the system.
//!
//! # Mechanism
//! A service [acquires](Acceptor::acquire) its keys from a keytab. Both ends exchange tokens until
//! a [`Context`] is there; then each knows the other, and messages are signed
//! ([`Context::mic`]) or encrypted ([`Context::wrap`]) with keys of the context. The library is the
//! system's (`gss_library`), loaded when it is first asked for.
//!
//! # Knows nothing about
//! RPC, and which users may do what.

use crate::gss_library::{self, Failure, Handle};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The mechanism's object identifier, without its tag and length.
pub const KRB5: &[u8] = &gss_library::KRB5;

/// Why something cannot be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GssError {
    /// The library cannot be used.
    #[error(
        "Kerberos needs the library libgssapi_krb5.so.2: {0}; install it (Debian: \
         libgssapi-krb5-2)"
    )]
    Library(String),
    /// The library refuses.
    #[error("{words}")]
    Refused {
        /// The status of GSS-API.
        major: u32,
        /// That of the mechanism.
        minor: u32,
        /// Both in words.
        words: String,
        /// What is to be sent to the other end, if anything.
        token: Vec<u8>,
    },
    /// A message was to be encrypted, and is not.
    #[error("the message is not encrypted")]
    NotEncrypted,
}

impl From<Failure> for GssError {
    fn from(failure: Failure) -> GssError {
        GssError::Refused {
            major: failure.major,
            minor: failure.minor,
            words: failure.words,
            token: failure.token,
        }
    }
}

/// The keys of a service.
pub struct Acceptor {
    credential: Mutex<Handle>,
}

/// The other end of a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Initiator {
    /// Its name: `user@REALM`.
    pub principal: String,
    /// The account of this machine that it is, by the rules of krb5.conf(5).
    pub account: Option<String>,
    /// For how long it is known, in seconds.
    pub lifetime_s: u32,
}

/// What two ends have in common once they know each other.
pub struct Context {
    handle: Mutex<Handle>,
}

impl Acceptor {
    /// The keys of a service, as `nfs`, by any name of this machine: from this keytab, or from that
    /// of the system (`/etc/krb5.keytab`).
    ///
    /// # Errors
    /// There is no library, or no such key.
    pub fn acquire(service: &str, keytab: Option<&Path>) -> Result<Acceptor, GssError> {
        let service = Handle::service(service).map_err(GssError::Library)??;
        Ok(Acceptor {
            credential: Mutex::new(Handle::acceptor(&service, keytab)?),
        })
    }
}

impl Context {
    /// One that is not there yet.
    ///
    /// # Errors
    /// There is no library.
    pub fn new() -> Result<Context, GssError> {
        let handle = Handle::new_context().map_err(GssError::Library)?;
        Ok(Context {
            handle: Mutex::new(handle),
        })
    }

    fn handle(&self) -> MutexGuard<'_, Handle> {
        // A thread that panicked under the lock has ended with the process.
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a token of the initiator. Gives the one for it, and its name when the context is
    /// there.
    ///
    /// # Errors
    /// It is refused.
    pub fn accept(
        &self,
        acceptor: &Acceptor,
        token: &[u8],
    ) -> Result<(Vec<u8>, Option<Initiator>), GssError> {
        let credential = acceptor.credential.lock();
        let credential = credential.unwrap_or_else(PoisonError::into_inner);
        let (token, found) = self.handle().accept(&credential, token)?;
        let initiator = found.map(|(name, lifetime_s)| Initiator {
            principal: name.words(),
            account: name.account(),
            lifetime_s,
        });
        Ok((token, initiator))
    }

    /// Takes a token of the service, or an empty one in the beginning. Gives the one for it, and
    /// whether the context is there.
    ///
    /// # Errors
    /// There is no ticket, or the service is refused.
    pub fn initiate(&self, service: &str, token: &[u8]) -> Result<(Vec<u8>, bool), GssError> {
        let service = Handle::service(service).map_err(GssError::Library)??;
        Ok(self.handle().initiate(&service, token)?)
    }

    /// The checksum of a message. The context is there.
    ///
    /// # Errors
    /// It has expired.
    pub fn mic(&self, message: &[u8]) -> Result<Vec<u8>, GssError> {
        Ok(self.handle().mic(message)?)
    }

    /// Checks a message by its checksum. The context is there.
    ///
    /// # Errors
    /// It is another's, or the context has expired.
    pub fn verify(&self, message: &[u8], mic: &[u8]) -> Result<(), GssError> {
        Ok(self.handle().verify(message, mic)?)
    }

    /// A message encrypted. The context is there.
    ///
    /// # Errors
    /// It has expired, or cannot encrypt.
    pub fn wrap(&self, message: &[u8]) -> Result<Vec<u8>, GssError> {
        match self.handle().wrap(message)? {
            (wrapped, true) => Ok(wrapped),
            (_, false) => Err(GssError::NotEncrypted),
        }
    }

    /// What the other end has encrypted. The context is there.
    ///
    /// # Errors
    /// It was damaged or not encrypted, or the context has expired.
    pub fn unwrap(&self, wrapped: &[u8]) -> Result<Vec<u8>, GssError> {
        match self.handle().unwrap(wrapped)? {
            (message, true) => Ok(message),
            (_, false) => Err(GssError::NotEncrypted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keytab_that_is_not_there_is_told_in_words() {
        // Where there is no library, that is told.
        let refused = Acceptor::acquire("nfs", Some(Path::new("/no/such/keytab")));
        let why = refused.err().expect("there are no keys").to_string();
        assert!(
            why.contains("/no/such/keytab") || why.contains("libgssapi-krb5-2"),
            "{why}"
        );
    }

    #[test]
    fn tokens_that_are_none_are_refused() {
        let Ok(context) = Context::new() else {
            // Without the library there is no context at all.
            return assert!(Acceptor::acquire("nfs", None).is_err());
        };
        assert!(context.initiate("nfs@localhost", b"nonsense").is_err());
    }
}
