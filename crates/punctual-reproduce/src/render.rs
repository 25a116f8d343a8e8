//! Shows a reproduction: text for the terminal, and files (CSV, JSON, SVG) for everything else.

use crate::claims::{Judged, Verdict};
use crate::ranges::RangeFigure;
use crate::reproduction::{Figure, Reproduction, Table};

/// Width of the claims' text.
const WIDTH: usize = 100;

/// The whole reproduction as text: tables, then one entry for each claim, then the count of verdicts.
pub fn text(reproduction: &Reproduction) -> String {
    let citation = &reproduction.citation;
    let authors = if citation.authors.is_empty() { String::new() } else { format!("{}: ", citation.authors) };
    let mut out = format!("{authors}{}. {}.\n", citation.title, citation.venue);
    if reproduction.quick {
        out += "Quick: shorter runs, fewer loads and task sets; the full run's verdicts may differ.\n";
    }
    for table in &reproduction.tables {
        out.push('\n');
        out += &text_table(table);
    }
    // Live experiments make none.
    if !reproduction.claims.is_empty() {
        out += "\nClaims\n";
        let has_run = |claim: &&Judged| claim.verdict != Verdict::NotRun;
        reproduction.claims.iter().filter(has_run).for_each(|claim| out += &text_claim(claim));
        out.push('\n');
        out += &text_counts(reproduction);
    }
    out
}

/// A table with aligned columns.
pub(crate) fn text_table(table: &Table) -> String {
    let width = |i: usize| {
        let cells = table.rows.iter().map(|r| r[i].chars().count());
        cells.chain([table.columns[i].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let line = |cells: &[String]| {
        let padded: Vec<String> = cells.iter().zip(&widths).map(|(c, &w)| format!("{c:<w$}")).collect();
        format!("  {}\n", padded.join("  ").trim_end())
    };
    let mut out = format!("{}\n", table.title);
    out += &line(&table.columns);
    out += &line(&widths.iter().map(|&w| "-".repeat(w)).collect::<Vec<_>>());
    table.rows.iter().for_each(|row| out += &line(row));
    table.notes.iter().for_each(|note| out += &wrapped("  ", "  ", note));
    out
}

fn text_claim(claim: &Judged) -> String {
    let share = match claim.verdict {
        Verdict::OnAverage | Verdict::Differs if claim.task_sets > 1 => {
            format!(" (holds for {} of {} task sets)", claim.holds, claim.task_sets)
        }
        _ => String::new(),
    };
    let mark = if claim.unexpected { " [not the recorded verdict]" } else { "" };
    let mut out = format!("\n  {}{share}{mark}: {} (s.{})\n", claim.verdict, claim.id, claim.section);
    out += &wrapped("    ", "    ", &claim.statement);
    out += &wrapped("    paper: ", "           ", &claim.paper);
    if !claim.ours.is_empty() {
        out += &wrapped("    ours:  ", "           ", &claim.ours);
    }
    if !claim.because.is_empty() {
        out += &wrapped("    why:   ", "           ", &claim.because);
    }
    out
}

fn text_counts(reproduction: &Reproduction) -> String {
    let verdicts =
        [Verdict::Agrees, Verdict::OnAverage, Verdict::Differs, Verdict::NotComparable, Verdict::NotRun];
    let count = |v: Verdict| reproduction.claims.iter().filter(|c| c.verdict == v).count();
    let parts: Vec<String> =
        verdicts.into_iter().filter(|&v| count(v) > 0).map(|v| format!("{} {v}", count(v))).collect();
    let not_run = match count(Verdict::NotRun) {
        0 => "",
        _ => " (claims of experiments that were left out)",
    };
    format!("{} claims: {}{not_run}\n", reproduction.claims.len(), parts.join(", "))
}

/// `text` in lines of at most [`WIDTH`] characters.
fn wrapped(first: &str, rest: &str, text: &str) -> String {
    let options = textwrap::Options::new(WIDTH).initial_indent(first).subsequent_indent(rest);
    textwrap::fill(text, options) + "\n"
}

/// The reproduction as files, name and content: the text, JSON, a CSV file for each table, and a CSV and an
/// SVG file for each figure.
pub fn files(reproduction: &Reproduction) -> Result<Vec<(String, String)>, Box<dyn std::error::Error>> {
    let json = serde_json::to_string_pretty(reproduction)? + "\n";
    let mut files = vec![("reproduction.txt".into(), text(reproduction)), ("reproduction.json".into(), json)];
    for table in &reproduction.tables {
        files.push((format!("{}.csv", table.id), csv_table(table)?));
    }
    for figure in &reproduction.figures {
        // A figure may have the name of a table.
        let name = format!("{}-curves", figure.id);
        files.push((format!("{name}.csv"), csv_figure(figure)?));
        files.push((format!("{name}.svg"), crate::plot::svg(figure)));
    }
    for figure in &reproduction.ranges {
        let name = format!("{}-ranges", figure.id);
        files.push((format!("{name}.csv"), csv_ranges(figure)?));
        files.push((format!("{name}.svg"), figure.svg()));
    }
    files.push(("index.html".into(), html(reproduction)));
    Ok(files)
}

/// Everything on one page that needs nothing else.
fn html(reproduction: &Reproduction) -> String {
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let title = escape(&reproduction.citation.title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <style>:root{{color-scheme:light dark}}body{{max-width:60rem;margin:2rem auto;padding:0 1rem;\
         font-family:system-ui,sans-serif;background:light-dark(#fff,#0d1117)}}h1{{font-size:1.4rem}}\
         pre{{overflow-x:auto;font-size:0.8rem}}svg{{max-width:100%;height:auto;margin:1rem 0}}</style>\n\
         <h1>{title}</h1>\n<p>{}. {}</p>\n",
        escape(&reproduction.citation.authors),
        escape(&text_counts(reproduction)),
    );
    for svg in
        reproduction.figures.iter().map(crate::plot::svg).chain(reproduction.ranges.iter().map(|r| r.svg()))
    {
        out += &svg;
    }
    out + "<pre>" + &escape(&text(reproduction)) + "</pre>\n</html>\n"
}

fn csv_ranges(figure: &RangeFigure) -> Result<String, csv::Error> {
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(["column", "low", "q1", "middle", "q3", "high", "marks"])?;
    for column in &figure.columns {
        let (q1, q3) =
            column.quartiles.map_or((String::new(), String::new()), |(a, b)| (a.to_string(), b.to_string()));
        let marks = column.marks.iter().map(f64::to_string).collect::<Vec<_>>().join(" ");
        out.write_record([
            column.label.clone(),
            column.low.to_string(),
            q1,
            column.middle.to_string(),
            q3,
            column.high.to_string(),
            marks,
        ])?;
    }
    csv_text(out)
}

fn csv_table(table: &Table) -> Result<String, csv::Error> {
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(&table.columns)?;
    table.rows.iter().try_for_each(|row| out.write_record(row))?;
    csv_text(out)
}

fn csv_figure(figure: &Figure) -> Result<String, csv::Error> {
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(["series", "x", "mean", "min", "max"])?;
    for series in &figure.series {
        for point in &series.points {
            out.write_field(&series.name)?;
            out.write_record(point.map(|v| v.to_string()))?;
        }
    }
    csv_text(out)
}

fn csv_text(out: csv::Writer<Vec<u8>>) -> Result<String, csv::Error> {
    let bytes = out.into_inner().map_err(|e| csv::Error::from(e.into_error()))?;
    // Everything written was text.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_and_quotes_survive_csv() {
        let mut table = Table::new("t", "T", &["p", "q"]);
        table.rows.push(vec!["a,b".into(), "say \"x\"".into()]);
        assert_eq!(csv_table(&table).unwrap(), "p,q\n\"a,b\",\"say \"\"x\"\"\"\n");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new("t", "T", &["a", "bb"]);
        table.rows.push(vec!["wide".into(), "x".into()]);
        assert_eq!(text_table(&table), "T\n  a     bb\n  ----  --\n  wide  x\n");
    }

    #[test]
    fn long_texts_wrap_between_words() {
        let text = "word ".repeat(40);
        assert!(wrapped("  ", "  ", &text).lines().all(|l| l.chars().count() <= WIDTH));
    }
}
