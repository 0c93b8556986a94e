//! Images of simulated disks as files, for OpenZFS's `zdb` to judge.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tarn_host::sim::SimHost;
use tarn_host::{Host, RealOptions};
use tarn_hostile::house::DISKS;
use tarn_ondisk::units::Guid;
use tarn_oracle::judge::judge;
use tarn_oracle::tools::Unpacked;
use tarn_vdev::import_search::{pools, search};

use crate::devices::SPARES;
use crate::layout::Layout;
use crate::world::POOL;

/// Asks `zdb` now and then.
#[derive(Debug)]
pub struct Judges {
    /// OpenZFS's programs.
    pub tools: Unpacked,
    /// Where images are put.
    pub folder: PathBuf,
    /// After each so many cuts.
    pub every: u64,
}

impl Judges {
    /// Has `zdb -bcc` walk the disks as they are.
    ///
    /// # Errors
    /// What it finds.
    pub fn judge(&self, machine: &SimHost, layout: &Layout) -> Result<(), String> {
        let folder = &self.folder;
        let told = |error: std::io::Error| format!("writing images: {error}");
        if folder.exists() {
            fs::remove_dir_all(folder).map_err(told)?;
        }
        fs::create_dir_all(folder).map_err(told)?;
        for (name, _) in layout.disks() {
            write(machine, &name, folder).map_err(told)?;
        }
        // The pool may be on those by now: of a disk that was replaced old labels are left.
        for name in SPARES {
            write(machine, name, folder).map_err(told)?;
        }
        leave_out_departed(folder).map_err(told)?;
        let verdict = judge(&self.tools, folder, POOL);
        verdict.map_err(|verdict| verdict.to_string())?;
        fs::remove_dir_all(folder).map_err(told)
    }
}

/// Removes the images of disks that have left the pool, and whose labels a power cut kept from
/// being cleared: they have the number of a top-level vdev that has got another guid since, and
/// OpenZFS takes what it finds last for the vdev of this number, whatever its txg. Its own
/// administrators take such a disk out, or clear its labels by `zpool labelclear`.
fn leave_out_departed(folder: &Path) -> std::io::Result<()> {
    let host = Host::real(RealOptions::default());
    let found = search(&host, &[folder.to_path_buf()]);
    let (candidates, _) = pools(&found);
    for device in &found.devices {
        let number = |name| device.label.optional_u64(name).ok().flatten();
        let (Some(pool), Some(guid)) = (number("pool_guid"), number("guid")) else {
            continue;
        };
        let pool = candidates
            .iter()
            .find(|candidate| candidate.facts.guid == Guid::from(pool));
        if pool.is_some_and(|pool| pool.root.find(Guid::from(guid)).is_none()) {
            fs::remove_file(&device.path)?;
        }
    }
    Ok(())
}

/// Writes the image of a disk, if the machine has it.
fn write(machine: &SimHost, name: &str, folder: &Path) -> std::io::Result<()> {
    let Some(disk) = machine.disk(format!("{DISKS}/{name}")) else {
        return Ok(());
    };
    let file = File::create(folder.join(name))?;
    file.set_len(disk.size_bytes())?;
    let mut outcome = Ok(());
    disk.for_each_page(|offset, bytes| {
        if outcome.is_ok() {
            outcome = file.write_all_at(bytes, offset);
        }
    });
    outcome
}
