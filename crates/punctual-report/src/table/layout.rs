//! Tables of aligned columns that fit a terminal.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};

use punctual_model::text::{printable, printable_lines};
use textwrap::{Options, WordSplitter};

/// Columns of a line where no terminal says otherwise, and of text on any terminal: longer lines read badly.
pub const WIDTH: usize = 100;
/// The narrowest terminal for which tables are made.
const WIDTH_MIN: usize = 40;
/// Names of domains and tasks wrap beyond this, and beyond half of a line.
const NAME_WIDTH: usize = 40;
/// The terminal's columns.
static TERMINAL: AtomicUsize = AtomicUsize::new(WIDTH);

/// Makes the tables of this process as wide as a terminal of so many columns. Without it they have [`WIDTH`].
pub fn set_width(columns: usize) {
    TERMINAL.store(columns.max(WIDTH_MIN), Ordering::Relaxed);
}

/// No line of a table is longer; long cells wrap.
pub fn table_width() -> usize {
    TERMINAL.load(Ordering::Relaxed)
}

/// No line of text is longer.
pub fn text_width() -> usize {
    table_width().min(WIDTH)
}
/// Spaces between columns.
const GAP: usize = 2;

pub(super) const BOLD: &str = "1";
pub(super) const RED: &str = "31";
pub(super) const GREEN: &str = "32";

/// A name and its numbers.
pub(super) type Row = (String, Vec<Value>);

/// A number and whether it is bad news.
#[derive(Clone)]
pub(super) struct Value {
    pub(super) text: String,
    pub(super) bad: bool,
}

impl Value {
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Value { text: text.into(), bad: false }
    }
}

/// Tables of as many columns as fit side by side, one below the other; nothing when there is no row. Only
/// texts that are wider than any terminal wrap; numbers never do.
pub(super) fn blocks(first: &str, columns: &[&str], rows: &[Row], colour: bool) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let names = rows.iter().map(|(name, _)| width(name)).max().unwrap_or(0).max(width(first));
    let names = names.clamp(1, NAME_WIDTH.min(table_width() / 2));
    let room = table_width() - names;
    let widths: Vec<usize> = (0..columns.len())
        .map(|i| {
            let cells = rows.iter().map(|(_, values)| values.get(i).map_or(0, |value| width(&value.text)));
            (cells.max().unwrap_or(0).max(width(columns[i])) + GAP).min(room)
        })
        .collect();
    let mut tables = Vec::new();
    let mut start = 0;
    while start < columns.len() {
        let fits = |end: &usize| widths[start..*end].iter().sum::<usize>() <= room;
        let end = (start + 1..=columns.len()).take_while(fits).last().unwrap_or(start + 1);
        let table = Table { names, widths: &widths[start..end], colour };
        let mut text = table.line((first, BOLD), columns[start..end].iter().map(|name| (*name, BOLD)));
        text += &"─".repeat(names + table.widths.iter().sum::<usize>());
        text.push('\n');
        for (name, values) in rows {
            let cells = values.iter().skip(start).take(end - start);
            let styled = cells.map(|value| (value.text.as_str(), if value.bad { RED } else { "" }));
            text += &table.line((name, ""), styled);
        }
        tables.push(text);
        start = end;
    }
    tables.join("\n")
}

/// A table whose first column holds names, to the left, and whose others hold numbers, to the right.
struct Table<'a> {
    names: usize,
    /// Of the columns of numbers, with the gap before each.
    widths: &'a [usize],
    colour: bool,
}

impl Table<'_> {
    /// A row of texts with their styles; it has as many lines as its tallest cell.
    fn line<'t>(&self, name: (&'t str, &str), cells: impl Iterator<Item = (&'t str, &'t str)>) -> String {
        let cells: Vec<(Vec<Cow<'t, str>>, &str, usize)> = cells
            .zip(self.widths)
            .map(|((text, style), width)| (wrapped(text, width - GAP), style, *width))
            .collect();
        let names = wrapped(name.0, self.names);
        let height = cells.iter().map(|(lines, ..)| lines.len()).max().unwrap_or(0).max(names.len());
        let mut out = String::new();
        for i in 0..height {
            let part = names.get(i).map_or("", Cow::as_ref);
            let mut line = paint(part, name.1, self.colour) + &padding(part, self.names);
            for (lines, style, width) in &cells {
                let part = lines.get(i).map_or("", Cow::as_ref);
                line += &padding(part, *width);
                line += &paint(part, style, self.colour);
            }
            out += line.trim_end();
            out.push('\n');
        }
        out
    }
}

fn padding(text: &str, to: usize) -> String {
    " ".repeat(to.saturating_sub(width(text)))
}

/// The lines of a cell. Names come from files and other programs: nothing in them reaches the terminal as
/// anything but text.
fn wrapped(text: &str, width: usize) -> Vec<Cow<'_, str>> {
    let options = Options::new(width).word_splitter(WordSplitter::NoHyphenation);
    match printable(text) {
        Cow::Borrowed(text) => textwrap::wrap(text, options),
        Cow::Owned(text) => {
            textwrap::wrap(&text, options).into_iter().map(|line| Cow::Owned(line.into_owned())).collect()
        }
    }
}

fn width(text: &str) -> usize {
    textwrap::core::display_width(&printable(text))
}

pub(super) fn section(title: &str, body: &str, colour: bool) -> String {
    if body.is_empty() { String::new() } else { lines(title, BOLD, colour) + body }
}

/// Text wrapped to the width, each line in the style; an empty style is the terminal's own.
pub(super) fn lines(text: &str, style: &str, colour: bool) -> String {
    textwrap::wrap(&printable_lines(text), text_width())
        .iter()
        .map(|line| paint(line, style, colour) + "\n")
        .collect()
}

fn paint(text: &str, style: &str, colour: bool) -> String {
    if colour && !style.is_empty() && !text.is_empty() {
        format!("\u{1b}[{style}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}
