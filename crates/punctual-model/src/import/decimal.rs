//! Exact decimal times.

/// The longest time of a host file: a year, ns.
const YEAR_NS: u128 = 365 * 24 * 3600 * 1_000_000_000;

/// A decimal number of units in ns, at most a year.
///
/// # Errors
/// What was expected, as a phrase.
pub(super) fn scaled(text: &str, unit_ns: u64) -> Result<u64, &'static str> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    // Beyond these lengths no time is whole nanoseconds below a year.
    let decimals = decimals.trim_end_matches('0');
    if whole.is_empty() || !digits(whole) || !digits(decimals) {
        return Err("a number that is not negative, for example 2.5");
    }
    if whole.trim_start_matches('0').len() > 17 || decimals.len() > 12 {
        return Err("whole nanoseconds, at most a year");
    }
    let power = 10u128.pow(decimals.len() as u32);
    let parse = |part: &str| part.parse::<u128>().unwrap_or(0);
    let scaled = (parse(whole) * power + parse(decimals)) * u128::from(unit_ns);
    match scaled / power {
        ns if scaled.is_multiple_of(power) && ns <= YEAR_NS => Ok(ns as u64),
        _ => Err("whole nanoseconds, at most a year"),
    }
}

#[cfg(test)]
mod tests {
    use super::scaled;

    #[test]
    fn decimals_are_exact() {
        assert_eq!(scaled("30.0", 1_000_000), Ok(30_000_000));
        assert_eq!(scaled("2.5", 1_000), Ok(2_500));
        assert_eq!(scaled("0.000001", 1_000_000), Ok(1));
        assert_eq!(scaled("007", 1), Ok(7));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for bad in ["", ".5", "-1", "1e3", "2,5", "0.0000001", "NaN", "99999999999999999999", "1.2.3"] {
            assert!(scaled(bad, 1_000_000).is_err(), "{bad}");
        }
    }
}
