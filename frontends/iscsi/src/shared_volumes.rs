//! The targets of an instance: volumes with `tarn:shareiscsi=on`.
//!
//! # Mechanism
//! A thread looks at all volumes after each event of a pool (every change of a property is one),
//! and at the settings every two seconds; it opens the portal when one is shared and closes it when
//! none is. A login looks again where it names a target that was not known, so that a volume can be
//! used as soon as it is shared. A volume is held from its first session to its last: as long as an
//! initiator uses it, it cannot be destroyed.
//!
//! # Persistent reservations
//! What was registered without APTPL must survive the last session and not a restart: it is
//! *parked* here while no session has the volume.

use crate::portal::Portal;
use crate::protocol::login::{Admission, LoginRefusal, Secrets};
use crate::scsi::inquiry::naa_of;
use crate::scsi::persistent::Persistent;
use crate::scsi::{Identity, LogicalUnit};
use crate::served_volume::ServedVolume;
use crate::settings::Settings;
use crate::target::{Target, Targets};
use crate::target_names::{self, Named, Unnamed};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tarn_engine::properties::parse::SHARE_ISCSI;
use tarn_engine::statistics::{Instance, Value, registry};
use tarn_engine::volumes::{HeldVolume, VolumeAccess, VolumeWatcher};
use tarn_engine::{Engine, Host};
use tarn_serving::ServingThreads;

/// How long the thread waits for an event before it looks at the settings.
const PATIENCE: Duration = Duration::from_secs(2);

/// Most events that are taken at once.
const EVENTS_MAX: usize = 64;

/// A target in use.
struct Open {
    target: Arc<Target>,
    held: Arc<HeldVolume>,
    sessions: usize,
}

/// The shared volumes, and those in use.
#[derive(Default)]
struct State {
    /// Volumes by the names of their targets.
    shared: BTreeMap<String, Named>,
    open: BTreeMap<String, Open>,
    parked: BTreeMap<u64, Persistent>,
    portal: Option<Arc<Portal>>,
    /// Why the portal is not open, as it was logged.
    complaint: Option<String>,
    has_stopped: bool,
}

/// The targets of an instance.
pub struct Shares {
    engine: Weak<Engine>,
    host: Host,
    settings: PathBuf,
    threads: Arc<ServingThreads>,
    log: fn(&str),
    state: Mutex<State>,
    /// Held while volumes are held and released, so that each is held once.
    opening: Mutex<()>,
    _statistics: Arc<Instance>,
}

impl Shares {
    /// Starts the thread, which ends when the engine stops.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn start(
        engine: &Arc<Engine>,
        threads: Arc<ServingThreads>,
        log: fn(&str),
    ) -> std::io::Result<Arc<Shares>> {
        let statistics = registry().instance("iscsi", 0, "portal");
        let shares = Arc::new(Shares {
            engine: Arc::downgrade(engine),
            host: engine.host.clone(),
            settings: engine.instance.iscsi(),
            threads,
            log,
            state: Mutex::default(),
            opening: Mutex::default(),
            _statistics: statistics.clone(),
        });
        let told = Arc::downgrade(&shares);
        statistics.provide(move || told.upgrade().map_or_else(Vec::new, |one| one.statistics()));
        let (events, looking) = (engine.events.clone(), shares.clone());
        std::thread::Builder::new()
            .name("tarnd-iscsi".to_string())
            .spawn(move || {
                let mut seen = events.newest();
                looking.find_shared();
                // An event may come before what it tells of can be seen (`zfs create -o`): the
                // volumes are looked at once more when no further one has come.
                let mut looks_again = false;
                while !events.is_closed() {
                    looking.look();
                    let after = events.wait_after(seen, EVENTS_MAX, PATIENCE);
                    let last = after.events.last().map(|event| event.id);
                    if last.is_some() || looks_again {
                        looking.find_shared();
                    }
                    looks_again = last.is_some();
                    seen = last.unwrap_or(seen);
                }
            })?;
        Ok(shares)
    }

    /// Ends all sessions and lets go of the volumes: the pools are about to be closed.
    pub fn stop(&self) {
        let portal = {
            let mut state = self.state();
            state.has_stopped = true;
            state.portal.take()
        };
        if let Some(portal) = portal {
            portal.close();
        }
        let left = std::mem::take(&mut self.state().open);
        for open in left.into_values() {
            self.let_go(&open.held);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked under the lock left each table whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens or closes the portal, and ends sessions of volumes that are not shared any more.
    fn look(self: &Arc<Self>) {
        let mut state = self.state();
        if state.has_stopped {
            return;
        }
        let is_needed = !state.shared.is_empty() || !state.open.is_empty();
        let ended: Vec<String> = state
            .open
            .keys()
            .filter(|name| !state.shared.contains_key(*name))
            .cloned()
            .collect();
        let wanted = is_needed.then(|| self.settings().portal());
        let is_right = state.portal.as_ref().map(|portal| portal.asked) == wanted;
        let old = match is_right {
            true => None,
            false => state.portal.take(),
        };
        let kept = state.portal.clone();
        drop(state);
        if let Some(old) = old {
            old.close();
        }
        if let Some(portal) = kept {
            ended.iter().for_each(|name| portal.end_sessions_of(name));
            return;
        }
        if let Some(address) = wanted {
            self.open_portal(address);
        }
    }

    fn open_portal(self: &Arc<Self>, address: SocketAddr) {
        let opened = Portal::open(address, self.clone(), &self.threads);
        let mut state = self.state();
        match opened {
            Ok(portal) if state.has_stopped => portal.close(),
            Ok(portal) => {
                state.portal = Some(Arc::new(portal));
                state.complaint = None;
            }
            Err(error) => {
                let why = tarn_engine::words_of(&error);
                let why = format!(
                    "cannot serve iSCSI at {address}: {why}; 'tarn iscsi portal' sets another \
                     address"
                );
                if state.complaint.as_ref() != Some(&why) {
                    (self.log)(&why);
                    state.complaint = Some(why);
                }
            }
        }
    }

    fn find_shared(&self) {
        let Some(engine) = self.engine.upgrade() else {
            return;
        };
        let operation = engine.operation(0);
        let found = engine.volumes_with_property(SHARE_ISCSI, &operation);
        let kept = match found.is_empty() {
            true => Vec::new(),
            false => engine.volumes_with_property(target_names::KEPT, &operation),
        };
        operation.finish();
        let mut kept: BTreeMap<u64, String> = kept
            .into_iter()
            .map(|(volume, name)| (volume.guid, name))
            .collect();
        let shared = found.into_iter().filter(|(_, value)| value == "on");
        let shared = shared.map(|(volume, _)| Unnamed {
            kept: kept.remove(&volume.guid),
            volume: volume.name,
            guid: volume.guid,
        });
        let (named, too_long) = target_names::name_all(shared.collect());
        for volume in too_long {
            (self.log)(&format!(
                "'{volume}' is not shared: its name is too long for iSCSI"
            ));
        }
        self.state().shared = named;
    }

    fn settings(&self) -> Settings {
        match Settings::read(&self.settings) {
            Ok(settings) => settings,
            Err(error) => {
                (self.log)(&format!("iscsi: {error}"));
                // Nobody is let in by settings that cannot be read.
                Settings {
                    known_only: true,
                    ..Settings::default()
                }
            }
        }
    }

    /// The volume of a target; looked for anew where it is not known.
    fn volume_of(&self, target: &str) -> Option<Named> {
        if let Some(volume) = self.state().shared.get(target) {
            return Some(volume.clone());
        }
        self.find_shared();
        self.state().shared.get(target).cloned()
    }

    /// Keeps the name of a target with its volume, and notes it when that is stored: a login does
    /// not wait for it.
    fn keep_name(&self, held: &Arc<HeldVolume>, name: &str, is_kept: &Arc<AtomicBool>) {
        let kept = target_names::to_keep(held.guid(), name);
        let (engine, held, is_kept) = (self.engine.clone(), held.clone(), is_kept.clone());
        let log = self.log;
        let keep = move || {
            let Some(engine) = engine.upgrade() else {
                return;
            };
            let operation = engine.operation(0);
            let (property, kept) = (target_names::KEPT, Some(&*kept));
            let set = engine.set_volume_property(&held, property, kept, &operation);
            operation.finish();
            match set {
                Ok(()) => is_kept.store(true, Ordering::SeqCst),
                Err(refusal) => log(&format!(
                    "iscsi: the target of '{}' has another name if it is renamed: {refusal}",
                    held.name()
                )),
            }
        };
        // Without a thread the next first session keeps it.
        let _ = std::thread::Builder::new()
            .name("iscsi-name".to_string())
            .spawn(keep);
    }

    fn let_go(&self, held: &Arc<HeldVolume>) {
        if let Some(engine) = self.engine.upgrade()
            && let Err(refusal) = engine.release_volume(held)
        {
            (self.log)(&format!("iscsi: {refusal}"));
        }
    }

    /// Targets and sessions as statistics: a row for each.
    fn statistics(&self) -> Vec<(String, Value)> {
        let text = |text: &str| Value::Text(text.to_string());
        let state = self.state();
        let mut rows = Vec::new();
        if let Some(portal) = &state.portal {
            rows.push(("address".to_string(), text(&portal.address.to_string())));
        }
        if let Some(complaint) = &state.complaint {
            rows.push(("error".to_string(), text(complaint)));
        }
        for (index, (name, volume)) in state.shared.iter().enumerate() {
            let row = vec![("target", text(name)), ("volume", text(&volume.volume))];
            rows.push((format!("target_{index:04}"), Value::Row(row)));
        }
        let sessions = state.portal.as_ref().map(|portal| portal.sessions());
        drop(state);
        for session in sessions.into_iter().flatten() {
            let peer = session.connection().map(|one| one.peer.to_string());
            let began = session.began.duration_since(std::time::UNIX_EPOCH);
            let target = session.target.as_ref().map_or("", |target| &target.name);
            let row = vec![
                ("initiator", text(&session.initiator)),
                ("target", text(target)),
                ("address", text(&peer.unwrap_or_default())),
                (
                    "began_s",
                    Value::Counter(began.map_or(0, |since| since.as_secs())),
                ),
            ];
            rows.push((format!("session_{:05}", session.number), Value::Row(row)));
        }
        rows
    }
}

impl Targets for Shares {
    fn names(&self, initiator: &str) -> Vec<String> {
        self.find_shared();
        let settings = self.settings();
        let state = self.state();
        let may = |volume: &str| settings.may_use(initiator, volume);
        let shared = state
            .shared
            .iter()
            .filter(|(_, volume)| may(&volume.volume));
        shared.map(|(name, _)| name.clone()).collect()
    }

    fn admit(&self, initiator: &str, target: Option<&str>) -> Admission {
        let settings = self.settings();
        let known = settings.initiator(initiator);
        if settings.known_only && !settings.is_known(initiator) {
            return Admission::Refused(LoginRefusal::Forbidden);
        }
        if let Some(target) = target {
            let Some(volume) = self.volume_of(target) else {
                return Admission::Refused(LoginRefusal::NotFound);
            };
            if !settings.may_use(initiator, &volume.volume) {
                return Admission::Refused(LoginRefusal::Forbidden);
            }
        }
        let Some((known, secret)) = known.and_then(|one| Some((one, one.secret.clone()?))) else {
            return Admission::Open;
        };
        let own_name = target.unwrap_or("tarn").to_string();
        Admission::Chap(Secrets {
            user: known.user.clone().unwrap_or_else(|| known.name.clone()),
            secret,
            target: known.target_secret.clone().map(|secret| (own_name, secret)),
        })
    }

    fn open(&self, name: &str) -> Result<Arc<Target>, LoginRefusal> {
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = self.state().open.get_mut(name) {
            if open.held.is_ended() {
                return Err(LoginRefusal::Unavailable);
            }
            open.sessions += 1;
            return Ok(open.target.clone());
        }
        let volume = self.volume_of(name).ok_or(LoginRefusal::NotFound)?;
        let engine = self.engine.upgrade().ok_or(LoginRefusal::Unavailable)?;
        let operation = engine.operation(0);
        let held = engine.hold_volume(&volume.volume, VolumeAccess::ReadWrite, &operation);
        operation.finish();
        let held = held.map_err(|refusal| {
            (self.log)(&format!("iscsi: {refusal}"));
            LoginRefusal::Unavailable
        })?;
        let guid = held.guid();
        let is_kept = Arc::new(AtomicBool::new(volume.is_kept));
        if !volume.is_kept {
            self.keep_name(&held, name, &is_kept);
        }
        let identity = Identity {
            target: name.to_string(),
            guid,
        };
        let storage = Arc::new(ServedVolume::new(self.engine.clone(), held.clone()));
        let parked = self.state().parked.remove(&guid);
        let Ok(unit) = LogicalUnit::new(storage, identity, parked) else {
            self.let_go(&held);
            return Err(LoginRefusal::Unavailable);
        };
        let target = Arc::new(Target {
            name: name.to_string(),
            pool: held.pool_name().to_string(),
            unit,
        });
        let mut state = self.state();
        if state.has_stopped {
            drop(state);
            self.let_go(&held);
            return Err(LoginRefusal::Unavailable);
        }
        held.watch(Arc::new(Watch {
            target: Arc::downgrade(&target),
            keeps_its_name: is_kept,
            portal: state.portal.as_ref().map(Arc::downgrade),
        }));
        let open = Open {
            target: target.clone(),
            held,
            sessions: 1,
        };
        state.open.insert(name.to_string(), open);
        Ok(target)
    }

    fn open_unit(&self, naa: u64, initiator: &str) -> Option<Arc<Target>> {
        let of = |state: &State| {
            let mut shared = state.shared.iter();
            shared.find_map(|(name, one)| (naa_of(one.guid) == naa).then(|| name.clone()))
        };
        let found = of(&self.state());
        let name = match found {
            Some(name) => name,
            None => {
                self.find_shared();
                of(&self.state())?
            }
        };
        match self.admit(initiator, Some(&name)) {
            Admission::Refused(_) => None,
            // It has logged in with its secret, which is the same for all targets.
            Admission::Open | Admission::Chap(_) => self.open(&name).ok(),
        }
    }

    fn release(&self, target: Arc<Target>) {
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let last = {
            let mut state = self.state();
            let Some(open) = state.open.get_mut(&target.name) else {
                return;
            };
            open.sessions -= 1;
            if open.sessions > 0 {
                return;
            }
            let last = state.open.remove(&target.name);
            let parked = target.unit.park();
            if !parked.registrations.is_empty() {
                state.parked.insert(target.unit.guid(), parked);
            }
            last
        };
        if let Some(last) = last {
            self.let_go(&last.held);
        }
    }

    fn random(&self, bytes: &mut [u8]) {
        self.host.fill_random(bytes);
    }

    fn log(&self, line: &str) {
        (self.log)(line);
    }
}

/// Hears what happens to a volume in use.
struct Watch {
    target: Weak<Target>,
    keeps_its_name: Arc<AtomicBool>,
    portal: Option<Weak<Portal>>,
}

impl Watch {
    fn end_sessions(&self) {
        let portal = self.portal.as_ref().and_then(Weak::upgrade);
        if let (Some(portal), Some(target)) = (portal, self.target.upgrade()) {
            portal.end_sessions_of(&target.name);
        }
    }
}

impl VolumeWatcher for Watch {
    fn size_changed(&self, _size_bytes: u64) {
        if let Some(target) = self.target.upgrade() {
            target.unit.size_changed();
        }
    }

    /// A target whose name could not be kept has another one: initiators log in again.
    fn renamed(&self, _name: &str) {
        if !self.keeps_its_name.load(Ordering::SeqCst) {
            self.end_sessions();
        }
    }

    fn ended(&self) {
        self.end_sessions();
    }
}
