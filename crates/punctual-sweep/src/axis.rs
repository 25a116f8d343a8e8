//! A key of the host file and the values it takes in turn: `domain.video.budget=1ms..5ms:1ms`.

use std::collections::BTreeSet;
use std::str::FromStr;

use serde::Serialize;

/// Values of one axis at most.
const AXIS_MAX: usize = 100_000;

/// Digits after the decimal point that a bound of a range may have.
const DECIMALS: u32 = 9;

/// A dimension of the grid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Axis {
    /// The key, as for `--set`.
    pub key: String,
    /// Its values, as written in a host file (a string there needs no quotes).
    pub values: Vec<String>,
}

impl Axis {
    /// A key with these values.
    ///
    /// # Errors
    /// There is no value, or one is empty or there twice; in one sentence.
    pub fn new(key: &str, values: Vec<String>) -> Result<Axis, String> {
        if key.trim().is_empty() || values.is_empty() {
            return Err("expected a key and at least one value".into());
        }
        if values.iter().any(String::is_empty) {
            return Err("a value is empty".into());
        }
        if values.len() > AXIS_MAX {
            return Err(format!("{} values are more than {AXIS_MAX}", values.len()));
        }
        let mut seen = BTreeSet::new();
        match values.iter().find(|value| !seen.insert(value.as_str())) {
            Some(twice) => Err(format!("the value {twice} is listed twice")),
            None => Ok(Axis { key: key.trim().to_string(), values }),
        }
    }
}

/// Parses `KEY=V1,V2,...` or `KEY=START..END:STEP`; an error says in one sentence what is wrong.
impl FromStr for Axis {
    type Err = String;

    fn from_str(text: &str) -> Result<Axis, String> {
        let example =
            "expected KEY=V1,V2,... or KEY=START..END:STEP, for example domain.a.budget=1ms..10ms:1ms";
        let (key, values) = text.split_once('=').ok_or(example)?;
        if key.trim().is_empty() || values.trim().is_empty() {
            return Err(example.into());
        }
        let values = match values.split_once("..") {
            Some((start, rest)) => {
                let (end, step) = rest.split_once(':').ok_or("a range needs a step: START..END:STEP")?;
                range(start.trim(), end.trim(), step.trim())?
            }
            None => list(values),
        };
        Axis::new(key, values)
    }
}

/// Splits at commas outside brackets, braces and quotes.
fn list(text: &str) -> Vec<String> {
    let (mut values, mut depth, mut quote) = (vec![String::new()], 0u32, None);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                values.push(String::new());
                continue;
            }
            _ => {}
        }
        values.last_mut().expect("starts with one").push(c);
    }
    values.iter_mut().for_each(|v| *v = v.trim().to_string());
    values
}

/// The unit of a range's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RangeUnit {
    /// None: counts, flags.
    Plain,
    Percent,
    Time,
    Frequency,
}

/// An exact number: `10^-9` of its unit's base (1, 1 %, 1 ns, 1 Hz).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Quantity {
    pub(crate) scaled: i128,
    pub(crate) unit: RangeUnit,
}

/// 1 in the unit of [`Quantity::scaled`].
pub(crate) const ONE: i128 = 10i128.pow(DECIMALS);

fn range(start: &str, end: &str, step: &str) -> Result<Vec<String>, String> {
    let [first, last, by] = [quantity(start)?, quantity(end)?, quantity(step)?];
    if first.unit != last.unit || first.unit != by.unit {
        return Err(format!(
            "{start}, {end} and {step} must all be times, frequencies, percentages or plain numbers"
        ));
    }
    if by.scaled <= 0 {
        return Err(format!("the step {step} must be greater than zero"));
    }
    if last.scaled < first.scaled {
        return Err(format!("the range ends ({end}) before it starts ({start})"));
    }
    let count = (last.scaled - first.scaled) / by.scaled + 1;
    if count > AXIS_MAX as i128 {
        return Err(format!("the range has {count} values, more than {AXIS_MAX}"));
    }
    (0..count).map(|n| print(Quantity { scaled: first.scaled + n * by.scaled, ..first })).collect()
}

/// A decimal number with a unit: `2.5ms`, `30%`, `256`.
pub(crate) fn quantity(text: &str) -> Result<Quantity, String> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = (&text[..number_end], text[number_end..].trim());
    let (unit, factor) = match suffix {
        "" => (RangeUnit::Plain, 1),
        "%" => (RangeUnit::Percent, 1),
        "ns" => (RangeUnit::Time, 1),
        "us" | "µs" => (RangeUnit::Time, 1_000),
        "ms" => (RangeUnit::Time, 1_000_000),
        "s" => (RangeUnit::Time, 1_000_000_000),
        "min" => (RangeUnit::Time, 60_000_000_000),
        "Hz" => (RangeUnit::Frequency, 1),
        "kHz" => (RangeUnit::Frequency, 1_000),
        "MHz" => (RangeUnit::Frequency, 1_000_000),
        _ => {
            let units = "ns, us, ms, s, min, Hz, kHz, MHz, % or none";
            return Err(format!("`{text}` has an unknown unit: expected {units}"));
        }
    };
    let scaled = decimal(number).ok_or_else(|| format!("`{text}` is not a number"))?;
    let scaled = scaled.checked_mul(factor).filter(|n| *n <= ONE * i128::from(u64::MAX));
    Ok(Quantity { scaled: scaled.ok_or_else(|| format!("`{text}` is too large"))?, unit })
}

/// A decimal number in units of 10^-9, exactly.
fn decimal(text: &str) -> Option<i128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |s: &str| !s.is_empty() && s.len() <= 20 && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > DECIMALS as usize {
        return None;
    }
    let fraction_scale = 10i128.pow(DECIMALS - fraction.len() as u32);
    Some(whole.parse::<i128>().ok()? * ONE + fraction.parse::<i128>().ok()? * fraction_scale)
}

fn print(q: Quantity) -> Result<String, String> {
    let (whole, fraction) = (q.scaled / ONE, q.scaled % ONE);
    match q.unit {
        RangeUnit::Time if fraction != 0 => Err("a time in the range is not a whole number of ns".into()),
        RangeUnit::Time => Ok(punctual_sched::Duration::from_ns(whole as u64).to_string()),
        RangeUnit::Plain | RangeUnit::Percent | RangeUnit::Frequency => {
            let suffix = match q.unit {
                RangeUnit::Percent => "%",
                RangeUnit::Frequency => "Hz",
                RangeUnit::Plain | RangeUnit::Time => "",
            };
            let fraction = format!("{fraction:09}");
            let fraction = fraction.trim_end_matches('0');
            let point = if fraction.is_empty() { "" } else { "." };
            Ok(format!("{whole}{point}{fraction}{suffix}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        text.parse::<Axis>().expect("an axis").values
    }

    #[test]
    fn a_list_is_split_at_commas_outside_brackets_and_quotes() {
        assert_eq!(values("a.b=1ms, 2ms"), ["1ms", "2ms"]);
        assert_eq!(values("d.affinity=[0,1],[2]"), ["[0,1]", "[2]"]);
        assert_eq!(values("name='x,y',z"), ["'x,y'", "z"]);
    }

    #[test]
    fn a_range_includes_both_ends_and_keeps_its_unit() {
        assert_eq!(values("k=1ms..3ms:1ms"), ["1ms", "2ms", "3ms"]);
        assert_eq!(values("k=30%..40%:5%"), ["30%", "35%", "40%"]);
        assert_eq!(values("k=128..512:128"), ["128", "256", "384", "512"]);
        assert_eq!(values("k=5..6:7"), ["5"]);
        assert_eq!(values("k=500Hz..1kHz:250Hz"), ["500Hz", "750Hz", "1000Hz"]);
    }

    #[test]
    fn a_range_counts_exactly() {
        assert_eq!(values("k=0.1..0.3:0.1"), ["0.1", "0.2", "0.3"]);
        assert_eq!(values("k=500us..1.5ms:0.5ms"), ["500us", "1ms", "1500us"]);
    }

    #[test]
    fn what_is_wrong_with_an_axis_is_said() {
        for (text, said) in [
            ("k", "KEY=V1"),
            ("k=", "KEY=V1"),
            ("=1", "KEY=V1"),
            ("k=1,,2", "empty"),
            ("k=1ms,1ms", "twice"),
            ("k=1..5", "step"),
            ("k=1..5:0", "greater than zero"),
            ("k=5..1:1", "before it starts"),
            ("k=1ms..5%:1", "times, frequencies, percentages or plain numbers"),
            ("k=1ms..1kHz:1ms", "must all be times"),
            ("k=1x..5x:1x", "unknown unit"),
            ("k=1.2.3..5:1", "not a number"),
            ("k=0..1000000:1", "more than 100000"),
            ("k=0.5ns..2ns:1ns", "not a whole number of ns"),
            ("k=99999999999999999999s..99999999999999999999s:1s", "too large"),
        ] {
            let error = text.parse::<Axis>().expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
