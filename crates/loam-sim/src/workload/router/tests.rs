use super::maze::{ACROSS, ALONG, VIA};
use super::*;
use crate::workload::tests::run_whole;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

fn cost(grid: &Grid, route: &[u32]) -> u64 {
    let step = |pair: &[u32]| {
        let (a, b) = (grid.place(pair[0]), grid.place(pair[1]));
        u64::from(match (a.2 == b.2, (a.1 == b.1) == (a.2 % 2 == 0)) {
            (false, _) => VIA,
            (true, true) => ALONG,
            (true, false) => ACROSS,
        })
    };
    route.windows(2).map(step).sum()
}

/// Dijkstra's algorithm over the whole grid, as slow as it is plain.
fn cheapest(grid: &Grid, blocked: &[bool], from: u32, to: u32) -> Option<u64> {
    let mut best = vec![u64::MAX; grid.cells() as usize];
    let mut queue = BinaryHeap::from([Reverse((0, from))]);
    best[from as usize] = 0;
    while let Some(Reverse((so_far, cell))) = queue.pop() {
        if cell == to {
            return Some(so_far);
        }
        let others = (0..grid.cells()).filter(|&other| grid.are_neighbours(cell, other));
        for next in others.filter(|&next| !blocked[next as usize]) {
            let costs = so_far + cost(grid, &[cell, next]);
            if costs < best[next as usize] {
                best[next as usize] = costs;
                queue.push(Reverse((costs, next)));
            }
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The way that is found costs what the cheapest one does; where none is found, there is none.
    #[test]
    fn routes_are_the_cheapest(seed in 0_u64..10_000, percent in 0_u64..60) {
        let mut dice = Dice::new(seed, 0);
        let mut grid = Grid::new(8, 2);
        let mut recorder = Recorder::new(Bytes(8192));
        let (from, to) = (grid.cell(0, 1, 0), grid.cell(6, 7, 0));
        let mut blocked = vec![false; grid.cells() as usize];
        for cell in (0..grid.cells()).filter(|&cell| cell != from && cell != to) {
            if dice.below(100) < percent {
                grid.take(cell, 9, &mut recorder);
                blocked[cell as usize] = true;
            }
        }
        let expected = cheapest(&grid, &blocked, from, to);
        let route = Maze::new(&grid).route(&mut grid, 1, (from, to), 8, &mut recorder);
        prop_assert_eq!(route.as_ref().map(|route| cost(&grid, route)), expected);
        if let Some(route) = route {
            prop_assert!(route.iter().all(|&cell| grid.owner(cell) == 1));
        }
    }
}

#[test]
fn most_nets_are_routed() {
    let mut router = Router::new(RouterConfig::small(), Bytes(8192), 1);
    run_whole(&mut router);
    let routed = router.routes.iter().filter(|route| !route.is_empty()).count();
    assert!(routed > router.nets.len() * 9 / 10, "{routed} of {}", router.nets.len());
}

#[test]
fn a_wrong_route_is_told() {
    let mut router = Router::new(RouterConfig::small(), Bytes(8192), 1);
    assert!(router.check().is_err(), "it has not run");
    run_whole(&mut router);
    let at = router.routes.iter().position(|route| route.len() > 5).expect("a route");
    let mut wrong = router.clone();
    wrong.routes[at].remove(2);
    assert!(wrong.check().expect_err("a gap").contains("jumps"));
    let mut wrong = router.clone();
    wrong.routes[at].clear();
    assert!(wrong.check().expect_err("cells of nobody").contains("are owned"));
    let mut wrong = router;
    wrong.nets[at].0 += 1;
    assert!(wrong.check().expect_err("another pin").contains("leads from"));
}
