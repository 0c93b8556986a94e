//! Sessions of browsers that have shown a token, and how often a wrong one may be shown.

use crate::tokens::{Role, random_token};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many sessions there are at most; the one that was unused for longest makes room.
const SESSIONS_MAX: usize = 256;

/// A session ends when it was not used for so long.
const IDLE_MAX: Duration = Duration::from_secs(12 * 3600);

/// An address may show so many wrong tokens one after the other.
const FAILURES_MAX: u32 = 10;

/// After so long it may show one more.
const FAILURE_EVERY: Duration = Duration::from_secs(5);

/// Addresses whose failures are counted. More of them share one count.
const ADDRESSES_MAX: usize = 1024;

/// Sessions and failures.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<State>);

#[derive(Default)]
struct State {
    sessions: BTreeMap<String, Session>,
    failures: BTreeMap<Option<IpAddr>, Failures>,
}

struct Session {
    role: Role,
    used: Instant,
}

struct Failures {
    count: u32,
    since: Instant,
}

impl Sessions {
    /// A new session; its id is the value of the browser's cookie.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub(crate) fn begin(&self, role: Role, now: Instant) -> std::io::Result<String> {
        let id = random_token()?;
        let mut state = self.state();
        while state.sessions.len() >= SESSIONS_MAX {
            let oldest = state.sessions.iter().min_by_key(|(_, one)| one.used);
            let oldest = oldest.map(|(id, _)| id.clone());
            state.sessions.remove(&oldest.expect("there are many"));
        }
        state
            .sessions
            .insert(id.clone(), Session { role, used: now });
        Ok(id)
    }

    /// What the session allows, unless it has ended.
    pub(crate) fn role_of(&self, id: &str, now: Instant) -> Option<Role> {
        let mut state = self.state();
        let session = state.sessions.get_mut(id)?;
        if now.saturating_duration_since(session.used) > IDLE_MAX {
            state.sessions.remove(id);
            return None;
        }
        session.used = now;
        Some(session.role)
    }

    /// Ends a session.
    pub(crate) fn end(&self, id: &str) {
        self.state().sessions.remove(id);
    }

    /// How long this address must wait before it may show a token.
    pub(crate) fn wait_of(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let mut state = self.state();
        let key = state.key_of(address);
        let failures = state.failures.get_mut(&key)?;
        failures.forget(now);
        match failures.count {
            0 => {
                state.failures.remove(&key);
                None
            }
            count if count < FAILURES_MAX => None,
            _ => Some(FAILURE_EVERY.saturating_sub(now.saturating_duration_since(failures.since))),
        }
    }

    /// This address has shown a wrong token.
    pub(crate) fn note_failure(&self, address: IpAddr, now: Instant) {
        let mut state = self.state();
        let key = state.key_of(address);
        let failures = state.failures.entry(key).or_insert(Failures {
            count: 0,
            since: now,
        });
        failures.forget(now);
        failures.count = (failures.count + 1).min(FAILURES_MAX);
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // No thread panics while it holds it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn key_of(&self, address: IpAddr) -> Option<IpAddr> {
        let is_counted = self.failures.contains_key(&Some(address));
        (is_counted || self.failures.len() < ADDRESSES_MAX).then_some(address)
    }
}

impl Failures {
    /// One less for each period that has passed.
    fn forget(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        let periods = passed.as_millis() / FAILURE_EVERY.as_millis();
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        self.count = self.count.saturating_sub(periods);
        match self.count {
            0 => self.since = now,
            _ => self.since += FAILURE_EVERY * periods,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_session_ends_when_it_is_not_used() {
        let sessions = Sessions::default();
        let begin = Instant::now();
        let id = sessions.begin(Role::Viewer, begin).unwrap();
        let later = begin + IDLE_MAX;
        assert_eq!(sessions.role_of(&id, later), Some(Role::Viewer));
        assert_eq!(sessions.role_of(&id, later + IDLE_MAX), Some(Role::Viewer));
        let end = later + IDLE_MAX * 2 + Duration::from_secs(1);
        assert_eq!(sessions.role_of(&id, end), None);
        assert_eq!(sessions.role_of("", end), None);
    }

    #[test]
    fn sessions_are_bounded_and_the_unused_one_goes() {
        let sessions = Sessions::default();
        let begin = Instant::now();
        let first = sessions.begin(Role::Viewer, begin).unwrap();
        let mut later = begin;
        for _ in 0..SESSIONS_MAX {
            later += Duration::from_secs(1);
            sessions.begin(Role::Administrator, later).unwrap();
        }
        assert_eq!(sessions.role_of(&first, later), None);
        assert_eq!(sessions.state().sessions.len(), SESSIONS_MAX);
    }

    #[test]
    fn wrong_tokens_must_wait_and_other_addresses_need_not() {
        let sessions = Sessions::default();
        let begin = Instant::now();
        for _ in 0..FAILURES_MAX {
            assert_eq!(sessions.wait_of(ADDRESS, begin), None);
            sessions.note_failure(ADDRESS, begin);
        }
        let wait = sessions.wait_of(ADDRESS, begin).unwrap();
        assert_eq!(wait, FAILURE_EVERY);
        assert_eq!(sessions.wait_of([10, 0, 0, 1].into(), begin), None);
        assert_eq!(sessions.wait_of(ADDRESS, begin + wait), None);
        sessions.note_failure(ADDRESS, begin + wait);
        assert!(sessions.wait_of(ADDRESS, begin + wait).is_some());
        let much_later = begin + FAILURE_EVERY * (FAILURES_MAX + 2);
        assert_eq!(sessions.wait_of(ADDRESS, much_later), None);
        assert!(sessions.state().failures.is_empty());
    }
}
