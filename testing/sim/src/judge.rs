//! Whether what is found after a power cut is what may be found.
//!
//! # Problem
//! A judge of durable files alone finds only what is missing. What came back too early,
//! half, twice, or in another order is found only by a judge that knows all states that there may
//! be.
//!
//! # Mechanism
//! The rules, which are those of `docs/theory/txg_sync.md` and `intent_log.md`:
//!
//! 1. There is a moment at which the newest stored group was closed, one for the whole pool. All
//!    calls that had returned before it are there.
//! 2. Beyond it, the log has changes of names in their order, up to one that some request for
//!    durability has taken, and at least those before a request that has returned.
//! 3. Beyond it, the log has changes of a file in their order, where an `fsync` asked for this
//!    file; at least those before a request that has returned, and those before a change of its
//!    name that is there. (In that case each `fsync` has stored them too; so there may be up to a
//!    change of an attribute in its hidden directory.)
//! 4. Nothing else is there.
//! 5. A request that has not returned, or one during which the file was changed, may have taken
//!    bytes as they were later. Then each part of the file must be one of those it had since what
//!    was promised.
//!
//! 6. Where the pool is nearly full, a write may be made block by block: then its first blocks may
//!    be there alone, as long as it was not promised. Of a write that took fewer bytes than it was
//!    given, only those are promised.
//!
//! 7. A copy (`copy_file_range`) is a transaction for each of its parts: its first parts may be
//!    there alone, as long as it was not promised.
//!
//! All moments are tried.

use std::collections::BTreeMap;

use crate::history::{Actor, Asked, Change, Commit, History, Inode, Names, What};
use crate::tree::{File, FoundFile, Tree};

/// So many differences are told.
const DIFFERENCES_MAX: usize = 10;
/// Larger values of attributes are in the hidden directory.
const LISTED_BYTES_MAX: usize = 32 << 10;
/// Blocks of files are multiples of this.
const SECTOR_BYTES: usize = 512;
/// The end of time.
const NEVER: u64 = u64::MAX;

/// What was found, for the numbers that are told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Calls that had returned.
    pub done: usize,
    /// Calls that had to be there.
    pub promised: usize,
    /// Calls that are there, at least.
    pub found: usize,
}

/// Compares what is in the file systems, by their number, with the history.
///
/// # Errors
/// How it differs from all it may be.
pub fn judge(history: &History, trees: &BTreeMap<usize, Tree>) -> Result<Verdict, String> {
    let mut verdict = Verdict::default();
    // Between these moments, ends included, the newest stored group was closed.
    let mut moments: Vec<(u64, u64)> = vec![(0, NEVER)];
    let mut reached: Vec<(usize, u64, u64)> = Vec::new();
    for (number, actor) in history.actors.iter().enumerate() {
        let Some(tree) = trees.get(&actor.dataset) else {
            continue;
        };
        let commits: Vec<&Commit> = history
            .commits
            .iter()
            .filter(|commit| commit.dataset == actor.dataset)
            .collect();
        let case = Case::new(number, actor, &commits, history, tree);
        let told = |why: String| format!("actor {number} ({}): {why}", actor.prefix);
        let answer = case.solve().map_err(told)?;
        moments = intersect(&moments, &answer.moments);
        if moments.is_empty() {
            return Err(format!(
                "actor {number} ({}): its part is of no moment at which the others' are; these would fit it: {:?}",
                actor.prefix, answer.moments
            ));
        }
        reached.push((number, answer.last_name_begin, answer.next_name_end));
        verdict.done += actor.calls.iter().filter(|call| call.end.is_some()).count();
        verdict.promised += case.promised();
        verdict.found += answer.found;
    }
    // Names are in one order for all in a file system.
    for (later, begin, _) in &reached {
        for (earlier, _, end) in &reached {
            let same = history.actors[*later].dataset == history.actors[*earlier].dataset;
            if same && end < begin {
                return Err(format!(
                    "a change of names by actor {later} that began at {begin} is there, and one by actor {earlier} that returned at {end} is not"
                ));
            }
        }
    }
    Ok(verdict)
}

fn intersect(one: &[(u64, u64)], other: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut both = Vec::new();
    for (begin, end) in one {
        for (other_begin, other_end) in other {
            let (begin, end) = (*begin.max(other_begin), *end.min(other_end));
            if begin <= end {
                both.push((begin, end));
            }
        }
    }
    both
}

/// How an actor's part is explained.
struct Answer {
    moments: Vec<(u64, u64)>,
    /// When the last change of names that is there began.
    last_name_begin: u64,
    /// When the next one returned.
    next_name_end: u64,
    found: usize,
}

/// One actor's calls, and what was found of his.
struct Case<'a> {
    number: usize,
    actor: &'a Actor,
    commits: &'a [&'a Commit],
    tree: &'a Tree,
    found: BTreeMap<&'a str, u64>,
    /// The places of calls that change names.
    naming: Vec<usize>,
    /// The places of calls that change each file.
    own: BTreeMap<Inode, Vec<usize>>,
    /// The places of calls that change each file's hidden directory.
    hidden: BTreeMap<Inode, Vec<usize>>,
    /// So many calls are stored for certain.
    stored: usize,
    /// As in [`History::is_full`].
    is_full: bool,
}

/// The calls that change a file's hidden directory: extended attributes, all of them or those that
/// are large. They have names, so the earlier changes of the file take part in the order of all
/// changes.
fn hidden(actor: &Actor) -> BTreeMap<Inode, Vec<usize>> {
    let is_hidden = |length: usize| actor.hides_xattrs || length > LISTED_BYTES_MAX;
    let mut lengths: BTreeMap<(Inode, &[u8]), usize> = BTreeMap::new();
    for (inode, known) in actor.files.iter().enumerate() {
        let has = known.first.xattrs.iter();
        lengths.extend(has.map(|(name, value)| ((inode, name.as_slice()), value.len())));
    }
    let mut found: BTreeMap<Inode, Vec<usize>> = BTreeMap::new();
    for (place, call) in actor.calls.iter().enumerate() {
        let What::File(inode, Change::Xattr(name, value)) = &call.what else {
            continue;
        };
        let key = (*inode, name.as_slice());
        let before = match value {
            Some(value) => lengths.insert(key, value.len()),
            None => lengths.remove(&key),
        };
        let after = value.as_ref().map(Vec::len);
        if before.into_iter().chain(after).any(is_hidden) {
            found.entry(*inode).or_default().push(place);
        }
    }
    found
}

impl<'a> Case<'a> {
    fn new(
        number: usize,
        actor: &'a Actor,
        commits: &'a [&'a Commit],
        history: &History,
        tree: &'a Tree,
    ) -> Case<'a> {
        let found = tree.names.iter();
        let found = found.filter(|(path, _)| actor.owns(path));
        let mut naming = Vec::new();
        let mut own: BTreeMap<Inode, Vec<usize>> = BTreeMap::new();
        for (place, call) in actor.calls.iter().enumerate() {
            match &call.what {
                What::Naming(..) => naming.push(place),
                What::File(inode, _) => own.entry(*inode).or_default().push(place),
            }
        }
        let is_stored =
            |call: &&crate::history::Call| call.end.is_some_and(|end| end < history.stored);
        Case {
            number,
            actor,
            commits,
            is_full: history.is_full,
            tree,
            found: found.map(|(path, id)| (path.as_str(), *id)).collect(),
            naming,
            own,
            hidden: hidden(actor),
            stored: actor.calls.iter().take_while(is_stored).count(),
        }
    }

    fn own(&self, inode: Inode) -> &[usize] {
        self.own.get(&inode).map_or(&[], Vec::as_slice)
    }

    fn end(&self, place: usize) -> u64 {
        self.actor.calls[place].end.unwrap_or(NEVER)
    }

    fn begin(&self, place: usize) -> u64 {
        self.actor.calls[place].begin
    }

    /// Whether a call was over when a request was made, or was part of it.
    fn is_before(&self, place: usize, commit: &Commit) -> bool {
        match commit.asked {
            Asked::All(Some((actor, last))) if actor == self.number => {
                place <= last && self.actor.calls[place].end.is_some()
            }
            _ => self.end(place) < commit.begin,
        }
    }

    /// Whether a request may have taken what a call changed.
    fn is_open(&self, place: usize, commit: &Commit) -> bool {
        self.begin(place) < commit.end.unwrap_or(NEVER)
    }

    /// How many calls had to be there, of all actors.
    fn promised(&self) -> usize {
        self.stored.max(
            self.naming
                .get(..self.names_promised())
                .and_then(|names| names.last())
                .map_or(0, |place| place + 1),
        )
    }

    /// So many changes of names must be there.
    fn names_promised(&self) -> usize {
        let kept = self.commits.iter().filter(|commit| commit.end.is_some());
        let counts = kept.map(|commit| {
            let before = |place: &&usize| self.is_before(**place, commit);
            self.naming.iter().take_while(before).count()
        });
        counts.max().unwrap_or(0)
    }

    /// So many changes of names may be there beside those of the group.
    fn names_open(&self) -> usize {
        let counts = self.commits.iter().map(|commit| {
            let open = |place: &&usize| self.is_open(**place, commit);
            self.naming.iter().take_while(open).count()
        });
        counts.max().unwrap_or(0)
    }

    /// The call before which a file's own changes joined the order of all changes, by a change of
    /// its name among the first ones.
    fn shared_before(&self, inode: Inode, names: usize) -> Option<usize> {
        let mut renames = self.naming[..names].iter().rev();
        renames
            .find(|place| {
                let What::Naming(_, moved) = &self.actor.calls[**place].what else {
                    return false;
                };
                moved.contains(&inode)
            })
            .copied()
    }

    /// So many changes of a file must be there, when so many of names are.
    fn promised_of(&self, inode: Inode, names: usize) -> usize {
        let own = self.own(inode);
        let kept = self.commits.iter().filter(|commit| commit.end.is_some());
        let counts = kept.map(|commit| match commit.asked {
            Asked::File(actor, file) if (actor, file) != (self.number, inode) => 0,
            _ => {
                let before = |place: &&usize| self.is_before(**place, commit);
                own.iter().take_while(before).count()
            }
        });
        let asked = counts.max().unwrap_or(0);
        let shared = self.shared_before(inode, names);
        let shared = shared.map_or(0, |before| {
            own.iter().take_while(|place| **place < before).count()
        });
        asked.max(shared)
    }

    /// So many changes of a file may be there beside those of the group.
    fn open_of(&self, inode: Inode) -> usize {
        let own = self.own(inode);
        let counts = self.commits.iter().map(|commit| match commit.asked {
            Asked::File(actor, file) if (actor, file) != (self.number, inode) => {
                // Those that a change of its name has shared.
                let renames = self.naming.iter().filter(|place| {
                    let What::Naming(_, moved) = &self.actor.calls[**place].what else {
                        return false;
                    };
                    moved.contains(&inode) && self.is_open(**place, commit)
                });
                let before = renames.max().copied().unwrap_or(0);
                let hidden = self.hidden.get(&inode).into_iter().flatten();
                let hidden = hidden.filter(|place| self.is_open(**place, commit));
                let before = before.max(hidden.max().map_or(0, |place| place + 1));
                own.iter().take_while(|place| **place < before).count()
            }
            _ => {
                let open = |place: &&usize| self.is_open(**place, commit);
                own.iter().take_while(open).count()
            }
        });
        counts.max().unwrap_or(0)
    }

    /// Whether a request may have taken a file's bytes as they were later than its records.
    fn may_be_mixed(&self, inode: Inode) -> bool {
        // Changes before a change of its name, or of those in its hidden directory, are taken by
        // all; their bytes are those of later ones.
        let mut moves = self.naming.iter().filter(|place| {
            matches!(&self.actor.calls[**place].what, What::Naming(_, moved) if moved.contains(&inode))
        });
        let hidden = self.hidden.get(&inode).and_then(|places| places.first());
        let first_move = moves.next().into_iter().chain(hidden).min();
        let is_moved = first_move.is_some();
        self.commits.iter().any(|commit| {
            let takes = match commit.asked {
                Asked::File(actor, file) => (actor, file) == (self.number, inode) || is_moved,
                Asked::All(_) => true,
            };
            let meanwhile = || {
                self.own(inode).iter().any(|place| {
                    let is_later = first_move.is_some_and(|moved| place > moved);
                    self.is_open(*place, commit) && (is_later || self.end(*place) > commit.begin)
                })
            };
            takes && (commit.end.is_none() || meanwhile())
        })
    }

    /// After how many of its changes a file is this.
    fn matching(&self, inode: Inode, found: &File) -> Vec<usize> {
        let mut file = self.actor.files[inode].first.clone();
        let mut counts = Vec::new();
        if file == *found {
            counts.push(0);
        }
        for (count, place) in self.own(inode).iter().enumerate() {
            // The group was closed in the middle of the call.
            match self.is_divided(*place) && self.is_begun(*place, &file, found) {
                true if self.is_full => counts.extend([count, count + 1]),
                true => counts.push(count),
                false => {}
            }
            self.apply(*place, &mut file);
            if file == *found {
                counts.push(count + 1);
            }
        }
        counts
    }

    /// Whether a call may be several transactions: a copy is one for each of its parts, a write
    /// one for each block when it does not fit as a whole.
    fn is_divided(&self, place: usize) -> bool {
        let what = &self.actor.calls[place].what;
        self.is_full || matches!(what, What::File(_, Change::Copy { .. }))
    }

    /// Whether a file is what was found after the first blocks of a write or a copy.
    fn is_begun(&self, place: usize, file: &File, found: &File) -> bool {
        let What::File(_, Change::Write { at, bytes } | Change::Copy { at, bytes, .. }) =
            &self.actor.calls[place].what
        else {
            return false;
        };
        let end = at + bytes.len();
        let sectors = (at / SECTOR_BYTES + 1..).map(|sector| sector * SECTOR_BYTES);
        sectors.take_while(|cut| *cut < end).any(|cut| {
            // Cheap to ask first: the size that the file would have.
            let is_long = found.bytes.len() == file.bytes.len().max(cut);
            is_long && found.bytes.get(*at..cut) == bytes.get(..cut - at) && {
                let mut begun = file.clone();
                let bytes = bytes[..cut - at].to_vec();
                Change::Write { at: *at, bytes }.apply(&mut begun);
                begun == *found
            }
        })
    }

    fn apply(&self, place: usize, file: &mut File) {
        if let What::File(_, change) = &self.actor.calls[place].what {
            change.apply(file);
        }
    }

    /// Whether each part of a file is one it had after `from` of its changes or later.
    fn is_mixed(&self, inode: Inode, found: &File, from: usize) -> bool {
        let mut file = self.actor.files[inode].first.clone();
        let own = self.own(inode);
        own[..from]
            .iter()
            .for_each(|place| self.apply(*place, &mut file));
        let mut states = vec![file.clone()];
        for place in &own[from..] {
            self.apply(*place, &mut file);
            states.push(file.clone());
        }
        let any = |is: &dyn Fn(&File) -> bool| states.iter().any(is);
        // A size may be that of a write that is there in part.
        let largest = states.iter().map(|file| file.bytes.len()).max();
        let smallest = states.iter().map(|file| file.bytes.len()).min();
        let size = found.bytes.len();
        any(&|file| file.mode == found.mode)
            && any(&|file| file.owner == found.owner)
            && Some(size) <= largest
            && Some(size) >= smallest
            && found.bytes.iter().enumerate().all(|(at, byte)| {
                any(&|file| file.bytes.get(at).copied().unwrap_or(0) == *byte) || *byte == 0
            })
            && found
                .xattrs
                .iter()
                .all(|(name, value)| any(&|file| file.xattrs.get(name) == Some(value)))
    }

    /// Whether these names are what was found, and their files are those.
    fn is_named(&self, names: &Names) -> bool {
        names.len() == self.found.len()
            && names.iter().all(|(path, inode)| {
                let Some(id) = self.found.get(path.as_str()) else {
                    return false;
                };
                let known = &self.actor.files[*inode];
                known.first.kind == self.tree.files[id].file.kind
                    && known.id.is_none_or(|known| known == *id)
            })
    }

    fn solve(&self) -> Result<Answer, String> {
        let (names_promised, names_open) = (self.names_promised(), self.names_open());
        let mut names = self.actor.base.clone();
        let mut answer: Option<Answer> = None;
        let mut why = Vec::new();
        for count in 0..=self.naming.len() {
            if count > 0
                && let What::Naming(naming, _) = &self.actor.calls[self.naming[count - 1]].what
            {
                naming.apply(&mut names);
            }
            if !self.is_named(&names) {
                continue;
            }
            match self.solve_files(&names, count, (names_promised, names_open)) {
                Ok(found) => match &mut answer {
                    None => answer = Some(found),
                    Some(answer) => {
                        answer.moments.extend(found.moments);
                        answer.last_name_begin = answer.last_name_begin.min(found.last_name_begin);
                        answer.next_name_end = answer.next_name_end.max(found.next_name_end);
                    }
                },
                Err(told) => why.push(format!("with {count} changes of names: {told}")),
            }
        }
        answer.ok_or_else(|| match why.is_empty() {
            true => self.tell_names(names_promised),
            false => why.join("\n"),
        })
    }

    /// Whether, with so many changes of names, files are as they may be.
    fn solve_files(
        &self,
        names: &Names,
        count: usize,
        (names_promised, names_open): (usize, usize),
    ) -> Result<Answer, String> {
        if count < names_promised {
            return Err(format!(
                "{names_promised} were promised; the first that is missing is {}",
                self.told(self.naming[count])
            ));
        }
        let mut files: BTreeMap<Inode, (&FoundFile, u64)> = BTreeMap::new();
        for (path, inode) in names {
            let found = &self.tree.files[&self.found[path.as_str()]];
            files.entry(*inode).or_insert((found, 0)).1 += 1;
        }
        let mut limits = Vec::new();
        for (inode, (found, links)) in &files {
            if found.file.kind != tarn_engine::files::FileKind::Directory && found.links != *links {
                return Err(format!(
                    "{} has {links} names and says {}",
                    self.path_of(names, *inode),
                    found.links
                ));
            }
            let promised = self.promised_of(*inode, count);
            let mut matching = self.matching(*inode, &found.file);
            matching.retain(|count| *count >= promised);
            let mixed = self.may_be_mixed(*inode) && self.is_mixed(*inode, &found.file, promised);
            if matching.is_empty() && !mixed {
                return Err(self.tell_file(names, *inode, &found.file, promised));
            }
            limits.push((*inode, matching, self.open_of(*inode), mixed));
        }
        let mut moments = Vec::new();
        let mut found = 0;
        for moment in self.stored..=self.actor.calls.len() {
            let before = |list: &[usize]| list.iter().take_while(|place| **place < moment).count();
            let in_group = before(&self.naming);
            let names_fit = count >= in_group && count <= in_group.max(names_open);
            let fits = names_fit
                && limits.iter().all(|(inode, matching, open, mixed)| {
                    let in_group = before(self.own(*inode));
                    matching
                        .iter()
                        .any(|count| *count >= in_group && *count <= in_group.max(*open))
                        || (*mixed && self.is_mixed(*inode, &files[inode].0.file, in_group))
                });
            if fits {
                let begin = moment.checked_sub(1).map_or(0, |place| self.begin(place));
                let end = match moment < self.actor.calls.len() {
                    true => self.end(moment),
                    false => NEVER,
                };
                moments.push((begin, end));
                found = found.max(moment);
            }
        }
        if moments.is_empty() {
            return Err(self.tell_moments(names, &limits, count, names_open));
        }
        Ok(Answer {
            moments,
            last_name_begin: count
                .checked_sub(1)
                .map_or(0, |last| self.begin(self.naming[last])),
            next_name_end: self.naming.get(count).map_or(NEVER, |next| self.end(*next)),
            found: found.max(count),
        })
    }

    fn path_of(&self, names: &Names, inode: Inode) -> String {
        let mut paths = names.iter().filter(|(_, of)| **of == inode);
        paths
            .next()
            .map_or("?".to_string(), |(path, _)| path.clone())
    }

    fn told(&self, place: usize) -> String {
        let call = &self.actor.calls[place];
        format!(
            "call {place} [{}..{:?}] {}",
            call.begin,
            call.end,
            tell(&call.what)
        )
    }

    fn tell_names(&self, promised: usize) -> String {
        let mut told = format!(
            "names are as after none of its {} changes of names ({promised} promised)",
            self.naming.len()
        );
        for (title, count) in [("promised", promised), ("done", self.naming.len())] {
            let mut names = self.actor.base.clone();
            for place in &self.naming[..count] {
                if let What::Naming(naming, _) = &self.actor.calls[*place].what {
                    naming.apply(&mut names);
                }
            }
            told += &format!("\n  beside what was {title}:");
            for (path, inode) in &names {
                let known = self.actor.files[*inode].id;
                match self.found.get(path.as_str()) {
                    None => told += &format!("\n    {path} is missing"),
                    Some(id) if known.is_some_and(|known| known != *id) => {
                        told += &format!("\n    {path} is object {id}, not {known:?}");
                    }
                    Some(_) => {}
                }
            }
            for path in self.found.keys().filter(|path| !names.contains_key(**path)) {
                told += &format!("\n    {path} should not be there");
            }
        }
        told
    }

    fn tell_file(&self, names: &Names, inode: Inode, found: &File, promised: usize) -> String {
        let mut told = format!(
            "{} is as it never was: {} bytes, mode {:o}, owner {:?}, attributes {:?}; {promised} of its changes were promised",
            self.path_of(names, inode),
            found.bytes.len(),
            found.mode,
            found.owner,
            found
                .xattrs
                .iter()
                .map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), value.len()))
                .collect::<Vec<_>>(),
        );
        let mut file = self.actor.files[inode].first.clone();
        told += &format!("\n    in the beginning: {}", difference(&file, found));
        let own = self.own(inode);
        for (number, place) in own.iter().enumerate() {
            self.apply(*place, &mut file);
            if own.len() - number <= DIFFERENCES_MAX {
                told += &format!("\n    {}: {}", self.told(*place), difference(&file, found));
            }
        }
        for commit in self.commits {
            if commit.asked == Asked::File(self.number, inode)
                || matches!(commit.asked, Asked::All(_))
            {
                told += &format!(
                    "\n    durable {:?} asked at {}, answered at {:?}",
                    commit.asked, commit.begin, commit.end
                );
            }
        }
        told
    }

    fn tell_moments(
        &self,
        names: &Names,
        limits: &[(Inode, Vec<usize>, usize, bool)],
        count: usize,
        names_open: usize,
    ) -> String {
        let mut told = format!(
            "no moment explains it: {count} changes of names are there, by the log at most {names_open}; {} calls are stored for certain",
            self.stored
        );
        for (inode, matching, open, mixed) in limits {
            told += &format!(
                "\n    {}: as after {matching:?} of its changes (calls {:?}), by the log at most {open}{}",
                self.path_of(names, *inode),
                self.own(*inode),
                if *mixed { ", or mixed" } else { "" }
            );
        }
        for place in &self.naming {
            told += &format!("\n    {}", self.told(*place));
        }
        told
    }
}

/// What a call changes, in a line.
pub fn tell(what: &What) -> String {
    match what {
        What::Naming(naming, _) => format!("{naming:?}"),
        What::File(inode, change) => match change {
            Change::Write { at, bytes } => {
                format!("write {} bytes at {at} of #{inode}", bytes.len())
            }
            Change::Copy {
                source,
                from,
                at,
                bytes,
            } => format!(
                "copy {} bytes at {from} of {source} to {at} of #{inode}",
                bytes.len()
            ),
            Change::Xattr(name, value) => format!(
                "xattr {} of #{inode}: {:?} bytes",
                String::from_utf8_lossy(name),
                value.as_ref().map(Vec::len)
            ),
            change => format!("{change:?} of #{inode}"),
        },
    }
}

fn difference(expected: &File, found: &File) -> String {
    let pairs = expected.bytes.iter().zip(&found.bytes);
    let same = pairs.take_while(|(one, other)| one == other).count();
    let mut told = format!("{} bytes, the first {same} as found", expected.bytes.len());
    if expected.mode != found.mode {
        told += &format!(", mode {:o}", expected.mode);
    }
    if expected.owner != found.owner {
        told += &format!(", owner {:?}", expected.owner);
    }
    if expected.xattrs != found.xattrs {
        told += ", other attributes";
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Call;
    use tarn_engine::files::FileKind;

    /// A file of zeros of two blocks, into which as many ones were copied.
    fn copied(promised: bool) -> History {
        let mut actor = Actor::new(0, false, "t0");
        let file = actor.make(FileKind::Regular, 0o600, vec![0; 1024]);
        actor.files[file].id = Some(7);
        actor.base.insert("t0/a".to_string(), file);
        let change = Change::Copy {
            source: "t0/b".to_string(),
            from: 0,
            at: 0,
            bytes: vec![1; 1024],
        };
        actor.calls.push(Call {
            what: What::File(file, change),
            begin: 1,
            end: Some(2),
        });
        let commit = Commit {
            dataset: 0,
            asked: Asked::File(0, file),
            begin: 3,
            end: Some(4),
        };
        let mut history = History::default();
        history.actors.push(actor);
        history.commits.extend(promised.then_some(commit));
        history
    }

    /// The file as it was found, with so many ones.
    fn found(ones: usize) -> BTreeMap<usize, Tree> {
        let file = File {
            kind: FileKind::Regular,
            mode: 0o600,
            owner: (0, 0),
            bytes: [vec![1; ones], vec![0; 1024 - ones]].concat(),
            xattrs: BTreeMap::new(),
        };
        let mut tree = Tree::default();
        tree.names.insert("t0/a".to_string(), 7);
        tree.files.insert(7, FoundFile { file, links: 1 });
        BTreeMap::from([(0, tree)])
    }

    #[test]
    fn of_a_copy_its_first_parts_may_be_found_until_it_was_promised() {
        for (ones, is_whole) in [(0, false), (512, false), (1024, true)] {
            judge(&copied(false), &found(ones)).unwrap();
            let promised = judge(&copied(true), &found(ones));
            assert_eq!(promised.is_ok(), is_whole, "{ones} of 1024 bytes");
        }
        judge(&copied(false), &found(100)).unwrap_err();
    }
}
