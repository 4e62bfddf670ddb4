//! Boeing CAD: eight engineers work on a shared database of 500 MB for four hours (gms-1995, section 5.3).
//!
//! The paper replays a page-level trace from Boeing, which was never published. Ours is synthetic, on the level of what engineers do: they
//! open a model (it is read whole), look at parts of it, change some, save, go back to models of before, think in between. Which models are opened
//! follows Zipf's law, in the engineer's own section of the aircraft mostly. The trace is replayed: pages of the database are read and
//! written, and the time in between is the thinking.

use super::recorder::Recorder;
use super::{Footprint, Reference, WorkFile, Workload};
use crate::fuzz::dice::Dice;
use crate::replay::Zipf;
use loam_core::units::Bytes;

/// Who works on what.
#[derive(Clone, Debug, PartialEq)]
pub struct CadConfig {
    /// Size of the database.
    pub database_bytes: u64,
    /// Engineers.
    pub engineers: u32,
    /// One of them only, by number; None: all, in the order of time.
    pub only: Option<u32>,
    /// How long they work.
    pub seconds: u64,
    /// Time between two operations of an engineer: from 0 to twice this.
    pub think_seconds: u64,
}

impl CadConfig {
    /// The paper's four hours, eight engineers and 500 MB. An operation every 15 seconds is an engineer who does not pause.
    pub fn paper() -> Self {
        Self { database_bytes: 500 << 20, engineers: 8, only: None, seconds: 4 * 3600, think_seconds: 15 }
    }

    /// For tests.
    pub fn small() -> Self {
        Self { database_bytes: 20 << 20, seconds: 1200, ..Self::paper() }
    }
}

/// Mean size of a model; sizes are from a half to one and a half of it.
const MODEL_BYTES: u64 = 256 << 10;
/// A model begins with a table of its parts.
const TABLE_BYTES: u64 = 8 << 10;
/// Size of a part of a model: its geometry.
const PART_BYTES: (u64, u64) = (8 << 10, 64 << 10);
/// Popularity of models.
const SKEW: f64 = 0.8;
/// Of a hundred models that are opened, so many are of the engineer's own section: the others are of the whole aircraft.
const OWN_PERCENT: u64 = 70;
/// Models that an engineer goes back to.
const RECENT: usize = 8;
/// Of a hundred operations: on the model that is open; on one of the last few; the others open another one.
const STAY_PERCENT: u64 = 60;
const BACK_PERCENT: u64 = 25;
/// Parts that an operation looks at.
const PARTS: (u64, u64) = (1, 4);
/// Of a hundred operations so many change what they look at.
const EDIT_PERCENT: u64 = 20;

#[derive(Clone, Debug)]
struct Model {
    begin: u64,
    /// The parts' begins and sizes.
    parts: Vec<(u64, u64)>,
}

#[derive(Clone, Debug)]
struct Engineer {
    number: u32,
    dice: Dice,
    own: Zipf,
    all: Zipf,
    /// Microseconds from the beginning.
    next_us: u64,
    /// The open one last.
    models: Vec<usize>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Cad {
    config: CadConfig,
    seed: u64,
    page: Bytes,
    footprint: Footprint,
    recorder: Recorder,
    models: Vec<Model>,
    /// Models in an order of popularity that has nothing to do with their place.
    popular: Vec<usize>,
    engineers: Vec<Engineer>,
    now_us: u64,
    operations: u64,
    opened: u64,
    edits: u64,
}

impl Cad {
    /// # Panics
    /// If there is nobody, or the database has fewer models than engineers.
    pub fn new(config: CadConfig, page: Bytes, seed: u64) -> Self {
        assert!(config.only.is_none_or(|only| only < config.engineers), "there is no such engineer");
        let recorder = Recorder::new(page);
        let mut dice = Dice::new(seed, 17);
        let models = lay(config.database_bytes, &mut dice);
        assert!(config.engineers > 0 && models.len() >= config.engineers as usize, "too small a database");
        let mut popular: Vec<usize> = (0..models.len()).collect();
        for at in (1..popular.len()).rev() {
            popular.swap(at, dice.below(at as u64 + 1) as usize);
        }
        let section = (models.len() / config.engineers as usize) as u32;
        let engineer = |number: u32| {
            let own_seed = seed.wrapping_mul(64).wrapping_add(u64::from(number));
            let mut dice = Dice::new(own_seed, 19);
            let next_us = dice.below(2 * config.think_seconds * 1_000_000 + 1);
            Engineer {
                number,
                own: Zipf::new(section, SKEW, own_seed),
                all: Zipf::new(popular.len() as u32, SKEW, own_seed ^ 1 << 63),
                dice,
                next_us,
                models: Vec::new(),
            }
        };
        let who = config.only.map_or(0..config.engineers, |only| only..only + 1);
        let engineers = who.map(engineer).collect();
        let pages = recorder.pages(config.database_bytes);
        let file = WorkFile { name: "database".into(), pages, made: false };
        Self {
            footprint: Footprint { private_pages: 0, files: vec![file] },
            recorder,
            models,
            popular,
            engineers,
            now_us: 0,
            operations: 0,
            opened: 0,
            edits: 0,
            config,
            seed,
            page,
        }
    }

    /// The next operation of whoever is next. False: it is evening.
    fn step(&mut self) -> bool {
        let next = self.engineers.iter_mut().min_by_key(|engineer| (engineer.next_us, engineer.number));
        let engineer = next.expect("somebody works");
        if engineer.next_us >= self.config.seconds * 1_000_000 {
            return false;
        }
        self.recorder.idle(engineer.next_us - self.now_us);
        self.now_us = engineer.next_us;
        engineer.next_us += engineer.dice.below(2 * self.config.think_seconds * 1_000_000 + 1);
        self.operations += 1;
        let section = self.popular.len() / self.config.engineers as usize;
        let model = engineer.choose(section, &self.popular);
        let read = |recorder: &mut Recorder, (begin, bytes)| recorder.file(0, begin, bytes, false, false);
        if engineer.models.last() != Some(&model) {
            self.opened += 1;
            let end = self.models[model].parts.last().map_or(0, |&(begin, bytes)| begin + bytes);
            read(&mut self.recorder, (self.models[model].begin, end - self.models[model].begin));
            engineer.models.retain(|&other| other != model);
            engineer.models.push(model);
            if engineer.models.len() > RECENT {
                engineer.models.remove(0);
            }
        }
        let parts = &self.models[model].parts;
        // Parts that lie side by side belong together.
        let count = (engineer.dice.between(PARTS.0, PARTS.1) as usize).min(parts.len());
        let first = engineer.dice.below((parts.len() - count + 1) as u64) as usize;
        let looked_at = &parts[first..first + count];
        looked_at.iter().for_each(|&part| read(&mut self.recorder, part));
        if engineer.dice.below(100) < EDIT_PERCENT {
            // The part is saved, and the model's table.
            let (begin, bytes) = engineer.dice.pick(looked_at);
            self.recorder.file(0, begin, bytes, true, false);
            self.recorder.file(0, self.models[model].begin, TABLE_BYTES, true, false);
            self.edits += 1;
        }
        true
    }
}

/// Models one after the other, until the database is full.
fn lay(bytes: u64, dice: &mut Dice) -> Vec<Model> {
    let (mut models, mut begin) = (Vec::new(), 0);
    loop {
        let end = begin + dice.between(MODEL_BYTES / 2, MODEL_BYTES * 3 / 2);
        if end > bytes {
            return models;
        }
        let (mut parts, mut at) = (Vec::new(), begin + TABLE_BYTES);
        while at < end {
            let part = dice.between(PART_BYTES.0, PART_BYTES.1).min(end - at);
            parts.push((at, part));
            at += part;
        }
        models.push(Model { begin, parts });
        begin = end;
    }
}

impl Engineer {
    fn choose(&mut self, section: usize, popular: &[usize]) -> usize {
        let what = self.dice.below(100);
        match self.models.last() {
            Some(&open) if what < STAY_PERCENT => open,
            Some(_) if what < STAY_PERCENT + BACK_PERCENT => self.dice.pick(&self.models),
            _ if self.dice.below(100) < OWN_PERCENT => {
                let rank = self.own.next().expect("it is endless") as usize;
                popular[self.number as usize * section + rank]
            }
            _ => popular[self.all.next().expect("it is endless") as usize],
        }
    }
}

impl Workload for Cad {
    fn name(&self) -> &'static str {
        "cad"
    }

    fn footprint(&self) -> &Footprint {
        &self.footprint
    }

    fn next_references(&mut self, into: &mut Vec<Reference>) -> bool {
        while self.recorder.len() == 0 && self.step() {}
        self.recorder.take(into)
    }

    fn restart(&mut self) {
        *self = Self::new(self.config.clone(), self.page, self.seed);
    }

    fn check(&self) -> Result<Vec<String>, String> {
        let end_us = self.config.seconds * 1_000_000;
        if self.engineers.iter().any(|engineer| engineer.next_us < end_us) {
            return Err("the day is not over".into());
        }
        // The sum of so many uniform spans is near its mean: within six standard deviations.
        let expected = end_us as f64 / (self.config.think_seconds as f64 * 1e6) * self.engineers.len() as f64;
        let off = (self.operations as f64 - expected).abs();
        if off > 6.0 * expected.sqrt() + self.engineers.len() as f64 {
            return Err(format!("{} operations, expected about {expected:.0}", self.operations));
        }
        Ok(vec![format!(
            "{} operations on {} models: {} opened, {} changes saved",
            self.operations,
            self.models.len(),
            self.opened,
            self.edits
        )])
    }
}

#[cfg(test)]
mod tests;
