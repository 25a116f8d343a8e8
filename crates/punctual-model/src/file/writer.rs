//! Tables and values of a host file as they are written. `toml_edit` quotes them and lays them out.

use punctual_sched::Duration;
use punctual_sched::registry::{OptionValue, Options};
use toml_edit::{Array, Item, Table, Value};

/// Keys with their values in the order in which they are written.
pub(crate) type Keys = Vec<(&'static str, Value)>;

/// A duration with its unit, exact.
pub(crate) fn time(time: Duration) -> Value {
    time.to_string().into()
}

/// A number. Those of a host file fit 63 bits, because the parser refuses greater ones.
pub(crate) fn number(number: impl TryInto<i64>) -> Value {
    number.try_into().unwrap_or(i64::MAX).into()
}

/// A list of whole numbers.
pub(crate) fn numbers(list: impl IntoIterator<Item = usize>) -> Value {
    Value::Array(list.into_iter().map(number).collect())
}

/// A list of texts.
pub(crate) fn texts(list: impl IntoIterator<Item = impl Into<String>>) -> Value {
    Value::Array(list.into_iter().map(Into::into).collect::<Array>())
}

/// A table in braces.
pub(crate) fn inline(keys: Keys) -> Value {
    Value::InlineTable(keys.into_iter().collect())
}

/// A table with a header of its own, even when it has no keys.
pub(crate) fn table(keys: Keys) -> Table {
    keys.into_iter().collect()
}

/// Tables by name, each with a header of its own: `[domain.a]`, `[domain.b]`.
pub(crate) fn named(tables: impl IntoIterator<Item = (String, Table)>) -> Item {
    let mut all: Table = tables.into_iter().collect();
    all.set_implicit(true);
    all.into()
}

/// Tables in braces by number, each on a line of its own: `vcpu.0 = { ... }`.
pub(crate) fn numbered(tables: impl IntoIterator<Item = Keys>) -> Item {
    let tables = tables.into_iter().enumerate().map(|(n, keys)| (n.to_string(), inline(keys)));
    let mut all: Table = tables.collect();
    all.set_dotted(true);
    all.into()
}

/// The options of a policy or discipline.
pub(crate) fn options(options: &Options) -> Keys {
    let value = |value| match value {
        OptionValue::Duration(duration) => time(duration),
        OptionValue::Count(count) => number(count),
        OptionValue::Flag(flag) => flag.into(),
        OptionValue::Word(word) => word.into(),
    };
    options.iter().map(|(name, given)| (name, value(given))).collect()
}
