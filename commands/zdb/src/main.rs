//! The `zdb` command: prints the structures of a pool without changing it.
//!
//! It asks no daemon. The engine's [`tarn_engine::inspect`] opens the devices read-only in this
//! process: for exported pools, for damaged ones as far as they can be read, and for pools in use
//! as of the moment. The output is that of OpenZFS 2.3's `zdb`, to the letter.
//!
//! # Map
//! - `options`, `usage`: the command line; `out`: standard output
//! - `label`, `uberblock`: labels and uberblocks
//! - `pool`: the parts of a pool in the order of printing; `look`: what all parts need
//! - `set`, `object`, `viewer`, `zap_view`, `znode`, `intent_log`: object sets and their contents
//! - `metaslab` reads space maps, independently of the allocator; `metaslab_view` prints them;
//!   `dtl`: dirty time logs
//! - `census` counts and claims all blocks, with `references`; `blocks` prints the result
//! - `features`, `mos_leaks`: checks of stored counts and of the MOS's objects
//! - `checkpoint`, `config`, `dedup`, `history`: the rest; `pointer`: block pointers and histograms
//!   as text

mod blocks;
mod cache_device;
mod census;
mod checkpoint;
mod config;
mod dedup;
mod dtl;
mod features;
mod history;
mod intent_log;
mod label;
mod look;
mod metaslab;
mod metaslab_view;
mod mos_leaks;
mod object;
mod options;
mod out;
mod pointer;
mod pool;
mod references;
mod set;
mod uberblock;
mod usage;
mod viewer;
mod zap_view;
mod znode;

use look::Look;
use options::{BadUsage, Options};
use out::Out;
use tarn_engine::inspect::{InspectError, Inspection, Source};
use tarn_host::{Host, RealOptions};

/// The exit code for a wrong command line.
const EXIT_USAGE: u8 = 1;

fn main() -> std::process::ExitCode {
    let mut out = Out::new();
    let code = run(&mut out);
    out.flush();
    std::process::ExitCode::from(code)
}

fn run(out: &mut Out) -> u8 {
    let options = match Options::parse(std::env::args_os().skip(1)) {
        Ok(options) => options,
        Err(BadUsage::Usage(text)) => return refuse_usage(out, &text),
        Err(BadUsage::NotBuilt(option)) => {
            out.complain(format_args!(
                "zdb: option '{option}' is not built in this version"
            ));
            return 1;
        }
    };
    let host_options = match RealOptions::from_environment() {
        Ok(options) => options,
        Err(error) => {
            out.complain(format_args!("zdb: {error}"));
            return 1;
        }
    };
    let host = Host::real(host_options);
    match look(out, &options, &host) {
        Ok(code) => code,
        Err(error) => {
            out.complain(format_args!("zdb: {error}"));
            1
        }
    }
}

/// Prints what the options choose.
fn look(out: &mut Out, options: &Options, host: &Host) -> Result<u8, InspectError> {
    let source = match (&options.cache_file, options.has('e')) {
        (_, true) => {
            let places = options.places.iter();
            Source::Places(places.map(|place| host.resolve(place)).collect())
        }
        (Some(path), false) => Source::CacheFile(path.clone()),
        (None, false) => Source::of_instance()?,
    };
    let Some(target) = options.operands.first() else {
        return match &source {
            Source::CacheFile(path) if options.has('C') => {
                Ok(config::show_cache_file(out, host, path))
            }
            _ => Ok(refuse_usage(out, "")),
        };
    };
    if options.has('l') {
        return Ok(label::show(out, options, host, target));
    }
    let pool_name = target.split(['/', '@', '#']).next().unwrap_or_default();
    let inspection = match options.has('k') {
        true => Inspection::open_checkpoint(host, &source, pool_name)?,
        false => Inspection::open(host, &source, pool_name)?,
    };
    pool::show(out, &Look::new(options, &inspection), target)
}

/// Prints the fault in the command line, and the usage.
fn refuse_usage(out: &mut Out, text: &str) -> u8 {
    let newline = if text.is_empty() { "" } else { "\n" };
    out.complain(format_args!("{text}{newline}{}", usage::USAGE));
    EXIT_USAGE
}
