//! Rounds: each damages a copy of a pool and looks at what is left, read-only and then to be
//! written.
//!
//! A round follows from the seed and its number alone, so that one that fails can be had again.

use crate::house::House;
use crate::images::Base;
use crate::lie::{Found, Liar};
use crate::look::{self, Seen};
use crate::receiving::{self, Sent};
use crate::{lies, raw};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tarn_host::Host;
use tarn_host::sim::{Random, SimHost};

/// How often ten seconds are waited for a few changes, in the machine's own time.
const WAITS_MAX: u32 = 2000;

/// How a pool is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// Sectors, labels, sizes, copies.
    Raw,
    /// Lies with right checksums.
    Lies,
    /// None; but it receives streams that lie.
    Streams,
}

/// A pool, and what is to be done to it.
pub struct Subject<'a> {
    /// The pool.
    pub base: &'a Base,
    /// How it is damaged.
    pub damage: Damage,
    prepared: Option<Prepared>,
}

/// What the disks of a pool hold, found once.
enum Prepared {
    /// Where the blocks are.
    Blocks(Vec<Found>),
    /// What was sent of it.
    Streams(Vec<Sent>),
}

/// How a round ended.
#[derive(Debug)]
pub struct Round {
    /// Whether it could be imported, read-only and to be written; or whether it was imported and a
    /// stream was taken.
    pub imported: [bool; 2],
    /// What was seen.
    pub seen: Seen,
    /// The panic, if there was one: a finding.
    pub panic: Option<String>,
}

impl<'a> Subject<'a> {
    /// This pool, damaged like this.
    pub fn new(base: &'a Base, damage: Damage) -> Subject<'a> {
        let prepared = match damage {
            Damage::Raw => None,
            Damage::Lies => find_blocks(base).map(Prepared::Blocks),
            Damage::Streams => Some(Prepared::Streams(receiving::send_all(base))),
        };
        Subject {
            base,
            damage,
            prepared,
        }
    }

    /// What is told of it: the pool and the damage.
    pub fn name(&self) -> String {
        format!("{} {:?}", self.base.name, self.damage).to_lowercase()
    }

    /// One round. What is done to the pool is told before anything looks at it.
    pub fn round(&self, seed: u64, number: u64, tell: &mut dyn FnMut(&str)) -> Round {
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(number));
        let random = &mut random.fork();
        let machine = self.base.machine(seed);
        let mut round = Round {
            imported: [false; 2],
            seen: Seen::default(),
            panic: None,
        };
        let told = match &self.prepared {
            Some(Prepared::Streams(sent)) => {
                let plan = receiving::plan(sent, random);
                tell(&plan.told);
                let Round { imported, seen, .. } = &mut round;
                let run = AssertUnwindSafe(|| {
                    receiving::carry_out(&machine, &plan, imported, seen);
                });
                round.panic = catch_unwind(run).err().map(|panic| text_of(&*panic));
                return round;
            }
            Some(Prepared::Blocks(blocks)) => self.tell_lies(blocks, &machine, random),
            None if self.damage == Damage::Raw => raw::damage(&machine, self.base, random),
            None => "nothing: no block was found".to_string(),
        };
        tell(&told);
        for (index, mode) in [Some(("readonly", "on")), None].into_iter().enumerate() {
            let Round { imported, seen, .. } = &mut round;
            let run = AssertUnwindSafe(|| visit(&machine, mode, &mut imported[index], seen));
            if let Err(panic) = catch_unwind(run) {
                round.panic = Some(text_of(&*panic));
                break;
            }
        }
        round
    }

    fn tell_lies(&self, blocks: &[Found], machine: &SimHost, random: &mut Random) -> String {
        let devices = self.base.devices(machine);
        let liar = Liar::new(&devices, Some(blocks.to_vec()));
        let Some(mut liar) = liar else {
            return "nothing: no uberblock was found".to_string();
        };
        let count = 1 + random.index(3);
        let told: Vec<String> = (0..count)
            .filter_map(|_| lies::tell(&mut liar, random))
            .collect();
        told.join("; ")
    }
}

fn find_blocks(base: &Base) -> Option<Vec<Found>> {
    let devices = base.devices(&base.machine(1));
    Some(Liar::new(&devices, None)?.blocks)
}

/// Imports what can be imported, looks at everything, changes a little where that is allowed,
/// exports.
fn visit(machine: &SimHost, mode: Option<(&str, &str)>, was_imported: &mut bool, seen: &mut Seen) {
    let run = machine.run(|host| {
        let house = House::new(host);
        look::commands(&house, seen);
        let properties: Vec<_> = mode.into_iter().collect();
        let imported = match house.import(None, &properties) {
            Ok(imported) => imported,
            Err(refusal) => {
                seen.errors.push(format!("import: {refusal}"));
                return;
            }
        };
        *was_imported |= !imported.pools.is_empty();
        let refused = imported.refused.iter().map(ToString::to_string);
        seen.errors.extend(refused.chain(imported.warnings));
        look::commands(&house, seen);
        look::files(&house, seen);
        match mode {
            Some(_) => export(&house, &imported.pools),
            None => change(host, house, &imported.pools, seen),
        }
    });
    run.expect("nobody cuts the power");
}

/// Changes a little, in a thread of its own: a pool that cannot be written any more lets writers
/// wait until the pool is given up.
fn change(host: &Host, house: House, pools: &[String], seen: &mut Seen) {
    let house = Arc::new(house);
    let is_done = Arc::new(AtomicBool::new(false));
    let (theirs, done) = (house.clone(), is_done.clone());
    let writer = host.spawn("writer", move || {
        let mut seen = Seen::default();
        look::change(&theirs, &mut seen);
        look::files(&theirs, &mut seen);
        done.store(true, Ordering::Relaxed);
        seen
    });
    let mut waits = 0;
    while !is_done.load(Ordering::Relaxed) {
        host.sleep(Duration::from_secs(10));
        waits += 1;
        assert!(waits < WAITS_MAX, "a few changes never end");
        let is_suspended = |name: &String| {
            let status = house.status(name);
            status.is_ok_and(|status| status.state == "SUSPENDED")
        };
        if pools.iter().any(is_suspended) {
            break;
        }
    }
    look::commands(&house, seen);
    export(&house, pools);
    seen.add(writer.join().unwrap_or_else(|panicked| panicked.resume()));
}

fn export(house: &House, pools: &[String]) {
    for name in pools {
        if let Err(refusal) = house.export(name, false)
            && house.status(name).is_ok()
            && let Err(forced) = house.export(name, true)
        {
            panic!("{name} cannot be exported: {refusal}; by force: {forced}");
        }
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without words".to_string())
}
