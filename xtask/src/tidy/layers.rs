//! The edges between layers, held against the table in `docs/ARCHITECTURE.md`.
//!
//! # Mechanism
//! The table is the law and is read from the document itself, so that it cannot say one thing and
//! this program another. Cargo tells which crate uses which. A crate of `core/` may use what its
//! row says; front ends and commands may use `engine` and each other; `zdb` and `zstream` may look
//! into any crate; tests and tasks may use anything, and nothing that ships may use them.
//!
//! `administration` is for `api`, `exports` and the commands. Front ends that serve data build
//! without it: they use neither these nor `api`, which `web` alone uses besides.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::workspace::{Outcome, cargo, checkout, output};

/// Commands that look into any layer of the core, and only to read.
const LOOKERS: [&str; 2] = ["zdb", "zstream"];

/// The front end through which commands reach a daemon: the one that uses `administration`.
const CONTROL: &str = "api";

/// The front end that shows `api` to browsers.
const PAGE: &str = "web";

/// What writes replies of `administration` in the forms of other programs. It serves nothing.
const FORMS: &str = "exports";

/// Which of the house's parts a crate belongs to: its top folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// `core/`
    Core,
    /// `frontends/`
    Frontend,
    /// `commands/`
    Command,
    /// `testing/` and `xtask/`
    Testing,
}

/// One crate of the workspace.
#[derive(Debug, Clone)]
pub struct Crate {
    /// The folder's name, which is the layer's.
    pub layer: String,
    /// The top folder.
    pub part: Part,
    /// The layers it uses, by folder name.
    pub uses: Vec<String>,
    /// The layers only its tests use.
    pub tests_use: Vec<String>,
}

/// What each layer of the core may use.
pub type Table = BTreeMap<String, Vec<String>>;

/// Reads the table of section 1.
pub fn read_table(document: &str) -> Outcome<Table> {
    let header = "| Crate | What it knows | ZFS name | May use |";
    let rows = document.lines().skip_while(|line| *line != header).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let (mut table, mut above) = (Table::new(), Vec::<String>::new());
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [names, .., may_use] = cells[..] else {
            return Err(
                format!("this row of the table of layers has too few columns: {row}").into(),
            );
        };
        let allowed = allowed(may_use, &above)?;
        for name in names
            .split(',')
            .map(|name| name.trim().trim_matches('`').to_string())
        {
            table.insert(name.clone(), allowed.clone());
            above.push(name);
        }
    }
    match table.is_empty() {
        true => Err(format!("docs/ARCHITECTURE.md has no table that begins with {header}").into()),
        false => Ok(table),
    }
}

/// The last cell of a row: names, or `all above`, or `all above but NAME`.
fn allowed(cell: &str, above: &[String]) -> Outcome<Vec<String>> {
    let words: Vec<String> = cell.split_whitespace().map(str::to_string).collect();
    let names = match cell.strip_prefix("all above") {
        Some("") => above.to_vec(),
        Some(rest) => {
            let but = rest.trim().strip_prefix("but ").unwrap_or_default();
            above.iter().filter(|name| *name != but).cloned().collect()
        }
        None => words,
    };
    match names.iter().find(|name| !above.contains(name)) {
        Some(name) => {
            Err(format!("the table of layers lets a crate use {name}, listed after it").into())
        }
        None => Ok(names),
    }
}

/// The crates of this workspace, as Cargo sees them.
pub fn read_crates() -> Outcome<Vec<Crate>> {
    let arguments = ["metadata", "--no-deps", "--format-version", "1"];
    parse_metadata(&output(&mut cargo(&arguments))?, &checkout())
}

fn parse_metadata(text: &str, root: &Path) -> Outcome<Vec<Crate>> {
    let metadata: Value = serde_json::from_str(text)?;
    let packages = metadata["packages"]
        .as_array()
        .ok_or("cargo metadata lists no packages")?;
    packages
        .iter()
        .map(|package| read_crate(package, root))
        .collect()
}

fn read_crate(package: &Value, root: &Path) -> Outcome<Crate> {
    let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
    let folder = manifest.parent().unwrap_or(manifest);
    let below = folder.strip_prefix(root)?.display().to_string();
    let part = match below.split('/').next().unwrap_or_default() {
        "core" => Part::Core,
        "frontends" => Part::Frontend,
        "commands" => Part::Command,
        "testing" | "xtask" => Part::Testing,
        other => {
            return Err(
                format!("{other}/ is no part of the house: see docs/ARCHITECTURE.md").into(),
            );
        }
    };
    let (mut uses, mut tests_use) = (Vec::new(), Vec::new());
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        // Only crates of the workspace have a path.
        let Some(path) = dependency["path"].as_str() else {
            continue;
        };
        let name = Path::new(path)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        match dependency["kind"].as_str() {
            Some("dev") => tests_use.push(name),
            _ => uses.push(name),
        }
    }
    let layer = folder
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    Ok(Crate {
        layer,
        part,
        uses,
        tests_use,
    })
}

/// What is wrong with the edges, a sentence each.
pub fn check(table: &Table, crates: &[Crate]) -> Vec<String> {
    let part = |layer: &str| {
        crates
            .iter()
            .find(|one| one.layer == layer)
            .map(|one| one.part)
    };
    let mut wrong = Vec::new();
    for one in crates {
        if one.part == Part::Core && !table.contains_key(&one.layer) {
            wrong.push(format!(
                "core/{} is not in the table of docs/ARCHITECTURE.md",
                one.layer
            ));
            continue;
        }
        for used in &one.uses {
            if let Some(why) = forbidden(table, one, used, part(used)) {
                wrong.push(format!("{} may not use {used}: {why}", one.layer));
            }
        }
        for used in &one.tests_use {
            let above = one.part == Part::Core
                && part(used) == Some(Part::Core)
                && !is_below(table, one, used);
            if above {
                wrong.push(format!(
                    "the tests of {} may not use {used}, a layer above it",
                    one.layer
                ));
            }
        }
    }
    wrong
}

fn forbidden(table: &Table, one: &Crate, used: &str, used_part: Option<Part>) -> Option<String> {
    match (one.part, used_part) {
        (Part::Testing, _) => None,
        (_, Some(Part::Testing)) => Some("what ships does not depend on tests".to_string()),
        (Part::Core, Some(Part::Core)) => {
            let allowed = &table[&one.layer];
            let listed = match allowed.is_empty() {
                true => "nothing".to_string(),
                false => allowed.join(" "),
            };
            (!allowed.iter().any(|name| name == used)).then(|| format!("its row allows {listed}"))
        }
        (Part::Core, _) => Some("the core knows no front end and no command".to_string()),
        (Part::Frontend, _)
            if one.layer != CONTROL
                && (used == "administration" && one.layer != FORMS
                    || [CONTROL, FORMS].contains(&used) && one.layer != PAGE) =>
        {
            Some("front ends that serve data build without administration".to_string())
        }
        (_, Some(Part::Core))
            if ["engine", "administration"].contains(&used)
                || LOOKERS.contains(&one.layer.as_str()) =>
        {
            None
        }
        (_, Some(Part::Core)) => {
            Some("front ends and commands use engine and administration only".to_string())
        }
        _ => None,
    }
}

/// Tests of a layer may use anything the layer could: whatever its row, or the rows of those,
/// reach.
fn is_below(table: &Table, one: &Crate, used: &str) -> bool {
    let mut reached = table[&one.layer].clone();
    let mut next = 0;
    while next < reached.len() {
        let more: Vec<String> = table
            .get(&reached[next])
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        reached.extend(
            more.into_iter()
                .filter(|name| !reached.contains(name))
                .collect::<Vec<_>>(),
        );
        next += 1;
    }
    used == one.layer || reached.iter().any(|name| name == used)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "\
text
| Crate | What it knows | ZFS name | May use |
|---|---|---|---|
| `ondisk` | stored | x | |
| `host` | machine | x | |
| `space` | free | x | ondisk host |
| `block` | one block | x | all above |
| `cache` | memory | x | all above but space |
| `engine` | pools | x | all above |
| `administration` | commands | x | all above |

after
";

    fn one(layer: &str, part: Part, uses: &[&str]) -> Crate {
        let uses = uses.iter().map(|name| (*name).to_string()).collect();
        Crate {
            layer: layer.to_string(),
            part,
            uses,
            tests_use: Vec::new(),
        }
    }

    fn house(extra: Crate) -> Vec<String> {
        let core = [
            "ondisk",
            "host",
            "space",
            "block",
            "cache",
            "engine",
            "administration",
        ];
        let mut crates: Vec<Crate> = core.iter().map(|name| one(name, Part::Core, &[])).collect();
        crates.push(one("sim", Part::Testing, &["engine", "cache"]));
        crates.push(one("api", Part::Frontend, &["engine", "administration"]));
        crates.retain(|known| known.layer != extra.layer);
        crates.push(extra);
        check(&read_table(DOCUMENT).unwrap(), &crates)
    }

    #[test]
    fn the_table_says_what_each_layer_may_use() {
        let table = read_table(DOCUMENT).unwrap();
        assert_eq!(table["space"], ["ondisk", "host"]);
        assert_eq!(table["cache"], ["ondisk", "host", "block"]);
        assert!(table["ondisk"].is_empty());
    }

    #[test]
    fn a_table_that_points_down_the_list_is_refused() {
        let document = DOCUMENT.replace("| ondisk host |", "| ondisk cache |");
        assert!(read_table(&document).is_err());
        assert!(read_table("no table").is_err());
    }

    #[test]
    fn edges_of_the_table_are_accepted() {
        assert!(house(one("block", Part::Core, &["ondisk", "host", "space"])).is_empty());
        assert!(house(one("fuse", Part::Frontend, &["engine"])).is_empty());
        assert!(house(one("zdb", Part::Command, &["engine", "ondisk"])).is_empty());
        assert!(house(one("web", Part::Frontend, &["engine", "api", "exports"])).is_empty());
        assert!(house(one("exports", Part::Frontend, &["administration"])).is_empty());
        let used = ["engine", "administration", "api"];
        assert!(house(one("tarnd", Part::Command, &used)).is_empty());
    }

    /// Canaries: each bad edge is caught.
    #[test]
    fn edges_the_table_does_not_have_are_caught() {
        let bad = [
            one("space", Part::Core, &["block"]),
            one("cache", Part::Core, &["space"]),
            one("ondisk", Part::Core, &["host"]),
            one("block", Part::Core, &["sim"]),
            one("fuse", Part::Frontend, &["cache"]),
            one("fuse", Part::Frontend, &["engine", "administration"]),
            one("serving", Part::Frontend, &["engine", "api"]),
            one("nfs", Part::Frontend, &["engine", "exports"]),
            one("exports", Part::Frontend, &["api"]),
            one("web", Part::Frontend, &["engine", "administration"]),
            one("engine", Part::Core, &["administration"]),
            one("zpool", Part::Command, &["ondisk"]),
            one("newcomer", Part::Core, &[]),
        ];
        for edge in bad {
            assert_eq!(house(edge.clone()).len(), 1, "{edge:?}");
        }
    }

    #[test]
    fn tests_may_not_use_a_layer_above() {
        let mut space = one("space", Part::Core, &[]);
        space.tests_use = vec!["cache".to_string(), "sim".to_string(), "ondisk".to_string()];
        assert_eq!(house(space).len(), 1);
    }

    #[test]
    fn the_table_of_this_checkout_can_be_read() {
        let document = std::fs::read_to_string(checkout().join("docs/ARCHITECTURE.md")).unwrap();
        let table = read_table(&document).unwrap();
        assert!(table["block"].contains(&"vdev".to_string()), "{table:?}");
    }
}
