//! Results as one Parquet file in long form: a row per number, so that any data frame can filter and pivot
//! it.
//!
//! Columns: `result`, `source`, `host`, `seed`; `table`, `parent` and `name` say what the number is about;
//! `metric` is its name, as in the CSV tables ([`crate::records`]); of a cause of response times, the group
//! of jobs or run and job, the cause, and who, stand before it: `late.preempted-by-unit.control.0.time_ns`.
//! Counts of a distribution's buckets have the bucket's least value in `bucket_ns`, which is null elsewhere.
//! Numbers are unsigned 64-bit integers, strings are UTF-8.

pub(crate) mod jobs;

use std::io::Write;
use std::sync::Arc;

use ::parquet::basic::Compression;
use ::parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::parser::parse_message_type;

use crate::Column;
use crate::records::{Records, Value, records, source};

const SCHEMA: &str = "
message results {
    required binary result (STRING);
    required binary source (STRING);
    required binary host (STRING);
    required int64 seed (INTEGER(64,false));
    required binary table (STRING);
    required binary parent (STRING);
    required binary name (STRING);
    required binary metric (STRING);
    optional int64 bucket_ns (INTEGER(64,false));
    required int64 value (INTEGER(64,false));
}";

/// The columns as they are filled.
#[derive(Default)]
struct Long {
    result: Vec<ByteArray>,
    source: Vec<ByteArray>,
    host: Vec<ByteArray>,
    seed: Vec<i64>,
    table: Vec<ByteArray>,
    parent: Vec<ByteArray>,
    name: Vec<ByteArray>,
    metric: Vec<ByteArray>,
    bucket_ns: Vec<Option<i64>>,
    value: Vec<i64>,
}

/// The bits of an unsigned number are what the schema's unsigned integer is stored as.
fn bits(number: u64) -> i64 {
    number.cast_signed()
}

/// Writes the results.
///
/// # Errors
/// When it cannot be written.
pub fn write(columns: &[Column], out: impl Write + Send) -> Result<(), ParquetError> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let properties = WriterProperties::builder().set_compression(Compression::UNCOMPRESSED).build();
    let mut file = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    let long = long(columns);
    text(&mut group, &long.result)?;
    text(&mut group, &long.source)?;
    text(&mut group, &long.host)?;
    numbers(&mut group, &long.seed, None)?;
    text(&mut group, &long.table)?;
    text(&mut group, &long.parent)?;
    text(&mut group, &long.name)?;
    text(&mut group, &long.metric)?;
    let present: Vec<i64> = long.bucket_ns.iter().copied().flatten().collect();
    let levels: Vec<i16> = long.bucket_ns.iter().map(|bucket| i16::from(bucket.is_some())).collect();
    numbers(&mut group, &present, Some(&levels))?;
    numbers(&mut group, &long.value, None)?;
    group.close()?;
    file.close()?;
    Ok(())
}

fn text<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[ByteArray],
) -> Result<(), ParquetError> {
    if let Some(mut column) = group.next_column()? {
        column.typed::<ByteArrayType>().write_batch(values, None, None)?;
        column.close()?;
    }
    Ok(())
}

fn numbers<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[i64],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    if let Some(mut column) = group.next_column()? {
        column.typed::<Int64Type>().write_batch(values, levels, None)?;
        column.close()?;
    }
    Ok(())
}

fn long(columns: &[Column]) -> Long {
    let mut long = Long::default();
    let tables = records(columns);
    for column in columns {
        for table in &tables {
            of_table(&mut long, column, table);
        }
    }
    long
}

fn of_table(long: &mut Long, column: &Column, table: &Records) {
    let at = |name: &str| table.columns.iter().position(|column| column == name);
    let text = |row: &[Value], name: &str| match at(name).and_then(|at| row.get(at)) {
        Some(Value::Text(text)) => text.clone(),
        _ => String::new(),
    };
    // A pool is a processor's parent, a network a flow's; a processor's number is its name.
    let parent = match table.name {
        "processors" | "host_processors" | "disturbances" => "pool",
        "flows" => "network",
        _ => "parent",
    };
    let is_distribution = table.name == "distributions";
    for row in table.rows.iter().filter(|row| text(row, "result") == column.label) {
        let number = |name: &str| match at(name).map(|at| &row[at]) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        };
        let name = match number("processor") {
            Some(number) => number.to_string(),
            None => text(row, "name"),
        };
        let mut push = |metric: &str, bucket: Option<u64>, value: u64| {
            long.result.push(column.label.as_str().into());
            long.source.push(source(column.results.source).into());
            long.host.push(column.results.host.as_str().into());
            long.seed.push(bits(column.results.seed));
            long.table.push(table.name.into());
            long.parent.push(text(row, parent).as_str().into());
            long.name.push(name.as_str().into());
            long.metric.push(metric.into());
            long.bucket_ns.push(bucket.map(bits));
            long.value.push(bits(value));
        };
        if is_distribution {
            push(&text(row, "metric"), number("low_ns"), number("count").unwrap_or(0));
            continue;
        }
        for (metric, value) in table.columns.iter().zip(row) {
            if let Value::Number(value) = value
                && metric != "processor"
            {
                push(&format!("{}{metric}", cause_prefix(table, row)), None, *value);
            }
        }
    }
}

/// What a metric of a cause begins with; nothing in the other tables.
fn cause_prefix(table: &Records, row: &[Value]) -> String {
    if !matches!(table.name, "blame" | "worst_jobs" | "disturbances") {
        return String::new();
    }
    let names = ["of", "run", "job", "cause", "by"];
    let is_named = |(column, _): &(&String, &Value)| names.contains(&column.as_str());
    let shown = table.columns.iter().zip(row).filter(is_named).map(|(_, value)| match value {
        Value::Text(text) if text.is_empty() => String::new(),
        Value::Text(text) => format!("{text}."),
        Value::Number(number) => format!("{number}."),
        Value::Unmeasured => String::new(),
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{disturbed, results, with_packets};
    use ::parquet::file::reader::{FileReader, SerializedFileReader};

    #[test]
    fn every_number_of_every_table_comes_back() {
        let columns = [
            Column { label: "a".into(), results: disturbed(with_packets(results("rtds", 24))) },
            Column { label: "b".into(), results: with_packets(results("credit", 240)) },
        ];
        let mut file = Vec::new();
        write(&columns, &mut file).expect("a vector takes everything");
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).expect("a file");
        let rows = reader.metadata().file_metadata().num_rows();
        let numbers = |table: &Records| {
            let named = table.columns.iter().any(|column| column == "processor");
            let of_row = |row: &Vec<Value>| row.iter().filter(|v| matches!(v, Value::Number(_))).count();
            match table.name {
                "distributions" => table.rows.len(),
                _ => table.rows.iter().map(|row| of_row(row) - usize::from(named)).sum(),
            }
        };
        let expected: usize = records(&columns).iter().map(numbers).sum();
        assert_eq!(rows, expected as i64);
        let late: Vec<String> = reader
            .get_row_iter(None)
            .expect("rows")
            .map(|row| row.expect("a row").to_string())
            .filter(|row| row.contains("name: \"task1\", metric: \"missed\"") && row.contains("\"video\""))
            .collect();
        insta::assert_snapshot!(late.join("\n"));
    }
}
