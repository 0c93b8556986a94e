//! Scans and changes of devices while actors work: scrubs, resilvers, `attach`, `replace`,
//! `detach`, `split`, `offline`, `online`, `trim`, `initialize`, `reguid`, and devices that fail
//! meanwhile; in some worlds the pool has a checkpoint now and then.
//!
//! # Mechanism
//! The machine has more disks than the pool. One thread draws commands from what `zpool status`
//! shows at that moment. Most of them may be refused: by the redundancy that the pool has left, or
//! since a resilver ended between the look and the command. What must not happen is found by the
//! judges of the world: each cut is followed by a walk of all blocks and an import, and at the end
//! of the world a scrub has to find no error.
//!
//! # Invariants
//! - Only *victims* are hurt, taken offline, detached or split off. The other disks are *sound*:
//!   one leaves a vdev only when a sound one has replaced it, by a resilver that verifies. So each
//!   vdev always has as many sound disks as it needs, and nothing may be lost. A checkpoint lies on
//!   those: while there is one, the pool refuses that a disk leaves a vdev.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tarn_administration::administration::Administration;
use tarn_administration::messages::pool::{
    self, CheckpointAction, FreeSpaceCommand, ScrubAction, VdevStatus,
};
use tarn_administration::messages::{Refusal, RefusalKind};
use tarn_engine::Host;
use tarn_host::sim::{Random, SimHost};
use tarn_hostile::house::{DISKS, House, call};
use tarn_hostile::leaks;

use crate::faults;

/// The disks that are in no vdev at first.
pub const SPARES: [&str; 3] = ["x0", "x1", "x2"];
/// Before each command, at most.
const WAIT_US_MAX: u64 = 1_000_000;
/// Between two looks at a scan that is waited for.
const LOOK: Duration = Duration::from_millis(500);
/// So many looks at a scan that is waited for now and then.
const LOOKS_MAX: usize = 60;
/// So many looks at scans that have to end.
const LAST_LOOKS_MAX: usize = 2000;
/// So many times the last scrub may give way to a resilver, or not begin while one runs.
const LAST_SCRUBS_MAX: usize = 5;

/// One in so many commands is of the checkpoint, where the pool has one now and then.
const CHECKPOINT_ONE_IN: u64 = 4;

/// What was done in a world.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Commands that were carried out.
    pub commands: u64,
    /// Scans that came to their end.
    pub scans: u64,
    /// When the last of these began.
    newest_s: u64,
}

/// Where is written down what is done.
pub trait Log: Send {
    /// Adds a line to what happened.
    fn note(&self, line: String);
    /// What must not be.
    fn find(&self, what: String);
    /// Changes the counts.
    fn count(&self, change: &dyn Fn(&mut Counts));
    /// A checkpoint is about to be created or discarded.
    fn begin_checkpoint(&self, action: CheckpointAction);
    /// It was, or was not.
    fn end_checkpoint(&self, action: CheckpointAction, is_done: bool);
}

/// A command.
#[derive(Debug, Clone)]
enum Command {
    Scrub(ScrubAction),
    Resilver,
    Replace {
        old: String,
        new: String,
        sequential: bool,
    },
    Attach {
        to: String,
        new: String,
        sequential: bool,
    },
    Detach(String),
    Split {
        victim: String,
        new_name: String,
    },
    Offline {
        victim: String,
        temporary: bool,
        fault: bool,
    },
    Online(String),
    Trim(FreeSpaceCommand),
    Initialize(FreeSpaceCommand),
    Clear,
    Reguid,
    Checkpoint(CheckpointAction),
    /// A victim fails.
    Hurt(String),
    /// Scans get time to come to their end.
    Wait,
}

/// A device of the pool.
#[derive(Debug, Clone)]
struct Leaf {
    name: String,
    is_online: bool,
    /// In a RAID-Z vdev, the last child of a `replacing` vdev.
    is_new_of_raidz: bool,
}

/// The disks and which of them may be hurt.
#[derive(Debug, Clone, Default)]
pub struct Disks {
    /// All of the machine.
    pub all: Vec<String>,
    /// Those that may be hurt.
    pub victims: BTreeSet<String>,
    /// Whether victims are hurt beside being taken offline.
    pub are_hurt: bool,
}

/// The thread that scans and changes devices.
pub struct DeviceOperator {
    /// Where commands are written down.
    pub log: Box<dyn Log>,
    /// Where it reports.
    pub house: Arc<House>,
    /// The pool.
    pub pool: &'static str,
    /// From which commands are drawn.
    pub random: Random,
    /// The machine, to sleep in.
    pub host: Host,
    /// The machine, to hurt disks of.
    pub machine: SimHost,
    /// The disks.
    pub disks: Disks,
    /// From which commands of the checkpoint are drawn, where there are any: chance of its own, so
    /// that the other worlds stay as they are.
    pub checkpoints: Option<Random>,
}

impl DeviceOperator {
    /// Gives so many commands.
    pub fn work(mut self, commands: usize) {
        for _ in 0..commands {
            let wait = self.random.below(WAIT_US_MAX);
            let wait = Duration::from_micros(wait * wait / WAIT_US_MAX);
            self.host.sleep(wait);
            let given = self.give_one();
            if let Err(why) = given {
                let text = format!("devices: {why}");
                self.log.note(text.clone());
                self.log.find(text);
                return;
            }
        }
    }

    fn give_one(&mut self) -> Result<(), String> {
        let described = describe(&self.house, self.pool)?;
        self.count_scan(&described);
        let mut leaves = Vec::new();
        for top in &described.layout {
            gather(top, top, &mut leaves);
        }
        let command = self.draw_checkpoint(&described);
        let Some(command) = command.or_else(|| self.draw(&leaves)) else {
            return Ok(());
        };
        self.log.note(format!("devices: {command:?}"));
        match self.give(&command)? {
            Ok(()) => {
                self.log.count(&|counts| counts.commands += 1);
                self.log.note("devices: done".to_string());
                Ok(())
            }
            Err(refusal) => {
                self.log.note(format!("devices: {refusal}"));
                match refusal.kind {
                    RefusalKind::Corrupt | RefusalKind::Suspended | RefusalKind::ReadOnly => {
                        Err(format!("{command:?}: {refusal}"))
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    fn count_scan(&self, described: &pool::PoolDescription) {
        let Some(stats) = &described.scan_stats else {
            return;
        };
        self.log.count(&|counts| {
            if stats.state == "FINISHED" && stats.end_time_s > counts.newest_s {
                counts.newest_s = stats.end_time_s;
                counts.scans += 1;
            }
        });
    }

    fn draw_checkpoint(&mut self, described: &pool::PoolDescription) -> Option<Command> {
        let random = self.checkpoints.as_mut()?;
        let action = match checkpoint_of(described) {
            None => CheckpointAction::Create,
            Some(_) => CheckpointAction::Discard,
        };
        random
            .chance(1, CHECKPOINT_ONE_IN)
            .then_some(Command::Checkpoint(action))
    }

    fn draw(&mut self, leaves: &[Leaf]) -> Option<Command> {
        let disks = self.disks.clone();
        let is_victim = |name: &str| disks.victims.contains(name);
        let members: BTreeSet<&str> = leaves.iter().map(|leaf| leaf.name.as_str()).collect();
        let free = disks
            .all
            .iter()
            .filter(|name| !members.contains(name.as_str()));
        let free: Vec<&String> = free.collect();
        assert!(
            leaves.iter().any(|leaf| !is_victim(&leaf.name)),
            "a disk that is never hurt stays in the pool"
        );
        let victims: Vec<&Leaf> = leaves.iter().filter(|leaf| is_victim(&leaf.name)).collect();
        let random = &mut self.random;
        let of_free_space = [
            FreeSpaceCommand::Start,
            FreeSpaceCommand::Start,
            FreeSpaceCommand::Cancel,
            FreeSpaceCommand::Suspend,
        ];
        Some(match random.below(100) {
            0..12 => Command::Scrub(ScrubAction::Start),
            12..14 => Command::Scrub(ScrubAction::Pause),
            14..16 => Command::Scrub(ScrubAction::Stop),
            16..18 => Command::Scrub(ScrubAction::StartFromLast),
            18..20 => Command::Resilver,
            20..42 => {
                let old = one(random, leaves)?.name.clone();
                let new = (*one(random, &free)?).clone();
                // A sequential rebuild copies from one sibling what no checksum tells about, so a
                // sound disk is only replaced by a resilver.
                let sequential = is_victim(&old) && random.chance(1, 4);
                match is_victim(&new) && !is_victim(&old) {
                    true => return None,
                    false => Command::Replace {
                        old,
                        new,
                        sequential,
                    },
                }
            }
            42..52 => Command::Attach {
                to: one(random, leaves)?.name.clone(),
                new: (*one(random, &free)?).clone(),
                sequential: random.chance(1, 4),
            },
            52..60 => {
                let may_leave = |leaf: &&Leaf| is_victim(&leaf.name) || leaf.is_new_of_raidz;
                let leaves: Vec<&Leaf> = leaves.iter().filter(may_leave).collect();
                Command::Detach(one(random, &leaves)?.name.clone())
            }
            60..68 => Command::Offline {
                victim: one(random, &victims)?.name.clone(),
                temporary: random.chance(1, 3),
                fault: random.chance(1, 5),
            },
            68..76 => {
                let away: Vec<&Leaf> = leaves.iter().filter(|leaf| !leaf.is_online).collect();
                Command::Online(one(random, &away)?.name.clone())
            }
            76..79 => Command::Split {
                victim: one(random, &victims)?.name.clone(),
                new_name: format!("split{}", random.below(1 << 30)),
            },
            79..83 => Command::Trim(of_free_space[random.index(of_free_space.len())]),
            83..86 => Command::Initialize(of_free_space[random.index(of_free_space.len())]),
            86..88 => Command::Clear,
            88..94 if disks.are_hurt => Command::Hurt(one(random, &victims)?.name.clone()),
            94..96 => Command::Reguid,
            _ => Command::Wait,
        })
    }

    fn give(&mut self, command: &Command) -> Result<Result<(), Refusal>, String> {
        let name = self.pool.to_string();
        let path = |disk: &String| format!("{DISKS}/{disk}");
        let house = self.house.clone();
        let administrator = &house.administrator;
        let call = call();
        Ok(match command {
            Command::Scrub(action) => {
                let action = *action;
                let request = pool::Scrub { name, action };
                administrator.pool_scrub(&call, request).map(drop)
            }
            Command::Resilver => {
                let request = pool::Resilver { name };
                administrator.pool_resilver(&call, request).map(drop)
            }
            Command::Replace {
                old,
                new,
                sequential,
            } => {
                let mut request = joining(self.pool, old, new, *sequential);
                request.replaces = true;
                administrator.pool_attach(&call, request).map(drop)
            }
            Command::Attach {
                to,
                new,
                sequential,
            } => {
                let request = joining(self.pool, to, new, *sequential);
                administrator.pool_attach(&call, request).map(drop)
            }
            Command::Detach(disk) => {
                let device = path(disk);
                let request = pool::Detach { name, device };
                administrator.pool_detach(&call, request).map(drop)
            }
            Command::Split { victim, new_name } => {
                let request = pool::Split {
                    name,
                    new_name: new_name.clone(),
                    devices: vec![path(victim)],
                    ..pool::Split::default()
                };
                let split = administrator.pool_split(&call, request).map(drop);
                if split.is_ok() && !self.disks.are_hurt {
                    leaks::walk(&self.host, new_name)
                        .map_err(|why| format!("the pool that was split off: {why}"))?;
                }
                split
            }
            Command::Offline {
                victim,
                temporary,
                fault,
            } => {
                let request = pool::Offline {
                    name,
                    devices: vec![path(victim)],
                    temporary: *temporary,
                    fault: *fault,
                };
                first_refusal(administrator.pool_offline(&call, request))
            }
            Command::Online(disk) => {
                let request = pool::Online {
                    name,
                    devices: vec![path(disk)],
                    expand: false,
                };
                first_refusal(administrator.pool_online(&call, request))
            }
            Command::Trim(command) => {
                let request = pool::Trim {
                    name,
                    command: *command,
                    ..pool::Trim::default()
                };
                administrator.pool_trim(&call, request).map(drop)
            }
            Command::Initialize(command) => {
                let request = pool::Initialize {
                    name,
                    command: *command,
                    ..pool::Initialize::default()
                };
                administrator.pool_initialize(&call, request).map(drop)
            }
            Command::Clear => {
                let request = pool::Clear {
                    name,
                    ..pool::Clear::default()
                };
                administrator.pool_clear(&call, request).map(drop)
            }
            Command::Reguid => {
                let request = pool::Reguid { name, guid: None };
                administrator.pool_reguid(&call, request).map(drop)
            }
            Command::Checkpoint(action) => {
                let action = *action;
                self.log.begin_checkpoint(action);
                let request = pool::Checkpoint { name, action };
                let changed = administrator.pool_checkpoint(&call, request).map(drop);
                self.log.end_checkpoint(action, changed.is_ok());
                changed
            }
            Command::Hurt(disk) => {
                let what = faults::fail_now(&self.machine, disk, &mut self.random);
                self.log.note(format!("{disk} {what}"));
                Ok(())
            }
            Command::Wait => {
                let mut looks = 0..LOOKS_MAX;
                while looks.next().is_some() && is_scanning(&describe(&house, self.pool)?) {
                    self.host.sleep(LOOK);
                }
                Ok(())
            }
        })
    }
}

fn joining(pool: &str, device: &str, new_device: &str, sequential: bool) -> pool::Attach {
    pool::Attach {
        name: pool.to_string(),
        device: format!("{DISKS}/{device}"),
        new_device: format!("{DISKS}/{new_device}"),
        sequential,
        force: true,
        ..pool::Attach::default()
    }
}

fn first_refusal(switched: Result<pool::Switched, Refusal>) -> Result<(), Refusal> {
    let refusals = switched?.devices.into_iter();
    let mut refusals = refusals.filter_map(|device| device.refusal);
    refusals.next().map_or(Ok(()), Err)
}

fn one<'a, T>(random: &mut Random, of: &'a [T]) -> Option<&'a T> {
    of.get(random.index(of.len()))
}

/// The devices below a vdev.
fn gather(top: &VdevStatus, vdev: &VdevStatus, leaves: &mut Vec<Leaf>) {
    for (place, child) in vdev.children.iter().enumerate() {
        let before = leaves.len();
        gather(top, child, leaves);
        let is_new = vdev.kind == "replacing" && place + 1 == vdev.children.len();
        if is_new && top.kind.starts_with("raidz") && child.children.is_empty() {
            let added = leaves[before..].iter_mut();
            added.for_each(|leaf| leaf.is_new_of_raidz = true);
        }
    }
    let path = vdev.path.as_deref().filter(|_| vdev.children.is_empty());
    if let Some(name) = path.and_then(|path| path.rsplit('/').next()) {
        leaves.push(Leaf {
            name: name.to_string(),
            is_online: vdev.state == "ONLINE",
            is_new_of_raidz: false,
        });
    }
}

fn describe(house: &House, pool: &str) -> Result<pool::PoolDescription, String> {
    let request = pool::Describe {
        names: vec![pool.to_string()],
        ..pool::Describe::default()
    };
    let described = house.administrator.pool_describe(&call(), request);
    let mut described = described.map_err(|refusal| format!("zpool status: {refusal}"))?;
    described.pools.pop().ok_or_else(|| "no pool".to_string())
}

/// What `zpool status` says of the checkpoint.
fn checkpoint_of(described: &pool::PoolDescription) -> Option<&str> {
    let mut sections = described.sections.iter();
    let section = sections.find(|(word, _)| word == "checkpoint")?;
    Some(&section.1)
}

/// Whether the pool has a checkpoint to which it can be rewound.
///
/// # Errors
/// The refusal of `zpool status`.
pub fn has_checkpoint(house: &House, pool: &str) -> Result<bool, String> {
    let described = describe(house, pool)?;
    Ok(checkpoint_of(&described).is_some_and(|text| text.starts_with("created ")))
}

fn is_scanning(described: &pool::PoolDescription) -> bool {
    let scan = described.scan_stats.as_ref();
    let scans = scan.is_some_and(|stats| stats.state == "SCANNING" && stats.paused_since_s == 0);
    let mut rebuilds = described.rebuild_stats.iter();
    scans || rebuilds.any(|rebuild| rebuild.state == "ACTIVE")
}

/// Whether a scrub has come to its end. While there is a checkpoint, a resilver is enough: no scan
/// empties dirty time logs then, and each scrub of a pool with one that is not empty is a resilver.
fn has_looked(described: &pool::PoolDescription, stats: &pool::ScanStats) -> bool {
    let is_scan = stats.function == "SCRUB" || checkpoint_of(described).is_some();
    is_scan && stats.state == "FINISHED"
}

/// The end of a world: what runs comes to its end, and a scrub finds no error.
///
/// # Errors
/// What the scrub found, or that it does not end.
pub fn scrub_clean(house: &House, pool: &str, host: &Host) -> Result<(), String> {
    let wait = |what: &str| {
        for _ in 0..LAST_LOOKS_MAX {
            let described = describe(house, pool)?;
            if !is_scanning(&described) {
                return Ok(described);
            }
            host.sleep(LOOK);
        }
        Err(format!("{what} does not end"))
    };
    wait("a scan")?;
    let request = |action| pool::Scrub {
        name: pool.to_string(),
        action,
    };
    let scrub = |action| house.administrator.pool_scrub(&call(), request(action));
    // One that was paused would go on where it was. There may be none.
    let _ = scrub(ScrubAction::Stop);
    let mut scrubs = 0..LAST_SCRUBS_MAX;
    let (described, stats) = loop {
        let begun = scrub(ScrubAction::Start);
        let described = wait("the last scrub")?;
        let stats = described.scan_stats.clone().unwrap_or_default();
        // A resilver that is asked for meanwhile comes first.
        let is_scrubbed = begun.is_ok() && has_looked(&described, &stats);
        if is_scrubbed || scrubs.next().is_none() {
            begun.map_err(|refusal| format!("zpool scrub: {refusal}"))?;
            break (described, stats);
        }
    };
    match has_looked(&described, &stats) && stats.errors == 0 && described.error_count == 0 {
        true => Ok(()),
        false => Err(format!(
            "the last scrub: {} {}, {} blocks could not be read, {} errors are known",
            stats.function, stats.state, stats.errors, described.error_count
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found with seed 402, world 44.
    #[test]
    fn beside_a_checkpoint_a_resilver_is_enough() {
        let mut described = pool::PoolDescription::default();
        let mut stats = pool::ScanStats {
            function: "RESILVER".to_string(),
            state: "FINISHED".to_string(),
            ..pool::ScanStats::default()
        };
        assert!(!has_looked(&described, &stats));
        let section = ("checkpoint".to_string(), "created now".to_string());
        described.sections.push(section);
        assert!(has_looked(&described, &stats));
        stats.state = "SCANNING".to_string();
        assert!(!has_looked(&described, &stats));
    }
}
