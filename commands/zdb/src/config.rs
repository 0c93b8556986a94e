//! `zdb -C`: the configurations in the MOS, the labels and the cache file.

use crate::options::Options;
use crate::out::Out;
use std::path::Path;
use tarn_engine::inspect::{InspectError, Inspection};
use tarn_host::Host;
use tarn_ondisk::nvlist::NvList;

/// Prints the cache file. Returns the exit code.
pub fn show_cache_file(out: &mut Out, host: &Host, path: &Path) -> u8 {
    let bytes = match host.read_file(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            writeln!(out, "cannot open '{}': {}", path.display(), error.errno);
            return 1;
        }
    };
    match NvList::decode(&bytes) {
        Ok(list) => write!(out, "{list}"),
        Err(_) => {
            out.complain("failed to unpack nvlist");
            return 1;
        }
    }
    0
}

/// Prints the configuration of an open pool; from `-CC` on also the one by which it was found.
pub fn show(out: &mut Out, options: &Options, inspection: &Inspection) -> Result<(), InspectError> {
    if options.level('C') > 1 {
        let title = match options.has('e') {
            true => "Configuration for import",
            false => "Cached configuration",
        };
        write!(out, "\n{title}:\n{}", inspection.found_as().indented(8));
    }
    write!(
        out,
        "\nMOS Configuration:\n{}",
        inspection.configuration()?.indented(8)
    );
    Ok(())
}
