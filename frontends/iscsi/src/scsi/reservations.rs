//! Which commands the reservations of others refuse; RESERVE (6) and RELEASE (6).

use crate::scsi::codes;
use crate::scsi::logical_unit::{Done, LogicalUnit, Nexus, Outcome, Refused, Request, UnitState};
use crate::scsi::{Cdb, Sense};

/// How a command stands to reservations (SPC-4, table 65, and SBC-3, table 14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Allowed always.
    Free,
    /// Allowed where writing is excluded.
    Reads,
    /// Refused to others.
    Writes,
}

fn class_of(cdb: &Cdb) -> Class {
    use codes::*;
    match cdb[0] {
        INQUIRY
        | REPORT_LUNS
        | REQUEST_SENSE
        | READ_CAPACITY_10
        | PERSISTENT_RESERVE_IN
        | PERSISTENT_RESERVE_OUT
        | TEST_UNIT_READY
        | RESERVE_6
        | RELEASE_6
        | MAINTENANCE_IN => Class::Free,
        SERVICE_ACTION_IN_16 if cdb[1] & 0x1f == 0x10 => Class::Free,
        START_STOP_UNIT if cdb[4] & 0xf1 == 0x01 => Class::Free,
        // PREVENT of 0 takes nothing away.
        PREVENT_ALLOW_MEDIUM_REMOVAL if cdb[4] & 3 == 0 => Class::Free,
        SERVICE_ACTION_IN_16 | MODE_SENSE_6 | MODE_SENSE_10 | READ_6 | READ_10 | READ_12
        | READ_16 | VERIFY_10 | VERIFY_12 | VERIFY_16 | PRE_FETCH_10 | PRE_FETCH_16
        | READ_DEFECT_DATA_10 | READ_DEFECT_DATA_12 | RECEIVE_COPY_RESULTS => Class::Reads,
        _ => Class::Writes,
    }
}

impl UnitState {
    /// Whether a reservation refuses a command. Those of PERSISTENT RESERVE OUT are checked where
    /// it is carried out.
    pub fn conflicts(&self, request: &Request<'_>) -> bool {
        let code = request.cdb[0];
        if let Some(holder) = &self.reserved_by
            && holder != request.nexus
        {
            // RELEASE by another is no error and does nothing.
            return !matches!(
                code,
                codes::INQUIRY | codes::REPORT_LUNS | codes::REQUEST_SENSE | codes::RELEASE_6
            );
        }
        match class_of(request.cdb) {
            Class::Free => false,
            Class::Reads => self.persistent.registrations.excludes_reads(request.nexus),
            Class::Writes => self.persistent.registrations.excludes_writes(request.nexus),
        }
    }
}

impl LogicalUnit {
    /// RESERVE (6).
    pub(crate) fn reserve_6(&self, request: &Request<'_>) -> Outcome {
        self.old_reservation(request, |state, nexus| {
            state.reserved_by = Some(nexus.clone());
        })
    }

    /// RELEASE (6).
    pub(crate) fn release_6(&self, request: &Request<'_>) -> Outcome {
        self.old_reservation(request, |state, nexus| {
            if state.reserved_by.as_ref() == Some(nexus) {
                state.reserved_by = None;
            }
        })
    }

    fn old_reservation(
        &self,
        request: &Request<'_>,
        change: impl FnOnce(&mut UnitState, &Nexus),
    ) -> Outcome {
        // Third parties and extents are obsolete.
        if request.cdb[1] & 0x11 != 0 {
            return Err(Sense::bit_in_cdb(1, 4).into());
        }
        let mut state = self.state();
        // Without CRH both kinds exclude each other (SPC-4, 5.12.3).
        if !state.persistent.registrations.is_empty() {
            return Err(Refused::Conflict);
        }
        change(&mut state, request.nexus);
        Ok(Done::nothing())
    }
}
