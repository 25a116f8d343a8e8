//! Tables of tasks: a header that names the columns, then a task a line.
//!
//! Names of columns are those of papers and tools (`wcet`, `period`, `deadline`; C, T, D), in any case and
//! order; columns of times end in their unit (`wcet_us`), or `--unit` says it. Columns are separated by
//! commas, semicolons or tabs, cells may be in double quotes (RFC 4180), and lines that begin with `#` are
//! comments.

use std::ops::Range;

use punctual_sched::Duration;

use super::draft::{HostDraft, TaskDraft, UnitDraft, WorkDraft};
use super::input::{Input, shorten};
use super::settings::Settings;
use super::task_set::{Round, TaskSet, partition, priority};
use crate::file::nearest;
use crate::file::source::Place;
use crate::host::Cost;

/// What a column has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Name,
    Cost,
    LeastCost,
    Period,
    Separation,
    Deadline,
    Offset,
    Priority,
    Processors,
    Partition,
}

/// Names of the columns; errors show the first.
const COLUMNS: [(Column, &[&str]); 10] = [
    (Column::Name, &["name", "task", "task_name", "id", "task_id"]),
    (Column::Cost, &["wcet", "cost", "execution_time", "exec_cost", "c", "e"]),
    (Column::LeastCost, &["bcet", "cost_min"]),
    (Column::Period, &["period", "t", "p"]),
    (Column::Separation, &["separation", "interarrival", "min_interarrival", "mit"]),
    (Column::Deadline, &["deadline", "relative_deadline", "d"]),
    (Column::Offset, &["offset", "phase", "release"]),
    (Column::Priority, &["priority", "prio"]),
    (Column::Processors, &["affinity", "processors", "cpus", "cpu", "core"]),
    (Column::Partition, &["partition", "cluster"]),
];

/// Units at the end of a column's name.
const UNITS: [(&str, Duration); 4] = [
    ("ns", Duration::from_ns(1)),
    ("us", Duration::from_us(1)),
    ("ms", Duration::from_ms(1)),
    ("s", Duration::from_secs(1)),
];

impl Column {
    fn names(self) -> &'static [&'static str] {
        COLUMNS.iter().find(|(column, _)| *column == self).map_or(&[], |(_, names)| names)
    }

    fn is_time(self) -> bool {
        match self {
            Column::Cost
            | Column::LeastCost
            | Column::Period
            | Column::Separation
            | Column::Deadline
            | Column::Offset => true,
            Column::Name | Column::Priority | Column::Processors | Column::Partition => false,
        }
    }

    /// The column of this name in lower case, and its unit if the name has one.
    fn find(name: &str) -> Option<(Column, Option<Duration>)> {
        let called = |name: &str| COLUMNS.iter().find(|(_, names)| names.contains(&name)).map(|(c, _)| *c);
        if let Some(column) = called(name) {
            return Some((column, None));
        }
        let (name, unit) = name.rsplit_once('_')?;
        let (_, unit) = UNITS.iter().find(|(suffix, _)| *suffix == unit)?;
        called(name).filter(|column| column.is_time()).map(|column| (column, Some(*unit)))
    }
}

/// A cell, without quotes and blanks around it.
struct Cell {
    text: String,
    /// In its line.
    range: Range<usize>,
}

/// The columns that are read.
struct Columns {
    place: Place,
    separator: char,
    /// In the order of the cells; `None`: not known.
    list: Vec<Option<(Column, Duration)>>,
}

pub(super) fn read(input: &mut Input, settings: &Settings<'_>) -> HostDraft {
    let mut set = TaskSet::default();
    for file in 0..input.files() {
        table(input, settings, &mut set, file);
    }
    set.assemble(input, settings)
}

fn table(input: &mut Input, settings: &Settings<'_>, set: &mut TaskSet, file: usize) -> Option<()> {
    let text = input.text(file).to_string();
    let mut at = 0;
    let mut columns: Option<Columns> = None;
    let before = set.len();
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let line = line.trim_end_matches(['\n', '\r']);
        let (start, line) = match line.strip_prefix('\u{feff}') {
            // Spreadsheets begin a file with a byte order mark.
            Some(rest) => (start + line.len() - rest.len(), rest),
            None => (start, line),
        };
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        match &columns {
            None => columns = Some(header(input, settings, file, start, line)?),
            Some(columns) => row(input, set, columns, file, start, line)?,
        }
    }
    if set.len() == before && input.errors.count() == 0 {
        let place = columns.map_or_else(|| input.place(file, 0..0), |columns| columns.place);
        let example = "expected a header and a line for each task, for example name,wcet_us,period_us";
        input.error(place, "the table has no task", example);
    }
    Some(())
}

/// The columns that a header names.
fn header(
    input: &mut Input,
    settings: &Settings<'_>,
    file: usize,
    start: usize,
    line: &str,
) -> Option<Columns> {
    let place = input.place(file, start..start + line.len());
    let separator = [',', ';', '\t'].into_iter().find(|separator| line.contains(*separator)).unwrap_or(',');
    let cells = cells_of(input, file, start, line, separator)?;
    let mut columns = Columns { place, separator, list: Vec::new() };
    let mut unknown = Vec::new();
    for Cell { text, range } in cells {
        let place = input.place(file, start + range.start..start + range.end);
        let found = Column::find(&folded(&text));
        let Some((column, unit)) = found else {
            unknown.push((text, place));
            columns.list.push(None);
            continue;
        };
        if columns.has(column) {
            let message = format!("`{}` is a second column of this kind", shorten(&text));
            input.error(place, message, format!("expected one of {}", column.names().join(", ")));
        }
        let unit = unit.or(settings.unit).filter(|_| column.is_time());
        if column.is_time() && unit.is_none() {
            let name = shorten(&text);
            let expected = format!("expected {name}_ns, {name}_us, {name}_ms or {name}_s, or --unit");
            input.error(place, format!("the column `{name}` has no unit"), expected);
        }
        columns.list.push(Some((column, unit.unwrap_or(Duration::from_us(1)))));
        note_meaning(input, column, place);
    }
    columns.require(input, &unknown)?;
    for (name, place) in unknown {
        let known = COLUMNS.iter().flat_map(|(_, names)| words(names));
        let meant = meant_by(&name, known).map(|name| format!("; did you mean {name}?"));
        let text = format!("the column {:?} is not known and not carried over", shorten(&name));
        input.note(place, text + &meant.unwrap_or_default());
    }
    Some(columns)
}

/// Notes what a column leaves open.
fn note_meaning(input: &mut Input, column: Column, place: Place) {
    match column {
        Column::Priority => input.note(place, "a smaller priority is taken as the more urgent one"),
        Column::Partition => input.note(place, "a partition is taken as the processor of this number"),
        _ => {}
    }
}

impl Columns {
    fn has(&self, column: Column) -> bool {
        self.list.iter().flatten().any(|(other, _)| *other == column)
    }

    /// Refuses a table without costs or without periods; `unknown` are its other columns.
    fn require(&self, input: &mut Input, unknown: &[(String, Place)]) -> Option<()> {
        let needed = [("costs", &[Column::Cost][..]), ("periods", &[Column::Period, Column::Separation])];
        for (what, any) in needed {
            if any.iter().any(|column| self.has(*column)) {
                continue;
            }
            let names = any.iter().flat_map(|column| words(column.names()));
            let meant = unknown.iter().find_map(|(name, _)| meant_by(name, names.clone()));
            let message = format!("there is no column of {what}");
            let first: Vec<&str> = any.iter().map(|column| column.names()[0]).collect();
            let (any, example) = (first.join(" or "), first[0]);
            let expected = format!("expected a column {any} with its unit, for example {example}_us");
            input.errors.add_nearest(self.place, message, expected, meant);
        }
        (input.errors.count() == 0).then_some(())
    }
}

/// The name among `names` that a column was probably meant to be, whatever its unit is.
fn meant_by(column: &str, names: impl Iterator<Item = &'static str>) -> Option<String> {
    let folded = folded(column);
    let is_unit = |suffix: &str| UNITS.iter().any(|(unit, _)| *unit == suffix);
    let name = folded.rsplit_once('_').filter(|(_, suffix)| is_unit(suffix)).map(|(name, _)| name);
    nearest(name.unwrap_or(&folded), names)
}

/// Names that are words; every name begins with some of the letters.
fn words(names: &'static [&'static str]) -> impl Iterator<Item = &'static str> + Clone {
    names.iter().copied().filter(|name| name.len() > 1)
}

/// A name of a column as it is compared: `Period (ms)` is `period_ms`.
fn folded(name: &str) -> String {
    let words = name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join("_")
}

fn row(
    input: &mut Input,
    set: &mut TaskSet,
    columns: &Columns,
    file: usize,
    start: usize,
    line: &str,
) -> Option<()> {
    let place = input.place(file, start..start + line.len());
    let cells = cells_of(input, file, start, line, columns.separator)?;
    if cells.len() != columns.list.len() {
        let message = format!("the row has {} cells", cells.len());
        input.error(place, message, format!("expected {}, as the header has", columns.list.len()));
        return Some(());
    }
    if cells.iter().all(|cell| cell.text.is_empty()) {
        return Some(());
    }
    let places: Vec<Place> = cells
        .iter()
        .map(|cell| input.place(file, start + cell.range.start..start + cell.range.end))
        .collect();
    let row = Row { place, columns, cells: &cells, places: &places };
    match row.task(input, set) {
        Some(task) => set.add(input, task),
        // The error is there; the other rows may have more.
        None => Some(()),
    }
}

/// A line below the header.
struct Row<'a> {
    place: Place,
    columns: &'a Columns,
    cells: &'a [Cell],
    places: &'a [Place],
}

impl<'a> Row<'a> {
    /// The cell of a column with the column's unit, unless it is empty.
    fn cell(&self, column: Column) -> Option<((&'a str, Place), Duration)> {
        let is_it = |read: &Option<(Column, Duration)>| read.is_some_and(|(other, _)| other == column);
        let at = self.columns.list.iter().position(is_it)?;
        let (_, unit) = self.columns.list[at]?;
        let text = self.cells[at].text.as_str();
        (!text.is_empty()).then_some(((text, self.places[at]), unit))
    }

    /// `Ok(None)`: the cell is empty, or there is no such column. `Err`: the error is reported.
    fn time(
        &self,
        input: &mut Input,
        set: &mut TaskSet,
        column: Column,
        round: Round,
    ) -> Result<Option<Duration>, ()> {
        let Some((cell, unit)) = self.cell(column) else { return Ok(None) };
        let what = format!("`{}`", column.names()[0]);
        set.time(input, cell, &what, unit, round).map(Some).ok_or(())
    }

    fn task(&self, input: &mut Input, set: &mut TaskSet) -> Option<TaskDraft> {
        let most = self.time(input, set, Column::Cost, Round::Up).ok()?;
        let least = self.time(input, set, Column::LeastCost, Round::Down).ok()?;
        let period = self.time(input, set, Column::Period, Round::Down).ok()?;
        let separation = self.time(input, set, Column::Separation, Round::Down).ok()?;
        let offset = self.time(input, set, Column::Offset, Round::Down).ok()?.unwrap_or(Duration::ZERO);
        let deadline = self.time(input, set, Column::Deadline, Round::Down).ok()?;
        let Some(most) = most else {
            input.error(self.place, "the row has no cost", "expected a time in the column of costs");
            return None;
        };
        let cost = Cost { min: least.unwrap_or(most), max: most };
        let work = match (period, separation) {
            (_, Some(separation)) => WorkDraft::Sporadic { separation, offset, cost },
            (Some(period), None) => WorkDraft::Periodic { period, offset, cost },
            (None, None) => {
                input.error(self.place, "the row has no period", "expected a time in the column of periods");
                return None;
            }
        };
        let priority = match self.cell(Column::Priority) {
            Some(((text, place), _)) => Some(priority(input, place, text)?),
            None => None,
        };
        let affinity = match (self.cell(Column::Processors), self.cell(Column::Partition)) {
            (Some(((text, place), _)), _) => Some(input.cpu_list(place, "`affinity`", text)?),
            (None, Some(((text, place), _))) => Some(partition(input, place, text)?),
            (None, None) => None,
        };
        let name = match self.cell(Column::Name) {
            Some(((name, _), _)) => name.to_string(),
            None => format!("T{}", set.len() + 1),
        };
        let unit = UnitDraft { deadline, priority, affinity, ..UnitDraft::default() };
        Some(TaskDraft { name, work, unit, place: self.place })
    }
}

/// The cells of a line. `None` and an error when a quote is not closed.
fn cells_of(input: &mut Input, file: usize, start: usize, line: &str, separator: char) -> Option<Vec<Cell>> {
    match cells(line, separator) {
        Ok(cells) => Some(cells),
        Err(range) => {
            let place = input.place(file, start + range.start..start + range.end);
            let expected = "expected \"text\", and \"\" for a quote within it";
            input.error(place, "a quoted cell does not end at its closing quote", expected);
            None
        }
    }
}

/// Why our own: crates for CSV do not say where in a line a cell is.
///
/// # Errors
/// The range of a cell whose quote is not closed, or has text behind it.
fn cells(line: &str, separator: char) -> Result<Vec<Cell>, Range<usize>> {
    let mut cells = Vec::new();
    let mut at = 0;
    loop {
        let next = |from: usize| line[from..].find(separator).map_or(line.len(), |found| from + found);
        let start = at + line[at..].len() - line[at..].trim_start_matches(' ').len();
        let (text, end) = match line[start..].strip_prefix('"') {
            Some(quoted) => {
                let close = closing_quote(quoted).ok_or(start..line.len())?;
                let behind = start + 1 + close + 1;
                let end = next(behind);
                if !line[behind..end].trim().is_empty() {
                    return Err(start..end);
                }
                (quoted[..close].replace("\"\"", "\"").trim().to_string(), end)
            }
            None => (line[start..next(start)].trim().to_string(), next(start)),
        };
        cells.push(Cell { text, range: start..start + line[start..end].trim_end().len() });
        if end == line.len() {
            return Ok(cells);
        }
        at = end + separator.len_utf8();
    }
}

/// Where a quoted text ends that begins behind its first quote.
fn closing_quote(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let found = at + text[at..].find('"')?;
        if !text[found + 1..].starts_with('"') {
            return Some(found);
        }
        at = found + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::{cells, folded};

    #[test]
    fn cells_are_separated_outside_quotes() {
        let texts = |line: &str| {
            let cells = cells(line, ',').map_err(|range| line[range].to_string())?;
            cells.into_iter().map(|cell| Ok(format!("{}@{}", cell.text, &line[cell.range]))).collect()
        };
        let read = |line: &str| -> Result<Vec<String>, String> { texts(line) };
        assert_eq!(read("a, b ,"), Ok(vec!["a@a".into(), "b@b".into(), "@".into()]));
        assert_eq!(read(r#""x,""y""" ,2"#), Ok(vec!["x,\"y\"@\"x,\"\"y\"\"\"".into(), "2@2".into()]));
        assert_eq!(read(r#"1, "x"#), Err("\"x".into()));
        assert_eq!(read(r#""x"y,1"#), Err("\"x\"y".into()));
    }

    #[test]
    fn names_of_columns_are_compared_without_punctuation() {
        for name in ["Period (ms)", "period_ms", "PERIOD-ms", "period[ms]"] {
            assert_eq!(folded(name), "period_ms");
        }
    }
}
