//! How long a simulated disk takes: an SSD of no great speed, or a disk with arms that move.

/// A disk with one arm, or an array of several that looks like one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskModel {
    /// How long an arm takes to get to another place, in nanoseconds.
    pub seek_ns: u64,
    /// How fast an arm moves bytes.
    pub bytes_per_second: u64,
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
        arms: 1,
    };

    fn transfer_ns(&self, length: u64) -> u64 {
        length.saturating_mul(1_000_000_000) / self.bytes_per_second.max(1)
    }
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
}

impl Arms {
    pub(super) fn new(model: DiskModel) -> Arms {
        let arms = usize::try_from(model.arms.max(1)).expect("few arms");
        Arms {
            model,
            arms: vec![Arm::default(); arms],
        }
    }

    /// When a request begins that comes now, and how long it takes. A request of several stripes is
    /// done by the arm of its first.
    pub(super) fn serve(&mut self, offset: u64, length: u64, now_ns: u64) -> (u64, u64) {
        let stripe = offset / DiskModel::STRIPE_BYTES;
        let arms = u64::try_from(self.arms.len()).expect("few arms");
        let index = usize::try_from(stripe % arms).expect("few arms");
        let arm = &mut self.arms[index];
        let begin_ns = arm.busy_until_ns.max(now_ns);
        let seek_ns = match arm.end == offset {
            true => 0,
            false => self.model.seek_ns,
        };
        let service_ns = seek_ns + self.model.transfer_ns(length);
        *arm = Arm {
            busy_until_ns: begin_ns + service_ns,
            end: offset + length,
        };
        (begin_ns, service_ns)
    }
}
