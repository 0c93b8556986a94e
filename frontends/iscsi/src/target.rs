//! Targets: what they are called, and what a front end needs of those who have them.

use crate::protocol::login::{Admission, LoginRefusal};
use crate::scsi::LogicalUnit;
use std::sync::Arc;

/// A target: one volume, as its logical unit 0.
pub struct Target {
    /// Its iSCSI name.
    pub name: String,
    /// The pool that its requests count for.
    pub pool: String,
    /// The volume as a disk.
    pub unit: LogicalUnit,
}

impl AsRef<LogicalUnit> for Target {
    fn as_ref(&self) -> &LogicalUnit {
        &self.unit
    }
}

/// Those who have targets.
pub trait Targets: Send + Sync + 'static {
    /// The names of targets that an initiator may see.
    fn names(&self, initiator: &str) -> Vec<String>;

    /// What an initiator needs to use a target, or to discover targets.
    fn admit(&self, initiator: &str, target: Option<&str>) -> Admission;

    /// The target of a name, for a session. All sessions of a target share it.
    ///
    /// # Errors
    /// Why there is no such target now.
    fn open(&self, name: &str) -> Result<Arc<Target>, LoginRefusal>;

    /// The target whose unit has this NAA name, if the initiator may use it: as `open`, to be
    /// released.
    fn open_unit(&self, naa: u64, initiator: &str) -> Option<Arc<Target>>;

    /// A session of a target has ended. The last one lets go of the volume.
    fn release(&self, target: Arc<Target>);

    /// Bytes that nobody can guess.
    fn random(&self, bytes: &mut [u8]);

    /// Writes a line to the log.
    fn log(&self, line: &str);
}
