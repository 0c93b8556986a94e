//! The targets: one file for each kind of structure.

mod attributes;
mod block_pointer;
mod dnode;
mod frames;
mod history;
mod intent_log;
mod iscsi;
mod label;
mod nbd;
mod nfs;
mod nvlist;
mod small;
mod space_map;
mod stream;
mod uberblock;
mod zap;

use crate::target::Target;

/// All targets.
pub const ALL: &[Target] = &[
    label::LABEL,
    iscsi::PDUS,
    iscsi::COMMANDS,
    iscsi::TEXT,
    label::PARTITIONS,
    nvlist::XDR,
    nvlist::NATIVE,
    uberblock::UBERBLOCK,
    block_pointer::BLOCK_POINTER,
    dnode::DNODE,
    zap::MICRO,
    zap::FAT,
    space_map::SPACE_MAP,
    intent_log::LOG_BLOCK,
    intent_log::LOG_RECORD,
    attributes::ATTRIBUTES,
    attributes::ZNODE,
    history::HISTORY,
    small::SMALL,
    stream::RECORD,
    frames::ZSTD,
    frames::LZ4,
    frames::LZJB,
    frames::ZLE,
    frames::GZIP,
    nbd::MESSAGES,
    nfs::RECORDS,
    nfs::CALLS,
    nfs::COMPOUNDS,
];

/// The target of this name.
pub fn find(name: &str) -> Option<&'static Target> {
    ALL.iter().find(|target| target.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_takes_nothing_and_zeros_and_ones() {
        for target in ALL {
            for bytes in [&[][..], &[0; 3000], &[0xff; 3000]] {
                (target.run)(bytes);
            }
        }
    }

    #[test]
    fn targets_have_names_of_their_own() {
        for target in ALL {
            assert_eq!(
                find(target.name).map(|found| found.about),
                Some(target.about)
            );
        }
    }
}
