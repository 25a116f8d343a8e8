//! Jobs as a Parquet file, written in groups of rows as they come.

use std::io::Write;
use std::sync::Arc;

use ::parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical};
use ::parquet::data_type::{BoolType, ByteArray};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::{Type, TypePtr};
use punctual_model::trace::JobRecord;

use super::{bits, numbers, text};
use crate::job_rows::{JobsOf, later_ns};

/// Rows of a group, which are held in memory until it is written.
const GROUP_ROWS: usize = 1 << 16;

/// A file of jobs.
pub(crate) struct JobRows<W: Write + Send> {
    file: SerializedFileWriter<W>,
    /// Labels, then source and host.
    texts: Vec<Vec<ByteArray>>,
    seed: Vec<i64>,
    task: Vec<ByteArray>,
    /// Number, release, deadline.
    numbers: [Vec<i64>; 3],
    /// Start, finish, response.
    later: [Vec<Option<i64>>; 3],
    missed: Vec<bool>,
}

impl<W: Write + Send> JobRows<W> {
    /// An empty file with these labels before `columns`.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn new(labels: &[&str], columns: &[&str], out: W) -> Result<Self, ParquetError> {
        let field = |name: &&str| column(name);
        let fields = labels.iter().map(|label| string(label)).chain(columns.iter().map(field));
        let fields = fields.map(|field| field.map(Arc::new)).collect::<Result<Vec<TypePtr>, _>>()?;
        let schema = Type::group_type_builder("jobs").with_fields(fields).build()?;
        let properties = WriterProperties::builder().set_compression(Compression::UNCOMPRESSED).build();
        Ok(JobRows {
            file: SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?,
            texts: vec![Vec::new(); labels.len() + 2],
            seed: Vec::new(),
            task: Vec::new(),
            numbers: Default::default(),
            later: Default::default(),
            missed: Vec::new(),
        })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// A group is full and cannot be written.
    pub(crate) fn add(
        &mut self,
        labels: &[&str],
        source: &str,
        of: &JobsOf,
        job: &JobRecord,
    ) -> Result<(), ParquetError> {
        let texts = labels.iter().copied().chain([source, of.host.as_str()]);
        self.texts.iter_mut().zip(texts).for_each(|(column, text)| column.push(text.into()));
        self.seed.push(bits(of.seed));
        self.task.push(of.tasks[job.task.0].as_str().into());
        let numbers = [job.job, job.release.as_ns(), job.deadline.as_ns()];
        self.numbers.iter_mut().zip(numbers).for_each(|(column, number)| column.push(bits(number)));
        self.later.iter_mut().zip(later_ns(job)).for_each(|(column, ns)| column.push(ns.map(bits)));
        self.missed.push(job.missed);
        if self.missed.len() == GROUP_ROWS { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        for column in &mut self.texts {
            text(&mut group, &std::mem::take(column))?;
        }
        numbers(&mut group, &std::mem::take(&mut self.seed), None)?;
        text(&mut group, &std::mem::take(&mut self.task))?;
        for column in &mut self.numbers {
            numbers(&mut group, &std::mem::take(column), None)?;
        }
        for column in &mut self.later {
            let column = std::mem::take(column);
            let present: Vec<i64> = column.iter().copied().flatten().collect();
            let levels: Vec<i16> = column.iter().map(|value| i16::from(value.is_some())).collect();
            numbers(&mut group, &present, Some(&levels))?;
        }
        let missed = std::mem::take(&mut self.missed);
        if let Some(mut column) = group.next_column()? {
            column.typed::<BoolType>().write_batch(&missed, None, None)?;
            column.close()?;
        }
        group.close().map(drop)
    }

    /// Writes what is left and returns what it writes to.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn finish(mut self) -> Result<W, ParquetError> {
        if !self.missed.is_empty() {
            self.write_group()?;
        }
        self.file.into_inner()
    }
}

/// The type of one of the columns that every file of jobs has.
fn column(name: &str) -> Result<Type, ParquetError> {
    let repetition = match name {
        "source" | "host" | "task" => return string(name),
        "missed" => {
            let missed = Type::primitive_type_builder(name, Physical::BOOLEAN);
            return missed.with_repetition(Repetition::REQUIRED).build();
        }
        "start_ns" | "finish_ns" | "response_ns" => Repetition::OPTIONAL,
        _ => Repetition::REQUIRED,
    };
    let number = Type::primitive_type_builder(name, Physical::INT64);
    number.with_repetition(repetition).with_converted_type(ConvertedType::UINT_64).build()
}

fn string(name: &str) -> Result<Type, ParquetError> {
    let string = Type::primitive_type_builder(name, Physical::BYTE_ARRAY);
    string.with_repetition(Repetition::REQUIRED).with_converted_type(ConvertedType::UTF8).build()
}

#[cfg(test)]
mod tests {
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use punctual_model::index::TaskIx;
    use punctual_sched::Instant;

    use super::*;
    use crate::jobs::JobsWriter;

    /// Rows of several groups, with and without a start and a finish, are those of the CSV file.
    #[test]
    fn the_rows_are_those_of_csv() {
        let of = JobsOf { host: "h".into(), seed: u64::MAX, tasks: vec!["a/t".into(), "b/u".into()] };
        let labels = ["domain.*.budget", "policy"];
        let mut parquet = JobsWriter::parquet(&labels, Vec::new()).expect("a vector takes everything");
        let mut csv = JobsWriter::csv(&labels, Vec::new());
        let at = |n: usize| Instant::from_ns(n as u64 * 1_000);
        let jobs = GROUP_ROWS + 3;
        for n in 0..jobs {
            let job = JobRecord {
                task: TaskIx(n % 2),
                job: n as u64,
                release: at(n),
                deadline: at(n + 2),
                start: (n % 3 > 0).then(|| at(n + 1)),
                finish: (n % 3 == 2).then(|| at(n + 3)),
                missed: n % 3 != 1,
            };
            parquet.job(&["1ms", "rtds"], &of, &job);
            csv.job(&["1ms", "rtds"], &of, &job);
        }
        let parquet = bytes::Bytes::from(parquet.finish().expect("written"));
        let reader = SerializedFileReader::new(parquet).expect("a file");
        assert_eq!(reader.metadata().num_row_groups(), 2);
        let csv = csv.finish().expect("written");
        let mut csv = csv::Reader::from_reader(csv.as_slice());
        let header = csv.headers().expect("a header").clone();
        let rows = reader.get_row_iter(None).expect("rows");
        let mut read = 0;
        for (row, line) in rows.zip(csv.records()) {
            let (row, line) = (row.expect("a row"), line.expect("a line"));
            let cells = row.get_column_iter().zip(header.iter().zip(line.iter()));
            for ((name, field), (expected_name, cell)) in cells {
                let shown = field.to_string();
                let shown = if shown == "null" { "" } else { shown.trim_matches('"') };
                assert_eq!((name.as_str(), shown), (expected_name, cell));
            }
            read += 1;
        }
        assert_eq!(read, jobs);
    }
}
