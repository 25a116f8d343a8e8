//! Durations, percentages and numbers as text: exact decimals, no floating point.

use punctual_sched::Duration;

/// The longest duration a host file may name: one year of 365 days. Sums of thousands of them still fit the
/// 64-bit time line.
pub const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Parts per [`WHOLE`].
pub(crate) type Share = u64;

/// 100 % as a [`Share`].
pub(crate) const WHOLE: Share = 1_000_000_000;

/// The units of time with their length in ns; the first spelling is the one shown to users.
pub(crate) const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
];

/// The units of frequency with their length in Hz.
pub(crate) const FREQUENCIES: [(&str, u64); 3] = [("Hz", 1), ("kHz", 1_000), ("MHz", 1_000_000)];

/// Hz in the smallest frequency that [`period`] tells apart.
const PER_HZ: u64 = 1_000_000_000;

/// The number and the unit of a quantity.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    (&text[..digits], text[digits..].trim())
}

/// `"1.5ms"` as a duration of at most a year.
///
/// # Errors
/// What was expected, as a phrase.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    if number.is_empty() && unit.starts_with('-') {
        return Err("a duration that is not negative".into());
    }
    if FREQUENCIES.iter().any(|(name, _)| *name == unit) {
        return Err("a duration, for example \"1.5ms\"; only a period may be a frequency".into());
    }
    let Some(&(_, unit_ns)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(match unit {
            "" if !number.is_empty() => format!("a duration with its unit, for example \"{number}ms\""),
            _ => "a number with one of the units ns, us, ms, s, min, for example \"1.5ms\"".into(),
        });
    };
    let ns = scaled(number, unit_ns).map_err(|error| match error {
        DecimalError::NoNumber => "a number before the unit, for example \"1.5ms\"",
        DecimalError::NotWhole => "a whole number of nanoseconds",
    })?;
    match u64::try_from(ns) {
        Ok(ns) if ns <= YEAR.as_ns() => Ok(Duration::from_ns(ns)),
        _ => Err("at most a year (31536000s)".into()),
    }
}

/// `"10ms"`, or `"4kHz"` as the distance of what happens so often; at most a year.
///
/// # Errors
/// What was expected, as a phrase.
pub(crate) fn period(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let Some(&(_, unit_hz)) = FREQUENCIES.iter().find(|(name, _)| *name == unit) else {
        let is_time = UNITS.iter().any(|(name, _)| *name == unit);
        if is_time || unit.is_empty() || unit.starts_with('-') {
            return duration(text);
        }
        let units = "ns, us, ms, s, min, Hz, kHz, MHz";
        return Err(format!("a number with one of the units {units}, for example \"1.5ms\" or \"4kHz\""));
    };
    let frequency = scaled(number, unit_hz * PER_HZ).map_err(|error| match error {
        DecimalError::NoNumber => "a number before the unit, for example \"4kHz\"",
        DecimalError::NotWhole => "a frequency with fewer decimals",
    })?;
    if frequency == 0 {
        return Err("a frequency above zero".into());
    }
    let second = u128::from(PER_HZ) * 1_000_000_000;
    let Ok(ns @ 1_000..) = u64::try_from(second / frequency) else {
        return Err("at most 1MHz".into());
    };
    if ns > YEAR.as_ns() {
        return Err("at least once in a year (31536000s)".into());
    }
    if second.is_multiple_of(frequency) {
        return Ok(Duration::from_ns(ns));
    }
    let (faster, slower) = (Duration::from_ns(ns), Duration::from_ns(ns + 1));
    Err(format!(
        "a period of whole nanoseconds: \"{faster}\" is a little faster, \"{slower}\" a little slower"
    ))
}

/// `"70%"` or `"12.5%"` as a share.
///
/// # Errors
/// What was expected, as a phrase.
pub(crate) fn percent(text: &str) -> Result<Share, String> {
    let number = text.trim().strip_suffix('%').ok_or_else(|| match text.trim().parse::<u64>() {
        Ok(n) => format!("a percentage, for example \"{n}%\""),
        Err(_) => "a percentage, for example \"70%\"".into(),
    })?;
    let share = scaled(number.trim(), WHOLE / 100).map_err(|error| match error {
        DecimalError::NoNumber => "a percentage, for example \"70%\"",
        DecimalError::NotWhole => "a percentage with at most 7 decimals",
    })?;
    u64::try_from(share).map_err(|_| "a smaller percentage".into())
}

/// Units of bandwidth with their bits per second.
const BANDWIDTHS: [(&str, u64); 4] =
    [("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1_000), ("bit/s", 1)];

/// The widest link.
const BANDWIDTH_MAX: u64 = 10_000_000_000_000;

/// `"1Gbit/s"` as bits per second.
///
/// # Errors
/// What was expected, as a phrase.
pub(crate) fn bandwidth(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let expected = "a number with one of the units bit/s, kbit/s, Mbit/s, Gbit/s, for example \"1Gbit/s\"";
    let &(_, unit_bps) = BANDWIDTHS.iter().find(|(name, _)| *name == unit).ok_or(expected)?;
    let bps = scaled(number, unit_bps).map_err(|error| match error {
        DecimalError::NoNumber => expected,
        DecimalError::NotWhole => "a whole number of bits per second",
    })?;
    match u64::try_from(bps) {
        Ok(bps) if (1_000..=BANDWIDTH_MAX).contains(&bps) => Ok(bps),
        _ => Err("from 1kbit/s to 10000Gbit/s".into()),
    }
}

/// Bits per second, the shortest exact form.
pub(crate) fn show_bandwidth(bps: u64) -> String {
    let found = BANDWIDTHS.iter().find(|(_, unit)| bps.is_multiple_of(*unit));
    let (name, unit) = found.unwrap_or(&("bit/s", 1));
    format!("{}{name}", bps / unit)
}

/// The pattern of [`bandwidth`], for the schema.
pub(crate) const BANDWIDTH_PATTERN: &str = r"^\s*\d[\d_]*(\.[\d_]*\d)?\s*(G|M|k)?bit/s\s*$";

/// A share in percent, the shortest exact form.
pub(crate) fn show_percent(share: Share) -> String {
    let (whole, rest) = (share / (WHOLE / 100), share % (WHOLE / 100));
    match format!("{rest:07}").trim_end_matches('0') {
        "" => format!("{whole}%"),
        decimals => format!("{whole}.{decimals}%"),
    }
}

/// Why a text is not a whole multiple of the smallest unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecimalError {
    /// It is no decimal number.
    NoNumber,
    /// The number has too many decimals.
    NotWhole,
}

/// A decimal number times `unit`. A number too large for the type saturates and is then refused by the bounds
/// of what it represents. Why our own: it is exact, and crates for decimals round without saying so.
pub(crate) fn scaled(number: &str, unit: u64) -> Result<u128, DecimalError> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let well_formed = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let starts = number.bytes().next().is_some_and(|b| b.is_ascii_digit());
    let ends = number.bytes().last().is_some_and(|b| b.is_ascii_digit());
    if !(starts && ends && well_formed(whole) && well_formed(decimals)) {
        return Err(DecimalError::NoNumber);
    }
    let mut total = 0u128;
    for digit in whole.bytes().filter(|&b| b != b'_') {
        total = total.saturating_mul(10).saturating_add(u128::from(digit - b'0'));
    }
    total = total.saturating_mul(unit.into());
    let mut place = u128::from(unit);
    for digit in decimals.bytes().filter(|&b| b != b'_') {
        let digit = u128::from(digit - b'0');
        if digit != 0 && place % 10 != 0 {
            return Err(DecimalError::NotWhole);
        }
        place /= 10;
        total = total.saturating_add(digit * place);
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_exact_decimals_with_a_unit() {
        assert_eq!(duration("1.5ms"), Ok(Duration::from_us(1500)));
        assert_eq!(duration(" 2 s "), Ok(Duration::from_secs(2)));
        assert_eq!(duration("0.5min"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("10µs"), duration("10us"));
        assert_eq!(duration("0.000001ms"), Ok(Duration::from_ns(1)));
        assert_eq!(duration("1_000ns"), Ok(Duration::from_us(1)));
        assert_eq!(duration("365.000s"), Ok(Duration::from_secs(365)));
    }

    #[test]
    fn durations_that_are_not_exact_or_too_long_are_refused() {
        for bad in
            ["", "ms", "10", "1.5ns", "0.0000001ms", "-1ms", "1,5ms", "1.ms", ".5ms", "1e3ms", "1.2.3ms"]
        {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert!(duration("366000000000000000000000000000000000000000000000s").is_err());
        assert!(duration("31536001s").is_err());
        assert_eq!(duration("31536000s"), Ok(YEAR));
    }

    #[test]
    fn a_period_is_a_duration_or_an_exact_frequency() {
        assert_eq!(period("10ms"), duration("10ms"));
        assert_eq!(period("4kHz"), Ok(Duration::from_us(250)));
        assert_eq!(period("250 Hz"), Ok(Duration::from_ms(4)));
        assert_eq!(period("12.5Hz"), Ok(Duration::from_ms(80)));
        assert_eq!(period(" 0.1 Hz "), Ok(Duration::from_secs(10)));
        assert_eq!(period("1MHz"), Ok(Duration::from_us(1)));
        for (bad, expected) in [
            ("60Hz", "\"16666666ns\" is a little faster, \"16666667ns\" a little slower"),
            ("4.8kHz", "\"208333ns\" is a little faster"),
            ("0Hz", "above zero"),
            ("1.1MHz", "at most 1MHz"),
            ("999999999999999999999999MHz", "at most 1MHz"),
            ("0.00000001Hz", "at least once in a year"),
            ("0.0000000001Hz", "fewer decimals"),
            ("kHz", "a number before the unit"),
            ("4khz", "Hz, kHz, MHz"),
            ("-4kHz", "not negative"),
            ("4", "a duration with its unit"),
        ] {
            let said = period(bad).expect_err(bad);
            assert!(said.contains(expected), "{bad}: {said}");
        }
        assert!(duration("4kHz").is_err_and(|expected| expected.contains("only a period")));
    }

    #[test]
    fn bandwidths_are_exact_and_print_back() {
        assert_eq!(bandwidth("1Gbit/s"), Ok(1_000_000_000));
        assert_eq!(bandwidth("2.5 Gbit/s"), Ok(2_500_000_000));
        for bad in
            ["1", "1Gb", "1 GB/s", "0bit/s", "999bit/s", "1.5bit/s", "99999Gbit/s", "-1Mbit/s", "Gbit/s"]
        {
            assert!(bandwidth(bad).is_err(), "{bad}");
        }
        for bps in [1_000, 100_000_000, 2_500_000_000, 1_234_567] {
            assert_eq!(bandwidth(&show_bandwidth(bps)), Ok(bps));
        }
    }

    #[test]
    fn percentages_are_exact_and_print_back() {
        assert_eq!(percent("70%"), Ok(700_000_000));
        assert_eq!(percent("12.5 %"), Ok(125_000_000));
        assert_eq!(percent("0.0000001%"), Ok(1));
        assert!(percent("0.7").is_err() && percent("0.00000001%").is_err() && percent("-1%").is_err());
        for share in [0, 1, WHOLE, 125_000_000, 123_456_789] {
            assert_eq!(percent(&show_percent(share)), Ok(share));
        }
    }
}
