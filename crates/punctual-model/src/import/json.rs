//! JSON as json-c reads it, with places in its text.

use jsonc_parser::ast::{Object, ObjectProp, Value};
use jsonc_parser::common::Ranged;

use super::input::{Input, Reported, shorten};
use crate::file::source::Place;

/// Longest time and greatest count, far above anything sensible: no sum of them overflows.
pub(super) const NUMBER_MAX: i64 = 1 << 40;
/// Reads one file: a value of another type than expected gives `None` and an error.
pub(super) struct Reader<'a> {
    pub(super) input: &'a mut Input,
    pub(super) file: usize,
}

impl Reader<'_> {
    pub(super) fn place(&self, node: &impl Ranged) -> Place {
        let range = node.range();
        self.input.place(self.file, range.start..range.end)
    }

    pub(super) fn wrong<T>(&mut self, node: &Value<'_>, key: &str, expected: &str) -> Option<T> {
        let place = self.place(node);
        self.input.error(
            place,
            format!("`{}` has the wrong type", shorten(key)),
            format!("expected {expected}"),
        );
        None
    }

    /// The last property of this name, which is the one that json-c keeps.
    pub(super) fn get<'a, 't>(object: &'a Object<'t>, key: &str) -> Option<&'a ObjectProp<'t>> {
        object.properties.iter().rev().find(|p| p.name.as_str() == key)
    }

    pub(super) fn object<'a, 't>(&mut self, value: &'a Value<'t>, key: &str) -> Option<&'a Object<'t>> {
        match value {
            Value::Object(object) => Some(object),
            other => self.wrong(other, key, "an object"),
        }
    }

    /// A whole number, if it is given.
    pub(super) fn number(
        &mut self,
        object: &Object<'_>,
        key: &str,
        min: i64,
    ) -> Result<Option<i64>, Reported> {
        let Some(property) = Reader::get(object, key) else { return Ok(None) };
        self.number_of(&property.value, key, min).map(Some).ok_or(Reported)
    }

    pub(super) fn number_of(&mut self, value: &Value<'_>, key: &str, min: i64) -> Option<i64> {
        let Value::NumberLit(number) = value else { return self.wrong(value, key, "a whole number") };
        let place = self.place(value);
        self.input.integer(place, &format!("`{}`", shorten(key)), number.value, min, NUMBER_MAX)
    }

    /// A string, if it is given.
    pub(super) fn word(
        &mut self,
        object: &Object<'_>,
        key: &str,
    ) -> Result<Option<(String, Place)>, Reported> {
        let Some(property) = Reader::get(object, key) else { return Ok(None) };
        match &property.value {
            Value::StringLit(text) => Ok(Some((text.value.to_string(), self.place(&property.value)))),
            other => self.wrong(other, key, "a string").ok_or(Reported),
        }
    }
}
