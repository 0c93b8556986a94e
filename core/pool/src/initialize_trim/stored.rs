//! What the MOS has of initializing and trimming: numbers in the ZAP of the leaf.

use crate::directory::Directory;
use crate::error::PoolError;
use crate::mos_writer::MosWriter;
use tarn_object::zap::ZapValue;
use tarn_ondisk::units::ObjectId;

/// What is done with free space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FreeSpaceWork {
    /// It is written for the first time.
    Initialize,
    /// The device is told that it is free.
    Trim,
}

impl FreeSpaceWork {
    /// Both.
    pub const ALL: [FreeSpaceWork; 2] = [FreeSpaceWork::Initialize, FreeSpaceWork::Trim];

    /// As the history names it.
    pub const fn name(self) -> &'static str {
        match self {
            FreeSpaceWork::Initialize => "initialize",
            FreeSpaceWork::Trim => "trim",
        }
    }

    /// The names of its numbers in the ZAP of a leaf.
    const fn names(self) -> Names {
        match self {
            FreeSpaceWork::Initialize => Names {
                next_offset: "com.delphix:next_offset_to_initialize",
                state: "com.delphix:vdev_initialize_state",
                action_time: "com.delphix:vdev_initialize_action_time",
            },
            FreeSpaceWork::Trim => Names {
                next_offset: "org.zfsonlinux:next_offset_to_trim",
                state: "org.zfsonlinux:vdev_trim_state",
                action_time: "org.zfsonlinux:vdev_trim_action_time",
            },
        }
    }
}

struct Names {
    /// From the start of the device.
    next_offset: &'static str,
    state: &'static str,
    /// Seconds since 1970.
    action_time: &'static str,
}

/// Names that only TRIM has.
const RATE: &str = "org.zfsonlinux:vdev_trim_rate";
const PARTIAL: &str = "org.zfsonlinux:vdev_trim_partial";
const SECURE: &str = "org.zfsonlinux:vdev_trim_secure";

/// Whether it goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[doc(alias("vdev_initializing_state_t", "vdev_trim_state_t"))]
pub enum WorkState {
    /// It was never begun, or that was forgotten.
    #[default]
    None,
    /// It goes on.
    Active,
    /// It was ended without the rest.
    Canceled,
    /// It was ended, to be started again.
    Suspended,
    /// It came to its end.
    Complete,
}

impl WorkState {
    /// As it is stored.
    const fn number(self) -> u64 {
        match self {
            WorkState::None => 0,
            WorkState::Active => 1,
            WorkState::Canceled => 2,
            WorkState::Suspended => 3,
            WorkState::Complete => 4,
        }
    }

    /// From what is stored. An unknown number is taken for none.
    const fn of_number(number: u64) -> WorkState {
        match number {
            1 => WorkState::Active,
            2 => WorkState::Canceled,
            3 => WorkState::Suspended,
            4 => WorkState::Complete,
            _ => WorkState::None,
        }
    }
}

/// The numbers in the ZAP of a leaf.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) state: WorkState,
    pub(crate) action_time_s: u64,
    /// Where it goes on, from the start of the device's window.
    pub(crate) next_offset: u64,
    /// Most bytes in a second; zero for no limit.
    pub(crate) rate: u64,
    /// Not zero: metaslabs that were never used are left out.
    pub(crate) partial: u64,
    /// Not zero: contents must not be recoverable.
    pub(crate) secure: u64,
}

impl Stored {
    /// Reads them. What lacks is zero.
    pub(crate) fn read(
        directory: Directory<'_>,
        zap: ObjectId,
        kind: FreeSpaceWork,
    ) -> Result<Stored, PoolError> {
        let number = |name: &str| -> Result<u64, PoolError> {
            let value = directory.value_in(zap, name)?;
            Ok(value.and_then(|value| value.as_word()).unwrap_or(0))
        };
        let names = kind.names();
        let state = WorkState::of_number(number(names.state)?);
        let common = Stored {
            state,
            action_time_s: number(names.action_time)?,
            next_offset: number(names.next_offset)?,
            ..Stored::default()
        };
        Ok(match kind {
            FreeSpaceWork::Initialize => common,
            FreeSpaceWork::Trim => Stored {
                rate: number(RATE)?,
                partial: number(PARTIAL)?,
                secure: number(SECURE)?,
                ..common
            },
        })
    }

    /// Writes them; removes those of what was never begun.
    pub(crate) fn write(
        &self,
        writer: MosWriter<'_>,
        zap: ObjectId,
        kind: FreeSpaceWork,
    ) -> Result<(), PoolError> {
        let names = kind.names();
        if self.state == WorkState::None {
            let all = [names.next_offset, names.state, names.action_time];
            return all
                .into_iter()
                .try_for_each(|name| writer.remove(zap, name));
        }
        let put = |name, number| writer.put(zap, name, &ZapValue::word(number));
        put(names.next_offset, self.next_offset)?;
        put(names.action_time, self.action_time_s)?;
        put(names.state, self.state.number())?;
        if kind == FreeSpaceWork::Trim {
            put(RATE, self.rate)?;
            put(PARTIAL, self.partial)?;
            put(SECURE, self.secure)?;
        }
        debug_assert_eq!(
            Stored::read(writer.directory(), zap, kind).ok(),
            Some(*self),
            "the ZAP has what was written"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_survive_as_numbers_and_unknown_ones_are_none() {
        for state in [
            WorkState::None,
            WorkState::Active,
            WorkState::Canceled,
            WorkState::Suspended,
            WorkState::Complete,
        ] {
            assert_eq!(WorkState::of_number(state.number()), state);
        }
        assert_eq!(WorkState::of_number(77), WorkState::None);
    }
}
