//! OpenZFS's programs that print statistics of the kernel module: `zarcstat`, `zarcsummary` and
//! `zilstat`, and `arcstat` and `arc_summary`, as they were called up to 2.3. This program is
//! called by these names, too, and prints what the daemon has counted.
//!
//! # Map
//! - `zarcstat`, `zarcsummary`, `zilstat`: a program each
//! - `arc_fields`, `zil_fields`: what their columns are made of; `number_columns`: how numbers are
//!   printed in them; `arc_report`: the sections of the report
//! - `kstat_samples`: what the daemon has counted

mod arc_fields;
mod arc_report;
mod kstat_samples;
mod number_columns;
mod zarcstat;
mod zarcsummary;
mod zil_fields;
mod zilstat;

use std::path::Path;

/// A program: takes its arguments, and gives its exit code.
type Run = fn(&[String]) -> u8;

/// What a program is called, and what it does.
const PROGRAMS: &[(&str, Run)] = &[
    ("zarcstat", zarcstat::run),
    ("arcstat", zarcstat::run),
    ("zarcsummary", zarcsummary::run),
    ("arc_summary", zarcsummary::run),
    ("zilstat", zilstat::run),
];

/// Runs the program by whose name this one was called, if it was; gives its exit code.
pub fn run_by_name(arguments: &[String]) -> Option<u8> {
    let (program, arguments) = arguments.split_first()?;
    let name = Path::new(program).file_name()?.to_str()?;
    let (_, run) = PROGRAMS.iter().find(|(known, _)| *known == name)?;
    Some(run(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_the_names_of_their_links() {
        let words = |words: &[&str]| -> Vec<String> {
            words.iter().map(|word| (*word).to_owned()).collect()
        };
        for (name, code) in [
            ("/usr/sbin/zarcstat", Some(1)),
            ("arcstat", Some(1)),
            ("zilstat", Some(0)),
            ("arc_summary", Some(0)),
            ("/usr/sbin/tarn", None),
        ] {
            assert_eq!(run_by_name(&words(&[name, "--help"])), code, "{name}");
        }
        assert_eq!(run_by_name(&[]), None);
    }
}
