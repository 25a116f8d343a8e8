//! Numbers as people read them: three significant digits, a unit, and never "0" for what is not zero.

use punctual_model::guarantees::Remedy;
use punctual_sched::Duration;

/// A duration with three significant digits, rounded to nearest: `850 us`, `12.3 ms`, `1.00 s`, `0`.
pub fn fmt_duration(duration: Duration) -> String {
    let ns = duration.as_ns();
    if ns < 1000 {
        return if ns == 0 { "0".into() } else { format!("{ns} ns") };
    }
    for (unit, scale) in [("us", 1_000u64), ("ms", 1_000_000), ("s", 1_000_000_000)] {
        for decimals in [2u32, 1, 0] {
            let step = scale / 10u64.pow(decimals);
            let rounded = ns.saturating_add(step / 2) / step;
            if rounded < 1000 {
                return format!("{} {unit}", decimal(rounded, decimals));
            }
        }
    }
    format!("{} s", fmt_count(ns / 1_000_000_000))
}

/// What a greater budget would do, after the name of its vCPU. The times are exact, as host files take them.
pub fn fmt_remedy(remedy: &Remedy) -> String {
    let [budget, now, period] =
        [remedy.budget_ns, remedy.budget_now_ns, remedy.period_ns].map(Duration::from_ns);
    let tasks = remedy.tasks.join(", ");
    format!("with a budget of {budget} in every {period} (now {now}), {tasks} would be guaranteed")
}

/// A duration in ns, as [`fmt_duration`] shows it.
pub fn fmt_ns(ns: u64) -> String {
    fmt_duration(Duration::from_ns(ns))
}

/// A count with a comma between groups of three digits: `12,345`.
pub fn fmt_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `part` of `whole` in percent with one decimal: `12.3 %`. Nothing is `0`, a little `<0.1 %`, nearly all
/// `>99.9 %`, all `100 %`; `-` when there is no whole.
pub fn fmt_share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".into();
    }
    if part == 0 {
        return "0".into();
    }
    let permille = ((u128::from(part) * 1000 + u128::from(whole) / 2) / u128::from(whole)) as u64;
    match permille {
        0 => "<0.1 %".into(),
        1000.. if part < whole => ">99.9 %".into(),
        1000.. => format!("{} %", fmt_count(permille / 10)),
        _ => format!("{} %", decimal(permille, 1)),
    }
}

/// Events per second with one decimal below ten: `3.2/s`, `1,250/s`.
pub(crate) fn fmt_rate(count: u64, time: Duration) -> String {
    if time.is_zero() {
        return "-".into();
    }
    let per_second = |scale: u128| {
        let ns = u128::from(time.as_ns());
        u64::try_from((u128::from(count) * scale * 1_000_000_000 + ns / 2) / ns).unwrap_or(u64::MAX)
    };
    match per_second(10) {
        0 if count == 0 => "0".into(),
        0 => "<0.1/s".into(),
        tenths @ 1..100 => format!("{}/s", decimal(tenths, 1)),
        _ => format!("{}/s", fmt_count(per_second(1))),
    }
}

/// `value / 10^decimals`.
fn decimal(value: u64, decimals: u32) -> String {
    let scale = 10u64.pow(decimals);
    match decimals {
        0 => value.to_string(),
        _ => format!("{}.{:0width$}", value / scale, value % scale, width = decimals as usize),
    }
}

/// Bytes over time as bits per second: `1.5 Mbit/s`.
pub(crate) fn fmt_bandwidth(bytes: u64, time: Duration) -> String {
    let bps = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(time.as_ns().max(1));
    let (unit, name) = match bps {
        0..1_000_000 => (1_000, "kbit/s"),
        1_000_000..1_000_000_000 => (1_000_000, "Mbit/s"),
        _ => (1_000_000_000, "Gbit/s"),
    };
    let tenths = bps * 10 / unit;
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_have_three_significant_digits_and_carry_into_the_next_unit() {
        for (ns, text) in [
            (0, "0"),
            (7, "7 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (9_994, "9.99 us"),
            (9_995, "10.0 us"),
            (850_000, "850 us"),
            (999_499, "999 us"),
            (999_500, "1.00 ms"),
            (12_345_678, "12.3 ms"),
            (1_000_000_000, "1.00 s"),
            (61_200_000_000, "61.2 s"),
            (3_600_000_000_000, "3,600 s"),
        ] {
            assert_eq!(fmt_duration(Duration::from_ns(ns)), text, "{ns} ns");
        }
    }

    #[test]
    fn a_share_is_zero_or_all_only_when_it_is() {
        for (part, whole, text) in [
            (0, 10, "0"),
            (1, 1_000_000, "<0.1 %"),
            (1, 1000, "0.1 %"),
            (1, 8, "12.5 %"),
            (999_999, 1_000_000, ">99.9 %"),
            (5, 5, "100 %"),
            (7, 5, "140 %"),
            (0, 0, "-"),
        ] {
            assert_eq!(fmt_share(part, whole), text, "{part} of {whole}");
        }
    }

    #[test]
    fn rates_keep_a_decimal_when_they_are_small() {
        let second = Duration::from_secs(1);
        for (count, time, text) in [
            (0, second, "0"),
            (1, Duration::from_secs(60), "<0.1/s"),
            (32, Duration::from_secs(10), "3.2/s"),
            (1250, second, "1,250/s"),
            (1, Duration::ZERO, "-"),
        ] {
            assert_eq!(fmt_rate(count, time), text);
        }
    }

    proptest! {
        #[test]
        fn any_number_is_formatted(part: u64, whole: u64) {
            prop_assert!(!fmt_duration(Duration::from_ns(part)).is_empty());
            prop_assert_eq!(fmt_share(part, whole) == "0", part == 0 && whole > 0);
            prop_assert_eq!(fmt_count(part).replace(',', ""), part.to_string());
            prop_assert!(!fmt_rate(part, Duration::from_ns(whole)).is_empty());
        }
    }
}
