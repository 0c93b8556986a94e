//! What was found once is not found again: every input in `regressions/TARGET` is run, and nothing
//! may panic.

use std::path::Path;

#[test]
fn what_broke_a_decoder_once_breaks_it_no_more() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let mut count = 0;
    for target in tarn_fuzz::ALL {
        let Ok(entries) = std::fs::read_dir(folder.join(target.name)) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            (target.run)(&std::fs::read(&path).unwrap());
            count += 1;
        }
    }
    assert!(count > 0, "the inputs are found");
}

/// The names of the folders are those of targets: what is in other folders would not run.
#[test]
fn every_input_belongs_to_a_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(
            tarn_fuzz::find(&name.to_string_lossy()).is_some(),
            "{}",
            name.display()
        );
    }
}
