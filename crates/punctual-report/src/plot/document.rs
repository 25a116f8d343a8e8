//! What all SVG documents have: size, colours, text.

pub(super) const WIDTH: f64 = 760.0;
pub(super) const HEIGHT: f64 = 420.0;

const FONT: &str = r#"font-family="system-ui, sans-serif" font-size="13""#;
const LIGHT: &str = "svg{color:#1f2328;background:#fff}.grid{stroke:#d0d7de}.muted{fill:#57606a}";
const DARK: &str = "svg{color:#e6edf3;background:#0d1117}.grid{stroke:#30363d}.muted{fill:#9198a1}";

/// Okabe and Ito's palette, distinguishable with any colour vision; black becomes the page's text colour.
pub(super) const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "currentColor"];

/// Text for the body or a quoted attribute of an XML document.
pub(super) fn escape(text: &str) -> String {
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

/// An SVG document while it is written.
pub(super) struct Document(String);

impl Document {
    /// A document with its heading.
    pub(super) fn new(title: &str) -> Self {
        Document::with_height(title, HEIGHT)
    }

    /// The same, of this height.
    pub(super) fn with_height(title: &str, height: f64) -> Self {
        let title = escape(title);
        Document(format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" {FONT}>
<title>{title}</title>
<style>{LIGHT}@media(prefers-color-scheme:dark){{{DARK}}}</style>
<text x="64" y="26" font-size="16" font-weight="600" fill="currentColor">{title}</text>
"#
        ))
    }

    /// Adds an element on a line of its own.
    pub(super) fn put(&mut self, element: String) {
        self.0 += &element;
        self.0.push('\n');
    }

    /// Adds the title of the vertical axis, whose middle is at `y`.
    pub(super) fn y_title(&mut self, text: &str, y: f64) {
        let place = format!("translate(18 {y}) rotate(-90)");
        let text = escape(text);
        self.put(format!(
            r#"<text transform="{place}" text-anchor="middle" fill="currentColor">{text}</text>"#
        ));
    }

    /// The whole document.
    pub(super) fn finish(self) -> String {
        self.0 + "</svg>\n"
    }
}

/// A tick's label: at most two decimals, none that are zero.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}
