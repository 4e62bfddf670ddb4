//! The runner that simulates: a point is a `machine::Config`.

use super::sweep::{Column, Role, Runner};
use super::{Point, Value};
use crate::machine::{Config, Outcome, Prepared, run};
use crate::model::Model;
use crate::report::Unit;
use crate::trace::Source;
use loam_core::borrower::FETCH_PLANS;
use loam_core::replacement;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Opens a trace by its path.
pub type Open<'a> = dyn Fn(&Path) -> Result<Box<dyn Source>, String> + Sync + 'a;

/// A trace in memory for one page size, or why it is not, and how many points still need it.
struct Kept {
    uses: usize,
    trace: Option<Result<Arc<Prepared>, String>>,
}

type Key = (String, u64);

/// Simulates points. Each trace is read once for each page size, and let go when its last point is done.
pub struct MachineRunner<'a> {
    open: &'a Open<'a>,
    folder: PathBuf,
    kept: BTreeMap<Key, Mutex<Kept>>,
    models: BTreeMap<String, Model>,
}

const fn column(name: &'static str, label: &'static str, unit: Unit, role: Role) -> Column {
    Column { name, label, unit, role }
}

fn values(outcome: &Outcome) -> Vec<Value> {
    let whole = [
        outcome.total_ns(),
        outcome.exec_ns,
        outcome.emulation_ns,
        outcome.interrupt_ns,
        outcome.sp_latency_ns,
        outcome.page_wait_ns,
        outcome.faults,
        outcome.part_faults,
        outcome.evicted,
        outcome.references,
        outcome.pages,
        outcome.local_pages,
        outcome.bytes_in,
        outcome.messages,
        outcome.io_overlap_ns,
        outcome.run_overlap_ns,
    ];
    whole.into_iter().map(Value::Whole).collect()
}

fn key(point: &Point) -> Key {
    (point.text("trace").into(), point.whole("page_bytes").unwrap_or(0))
}

impl MachineRunner<'_> {
    /// What it finds out: parts of the time add up to the first.
    pub const COLUMNS: &'static [Column] = &[
        column("total_ns", "run time", Unit::Ns, Role::Figure),
        column("exec_ns", "execution", Unit::Ns, Role::Part),
        column("emulation_ns", "emulation", Unit::Ns, Role::Part),
        column("interrupt_ns", "interrupts", Unit::Ns, Role::Part),
        column("sp_latency_ns", "wait for the first subpage", Unit::Ns, Role::Part),
        column("page_wait_ns", "wait for the rest", Unit::Ns, Role::Part),
        column("faults", "page faults", Unit::Number, Role::Figure),
        column("part_faults", "waits for parts of pages", Unit::Number, Role::Plain),
        column("evicted", "pages evicted", Unit::Number, Role::Plain),
        column("references", "references", Unit::Number, Role::Plain),
        column("pages", "pages touched", Unit::Number, Role::Plain),
        column("pages_local", "local pages", Unit::Number, Role::Plain),
        column("bytes_in", "bytes fetched", Unit::Bytes, Role::Figure),
        column("messages", "messages fetched", Unit::Number, Role::Plain),
        column("io_overlap_ns", "waits overlapped by other fetches", Unit::Ns, Role::Plain),
        column("run_overlap_ns", "execution overlapped with fetches", Unit::Ns, Role::Plain),
    ];
}

impl<'a> MachineRunner<'a> {
    /// A runner for exactly these points, once each. Paths of traces and models begin in `folder`, the plan's.
    ///
    /// # Errors
    /// What no point could do with: a trace that cannot be opened, a model that is none, an unknown policy. What only some combinations
    /// of values cannot do with is told when they run.
    pub fn new(points: &[Point], folder: &Path, open: &'a Open<'a>) -> Result<Self, String> {
        let mut uses: BTreeMap<Key, usize> = BTreeMap::new();
        let mut models = BTreeMap::new();
        for point in points {
            *uses.entry(key(point)).or_default() += 1;
            let name = point.text("model");
            if !models.contains_key(name) {
                models.insert(name.to_owned(), model(name, folder)?);
            }
            known("replacement", point, &replacement::NAMES)?;
            known("fetch_plan", point, &FETCH_PLANS)?;
        }
        let mut last = "";
        for (trace, _) in uses.keys().filter(|(trace, _)| std::mem::replace(&mut last, trace) != trace) {
            open(&folder.join(trace))?;
        }
        let kept =
            uses.into_iter().map(|(key, uses)| (key, Mutex::new(Kept { uses, trace: None }))).collect();
        Ok(Self { open, folder: folder.into(), kept, models })
    }

    fn trace(&self, point: &Point) -> Result<Arc<Prepared>, String> {
        let key = key(point);
        let kept = self.kept.get(&key).ok_or("a point that the runner was not made for")?;
        // Who comes second waits for the first to have read it. A panic elsewhere does not spoil what was read.
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let trace = kept.trace.get_or_insert_with(|| self.read(&key).map(Arc::new)).clone();
        kept.uses = kept.uses.saturating_sub(1);
        if kept.uses == 0 {
            kept.trace = None;
        }
        trace
    }

    fn read(&self, (name, page_bytes): &Key) -> Result<Prepared, String> {
        if !page_bytes.is_power_of_two() || !(256..=1 << 20).contains(page_bytes) {
            return Err(format!("page_bytes {page_bytes}: a power of two from 256 to 1M"));
        }
        let mut source = (self.open)(&self.folder.join(name))?;
        Prepared::read(source.as_mut(), *page_bytes).map_err(|error| error.to_string())
    }
}

fn known(parameter: &str, point: &Point, names: &[&str]) -> Result<(), String> {
    let name = point.text(parameter);
    if names.contains(&name) {
        Ok(())
    } else {
        Err(format!("{parameter} {name:?}: one of {}", names.join(", ")))
    }
}

/// Whole pages of a share. One that is a decimal number is none of the machine's: 0.29 of 100 pages would be 28.999999999999996.
fn pages_of(pages: u64, share: f64) -> u64 {
    (pages as f64 * share * (1.0 + 1e-12)) as u64
}

fn model(name: &str, folder: &Path) -> Result<Model, String> {
    let path = folder.join(name);
    let name =
        if Model::NAMES.contains(&name) || !path.exists() { name } else { &path.display().to_string() };
    Model::load(name).map_err(|error| error.to_string())
}

impl Runner for MachineRunner<'_> {
    fn columns(&self) -> &[Column] {
        Self::COLUMNS
    }

    fn run(&self, point: &Point) -> Result<Vec<Value>, String> {
        let trace = self.trace(point)?;
        let model = self.models.get(point.text("model")).ok_or("a point that the runner was not made for")?;
        let local_pages = match (point.whole("local_pages"), point.get("local_share")) {
            (Some(pages), _) => Some(pages),
            (None, Some(Value::Real(share))) if *share < 1.0 => Some(pages_of(trace.pages(), *share)),
            _ => None,
        };
        let policy = replacement::by_name(point.text("replacement")).ok_or("no such policy")?;
        let config = Config {
            model: model.clone(),
            subpage_bytes: point.whole("subpage_bytes").unwrap_or(0),
            unit_bytes: point.whole("unit_bytes").unwrap_or(0),
            local_pages,
            fetch_plan: point.text("fetch_plan").into(),
            pipelined_unattended: point.get("pipelined_unattended") == Some(&Value::Switch(true)),
            details: false,
        };
        run(&config, &trace, policy).map(|outcome| values(&outcome)).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_pages_loses_none_by_rounding() {
        for (hundredths, share) in (1..100).map(|n: u64| (n, n as f64 / 100.0)) {
            assert_eq!(pages_of(100, share), hundredths);
            assert_eq!(pages_of(1 << 20, share), (hundredths << 20) / 100, "not up either");
        }
        assert_eq!(pages_of(3, 1.0 / 3.0), 1);
    }
}
