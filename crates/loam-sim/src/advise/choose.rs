//! One way for each structure, so that all of them together take the least time within the local memory that they share.
//!
//! Time that is saved for each byte of it is a good guide and not always right: the last structure that would have paid most may not fit any more. There are few
//! structures and few ways, so all sums are tried (a knapsack with one choice from each group), to a piece of local memory.

use super::options::{Budget, Choice, Way};

/// What was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// For each structure the place of its way among those that were tried.
    pub places: Vec<usize>,
    /// What buffers take of local memory.
    pub buffers_bytes: u64,
    /// Nothing fits with buffers for the replay of each structure that is paged: those of one are counted, and the others' replays had more memory than
    /// there is.
    pub buffers_shared: bool,
}

/// The best way for each structure. None: no choice fits.
///
/// If something is paged the agent has its buffers in local memory, too, and each further structure's replay has more.
pub fn choose(tried: &[Vec<Choice>], budget: &Budget, time_ns: &dyn Fn(&Choice) -> u64) -> Option<Chosen> {
    let is_local = |choice: &Choice| choice.way == Way::Local;
    let local = tried.iter().filter_map(|options| options.iter().find(|choice| is_local(choice)));
    if local.map(|choice| choice.local_bytes).sum::<u64>() <= budget.local_bytes {
        // Nothing is faster; pieces that are rounded up are not to spoil that.
        let places: Option<Vec<usize>> =
            tried.iter().map(|options| options.iter().position(is_local)).collect();
        return places.map(|places| Chosen { places, buffers_bytes: 0, buffers_shared: false });
    }
    let is_paged = |choice: &Choice| matches!(choice.way, Way::Paged { .. });
    let data = |choice: &Choice| budget.pieces(choice.local_bytes);
    let more = budget.pieces(budget.buffers_more_bytes);
    let with_buffers = |choice: &Choice| data(choice) + if is_paged(choice) { more } else { 0 };
    let pieces = |bytes: u64| bytes / budget.piece_bytes;
    let for_data = pieces(budget.for_data_bytes());
    let solve = |pieces, takes: &dyn Fn(&Choice) -> u64, allowed: &dyn Fn(&Choice) -> bool| {
        solve(tried, pieces, takes, time_ns, allowed)
    };
    let without = solve(pieces(budget.local_bytes), &data, &|choice| !is_paged(choice));
    // The first one's are taken off already.
    let with = budget
        .local_bytes
        .checked_sub(budget.buffers_bytes)
        .and_then(|_| solve(for_data + more, &with_buffers, &|_| true));
    let best = match (without, with) {
        (Some(without), Some(with)) if with.0 < without.0 => Some(with),
        (without, with) => without.or(with),
    };
    let buffers_shared = best.is_none();
    let (_, places) = best.or_else(|| solve(for_data, &data, &|_| true))?;
    let paged = tried.iter().zip(&places).filter(|(options, at)| is_paged(&options[**at])).count();
    let buffers_bytes = budget.buffers_of(if buffers_shared { paged.min(1) } else { paged });
    Some(Chosen { places, buffers_bytes, buffers_shared })
}

/// Local memory for data without which nothing fits, in bytes.
pub fn least(tried: &[Vec<Choice>], budget: &Budget) -> u64 {
    let of = |(at, options): (usize, &Vec<Choice>)| {
        let tried = options.iter().map(|choice| choice.local_bytes);
        // With less memory than that nothing has been tried.
        tried.chain(budget.least_paged_bytes(at)).map(|bytes| budget.pieces(bytes)).min()
    };
    tried.iter().enumerate().filter_map(of).sum::<u64>() * budget.piece_bytes
}

/// The least time, and the places.
fn solve(
    tried: &[Vec<Choice>],
    pieces: u64,
    takes: &dyn Fn(&Choice) -> u64,
    time_ns: &dyn Fn(&Choice) -> u64,
    allowed: &dyn Fn(&Choice) -> bool,
) -> Option<(u64, Vec<usize>)> {
    let pieces = pieces as usize;
    // By pieces that may be used: the least time of the structures so far, and the way of the last one of them.
    let mut best: Vec<Option<u64>> = vec![Some(0); pieces + 1];
    let mut ways: Vec<Vec<usize>> = Vec::new();
    for options in tried {
        let (mut with, mut way) = (vec![None; pieces + 1], vec![usize::MAX; pieces + 1]);
        for (at, choice) in options.iter().enumerate().filter(|(_, choice)| allowed(choice)) {
            let takes = usize::try_from(takes(choice)).unwrap_or(usize::MAX);
            for room in takes..=pieces {
                let Some(before) = best[room - takes] else { continue };
                let sum = before.saturating_add(time_ns(choice));
                if with[room].is_none_or(|least| sum < least) {
                    (with[room], way[room]) = (Some(sum), at);
                }
            }
        }
        best = with;
        ways.push(way);
    }
    let (least, mut room) = (best[pieces]?, pieces);
    let mut places = vec![0; tried.len()];
    for (at, way) in ways.iter().enumerate().rev() {
        places[at] = way[room];
        room -= takes(&tried[at][way[room]]) as usize;
    }
    Some((least, places))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn choice(way: Way, pages: u64, time_ns: u64) -> Choice {
        Choice { way, local_bytes: pages * 4096, time_ns, time_fewest_ns: None, faults: None }
    }

    /// A structure: its pages, its time here, and what it takes more paged with some pages, and direct.
    fn structure() -> impl Strategy<Value = Vec<Choice>> {
        let paged = proptest::collection::vec((1_u64..20, 1_u64..1000), 0..4);
        (1_u64..40, 0_u64..100, paged, proptest::option::of(1_u64..1000)).prop_map(
            |(pages, time, paged, direct)| {
                let paged = paged
                    .into_iter()
                    .map(|(local, more)| choice(Way::Paged { page_bytes: 4096 }, local, time + more));
                let direct = direct.map(|more| choice(Way::Direct, 0, time + more));
                [choice(Way::Local, pages, time)].into_iter().chain(paged).chain(direct).collect()
            },
        )
    }

    /// Every combination; with one set of buffers alone, or more for each further structure that is paged.
    fn least_of_all(
        tried: &[Vec<Choice>],
        budget: &Budget,
        shared: bool,
        chosen: &mut Vec<Choice>,
    ) -> Option<u64> {
        let Some(options) = tried.get(chosen.len()) else {
            let paged = chosen.iter().filter(|choice| matches!(choice.way, Way::Paged { .. })).count() as u64;
            let more = if shared { 0 } else { paged.saturating_sub(1) * budget.buffers_more_bytes };
            let buffers = if paged > 0 { budget.buffers_bytes + more } else { 0 };
            let takes: u64 = chosen.iter().map(|choice| choice.local_bytes).sum();
            return (takes + buffers <= budget.local_bytes)
                .then(|| chosen.iter().map(|choice| choice.time_ns).sum());
        };
        let mut least: Option<u64> = None;
        for &choice in options {
            chosen.push(choice);
            let of = least_of_all(tried, budget, shared, chosen);
            least = [least, of].into_iter().flatten().min();
            chosen.pop();
        }
        least
    }

    proptest! {
        /// Nothing that fits is faster; if all of it fits, it is all here.
        #[test]
        fn the_choice_is_the_best_of_all(
            tried in proptest::collection::vec(structure(), 1..5), local in 0_u64..100, buffers in 0_u64..20, more in 0_u64..20
        ) {
            let budget = Budget::of(local * 4096, buffers * 4096, buffers.min(more) * 4096);
            let chosen = choose(&tried, &budget, &|choice| choice.time_ns);
            let of = |chosen: &Chosen| -> Vec<Choice> { tried.iter().zip(&chosen.places).map(|(of, &at)| of[at]).collect() };
            let time = chosen.as_ref().map(|chosen| of(chosen).iter().map(|choice| choice.time_ns).sum::<u64>());
            let least = least_of_all(&tried, &budget, false, &mut Vec::new());
            prop_assert_eq!(time, least.or_else(|| least_of_all(&tried, &budget, true, &mut Vec::new())));
            prop_assert!(chosen.as_ref().is_none_or(|chosen| chosen.buffers_shared == least.is_none()));
            if let Some(chosen) = &chosen {
                let used: u64 = of(chosen).iter().map(|choice| choice.local_bytes).sum();
                prop_assert!(used + chosen.buffers_bytes <= budget.local_bytes);
            }
            if tried.iter().map(|of| of[0].local_bytes).sum::<u64>() <= budget.local_bytes {
                prop_assert!(chosen.expect("it fits").places.iter().all(|&at| at == 0));
            }
        }
    }
}
