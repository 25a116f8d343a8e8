//! The document as a tree in which every key and value knows where it was written, in the file or in a
//! command-line option. Why our own: documents of `toml_edit` keep no places once options have changed them.

use super::source::Place;
use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    /// `None`: beyond 64 bits.
    Integer(Option<i64>),
    Float(String),
    Flag(bool),
    Datetime,
    List(Vec<Node>),
    Table(Table),
}

impl Value {
    /// What it is, for "expected this, not that".
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) => "a string",
            Value::Integer(_) | Value::Float(_) => "a bare number",
            Value::Flag(_) => "true or false",
            Value::Datetime => "a date",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_place: Place,
    pub(crate) node: Node,
}

/// Keys and values in the order of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) entries: Vec<Entry>,
}

impl Table {
    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.key == key)
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|e| e.key == key)
    }
}

/// Takes over a parsed table of text number `source`, whose parsed part starts at byte `offset`.
pub(crate) fn table(from: DeTable<'_>, source: usize, offset: usize) -> Table {
    let entries = from.into_iter().map(|(key, value)| Entry {
        key_place: place(source, offset, key.span()),
        key: Cow::into_owned(key.into_inner()),
        node: node(value, source, offset),
    });
    Table { entries: entries.collect() }
}

/// Takes over a parsed value. The TOML parser bounds nesting and with it this recursion.
pub(crate) fn node(from: Spanned<DeValue<'_>>, source: usize, offset: usize) -> Node {
    let place = place(source, offset, from.span());
    let value = match from.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(n) => Value::Integer(i64::from_str_radix(n.as_str(), n.radix()).ok()),
        DeValue::Float(n) => Value::Float(n.as_str().into()),
        DeValue::Boolean(flag) => Value::Flag(flag),
        DeValue::Datetime(_) => Value::Datetime,
        DeValue::Array(items) => Value::List(items.into_iter().map(|v| node(v, source, offset)).collect()),
        DeValue::Table(entries) => Value::Table(table(entries, source, offset)),
    };
    Node { place, value }
}

fn place(source: usize, offset: usize, span: std::ops::Range<usize>) -> Place {
    Place::new(source, span.start + offset..span.end + offset)
}
