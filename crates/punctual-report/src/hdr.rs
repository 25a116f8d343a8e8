//! Distributions for the tools of HdrHistogram: percentile tables (`.hgrm`) and interval logs (`.hlog`).
//!
//! The histograms have two significant digits, as [`Histogram`] counts; so nothing is lost on the way. In
//! `.hgrm` values are in us, in logs in ns with the maximum in ms, as `HistogramLogReader` expects.

use std::io::{self, Write};
use std::time::Duration;

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use punctual_model::Histogram;

use crate::records::Distribution;

/// The digits of [`Histogram`].
const DIGITS: u8 = 2;
/// Ticks per halving of the distance to 100 %, the default of HdrHistogram's own output.
const TICKS: u32 = 5;

fn encoded(of: &Histogram) -> io::Result<hdrhistogram::Histogram<u64>> {
    let mut histogram =
        hdrhistogram::Histogram::new_with_max(of.max().as_ns().max(2), DIGITS).map_err(io::Error::other)?;
    for (low, _, count) in of.ranges_ns() {
        histogram.record_n(low, count).map_err(io::Error::other)?;
    }
    Ok(histogram)
}

/// Writes a distribution as HdrHistogram prints percentiles: value in us, percentile, count up to there, 1 /
/// (1 - percentile). Mean, deviation and maximum are the exact ones.
///
/// # Errors
/// When it cannot be written.
pub fn write_hgrm(of: &Histogram, mut out: impl Write) -> io::Result<()> {
    let us = |ns: u64| ns as f64 / 1000.0;
    let histogram = encoded(of)?;
    writeln!(out, "{:>12} {:>14} {:>10} {:>14}\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)")?;
    let mut count = 0;
    for step in histogram.iter_quantiles(TICKS) {
        count += step.count_since_last_iteration();
        let value = us(step.value_iterated_to().min(of.max().as_ns()));
        let quantile = step.quantile_iterated_to();
        write!(out, "{value:>12.3} {quantile:>14.12} {count:>10}")?;
        // There is no number for the last line, and HdrHistogram writes none.
        if quantile < 1.0 {
            write!(out, " {:>14.2}", 1.0 / (1.0 - quantile))?;
        }
        writeln!(out)?;
    }
    let [mean, deviation, max] = [of.mean(), of.stddev(), of.max()].map(|value| us(value.as_ns()));
    writeln!(out, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]")?;
    writeln!(out, "#[Max     = {max:>12.3}, Total count    = {:>12}]", of.count())?;
    // The numbers of buckets follow from the digits: 256 sub-buckets, half of them used beyond the first.
    let buckets = 1 + of.max().as_ns().max(1).ilog2().saturating_sub(7);
    writeln!(out, "#[Buckets = {buckets:>12}, SubBuckets     = {:>12}]", 256)
}

/// Writes distributions as a log of one interval each, tagged `result:parent/name:metric`, compressed (V2).
///
/// # Errors
/// When it cannot be written.
pub fn write_hlog(distributions: &[Distribution<'_>], mut out: impl Write) -> io::Result<()> {
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("Punctual: one interval per distribution; values in ns, Interval_Max in ms")
        .with_max_value_divisor(1e6)
        .begin_log_with(&mut out, &mut serializer)?;
    for distribution in distributions {
        let tag = tag_of(distribution);
        let tag = Tag::new(&tag).ok_or_else(|| io::Error::other("a tag cannot be written"))?;
        log.write_histogram(
            &encoded(distribution.histogram)?,
            Duration::ZERO,
            Duration::from_nanos(distribution.length_ns),
            Some(tag),
        )
        .map_err(|error| io::Error::other(format!("{error:?}")))?;
    }
    Ok(())
}

/// A tag must have no comma, space or line break.
fn tag_of(distribution: &Distribution<'_>) -> String {
    let Distribution { result, parent, name, metric, .. } = distribution;
    let path = if parent.is_empty() { (*name).to_owned() } else { format!("{parent}/{name}") };
    format!("{result}:{path}:{metric}")
        .replace(|c: char| c == ',' || c.is_whitespace() || c.is_control(), "_")
}

/// A name of a file for a distribution, without ending: letters, digits, `.`, `_` and `-` only.
pub fn file_stem(distribution: &Distribution<'_>) -> String {
    tag_of(distribution).replace(|c: char| !(c.is_ascii_alphanumeric() || "._-".contains(c)), "-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn histogram(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|ns| histogram.record(punctual_sched::Duration::from_ns(*ns)));
        histogram
    }

    fn distribution<'a>(histogram: &'a Histogram, name: &'a str) -> Distribution<'a> {
        Distribution {
            result: "a b",
            of: "task",
            parent: "vm1",
            name,
            metric: "response",
            histogram,
            length_ns: 5_000_000_000,
        }
    }

    #[test]
    fn percentiles_are_those_of_hdrhistogram_with_exact_mean_and_maximum() {
        let values: Vec<u64> = (1..=1000).map(|i| i * 10_000).collect();
        let mut out = Vec::new();
        write_hgrm(&histogram(&values), &mut out).expect("a vector takes everything");
        insta::assert_snapshot!(String::from_utf8(out).expect("text"));
    }

    #[test]
    fn names_of_files_and_tags_have_no_dangerous_characters() {
        let empty = Histogram::new();
        assert_eq!(tag_of(&distribution(&empty, "t,1\n")), "a_b:vm1/t_1_:response");
        assert_eq!(file_stem(&distribution(&empty, "../é")), "a_b-vm1-..---response");
    }

    proptest! {
        #[test]
        fn a_log_gives_back_every_bucket(values in prop::collection::vec(0u64..10_000_000_000, 1..200)) {
            use hdrhistogram::serialization::Deserializer;
            use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
            use base64::Engine as _;
            use base64::engine::general_purpose::STANDARD;
            let histogram = histogram(&values);
            let mut log = Vec::new();
            write_hlog(&[distribution(&histogram, "t1")], &mut log).expect("a vector takes everything");
            let entries: Vec<_> =
                IntervalLogIterator::new(&log).map(|entry| entry.expect("an entry")).collect();
            let [LogEntry::Interval(interval)] = entries.as_slice() else { panic!("{entries:?}") };
            prop_assert_eq!(interval.tag().map(|tag| tag.as_str()), Some("a_b:vm1/t1:response"));
            let bytes = STANDARD.decode(interval.encoded_histogram()).expect("base64");
            let read: hdrhistogram::Histogram<u64> =
                Deserializer::new().deserialize(&mut bytes.as_slice()).expect("a histogram");
            for (low, high, count) in histogram.ranges_ns() {
                prop_assert_eq!(read.count_between(low, high), count);
            }
            prop_assert_eq!(read.len(), histogram.count());
        }
    }
}
