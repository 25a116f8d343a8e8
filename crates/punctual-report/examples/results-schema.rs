//! Prints the JSON schema of results, `schema/results.schema.json`; with `--reference` the tables of keys in
//! `docs/results.md`.

#![forbid(unsafe_code)]

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("--reference") => print!("{}", punctual_report::json::reference()),
        _ => print!("{}", punctual_report::json::schema()),
    }
}
