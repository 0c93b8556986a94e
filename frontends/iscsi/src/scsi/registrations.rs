//! Persistent reservations as a state: who is registered with which key, and who holds what.
//!
//! # Mechanism
//! The rules of SPC-4 (5.12) for one unit, without commands, locks or storage. A change says which
//! initiators must be told what ([`Told`]).
//!
//! # As it is saved
//! Text with a line for all and one for each registration: `1 GUID GENERATION`, then
//! `KEY HOLDER NAME`, where HOLDER is `-` or the type of the reservation. A volume that was cloned
//! or received has another guid, and ignores what it inherited.

use crate::scsi::logical_unit::Nexus;
use crate::scsi::sense::{Code, codes as asc};
use std::collections::BTreeMap;

/// Most registrations of one unit, and how many bytes of text they may take: what a property of a
/// dataset can hold is 8 KiB.
const REGISTRATIONS_MAX: usize = 64;
const SAVED_BYTES_MAX: usize = 8000;

/// The types of persistent reservations (SPC-4, table 60).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Others may not write.
    WriteExclusive = 1,
    /// Others may not read or write.
    ExclusiveAccess = 3,
    /// Those that are not registered may not write.
    WriteExclusiveRegistrants = 5,
    /// Those that are not registered may not read or write.
    ExclusiveAccessRegistrants = 6,
    /// The same, and all that are registered hold it.
    WriteExclusiveAll = 7,
    /// The same, and all that are registered hold it.
    ExclusiveAccessAll = 8,
}

impl Kind {
    /// By its number.
    pub fn from_number(number: u8) -> Option<Kind> {
        Some(match number {
            1 => Kind::WriteExclusive,
            3 => Kind::ExclusiveAccess,
            5 => Kind::WriteExclusiveRegistrants,
            6 => Kind::ExclusiveAccessRegistrants,
            7 => Kind::WriteExclusiveAll,
            8 => Kind::ExclusiveAccessAll,
            _ => return None,
        })
    }

    fn excludes_reads(self) -> bool {
        matches!(
            self,
            Kind::ExclusiveAccess | Kind::ExclusiveAccessRegistrants | Kind::ExclusiveAccessAll
        )
    }

    /// All that are registered may do as the holder.
    fn lets_registrants(self) -> bool {
        !matches!(self, Kind::WriteExclusive | Kind::ExclusiveAccess)
    }

    /// All that are registered hold it.
    pub fn is_of_all(self) -> bool {
        matches!(self, Kind::WriteExclusiveAll | Kind::ExclusiveAccessAll)
    }
}

/// A reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// By whom; the one that made it, where all that are registered hold it.
    pub by: Nexus,
    /// Its type.
    pub kind: Kind,
}

/// What initiators must hear.
pub type Told = Vec<(Nexus, Code)>;

/// Why a change is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistrationError {
    /// RESERVATION CONFLICT.
    Conflict,
    /// INVALID RELEASE OF PERSISTENT RESERVATION.
    InvalidRelease,
    /// INSUFFICIENT REGISTRATION RESOURCES.
    NoRoom,
    /// The service action key is zero where it means nothing.
    ZeroKey,
}

/// Registrations and the reservation of one unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registrations {
    /// PRGENERATION.
    pub generation: u32,
    keys: BTreeMap<Nexus, u64>,
    held: Option<Held>,
}

impl Registrations {
    /// No initiator is registered.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// All with their keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Nexus, u64)> {
        self.keys.iter().map(|(nexus, key)| (nexus, *key))
    }

    /// The reservation.
    pub fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    /// The key that READ RESERVATION tells: none where all hold it.
    pub fn key_of_holder(&self) -> u64 {
        match &self.held {
            Some(held) if !held.kind.is_of_all() => self.keys.get(&held.by).copied().unwrap_or(0),
            _ => 0,
        }
    }

    /// Whether this initiator holds the reservation.
    pub fn is_holder(&self, nexus: &Nexus) -> bool {
        self.held
            .as_ref()
            .is_some_and(|held| match held.kind.is_of_all() {
                true => self.keys.contains_key(nexus),
                false => held.by == *nexus,
            })
    }

    /// Whether it may not read.
    pub fn excludes_reads(&self, nexus: &Nexus) -> bool {
        let held = self.held.as_ref();
        held.is_some_and(|held| held.kind.excludes_reads()) && self.excludes_writes(nexus)
    }

    /// Whether it may not write.
    pub fn excludes_writes(&self, nexus: &Nexus) -> bool {
        self.held.as_ref().is_some_and(|held| {
            let may = held.kind.lets_registrants() && self.keys.contains_key(nexus);
            !may && !self.is_holder(nexus)
        })
    }

    /// REGISTER, and REGISTER AND IGNORE EXISTING KEY where no key is expected.
    pub fn register(
        &mut self,
        nexus: &Nexus,
        expected: Option<u64>,
        key: u64,
    ) -> Result<Told, RegistrationError> {
        let current = self.keys.get(nexus).copied();
        if expected.is_some_and(|expected| expected != current.unwrap_or(0)) {
            return Err(RegistrationError::Conflict);
        }
        let mut told = Vec::new();
        match (current, key) {
            (None, 0) => {}
            (Some(_), 0) => told = self.unregister(nexus),
            _ => self.insert(nexus, key)?,
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(told)
    }

    fn insert(&mut self, nexus: &Nexus, key: u64) -> Result<(), RegistrationError> {
        let before = self.keys.insert(nexus.clone(), key);
        let is_too_much =
            self.keys.len() > REGISTRATIONS_MAX || self.saved(u64::MAX).len() > SAVED_BYTES_MAX;
        if before.is_none() && is_too_much {
            self.keys.remove(nexus);
            return Err(RegistrationError::NoRoom);
        }
        Ok(())
    }

    /// Takes one out, and with it the reservation that it alone holds.
    fn unregister(&mut self, nexus: &Nexus) -> Told {
        self.keys.remove(nexus);
        let Some(held) = self.held.clone() else {
            return Vec::new();
        };
        let ends = match held.kind.is_of_all() {
            true => self.keys.is_empty(),
            false => held.by == *nexus,
        };
        match ends {
            true => self.end_reservation(held.kind, nexus),
            false => Vec::new(),
        }
    }

    /// Ends the reservation. Others that it let in are told.
    fn end_reservation(&mut self, kind: Kind, by: &Nexus) -> Told {
        self.held = None;
        match kind.lets_registrants() {
            true => self.others(by, asc::RESERVATIONS_RELEASED),
            false => Vec::new(),
        }
    }

    fn others(&self, but: &Nexus, code: Code) -> Told {
        let others = self.keys.keys().filter(|nexus| *nexus != but);
        others.map(|nexus| (nexus.clone(), code)).collect()
    }

    fn require(&self, nexus: &Nexus, key: u64) -> Result<(), RegistrationError> {
        match self.keys.get(nexus) == Some(&key) {
            true => Ok(()),
            false => Err(RegistrationError::Conflict),
        }
    }

    /// RESERVE.
    pub fn reserve(
        &mut self,
        nexus: &Nexus,
        key: u64,
        kind: Kind,
    ) -> Result<Told, RegistrationError> {
        self.require(nexus, key)?;
        match &self.held {
            None => {
                self.held = Some(Held {
                    by: nexus.clone(),
                    kind,
                });
                Ok(Vec::new())
            }
            Some(held) if self.is_holder(nexus) && held.kind == kind => Ok(Vec::new()),
            Some(_) => Err(RegistrationError::Conflict),
        }
    }

    /// RELEASE.
    pub fn release(
        &mut self,
        nexus: &Nexus,
        key: u64,
        kind: Option<Kind>,
    ) -> Result<Told, RegistrationError> {
        self.require(nexus, key)?;
        match &self.held {
            Some(held) if self.is_holder(nexus) => match Some(held.kind) == kind {
                true => {
                    let kind = held.kind;
                    Ok(self.end_reservation(kind, nexus))
                }
                false => Err(RegistrationError::InvalidRelease),
            },
            _ => Ok(Vec::new()),
        }
    }

    /// CLEAR.
    pub fn clear(&mut self, nexus: &Nexus, key: u64) -> Result<Told, RegistrationError> {
        self.require(nexus, key)?;
        let told = self.others(nexus, asc::RESERVATIONS_PREEMPTED);
        self.keys.clear();
        self.held = None;
        self.generation = self.generation.wrapping_add(1);
        Ok(told)
    }

    /// PREEMPT: takes out those that have `victim` as their key, and takes over the reservation if
    /// one of them holds it.
    pub fn preempt(
        &mut self,
        nexus: &Nexus,
        key: u64,
        victim: u64,
        kind: Option<Kind>,
    ) -> Result<(Told, Vec<Nexus>), RegistrationError> {
        self.require(nexus, key)?;
        let is_of_all = self.held.as_ref().is_some_and(|held| held.kind.is_of_all());
        if victim == 0 && !is_of_all {
            return Err(RegistrationError::ZeroKey);
        }
        let is_holder_meant = match &self.held {
            Some(held) if held.kind.is_of_all() => victim == 0,
            Some(held) => self.keys.get(&held.by) == Some(&victim),
            None => false,
        };
        let is_meant = |other: &Nexus, its: u64| match victim {
            0 => other != nexus,
            _ => its == victim,
        };
        let meant: Vec<Nexus> = self
            .iter()
            .filter(|(other, its)| is_meant(other, *its))
            .map(|(other, _)| other.clone())
            .collect();
        if meant.is_empty() && !is_holder_meant {
            return Err(RegistrationError::Conflict);
        }
        let kind = match (is_holder_meant, kind) {
            (true, None) => return Err(RegistrationError::ZeroKey),
            (true, kind) => kind,
            (false, _) => None,
        };
        // One that takes over with its own key stays registered.
        let gone: Vec<Nexus> = meant
            .into_iter()
            .filter(|other| kind.is_none() || other != nexus)
            .collect();
        let mut told: Told = Vec::new();
        for other in &gone {
            told.extend(self.unregister(other));
            if other != nexus {
                told.push((other.clone(), asc::REGISTRATIONS_PREEMPTED));
            }
        }
        if let Some(kind) = kind {
            let before = self.held.replace(Held {
                by: nexus.clone(),
                kind,
            });
            if before.is_some_and(|before| before.kind != kind) {
                told.extend(self.others(nexus, asc::RESERVATIONS_RELEASED));
            }
        }
        self.generation = self.generation.wrapping_add(1);
        Ok((
            told,
            gone.into_iter().filter(|other| other != nexus).collect(),
        ))
    }

    /// REGISTER AND MOVE: the holder gives the reservation to another.
    pub fn hand_over(
        &mut self,
        nexus: &Nexus,
        key: u64,
        to: (&Nexus, u64),
        stays: bool,
    ) -> Result<Told, RegistrationError> {
        self.require(nexus, key)?;
        let held = self.held.clone();
        let held = held.filter(|held| !held.kind.is_of_all() && held.by == *nexus);
        let held = held.ok_or(RegistrationError::Conflict)?;
        self.insert(to.0, to.1)?;
        self.held = Some(Held {
            by: to.0.clone(),
            kind: held.kind,
        });
        if !stays {
            self.keys.remove(nexus);
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(Vec::new())
    }

    /// As text, for the unit of this guid.
    pub fn saved(&self, guid: u64) -> String {
        let mut text = format!("1 {guid:x} {:x}", self.generation);
        for (nexus, key) in self.iter() {
            let held = self.held.as_ref().filter(|held| held.by == *nexus);
            let kind = held.map_or("-".to_string(), |held| (held.kind as u8).to_string());
            text.push_str(&format!("\n{key:x} {kind} {}", nexus.0));
        }
        text
    }

    /// What was saved for the unit of this guid; none if it is another's, or no such text.
    pub fn from_saved(text: &str, guid: u64) -> Option<Registrations> {
        let mut lines = text.split_terminator('\n');
        let mut head = lines.next()?.split(' ');
        if head.next()? != "1" || u64::from_str_radix(head.next()?, 16).ok()? != guid {
            return None;
        }
        let generation = u32::from_str_radix(head.next()?, 16).ok()?;
        let mut read = Registrations {
            generation,
            ..Registrations::default()
        };
        for line in lines {
            let mut words = line.splitn(3, ' ');
            let key = u64::from_str_radix(words.next()?, 16).ok()?;
            let kind = words.next()?;
            let nexus = Nexus(words.next()?.to_string());
            if kind != "-" {
                let kind = Kind::from_number(kind.parse().ok()?)?;
                read.held = Some(Held {
                    by: nexus.clone(),
                    kind,
                });
            }
            read.keys.insert(nexus, key);
        }
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nexus(name: &str) -> Nexus {
        Nexus(format!("iqn.2026-01.example:{name},i,0x123"))
    }

    fn two() -> (Registrations, Nexus, Nexus) {
        let (a, b) = (nexus("a"), nexus("b"));
        let mut all = Registrations::default();
        all.register(&a, Some(0), 1).unwrap();
        all.register(&b, Some(0), 2).unwrap();
        (all, a, b)
    }

    #[test]
    fn a_key_that_is_not_the_own_one_changes_nothing() {
        let (mut all, a, _) = two();
        let before = all.clone();
        let conflict = Err(RegistrationError::Conflict);
        assert_eq!(all.register(&a, Some(9), 3), conflict);
        assert_eq!(all.reserve(&a, 9, Kind::WriteExclusive), conflict);
        assert_eq!(all.clear(&a, 9), conflict);
        assert_eq!(all, before);
        all.register(&a, None, 3).unwrap();
        assert_eq!(all.reserve(&a, 3, Kind::WriteExclusive), Ok(vec![]));
    }

    #[test]
    fn each_type_lets_in_what_it_should() {
        let stranger = nexus("c");
        for (kind, other_writes, stranger_reads) in [
            (Kind::WriteExclusive, false, true),
            (Kind::ExclusiveAccess, false, false),
            (Kind::WriteExclusiveRegistrants, true, true),
            (Kind::ExclusiveAccessRegistrants, true, false),
            (Kind::WriteExclusiveAll, true, true),
            (Kind::ExclusiveAccessAll, true, false),
        ] {
            let (mut all, a, b) = two();
            all.reserve(&a, 1, kind).unwrap();
            assert!(!all.excludes_writes(&a));
            assert_eq!(!all.excludes_writes(&b), other_writes, "{kind:?}");
            assert_eq!(!all.excludes_reads(&stranger), stranger_reads, "{kind:?}");
            assert!(all.excludes_writes(&stranger));
            assert_eq!(all.is_holder(&b), kind.is_of_all());
        }
    }

    #[test]
    fn preempting_the_holder_takes_its_reservation_over() {
        let (mut all, a, b) = two();
        all.reserve(&a, 1, Kind::ExclusiveAccess).unwrap();
        let (told, gone) = all.preempt(&b, 2, 1, Some(Kind::WriteExclusive)).unwrap();
        assert_eq!(told, [(a.clone(), asc::REGISTRATIONS_PREEMPTED)]);
        assert_eq!(gone, [a]);
        assert!(all.is_holder(&b));
        assert_eq!(all.iter().len(), 1);
    }

    #[test]
    fn what_is_saved_comes_back_for_the_same_volume_only() {
        let (mut all, a, _) = two();
        all.reserve(&a, 1, Kind::WriteExclusiveRegistrants).unwrap();
        let text = all.saved(7);
        assert_eq!(Registrations::from_saved(&text, 7), Some(all));
        assert_eq!(Registrations::from_saved(&text, 8), None);
        assert_eq!(Registrations::from_saved("1 7 x", 7), None);
        assert_eq!(Registrations::from_saved("", 7), None);
    }

    #[test]
    fn registrations_have_a_bound() {
        let mut all = Registrations::default();
        let refused = (0..200).find(|number| {
            let nexus = nexus(&format!("{number}{}", "x".repeat(200)));
            all.register(&nexus, Some(0), 5).is_err()
        });
        assert!(refused.is_some_and(|count| count > 10));
        assert!(all.saved(u64::MAX).len() <= SAVED_BYTES_MAX);
    }
}
