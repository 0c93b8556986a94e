//! The picture of `tarn top`: lines of text, with or without colours.

use crate::analytics_tables::{counts_of, percentile};
use crate::heat_map::HeatMap;
use crate::hit_plot::HitPlot;
use crate::slow::printable;
use crate::stack_plot::{StackCell, StackPlot, up};
use tarn_administration::messages::analytics::{Answer, Group};
use tarn_terminal::number::{nice_count, nice_time};
use tarn_terminal::timestamp;

/// What a picture shows.
#[derive(Debug, Clone, Default)]
pub struct Frame {
    /// By cause and latency.
    pub heat: Answer,
    /// The left table.
    pub left: Answer,
    /// The right table.
    pub right: Answer,
}

/// How it is shown.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Columns and rows of the terminal.
    pub size: (usize, usize),
    /// With colours.
    pub is_coloured: bool,
    /// Time stands still.
    pub is_paused: bool,
    /// Misses lie upon hits.
    pub is_stacked: bool,
}

/// Columns of the labels left of the heat map.
const LABEL_COLUMNS: usize = 8;
/// Rows of hits, and of misses.
const PLOT_ROWS: usize = 3;
/// Rows of the tables at least, without their heading.
const TABLE_ROWS: usize = 5;
/// Rows of headings and lines between.
const OTHER_ROWS: usize = 5;

const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const RED_GROUND: &str = "\x1b[41m";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

/// How many columns of time a heat map has in a terminal of that width.
pub fn map_columns(width: usize) -> usize {
    width.saturating_sub(LABEL_COLUMNS + 1).clamp(10, 390)
}

/// The lines of the picture.
pub fn lines(frame: &Frame, look: &Look) -> Vec<String> {
    let (width, height) = look.size;
    let fixed = OTHER_ROWS + 2 * PLOT_ROWS;
    let left = height.saturating_sub(fixed);
    let table_rows = (left / 3).max(TABLE_ROWS);
    let map_rows = left.saturating_sub(table_rows).max(TABLE_ROWS);
    let mut lines = vec![head(frame, look)];
    lines.extend(map(&frame.heat, map_rows, look));
    lines.push(causes(&frame.heat, look));
    lines.extend(plot(&frame.heat, look));
    lines.push(String::new());
    let half = width.saturating_sub(2) / 2;
    let tables = table(&frame.left, table_rows, half).into_iter();
    let tables = tables.zip(table(&frame.right, table_rows, half));
    for (number, (left, right)) in tables.enumerate() {
        let line = format!("{left}  {right}");
        let line = line.trim_end();
        lines.push(match look.is_coloured && number == 0 {
            true => format!("{BOLD}{line}{PLAIN}"),
            false => line.to_owned(),
        });
    }
    if look.is_coloured {
        lines.truncate(height);
    }
    lines
}

/// Time, how many, how long.
fn head(frame: &Frame, look: &Look) -> String {
    let heat = &frame.heat;
    let end_ms = heat.from_ms + heat.columns * heat.column_ms;
    let end_s = i64::try_from(end_ms / 1000).unwrap_or(0);
    let count: u64 = heat.total.sums.iter().sum();
    let counts = counts_of(&heat.total);
    let at = |permille| percentile(heat, &counts, permille).map_or("-".to_owned(), nice_time);
    let mut text = format!(
        "tarn top  {}  {count} operations, half within {}, 99% within {}, all within {}",
        timestamp::local(end_s, "%H:%M:%S"),
        at(500),
        at(990),
        at(1000)
    );
    if heat.dropped > 0 {
        text += &format!("  {} dropped", heat.dropped);
    }
    if look.is_paused {
        text += "  PAUSED";
    }
    cut(&text, look.size.0)
}

fn map(heat: &Answer, rows_max: usize, look: &Look) -> Vec<String> {
    let map = HeatMap::of(heat, rows_max);
    let signs = map.signs();
    let mut lines = Vec::new();
    for (row, signs) in signs.iter().enumerate() {
        let mut line = format!("{:>7} ", nice_time(map.lows[row]));
        for (column, sign) in signs.iter().enumerate() {
            let group = map.rows[row][column].group.filter(|_| look.is_coloured);
            match group.and_then(|group| heat.groups.get(group)) {
                Some(group) => {
                    line += colour_of(cause_of(group));
                    line.push(*sign);
                    line += PLAIN;
                }
                None => line.push(*sign),
            }
        }
        lines.push(line.trim_end().to_owned());
    }
    if lines.is_empty() {
        lines.push(format!("{:>7} no such operations", "-"));
    }
    lines
}

fn cause_of(group: &Group) -> &str {
    group.key.first().map_or("", String::as_str)
}

/// The colour of a cause.
fn colour_of(cause: &str) -> &'static str {
    match cause {
        "cache_hit" => GREEN,
        "dirty" => "\x1b[36m",
        "cache_in_flight" => "\x1b[96m",
        "second_level" => "\x1b[34m",
        "disk" => RED,
        "special" => "\x1b[94m",
        "scan" => "\x1b[31;1m",
        "log" => "\x1b[33m",
        "log_device" => "\x1b[93m",
        "txg" => "\x1b[33;1m",
        "lock" => "\x1b[95m",
        "throttled" => "\x1b[35m",
        "error" => "\x1b[91m",
        _ => "\x1b[37m",
    }
}

/// Which causes there are, in their colours, with their shares.
fn causes(heat: &Answer, look: &Look) -> String {
    let whole: u64 = heat.total.sums.iter().sum();
    let shown = heat.groups.iter().map(|group| {
        // A share for people.
        let share = 100.0 * group.sum as f64 / whole.max(1) as f64;
        let text = format!("{} {share:.1}%", cause_of(group));
        match look.is_coloured {
            true => format!("{}{text}{PLAIN}", colour_of(cause_of(group))),
            false => text,
        }
    });
    let shown: Vec<String> = shown.collect();
    format!("{:>7} {}", "cause", shown.join(", "))
}

/// What the cache answered, up; what waited for a device, down, or upon it.
fn plot(heat: &Answer, look: &Look) -> Vec<String> {
    let hits = sums_of(heat, &["cache_hit", "dirty", "cache_in_flight"]);
    let misses = sums_of(heat, &["second_level", "special", "disk", "scan"]);
    match look.is_stacked {
        true => stack(&hits, &misses, look),
        false => mirror(&hits, &misses, look),
    }
}

/// For each column the operations of these causes.
fn sums_of(heat: &Answer, wanted: &[&str]) -> Vec<u64> {
    let mut sums = vec![0; heat.total.sums.len()];
    let groups = heat.groups.iter();
    for group in groups.filter(|group| wanted.contains(&cause_of(group))) {
        let columns = sums.iter_mut().zip(&group.series.sums);
        columns.for_each(|(sum, one)| *sum += one);
    }
    sums
}

fn mirror(hits: &[u64], misses: &[u64], look: &Look) -> Vec<String> {
    let plot = HitPlot::of(hits, misses, PLOT_ROWS);
    let line = |label: String, row: &[char], colour: &str| {
        let signs: String = row.iter().collect();
        let signs = signs.trim_end();
        match look.is_coloured {
            true => format!("{label:>7} {colour}{signs}{PLAIN}"),
            false => format!("{label:>7} {signs}").trim_end().to_owned(),
        }
    };
    let label = |text: &str, number: usize, at: usize| match number == at {
        true => text.to_owned(),
        false => String::new(),
    };
    let full = format!("{}/col", nice_count(plot.full));
    let hits = plot.hits.iter().enumerate().map(|(number, row)| {
        let text = match number {
            0 => full.clone(),
            number => label("hits", number, PLOT_ROWS - 1),
        };
        line(text, row, GREEN)
    });
    let misses = plot.misses.iter().enumerate();
    let misses = misses.map(|(number, row)| line(label("misses", number, 0), row, RED));
    hits.chain(misses).collect()
}

/// Hits in green and misses upon them in red; without colours solid and shaded.
fn stack(hits: &[u64], misses: &[u64], look: &Look) -> Vec<String> {
    let plot = StackPlot::of(hits, misses, 2 * PLOT_ROWS);
    let lines = plot.rows.iter().enumerate().map(|(number, row)| {
        let label = match number {
            0 => format!("{}/col", nice_count(plot.full)),
            number if number == PLOT_ROWS => "misses▒".to_owned(),
            number if number == 2 * PLOT_ROWS - 1 => "hits █".to_owned(),
            _ => String::new(),
        };
        let signs: String = match look.is_coloured {
            true => row.iter().map(|cell| coloured(*cell)).collect(),
            false => row.iter().map(|cell| cell.sign()).collect(),
        };
        format!("{label:>7} {signs}").trim_end().to_owned()
    });
    lines.collect()
}

/// A cell whose misses are red, above hits that are green.
fn coloured(cell: StackCell) -> String {
    match (cell.hits, cell.misses) {
        (0, 0) => " ".to_owned(),
        (hits, 0) => format!("{GREEN}{}{PLAIN}", up(hits)),
        // What is below is the sign, what is above its ground; there is no third colour.
        (hits @ 1.., misses) if hits + misses == 8 => {
            format!("{GREEN}{RED_GROUND}{}{PLAIN}", up(hits))
        }
        (hits, misses) => format!("{RED}{}{PLAIN}", up(hits + misses)),
    }
}

/// A table of keys, of so many rows and columns.
fn table(answer: &Answer, rows: usize, width: usize) -> Vec<String> {
    const NUMBERS: usize = 24;
    let name_columns = width.saturating_sub(NUMBERS).max(8);
    let name = answer
        .by
        .first()
        .map_or(String::new(), |field| field.to_uppercase());
    let row = |name: &str, count: &str, median: &str, slow: &str| {
        let name = cut(name, name_columns);
        let padding = " ".repeat(name_columns.saturating_sub(name.chars().count()));
        format!("{name}{padding} {count:>7} {median:>7} {slow:>7}")
    };
    let mut lines = vec![row(&name, "OPS", "P50", "P99")];
    let mut push = |name: &str, sum: u64, series| {
        let counts = counts_of(series);
        let at = |permille| percentile(answer, &counts, permille).map_or("-".into(), nice_time);
        let (median, slow): (String, String) = (at(500), at(990));
        lines.push(row(&printable(name), &nice_count(sum), &median, &slow));
    };
    for group in answer.groups.iter().take(rows.saturating_sub(1)) {
        push(&group.key.join(" "), group.sum, &group.series);
    }
    let shown: u64 = answer
        .groups
        .iter()
        .take(rows.saturating_sub(1))
        .map(|group| group.sum)
        .sum();
    let whole: u64 = answer.total.sums.iter().sum();
    if whole > shown {
        let text = format!(
            "({} others)",
            answer
                .keys_found
                .saturating_sub(u64::try_from(rows.saturating_sub(1)).unwrap_or(0),)
        );
        lines.push(row(&text, &nice_count(whole - shown), "", ""));
    }
    lines.resize(rows + 1, String::new());
    let pad = |line: String| {
        let missing = width.saturating_sub(line.chars().count());
        line + &" ".repeat(missing)
    };
    lines.into_iter().map(pad).collect()
}

/// The end of a text that is too long is what tells it from others; its beginning becomes `…`.
fn cut(text: &str, columns: usize) -> String {
    let count = text.chars().count();
    match count <= columns {
        true => text.to_owned(),
        false => {
            let kept = text.chars().skip(count - columns.saturating_sub(1));
            std::iter::once('…').chain(kept).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_administration::messages::analytics::Series;

    fn frame() -> Frame {
        let series = |sums: &[u64], cells: &[u64]| Series {
            sums: sums.to_vec(),
            cells: cells.to_vec(),
        };
        let group = |key: &str, sum, series| Group {
            key: vec![key.to_owned()],
            ids: vec!["1".to_owned()],
            sum,
            series,
        };
        let heat = Answer {
            columns: 3,
            column_ms: 1000,
            states: vec![0, 2, 2],
            buckets: vec![[65_536, 69_632], [8_126_464, 8_388_608]],
            total: series(&[0, 9, 4], &[1, 0, 9, 2, 1, 4]),
            groups: vec![
                group("cache_hit", 9, series(&[0, 9, 0], &[1, 0, 9])),
                group("disk", 4, series(&[0, 0, 4], &[2, 1, 4])),
            ],
            ..Answer::default()
        };
        let files = Answer {
            by: vec!["file".to_owned()],
            groups: vec![group("/tank/a\u{1b}[2J", 9, series(&[0, 9, 0], &[1, 0, 9]))],
            keys_found: 2,
            ..heat.clone()
        };
        Frame {
            heat,
            left: files.clone(),
            right: files,
        }
    }

    fn look(is_coloured: bool) -> Look {
        Look {
            size: (80, 24),
            is_coloured,
            is_paused: true,
            is_stacked: false,
        }
    }

    #[test]
    fn a_picture_shows_latency_the_cache_and_who() {
        let lines = lines(&frame(), &look(false));
        let text = lines.join("\n");
        assert!(
            lines[0].contains("13 operations, half within 69us, 99% within 8ms"),
            "{text}"
        );
        assert!(lines[0].ends_with("PAUSED"));
        // The slow ones are on top, the fast ones below; the first column was not collected.
        assert!(
            lines[1].ends_with("?  %") || lines[1].ends_with("? %"),
            "{text}"
        );
        let last_of_map = lines
            .iter()
            .position(|line| line.contains("cause"))
            .unwrap()
            - 1;
        assert!(lines[last_of_map].starts_with("   65us ?#"), "{text}");
        assert!(text.contains("cause cache_hit 69.2%, disk 30.8%"), "{text}");
        assert!(text.contains("   hits  █\n"), "{text}");
        assert!(text.contains(" misses   █\n"), "{text}");
        assert!(text.contains("/tank/a?[2J "), "{text}");
        assert!(
            text.contains("(0 others)") || text.contains("others)"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'), "no control characters in text");
    }

    #[test]
    fn in_colour_hits_are_green_misses_red_and_it_fits_the_screen() {
        let lines = lines(&frame(), &look(true));
        assert!(lines.len() <= 24);
        let text = lines.join("\n");
        assert!(text.contains(&format!("{GREEN}#{PLAIN}")), "{text}");
        assert!(
            text.contains(&format!("   hits {GREEN} █{PLAIN}")),
            "{text}"
        );
        assert!(text.contains(&format!(" misses {RED}  █{PLAIN}")), "{text}");
    }

    #[test]
    fn misses_lie_upon_hits_where_they_are_stacked() {
        let stacked = |is_coloured| Look {
            is_stacked: true,
            ..look(is_coloured)
        };
        let text = lines(&frame(), &stacked(false)).join("\n");
        assert!(text.contains(" hits █  █▒\n"), "{text}");
        assert!(text.contains("  9/col  █\n"), "{text}");
        let text = lines(&frame(), &stacked(true)).join("\n");
        let foot = format!(" hits █  {GREEN}█{PLAIN}{RED}█{PLAIN}");
        assert!(text.contains(&foot), "{text}");
        // As many lines as hits and misses apart have.
        let apart = lines(&frame(), &look(true));
        assert_eq!(lines(&frame(), &stacked(true)).len(), apart.len());
    }

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(cut("/tank/home/file", 8), "…me/file");
        assert_eq!(cut("short", 8), "short");
        assert_eq!(map_columns(0), 10);
    }
}
