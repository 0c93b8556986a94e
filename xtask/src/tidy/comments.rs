//! Comments: how wide they are, and whether their sentences name what acts.
//!
//! # Mechanism
//! A line that begins with `//` is a comment. It is wide beyond 100 columns, where it could be
//! broken. Its subject is hidden where it speaks of "who ...", "somebody", "nobody" or the like:
//! then no component and no term of OpenZFS can be searched for.

/// The formatter's width.
const COLUMNS_MAX: usize = 100;

/// Words that stand for a component, a thread or a user without naming it.
const HIDDEN: [&str; 8] = [
    "who",
    "whom",
    "whoever",
    "somebody",
    "someone",
    "nobody",
    "anybody",
    "everybody",
];

/// What is counted in the comments of a file.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Comments {
    /// Lines wider than 100 columns.
    pub wide: usize,
    /// Lines with words that hide the subject.
    pub hidden: usize,
}

/// Counts in a file's text.
pub fn count(text: &str) -> Comments {
    let mut found = Comments::default();
    for line in text
        .lines()
        .filter(|line| line.trim_start().starts_with("//"))
    {
        found.wide += usize::from(is_wide(line));
        found.hidden += usize::from(hides_its_subject(line));
    }
    found
}

fn is_wide(line: &str) -> bool {
    let text = line.trim_start().trim_start_matches(['/', '!']).trim();
    line.chars().count() > COLUMNS_MAX && text.contains(' ')
}

fn hides_its_subject(line: &str) -> bool {
    let words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words
        .map(str::to_lowercase)
        .any(|word| HIDDEN.contains(&word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_comments_and_hidden_subjects_are_counted() {
        let wide = format!("    // {}", "word ".repeat(25));
        let address = format!("// {}", "x".repeat(120));
        let text = format!(
            "{wide}\n{address}\n/// Who reads it waits.\n//! The reader waits.\nlet who = 1;\n"
        );
        assert_eq!(count(&text), Comments { wide: 1, hidden: 1 });
    }
}
