//! PERSISTENT RESERVE IN and OUT: the commands, and saving what must survive (APTPL).
//!
//! A change is made to a copy of the registrations, saved where an initiator asked for that, and
//! only then in force: what was acknowledged with APTPL survives.

use crate::scsi::fields::{low_u32, put, to_usize, u16_at, u32_at, u64_at};
use crate::scsi::logical_unit::{
    Done, LogicalUnit, Outcome, Refused, Request, UnitEvent, refused_by,
};
use crate::scsi::registrations::{Kind, RegistrationError, Registrations, Told};
use crate::scsi::sense::codes as asc;
use crate::scsi::{Cdb, Sense, transport_ids};

/// Length of the parameter list but for REGISTER AND MOVE, in bytes.
const PARAMETER_BYTES: usize = 24;

/// Registrations, and whether they survive.
#[derive(Debug, Clone, Default)]
pub struct Persistent {
    /// Those in force.
    pub registrations: Registrations,
    /// The last registration had APTPL: changes are saved.
    is_saved: bool,
}

impl Persistent {
    /// What was saved for a volume.
    pub fn from_saved(text: Option<&str>, guid: u64) -> Persistent {
        let read = text.and_then(|text| Registrations::from_saved(text, guid));
        Persistent {
            is_saved: read.is_some(),
            registrations: read.unwrap_or_default(),
        }
    }
}

/// The service actions of PERSISTENT RESERVE OUT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Register,
    Reserve,
    Release,
    Clear,
    Preempt,
    PreemptAndAbort,
    RegisterAndIgnore,
    RegisterAndMove,
}

impl Action {
    fn of(cdb: &Cdb) -> Option<Action> {
        Some(match cdb[1] & 0x1f {
            0 => Action::Register,
            1 => Action::Reserve,
            2 => Action::Release,
            3 => Action::Clear,
            4 => Action::Preempt,
            5 => Action::PreemptAndAbort,
            6 => Action::RegisterAndIgnore,
            7 => Action::RegisterAndMove,
            _ => return None,
        })
    }
}

impl LogicalUnit {
    /// PERSISTENT RESERVE IN.
    pub(crate) fn persistent_reserve_in(&self, cdb: &Cdb) -> Outcome {
        let room = usize::from(u16_at(cdb, 7));
        let state = self.state();
        let all = &state.persistent.registrations;
        let bytes = match cdb[1] & 0x1f {
            0 => {
                let keys = all.iter().flat_map(|(_, key)| key.to_be_bytes());
                with_generation(all, keys.collect())
            }
            1 => {
                let reservation = all.held().map(|held| {
                    let mut bytes = vec![0; 16];
                    put(&mut bytes, 0, &all.key_of_holder().to_be_bytes());
                    bytes[13] = held.kind as u8;
                    bytes
                });
                with_generation(all, reservation.unwrap_or_default())
            }
            // PTPL_C; TMV, ALLOW COMMANDS 1, PTPL_A; all types.
            2 => {
                let active = u8::from(state.persistent.is_saved);
                vec![0, 8, 0x01, 0x90 | active, 0xea, 0x01, 0, 0]
            }
            3 => with_generation(all, full_status(all)),
            _ => return Err(Sense::bit_in_cdb(1, 4).into()),
        };
        Ok(Done::cut(bytes, room))
    }

    /// PERSISTENT RESERVE OUT.
    pub(crate) fn persistent_reserve_out(&self, request: &Request<'_>) -> Outcome {
        let (cdb, data, nexus) = (request.cdb, request.data, request.nexus);
        let action = Action::of(cdb).ok_or(Sense::bit_in_cdb(1, 4))?;
        let length = to_usize(u64::from(u32_at(cdb, 5)));
        let is_move = action == Action::RegisterAndMove;
        if length < PARAMETER_BYTES
            || data.len() < PARAMETER_BYTES
            || (!is_move && length != PARAMETER_BYTES)
        {
            return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR).into());
        }
        let flags = data[if is_move { 17 } else { 20 }];
        if !is_move && flags & 0x0c != 0 {
            // SPEC_I_PT, ALL_TG_PT: not among the capabilities.
            return Err(Sense::in_parameters(20).into());
        }
        let (key, new_key) = (u64_at(data, 0), u64_at(data, 8));
        let kind = Kind::from_number(cdb[2] & 0x0f);
        let has_scope = matches!(
            action,
            Action::Reserve | Action::Release | Action::Preempt | Action::PreemptAndAbort
        );
        if has_scope && cdb[2] >> 4 != 0 {
            return Err(Sense::in_cdb(2).into());
        }
        let mut state = self.state();
        if state.reserved_by.is_some() {
            return Err(Refused::Conflict);
        }
        let mut changed = state.persistent.clone();
        let all = &mut changed.registrations;
        let mut gone = Vec::new();
        let told = match action {
            Action::Register => all.register(nexus, Some(key), new_key),
            Action::RegisterAndIgnore => all.register(nexus, None, new_key),
            Action::Reserve => {
                let kind = kind.ok_or(Sense::in_cdb(2))?;
                all.reserve(nexus, key, kind)
            }
            Action::Release => all.release(nexus, key, kind),
            Action::Clear => all.clear(nexus, key),
            Action::Preempt | Action::PreemptAndAbort => {
                let preempted = all.preempt(nexus, key, new_key, kind);
                preempted.map(|(told, others)| {
                    gone = others;
                    told
                })
            }
            Action::RegisterAndMove => {
                let to = transport_ids::decode(&data[PARAMETER_BYTES..]);
                let to = to.ok_or(Sense::in_parameters(PARAMETER_BYTES))?;
                if to == *nexus || new_key == 0 {
                    return Err(Sense::in_parameters(8).into());
                }
                all.hand_over(nexus, key, (&to, new_key), flags & 2 == 0)
            }
        };
        let told = told.map_err(refused_registration)?;
        if matches!(
            action,
            Action::Register | Action::RegisterAndIgnore | Action::RegisterAndMove
        ) {
            changed.is_saved = flags & 1 != 0;
        }
        self.save(&state.persistent, &changed)?;
        state.persistent = changed;
        tell(&mut state, told);
        let mut done = Done::nothing();
        if action == Action::PreemptAndAbort {
            done.events = gone.into_iter().map(UnitEvent::Abort).collect();
        }
        Ok(done)
    }

    /// Has the volume keep what is about to be in force, or no longer.
    fn save(&self, before: &Persistent, after: &Persistent) -> Result<(), Refused> {
        let saved = match (before.is_saved, after.is_saved) {
            (_, true) => {
                let text = after.registrations.saved(self.identity.guid);
                self.storage.save_reservations(Some(&text))
            }
            (true, false) => self.storage.save_reservations(None),
            (false, false) => Ok(()),
        };
        saved.map_err(|error| refused_by(error, true))
    }
}

fn tell(state: &mut crate::scsi::logical_unit::UnitState, told: Told) {
    for (nexus, code) in told {
        state.tell_one(&nexus, code);
    }
}

fn refused_registration(error: RegistrationError) -> Refused {
    let sense = match error {
        RegistrationError::Conflict => return Refused::Conflict,
        RegistrationError::InvalidRelease => {
            Sense::illegal(asc::INVALID_RELEASE_OF_PERSISTENT_RESERVATION)
        }
        RegistrationError::NoRoom => Sense::illegal(asc::INSUFFICIENT_REGISTRATION_RESOURCES),
        RegistrationError::ZeroKey => Sense::in_parameters(8),
    };
    sense.into()
}

/// Parameter data: the generation, the length of what follows, and that.
fn with_generation(all: &Registrations, body: Vec<u8>) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    put(&mut bytes, 0, &all.generation.to_be_bytes());
    put(&mut bytes, 4, &low_u32(body.len()).to_be_bytes());
    bytes.extend(body);
    bytes
}

/// READ FULL STATUS: a descriptor for each registration.
fn full_status(all: &Registrations) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (nexus, key) in all.iter() {
        let mut head = [0; 24];
        put(&mut head, 0, &key.to_be_bytes());
        if let Some(held) = all.held().filter(|_| all.is_holder(nexus)) {
            head[12] = 1;
            head[13] = held.kind as u8;
        }
        put(&mut head, 18, &1_u16.to_be_bytes());
        let id = transport_ids::encode(nexus);
        put(&mut head, 20, &low_u32(id.len()).to_be_bytes());
        bytes.extend_from_slice(&head);
        bytes.extend(id);
    }
    bytes
}
