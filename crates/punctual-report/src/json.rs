//! Results as JSON: the file that `sim --json` writes and every later comparison reads.
//!
//! Keys stand in a fixed order, so the same results are the same bytes. `docs/results.md` explains the keys;
//! `schema/results.schema.json` is their JSON schema.

use std::io;

use punctual_model::Results;
use punctual_model::results::{FORMAT, VERSION};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::ser::Formatter;

/// Why a text is not the results of a run. The display names the file and, where it can, line and column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{file}{}: {message}", show_place(.place))]
    Malformed {
        file: String,
        /// Line and column, from 1; `None` when the mistake has no place.
        place: Option<(usize, usize)>,
        message: String,
    },
    #[error("{file}: expected `\"format\": \"{FORMAT}\"`, found \"{found}\"")]
    Format { file: String, found: String },
    #[error("{file}: expected `\"format\": \"{FORMAT}\"`, but there is no `format`")]
    NoFormat { file: String },
    #[error("{file}: results of version {found}; this program reads version {VERSION}")]
    Version { file: String, found: u64 },
    #[error("{file}: expected `\"version\": {VERSION}`, but there is no `version`")]
    NoVersion { file: String },
}

fn show_place(place: &Option<(usize, usize)>) -> String {
    place.map_or_else(String::new, |(line, column)| format!(":{line}:{column}"))
}

/// Results as JSON: one key per line, the buckets of a distribution on one line, a newline at the end.
pub fn to_json(results: &Results) -> String {
    write_json(results)
}

/// Several results as a JSON array, each as [`to_json`] writes it.
pub fn all_to_json<'a>(results: impl Iterator<Item = &'a Results>) -> String {
    let all: Vec<String> = results.map(|results| to_json(results).trim_end().to_owned()).collect();
    format!("[\n{}\n]\n", all.join(",\n"))
}

/// Reads results back. Keys that it does not know are ignored; `file_name` is for the error.
///
/// # Errors
/// When the text is not JSON, or not results of this version.
pub fn from_json(text: &str, file_name: &str) -> Result<Results, Error> {
    parse::<Header>(text, file_name)?.check(file_name)?;
    let mut results: Results = parse(text, file_name)?;
    results.leave_out_unmeasured();
    Ok(results)
}

/// Reads what `sim --json` writes: results, or an array of them.
///
/// # Errors
/// As [`from_json`], for any of them.
pub fn all_from_json(text: &str, file_name: &str) -> Result<Vec<Results>, Error> {
    if !text.trim_start().starts_with('[') {
        return from_json(text, file_name).map(|one| vec![one]);
    }
    for header in parse::<Vec<Header>>(text, file_name)? {
        header.check(file_name)?;
    }
    let mut all: Vec<Results> = parse(text, file_name)?;
    all.iter_mut().for_each(Results::leave_out_unmeasured);
    Ok(all)
}

/// The JSON schema of results, as checked in at `schema/results.schema.json`.
pub fn schema() -> String {
    let mut schema = schemars::schema_for!(Results);
    schema.insert("title".into(), "Results of Punctual".into());
    write_json(&schema)
}

/// Every key of the schema as Markdown tables, as contained in `docs/results.md`.
pub fn reference() -> String {
    let schema = schemars::schema_for!(Results).to_value();
    let mut text = table_of("the whole", &schema);
    for (name, object) in schema["$defs"].as_object().into_iter().flatten() {
        text.push_str(&table_of(name, object));
    }
    text
}

/// One object's keys; nothing for what is not an object.
fn table_of(name: &str, object: &Value) -> String {
    let Some(properties) = object["properties"].as_object() else { return String::new() };
    let mut text = format!("### {name}\n\n| key | value | meaning |\n|---|---|---|\n");
    for (key, property) in properties {
        let meaning = property["description"].as_str().unwrap_or_default().replace('\n', " ");
        text.push_str(&format!("| `{key}` | {} | {meaning} |\n", kind_of(property)));
    }
    text.push('\n');
    text
}

fn kind_of(property: &Value) -> String {
    let reference =
        |value: &Value| value["$ref"].as_str().and_then(|path| path.rsplit('/').next()).map(str::to_owned);
    if let Some(name) = reference(property) {
        return name;
    }
    if let Some(kind) = property["anyOf"].as_array().and_then(|any| any.iter().find_map(reference)) {
        return format!("{kind} or null");
    }
    match &property["type"] {
        Value::String(kind) if kind == "array" => {
            format!(
                "list of {}",
                reference(&property["items"]).unwrap_or_else(|| "[integer, integer]".into())
            )
        }
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => String::new(),
    }
}

/// What says whether the rest can be read.
#[derive(Deserialize)]
#[serde(expecting = "a JSON object with results")]
struct Header {
    format: Option<String>,
    version: Option<u64>,
}

impl Header {
    fn check(self, file_name: &str) -> Result<(), Error> {
        let file = file_name.to_owned();
        match (self.format, self.version) {
            (None, _) => Err(Error::NoFormat { file }),
            (Some(found), _) if found != FORMAT => Err(Error::Format { file, found }),
            (_, None) => Err(Error::NoVersion { file }),
            (_, Some(found)) if found != u64::from(VERSION) => Err(Error::Version { file, found }),
            _ => Ok(()),
        }
    }
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str, file: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let message = error.to_string();
        let place = format!(" at line {line} column {column}");
        Error::Malformed {
            file: file.to_owned(),
            place: (line > 0).then_some((line, column.max(1))),
            message: message.strip_suffix(&place).unwrap_or(&message).to_owned(),
        }
    })
}

fn write_json(value: &impl Serialize) -> String {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, Layout::default());
    value.serialize(&mut serializer).expect("keys are strings, and a vector takes every byte");
    bytes.push(b'\n');
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

/// One key per line; an array is broken into lines only where it holds objects.
#[derive(Default)]
struct Layout {
    open: Vec<Open>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Object { filled: bool },
    Array { of_objects: bool },
}

impl Layout {
    fn line<W: ?Sized + io::Write>(&self, writer: &mut W) -> io::Result<()> {
        let inline = |open: &&Open| !matches!(open, Open::Array { of_objects: false });
        write!(writer, "\n{:width$}", "", width = 2 * self.open.iter().filter(inline).count())
    }
}

impl Formatter for Layout {
    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open.push(Open::Array { of_objects: false });
        writer.write_all(b"[")
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        match self.open.last() {
            _ if first => Ok(()),
            Some(Open::Array { of_objects: true }) => writer.write_all(b","),
            _ => writer.write_all(b", "),
        }
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.open.pop() == Some(Open::Array { of_objects: true }) {
            self.line(writer)?;
        }
        writer.write_all(b"]")
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if let Some(Open::Array { of_objects }) = self.open.last_mut() {
            *of_objects = true;
            self.line(writer)?;
        }
        self.open.push(Open::Object { filled: false });
        writer.write_all(b"{")
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(b",")?;
        }
        if let Some(Open::Object { filled }) = self.open.last_mut() {
            *filled = true;
        }
        self.line(writer)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.open.pop() == Some(Open::Object { filled: true }) {
            self.line(writer)?;
        }
        writer.write_all(b"}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Column;
    use crate::html::{self, Page};
    use crate::table;
    use crate::table::tests::{disturbed, results, under_linux};
    use proptest::prelude::*;

    fn error(text: &str) -> String {
        from_json(text, "run.json").expect_err("not results").to_string()
    }

    #[test]
    fn results_survive_and_the_same_results_are_the_same_bytes() {
        let written = to_json(&results("rtds", 240));
        let read = from_json(&written, "run.json").expect("just written");
        assert_eq!(read, results("rtds", 240));
        assert_eq!(to_json(&read), written);
        assert!(written.ends_with("}\n"));
    }

    #[test]
    fn one_result_and_an_array_of_them_are_read_and_each_is_checked() {
        let [a, b] = [results("rtds", 0), results("credit", 240)];
        let array = format!("[{},{}]", to_json(&a), to_json(&b));
        assert_eq!(all_from_json(&to_json(&a), "run.json"), Ok(vec![a.clone()]));
        assert_eq!(all_from_json(&array, "run.json"), Ok(vec![a, b]));
        let error =
            all_from_json(&array.replacen(FORMAT, "other", 2), "run.json").expect_err("another format");
        assert_eq!(
            error.to_string(),
            "run.json: expected `\"format\": \"punctual-results\"`, found \"other\""
        );
    }

    #[test]
    fn the_layout_is_json_with_one_key_per_line_and_buckets_on_one() {
        let value = serde_json::json!({
            "a": [], "b": {}, "c": [[1, 2], [3, 4]], "d": [{"x": [1]}, {"y": {}}], "e": "}"
        });
        let text = write_json(&value);
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value);
        insta::assert_snapshot!(text, @r#"
        {
          "a": [],
          "b": {},
          "c": [[1, 2], [3, 4]],
          "d": [
            {
              "x": [1]
            },
            {
              "y": {}
            }
          ],
          "e": "}"
        }
        "#);
    }

    #[test]
    fn what_a_live_run_does_not_measure_has_no_key_and_the_zeros_of_older_files_are_left_out() {
        let live = disturbed(results("rtds", 0));
        let written = to_json(&live);
        for key in ["context_switches", "migrations", "network_ns"] {
            assert!(!written.contains(&format!("\"{key}\"")), "{key}");
        }
        let mut older: Value = serde_json::from_str(&written).expect("JSON");
        for (list, keys) in [
            ("tasks", vec!["context_switches", "migrations"]),
            ("vcpus", vec!["context_switches", "migrations"]),
            ("domains", vec!["context_switches", "migrations", "decisions", "network_ns"]),
            ("processors", vec!["context_switches"]),
            ("pools", vec!["context_switches", "migrations"]),
        ] {
            for object in older[list].as_array_mut().expect("a list") {
                keys.iter().for_each(|key| object[key] = 0.into());
            }
        }
        let older = older.to_string();
        assert_eq!(from_json(&older, "run.json"), Ok(live.clone()));
        assert_eq!(all_from_json(&format!("[{older}]"), "run.json"), Ok(vec![live]));
    }

    #[test]
    fn plain_linux_counts_nothing_of_budgets() {
        let live = under_linux(results("rtds", 0));
        let written = to_json(&live);
        for key in ["decisions", "idled_away_ns", "wakes", "sleeps", "exhaustions", "replenishments"] {
            assert!(!written.contains(&format!("\"{key}\"")), "{key}");
            assert!(to_json(&results("rtds", 0)).contains(&format!("\"{key}\"")), "{key}");
        }
        assert_eq!(from_json(&written, "run.json"), Ok(live));
    }

    #[test]
    fn what_is_not_results_is_refused_with_file_and_place() {
        let good = to_json(&results("rtds", 0));
        let texts = [
            String::new(),
            "[1]".into(),
            "{\"a\": }".into(),
            "{}".into(),
            "{\"format\": \"punctual-host\", \"version\": 1}".into(),
            "{\"format\": 1}".into(),
            "{\"format\": \"punctual-results\"}".into(),
            "{\"format\": \"punctual-results\", \"version\": 4}".into(),
            "{\"format\": \"punctual-results\", \"version\": 3}".into(),
            good.replace("\"seed\": 42", "\"seed\": -1"),
            good[..good.len() / 2].lines().take(8).collect::<Vec<_>>().join("\n"),
        ];
        insta::assert_snapshot!(texts.map(|text| error(&text)).join("\n"));
    }

    #[test]
    fn the_schema_is_the_one_checked_in() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/results.schema.json");
        let checked_in = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            checked_in == schema(),
            "schema/results.schema.json is out of date: \
             cargo run -p punctual-report --example results-schema > schema/results.schema.json"
        );
    }

    #[test]
    fn the_documentation_lists_every_key() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results.md");
        let document = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            document.contains(&reference()),
            "docs/results.md must end in what this prints: \
             cargo run -p punctual-report --example results-schema -- --reference"
        );
    }

    /// The keys that the schema requires of an object and the keys that it knows.
    fn keys(schema: &Value) -> Option<(Vec<&str>, &serde_json::Map<String, Value>)> {
        let properties = schema.get("properties")?.as_object()?;
        Some((schema["required"].as_array()?.iter().filter_map(Value::as_str).collect(), properties))
    }

    fn follow<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
        // What may be left out is itself or null.
        let schema = schema["anyOf"].as_array().and_then(|any| any.first()).unwrap_or(schema);
        match schema.get("$ref").and_then(Value::as_str) {
            Some(path) => root.pointer(path.trim_start_matches('#')).expect("a reference into the schema"),
            None => schema,
        }
    }

    /// Every object of the value has exactly the keys of its schema, all of them described.
    fn assert_described(value: &Value, schema: &Value, root: &Value) {
        let schema = follow(schema, root);
        match value {
            Value::Object(object) => {
                let (required, properties) = keys(schema).expect("an object schema");
                for key in required {
                    assert!(object.contains_key(key), "{key} is missing");
                }
                for (key, value) in object {
                    let property =
                        properties.get(key).unwrap_or_else(|| panic!("{key} is not in the schema"));
                    assert!(property.get("description").is_some(), "{key} has no description");
                    assert_described(value, property, root);
                }
            }
            Value::Array(values) if schema["items"].is_object() => {
                values.iter().for_each(|value| assert_described(value, &schema["items"], root));
            }
            _ => {}
        }
    }

    #[test]
    fn the_schema_describes_every_key_that_is_written() {
        let schema: Value = serde_json::from_str(&schema()).expect("JSON");
        let written: Value = serde_json::from_str(&to_json(&disturbed(results("rtds", 240)))).expect("JSON");
        assert_described(&written, &schema, &schema);
    }

    proptest! {
        #[test]
        fn no_text_makes_reading_panic(text in any::<String>()) {
            let _ = from_json(&text, "run.json");
        }

        #[test]
        fn no_number_in_a_file_makes_reading_or_showing_panic(
            place in any::<prop::sample::Index>(),
            to in any::<u64>(),
        ) {
            let good = to_json(&disturbed(results("rtds", 24)));
            let is_number = |(at, _): &(usize, &str)| good.as_bytes()[at + 2].is_ascii_digit();
            let numbers: Vec<_> = good.match_indices(": ").filter(is_number).collect();
            let at = place.get(&numbers).0 + 2;
            let digits = good[at..].bytes().take_while(u8::is_ascii_digit).count();
            let text = format!("{}{to}{}", &good[..at], &good[at + digits..]);
            if let Ok(results) = from_json(&text, "run.json") {
                table::summary(&results, false);
                table::detail(&results, false);
                let column = Column { label: "a".into(), results: results.clone() };
                html::render(&Page { columns: &[column], guarantees: None, timeline: None });
                table::side_by_side(&[Column { label: "a".into(), results }], true);
            }
        }
    }
}
