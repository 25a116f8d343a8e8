//! Results as one HTML page that needs nothing else: no network, no fonts, no library.
//!
//! The page is made so that it says the most important thing without a script, without colour and on paper:
//! tables and plots are text, CSS and SVG; only the timeline is drawn by the small script at the end. Its
//! policy (Content-Security-Policy) lets nothing be loaded and no other script run. The same page has the
//! same bytes.

mod blame;
mod deadlines;
mod details;
mod latency;
mod markup;
mod packets;
mod page;
mod paired;
mod plot;
mod processors;
mod timeline;
mod verdict;
mod what;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, Render, html};
use sha2::{Digest, Sha256};

pub use markup::{Cell, Section, Table, details};
pub use page::Page;

const STYLE: &str = include_str!("report.css");
/// Colours on a dark ground: by the system's choice, or by the reader's.
const DARK: &str = include_str!("dark.css");
const SCRIPT: &str = include_str!("report.js");

/// The page as an HTML document.
pub fn render(page: &Page<'_>) -> String {
    let sections: Vec<Section> = [
        Some(verdict::section(page)),
        Some(what::section(page)),
        deadlines::section(page),
        blame::section(page),
        latency::section(page),
        packets::section(page),
        paired::section(page),
        timeline::section(page),
        timeline::budgets(page),
        processors::section(page),
        Some(details::section(page)),
    ]
    .into_iter()
    .flatten()
    .collect();
    document(&Frame {
        kind: "Punctual report",
        title: &title(page),
        tab: &format!("{}: report", title(page)),
        subtitle: what::subtitle(page).render(),
        skip: ("#verdict", "To the verdict"),
        sections: &sections,
        footer: html! {
            "Made by Punctual " (env!("CARGO_PKG_VERSION")) ". Times in ns, us (microseconds), ms and s. \
                Percentiles are those of a histogram with two significant digits: at most 1/128 above the \
                true value."
        },
    })
}

/// What is around the sections of a page.
pub struct Frame<'p> {
    /// What kind of page it is, above the title.
    pub kind: &'p str,
    /// The heading.
    pub title: &'p str,
    /// The title of the browser's tab.
    pub tab: &'p str,
    /// Below the heading.
    pub subtitle: Markup,
    /// Where the first link leads, and its text: keyboard users reach the most important part at once.
    pub skip: (&'p str, &'p str),
    /// The sections.
    pub sections: &'p [Section],
    /// The last line.
    pub footer: Markup,
}

/// A page as an HTML document that loads nothing.
pub fn document(frame: &Frame<'_>) -> String {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            (head(frame.tab))
            body {
                a.skip href=(frame.skip.0) { (frame.skip.1) }
                header {
                    div.over {
                        span { (frame.kind) }
                        button type="button" id="theme" hidden { "Dark" }
                    }
                    h1 { (frame.title) }
                    p.sub { (frame.subtitle) }
                }
                nav aria-label="Sections" {
                    @for section in frame.sections { a href={ "#" (section.id) } { (section.link) } "\n" }
                }
                main { @for section in frame.sections { (section) } }
                footer { p { (frame.footer) } }
                div.light id="light" hidden {}
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    // Names in results may have control characters, which are no characters of an HTML document.
    document.into_string().replace(|c: char| c.is_control() && c != '\n', " ")
}

fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta http-equiv="Content-Security-Policy" content=(policy());
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) }
            style { (PreEscaped(style())) }
        }
        "\n"
    }
}

/// The host's name, or the names if there are several hosts.
fn title(page: &Page<'_>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for column in page.columns {
        if !names.contains(&column.results.host.as_str()) {
            names.push(&column.results.host);
        }
    }
    names.join(", ")
}

/// Nothing is loaded; no script runs but the page's own.
fn policy() -> String {
    let digest = STANDARD.encode(Sha256::digest(SCRIPT.as_bytes()));
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; \
         form-action 'none'"
    )
}

fn style() -> String {
    let by_system =
        format!("@media (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{\n{DARK}}} }}\n");
    let by_choice = format!(":root[data-theme=dark] {{\n{DARK}}}\n");
    // Paper is white whatever the screen.
    format!("{STYLE}@media screen {{\n{by_system}{by_choice}}}\n")
}

#[cfg(test)]
mod tests;
