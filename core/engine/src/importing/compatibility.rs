//! Compatibility sets: files that name the features that another system knows.
//!
//! `compatibility=off` allows all features, `legacy` none; otherwise the value is a list of files,
//! and the features that all of them name are allowed. The files are in OpenZFS's folders. An
//! unknown word is an error in an administrator's own file, and ignored in a file that came with
//! the system, which may be newer than this program.

use std::collections::BTreeSet;
use std::path::Path;
use tarn_host::Host;
use tarn_ondisk::features::Feature;

/// The folder of administrators' own sets.
const OWN_FOLDER: &str = "/etc/zfs/compatibility.d";
/// The folder of the sets that come with OpenZFS.
const SYSTEM_FOLDER: &str = "/usr/share/zfs/compatibility.d";
/// Largest file that is read.
const FILE_BYTES_MAX: usize = 16_384;
/// Longest part of an unknown word that is shown.
const WORD_SHOWN_MAX: usize = 32;

/// The features that a value of `compatibility` allows.
///
/// # Errors
/// What is wrong with the files, in OpenZFS's words.
#[doc(alias = "zpool_load_compat")]
pub fn allowed(host: &Host, value: &str) -> Result<BTreeSet<Feature>, String> {
    let all = || Feature::ALL.iter().copied().collect();
    match value {
        "" | "off" => return Ok(all()),
        "legacy" => return Ok(BTreeSet::new()),
        _ => {}
    }
    let mut allowed: BTreeSet<Feature> = all();
    let (mut unreadable, mut unknown, mut has_any) = (String::new(), String::new(), false);
    for file in value.split(',').filter(|file| !file.is_empty()) {
        let Some((text, is_own)) = read(host, file) else {
            unreadable.push_str(file);
            unreadable.push(' ');
            continue;
        };
        has_any = true;
        let (named, strange) = parse(&text);
        allowed.retain(|feature| named.contains(feature));
        if is_own {
            strange.iter().for_each(|word| {
                unknown.push_str(word);
                unknown.push(' ');
            });
        }
    }
    if !unreadable.is_empty() {
        return Err(format!(
            "could not read/parse feature file(s): {unreadable}"
        ));
    }
    if !has_any {
        return Err("no valid compatibility files specified".to_string());
    }
    if !unknown.is_empty() {
        return Err(format!(
            "invalid feature name(s) in local compatibility files: {unknown}"
        ));
    }
    Ok(allowed)
}

/// A file's text, and whether it is an administrator's own.
fn read(host: &Host, file: &str) -> Option<(String, bool)> {
    for (folder, is_own) in [(OWN_FOLDER, true), (SYSTEM_FOLDER, false)] {
        // Joining an absolute path gives that path.
        let Ok(bytes) = host.read_file(&Path::new(folder).join(file)) else {
            continue;
        };
        let is_sound = bytes.len() <= FILE_BYTES_MAX && bytes.last() == Some(&b'\n');
        let text = String::from_utf8(bytes).ok().filter(|_| is_sound)?;
        return Some((text, is_own));
    }
    None
}

/// The features that a file names, and the unknown words.
fn parse(text: &str) -> (BTreeSet<Feature>, Vec<String>) {
    let mut named = BTreeSet::new();
    let mut strange = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        for word in line.split([',', ' ', '\t']).filter(|word| !word.is_empty()) {
            match Feature::from_name(word) {
                Some(feature) => _ = named.insert(feature),
                None => strange.push(printable(word)),
            }
        }
    }
    (named, strange)
}

fn printable(word: &str) -> String {
    let shown = word.chars().take(WORD_SHOWN_MAX);
    shown
        .map(|c| {
            if c.is_ascii_graphic() || c == ' ' {
                c
            } else {
                '?'
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_separators_are_as_in_the_files_of_openzfs() {
        let (named, strange) = parse("# a set\nlz4_compress, zstd_compress # two\n\tbookmarks x\n");
        let wanted = [
            Feature::Lz4Compress,
            Feature::ZstdCompress,
            Feature::Bookmarks,
        ];
        assert_eq!(named, wanted.into_iter().collect());
        assert_eq!(strange, ["x"]);
    }
}
