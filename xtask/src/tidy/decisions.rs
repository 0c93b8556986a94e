//! Every decision is listed in `docs/decisions/README.md`, under its title.

use std::fs;

use crate::workspace::{Outcome, checkout};

const FOLDER: &str = "docs/decisions";

/// What is wrong, a sentence each.
pub fn check(files: &[String]) -> Outcome<Vec<String>> {
    let list = fs::read_to_string(checkout().join(FOLDER).join("README.md"))?;
    let mut wrong = Vec::new();
    for path in files {
        let name = path
            .strip_prefix("docs/decisions/")
            .filter(|name| *name != "README.md");
        let Some(name) = name.filter(|name| name.ends_with(".md")) else {
            continue;
        };
        let Ok(text) = fs::read_to_string(checkout().join(path)) else {
            continue;
        };
        wrong.extend(check_one(name, &text, &list));
    }
    Ok(wrong)
}

fn check_one(name: &str, text: &str, list: &str) -> Option<String> {
    let heading = text.lines().next().unwrap_or_default();
    let parts = heading
        .strip_prefix("# ")
        .and_then(|heading| heading.split_once(". "));
    let Some((number, title)) = parts else {
        return Some(format!(
            "{FOLDER}/{name}: does not begin with `# NUMBER. TITLE`"
        ));
    };
    if !name.starts_with(&format!("{number:0>4}-")) {
        return Some(format!(
            "{FOLDER}/{name}: is decision {number} by its title"
        ));
    }
    let row = format!("| {number} | [{title}]({name}) |");
    (!list.contains(&row))
        .then(|| format!("{FOLDER}/README.md does not have the row `{row} ... |`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_is_listed_under_its_number_title_and_file() {
        let list = "| 7 | [Doors](0007-doors.md) | few |\n";
        assert_eq!(check_one("0007-doors.md", "# 7. Doors\n", list), None);
        assert!(check_one("0007-doors.md", "# 7. Windows\n", list).is_some());
        assert!(check_one("0008-doors.md", "# 7. Doors\n", list).is_some());
        assert!(check_one("0007-doors.md", "Doors\n", list).is_some());
    }
}
