//! Text as HTML: everything that comes from a file goes through [`escape`].

use std::fmt::Write as _;

/// Text for the body or a quoted attribute of a document.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// JSON that may stand in a script element: nothing in it can end the element.
pub fn script_json(value: &impl serde::Serialize) -> String {
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
    safe
}

/// A cell of a [`Table`].
pub enum Cell {
    /// Text, to the left.
    Text(String),
    /// A number, to the right.
    Number(String),
    /// Markup that is escaped already.
    Markup(String),
}

impl Cell {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Cell::Text(text.into())
    }

    /// A number with its unit.
    pub fn number(text: impl Into<String>) -> Self {
        Cell::Number(text.into())
    }
}

/// A table whose rows begin with a header.
pub struct Table {
    /// What it shows; read out, and printed above the table unless a heading says it.
    pub caption: String,
    /// Headers; a leading `>` puts a column to the right, as its numbers are.
    pub columns: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub fn new(caption: impl Into<String>, columns: &[&str]) -> Self {
        Table {
            caption: caption.into(),
            columns: columns.iter().map(|c| (*c).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Rows as columns; what headed the columns heads the rows, under `corner`.
    #[must_use]
    pub fn transposed(self, corner: &str) -> Self {
        let name = |cell: &Cell| match cell {
            Cell::Text(text) | Cell::Number(text) | Cell::Markup(text) => text.clone(),
        };
        let mut columns = vec![corner.to_owned()];
        columns.extend(self.rows.iter().filter_map(|row| row.first()).map(name));
        let mut rows: Vec<Vec<Cell>> =
            self.columns.iter().skip(1).map(|column| vec![Cell::text(column.clone())]).collect();
        for row in self.rows {
            for (cells, cell) in rows.iter_mut().zip(row.into_iter().skip(1)) {
                cells.push(cell);
            }
        }
        Table { caption: self.caption, columns, rows }
    }

    /// As it is, or transposed when it has many columns of results under each other's names.
    #[must_use]
    pub fn upright(self, results: usize) -> Self {
        if results > 5 { self.transposed("Result") } else { self }
    }

    /// As HTML, in a box of its own that scrolls when the page is too narrow.
    pub fn html(&self) -> String {
        let caption = escape(&self.caption);
        // Who uses the keyboard must be able to scroll it.
        let mut out = format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{caption}\"><table>\n\
             <caption class=\"unseen\">{caption}</caption>\n<thead><tr>"
        );
        for column in &self.columns {
            let (class, name) = match column.strip_prefix('>') {
                Some(name) => (" class=\"n\"", name),
                None => ("", column.as_str()),
            };
            let _ = write!(out, "<th scope=\"col\"{class}>{}</th>", escape(name));
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for row in &self.rows {
            out.push_str("<tr>");
            for (i, cell) in row.iter().enumerate() {
                let (class, inner) = match cell {
                    Cell::Text(text) => ("", escape(text)),
                    Cell::Number(text) => (" class=\"n\"", escape(text)),
                    Cell::Markup(markup) => ("", markup.clone()),
                };
                let _ = match i {
                    0 => write!(out, "<th scope=\"row\"{class}>{inner}</th>"),
                    _ => write!(out, "<td{class}>{inner}</td>"),
                };
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>\n");
        out
    }
}

/// What can be unfolded, closed at first.
pub fn details(summary: &str, content: &str) -> String {
    format!("<details><summary>{}</summary>\n{content}</details>\n", escape(summary))
}

/// A section with a heading that the navigation leads to.
pub struct Section {
    /// Its fragment.
    pub id: &'static str,
    /// Its heading.
    pub title: String,
    /// Its name where there is little room.
    pub link: String,
    /// What follows the heading.
    pub body: String,
}

impl Section {
    /// A section.
    pub fn new(id: &'static str, title: &str, body: String) -> Self {
        Section { id, title: title.to_owned(), link: title.to_owned(), body }
    }

    /// With a shorter name for the navigation.
    #[must_use]
    pub fn called(self, link: &str) -> Self {
        Section { link: link.to_owned(), ..self }
    }

    /// As HTML.
    pub fn html(&self) -> String {
        let Section { id, body, .. } = self;
        let title = escape(&self.title);
        format!(
            "<section id=\"{id}\" aria-labelledby=\"{id}-h\">\n<h2 id=\"{id}-h\">{title}</h2>\n{body}</section>\n"
        )
    }
}

/// `part` of `whole` in percent with one decimal, for positions and widths: `43.2`; at most `100.0`.
pub fn percent(part: u64, whole: u64) -> String {
    let permille = match whole {
        0 => 0,
        _ => (u128::from(part) * 1000 / u128::from(whole)).min(1000) as u64,
    };
    format!("{}.{}", permille / 10, permille % 10)
}
