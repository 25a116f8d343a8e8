//! The JSON schema of a [`Histogram`]'s JSON form.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::histogram::Histogram;

/// A distribution of durations: a summary for readers, and the counters from which it can be merged.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Saved {
    /// How many durations were counted.
    count: u64,
    /// The least.
    min_ns: u64,
    /// The mean, rounded down.
    mean_ns: u64,
    /// The population standard deviation, rounded down.
    stddev_ns: u64,
    /// The median; like every quantile at most 1/128 above the true one.
    p50_ns: u64,
    /// What 99 % do not exceed.
    p99_ns: u64,
    /// What 99.9 % do not exceed.
    p999_ns: u64,
    /// The greatest.
    max_ns: u64,
    /// Exact sum as a decimal string: it does not fit a JSON number.
    sum_ns: String,
    /// Exact sum of the squares, likewise.
    sum_squares_ns2: String,
    /// Counters in the buckets of HdrHistogram with two significant digits: least value in ns, count.
    buckets: Vec<(u64, u32)>,
}

impl JsonSchema for Histogram {
    fn schema_name() -> Cow<'static, str> {
        "Histogram".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Saved::json_schema(generator)
    }
}
