//! Tables: columns that are as wide as their widest cell, or script mode (`-H`), one tab between
//! cells and no heading.

/// How a column is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// One cell of a line whose widths are known beforehand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// What is in it.
    pub text: String,
    /// How wide it is at least, in bytes, as C's `printf` counts.
    pub width: usize,
    /// How it is aligned.
    pub align: Align,
}

/// A line of cells, two spaces apart; the last one, when left-aligned, is not padded.
pub fn line(cells: &[Cell]) -> String {
    let mut line = String::new();
    for (index, cell) in cells.iter().enumerate() {
        if index > 0 {
            line.push_str("  ");
        }
        let padding = " ".repeat(cell.width.saturating_sub(cell.text.len()));
        match cell.align {
            Align::Right => line.push_str(&(padding + &cell.text)),
            Align::Left if index + 1 == cells.len() => line.push_str(&cell.text),
            Align::Left => line.push_str(&(cell.text.clone() + &padding)),
        }
    }
    line + "\n"
}

/// Rows of text with a heading.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new(columns: Vec<(String, Align)>) -> Self {
        Table {
            columns,
            rows: Vec::new(),
        }
    }

    /// Adds a row; it must have a cell for every column.
    pub fn push(&mut self, row: Vec<String>) {
        assert_eq!(
            row.len(),
            self.columns.len(),
            "a row has a cell for every column"
        );
        self.rows.push(row);
    }

    /// True when it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text. Columns are separated by `gap` spaces; the last column, when left-aligned, is not
    /// padded.
    pub fn render(&self, scripted: bool, gap: usize) -> String {
        if scripted {
            return self.rows.iter().map(|row| row.join("\t") + "\n").collect();
        }
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|index| self.width(index))
            .collect();
        let heading: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        std::iter::once(&heading)
            .chain(&self.rows)
            .map(|row| self.line(row, &widths, gap))
            .collect()
    }

    /// Width of a column: its widest cell, heading included.
    fn width(&self, index: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[index].chars().count());
        cells
            .chain([self.columns[index].0.len()])
            .max()
            .unwrap_or(0)
    }

    /// One line with its newline.
    fn line(&self, row: &[String], widths: &[usize], gap: usize) -> String {
        let mut line = String::new();
        for (index, cell) in row.iter().enumerate() {
            if index > 0 {
                line.push_str(&" ".repeat(gap));
            }
            let padding = " ".repeat(widths[index] - cell.chars().count());
            match self.columns[index].1 {
                Align::Right => line.push_str(&(padding + cell)),
                Align::Left if index + 1 == row.len() => line.push_str(cell),
                Align::Left => line.push_str(&(cell.clone() + &padding)),
            }
        }
        line + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(vec![
            ("NAME".into(), Align::Left),
            ("USED".into(), Align::Right),
        ]);
        table.push(vec!["tank".into(), "45.9M".into()]);
        table.push(vec!["tank/home".into(), "24K".into()]);
        table
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        assert_eq!(
            table().render(false, 2),
            "NAME        USED\ntank       45.9M\ntank/home    24K\n"
        );
    }

    #[test]
    fn the_last_cell_of_a_line_is_padded_only_on_its_left() {
        let cell = |text: &str, align| Cell {
            text: text.to_string(),
            width: 6,
            align,
        };
        let line_of = |align| line(&[cell("tank", Align::Left), cell("1.5G", align)]);
        assert_eq!(line_of(Align::Right), "tank      1.5G\n");
        assert_eq!(line_of(Align::Left), "tank    1.5G\n");
    }

    #[test]
    fn script_mode_has_tabs_and_no_heading() {
        assert_eq!(table().render(true, 2), "tank\t45.9M\ntank/home\t24K\n");
    }
}
