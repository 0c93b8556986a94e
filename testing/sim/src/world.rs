//! A world: one pool on one machine, whose power is cut again and again.
//!
//! # Mechanism
//! A machine lives until its power is cut. Its disks are then as they may be, and the next machine
//! finds the pool on them: everything is walked as it lies there, then it is imported, logs are
//! claimed and replayed, and what is in the file systems is judged. Then actors go on working.
//! Power may also be cut while the pool is imported.
//!
//! Everything follows from the seed and the number of the world.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tarn_administration::administration::Administration;
use tarn_administration::messages::pool::{self, CheckpointAction};
use tarn_administration::messages::{Refusal, dataset};
use tarn_engine::files::FileKind;
use tarn_host::Host;
use tarn_host::sim::{Fault, Random, SimHost, SimOptions};
use tarn_hostile::house::{DISKS, Files, House, call, noise};

use crate::admin::{self, Administrator, FOLDER};
use crate::checkpoint::Checkpoint;
use crate::devices::{self, DeviceOperator, Disks, SPARES};
use crate::faults::Victims;
use crate::history::Actor;
use crate::images::Judges;
use crate::judge;
use crate::layout::{DISK_BYTES, Layout};
use crate::pool_guid;
use crate::script::Script;
use crate::tree::{FILLING, Tree};
use crate::work::{Book, Pages, Promise, SHARED, Taste, Worker};
use tarn_hostile::leaks;

/// The pool.
pub const POOL: &str = "tank";
/// Of disks that begin nearly full, so much is left.
const ROOM_LEFT: usize = 5 << 20;
/// So many scripts are played in one world.
pub const SCRIPTS_OF_A_WORLD: u64 = 46;
/// After so many writes, the last of a script is a group being stored, which others cut at any
/// place.
const SCRIPT_WRITES_MAX: u64 = 8;
/// In one of so many worlds devices are scanned and changed.
const CHANGES_ONE_IN: u64 = 4;
/// In one of so many of these worlds the pool has a checkpoint now and then.
const CHECKPOINTS_ONE_IN: u64 = 3;
/// In one of so many lives that find a checkpoint the pool is rewound to it.
const REWIND_ONE_IN: u64 = 3;
/// Discarding a checkpoint frees so many ranges in a txg at most: it takes several.
const DISCARDED_RANGES_MAX: usize = 40;
/// When power is cut during a rewind, it is after so many writes at most.
const REWIND_WRITES_MAX: u64 = 40;
/// A life that ends at a time does so within this, in nanoseconds.
const CUT_NS_MAX: u64 = 8_000_000_000;
/// What a full pool is filled with, at a time.
const FILLING_BYTES: usize = 1 << 20;

/// No life takes longer: a thread that still waits then waits for something that never comes, as
/// all do whose pool is suspended for good.
const LIFE_MAX: Duration = Duration::from_secs(3600);

/// Which worlds are wanted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted {
    /// All scripts of so many deeds, instead of chance.
    pub exhaustive: Option<u32>,
    /// From which everything follows.
    pub seed: u64,
    /// Only of this layout.
    pub layout: Option<Layout>,
    /// Only with this taste.
    pub taste: Option<Taste>,
    /// Only worlds in which devices are scanned and changed.
    pub devices: bool,
}

/// What a world was.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// How many times the power was cut.
    pub cuts: u64,
    /// How many of them while the pool was imported.
    pub early: u64,
    /// Calls that were made.
    pub calls: usize,
    /// Calls that had to be there.
    pub promised: usize,
    /// Blocks that were verified.
    pub blocks: u64,
    /// How many pointers beside the first ones led to them.
    pub clones: u64,
    /// Commands that scanned or changed devices.
    pub device_commands: u64,
    /// Scans of which it was seen that they came to their end.
    pub scans: u64,
    /// Rewinds to a checkpoint.
    pub rewinds: u64,
    /// A number that tells whether two runs were the same.
    pub trace: u64,
}

/// A world that came out wrong.
#[derive(Debug)]
pub struct Failed {
    /// In which life, from 1 on.
    pub life: u64,
    /// What is wrong.
    pub why: String,
    /// What happened in that life and the one before.
    pub trace: Vec<String>,
}

impl fmt::Display for Failed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(out, "  {line}")?;
        }
        write!(out, "in life {}: {}", self.life, self.why)
    }
}

/// A file system of the pool.
#[derive(Debug, Clone)]
struct DatasetPlan {
    name: String,
    promise: Promise,
    properties: Vec<(String, String)>,
}

/// What a world is made of.
#[derive(Debug, Clone)]
pub struct Plan {
    layout: Layout,
    taste: Taste,
    datasets: Vec<DatasetPlan>,
    actors: usize,
    calls: usize,
    switch_one_in: u64,
    stall_one_in: u64,
    has_administrator: bool,
    changes_devices: bool,
    exhaustive: Option<u32>,
}

impl Plan {
    /// One disk, one file system, one actor.
    fn of_scripts(wanted: &Wanted, length: u32, number: u64) -> Plan {
        let policies = [Promise::Standard, Promise::Always];
        let is_always = length == 1 || (length == 2 && number % 2 == 1);
        let promise = policies[usize::from(is_always)];
        let sync = ["standard", "always"][usize::from(is_always)];
        let dataset = DatasetPlan {
            name: POOL.to_string(),
            promise,
            properties: vec![
                ("sync".to_string(), sync.to_string()),
                ("xattr".to_string(), "sa".to_string()),
            ],
        };
        Plan {
            layout: wanted.layout.unwrap_or(Layout::ALL[0]),
            taste: Taste::Mixed,
            datasets: vec![dataset],
            actors: 1,
            calls: 0,
            switch_one_in: 0,
            stall_one_in: 0,
            has_administrator: false,
            changes_devices: false,
            exhaustive: Some(length),
        }
    }

    fn draw(wanted: &Wanted, number: u64, random: &mut Random) -> Plan {
        let layout = Layout::ALL[random.index(Layout::ALL.len())];
        let tastes = [
            Taste::Mixed,
            Taste::Mixed,
            Taste::Names,
            Taste::Database,
            Taste::Bulk,
            Taste::Race,
            Taste::Administration,
            Taste::Administration,
        ];
        let taste = tastes[random.index(tastes.len())];
        let mut datasets = Vec::new();
        for number in 0..1 + random.index(3) {
            let promise = match random.below(8) {
                0 | 1 => Promise::Always,
                2 => Promise::Disabled,
                _ => Promise::Standard,
            };
            let name = match number {
                0 => POOL.to_string(),
                number => format!("{POOL}/f{number}"),
            };
            let mut properties = Vec::new();
            let mut set = |name: &str, value: &str| properties.push((name.into(), value.into()));
            set(
                "sync",
                match promise {
                    Promise::Always => "always",
                    Promise::Disabled => "disabled",
                    Promise::Standard => "standard",
                },
            );
            let sizes = ["4K", "8K", "16K", "128K", "128K", "1M"];
            set("recordsize", sizes[random.index(sizes.len())]);
            let compressions = ["on", "off", "zstd", "lz4"];
            set("compression", compressions[random.index(4)]);
            set("xattr", ["sa", "sa", "dir"][random.index(3)]);
            set("dnodesize", ["legacy", "auto"][random.index(2)]);
            if random.chance(1, 4) {
                set("logbias", "throughput");
            }
            if random.chance(1, 6) {
                set("copies", "2");
            }
            datasets.push(DatasetPlan {
                name,
                promise,
                properties,
            });
        }
        let taste = wanted.taste.unwrap_or(taste);
        let switches = [0, 3, 30, 300];
        let stalls = [0, 100, 1000];
        let (switch_one_in, stall_one_in) = match taste {
            // The disk of the log is late; the sync thread is not.
            Taste::Race => (3, 0),
            _ => (
                switches[random.index(switches.len())],
                stalls[random.index(stalls.len())],
            ),
        };
        Plan {
            layout: wanted.layout.unwrap_or(layout),
            taste,
            datasets,
            actors: 1 + random.index(4),
            calls: match taste {
                Taste::Administration => random.index(10),
                _ => 10 + random.index(60),
            },
            switch_one_in,
            stall_one_in,
            has_administrator: random.chance(1, 3) || taste == Taste::Administration,
            changes_devices: wanted.devices || number % CHANGES_ONE_IN == 1,
            exhaustive: None,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} {:?}, {} file systems, {} actors, {} calls, switches {}, stalls {}{}",
            self.layout.name,
            self.taste,
            self.datasets.len(),
            self.actors,
            self.calls,
            self.switch_one_in,
            self.stall_one_in,
            if self.changes_devices {
                ", devices change"
            } else {
                ""
            }
        )
    }
}

/// One world.
pub struct World {
    plan: Plan,
    random: Random,
    book: Book,
    machine: SimHost,
    told: Told,
    life: u64,
    number: u64,
    victims: Option<Victims>,
    /// Where devices are changed, some fail meanwhile.
    hurts_changed: bool,
    /// From which is drawn what is done with a checkpoint, where there is one.
    checkpoints: Option<Random>,
    /// Which of its scripts is next, and after how many writes power is cut in it.
    script: u64,
    script_writes: u64,
}

impl World {
    /// The world of this number.
    pub fn new(wanted: &Wanted, number: u64) -> World {
        let mut random = Random::new(wanted.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
        let mut random = random.fork();
        let plan = match wanted.exhaustive {
            Some(length) => Plan::of_scripts(wanted, length, number),
            None => Plan::draw(wanted, number, &mut random),
        };
        let victims = match wanted.exhaustive {
            Some(_) => None,
            None if plan.changes_devices => Some(Victims::choose_for_changes(
                &plan.layout,
                plan.taste == Taste::Race,
                &SPARES,
                &mut random,
            )),
            None => Some(Victims::choose(
                &plan.layout,
                plan.taste == Taste::Race,
                &mut random,
            )),
        };
        let machine = SimHost::new(SimOptions {
            switch_one_in: plan.switch_one_in,
            stall_one_in: plan.stall_one_in,
            run_time_max: LIFE_MAX,
            ..SimOptions::seed(random.draw())
        });
        for (name, size) in plan.layout.disks() {
            machine.add_disk(format!("{DISKS}/{name}"), size);
        }
        if plan.changes_devices {
            for name in SPARES {
                machine.add_disk(format!("{DISKS}/{name}"), DISK_BYTES);
            }
        }
        let hurts_changed = plan.changes_devices && random.chance(1, 2);
        // Not drawn from what all else is drawn from: worlds without a checkpoint stay as they are.
        let mut checkpoints = Random::new(wanted.seed.wrapping_add(number << 32));
        let has_checkpoints = plan.changes_devices && checkpoints.chance(1, CHECKPOINTS_ONE_IN);
        World {
            plan,
            random,
            book: Book::default(),
            machine,
            told: Told::default(),
            life: 0,
            number,
            victims,
            hurts_changed,
            checkpoints: has_checkpoints.then_some(checkpoints),
            script: 0,
            script_writes: 0,
        }
    }

    /// What it is made of.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The machine as it is now.
    pub fn machine(&self) -> &SimHost {
        &self.machine
    }

    /// Makes the pool, and cuts the power so many times.
    ///
    /// # Errors
    /// What came out wrong.
    pub fn run(mut self, cuts: u64, judges: Option<&Judges>) -> Result<Told, Failed> {
        self.begin()?;
        match self.plan.exhaustive {
            Some(length) => self.play_all(length)?,
            None => {
                while self.told.cuts < cuts {
                    self.live(judges)?;
                }
            }
        }
        // What the last cut has left.
        self.machine = self.machine.reboot();
        self.life += 1;
        self.in_machine(|world, host| {
            world.look(host)?;
            let house = world.recover(host)?;
            if !world.plan.changes_devices {
                return Ok(());
            }
            devices::scrub_clean(&house, POOL, host)?;
            if !world.book.pages().checkpoint.exists() {
                return Ok(());
            }
            let house = world.rewind(house, host)?;
            devices::scrub_clean(&house, POOL, host)
        })?;
        let counts = self.book.pages().devices;
        self.told.device_commands = counts.commands;
        self.told.scans = counts.scans;
        self.told.trace = self.machine.trace().hash;
        Ok(self.told)
    }

    fn failed(&self, why: String) -> Failed {
        let mut pages = self.book.pages();
        Failed {
            life: self.life,
            why,
            trace: std::mem::take(&mut pages.trace),
        }
    }

    /// Runs something on the machine. True when it came to its end, false when the power was cut.
    fn in_machine(
        &mut self,
        body: impl FnOnce(&mut World, &Host) -> Result<(), String>,
    ) -> Result<bool, Failed> {
        let machine = self.machine.clone();
        let run = AssertUnwindSafe(|| machine.run(|host| body(self, host)));
        let ended = match catch_unwind(run) {
            Ok(Ok(Ok(()))) => Ok(true),
            Ok(Ok(Err(why))) => Err(why),
            Ok(Err(_)) => Ok(false),
            Err(payload) => {
                let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
                let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
                Err(text.unwrap_or_else(|| "a panic".to_string()))
            }
        };
        let findings = self.book.pages().findings.join("\n");
        match ended {
            Err(why) => Err(self.failed(why)),
            Ok(_) if !findings.is_empty() => Err(self.failed(findings)),
            Ok(ended) => Ok(ended),
        }
    }

    /// Makes the pool and what all actors share.
    fn begin(&mut self) -> Result<(), Failed> {
        self.in_machine(|world, host| world.create(host))?;
        Ok(())
    }

    fn create(&mut self, host: &Host) -> Result<(), String> {
        let house = House::new(host);
        let plan = self.plan.clone();
        let request = pool::Create {
            name: POOL.to_string(),
            vdevs: plan.layout.vdevs(),
            dataset_properties: plan.datasets[0].properties.clone(),
            force: true,
            ..pool::Create::default()
        };
        let created = house.administrator.pool_create(&call(), request);
        created.map_err(|refusal| format!("zpool create: {refusal}"))?;
        for part in &plan.datasets[1..] {
            let request = dataset::Create {
                name: part.name.clone(),
                properties: part.properties.clone(),
                ..dataset::Create::default()
            };
            let created = house.administrator.dataset_create(&call(), request);
            created.map_err(|refusal| format!("zfs create: {refusal}"))?;
        }
        {
            let mut pages = self.book.pages();
            for number in 0..plan.actors {
                let dataset = number % plan.datasets.len();
                let properties = &plan.datasets[dataset].properties;
                let mut properties = properties.iter();
                let hides_xattrs =
                    properties.any(|(name, value)| name == "xattr" && value == "dir");
                let actor = Actor::new(dataset, hides_xattrs, &format!("t{number}"));
                pages.history.actors.push(actor);
            }
        }
        for (dataset, part) in plan.datasets.iter().enumerate() {
            let files = house.files(&part.name).system().clone();
            let mut folders: Vec<String> = SHARED.map(str::to_string).to_vec();
            let actors = (0..plan.actors).filter(|number| number % plan.datasets.len() == dataset);
            folders.extend(actors.map(|number| format!("t{number}")));
            for folder in folders {
                make_folder(&files, &folder)?;
            }
        }
        if plan.has_administrator {
            let request = dataset::Create {
                name: FOLDER.to_string(),
                // What it would inherit may promise less.
                properties: vec![("sync".to_string(), "standard".to_string())],
                ..dataset::Create::default()
            };
            let created = house.administrator.dataset_create(&call(), request);
            created.map_err(|refusal| format!("zfs create: {refusal}"))?;
        }
        if plan.layout.is_full {
            fill(&house.files(POOL))?;
        }
        house
            .sync()
            .map_err(|refusal| format!("zpool sync: {refusal}"))?;
        self.adopt(&self.trees(&house)?);
        Ok(())
    }

    fn trees(&self, house: &House) -> Result<BTreeMap<usize, Tree>, String> {
        let mounted: BTreeMap<String, _> = house.trees().into_iter().collect();
        let mut trees = BTreeMap::new();
        for (number, dataset) in self.plan.datasets.iter().enumerate() {
            let tree = mounted
                .get(&dataset.name)
                .ok_or_else(|| format!("{} is not mounted", dataset.name))?;
            let tree =
                Tree::read(tree.files()).map_err(|why| format!("{}: {why}", dataset.name))?;
            trees.insert(number, tree);
        }
        Ok(trees)
    }

    fn adopt(&self, trees: &BTreeMap<usize, Tree>) {
        let mut pages = self.book.pages();
        pages.history.forget();
        pages.history.stored = pages.history.tick();
        pages.history.is_full = self.plan.layout.is_full;
        for actor in &mut pages.history.actors {
            actor.adopt(&trees[&actor.dataset]);
        }
    }

    /// One life, which ends with a cut.
    fn live(&mut self, judges: Option<&Judges>) -> Result<(), Failed> {
        self.machine = self.machine.reboot();
        self.life += 1;
        let life = self.life;
        self.book.note(format!("--- life {life}"));
        self.ask_zdb(judges)?;
        if let Some(victims) = &mut self.victims {
            for told in victims.hurt(&self.machine, &mut self.random) {
                self.book.note(told);
            }
        }
        let mut has_recovered = false;
        let ended = self.in_machine(|world, host| {
            world.look(host)?;
            if world.random.chance(1, 5) {
                // While it is imported.
                let count = 1 + world.random.below(30);
                world.machine.cut_power_after_writes(count);
            }
            let house = world.recover(host)?;
            let house = world.perhaps_rewind(house, host)?;
            has_recovered = true;
            world.set_cut(host);
            let house = Arc::new(house);
            world.work(&house, host)?;
            if world.random.chance(1, 8) {
                world.book.note("export".to_string());
                let trees = world.trees(&house)?;
                house
                    .export(POOL, false)
                    .map_err(|refusal| format!("zpool export: {refusal}"))?;
                world.adopt(&trees);
                world.book.note("exported".to_string());
            }
            world.machine.cut_power();
            Ok(())
        })?;
        if ended {
            return Err(self.failed("the power was cut, and the machine went on".to_string()));
        }
        self.told.cuts += 1;
        self.told.early += u64::from(!has_recovered);
        self.book.note("the power is cut".to_string());
        Ok(())
    }

    /// Now and then OpenZFS looks at the disks. Hurt ones it may find too bad.
    fn ask_zdb(&self, judges: Option<&Judges>) -> Result<(), Failed> {
        let is_hurt = self.victims.as_ref().is_some_and(Victims::exist);
        let Some(judges) = judges.filter(|_| !is_hurt) else {
            return Ok(());
        };
        let cuts = self.number.wrapping_mul(7) + self.told.cuts;
        if !cuts.is_multiple_of(judges.every.max(1)) {
            return Ok(());
        }
        let judged = judges.judge(&self.machine, &self.plan.layout);
        judged.map_err(|why| self.failed(why))
    }

    fn set_cut(&mut self, host: &Host) {
        let (spans, flushes) = match self.plan.taste {
            // It takes a while until something is overtaken.
            Taste::Race => ([300, 300, 1000, 1000, 1000, 1000], 100),
            // Each command stores a group.
            Taste::Administration => ([50, 200, 500, 1000, 2000, 4000], 100),
            // A resilver takes a while.
            _ if self.plan.changes_devices => ([50, 200, 500, 1000, 2000, 4000], 30),
            _ => ([6, 50, 50, 200, 200, 1000], 12),
        };
        let span = spans[self.random.index(spans.len())];
        let count = 1 + self.random.below(span);
        let writes = self.machine.device_writes();
        self.machine.cut_power_after_writes(writes + count);
        if self.random.chance(1, 3) {
            // Or when something has just become durable on one of the disks: a group, or a part of
            // the log.
            let disks = self.plan.layout.disks();
            let (name, _) = &disks[self.random.index(disks.len())];
            let nth = self.random.below(flushes);
            if let Some(disk) = self.machine.disk(format!("{DISKS}/{name}")) {
                disk.inject(Fault::CutAfterFlush { nth });
            }
        }
        let is_patient = self.plan.taste == Taste::Administration || self.plan.changes_devices;
        if self.random.chance(1, if is_patient { 10 } else { 3 }) {
            // Or at a time, which is more likely to be one at which all wait for something.
            let after = Duration::from_nanos(self.random.magnitude(CUT_NS_MAX));
            let (machine, other) = (self.machine.clone(), host.clone());
            host.spawn("the end", move || {
                other.sleep(after);
                machine.cut_power();
            });
        }
    }

    /// By what the pool is found.
    fn name_or_guid(&self, host: &Host) -> String {
        let victims = self.victims.as_ref().map(Victims::names);
        let found_by = pool_guid::name_or_guid(host, POOL, &victims.unwrap_or_default());
        if found_by != POOL {
            self.book.note(format!(
                "several pools have its name; its guid is {found_by}"
            ));
        }
        found_by
    }

    /// Walks the pool as it lies there.
    fn look(&mut self, host: &Host) -> Result<(), String> {
        let walked = leaks::walk(host, &self.name_or_guid(host))?;
        self.told.blocks += walked.blocks - walked.clones;
        self.told.clones += walked.clones;
        self.book.note(format!(
            "found at group {}: {} blocks, {} bytes",
            walked.txg, walked.blocks, walked.bytes
        ));
        Ok(())
    }

    /// Imports the pool, and judges what is in it.
    fn recover(&mut self, host: &Host) -> Result<House, String> {
        let house = House::new(host);
        let found_by = self.name_or_guid(host);
        let imported = house.import(Some(&found_by), &[]);
        self.judge_import(&house, imported)?;
        if let Some(random) = &mut self.checkpoints {
            let open = house.engine.require_pool(POOL);
            let open = open.map_err(|refusal| refusal.to_string())?;
            let count = 1 + random.index(DISCARDED_RANGES_MAX);
            open.pool.set_discarded_ranges_max(count);
        }
        Ok(house)
    }

    /// In some lives, a pool with a checkpoint is rewound. The power may be cut meanwhile.
    fn perhaps_rewind(&mut self, house: House, host: &Host) -> Result<House, String> {
        let exists = self.book.pages().checkpoint.exists();
        let Some(random) = self.checkpoints.as_mut().filter(|_| exists) else {
            return Ok(house);
        };
        if !random.chance(1, REWIND_ONE_IN) {
            return Ok(house);
        }
        if random.chance(1, 2) {
            let count = 1 + random.below(REWIND_WRITES_MAX);
            let writes = self.machine.device_writes();
            self.machine.cut_power_after_writes(writes + count);
        }
        self.rewind(house, host)
    }

    /// Exports the pool, imports it as its checkpoint has it, and judges what is in it.
    fn rewind(&mut self, house: House, host: &Host) -> Result<House, String> {
        self.book.note("export, to be rewound".to_string());
        house
            .export(POOL, false)
            .map_err(|refusal| format!("zpool export: {refusal}"))?;
        drop(house);
        let house = House::new(host);
        let found_by = self.name_or_guid(host);
        self.book.note("rewind to the checkpoint".to_string());
        {
            let mut pages = self.book.pages();
            pages.checkpoint.begin_ending(Checkpoint::Rewinding);
        }
        let imported = house.import_rewound(&found_by);
        self.judge_import(&house, imported)?;
        match self.book.pages().checkpoint {
            Checkpoint::Absent => Ok(house),
            _ => Err("a pool that was rewound has a checkpoint".to_string()),
        }
    }

    /// Judges what is in a pool that was imported: by the history, or by what a checkpoint had.
    fn judge_import(
        &mut self,
        house: &House,
        imported: Result<pool::Imported, Refusal>,
    ) -> Result<(), String> {
        let imported = imported.map_err(|refusal| format!("zpool import: {refusal}"))?;
        if let Some(refused) = imported.refused.first() {
            return Err(format!("zpool import: {refused}"));
        }
        for said in imported.notes.iter().chain(&imported.warnings) {
            self.book.note(format!("zpool import: {said}"));
        }
        let trees = self.trees(house)?;
        let is_there = devices::has_checkpoint(house, POOL)?;
        let rewound = {
            let mut pages = self.book.pages();
            let Pages {
                checkpoint,
                history,
                ..
            } = &mut *pages;
            checkpoint.settle(is_there, history)?
        };
        let of_checkpoint = |why: String| match rewound {
            Some(_) => format!("after a rewind: {why}"),
            None => why,
        };
        let verdict = {
            let pages = self.book.pages();
            let history = rewound
                .as_ref()
                .map_or(&pages.history, |kept| &kept.history);
            judge::judge(history, &trees).map_err(of_checkpoint)?
        };
        if self.plan.has_administrator {
            let found = admin::find(house)?;
            let mut pages = self.book.pages();
            let judged = match &rewound {
                Some(kept) => kept.judge_admin(&found),
                None => pages.admin.judge(&found),
            };
            judged.map_err(of_checkpoint)?;
            pages.admin.done = found;
            pages.admin.under_way = None;
        }
        let what = match rewound {
            Some(_) => "rewound",
            None => "recovered",
        };
        self.told.rewinds += u64::from(rewound.is_some());
        self.told.calls += verdict.done;
        self.told.promised += verdict.promised;
        self.book.note(format!(
            "{what}: {} calls had returned, {} were promised, {} are there",
            verdict.done, verdict.promised, verdict.found
        ));
        self.adopt(&trees);
        Ok(())
    }

    /// All actors work, until they are done.
    fn work(&mut self, house: &Arc<House>, host: &Host) -> Result<(), String> {
        let mut threads = Vec::new();
        if self.plan.has_administrator {
            let administrator = Administrator {
                book: self.book.clone(),
                house: house.clone(),
                random: self.random.fork(),
                host: host.clone(),
                others: self
                    .plan
                    .datasets
                    .iter()
                    .map(|part| part.name.clone())
                    .collect(),
            };
            let (commands, wait_us_max) = match self.plan.taste {
                Taste::Administration => (50, 50_000),
                _ => (2 + self.random.index(8), 2_000_000),
            };
            threads.push(host.spawn("administrator", move || {
                administrator.work(commands, wait_us_max);
            }));
        }
        if self.plan.changes_devices {
            let operator = self.device_operator(house, host);
            let commands = 3 + self.random.index(12);
            threads.push(host.spawn("devices", move || operator.work(commands)));
        }
        let actors = self.book.pages().history.actors.len();
        for number in 0..actors {
            let dataset = self.book.pages().history.actors[number].dataset;
            let worker = self.worker(number, dataset, house, host);
            let calls = self.plan.calls;
            threads.push(host.spawn(&format!("actor-{number}"), move || worker.work(calls)));
        }
        for thread in threads {
            thread.join().map_err(|_| "an actor panicked".to_string())?;
        }
        Ok(())
    }
}

impl World {
    fn device_operator(&mut self, house: &Arc<House>, host: &Host) -> DeviceOperator {
        let victims = self.victims.as_ref();
        let disks = victims.map(|victims| Disks {
            all: victims.all().to_vec(),
            victims: victims.names(),
            are_hurt: self.hurts_changed || !victims.is_quiet(),
        });
        DeviceOperator {
            log: Box::new(self.book.clone()),
            house: house.clone(),
            pool: POOL,
            random: self.random.fork(),
            host: host.clone(),
            machine: self.machine.clone(),
            disks: disks.unwrap_or_default(),
            checkpoints: self.checkpoints.as_mut().map(Random::fork),
        }
    }

    fn worker(&mut self, number: usize, dataset: usize, house: &House, host: &Host) -> Worker {
        let part = &self.plan.datasets[dataset];
        let files = house.files(&part.name).system().clone();
        if let Some(log) = files.intent_log() {
            let (carried, led) = COMMIT_BYTES_MAX[tarn_ondisk::declare::narrow(self.number % 3)];
            log.set_commit_bytes_max(carried, led);
        }
        Worker {
            number,
            book: self.book.clone(),
            files,
            promise: part.promise,
            taste: self.plan.taste,
            random: self.random.fork(),
            host: host.clone(),
            open: Vec::new(),
        }
    }

    /// Plays this world's share of all scripts of a length, each with a cut after each number of
    /// writes.
    fn play_all(&mut self, length: u32) -> Result<(), Failed> {
        let first = self.number * SCRIPTS_OF_A_WORLD;
        self.script = first;
        let end = (first + SCRIPTS_OF_A_WORLD).min(Script::count(length));
        while self.script < end {
            self.machine = self.machine.reboot();
            self.life += 1;
            let (number, writes) = (self.script, self.script_writes + 1);
            let script = Script::numbered(length, number);
            let life = self.life;
            self.book.note(format!(
                "--- life {life}: script {number} {script:?}, cut after {writes} writes"
            ));
            let mut has_ended = false;
            self.in_machine(|world, host| {
                world.look(host)?;
                let house = world.recover(host)?;
                let worker = world.worker(0, 0, &house, host);
                let told = |_| "a call was refused".to_string();
                worker.clear("t0/e").map_err(told)?;
                let stage = worker.set_stage("t0/e").map_err(told)?;
                let stage = stage.ok_or("there is no room")?;
                let begin = world.book.pages().history.tick();
                house
                    .sync()
                    .map_err(|refusal| format!("zpool sync: {refusal}"))?;
                world.book.pages().history.stored = begin;
                let now = world.machine.device_writes();
                world.machine.cut_power_after_writes(now + writes);
                worker.play(&stage, &script).map_err(told)?;
                has_ended = true;
                world.machine.cut_power();
                Ok(())
            })?;
            self.told.cuts += 1;
            self.script_writes += 1;
            if has_ended || self.script_writes >= SCRIPT_WRITES_MAX {
                self.script += 1;
                self.script_writes = 0;
            }
        }
        Ok(())
    }
}

impl devices::Log for Book {
    fn note(&self, line: String) {
        self.pages().note(line);
    }

    fn find(&self, what: String) {
        self.pages().findings.push(what);
    }

    fn count(&self, change: &dyn Fn(&mut devices::Counts)) {
        change(&mut self.pages().devices);
    }

    fn begin_checkpoint(&self, action: CheckpointAction) {
        let mut pages = self.pages();
        match action {
            CheckpointAction::Create if pages.checkpoint.is_absent() => {
                let (begin, admin) = (pages.history.tick(), pages.admin.clone());
                pages.checkpoint = Checkpoint::Creating(begin, vec![admin]);
            }
            CheckpointAction::Create => {}
            CheckpointAction::Discard => pages.checkpoint.begin_ending(Checkpoint::Discarding),
        }
    }

    fn end_checkpoint(&self, action: CheckpointAction, is_done: bool) {
        let mut pages = self.pages();
        let Pages {
            checkpoint,
            history,
            ..
        } = &mut *pages;
        match action {
            CheckpointAction::Create => checkpoint.end_creating(is_done, history),
            CheckpointAction::Discard => checkpoint.end_discarding(is_done),
        }
    }
}

/// How much a commit may write to the log, in its own blocks and in those that records lead to, by
/// the numbers of worlds: what is much in their small pools.
const COMMIT_BYTES_MAX: [(u64, u64); 3] = [
    (8 << 20, 128 << 20),
    (64 << 10, 1 << 20),
    (8 << 10, 256 << 10),
];

fn make_folder(
    files: &std::sync::Arc<tarn_engine::files::FileSystem>,
    name: &str,
) -> Result<(), String> {
    use tarn_engine::files::{Credentials, DeviceNumber, NewFile};
    let new = NewFile {
        kind: FileKind::Directory,
        permissions: 0o755,
        umask: 0,
        device: DeviceNumber::default(),
        target: None,
    };
    let operation = tarn_hostile::house::operation();
    let root = Credentials::root();
    files
        .create(&root, files.root(), name.as_bytes(), &new, &operation)
        .map(drop)
        .map_err(|error| format!("making {name}: {error}"))
}

/// Takes most of the room.
fn fill(files: &Files) -> Result<(), String> {
    let told = |error: tarn_engine::files::PosixError| format!("filling: {error}");
    let file = files.make(FILLING).map_err(told)?;
    let mut at = 0;
    for number in 0.. {
        let space = files.system().space();
        if space.available_bytes < u64::try_from(ROOM_LEFT).unwrap_or(0) {
            break;
        }
        let bytes = noise(number, FILLING_BYTES);
        files.write(file, at, &bytes).map_err(told)?;
        at += u64::try_from(bytes.len()).unwrap_or(0);
        if number % 4 == 3 {
            files
                .system()
                .sync_all(&tarn_hostile::house::operation())
                .map_err(told)?;
        }
    }
    Ok(())
}
