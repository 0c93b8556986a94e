//! How long a simulated disk takes: an SSD of no great speed, or a disk with arms that move.
//!
//! # Mechanism
//! A request that lies where the arm is takes as long as its bytes. Any other makes the arm move,
//! but for one that lies a little ahead and is known before the arm gets there: what is between
//! passes under the head, as long as that is shorter ([`DiskModel::passes_over`]).

/// A disk with one arm, or an array of several that looks like one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskModel {
    /// How long an arm takes to get to another place, in nanoseconds.
    pub seek_ns: u64,
    /// How fast an arm moves bytes.
    pub bytes_per_second: u64,
    /// Whether what lies a little ahead is reached without moving an arm: the bytes between pass
    /// under the head, if the request was known before.
    pub passes_over: bool,
    /// How many arms there are. Pieces of [`DiskModel::STRIPE_BYTES`] are dealt out to them.
    pub arms: u32,
}

impl DiskModel {
    /// What lies on one arm before the next one's part begins, in bytes.
    pub const STRIPE_BYTES: u64 = 1 << 20;

    /// A disk that turns: 8 ms to get anywhere, 150 MB/s.
    pub const ROTATING: DiskModel = DiskModel {
        seek_ns: 8_000_000,
        bytes_per_second: 150_000_000,
        passes_over: true,
        arms: 1,
    };

    fn transfer_ns(&self, length: u64) -> u64 {
        length.saturating_mul(1_000_000_000) / self.bytes_per_second.max(1)
    }
}

/// What the arms of a disk have done, in nanoseconds of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArmUse {
    /// How often an arm moved.
    pub seeks: u64,
    /// How long arms moved.
    pub seek_ns: u64,
    /// How long bytes passed under a head that nothing had asked for.
    pub passed_ns: u64,
    /// How long bytes were read or written.
    pub transfer_ns: u64,
}

/// An arm: until when it is busy, and where it is then.
#[derive(Clone, Copy, Debug, Default)]
struct Arm {
    busy_until_ns: u64,
    end: u64,
}

/// The arms of a disk with a model.
#[derive(Debug)]
pub(super) struct Arms {
    model: DiskModel,
    arms: Vec<Arm>,
    so_far: ArmUse,
}

impl Arms {
    pub(super) fn new(model: DiskModel) -> Arms {
        let arms = usize::try_from(model.arms.max(1)).expect("few arms");
        Arms {
            model,
            arms: vec![Arm::default(); arms],
            so_far: ArmUse::default(),
        }
    }

    pub(super) fn use_so_far(&self) -> ArmUse {
        self.so_far
    }

    /// When a request begins that comes now, and how long it takes. A request of several stripes is
    /// done by the arm of its first.
    pub(super) fn serve(&mut self, offset: u64, length: u64, now_ns: u64) -> (u64, u64) {
        let stripe = offset / DiskModel::STRIPE_BYTES;
        let arms = u64::try_from(self.arms.len()).expect("few arms");
        let index = usize::try_from(stripe % arms).expect("few arms");
        let arm = &mut self.arms[index];
        let begin_ns = arm.busy_until_ns.max(now_ns);
        let ahead = offset.checked_sub(arm.end);
        let ahead_ns = ahead.map(|ahead| self.model.transfer_ns(ahead));
        let is_known = self.model.passes_over && now_ns <= arm.busy_until_ns;
        let moved_ns = match ahead_ns.filter(|ahead_ns| is_known || *ahead_ns == 0) {
            Some(ahead_ns) if ahead_ns < self.model.seek_ns => {
                self.so_far.passed_ns += ahead_ns;
                ahead_ns
            }
            _ => {
                self.so_far.seeks += 1;
                self.so_far.seek_ns += self.model.seek_ns;
                self.model.seek_ns
            }
        };
        let transfer_ns = self.model.transfer_ns(length);
        self.so_far.transfer_ns += transfer_ns;
        let service_ns = moved_ns + transfer_ns;
        *arm = Arm {
            busy_until_ns: begin_ns + service_ns,
            end: offset + length,
        };
        (begin_ns, service_ns)
    }
}
