//! Calls in any order against a simple model, of the machine's memory and of a device.

use super::super::memory::STEP_BYTES;
use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
struct Step {
    what: u8,
    name: usize,
    pages: u64,
    flags: u8,
    connection: u64,
    /// Not by its name.
    id: Option<u64>,
    /// The memory for it cannot be had, from that step on.
    fails_after: Option<u64>,
}

fn step() -> impl Strategy<Value = Step> {
    let flags = prop::sample::select(vec![0, region_flag::SHARED, region_flag::TEMPORARY]);
    let id = prop::option::weighted(0.3, 1..8_u64);
    let fails_after = prop::option::weighted(0.3, 0..4_u64);
    (0..6_u8, 0..3_usize, 1..6_u64, flags, 1..4_u64, (id, fails_after)).prop_map(
        |(what, name, pages, flags, connection, (id, fails_after))| Step {
            what,
            name,
            pages,
            flags,
            connection,
            id,
            fails_after,
        },
    )
}

/// Name, base pages, the connection with which it goes, who has it open, whether alone.
type Known = (Option<usize>, u64, Option<u64>, Vec<u64>, bool);

#[derive(Clone, Debug, Default)]
struct Model {
    /// Removed ones too, by number.
    regions: BTreeMap<u64, Known>,
}

impl Model {
    fn named(&self, name: usize) -> Option<u64> {
        self.regions.iter().find(|(_, region)| region.0 == Some(name)).map(|(number, _)| *number)
    }
    /// What a call is about.
    fn meant(&self, name: usize, id: Option<u64>, connection: u64) -> Option<u64> {
        let Some(id) = id else { return self.named(name) };
        let reached = |region: &&Known| region.0.is_some() || region.3.contains(&connection);
        self.regions.get(&id).filter(reached).map(|_| id)
    }
    fn pages(&self) -> u64 {
        self.regions.values().map(|region| region.1).sum()
    }
    fn sweep(&mut self) {
        self.regions.retain(|_, region| region.0.is_some() || !region.3.is_empty());
    }
}

const LEND: u64 = 12;
const NAMES: [&str; 3] = ["a", "b", "c"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn it_is_as_the_model(steps in vec(step(), 1..40), medium in prop::option::of(any::<bool>())) {
        // A device has as many pages as the node lends otherwise, but each has its place there: what is free may be in pieces.
        let file = medium.map(|keeps| devices::DeviceFile::new("model", LEND, keeps));
        let on_device = file.is_some();
        let mut book = file.as_ref().map_or_else(|| book(LEND, LEND), |file| file.book(LEND));
        let device = file.as_ref().map_or(String::new(), devices::DeviceFile::name);
        let mut model = Model::default();
        for Step { what, name, pages, flags, connection, id, fails_after } in steps {
            book.room().ends_after.set(fails_after);
            // It is looked at before each step; the machine's memory takes one more, for room.
            let fails = |pages: u64| {
                let steps = (pages * PAGE).div_ceil(STEP_BYTES) + u64::from(!on_device);
                fails_after.is_some_and(|after| after < steps)
            };
            let ask = |what, flags| {
                let id = id.filter(|_| what != RegionCall::Create).unwrap_or(0);
                Call { id, device: device.clone(), ..call(what, NAMES[name], pages, flags, connection, OWN) }
            };
            let found = model.meant(name, id.filter(|_| what != 0), connection);
            match what {
                0 => {
                    let flags = flags & region_flag::TEMPORARY;
                    let made = handle(&mut book, &ask(RegionCall::Create, flags));
                    let fits = found.is_none() && model.pages() + pages <= LEND;
                    prop_assert!(fits || made.is_err());
                    let in_pieces = on_device && made.is_err() && !model.regions.is_empty();
                    prop_assert!(made.is_ok() == (fits && !fails(pages)) || in_pieces);
                    if made.is_ok() {
                        let bound = (flags != 0).then_some(connection);
                        let known = (Some(name), pages, bound, Vec::new(), false);
                        prop_assert!(model.regions.insert(entry(made).id(), known).is_none());
                    }
                }
                1 => {
                    let shared = flags & region_flag::SHARED != 0;
                    let opened = handle(&mut book, &ask(RegionCall::Open, flags & region_flag::SHARED)).is_ok();
                    let Some(region) = found.and_then(|number| model.regions.get_mut(&number)) else {
                        prop_assert!(!opened);
                        continue;
                    };
                    let again = region.3.contains(&connection);
                    let may = again || region.3.is_empty() || (shared && !region.4);
                    prop_assert_eq!(opened, may);
                    if may && !again {
                        region.3.push(connection);
                        region.4 = !shared;
                    }
                }
                2 | 3 => {
                    let resized = handle(&mut book, &ask(RegionCall::Resize, 0)).is_ok();
                    let taken = model.pages();
                    let Some(region) = found.and_then(|number| model.regions.get_mut(&number)) else {
                        prop_assert!(!resized);
                        continue;
                    };
                    if pages >= region.1 {
                        let more = pages - region.1;
                        let expected = more == 0 || (taken + more <= LEND && !fails(more));
                        prop_assert!(resized == expected || (on_device && !resized));
                    } else if region.3.iter().any(|open| *open != connection) {
                        prop_assert!(!resized);
                    } else if on_device {
                        prop_assert!(resized, "it is cut in its place");
                    }
                    // A cut of the machine's memory needs room for a moment, which there may not be.
                    if resized {
                        region.1 = pages;
                    }
                }
                4 => {
                    prop_assert_eq!(handle(&mut book, &ask(RegionCall::Remove, 0)).is_ok(), found.is_some());
                    if let Some(number) = found {
                        model.regions.get_mut(&number).expect("found").0 = None;
                    }
                }
                _ => {
                    book.handle_gone(connection);
                    for region in model.regions.values_mut() {
                        region.3.retain(|open| *open != connection);
                        if region.2 == Some(connection) {
                            region.0 = None;
                        }
                    }
                }
            }
            model.sweep();
            // Whatever failed, book and room are as the model, which knows nothing of it.
            for (number, pages) in book.sizes() {
                prop_assert_eq!(model.regions.get(&number).map(|known| known.1), Some(pages));
            }
            book.audit();
            prop_assert_eq!(book.room().taken.get(), if on_device { 0 } else { model.pages() });
            prop_assert_eq!(book.room().unsettled.get(), 0);
        }
    }
}
