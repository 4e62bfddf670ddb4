//! The compiled part of the Python package `loam`: `loam::paged` for Python, and the allocator of arrays (NEP 49). What users call, with its
//! documentation, is in `loam/*.py`.
//!
//! Built for the stable interface of Python 3.9 and newer.

mod handler;
mod numpy;

use loam::paged::{self, Advice, Options, PagedError, Plan, Priority, Terms};
use pyo3::create_exception;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use std::ffi::OsString;
use std::sync::atomic::Ordering::Relaxed;

create_exception!(
    loam,
    Error,
    PyRuntimeError,
    "Loam cannot do what was asked. One line: what went wrong, where, what to do."
);
create_exception!(loam, NotConnectedError, Error, "Nothing is borrowed yet: `loam.connect` comes first.");
create_exception!(
    loam,
    RefusedError,
    Error,
    "The agent says why it cannot serve: no lender can be reached, a size that cannot be."
);
create_exception!(
    loam,
    InstallationError,
    Error,
    "The command `loam` or its shim is missing, or of another version: install Loam, or set LOAM to the path of its command."
);

fn raised(error: PagedError) -> PyErr {
    let text = error.to_string();
    match error {
        PagedError::NotConnected => NotConnectedError::new_err(text),
        PagedError::Refused(_) => RefusedError::new_err(text),
        PagedError::Command { .. } | PagedError::NoAnswer | PagedError::Shim { .. } => {
            InstallationError::new_err(text)
        }
        PagedError::Statistics { .. }
        | PagedError::Unheard
        | PagedError::TooMuch
        | PagedError::TooManyBudgets => Error::new_err(text),
        PagedError::PageSize { .. } => PyValueError::new_err(text),
        PagedError::Full { .. } => PyMemoryError::new_err(text),
    }
}

/// Has an agent serve this process. Other threads run meanwhile.
#[pyfunction]
fn connect(
    py: Python<'_>,
    local_bytes: u64,
    region_bytes: u64,
    min_alloc_bytes: usize,
    flags: Vec<OsString>,
) -> PyResult<()> {
    py.detach(|| paged::connect(&Options::new(local_bytes, region_bytes).flags(flags))).map_err(raised)?;
    handler::set_least(min_alloc_bytes);
    handler::learn_least();
    Ok(())
}

/// Whether an agent serves this process.
#[pyfunction]
fn is_connected() -> bool {
    paged::is_connected()
}

/// A part of the program begins: a stretch with an access pattern of its own, such as a phase of each iteration.
///
/// Numbers are the program's, from 1 to 255; the same number is the same part. Loam keeps apart what it learns of page
/// sizes in each. Any thread may call it; it holds for the whole program.
#[pyfunction]
fn part(number: u32) {
    loam::part(number);
}

/// The agent's figures: JSON.
#[pyfunction]
fn statistics(py: Python<'_>) -> PyResult<String> {
    py.detach(paged::statistics).map_err(raised)
}

/// What arrays have had from the region.
#[pyfunction]
fn counts(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    handler::learn_least();
    let counts = &handler::COUNTS;
    let all = PyDict::new(py);
    for (key, count) in [
        ("allocations", &counts.allocations),
        ("allocated_bytes", &counts.allocated_bytes),
        ("live_allocations", &counts.live_allocations),
        ("live_bytes", &counts.live_bytes),
        ("unserved", &counts.unserved),
        ("unserved_bytes", &counts.unserved_bytes),
    ] {
        all.set_item(key, count.load(Relaxed))?;
    }
    all.set_item("min_alloc_bytes", handler::least())?;
    Ok(all)
}

/// Says what this process will do with memory.
#[pyfunction]
fn advise(py: Python<'_>, start: usize, end: usize, advice: &str) -> PyResult<()> {
    let advice = match advice {
        "will_need" => Advice::WillNeed,
        "will_not_need" => Advice::WillNotNeed,
        "normal" => Advice::Normal,
        "sequential" => Advice::Sequential,
        "random" => Advice::Random,
        other => return Err(PyValueError::new_err(format!("{other:?}: no such advice"))),
    };
    py.detach(|| paged::raw::advise(start..end.max(start), advice)).map_err(raised)
}

/// Says what memory is worth to this process.
#[pyfunction]
fn prioritize(py: Python<'_>, start: usize, end: usize, priority: &str) -> PyResult<()> {
    let priority = match priority {
        "low" => Priority::Low,
        "normal" => Priority::Normal,
        "high" => Priority::High,
        other => return Err(PyValueError::new_err(format!("{other:?}: no such priority"))),
    };
    py.detach(|| paged::raw::prioritize(start..end.max(start), priority)).map_err(raised)
}

/// Says on what terms memory is paged.
#[pyfunction]
fn set_terms(
    py: Python<'_>,
    start: usize,
    end: usize,
    page_bytes: Option<usize>,
    plan: Option<&str>,
    local_bytes: Option<u64>,
) -> PyResult<()> {
    let mut terms = Terms::new();
    if let Some(bytes) = page_bytes {
        terms = terms.page_size(bytes);
    }
    if let Some(bytes) = local_bytes {
        terms = terms.local(bytes);
    }
    if let Some(name) = plan {
        let unknown = || {
            let all = Plan::ALL.map(Plan::name).join(", ");
            PyValueError::new_err(format!("{name:?}: a fetch plan is {all}"))
        };
        terms = terms.plan(Plan::named(name).ok_or_else(unknown)?);
    }
    py.detach(|| paged::raw::set_terms(start..end.max(start), &terms)).map_err(raised)
}

/// Whether this is an address of the region.
#[pyfunction]
fn is_of_region(address: usize) -> bool {
    handler::is_of_region(address)
}

/// Arrays of this context are made by our handler from now on; the handler before.
#[pyfunction]
fn enter_handler(py: Python<'_>, strict: bool) -> PyResult<Bound<'_, PyAny>> {
    if !paged::is_connected() {
        return Err(raised(PagedError::NotConnected));
    }
    handler::learn_least();
    numpy::Numpy::get(py)?.set_handler(handler::capsule(py, strict)?)
}

/// Arrays of this context are made by a handler that was there before.
#[pyfunction]
fn leave_handler(before: &Bound<'_, PyCapsule>) -> PyResult<()> {
    numpy::Numpy::get(before.py())?.set_handler(before).map(drop)
}

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::{
        Error, InstallationError, NotConnectedError, RefusedError, advise, connect, counts, enter_handler,
        is_connected, is_of_region, leave_handler, part, prioritize, set_terms, statistics,
    };
}
