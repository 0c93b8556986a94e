//! The properties of an open volume.
//!
//! Threads look at them with each request: all are in one byte, which is read without a lock.

use std::sync::atomic::{AtomicU8, Ordering};

use tarn_zil::{LogBias, SyncPolicy};

/// The properties that matter to an open volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeProperties {
    /// `readonly`.
    pub is_read_only: bool,
    /// `sync`.
    pub sync: SyncPolicy,
    /// `logbias`.
    pub log_bias: LogBias,
}

impl Default for VolumeProperties {
    fn default() -> VolumeProperties {
        VolumeProperties {
            is_read_only: false,
            sync: SyncPolicy::Standard,
            log_bias: LogBias::Latency,
        }
    }
}

const READ_ONLY: u8 = 1 << 0;
const THROUGHPUT: u8 = 1 << 1;
const SYNC_SHIFT: u32 = 2;
const SYNC_ALWAYS: u8 = 1 << SYNC_SHIFT;
const SYNC_DISABLED: u8 = 2 << SYNC_SHIFT;
const SYNC: u8 = 3 << SYNC_SHIFT;

/// Properties that change as a whole.
pub(crate) struct PackedProperties(AtomicU8);

impl PackedProperties {
    pub(crate) fn new(properties: VolumeProperties) -> PackedProperties {
        PackedProperties(AtomicU8::new(pack(properties)))
    }

    pub(crate) fn load(&self) -> VolumeProperties {
        unpack(self.0.load(Ordering::Acquire))
    }

    /// Gives those before.
    pub(crate) fn swap(&self, properties: VolumeProperties) -> VolumeProperties {
        unpack(self.0.swap(pack(properties), Ordering::AcqRel))
    }
}

fn pack(properties: VolumeProperties) -> u8 {
    let read_only = if properties.is_read_only {
        READ_ONLY
    } else {
        0
    };
    let bias = match properties.log_bias {
        LogBias::Latency => 0,
        LogBias::Throughput => THROUGHPUT,
    };
    let sync = match properties.sync {
        SyncPolicy::Standard => 0,
        SyncPolicy::Always => SYNC_ALWAYS,
        SyncPolicy::Disabled => SYNC_DISABLED,
    };
    let packed = read_only | bias | sync;
    debug_assert_eq!(
        unpack(packed),
        properties,
        "each set of properties has its byte"
    );
    packed
}

fn unpack(packed: u8) -> VolumeProperties {
    VolumeProperties {
        is_read_only: packed & READ_ONLY != 0,
        sync: match packed & SYNC {
            SYNC_ALWAYS => SyncPolicy::Always,
            SYNC_DISABLED => SyncPolicy::Disabled,
            _ => SyncPolicy::Standard,
        },
        log_bias: match packed & THROUGHPUT {
            0 => LogBias::Latency,
            _ => LogBias::Throughput,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_of_properties_comes_back() {
        let mut before = VolumeProperties::default();
        let packed = PackedProperties::new(before);
        for is_read_only in [false, true] {
            for sync in [
                SyncPolicy::Standard,
                SyncPolicy::Always,
                SyncPolicy::Disabled,
            ] {
                for log_bias in [LogBias::Latency, LogBias::Throughput] {
                    let properties = VolumeProperties {
                        is_read_only,
                        sync,
                        log_bias,
                    };
                    assert_eq!(packed.swap(properties), before);
                    assert_eq!(packed.load(), properties);
                    before = properties;
                }
            }
        }
    }
}
