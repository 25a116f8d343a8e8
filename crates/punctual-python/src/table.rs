//! Tables of Arrow, which data frames take without a copy.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Float64Builder, StringDictionaryBuilder, UInt64Builder};
use arrow_array::cast::AsArray;
use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Float64Type, Int32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchIterator};
use arrow_schema::{ArrowError, DataType, Schema};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList, PyString, PyTuple};

/// A table: columns of whole numbers, real numbers, texts and truth values, each of which may lack values.
#[pyclass(frozen, module = "punctual")]
pub(crate) struct Table {
    batch: RecordBatch,
}

/// A column while it is filled.
pub(crate) enum Column {
    Number(UInt64Builder),
    Real(Float64Builder),
    Text(StringDictionaryBuilder<Int32Type>),
    Truth(BooleanBuilder),
}

impl Column {
    pub(crate) fn numbers() -> Self {
        Column::Number(UInt64Builder::new())
    }

    pub(crate) fn reals() -> Self {
        Column::Real(Float64Builder::new())
    }

    pub(crate) fn texts() -> Self {
        Column::Text(StringDictionaryBuilder::new())
    }

    pub(crate) fn truths() -> Self {
        Column::Truth(BooleanBuilder::new())
    }

    fn finish(self) -> ArrayRef {
        match self {
            Column::Number(mut numbers) => Arc::new(numbers.finish()),
            Column::Real(mut numbers) => Arc::new(numbers.finish()),
            Column::Text(mut texts) => Arc::new(texts.finish()),
            Column::Truth(mut truths) => Arc::new(truths.finish()),
        }
    }

    pub(crate) fn number(&mut self, number: Option<u64>) {
        match self {
            Column::Number(numbers) => numbers.append_option(number),
            Column::Real(_) | Column::Text(_) | Column::Truth(_) => unreachable!("a column of numbers"),
        }
    }

    pub(crate) fn real(&mut self, number: f64) {
        match self {
            Column::Real(numbers) => numbers.append_value(number),
            Column::Number(_) | Column::Text(_) | Column::Truth(_) => unreachable!("a column of reals"),
        }
    }

    pub(crate) fn text(&mut self, text: Option<&str>) {
        match self {
            Column::Text(texts) => texts.append_option(text),
            Column::Number(_) | Column::Real(_) | Column::Truth(_) => unreachable!("a column of texts"),
        }
    }

    pub(crate) fn truth(&mut self, truth: bool) {
        match self {
            Column::Truth(truths) => truths.append_value(truth),
            Column::Number(_) | Column::Real(_) | Column::Text(_) => unreachable!("a column of truth values"),
        }
    }
}

impl Table {
    /// A table of these columns, all of one length.
    pub(crate) fn new(columns: impl IntoIterator<Item = (impl AsRef<str>, Column)>) -> Self {
        let columns = columns.into_iter().map(|(name, column)| (name, column.finish(), true));
        let batch = RecordBatch::try_from_iter_with_nullable(columns);
        Table { batch: batch.expect("the columns of a table are of one length") }
    }

    /// A table without columns.
    pub(crate) fn empty() -> Self {
        Table { batch: RecordBatch::new_empty(Arc::new(Schema::empty())) }
    }

    /// Another handle on the same memory.
    pub(crate) fn share(&self) -> Self {
        Table { batch: self.batch.clone() }
    }

    fn column<'py>(&self, py: Python<'py>, array: &ArrayRef) -> PyResult<Bound<'py, PyList>> {
        match array.data_type() {
            DataType::UInt64 => PyList::new(py, array.as_primitive::<UInt64Type>().iter()),
            DataType::Float64 => PyList::new(py, array.as_primitive::<Float64Type>().iter()),
            DataType::Boolean => PyList::new(py, array.as_boolean().iter()),
            _ => {
                let texts = array.as_dictionary::<Int32Type>();
                // A text that stands in many rows is one object.
                let words: Vec<_> = texts.values().as_string::<i32>().iter().flatten().collect();
                let words: Vec<_> = words.into_iter().map(|word| PyString::new(py, word)).collect();
                PyList::new(py, texts.keys().iter().map(|key| key.map(|key| &words[key as usize])))
            }
        }
    }

    fn names(&self) -> Vec<String> {
        self.batch.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn schema(&self) -> Result<FFI_ArrowSchema, ArrowError> {
        FFI_ArrowSchema::try_from(self.batch.schema_ref().as_ref())
    }
}

fn arrow(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[pymethods]
impl Table {
    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.names()
    }

    /// Rows and columns.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.batch.num_rows(), self.batch.num_columns())
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// The values of a column as a list.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        match self.batch.column_by_name(name) {
            Some(array) => self.column(py, array),
            None => {
                Err(PyKeyError::new_err(format!("no column {name:?}; columns: {}", self.names().join(", "))))
            }
        }
    }

    /// The columns by name, each as a list.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = PyDict::new(py);
        for (name, array) in self.names().iter().zip(self.batch.columns()) {
            columns.set_item(name, self.column(py, array)?)?;
        }
        Ok(columns)
    }

    /// The table as a stream of Arrow's C interface, which pyarrow, polars, DuckDB and others take.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The protocol lets a producer ignore the request.
        drop(requested_schema);
        let schema = self.batch.schema();
        let batches = RecordBatchIterator::new([Ok(self.batch.clone())], schema);
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), c"arrow_array_stream")
    }

    /// The schema of the table for Arrow's C interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        PyCapsule::new_with_value(py, self.schema().map_err(arrow)?, c"arrow_schema")
    }

    /// The table as a data frame of pandas.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("punctual._frames")?.call_method1("to_pandas", (slf,))
    }

    /// The table as a data frame of polars.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("polars")?.call_method1("DataFrame", (slf,))
    }

    /// The table as a table of pyarrow.
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("pyarrow")?.call_method1("table", (slf,))
    }

    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("punctual._frames")?.call_method1("html", (slf,))
    }

    fn __repr__(&self) -> String {
        format!("<punctual.Table of {} rows: {}>", self.batch.num_rows(), self.names().join(", "))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Table>().is_ok_and(|other| other.get().batch == self.batch)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let rebuild = py.get_type::<Table>().getattr("_from_columns")?;
        let arguments = (slf.get().names(), slf.get().kinds(), slf.get().to_dict(py)?);
        (rebuild, arguments).into_pyobject(py)
    }

    /// A table from what pickles keep of it.
    #[staticmethod]
    fn _from_columns(names: Vec<String>, kinds: Vec<String>, values: &Bound<'_, PyDict>) -> PyResult<Table> {
        let mut columns = Vec::new();
        for (name, kind) in names.iter().zip(kinds) {
            let list = values.get_item(name)?.ok_or_else(|| PyKeyError::new_err(name.clone()))?;
            let mut column = match kind.as_str() {
                "number" => Column::numbers(),
                "real" => Column::reals(),
                "text" => Column::texts(),
                _ => Column::truths(),
            };
            for value in list.try_iter()? {
                let value = value?;
                match &mut column {
                    Column::Number(numbers) => numbers.append_option(value.extract::<Option<u64>>()?),
                    Column::Real(numbers) => numbers.append_option(value.extract::<Option<f64>>()?),
                    Column::Text(texts) => texts.append_option(value.extract::<Option<String>>()?),
                    Column::Truth(truths) => truths.append_option(value.extract::<Option<bool>>()?),
                }
            }
            columns.push((name, column));
        }
        let columns = columns.into_iter().map(|(name, column)| (name, column.finish(), true));
        Ok(Table { batch: RecordBatch::try_from_iter_with_nullable(columns).map_err(arrow)? })
    }
}

impl Table {
    fn kinds(&self) -> Vec<&'static str> {
        let kind = |array: &ArrayRef| match array.data_type() {
            DataType::UInt64 => "number",
            DataType::Float64 => "real",
            DataType::Boolean => "truth",
            _ => "text",
        };
        self.batch.columns().iter().map(kind).collect()
    }
}
