//! Contexts of RPCSEC_GSS: clients' users whose names are proved.
//!
//! # Mechanism
//! A client begins a context with a token of its user's ticket and gets a handle, by which it names
//! the context in each call (RFC 2203). The user is the account of this machine that the rules of
//! krb5.conf(5) give for the principal; one without an account is the anonymous user.
//!
//! # Invariants
//! - A handle has a secret of this server's life: those of an earlier one name nothing.
//! - There are at most [`CONTEXTS_MAX`] contexts; a new one takes the place of that which was used
//!   longest ago. Tokens that are refused leave nothing behind, and of contexts that need more
//!   tokens there are at most [`UNFINISHED_MAX`], so only clients with tickets take places of
//!   others. A client whose context was dropped begins another.

use crate::rpc::authentication::{Caller, SystemUser};
use crate::rpc::gss::{Seen, SequenceWindow};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tarn_engine::account_of_user;
use tarn_engine::gss::{Acceptor, Context, GssError, Initiator};

/// Most contexts. A guess: some thousand users at a time.
pub(crate) const CONTEXTS_MAX: usize = 8192;
/// Most contexts that wait for another token, which those of Kerberos never do.
pub(crate) const UNFINISHED_MAX: usize = 64;
/// Refused tokens are told so often at most.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// The service whose keys the server has, as clients name it (RFC 7530, section 3.2.1.1).
const SERVICE: &str = "nfs";

/// A way to know the users of clients: Kerberos, or what tests put in its place.
pub(crate) trait Mechanism: Send + Sync {
    /// Begins a context.
    fn begin(&self) -> Result<Box<dyn PeerContext>, GssError>;
}

/// One context of a mechanism.
pub(crate) trait PeerContext: Send + Sync {
    fn accept(&self, token: &[u8]) -> Result<(Vec<u8>, Option<Initiator>), GssError>;
    fn mic(&self, message: &[u8]) -> Result<Vec<u8>, GssError>;
    fn verify(&self, message: &[u8], mic: &[u8]) -> Result<(), GssError>;
    fn wrap(&self, message: &[u8]) -> Result<Vec<u8>, GssError>;
    fn unwrap(&self, wrapped: &[u8]) -> Result<Vec<u8>, GssError>;
}

struct Kerberos {
    acceptor: Arc<Acceptor>,
}

struct KerberosContext {
    acceptor: Arc<Acceptor>,
    context: Context,
}

impl Mechanism for Kerberos {
    fn begin(&self) -> Result<Box<dyn PeerContext>, GssError> {
        Ok(Box::new(KerberosContext {
            acceptor: self.acceptor.clone(),
            context: Context::new()?,
        }))
    }
}

impl PeerContext for KerberosContext {
    fn accept(&self, token: &[u8]) -> Result<(Vec<u8>, Option<Initiator>), GssError> {
        self.context.accept(&self.acceptor, token)
    }

    fn mic(&self, message: &[u8]) -> Result<Vec<u8>, GssError> {
        self.context.mic(message)
    }

    fn verify(&self, message: &[u8], mic: &[u8]) -> Result<(), GssError> {
        self.context.verify(message, mic)
    }

    fn wrap(&self, message: &[u8]) -> Result<Vec<u8>, GssError> {
        self.context.wrap(message)
    }

    fn unwrap(&self, wrapped: &[u8]) -> Result<Vec<u8>, GssError> {
        self.context.unwrap(wrapped)
    }
}

/// A context, and what the server knows of it.
pub(crate) struct Known {
    pub(crate) peer: Box<dyn PeerContext>,
    handle: [u8; HANDLE_BYTES],
    window: Mutex<SequenceWindow>,
    /// Its user, and until when; none while tokens are missing.
    user: OnceLock<(Caller, Option<Instant>)>,
    /// The number of its last use.
    used: AtomicU64,
}

const HANDLE_BYTES: usize = 16;

impl Known {
    pub(crate) fn handle(&self) -> &[u8] {
        &self.handle
    }

    fn number(&self) -> u64 {
        let number = self.handle.last_chunk::<8>();
        u64::from_be_bytes(*number.expect("a handle has sixteen bytes"))
    }

    /// The user; none when it has expired, or is not there yet.
    pub(crate) fn caller(&self) -> Option<&Caller> {
        let (caller, until) = self.user.get()?;
        let is_good = until.is_none_or(|until| Instant::now() < until);
        is_good.then_some(caller)
    }

    fn is_over(&self) -> bool {
        self.user.get().is_some() && self.caller().is_none()
    }

    /// Notes the number of a call.
    pub(crate) fn note(&self, sequence: u32) -> Seen {
        // A thread that panicked under the lock was noting one.
        let window = self.window.lock();
        window
            .unwrap_or_else(PoisonError::into_inner)
            .note(sequence)
    }
}

/// Takes a line for the administrator.
type Tell = Box<dyn Fn(&str) + Send + Sync>;

/// All contexts of a server.
pub(crate) struct GssContexts {
    mechanism: OnceLock<Box<dyn Mechanism>>,
    keytab: OnceLock<PathBuf>,
    /// Hears of tokens that are refused, and when it did last.
    tell: OnceLock<Tell>,
    told: Mutex<Option<Instant>>,
    /// The first half of handles.
    secret: u64,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    contexts: BTreeMap<u64, Arc<Known>>,
    /// Those that wait for tokens.
    unfinished: BTreeMap<u64, Arc<Known>>,
    last: u64,
    uses: u64,
}

/// What a token has come to.
pub(crate) struct Begun {
    pub(crate) context: Arc<Known>,
    pub(crate) token: Vec<u8>,
    pub(crate) is_complete: bool,
}

impl Default for GssContexts {
    fn default() -> GssContexts {
        use std::hash::{BuildHasher, RandomState};
        GssContexts {
            mechanism: OnceLock::new(),
            keytab: OnceLock::new(),
            tell: OnceLock::new(),
            told: Mutex::default(),
            // Random for each; it need not be a secret from clients, which sign what they send.
            secret: RandomState::new().hash_one("handles"),
            table: Mutex::default(),
        }
    }
}

impl GssContexts {
    /// Has keys in this file, instead of the system's. Before the first are asked for.
    pub(crate) fn use_keytab(&self, keytab: &Path) {
        let is_first = self.keytab.set(keytab.to_path_buf()).is_ok();
        assert!(is_first, "there is one keytab");
    }

    /// Knows users by another way, for tests.
    #[cfg(test)]
    pub(crate) fn use_mechanism(&self, mechanism: Box<dyn Mechanism>) {
        assert!(self.mechanism.set(mechanism).is_ok(), "there is one");
    }

    /// Gets the keys of the service, if it has none yet: a share asks for them. Until then no
    /// client has the library loaded.
    ///
    /// # Errors
    /// Which library, file or key is missing.
    pub(crate) fn get_ready(&self) -> Result<(), GssError> {
        if self.mechanism.get().is_none() {
            let keytab = self.keytab.get().map(PathBuf::as_path);
            let acceptor = Arc::new(Acceptor::acquire(SERVICE, keytab)?);
            // Another thread may have been faster.
            let _ = self.mechanism.set(Box::new(Kerberos { acceptor }));
        }
        Ok(())
    }

    /// Has refused tokens told to the administrator.
    pub(crate) fn tell_by(&self, tell: Tell) {
        assert!(self.tell.set(tell).is_ok(), "there is one log");
    }

    /// Tells why a token of this client was refused, unless another was just before.
    pub(crate) fn tell_refusal(&self, client: IpAddr, why: &GssError) {
        let Some(tell) = self.tell.get() else { return };
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            *told = Some(Instant::now());
            drop(told);
            tell(&format!(
                "NFS client {client}: its Kerberos token is refused: {why}"
            ));
        }
    }

    /// Takes the first token of a context; none where no share asks for contexts.
    pub(crate) fn begin(&self, token: &[u8]) -> Option<Result<Begun, GssError>> {
        let mechanism = self.mechanism.get()?;
        let begin = || {
            let peer = mechanism.begin()?;
            let (token, initiator) = peer.accept(token)?;
            let is_complete = initiator.is_some();
            let context = self.insert(peer, initiator);
            Ok(Begun {
                context,
                token,
                is_complete,
            })
        };
        Some(begin())
    }

    /// Takes another token of a context; none where there is no such context.
    pub(crate) fn go_on(&self, handle: &[u8], token: &[u8]) -> Option<Result<Begun, GssError>> {
        let context = self.find(handle)?;
        if context.user.get().is_some() {
            return None;
        }
        Some(match context.peer.accept(token) {
            Ok((token, initiator)) => {
                let is_complete = initiator.is_some();
                if let Some(initiator) = initiator
                    && context.user.set(user_of(&initiator)).is_ok()
                {
                    self.finish(&context);
                }
                Ok(Begun {
                    context,
                    token,
                    is_complete,
                })
            }
            Err(error) => {
                self.end(&context);
                Err(error)
            }
        })
    }

    /// The context that a handle names.
    pub(crate) fn find(&self, handle: &[u8]) -> Option<Arc<Known>> {
        let handle: &[u8; HANDLE_BYTES] = handle.try_into().ok()?;
        let (secret, number) = handle.split_first_chunk::<8>()?;
        if *secret != self.secret.to_be_bytes() {
            return None;
        }
        let number = u64::from_be_bytes(number.try_into().ok()?);
        let mut table = self.table();
        table.uses += 1;
        let uses = table.uses;
        let known = table.contexts.get(&number);
        let known = known.or_else(|| table.unfinished.get(&number))?;
        known.used.store(uses, Ordering::Relaxed);
        Some(known.clone())
    }

    /// Ends a context.
    pub(crate) fn end(&self, context: &Known) {
        let number = context.number();
        let mut table = self.table();
        let ended = (
            table.contexts.remove(&number),
            table.unfinished.remove(&number),
        );
        drop(table);
        // Without the lock: the library is told.
        drop(ended);
    }

    /// A context has its user now.
    fn finish(&self, context: &Arc<Known>) {
        let number = context.number();
        let mut table = self.table();
        let before = table.unfinished.remove(&number);
        let dropped = make_room(&mut table.contexts, CONTEXTS_MAX);
        table.contexts.insert(number, context.clone());
        drop(table);
        drop((before, dropped));
    }

    fn insert(&self, peer: Box<dyn PeerContext>, initiator: Option<Initiator>) -> Arc<Known> {
        let user = initiator.as_ref().map(user_of);
        let mut table = self.table();
        let is_finished = user.is_some();
        table.last += 1;
        table.uses += 1;
        let mut handle = [0; HANDLE_BYTES];
        handle[..8].copy_from_slice(&self.secret.to_be_bytes());
        handle[8..].copy_from_slice(&table.last.to_be_bytes());
        let known = Arc::new(Known {
            peer,
            handle,
            window: Mutex::default(),
            user: user.map_or_else(OnceLock::new, OnceLock::from),
            used: AtomicU64::new(table.uses),
        });
        let number = table.last;
        let (place, most) = match is_finished {
            true => (&mut table.contexts, CONTEXTS_MAX),
            false => (&mut table.unfinished, UNFINISHED_MAX),
        };
        let dropped = make_room(place, most);
        place.insert(number, known.clone());
        drop(table);
        drop(dropped);
        known
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A thread that panicked under the lock was inserting or removing one entry.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room for one context more, and gives those that are dropped for it: those that have
/// expired, or the one that was used longest ago.
fn make_room(contexts: &mut BTreeMap<u64, Arc<Known>>, most: usize) -> Vec<Arc<Known>> {
    if contexts.len() < most {
        return Vec::new();
    }
    let over = contexts.iter().filter(|(_, known)| known.is_over());
    let mut leaving: Vec<u64> = over.map(|(number, _)| *number).collect();
    if leaving.is_empty() {
        let used = |known: &Known| known.used.load(Ordering::Relaxed);
        let oldest = contexts.iter().min_by_key(|(_, known)| used(known));
        leaving.extend(oldest.map(|(number, _)| *number));
    }
    let dropped = leaving.iter().filter_map(|number| contexts.remove(number));
    let dropped = dropped.collect();
    assert!(contexts.len() < most, "there is room");
    dropped
}

/// The user that a principal is here, and until when.
fn user_of(initiator: &Initiator) -> (Caller, Option<Instant>) {
    let account = initiator.account.as_deref().and_then(account_of_user);
    let caller = account.map_or(Caller::Nobody, |account| {
        Caller::System(SystemUser {
            uid: account.uid,
            gid: account.gid,
            groups: account.groups,
            has_all_groups: true,
        })
    });
    let lifetime = Duration::from_secs(initiator.lifetime_s.into());
    (caller, Instant::now().checked_add(lifetime))
}
