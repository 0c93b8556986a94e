//! Man pages: the Markdown of `docs/man` as roff for man(1).
//!
//! # Mechanism
//! `pulldown-cmark` reads the Markdown. The page's title (`# zpool(8)`) becomes `.TH`, the other
//! headings sections. Tables of two columns become lists of terms (`.TP`); those of more become
//! tables of tbl(1), with every cell as a text block, so that long cells are filled. A link keeps
//! its text only: what it points to is another page, or a file of the checkout that no machine with
//! the package has.

use std::fmt::Write;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// A page in roff.
///
/// `date` is shown at its foot, with `version`.
///
/// # Errors
/// The page has no title of the form `NAME(SECTION)`, or something that no page has yet.
pub fn roff(markdown: &str, date: &str, version: &str) -> Result<String, String> {
    let title = markdown.lines().next().unwrap_or_default();
    let (name, section) = title
        .strip_prefix("# ")
        .and_then(|title| title.strip_suffix(')')?.split_once('('))
        .ok_or_else(|| format!("'{title}' is no title of a man page, such as '# zpool(8)'"))?;
    // The first line has tbl(1) read the page.
    let mut page = Page {
        text: format!(
            "'\\\" t\n.TH {} {section} \"{date}\" \"Tarn {version}\" \"System Manager's Manual\"\n.nh\n.ad l\n",
            name.to_uppercase()
        ),
        ..Page::default()
    };
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        page.event(event)?;
    }
    Ok(page.text)
}

/// What was read of a page so far, and where in it we are.
#[derive(Default)]
struct Page {
    text: String,
    /// In the title, which `.TH` has.
    in_title: bool,
    in_code: bool,
    /// The columns of the table at hand.
    columns: usize,
    /// The cells of the row at hand.
    row: Vec<String>,
    /// Where the cell at hand begins in `text`.
    cell: Option<usize>,
    in_head: bool,
    /// How many lists are open.
    lists: usize,
    /// The next paragraph is the beginning of an item, which `.IP` has begun.
    begins_item: bool,
}

impl Page {
    fn event(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::Start(tag) => self.begin(&tag)?,
            Event::End(tag) => self.end(tag),
            Event::Text(text) if !self.in_title => self.words(&text),
            Event::Text(_) => {}
            Event::Code(code) => {
                self.text.push_str("\\fB");
                self.words(&code);
                self.text.push_str("\\fR");
            }
            Event::SoftBreak => self.new_line(),
            Event::HardBreak => self.macro_line(".br"),
            Event::Rule => self.macro_line(".sp"),
            other => return Err(format!("man pages have no {other:?}")),
        }
        Ok(())
    }

    fn begin(&mut self, tag: &Tag<'_>) -> Result<(), String> {
        match tag {
            Tag::Heading { level, .. } => match level {
                HeadingLevel::H1 => self.in_title = true,
                HeadingLevel::H2 => self.macro_begin(".SH "),
                _ => self.macro_begin(".SS "),
            },
            Tag::Paragraph if self.begins_item => self.begins_item = false,
            Tag::Paragraph => self.macro_line(".PP"),
            Tag::CodeBlock(kind) => {
                if let CodeBlockKind::Fenced(_) = kind {
                    self.macro_line(".PP");
                }
                self.macro_line(".RS 4\n.nf");
                self.in_code = true;
            }
            Tag::List(_) => {
                if self.lists > 0 {
                    self.macro_line(".RS 4");
                }
                self.lists += 1;
            }
            Tag::Item => {
                self.macro_line(".IP \\(bu 2");
                self.begins_item = true;
            }
            Tag::Table(columns) => self.begin_table(columns.len()),
            Tag::TableHead => self.in_head = true,
            Tag::TableRow => self.row.clear(),
            Tag::TableCell => self.cell = Some(self.text.len()),
            Tag::Emphasis => self.text.push_str("\\fI"),
            Tag::Strong => self.text.push_str("\\fB"),
            Tag::Link { .. } => {}
            other => return Err(format!("man pages have no {other:?}")),
        }
        Ok(())
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) if self.in_title => self.in_title = false,
            TagEnd::Heading(_) | TagEnd::Paragraph => self.new_line(),
            TagEnd::CodeBlock => {
                self.in_code = false;
                self.macro_line(".fi\n.RE");
            }
            TagEnd::List(_) => {
                self.lists -= 1;
                if self.lists > 0 {
                    self.macro_line(".RE");
                }
            }
            TagEnd::Item => {
                self.begins_item = false;
                self.new_line();
            }
            TagEnd::Table if self.is_list_of_terms() => {}
            TagEnd::Table => self.macro_line(".TE"),
            TagEnd::TableHead => {
                self.end_row();
                self.in_head = false;
            }
            TagEnd::TableRow => self.end_row(),
            TagEnd::TableCell => {
                let begin = self.cell.take().unwrap_or(self.text.len());
                self.row.push(self.text.split_off(begin));
            }
            TagEnd::Emphasis | TagEnd::Strong => self.text.push_str("\\fR"),
            _ => {}
        }
    }

    /// A table whose columns behind the first share the room that is left.
    fn begin_table(&mut self, columns: usize) {
        self.columns = columns;
        if !self.is_list_of_terms() {
            self.macro_line(".PP\n.TS");
            let others = " lx".repeat(columns.saturating_sub(1));
            let _ = writeln!(self.text, "lw(16n){others}.");
        }
    }

    fn is_list_of_terms(&self) -> bool {
        self.columns <= 2
    }

    fn end_row(&mut self) {
        let cells = std::mem::take(&mut self.row);
        if self.is_list_of_terms() {
            if let ([term, text], false) = (&cells[..], self.in_head) {
                self.macro_line(".TP 18n");
                let _ = write!(self.text, "{term}\n{text}");
                self.new_line();
            }
            return;
        }
        // Tables of options have a heading over their first column at most.
        let is_blank = cells.iter().skip(1).all(|cell| cell.is_empty());
        if self.in_head && is_blank {
            return;
        }
        for (at, cell) in cells.iter().enumerate() {
            self.text.push_str(if at == 0 { "T{\n" } else { "\tT{\n" });
            if !cell.is_empty() {
                self.text.push_str(cell);
                self.new_line();
            }
            self.text.push_str("T}");
        }
        self.text.push('\n');
    }

    /// Begins a line, unless one has just begun.
    fn new_line(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }

    fn macro_begin(&mut self, name: &str) {
        self.new_line();
        self.text.push_str(name);
    }

    fn macro_line(&mut self, line: &str) {
        self.macro_begin(line);
        self.text.push('\n');
    }

    /// Words of the page, which roff must not take for its own.
    fn words(&mut self, words: &str) {
        for (at, line) in words.split('\n').enumerate() {
            if at > 0 {
                self.text.push('\n');
            }
            if self.text.ends_with('\n') && line.starts_with(['.', '\'']) {
                self.text.push_str("\\&");
            }
            // Blank lines of a listing stay; elsewhere there are none.
            for character in line.chars() {
                match character {
                    '\\' => self.text.push_str("\\e"),
                    '-' => self.text.push_str("\\-"),
                    '^' => self.text.push_str("\\(ha"),
                    '~' => self.text.push_str("\\(ti"),
                    '`' => self.text.push_str("\\(ga"),
                    '\'' => self.text.push_str("\\(aq"),
                    '\t' => self.text.push_str("    "),
                    plain => self.text.push(plain),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::roff;

    fn body(markdown: &str) -> String {
        let page = roff(markdown, "2026-11-27", "0.1.0").expect("the page is converted");
        let lines = page.lines().skip(4).map(|line| format!("{line}\n"));
        lines.collect()
    }

    #[test]
    fn title_and_sections() {
        let page = roff(
            "# zpool(8)\n\n## NAME\n\n`zpool`: pools\n",
            "2026-11-27",
            "0.1.0",
        );
        let expected = "'\\\" t\n.TH ZPOOL 8 \"2026-11-27\" \"Tarn 0.1.0\" \"System Manager's Manual\"\n\
            .nh\n.ad l\n\
            .SH NAME\n.PP\n\\fBzpool\\fR: pools\n";
        assert_eq!(page.as_deref(), Ok(expected));
    }

    #[test]
    fn a_page_without_a_title_is_refused() {
        let refused = roff("zpool\n", "2026-11-27", "0.1.0");
        assert_eq!(
            refused,
            Err("'zpool' is no title of a man page, such as '# zpool(8)'".to_owned())
        );
    }

    #[test]
    fn what_roff_would_take_for_its_own_is_escaped() {
        let text = body("# a(8)\n\n.hidden and 'quoted' \\\\ x\n\n```\n.nf\n'it\n```\n");
        assert_eq!(
            text,
            ".PP\n\\&.hidden and \\(aqquoted\\(aq \\e x\n.PP\n.RS 4\n.nf\n\\&.nf\n\\&\\(aqit\n.fi\n.RE\n"
        );
    }

    #[test]
    fn tables_of_two_columns_are_lists_of_terms() {
        let text = body("# a(8)\n\n| option | |\n|---|---|\n| `-f` | by *force* |\n");
        assert_eq!(text, ".TP 18n\n\\fB\\-f\\fR\nby \\fIforce\\fR\n");
    }

    #[test]
    fn wide_tables_have_text_blocks_and_no_blank_heading() {
        let text = body("# a(8)\n\n| file | | |\n|---|---|---|\n| `a` | b | |\n");
        assert_eq!(
            text,
            ".PP\n.TS\nlw(16n) lx lx.\nT{\n\\fBa\\fR\nT}\tT{\nb\nT}\tT{\nT}\n.TE\n"
        );
    }

    #[test]
    fn lists_and_links() {
        let text = body("# a(8)\n\n- one\n- [zfs(8)](zfs.8.md)\n");
        assert_eq!(text, ".IP \\(bu 2\none\n.IP \\(bu 2\nzfs(8)\n");
    }
}
