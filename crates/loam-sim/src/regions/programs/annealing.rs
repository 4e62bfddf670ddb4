//! Placing a netlist by simulated annealing (PARSEC's canneal): elements in random pairs swap places, and each looks at where all that it is wired to is. Hardly two
//! touches in a row are near each other.

use super::{Array, CYCLE_NS, Dice, Memory, Ran, Space};

/// Elements that one is wired to.
const WIRES: usize = 8;
/// Cycles for each wire's length before and after a swap.
const WIRE_CYCLES: f64 = 10.0;
/// Swaps at one temperature.
const SWAPS_AT_A_TEMPERATURE: usize = 10_000;

/// An element: its place, and what it is wired to.
#[derive(Clone, Copy, Debug)]
struct Element {
    place: u32,
    wires: [u32; WIRES],
    _reserved: u32,
}

pub(super) fn run(elements: usize, swaps: usize, seed: u64, mut memory: Memory) -> Result<Ran, String> {
    let mut dice = Dice::new(seed);
    let width = elements.isqrt() as u32;
    let mut space = Space::default();
    let mut list = space.array(netlist(elements, &mut dice));
    memory.set_up(space.end);
    memory.begin();
    let before = wire_length(&list.values, width);
    let (mut length, mut accepted) = (before, 0);
    let mut temperature = 2.0 * f64::from(width);
    for swap in 0..swaps {
        if swap % SWAPS_AT_A_TEMPERATURE == SWAPS_AT_A_TEMPERATURE - 1 {
            temperature /= 1.5;
        }
        let (a, b) = (dice.below(elements), dice.below(elements));
        if a == b {
            continue;
        }
        let change = change(&list, a, b, width, &mut memory);
        let up = change > 0 && dice.share() >= power(-change as f64 / temperature);
        if !up {
            let (from, to) = (list.values[a].place, list.values[b].place);
            place(&mut list, a, to, &mut memory);
            place(&mut list, b, from, &mut memory);
            length += change;
            accepted += 1;
        }
    }
    let spent = memory.spent();
    let after = wire_length(&list.values, width);
    if after != length {
        return Err(format!("wires are {after} long, not {length}"));
    }
    let mut taken = vec![false; elements];
    for element in &list.values {
        if std::mem::replace(&mut taken[element.place as usize], true) {
            return Err(format!("two elements at place {}", element.place));
        }
    }
    if after >= before && swaps > SWAPS_AT_A_TEMPERATURE {
        return Err(format!("wires were {before} long and are {after}"));
    }
    let checked = format!(
        "{elements} elements, {accepted} of {swaps} swaps; wires measured again, each place taken once"
    );
    Ok(Ran { bytes: space.end, spent, checked })
}

/// Wired by four random maps and their inverses: each element has eight wires, and each wire two ends.
fn netlist(elements: usize, dice: &mut Dice) -> Vec<Element> {
    let empty = Element { place: 0, wires: [0; WIRES], _reserved: 0 };
    let mut list = vec![empty; elements];
    for (place, element) in list.iter_mut().enumerate() {
        element.place = place as u32;
    }
    for pair in 0..WIRES / 2 {
        let factor = loop {
            let factor = dice.below(elements - 1) + 1;
            if common(factor, elements) == 1 {
                break factor;
            }
        };
        let offset = dice.below(elements);
        for from in 0..elements {
            let to = (from * factor + offset) % elements;
            list[from].wires[2 * pair] = to as u32;
            list[to].wires[2 * pair + 1] = from as u32;
        }
    }
    list
}

fn common(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common(b, a % b) }
}

fn distance(a: u32, b: u32, width: u32) -> i64 {
    i64::from((a % width).abs_diff(b % width) + (a / width).abs_diff(b / width))
}

/// All wires' length. Each has two ends, and counts once.
fn wire_length(list: &[Element], width: u32) -> i64 {
    let of = |element: &Element| {
        let ends = element.wires.iter().step_by(2);
        ends.map(|&end| distance(element.place, list[end as usize].place, width)).sum::<i64>()
    };
    list.iter().map(of).sum()
}

/// What the wires' length changes by if two elements swap places. A wire between the two keeps its length; one from an element to itself has none.
fn change(list: &Array<Element>, a: usize, b: usize, width: u32, memory: &mut Memory) -> i64 {
    let (first, second) = (list.read(a, memory), list.read(b, memory));
    let mut change = 0;
    for (me, it, of) in [(a, b, (first, second)), (b, a, (second, first))] {
        for &wire in &of.0.wires {
            let end = wire as usize;
            if end == me || end == it {
                continue;
            }
            let there = list.read(end, memory).place;
            change += distance(of.1.place, there, width) - distance(of.0.place, there, width);
        }
    }
    memory.compute(2.0 * WIRES as f64 * WIRE_CYCLES * CYCLE_NS);
    change
}

fn place(list: &mut Array<Element>, at: usize, place: u32, memory: &mut Memory) {
    let moved = Element { place, ..list.values[at] };
    list.write(at, moved, memory);
}

/// e to a negative power, by multiplications alone, so that it is the same on every machine.
fn power(x: f64) -> f64 {
    if x < -30.0 {
        return 0.0;
    }
    let mut value = 1.0 + x / 65_536.0;
    for _ in 0..16 {
        value *= value;
    }
    value
}
