//! The engine's mounter: one session for each file system, all served by the same threads.
//!
//! # Mechanism
//! A file system has one session, however many mounts show it: bind mounts, copies in other mount
//! namespaces, and mounts that are made while those are still in use. The mount table shows where
//! it is mounted in this namespace; the device tells whether the kernel has it at all: it is gone
//! when the last mount and the last open file are, in any namespace.

use crate::mount::{self, MountError, Seen};
use crate::mount_table::{self, Age, MountTable, Row};
use crate::permission_checks::PermissionChecks;
use crate::server::Server;
use crate::server::write_back::NotWritten;
use crate::session::Session;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tarn_engine::mounts::{
    Ending, Found, Left, MountKey, MountOptions, MountRefusal, MountRequest, Mounter, Standing,
};
use tarn_engine::{DeviceNumber, words_of};
use tarn_serving::ServingThreads;

/// Makes FUSE mounts.
pub struct FuseMounter {
    server: Server,
    known: Mutex<KnownMounts>,
    table: MountTable,
}

/// The facts of a mount besides its session.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// The mount as it was seen on its folder after mounting, if it was.
    seen: Option<Seen>,
    /// It is unmounted everywhere here, and still served.
    is_undone: bool,
}

/// The facts of all mounts, by key, and by the number of their device.
#[derive(Debug, Default)]
struct KnownMounts {
    by_key: BTreeMap<u64, Known>,
    by_number: BTreeMap<u32, u64>,
    /// The number of mounts from which on ended ones are searched for.
    count_next_look: usize,
}

impl KnownMounts {
    /// A mount was made, or is seen elsewhere. The kernel may have given it the device number of
    /// one that it has ended.
    fn insert(&mut self, key: u64, known: Known) {
        if let Some(seen) = known.seen {
            self.by_number.insert(seen.number, key);
        }
        self.by_key.insert(key, known);
    }

    fn remove(&mut self, key: u64) -> Option<Known> {
        let known = self.by_key.remove(&key)?;
        if let Some(seen) = known.seen
            && self.by_number.get(&seen.number) == Some(&key)
        {
            self.by_number.remove(&seen.number);
        }
        Some(known)
    }

    /// The mount with this device number.
    fn with_number(&self, number: u32) -> Option<u64> {
        self.by_number.get(&number).copied()
    }

    /// Removes mounts that are not served any more. It happens now and then, as it takes time for
    /// all.
    fn purge(&mut self, is_served: impl Fn(u64) -> bool) {
        if self.by_key.len() < self.count_next_look {
            return;
        }
        let keys: Vec<u64> = self.by_key.keys().copied().collect();
        for key in keys.into_iter().filter(|key| !is_served(*key)) {
            self.remove(key);
        }
        self.count_next_look = 2 * self.by_key.len() + 16;
    }
}

/// How long an abandoned mount waits for requests under way: they need a moment to reply after
/// their pool was given up.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long the kernel may write nothing back while a write-back is waited for. A guess, as the
/// next one.
const WRITE_BACK_PATIENCE: Duration = Duration::from_secs(10);

/// How long an unmount waits for requests under way. A guess: longer than a working pool needs for
/// the largest request.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(10);

/// How long unmounting a busy mount is retried, and at what interval. A guess: longer than a thread
/// waits for a processor, and too short for users to notice.
const RELEASE_PATIENCE: Duration = Duration::from_millis(100);
const RELEASE_LOOK: Duration = Duration::from_millis(5);

impl FuseMounter {
    /// A mounter without mounts, for these serving threads.
    pub fn new(threads: Arc<ServingThreads>) -> FuseMounter {
        FuseMounter {
            server: Server::new(threads),
            known: Mutex::default(),
            table: MountTable::default(),
        }
    }

    /// How often the mount table was read. Reading takes time for each mount of the machine, so a
    /// command over many mounts reads it once.
    pub fn table_readings(&self) -> u64 {
        self.table.readings()
    }

    fn known(&self) -> MutexGuard<'_, KnownMounts> {
        // A thread that panicked under the lock was inserting or removing one entry.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mount as it was seen on its folder, if it is mounted here.
    fn seen(&self, key: MountKey) -> Option<Seen> {
        let known = self.known().by_key.get(&key.0).copied()?;
        known.seen.filter(|_| !known.is_undone)
    }

    /// The mounts that the kernel still has. Device numbers of others may belong to other mounts
    /// now.
    fn connected(&self) -> Vec<(u64, Known)> {
        let known: Vec<(u64, Known)> = {
            let known = self.known();
            let known = known.by_key.iter();
            known.map(|(key, known)| (*key, *known)).collect()
        };
        let is_connected = |(key, _): &(u64, Known)| self.server.is_connected(*key);
        known.into_iter().filter(is_connected).collect()
    }

    /// The mounts of a file system in this namespace. If the table cannot be read: the one that was
    /// made, if it is still on its folder.
    fn rows(&self, key: MountKey, path: &Path, age: Age) -> Vec<Row> {
        let Some(seen) = self.seen(key) else {
            return Vec::new();
        };
        self.table.rows_of(seen.number, age).unwrap_or_else(|| {
            let made = Row {
                id: seen.id,
                is_whole: true,
                place: path.to_path_buf(),
            };
            Vec::from_iter(is_there(&made, seen).then_some(made))
        })
    }

    /// Unmounts mounts of a file system in this namespace, or detaches them even if they are in
    /// use. The table is read again if its last reading is out of date.
    fn take_away(&self, key: MountKey, path: &Path, ending: Ending) -> Result<(), MountRefusal> {
        let Some(seen) = self.seen(key) else {
            return Ok(());
        };
        if self.take_rows_away(key, path, seen, ending, Age::Last)? {
            // Bind mounts made since the table was read.
            if ending == Ending::Own || !self.server.is_connected(key.0) {
                return Ok(());
            }
        }
        match self.take_rows_away(key, path, seen, ending, Age::Paths)? {
            true => Ok(()),
            // Another mount covers it.
            false => Err(MountRefusal::Busy),
        }
    }

    /// Unmounts the mounts that a table of this age shows. False if one of them is missing, or all
    /// are and there should be one.
    fn take_rows_away(
        &self,
        key: MountKey,
        path: &Path,
        seen: Seen,
        ending: Ending,
        age: Age,
    ) -> Result<bool, MountRefusal> {
        let mut rows = self.rows(key, path, age);
        if !self.server.is_connected(key.0) {
            // The numbers may be another mount's by now. The dead remains of this one answer no
            // request.
            rows.retain(|row| is_dead(&row.place));
        }
        let going: Vec<&Row> = match ending {
            Ending::Own => mount_table::own(&rows, Some(seen.id)).into_iter().collect(),
            // A later mount may be on top of an earlier one.
            Ending::OfNamespace | Ending::Everywhere => rows.iter().rev().collect(),
        };
        if going.is_empty() {
            return Ok(age != Age::Last);
        }
        let by_force = ending == Ending::Everywhere;
        for row in going {
            if !is_there(row, seen) {
                return Ok(false);
            }
            match unmount_patiently(&row.place, by_force) {
                Ok(()) => {}
                // It was unmounted meanwhile.
                Err(Errno::INVAL | Errno::NOENT) => {}
                Err(_) if by_force => {}
                Err(Errno::BUSY) => return Err(MountRefusal::Busy),
                Err(errno) => return Err(MountRefusal::Failed(words_of(&errno.into()))),
            }
        }
        Ok(true)
    }

    /// Stops serving a file system. Without its server, calls on its remains fail: the caller may
    /// open the files once more, or change them in the pool.
    fn end(&self, key: MountKey) -> Result<(), MountRefusal> {
        let removed = self.server.remove(key.0, UNMOUNT_PATIENCE);
        let mut known = self.known();
        let Some(seen) = known.remove(key.0).map(|known| known.seen) else {
            return removed.map_err(|_| MountRefusal::Busy);
        };
        removed.map_err(|still| {
            // Calls that wait for other requests do not wait for this one.
            if let Some(seen) = seen.filter(|_| still.is_connected) {
                mount::abort(seen.number);
            }
            let undone = Known {
                seen: None,
                is_undone: true,
            };
            known.insert(key.0, undone);
            MountRefusal::Busy
        })
    }
}

/// The system's text for an error.
fn said_of(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    let words = text.split(" (os error").next();
    words.unwrap_or_default().to_string()
}

/// Unmounts a folder, and retries a busy one for a moment: the kernel releases the file of an
/// asynchronous transfer in the serving thread, after the program got its answer and may have
/// ended; and a path lookup holds the mount while it lasts.
fn unmount_patiently(place: &Path, by_force: bool) -> Result<(), Errno> {
    let began = Instant::now();
    loop {
        match mount::unmount(place, by_force) {
            Err(Errno::BUSY) if began.elapsed() < RELEASE_PATIENCE => {
                std::thread::sleep(RELEASE_LOOK);
            }
            done => return done,
        }
    }
}

/// Whether the server of the mount on this path is gone.
fn is_dead(path: &Path) -> bool {
    let asked = tarn_engine::call_apart(path, |path| rustix::fs::statfs(path).map(|_| ()));
    asked.is_err_and(|errno| errno == Errno::NOTCONN)
}

/// Whether the folder of a mount shows that mount. umount2(2) takes a path, and would end another
/// mount that covers it.
fn is_there(row: &Row, seen: Seen) -> bool {
    mount::seen_at(&row.place)
        .is_some_and(|there| there.number == seen.number && there.id == row.id)
}

impl Mounter for FuseMounter {
    fn mount(&self, request: MountRequest<'_>) -> Result<MountKey, MountRefusal> {
        let checks = PermissionChecks::of(request.tree.files());
        let device = mount::mount(request.source, request.path, request.options, checks);
        let device = device.map_err(|error| match error {
            MountError::Mount {
                cause: Errno::BUSY, ..
            } => MountRefusal::Busy,
            other => MountRefusal::Failed(other.to_string()),
        })?;
        let session = Session::new(request.tree, checks, request.ended);
        let pool = request.source.split('/').next().unwrap_or_default();
        let added = self.server.add(device, pool, session.clone());
        let key = added.map_err(|errno| {
            let _ = mount::unmount(request.path, true);
            MountRefusal::Failed(words_of(&errno.into()))
        })?;
        let seen = mount::seen_at(request.path);
        if let Some(seen) = seen {
            session.shows(seen.number);
        }
        let known = Known {
            seen,
            is_undone: false,
        };
        let mut all = self.known();
        all.purge(|key| self.server.has(key));
        all.insert(key, known);
        Ok(MountKey(key))
    }

    fn attach(
        &self,
        key: MountKey,
        source: &str,
        path: &Path,
        options: MountOptions,
    ) -> Result<(), MountRefusal> {
        if !rustix::process::geteuid().is_root() {
            // `fusermount3` opens a device of its own for each mount.
            return Err(MountRefusal::Busy);
        }
        // A bind mount on another folder is not the file system's own mount; this one is, if that
        // is gone.
        let rows = self.rows(key, path, Age::Mounts);
        let is_own = |seen: Seen| rows.iter().any(|row| row.id == seen.id);
        let is_one_more = self.seen(key).is_some_and(is_own);
        let attached = self.server.with_device(key.0, |device| {
            // The device keeps the capabilities that were negotiated with the kernel.
            mount::attach(source, path, options, device, PermissionChecks::Kernel)
        });
        match attached {
            None => return Err(MountRefusal::Ended),
            Some(Ok(())) => {}
            Some(Err(MountError::Mount { cause, .. })) => {
                return Err(match cause {
                    Errno::NOTCONN => MountRefusal::Ended,
                    // A kernel before 5.15 has one mount for each device.
                    Errno::BUSY | Errno::INVAL => MountRefusal::Busy,
                    cause => MountRefusal::Failed(cause.to_string()),
                });
            }
            Some(Err(other)) => return Err(MountRefusal::Failed(other.to_string())),
        }
        let seen = mount::seen_at(path).filter(|_| !is_one_more);
        let mut all = self.known();
        if let Some(known) = all.by_key.get(&key.0).copied() {
            let seen = seen.or(known.seen);
            all.insert(key.0, Known { seen, ..known });
        }
        Ok(())
    }

    fn standing(&self, key: MountKey, path: &Path) -> Standing {
        if !self.server.is_connected(key.0) {
            return Standing::Ended;
        }
        let Some(seen) = self.seen(key) else {
            return Standing::Mounted;
        };
        let rows = self.rows(key, path, Age::Mounts);
        match mount_table::own(&rows, Some(seen.id)) {
            Some(_) => Standing::Mounted,
            None => Standing::Elsewhere,
        }
    }

    fn places(&self) -> Vec<(MountKey, PathBuf)> {
        let known = self.connected();
        let places = self.table.with(Age::Paths, |rows| {
            let place = |(key, known): &(u64, Known)| {
                let seen = known.seen?;
                let own = mount_table::own(rows.get(&seen.number)?, Some(seen.id))?;
                Some((MountKey(*key), own.place.clone()))
            };
            known.iter().filter_map(place).collect()
        });
        places.unwrap_or_default()
    }

    fn mount_number(&self, path: &Path) -> Option<u64> {
        mount::seen_id(path)
    }

    fn find(&self, path: &Path) -> Found {
        let through = match mount::seen_through(path) {
            Err(errno) => return Found::Missing(said_of(errno)),
            Ok(None) => return Found::Foreign,
            Ok(Some(through)) => through,
        };
        let key = self.known().with_number(through.number);
        let Some(key) = key.filter(|key| self.server.is_connected(*key)) else {
            return Found::Foreign;
        };
        let rows = self.table.rows_of(through.number, Age::Paths);
        let row = rows.and_then(|rows| rows.into_iter().find(|row| row.id == through.id));
        Found::Mount(MountKey(key), row.map(|row| row.place))
    }

    fn unmount(&self, key: MountKey, path: &Path, ending: Ending) -> Result<Left, MountRefusal> {
        let by_force = ending == Ending::Everywhere;
        if by_force {
            // Programs go on with mapped files; their stores up to here are written.
            self.write_back(key)?;
        }
        self.take_away(key, path, ending)?;
        if !by_force {
            // The kernel may release files of ended programs, and mounts on top of this one, a
            // moment after they are gone.
            let began = Instant::now();
            while self.server.is_connected(key.0) {
                if began.elapsed() >= RELEASE_PATIENCE {
                    return Ok(Left::InUse);
                }
                std::thread::sleep(RELEASE_LOOK);
            }
        }
        // The kernel wrote back what ended in order.
        self.end(key).map(|()| Left::Nothing)
    }

    fn write_back(&self, key: MountKey) -> Result<(), MountRefusal> {
        let written = self.server.write_back(key.0, WRITE_BACK_PATIENCE);
        written.map_err(|why| match why {
            NotWritten::Late => MountRefusal::Busy,
            NotWritten::Refused(errno) => MountRefusal::Failed(format!(
                "what programs have stored in mapped files cannot be written: {}",
                words_of(&errno.into())
            )),
        })
    }

    fn properties_changed(&self, key: MountKey) {
        self.server.properties_changed(key.0);
    }

    fn group_stored(&self, key: MountKey) {
        self.server.group_stored(key.0);
    }

    fn abandon(&self, mounts: &[(MountKey, &Path)]) {
        for (key, path) in mounts {
            // A mount below a failing one cannot be reached; it is detached with that one.
            let _ = self.take_away(*key, path, Ending::Everywhere);
        }
        let keys: Vec<u64> = mounts.iter().map(|(key, _)| key.0).collect();
        let alive = self.server.abandon(&keys, PATIENCE);
        for key in keys {
            let seen = self.known().remove(key).and_then(|known| known.seen);
            // The device number of an ended mount may be another's by now.
            if let Some(seen) = seen.filter(|_| alive.contains(&key)) {
                mount::abort(seen.number);
            }
        }
    }

    fn change_options(
        &self,
        key: MountKey,
        path: &Path,
        options: MountOptions,
    ) -> Result<(), MountRefusal> {
        let Some(seen) = self.seen(key).filter(|_| self.server.is_connected(key.0)) else {
            return Err(MountRefusal::Busy);
        };
        let rows = self.rows(key, path, Age::Paths);
        let Some(own) = mount_table::own(&rows, Some(seen.id)) else {
            // It is mounted elsewhere only, with the options of those mounts.
            return Ok(());
        };
        let changed = mount::change_options(&own.place, Some(seen.number), options);
        changed.map_err(|errno| match errno {
            Errno::BUSY => MountRefusal::Busy,
            Errno::PERM => MountRefusal::Failed(
                "only root can change options of a mount; unmount and mount it".to_string(),
            ),
            errno => MountRefusal::Failed(words_of(&errno.into())),
        })
    }

    fn mount_of(&self, device: DeviceNumber) -> Option<MountKey> {
        let number = (device.major == 0).then_some(device.minor)?;
        self.known().with_number(number).map(MountKey)
    }

    fn clear_remains(&self, path: &Path) -> bool {
        // A mount whose server died answers statfs(2) with an error, as the kernel does not cache
        // it. Attributes may still be cached.
        let mut is_any = false;
        while mount::may_be_mount_point(path) && is_dead(path) && mount::unmount(path, true).is_ok()
        {
            is_any = true;
        }
        is_any
    }
}
