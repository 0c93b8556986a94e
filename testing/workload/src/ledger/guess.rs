//! The directory as it may be at a moment, compared with what was found.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::call::{Call, Contents, Entry, State};
use super::history::{FileNumber, History, numbered};

/// What a file is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Named {
    Directory,
    Link(String),
    File(FileNumber),
}

/// How much of each file's calls must and may be there, beside those before the moment.
#[derive(Clone)]
pub(super) struct Limits {
    /// Up to these calls, what is of a file must be there.
    pub(super) promised: BTreeMap<FileNumber, usize>,
    /// Files of which some calls may be there in part.
    pub(super) partly: BTreeSet<FileNumber>,
    /// Up to this call, what is of any file may be there.
    pub(super) names: usize,
}

/// The directory as it may be at a moment, and where it is not as it was found.
#[derive(Clone)]
pub(super) struct Guess<'a> {
    pub(super) found: &'a State,
    pub(super) calls: &'a [Call],
    pub(super) history: &'a History,
    pub(super) limits: Limits,
    /// All calls before this one are there.
    pub(super) moment: usize,
    pub(super) names: BTreeMap<String, Named>,
    /// What files had in the beginning.
    pub(super) first: BTreeMap<FileNumber, Rc<Contents>>,
    /// The calls that changed each file.
    pub(super) own: Rc<BTreeMap<FileNumber, Vec<usize>>>,
    /// After how many of its calls a file is what was found under a name.
    pub(super) matching: BTreeMap<(FileNumber, String), Rc<Vec<usize>>>,
    /// Where files are now.
    pub(super) places: BTreeMap<FileNumber, String>,
    pub(super) differing: BTreeSet<String>,
}

impl<'a> Guess<'a> {
    pub(super) fn new(
        base: &State,
        found: &'a State,
        calls: &'a [Call],
        history: &'a History,
        limits: Limits,
    ) -> Guess<'a> {
        let mut own: BTreeMap<FileNumber, Vec<usize>> = BTreeMap::new();
        for (index, file) in history.file.iter().enumerate() {
            if let (Some(file), false) = (file, history.names[index]) {
                own.entry(*file).or_default().push(index);
            }
        }
        let numbers = numbered(base);
        let mut guess = Guess {
            found,
            calls,
            history,
            limits,
            moment: 0,
            names: BTreeMap::new(),
            first: BTreeMap::new(),
            own: Rc::new(own),
            matching: BTreeMap::new(),
            places: BTreeMap::new(),
            differing: BTreeSet::new(),
        };
        for (path, entry) in base {
            let named = match entry {
                Entry::Directory => Named::Directory,
                Entry::Link(target) => Named::Link(target.clone()),
                Entry::File(contents) => {
                    let number = numbers[path];
                    guess.first.insert(number, Rc::new(contents.clone()));
                    Named::File(number)
                }
            };
            guess.name(path, Some(named));
        }
        guess
    }

    /// The next call is there, if it was not already.
    pub(super) fn step_to(&mut self, moment: usize, names: usize) {
        self.moment = moment;
        let index = moment - 1;
        match (self.history.names[index], self.history.file[index]) {
            (true, _) if index >= names => {
                for path in self.apply_name(index) {
                    self.compare(&path);
                }
            }
            (false, Some(file)) => {
                if let Some(path) = self.places.get(&file).cloned() {
                    self.compare(&path);
                }
            }
            _ => {}
        }
        // It may be half there, and was perhaps not compared with this in mind.
        if let (Some(Call::Write { .. }), Some(Some(file))) =
            (self.calls.get(moment), self.history.file.get(moment))
            && let Some(path) = self.places.get(file).cloned()
        {
            self.compare(&path);
        }
    }

    /// Whether the first ones of more changes of names explain all that differs.
    pub(super) fn is_with_some(&self, more: &[usize]) -> bool {
        let mut guess = self.clone();
        more.iter().any(|&index| {
            for path in guess.apply_name(index) {
                guess.compare(&path);
            }
            guess.differing.is_empty()
        })
    }

    /// A change of names is there. Gives back which.
    pub(super) fn apply_name(&mut self, index: usize) -> Vec<String> {
        let file = self.history.file[index];
        match &self.calls[index] {
            Call::MakeDirectory { path } => self.name(path, Some(Named::Directory)),
            Call::Link { path, target } => self.name(path, Some(Named::Link(target.clone()))),
            Call::Create { path } => {
                let number = file.expect("a call that makes a file has one");
                self.first.entry(number).or_default();
                self.name(path, Some(Named::File(number)));
            }
            Call::Remove { path } => self.name(path, None),
            Call::Rename { from, to } if from != to => {
                let named = self.names.get(from).cloned();
                self.name(from, None);
                self.name(to, named);
                return vec![from.clone(), to.clone()];
            }
            _ => return Vec::new(),
        }
        match &self.calls[index] {
            Call::MakeDirectory { path }
            | Call::Link { path, .. }
            | Call::Create { path }
            | Call::Remove { path } => vec![path.clone()],
            _ => Vec::new(),
        }
    }

    fn name(&mut self, path: &str, named: Option<Named>) {
        if let Some(Named::File(number)) = self.names.remove(path)
            && self.places.get(&number).is_some_and(|place| place == path)
        {
            self.places.remove(&number);
        }
        if let Some(named) = named {
            if let Named::File(number) = named {
                self.places.insert(number, path.to_string());
            }
            self.names.insert(path.to_string(), named);
        }
    }

    pub(super) fn compare_all(&mut self) {
        let names = self.names.keys().chain(self.found.keys());
        let paths: BTreeSet<String> = names.cloned().collect();
        paths.iter().for_each(|path| self.compare(path));
    }

    fn compare(&mut self, path: &str) {
        let is_same = match (self.names.get(path).cloned(), self.found.get(path)) {
            (None, None) | (Some(Named::Directory), Some(Entry::Directory)) => true,
            (Some(Named::Link(target)), Some(Entry::Link(found))) => target == *found,
            (Some(Named::File(number)), Some(Entry::File(found))) => {
                self.may_be(number, path, found)
            }
            _ => false,
        };
        match is_same {
            true => self.differing.remove(path),
            false => self.differing.insert(path.to_string()),
        };
    }
}
