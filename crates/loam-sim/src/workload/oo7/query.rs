//! Operations that look things up, and those on the manual.

use super::Operation;
use super::build::{
    ASSEMBLY_BYTES, ATOMIC_BYTES, COMPOSITE_BYTES, DATES, DOCUMENT_BYTES, Database, MANUAL, NODE_BYTES,
};
use crate::fuzz::dice::Dice;
use crate::workload::recorder::Recorder;

/// Q1 looks up so many atomic parts.
const LOOKUPS: u64 = 10;
/// Q4 looks up so many documents.
const TITLES: u64 = 100;
/// To look at an object that was found.
const LOOK_INSTRUCTIONS: u64 = 30;
/// To look at a letter.
const LETTER_INSTRUCTIONS: u64 = 5;
/// The letter that T8 counts.
const LETTER: u8 = b'I';

fn letter(at: u64) -> u8 {
    MANUAL[(at % MANUAL.len() as u64) as usize]
}

fn look_at(database: &Database, part: u32, recorder: &mut Recorder) {
    recorder.work(LOOK_INSTRUCTIONS);
    recorder.private(database.atomics[part as usize].address, ATOMIC_BYTES, false);
}

/// Runs it: what it counts, and what it must.
///
/// # Panics
/// If it is a traversal of the assemblies.
pub(super) fn run(
    operation: Operation,
    database: &mut Database,
    dice: &mut Dice,
    recorder: &mut Recorder,
) -> (u64, u64) {
    use Operation as O;
    match operation {
        O::T8 => letters(database, recorder),
        O::T9 => {
            let (address, bytes) = database.manual;
            recorder.private(address, 1, false);
            recorder.private(address + bytes - 1, 1, false);
            let whole = bytes % MANUAL.len() as u64 == 1;
            (u64::from(letter(0) == letter(bytes - 1)), u64::from(whole))
        }
        O::Q1 => {
            for _ in 0..LOOKUPS {
                let id = dice.below(database.atomics.len() as u64) as u32;
                database.ids.look_up(id, recorder);
                look_at(database, id, recorder);
            }
            (LOOKUPS, LOOKUPS)
        }
        O::Q2 => dates(database, 1, recorder),
        O::Q3 => dates(database, 10, recorder),
        O::Q4 => users(database, dice, recorder),
        O::Q5 => younger(database, recorder),
        O::Q7 => {
            for id in 0..database.atomics.len() as u32 {
                look_at(database, id, recorder);
            }
            let expected = database.composites.len() as u64 * u64::from(database.atomics_each);
            (database.atomics.len() as u64, expected)
        }
        _ => unreachable!("{operation:?} is a traversal"),
    }
}

fn letters(database: &Database, recorder: &mut Recorder) -> (u64, u64) {
    let (address, bytes) = database.manual;
    let mut found = 0;
    for at in 0..bytes {
        recorder.work(LETTER_INSTRUCTIONS);
        recorder.private(address + at, 1, false);
        found += u64::from(letter(at) == LETTER);
    }
    // It is the first letter of each repetition, and of no other word.
    (found, bytes.div_ceil(MANUAL.len() as u64))
}

fn dates(database: &mut Database, percent: u64, recorder: &mut Recorder) -> (u64, u64) {
    let from = (DATES.1 + 1 - (DATES.1 - DATES.0 + 1) * percent / 100) as u32;
    let mut found = 0;
    for date in from..=DATES.1 as u32 {
        for part in database.dates.parts(date, recorder).to_vec() {
            look_at(database, part, recorder);
            found += 1;
        }
    }
    (found, database.atomics.iter().filter(|part| part.date >= from).count() as u64)
}

/// Q4: each use counts.
fn users(database: &Database, dice: &mut Dice, recorder: &mut Recorder) -> (u64, u64) {
    let (mut found, mut titles) = (0, Vec::new());
    for _ in 0..TITLES {
        let title = dice.below(database.composites.len() as u64) as u32;
        titles.push(title);
        database.titles.look_up(title, recorder);
        let composite = &database.composites[title as usize];
        recorder.private(composite.document, DOCUMENT_BYTES, false);
        recorder.private(composite.address, COMPOSITE_BYTES, false);
        for &(node, assembly) in &composite.uses {
            recorder.work(LOOK_INSTRUCTIONS);
            recorder.private(node, NODE_BYTES, false);
            recorder.private(database.assemblies[assembly as usize].address, ASSEMBLY_BYTES, false);
            found += 1;
        }
    }
    let uses = |title: &u32| {
        database
            .assemblies
            .iter()
            .flat_map(|a| &a.components)
            .filter(|(_, composite)| composite == title)
            .count()
    };
    (found, titles.iter().map(|title| uses(title) as u64).sum())
}

fn younger(database: &Database, recorder: &mut Recorder) -> (u64, u64) {
    let (mut found, mut expected) = (0, vec![false; database.assemblies.len()]);
    for assembly in database.assemblies.iter().filter(|assembly| !assembly.components.is_empty()) {
        recorder.work(LOOK_INSTRUCTIONS);
        recorder.private(assembly.address, ASSEMBLY_BYTES, false);
        for &(node, composite) in &assembly.components {
            let composite = &database.composites[composite as usize];
            recorder.private(node, NODE_BYTES, false);
            recorder.private(composite.address, COMPOSITE_BYTES, false);
            if composite.date > assembly.date {
                found += 1;
                break;
            }
        }
    }
    // The other way round: from the composite parts.
    for composite in &database.composites {
        for &(_, assembly) in &composite.uses {
            expected[assembly as usize] |= composite.date > database.assemblies[assembly as usize].date;
        }
    }
    (found, expected.into_iter().filter(|&younger| younger).count() as u64)
}
