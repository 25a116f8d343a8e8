//! What pages are made of: tables, sections, folds. Text becomes markup only by maud's templates, which
//! escape it; a [`Markup`] is markup already.

use std::fmt::Write as _;

use maud::{Markup, PreEscaped, Render, html};

/// JSON that may stand in a script element: nothing in it can end the element.
pub(crate) fn script_json(value: &impl serde::Serialize) -> Markup {
    let json = serde_json::to_string(value).unwrap_or_else(|_| "null".into());
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            // Only strings can contain these, and there the escape means the same.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(safe, "\\u{:04x}", c as u32);
            }
            c => safe.push(c),
        }
    }
    PreEscaped(safe)
}

/// A cell of a [`Table`].
pub enum Cell {
    /// To the left.
    Text(Markup),
    /// To the right.
    Number(Markup),
}

impl Cell {
    /// A cell to the left.
    pub fn text(text: impl Render) -> Self {
        Cell::Text(text.render())
    }

    /// A cell to the right.
    pub fn number(text: impl Render) -> Self {
        Cell::Number(text.render())
    }
}

/// The class of what stands to the right in its column.
fn class(is_number: bool) -> Option<&'static str> {
    is_number.then_some("n")
}

/// A row of a [`Table`].
struct Row {
    name: String,
    cells: Vec<Cell>,
}

/// A table whose rows begin with their names.
pub struct Table {
    /// What it shows; read out, and printed above the table unless a heading says it.
    pub caption: String,
    kind: String,
    columns: Vec<String>,
    rows: Vec<Row>,
}

impl Table {
    /// A table without rows. `kind` heads the names of the rows, `columns` head what follows them.
    pub fn new(caption: impl Into<String>, kind: &str, columns: &[&str]) -> Self {
        Table {
            caption: caption.into(),
            kind: kind.to_owned(),
            columns: columns.iter().map(|c| (*c).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a column to the right.
    pub fn column(&mut self, name: impl Into<String>) {
        self.columns.push(name.into());
    }

    /// Adds a row; it has a cell for each column.
    pub fn row(&mut self, name: impl Into<String>, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(Row { name: name.into(), cells: cells.into_iter().collect() });
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Has it no rows?
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Rows as columns and columns as rows, which are of `kind`.
    #[must_use]
    pub(crate) fn transposed(self, kind: &str) -> Self {
        let mut table = Table::new(self.caption, kind, &[]);
        table.rows = self.columns.into_iter().map(|name| Row { name, cells: Vec::new() }).collect();
        for row in self.rows {
            table.columns.push(row.name);
            for (to, cell) in table.rows.iter_mut().zip(row.cells) {
                to.cells.push(cell);
            }
        }
        table
    }

    /// As it is, or transposed when it has many columns of results under each other's names.
    #[must_use]
    pub(crate) fn upright(self, results: usize) -> Self {
        if results > 5 { self.transposed("Result") } else { self }
    }

    fn has_numbers(&self, column: usize) -> bool {
        self.rows.iter().any(|row| matches!(row.cells.get(column), Some(Cell::Number(_))))
    }
}

impl Render for Table {
    /// The table in a box of its own that scrolls when the page is too narrow; keyboard users can scroll it.
    fn render(&self) -> Markup {
        html! {
            div.scroll tabindex="0" role="group" aria-label=(self.caption) {
                table {
                    caption.unseen { (self.caption) }
                    thead {
                        tr {
                            th scope="col" { (self.kind) }
                            @for (i, column) in self.columns.iter().enumerate() {
                                th scope="col" class=[class(self.has_numbers(i))] { (column) }
                            }
                        }
                    }
                    tbody {
                        @for row in &self.rows {
                            tr {
                                th scope="row" { (row.name) }
                                @for cell in &row.cells {
                                    @match cell {
                                        Cell::Text(content) => td { (content) },
                                        Cell::Number(content) => td.n { (content) },
                                    }
                                }
                            }
                            "\n"
                        }
                    }
                }
            }
        }
    }
}

/// What can be unfolded, closed at first.
pub fn details(summary: &str, content: impl Render) -> Markup {
    html! { details { summary { (summary) } (content) } }
}

/// A section with a heading that the navigation leads to.
pub struct Section {
    pub id: &'static str,
    /// Its name where there is little room.
    pub link: &'static str,
    title: &'static str,
    body: Markup,
}

impl Section {
    /// With a heading that anchors lead to.
    pub fn new(id: &'static str, title: &'static str, body: Markup) -> Self {
        Section { id, title, link: title, body }
    }

    /// With a shorter name for the navigation.
    #[must_use]
    pub fn called(self, link: &'static str) -> Self {
        Section { link, ..self }
    }
}

impl Render for Section {
    fn render(&self) -> Markup {
        html! {
            section id=(self.id) aria-labelledby={ (self.id) "-h" } {
                h2 id={ (self.id) "-h" } { (self.title) }
                (self.body)
            }
            "\n"
        }
    }
}

/// `part` of `whole` in percent with one decimal, for positions and widths: `43.2`; at most `100.0`.
pub(super) fn percent(part: u64, whole: u64) -> String {
    let permille = match whole {
        0 => 0,
        _ => (u128::from(part) * 1000 / u128::from(whole)).min(1000) as u64,
    };
    format!("{}.{}", permille / 10, permille % 10)
}
