//! An uberblock as text.

use crate::out::Out;
use tarn_ondisk::uberblock::Uberblock;
use tarn_terminal::timestamp::ctime;

/// Shows the fields of an uberblock; from level 4 on its root twice, as OpenZFS does.
pub fn show(out: &mut Out, uberblock: &Uberblock, level: u32) {
    let seconds = i64::try_from(uberblock.timestamp_s).unwrap_or(i64::MAX);
    writeln!(out, "\tmagic = {:016x}", uberblock.magic);
    writeln!(out, "\tversion = {}", uberblock.version);
    writeln!(out, "\ttxg = {}", uberblock.txg);
    writeln!(out, "\tguid_sum = {}", uberblock.guid_sum);
    writeln!(
        out,
        "\ttimestamp = {} UTC = {}",
        uberblock.timestamp_s,
        ctime(seconds)
    );
    writeln!(out, "\tbp = {}", uberblock.root);
    writeln!(out, "\tmmp_magic = {:016x}", uberblock.multihost_magic);
    if let Some(multihost) = uberblock.multihost() {
        writeln!(out, "\tmmp_delay = {}", uberblock.multihost_delay_ns);
        if let Some(sequence) = multihost.sequence {
            writeln!(out, "\tmmp_seq = {sequence}");
        }
        if let Some(intervals) = multihost.fail_intervals {
            writeln!(out, "\tmmp_fail = {intervals}");
        }
        if let Some(interval) = multihost.interval_ms {
            writeln!(out, "\tmmp_write = {interval}");
        }
        writeln!(out, "\tmmp_valid = {:x}", uberblock.multihost_config & 0xff);
    }
    if level >= 4 {
        writeln!(out, "\trootbp = {}", uberblock.root);
    }
    writeln!(out, "\tcheckpoint_txg = {}", uberblock.checkpoint_txg);
    let reflow = uberblock.reflow();
    writeln!(
        out,
        "\traidz_reflow state={} off={}",
        reflow.state, reflow.offset_bytes
    );
}
