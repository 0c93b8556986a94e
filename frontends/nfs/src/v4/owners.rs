//! Version 4.0: owners of opens and of locks, and the last operation of each: [`owner_turns`] has
//! the theory.
//!
//! [`owner_turns`]: super::owner_turns

use super::operation;
use super::status::Status;
use std::time::Instant;

/// The bytes of a state's id beside its number of changes.
pub(crate) type StateKey = [u8; 12];

/// What an owner owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owned {
    Opens,
    Locks,
}

/// An owner: the client, and its name for the owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OwnerKey {
    pub(crate) client: u64,
    pub(crate) owned: Owned,
    pub(crate) name: Vec<u8>,
}

/// What is known of an owner.
pub(crate) struct Owner {
    /// The number of the last operation.
    pub(crate) sequence: Option<u32>,
    pub(crate) is_confirmed: bool,
    pub(crate) is_busy: bool,
    pub(crate) last: Option<Kept>,
    /// The open that the last operation closed.
    pub(crate) closed: Option<StateKey>,
    pub(crate) used: Instant,
}

/// The result of an operation, from its status on.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) operation: u32,
    pub(crate) status: Status,
    pub(crate) result: Vec<u8>,
    /// The handle of the file that an `OPEN` made the current one.
    pub(crate) handle: Option<Vec<u8>>,
}

/// An operation of an owner that is being carried out.
pub(crate) struct Turn {
    pub(crate) owner: OwnerKey,
    pub(crate) sequence: u32,
}

/// What an operation leaves for its repetition.
#[derive(Default)]
pub(crate) struct Ending {
    pub(crate) handle: Option<Vec<u8>>,
    /// The open that it closes.
    pub(crate) closed: Option<StateKey>,
}

impl Owner {
    pub(crate) fn new() -> Owner {
        Owner {
            sequence: None,
            is_confirmed: false,
            is_busy: false,
            last: None,
            closed: None,
            used: Instant::now(),
        }
    }

    /// Begins an operation, or gives the result of the same one.
    pub(crate) fn begin(
        &mut self,
        owned: Owned,
        number: u32,
        sequence: u32,
    ) -> Result<Option<Kept>, Status> {
        if self.is_busy {
            return Err(Status::RESOURCE);
        }
        let is_new_owner = owned == Owned::Opens && number == operation::OPEN && !self.is_confirmed;
        match self.sequence {
            Some(last) if sequence == last => {
                let same = self.last.clone().filter(|kept| kept.operation == number);
                return same.map(Some).ok_or(Status::BAD_SEQID);
            }
            Some(last) if sequence == last.wrapping_add(1) => {}
            Some(_) if is_new_owner => {}
            Some(_) => return Err(Status::BAD_SEQID),
            None => {}
        }
        self.is_busy = true;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Owned::{Locks, Opens};

    fn done(owner: &mut Owner, number: u32, sequence: u32) {
        owner.is_busy = false;
        owner.sequence = Some(sequence);
        owner.last = Some(Kept {
            operation: number,
            status: Status::OK,
            result: vec![0; 4],
            handle: None,
        });
    }

    #[test]
    fn an_operation_is_carried_out_once_and_in_its_order() {
        let mut owner = Owner::new();
        assert!(owner.begin(Locks, operation::LOCK, 7).unwrap().is_none());
        let busy = owner.begin(Locks, operation::LOCK, 7);
        assert_eq!(busy.unwrap_err(), Status::RESOURCE);
        done(&mut owner, operation::LOCK, 7);
        let again = owner.begin(Locks, operation::LOCK, 7).unwrap().unwrap();
        assert_eq!((again.status, again.result), (Status::OK, vec![0; 4]));
        for (number, sequence) in [(operation::LOCKU, 7), (operation::LOCK, 9), (1, 6)] {
            let wrong = owner.begin(Locks, number, sequence);
            assert_eq!(wrong.unwrap_err(), Status::BAD_SEQID);
        }
        assert!(owner.begin(Locks, operation::LOCKU, 8).unwrap().is_none());
        done(&mut owner, operation::LOCKU, u32::MAX);
        assert!(owner.begin(Locks, operation::LOCK, 0).unwrap().is_none());
    }

    #[test]
    fn an_owner_that_is_not_confirmed_begins_anew_with_any_number() {
        let mut owner = Owner::new();
        done(&mut owner, operation::OPEN, 3);
        let close = owner.begin(Opens, operation::CLOSE, 9);
        assert_eq!(close.unwrap_err(), Status::BAD_SEQID);
        assert!(owner.begin(Opens, operation::OPEN, 9).unwrap().is_none());
        done(&mut owner, operation::OPEN, 9);
        owner.is_confirmed = true;
        let open = owner.begin(Opens, operation::OPEN, 3);
        assert_eq!(open.unwrap_err(), Status::BAD_SEQID);
    }
}
