//! How large a difference may be.

use super::metric::{Metric, Value, signed_percent};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tolerances(Vec<(Metric, u64)>);

/// Why a text is no tolerances.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToleranceError {
    #[error("`{part}`: expected METRIC<=N%, for example p99<=20%")]
    Malformed { part: String },
    #[error("there is no metric `{name}`, expected one of {}{}", names().join(", "), hint(.name))]
    UnknownMetric { name: String },
    #[error("`{}` has two limits", .metric.name())]
    TwoLimits { metric: Metric },
}

fn names() -> [&'static str; Metric::ALL.len()] {
    Metric::ALL.map(Metric::name)
}

/// The name that was probably meant.
fn hint(name: &str) -> String {
    let nearest = names().into_iter().min_by_key(|known| strsim::damerau_levenshtein(name, known));
    let near = nearest.filter(|near| strsim::damerau_levenshtein(name, near) <= 1 + near.len() / 3);
    near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

/// A decimal number of percent in millionths; at most a million percent, at most four decimals.
fn ppm(number: &str) -> Option<u64> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || whole.len() > 6 || decimals.len() > 4 {
        return None;
    }
    Some(whole.parse::<u64>().ok()? * 10_000 + format!("{decimals:0<4}").parse::<u64>().ok()?)
}

impl Tolerances {
    /// Parses `miss<=1%,p99<=20%`.
    ///
    /// # Errors
    /// What is wrong with which part.
    pub fn parse(text: &str) -> Result<Self, ToleranceError> {
        let mut limits: Vec<(Metric, u64)> = Vec::new();
        for part in text.split(',').map(str::trim) {
            let malformed = || ToleranceError::Malformed { part: part.to_owned() };
            let (name, limit) = part.split_once("<=").ok_or_else(malformed)?;
            let name = name.trim();
            let unknown = || ToleranceError::UnknownMetric { name: name.to_owned() };
            let metric = Metric::ALL.into_iter().find(|metric| metric.name() == name).ok_or_else(unknown)?;
            let number = limit.trim().strip_suffix('%').ok_or_else(malformed)?;
            let limit = ppm(number.trim()).ok_or_else(malformed)?;
            if limits.iter().any(|(known, _)| *known == metric) {
                return Err(ToleranceError::TwoLimits { metric });
            }
            limits.push((metric, limit));
        }
        Ok(Tolerances(limits))
    }

    /// What is beyond the tolerance, in a sentence.
    pub fn exceeded(&self, metric: Metric, first: Option<Value>, value: Option<Value>) -> Option<String> {
        let (_, limit) = self.0.iter().find(|(of, _)| *of == metric)?;
        let limit_text = signed_percent((*limit).into());
        let limit_text = limit_text.trim_start_matches('+');
        let (first, value) = match (first, value) {
            (None, None) => return None,
            (Some(first), Some(value)) => (first, value),
            _ => return Some("measured in one of the files only".into()),
        };
        let difference = value.difference(&first);
        let size = if metric.is_share() { Some(difference.absolute) } else { difference.relative_ppm };
        // From 0 to anything is beyond every share of 0.
        let within = size.is_some_and(|size| size.unsigned_abs() <= u128::from(*limit));
        let unit = if metric.is_share() { " points" } else { " %" };
        (!within).then(|| format!("{} is beyond {limit_text}{unit}", value.show_difference(&first)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_sched::Duration;

    #[test]
    fn limits_are_read_by_metric() {
        assert_eq!(
            Tolerances::parse("miss<=1%, p99 <= 20.5 %"),
            Ok(Tolerances(vec![(Metric::Miss, 10_000), (Metric::P99, 205_000)]))
        );
    }

    #[test]
    fn what_is_wrong_with_a_limit_is_said() {
        let error = |text| Tolerances::parse(text).expect_err(text).to_string();
        assert_eq!(error("p99"), "`p99`: expected METRIC<=N%, for example p99<=20%");
        assert_eq!(error("p99<=20"), "`p99<=20`: expected METRIC<=N%, for example p99<=20%");
        assert_eq!(error("p99<=-1%"), "`p99<=-1%`: expected METRIC<=N%, for example p99<=20%");
        assert_eq!(error("miss<=1%,miss<=2%"), "`miss` has two limits");
        assert!(error("mis<=1%").ends_with("did you mean `miss`?"), "{}", error("mis<=1%"));
        assert!(error("colour<=1%").contains("expected one of miss, p50"));
    }

    #[test]
    fn shares_are_judged_in_points_and_times_in_percent_of_the_first() {
        let limits = Tolerances::parse("miss<=1%,p99<=20%,decisions<=0%").expect("limits");
        let share = |part| Some(Value::Share(part, 1000));
        let time = |ms| Some(Value::Time(Duration::from_ms(ms)));
        assert_eq!(limits.exceeded(Metric::Miss, share(0), share(10)), None);
        assert_eq!(
            limits.exceeded(Metric::Miss, share(0), share(11)).as_deref(),
            Some("+1.1 points is beyond 1.0 points")
        );
        assert_eq!(limits.exceeded(Metric::P99, time(10), time(8)), None);
        let over = limits.exceeded(Metric::P99, time(10), time(13));
        assert_eq!(over.as_deref(), Some("+3.00 ms (+30.0 %) is beyond 20.0 %"));
        assert!(limits.exceeded(Metric::P99, time(0), time(1)).is_some());
        assert!(limits.exceeded(Metric::P99, None, time(1)).is_some());
        assert_eq!(limits.exceeded(Metric::P99, None, None), None);
        assert_eq!(limits.exceeded(Metric::Max, time(1), time(9)), None, "has no limit");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_reading_panic(text in "[a-z0-9<=%., ]{0,30}|.{0,20}") {
            let _ = Tolerances::parse(&text);
        }
    }
}
