//! Circles between the files of a crate: files that all lead to one another by what they use.
//!
//! # Mechanism
//! A file is a module. An edge leads from a file to another of the same crate that one of its paths
//! names, outside of tests. Paths are followed through modules, and through `pub use` to the module
//! that has the item; a re-export by itself is no edge, and neither is `mod`. The largest strongly
//! connected component is the crate's largest circle.
//!
//! # Limits
//! Methods are not seen: an `impl` in another file, or a call of a method, names no path. Names
//! that come from a glob import lead to the module that is imported, not to the one that has the
//! item.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::source::{NamedPath, Source, read};

/// The path of a module from the root of its crate.
type Module = Vec<String>;

/// Re-exports are followed so many times, since damaged sources may lead in circles.
const STEPS_MAX: usize = 8;

/// The files of one crate that are in its largest circle, by their paths below `src`; none if there
/// is no circle.
pub fn largest(files: &BTreeMap<String, String>) -> Result<Vec<String>, String> {
    let mut modules = BTreeMap::new();
    for (path, text) in files {
        let module = module_of(path);
        let tokens: TokenStream = text.parse().map_err(|error| format!("{path}: {error}"))?;
        let (exports, lines) = exports(tokens);
        let source = read(text, false).map_err(|error| format!("{path}: {error}"))?;
        modules.insert(
            module,
            File {
                path,
                exports,
                lines,
                source,
            },
        );
    }
    let names: Vec<&Module> = modules.keys().collect();
    let edges: Vec<BTreeSet<usize>> = modules
        .iter()
        .map(|(module, file)| {
            let targets = file
                .paths()
                .filter_map(|path| resolve(&modules, module, &path.segments));
            let targets = targets.filter(|target| target != module);
            targets
                .filter_map(|target| names.binary_search(&&target).ok())
                .collect()
        })
        .collect();
    let circle = largest_component(&edges);
    Ok(circle
        .into_iter()
        .map(|index| modules[names[index]].path.clone())
        .collect())
}

struct File<'a> {
    path: &'a String,
    /// What `pub use` gives another name: from the name to the path.
    exports: BTreeMap<String, Vec<String>>,
    /// The lines of `pub use`.
    lines: BTreeSet<usize>,
    source: Source,
}

impl File<'_> {
    fn paths(&self) -> impl Iterator<Item = &NamedPath> {
        let paths = self.source.paths.iter();
        paths.filter(|path| !path.is_test && !self.lines.contains(&path.line))
    }
}

/// `zap/leaf/read.rs` is `zap::leaf::read`; `lib.rs` and `main.rs` are the root.
fn module_of(path: &str) -> Module {
    let mut parts: Module = path
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_string)
        .collect();
    let is_folder = parts.last().is_some_and(|last| last == "mod");
    let is_root = parts.len() == 1 && ["lib", "main"].contains(&parts[0].as_str());
    if is_folder || is_root {
        parts.pop();
    }
    parts
}

/// The module that a path leads to, as written in `from`; none where it leaves the crate or names
/// something of the file itself.
fn resolve(
    modules: &BTreeMap<Module, File<'_>>,
    from: &Module,
    segments: &[String],
) -> Option<Module> {
    let (mut module, mut rest) = start(modules, from, segments)?;
    for _ in 0..STEPS_MAX {
        while let Some(next) = rest.first() {
            let mut child = module.clone();
            child.push(next.clone());
            if !modules.contains_key(&child) {
                break;
            }
            module = child;
            rest.remove(0);
        }
        let Some(exported) = rest
            .first()
            .and_then(|name| modules.get(&module)?.exports.get(name))
        else {
            break;
        };
        let (next, more) = start(modules, &module, exported)?;
        rest.splice(..1, more);
        module = next;
    }
    Some(module)
}

/// Where a path begins, and what is left of it.
fn start(
    modules: &BTreeMap<Module, File<'_>>,
    from: &Module,
    segments: &[String],
) -> Option<(Module, Vec<String>)> {
    let mut module = from.clone();
    let mut rest = segments;
    match segments.first()?.as_str() {
        "crate" => {
            module.clear();
            rest = &rest[1..];
        }
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|first| first == "super") {
                module.pop()?;
                rest = &rest[1..];
            }
        }
        // A name by itself is a declaration or a variable: modules are no values.
        _ if segments.len() == 1 => return None,
        first => {
            module.push(first.to_string());
            if !modules.contains_key(&module) {
                return None;
            }
            rest = &rest[1..];
        }
    }
    modules
        .contains_key(&module)
        .then(|| (module, rest.to_vec()))
}

/// The re-exports of a file, and the lines of `pub use`.
fn exports(tokens: TokenStream) -> (BTreeMap<String, Vec<String>>, BTreeSet<usize>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let (mut exports, mut lines) = (BTreeMap::new(), BTreeSet::new());
    let mut is_public = false;
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Ident(word) if word == "pub" => is_public = true,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {}
            TokenTree::Ident(word) if word == "use" && is_public => {
                let is_end = |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ';');
                let length = tokens[at..].iter().position(is_end).unwrap_or(0);
                let (first, last) = (&tokens[at], &tokens[at + length]);
                lines.extend(first.span().start().line..=last.span().end().line);
                tree(&tokens[at + 1..at + length], &[], &mut exports);
                at += length;
                is_public = false;
            }
            _ => is_public = false,
        }
        at += 1;
    }
    (exports, lines)
}

/// The names of one tree of `use`.
fn tree(tokens: &[TokenTree], before: &[String], exports: &mut BTreeMap<String, Vec<String>>) {
    let mut path = before.to_vec();
    let mut name: Option<String> = None;
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Ident(word) if word == "as" => {
                name = tokens.get(at + 1).map(ToString::to_string);
                at += 1;
            }
            TokenTree::Ident(word) => path.push(word.to_string()),
            TokenTree::Group(group) => {
                let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ',');
                inside
                    .split(is_comma)
                    .for_each(|part| tree(part, &path, exports));
                return;
            }
            _ => {}
        }
        at += 1;
    }
    if path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let name = name.or_else(|| path.last().cloned());
    if let (Some(name), true) = (name, path.len() > before.len()) {
        exports.insert(name, path);
    }
}

/// The largest strongly connected component with more than one node, by Tarjan's algorithm.
fn largest_component(edges: &[BTreeSet<usize>]) -> Vec<usize> {
    let mut search = Search {
        edges,
        next: 0,
        index: vec![None; edges.len()],
        low: vec![0; edges.len()],
        stack: Vec::new(),
        largest: Vec::new(),
    };
    for node in 0..edges.len() {
        if search.index[node].is_none() {
            search.visit(node);
        }
    }
    search.largest
}

struct Search<'a> {
    edges: &'a [BTreeSet<usize>],
    next: usize,
    index: Vec<Option<usize>>,
    low: Vec<usize>,
    stack: Vec<usize>,
    largest: Vec<usize>,
}

impl Search<'_> {
    /// Recursion is as deep as the longest way through a crate: some hundred files.
    fn visit(&mut self, node: usize) {
        self.index[node] = Some(self.next);
        self.low[node] = self.next;
        self.next += 1;
        self.stack.push(node);
        for &target in &self.edges[node] {
            match self.index[target] {
                None => {
                    self.visit(target);
                    self.low[node] = self.low[node].min(self.low[target]);
                }
                Some(index) if self.stack.contains(&target) => {
                    self.low[node] = self.low[node].min(index);
                }
                Some(_) => {}
            }
        }
        if self.index[node] == Some(self.low[node]) {
            let place = self.stack.iter().position(|&other| other == node);
            let mut component = self.stack.split_off(place.expect("a node is on the stack"));
            if component.len() > self.largest.len().max(1) {
                component.sort_unstable();
                self.largest = component;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circle(files: &[(&str, &str)]) -> Vec<String> {
        let files = files
            .iter()
            .map(|(path, text)| (path.to_string(), text.to_string()))
            .collect();
        largest(&files).unwrap()
    }

    #[test]
    fn files_that_lead_to_each_other_are_a_circle() {
        let found = circle(&[
            ("lib.rs", "mod a; mod b; mod c; pub use a::A;"),
            ("a.rs", "use crate::b::B; pub struct A(B);"),
            ("b.rs", "use crate::c; pub struct B(c::C);"),
            ("c.rs", "fn f(a: crate::A) {} pub struct C;"),
        ]);
        assert_eq!(found, ["a.rs", "b.rs", "c.rs"]);
    }

    #[test]
    fn a_chain_tests_and_re_exports_are_no_circle() {
        let found = circle(&[
            ("lib.rs", "mod a; mod b; pub use b::B;"),
            ("a.rs", "use crate::b::B;"),
            (
                "b/mod.rs",
                "mod c; pub(crate) use c::{C, D as E}; #[cfg(test)] mod tests { use crate::a::A; }",
            ),
            ("b/c.rs", "use super::super::z::Z; pub struct C;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_child_that_uses_its_parent_is_in_a_circle_if_the_parent_uses_the_child() {
        let parent = ("b/mod.rs", "mod c; fn f() { c::g() }");
        let found = circle(&[("lib.rs", "mod b;"), parent, ("b/c.rs", "use super::f;")]);
        assert_eq!(found, ["b/mod.rs", "b/c.rs"]);
    }
}
