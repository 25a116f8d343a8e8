//! The tables of the host file's reference, from the key tables that the parser reads and the registry of
//! policies.

use std::fmt::Write;

use punctual_sched::registry::{self, PolicyInfo};

use super::acceptance::keys::LIMITS;
use super::fleet::keys::FLEET;
use super::host::keys::ROOT;
use super::key::{Kind, OptionTables, TableInfo};
use super::limits::PERIOD_MIN;
use super::quantity::{Share, show_percent};
use super::schema::literal;
use super::service::keys::SERVICE;

/// The reference's generated part stands between these lines.
const BEGIN: &str = "<!-- generated from the key tables: begin -->\n";
const END: &str = "<!-- generated from the key tables: end -->\n";

/// Replaces the generated part of the reference `document`, `docs/host-file.md`.
///
/// # Errors
/// When `document` has no generated part.
pub fn update_reference(document: &str) -> Result<String, String> {
    updated(document, &ROOT)
}

/// As [`update_reference`], for the configuration of the service, `docs/service.md`.
///
/// # Errors
/// When `document` has no generated part.
pub fn update_service_reference(document: &str) -> Result<String, String> {
    updated(document, &SERVICE)
}

/// As [`update_reference`], for the limits file of an acceptance test, `docs/certify.md`.
///
/// # Errors
/// When `document` has no generated part.
pub fn update_limits_reference(document: &str) -> Result<String, String> {
    updated(document, &LIMITS)
}

/// As [`update_reference`], for the fleet file, `docs/place.md`.
///
/// # Errors
/// When `document` has no generated part.
pub fn update_fleet_reference(document: &str) -> Result<String, String> {
    updated(document, &FLEET)
}

fn updated(document: &str, root: &'static TableInfo) -> Result<String, String> {
    let lines = || format!("the lines {BEGIN}and {END}are not in the document");
    let (before, rest) = document.split_once(BEGIN).ok_or_else(lines)?;
    let (_, after) = rest.split_once(END).ok_or_else(lines)?;
    Ok(format!("{before}{BEGIN}{}{END}{after}", reference_tables(root)))
}

fn reference_tables(root: &'static TableInfo) -> String {
    let mut out = String::new();
    let mut todo = vec![root];
    let mut seen: Vec<&str> = Vec::new();
    while let Some(info) = todo.pop() {
        if seen.contains(&info.title) {
            continue;
        }
        seen.push(info.title);
        reference_table(info, &mut out);
        for key in info.all().collect::<Vec<_>>().into_iter().rev() {
            match key.kind {
                Kind::Table(inner)
                | Kind::WordOrTable(_, inner)
                | Kind::NumbersOrTable(inner)
                | Kind::Named(inner)
                | Kind::Numbered(inner)
                | Kind::Tables(inner)
                | Kind::OneOfEach(inner) => todo.push(inner),
                _ => {}
            }
        }
    }
    out
}

fn reference_table(info: &'static TableInfo, out: &mut String) {
    let title =
        if info.title.starts_with('[') { format!("`{}`", info.title) } else { info.title.to_string() };
    // Writing to a string cannot fail.
    let _ = writeln!(out, "\n### {title}\n\n| key | takes | default | meaning |\n|---|---|---|---|");
    for key in info.all() {
        let default = match (key.default, key.required) {
            (_, true) => "**required**".to_string(),
            (Some(text), _) => literal(key.kind, text).map_or(text.to_string(), |value| format!("`{value}`")),
            (None, _) => String::new(),
        };
        let takes = takes(key.kind);
        let _ = writeln!(
            out,
            "| `{}` | {takes} | {default} | {}{} |",
            key.name,
            key.help,
            readers(key.name, info)
        );
    }
    let whose = match info.options {
        OptionTables::None => None,
        OptionTables::Policies => Some("policy"),
        OptionTables::Disciplines => Some("discipline"),
    };
    if let Some(one) = whose {
        let _ = writeln!(
            out,
            "| a {one}'s name | table of its options | | Options of that {one}, see `punctual policies`. |"
        );
    }
    out.push('\n');
}

/// Which policies read a unit parameter.
fn readers(key: &str, info: &TableInfo) -> String {
    let is_unit = info.shared.iter().flat_map(|keys| keys.iter()).any(|k| k.name == key);
    let reads = |p: &&PolicyInfo| p.unit_params.iter().any(|u| u.name == key);
    let policies: Vec<&str> = registry::policies().iter().filter(reads).map(|p| p.name).collect();
    if is_unit && !policies.is_empty() { format!(" Read by {}.", policies.join(", ")) } else { String::new() }
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ")
}

fn takes(kind: Kind) -> String {
    let percent = |max: Share| format!("percentage up to `\"{}\"`", show_percent(max));
    match kind {
        Kind::Text | Kind::Line => "text".into(),
        Kind::Texts => "list of texts".into(),
        Kind::Environment => "table of texts".into(),
        Kind::VmNetwork => "`\"none\"`, `\"user\"`, `\"tap:IFNAME\"`".into(),
        Kind::Seed => "whole number from 0".into(),
        Kind::Duration { min } => match min.as_ns() {
            0 => "duration".into(),
            1 => "duration above 0".into(),
            _ => format!("duration of at least `\"{min}\"`"),
        },
        Kind::Period => format!("duration of at least `\"{PERIOD_MIN}\"`, or frequency"),
        Kind::Count { min, max } => format!("{min} to {max}"),
        Kind::Integer { min, max } => format!("{min} to {max}"),
        Kind::Flag => "`true` or `false`".into(),
        Kind::Percent { max } => percent(max),
        Kind::Word(words) => quoted(words),
        Kind::WordOrTable(words, _) => format!("{}, or a table", quoted(words)),
        Kind::NumbersOrTable(_) => "list of numbers, or a table".into(),
        Kind::Policy => "a policy's name".into(),
        Kind::Guest => "a policy's name, or a table".into(),
        Kind::NameOf(what) => format!("name of a {what}"),
        Kind::Discipline => "a discipline's name".into(),
        Kind::Bandwidth => "bandwidth".into(),
        Kind::Endpoint => "name of a domain or of a host outside".into(),
        Kind::TaskOf => "`\"DOMAIN.TASK\"`".into(),
        Kind::TasksOf => "list of `\"DOMAIN.TASK\"`".into(),
        Kind::Numbers | Kind::Threads => "list of numbers".into(),
        Kind::Cost => "duration above 0, or a table of `min` and `max`".into(),
        Kind::Table(_) => "table".into(),
        Kind::Named(_) => "tables by name".into(),
        Kind::Numbered(_) => "tables by number".into(),
        Kind::Tables(_) => "list of tables".into(),
        Kind::OneOfEach(_) => "list of tables, each with one key".into(),
    }
}
