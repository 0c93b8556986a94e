//! The table of commands: each with the options it has and places for words.
//!
//! # Form
//! `{kind}` is a place ([`Kind::named`]), `[…]` what may be left out. A place for devices may
//! become several words. What begins with `!` reads only, and changes nothing however it ends; `~`
//! does its work for one operand after the other, and may have done it for some when it fails; `<`
//! reads the stream that the judge made, or what is hostile in its place.
//!
//! Nothing here searches the machine's devices: an import always has the folder to search.

use super::words::{Kind, Words};

/// Every command and option, in no order.
pub const TEMPLATES: &[&str] = &[
    "!zfs list [-H] [-p] [-j] [-r] [-d {number}] [-o {columns}] [-s {prop}] [-S {prop}] [-t {types}] {dataset}",
    "!zfs get [-H] [-p] [-j] [-r] [-d {number}] [-o {columns}] [-t {types}] [-s {sources}] {prop} {dataset}",
    "!zfs get {prop} [{snap}] [{mark}]",
    "zfs set [-u] {set} {dataset}",
    "~zfs set {set} {set} {fs} [{vol}]",
    "zfs set {userset} {snap}",
    "~zfs inherit [-r] [-S] {prop} {dataset}",
    "zfs create [-p] [-u] [-n] [-v] [-P] [-o {set}] [-o {set}] {newfs}",
    "zfs create [-s] [-b {size}] [-o {set}] -V {size} {newfs}",
    "zfs destroy [-r] [-R] [-f] [-n] [-v] [-d] {newfs}",
    "zfs destroy [-n] [-v] [-r] {newsnap}",
    "zfs destroy {newmark}",
    "zfs destroy -n [-r] [-R] {dataset}",
    "zfs snapshot [-r] [-o {userset}] {newsnap} [{newsnap}]",
    "zfs rollback [-r] [-R] [-f] {snap}",
    "zfs clone [-p] [-u] [-o {set}] {snap} {newfs}",
    "zfs promote {clone}",
    "zfs rename [-f] [-p] [-u] {newfs} {newfs}",
    "zfs rename -r {newsnap} {newsnap}",
    "zfs rename {newsnap} {newsnap}",
    "zfs bookmark [-r] {snap} {newmark}",
    "zfs bookmark {mark} {newmark}",
    "~zfs hold [-r] {tag} {snap} [{snap}]",
    "~zfs release [-r] {tag} {snap} [{snap}]",
    "!zfs holds [-r] [-H] [-p] {snap}",
    "!zfs diff [-F] [-H] [-t] [-h] {snap} [{fs}]",
    "!zfs userspace [-H] [-i] [-n] [-p] [-o {columns}] [-s {columns}] [-t {types}] {dataset}",
    "!zfs groupspace [-H] [-n] [-S {columns}] {dataset}",
    "!zfs projectspace [-H] [-p] [-o {columns}] {dataset}",
    "~zfs project [-r] [-s] [-p {number}] {file}",
    "!zfs project -c [-0] [-r] [-p {number}] {file}",
    "~zfs project -C [-k] [-r] {file}",
    "zfs mount [-O] [-v] [-f] [-o {word}] {fs}",
    "zfs unmount [-f] {fs}",
    "!zfs send [-n] [-v] [-P] [-L] [-e] [-c] [-p] [-w] [-R] [-i {snap}] [-I {snap}] [-X {fs}] {snap}",
    "!zfs send -n [-v] -t {token}",
    "!zfs send --saved {fs}",
    "!zfs send --redact {mark} {snap}",
    "<zfs receive [-v] [-n] [-s] [-u] [-M] [-o {set}] [-x {prop}] [-d] [-e] {newfs}",
    "<zfs receive [-F] [-o {set}] [-x {prop}] {newsnap}",
    "zfs receive -A {fs}",
    "~zfs upgrade [-r] [-V {number}] {fs}",
    "!zfs upgrade [-v]",
    "zfs allow [-l] [-d] [-u] [-g] {user} {perm} {fs}",
    "zfs allow [-l] -e {perm} {fs}",
    "zfs allow -c {perm} {fs}",
    "zfs allow -s {setname} {perm} {fs}",
    "!zfs allow {fs}",
    "zfs unallow [-r] [-l] [-u] {user} [{perm}] {fs}",
    "zfs unallow [-r] -s {setname} [{perm}] {fs}",
    "!zfs version [-j] [{word}]",
    "!zfs {word} {dataset}",
    "!zfs load-key [-n] [-L {word}] {fs}",
    "!zfs change-key [-l] [-o {set}] {fs}",
    "!zfs redact {snap} {mark} {snap}",
    "zfs unload-key [-r] {fs}",
    "zfs share [-l] {fs}",
    "zfs unshare {fs}",
    "zfs program [-n] [-j] [-t {number}] [-m {number}] {pool} {file} [{word}]",
    "zfs rewrite [-P] [-r] [-v] [-x] [-o {number}] [-l {size}] {file}",
    "zfs zone {file} {fs}",
    "zfs unzone {file} {fs}",
    "!zfs wait [-t {word}] {fs}",
    "!zpool list [-H] [-p] [-j] [-v] [-g] [-L] [-P] [-o {poolprop}] [-T {word}] {pool}",
    "!zpool status [-j] [-s] [-D] [-v] [-x] [-i] [-g] [-P] [-c {word}] [-T {word}] {pool}",
    "!zpool iostat [-l] [-q] [-r] [-w] [-y] [-v] [-H] [-p] [-c {word}] {pool}",
    "!zpool get [-H] [-p] [-j] [-o {columns}] {poolprop} {pool}",
    "!zpool get {poolprop} {pool} {device}",
    "zpool set {poolset} {pool}",
    "zpool set {poolset} {pool} {device}",
    "zpool create [-f] [-n] [-d] [-o {poolset}] [-O {set}] [-m {path}] [-R {path}] [-t {newpool}] {newpool} {vdev}",
    "zpool create -n [-f] {newpool} {vdev} [{vdev}]",
    "zpool destroy [-f] {newpool}",
    "zpool add -n [-f] [-o {poolset}] {pool} {vdev}",
    "zpool add [-o {poolset}] {pool} {vdev}",
    "zpool remove [-n] [-p] [-s] [-w] {pool} {device}",
    "zpool attach [-f] [-s] [-w] [-o {poolset}] {pool} {device} {device}",
    "zpool detach {pool} {device}",
    "zpool replace [-f] [-o {poolset}] {pool} {device} [{device}]",
    "zpool offline [-t] [-f] {pool} {device}",
    "zpool online [-e] {pool} {device}",
    "zpool clear [-n] [-F] {pool} [{device}]",
    "zpool labelclear {device}",
    "!zpool history [-i] [-l] {pool}",
    "zpool import -d {folder} [-N] [-f] [-o {poolset}] [-R {path}] {newpool} [{newpool}]",
    "!zpool import -d {folder}",
    "!zpool import -c {file}",
    "zpool export {newpool}",
    "zpool sync [-f] {pool}",
    "!zpool upgrade [-v]",
    "zpool upgrade [-V {number}] {newpool}",
    "!zpool scrub [-s] {pool}",
    "zpool resilver {pool}",
    "zpool initialize [-c] [-s] [-u] [-w] {pool} [{device}]",
    "zpool trim [-d] [-s] [-c] [-w] [-r {size}] {pool} [{device}]",
    "zpool split [-n] [-g] [-P] [-o {poolset}] [-R {path}] {pool} {newpool} [{device}]",
    "zpool reguid [-g {number}] {pool}",
    "zpool reopen [-n] {pool}",
    "zpool prefetch [-t {word}] {pool}",
    "zpool ddtprune [-d {number}] [-p {number}] {pool}",
    "!zpool wait [-t {word}] {pool} [{number}]",
    "!zpool events [-v] {pool}",
    "zpool checkpoint [-d] [-w] {pool}",
    "!zpool version [{word}]",
    "!zpool {word} {pool}",
    "!tarn kstat [-j] [-l] [-p] [-q] [-c {word}] [-m {word}] [-i {number}] [-n {word}] [-s {word}] [{word}]",
    "!tarn export [-f {word}] [-t {word}] [--no-histograms] [--sum-histogram-buckets] [--signed-int]",
    "!tarn export [-f {word}] [-k {number}] [-i {word}] [-w {word}] [--last {word}] {word}",
    "tarn alert add [-w {word}] [-d {word}] [-c {word}] [-u {word}] [-x {path}] [-S {word}] [-o {word}] {word} {word} {word} {word} {word}",
    "tarn alert remove {word}",
    "!tarn alert show [-j] {word}",
    "!tarn version {word}",
    "!tarn {word}",
    "!tarn start [--cache-size {size}]",
    "!tarnd [--foreground] [--cache-size {size}] [{word}]",
    "!zstream token {token}",
    "<!zstream dump [-v] [-C]",
    "<!zstream recompress [-l {number}] {word}",
    "<!zstream decompress {word}",
    "<!zstream redup {file}",
    "!zstream {word} {file}",
    "!zdb -l {device}",
    "!zdb -e -p {folder} {pool}",
    "!zdb [-A] [-b] [-c] [-d] [-h] [-i] [-L] [-P] [-s] [-v] [-M] [-D] [-I {number}] [-o {word}] [-t {number}] [-U {file}] [-K {word}] {dataset} [{number}] [{word}]",
    "!zdb -e [-V] -p {folder} [-G] [-F] [-X] [-x {path}] {pool} [{word}]",
    "!zdb -B {dataset} [{word}]",
    "!zdb -C [-A] [-U {file}] {pool}",
    "!zdb -l [-A] [-q] [-u] {device}",
    "!zdb -m [-L] [-P] {pool} [{number}] [{number}]",
    "!zdb -O {dataset} {word}",
    "!zdb -r {dataset} {word} {path}",
    "!zdb -R [-A] {pool} {word}",
    "!zdb -E [-A] {word}",
    "!zdb -S [-A] [-P] {pool}",
    "!zdb -T {word} {pool}",
    "!zdb {mark}",
    "!zdb {word} {dataset}",
];

/// A command line to be tried.
pub struct Line {
    /// The program.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<Vec<u8>>,
    /// Whether it changes nothing however it ends.
    pub only_reads: bool,
    /// Whether it may have done a part of its work when it fails.
    pub is_partial: bool,
    /// Whether it reads a stream.
    pub reads_stream: bool,
}

impl Line {
    /// Makes a line of a template: at least one place is hostile if there is any, and each other
    /// one rarely.
    pub fn make(template: &str, words: &mut Words) -> Line {
        let stream = template.strip_prefix('<');
        let rest = stream.unwrap_or(template);
        let reading = rest.strip_prefix('!');
        let partial = rest.strip_prefix('~');
        let groups = groups(reading.or(partial).unwrap_or(rest), words);
        let places = groups.iter().filter(|word| word.contains('{')).count();
        let chosen = words.chance.index(places.max(1));
        let mut place = 0;
        let mut line = Line {
            program: String::new(),
            arguments: Vec::new(),
            only_reads: reading.is_some(),
            is_partial: partial.is_some(),
            reads_stream: stream.is_some(),
        };
        for word in groups {
            let kind = word
                .strip_prefix('{')
                .and_then(|rest| Kind::named(rest.trim_end_matches('}')));
            let Some(kind) = kind else {
                match line.program.is_empty() {
                    true => line.program = word,
                    false => line.arguments.push(word.into_bytes()),
                }
                continue;
            };
            let is_hostile = place == chosen || words.chance.below(6) == 0;
            place += 1;
            let made = match is_hostile {
                true => words.hostile(kind),
                false => words.sound(kind),
            };
            match kind {
                Kind::Vdev => line
                    .arguments
                    .extend(made.split(|byte| *byte == b' ').map(<[u8]>::to_vec)),
                _ => line.arguments.push(made),
            }
        }
        // No argument of a system call has a zero, and none is longer.
        for argument in &mut line.arguments {
            argument.retain(|byte| *byte != 0);
            argument.truncate(120_000);
        }
        line
    }
}

/// The words of a template, some of those that may be left out among them.
fn groups(template: &str, words: &mut Words) -> Vec<String> {
    let mut taken = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find('[') {
        taken.extend(rest[..at].split_whitespace().map(str::to_string));
        let Some(end) = rest[at..].find(']') else {
            break;
        };
        if words.chance.below(3) == 0 {
            let group = &rest[at + 1..at + end];
            taken.extend(group.split_whitespace().map(str::to_string));
        }
        rest = &rest[at + end + 1..];
    }
    taken.extend(rest.split_whitespace().map(str::to_string));
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tarn_workload::twister::Twister;

    #[test]
    fn every_place_has_a_kind_and_every_line_a_program() {
        let mut words = Words {
            chance: Twister::new(1),
            folder: "/scratch".to_string(),
        };
        for template in TEMPLATES {
            let places = template.split('{').skip(1);
            for place in places {
                let name = place.split('}').next().unwrap_or_default();
                assert!(Kind::named(name).is_some(), "{template}: {name}");
            }
            for _ in 0..20 {
                let line = Line::make(template, &mut words);
                assert!(
                    ["zfs", "zpool", "zdb", "zstream", "tarn", "tarnd"].contains(&&*line.program)
                );
                let absolute = line.arguments.iter().filter(|word| word.starts_with(b"/"));
                for word in absolute {
                    let path = String::from_utf8_lossy(word).into_owned();
                    let is_below = path.starts_with("/scratch/") && !path.contains("/../..");
                    assert!(is_below || !Path::new(&path).exists(), "{path}");
                }
            }
        }
    }
}
