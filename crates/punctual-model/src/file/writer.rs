//! Text of a host file: tables, keys and values.

use std::fmt::{Display, Write};

use punctual_sched::registry::{OptionValue, Options};

#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) text: String,
}

impl Writer {
    pub(crate) fn table(&mut self, path: &str) {
        self.text.push_str(&format!("\n[{path}]\n"));
    }

    pub(crate) fn key(&mut self, key: &str, value: impl Display) {
        self.text.push_str(&format!("{key} = {value}\n"));
    }
}

pub(crate) fn quoted(value: impl Display) -> String {
    let mut out = String::from("\"");
    for c in value.to_string().chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", c as u32)),
            c => out.push(c),
        }
    }
    out + "\""
}

pub(crate) fn numbers(of: impl Iterator<Item = usize>) -> String {
    format!("[{}]", of.map(|n| n.to_string()).collect::<Vec<_>>().join(", "))
}

/// `a = 1, b = "2ms"`.
pub(crate) fn options(options: &Options) -> String {
    let mut out = String::new();
    for (name, value) in options.iter() {
        let value = match value {
            OptionValue::Duration(d) => quoted(d),
            OptionValue::Count(n) => n.to_string(),
            OptionValue::Flag(flag) => flag.to_string(),
            OptionValue::Word(word) => quoted(word),
        };
        let comma = if out.is_empty() { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(out, "{comma}{name} = {value}");
    }
    out
}
