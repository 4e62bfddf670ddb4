//! The paper's claims, one line each.

use super::experiments::{Bar, Experiments, Searched};
use super::printed;
use crate::regions::config::Division;
use crate::report::{Check, Unit};

/// "Halves", "does not change": to within a tenth.
const NEAR: f64 = 0.1;
/// "Does not halve": less than half of what halving would take off.
const NO_HALVING: f64 = 0.75;
/// "Slightly faster": at least by so much, and by no more than that.
const SLIGHTLY: (f64, f64) = (0.005, 0.25);
/// "Sharply", "prohibitive": so many times.
const SHARPLY: f64 = 5.0;
const PROHIBITIVE: f64 = 10.0;
/// "Linear": so much of the variance.
const LINEAR: f64 = 0.9;

pub(super) fn checks(e: &Experiments) -> Vec<Check> {
    let mut checks = vec![];
    let base = controllers(e, Division::Rest);
    checks.extend(base.into_iter().map(|(pass, text)| Check::new(pass, text)));
    checks.extend([linear(e), sharply(e), prohibitive(e), fits(e)]);
    checks
}

/// The claims of figures 7 and 8, under a division.
pub(super) fn controllers(e: &Experiments, division: Division) -> [(bool, String); 6] {
    let at = |servers, hops, threads| -> Bar { e.client[&(division, servers, hops, threads)] };
    let [one, two, four] = [1, 2, 4].map(|threads| at(1, 1, threads).ns);
    let near = at(4, 1, 4);
    let [second, third] = [2, 3].map(|hops| at(4, hops, 4));
    let gains = [second, third].map(|bar| 1.0 - bar.ns / near.ns);
    let slightly = |gain: &f64| (SLIGHTLY.0..=SLIGHTLY.1).contains(gain);
    let series = &e.server[&division];
    let (alone, three, all) = (series[0].ns, series[3].ns, series[series.len() - 1]);
    let us = |ns: f64| format!("{:.2} us", ns / 1000.0);
    [
        (
            (two / one / 0.5 - 1.0).abs() <= NEAR,
            format!(
                "figure 7: two threads take half of the time of one, to within a tenth ({:.2} of it)",
                two / one
            ),
        ),
        (
            four / two > NO_HALVING,
            format!(
                "figure 7: four threads take more than {NO_HALVING} of the time of two ({:.2} of it)",
                four / two
            ),
        ),
        (
            near.ns / four >= 1.0 - NEAR / 2.0,
            format!(
                "figure 7: four threads gain less than a twentieth by four servers in place of one ({:.2} of the time)",
                near.ns / four
            ),
        ),
        (
            gains.iter().all(slightly),
            format!(
                "figure 7: four threads are slightly faster (by {} to {}%) with servers two or three hops away than one ({:.1}% and {:.1}%; refused: {:.0}%, {:.0}%, {:.0}% of requests)",
                SLIGHTLY.0 * 100.0,
                SLIGHTLY.1 * 100.0,
                gains[0] * 100.0,
                gains[1] * 100.0,
                near.refused * 100.0,
                second.refused * 100.0,
                third.refused * 100.0
            ),
        ),
        (
            three <= alone * (1.0 + NEAR),
            format!(
                "figure 8: three more nodes of four threads slow the control thread by less than a tenth ({} alone, {})",
                us(alone),
                us(three)
            ),
        ),
        (
            all.ns > alone * (1.0 + 2.0 * NEAR) && all.ns > three,
            format!(
                "figure 8: more clients slow it: by more than a fifth with {} ({}, the server {:.0}% busy)",
                all.clients,
                us(all.ns),
                all.busy * 100.0
            ),
        ),
    ]
}

/// How much of the variance of the second a line through the first explains.
pub(super) fn explained(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let sum =
        |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|point| of(point.0 - x, point.1 - y)).sum::<f64>();
    let (xy, xx, yy) = (sum(&|a, b| a * b), sum(&|a, _| a * a), sum(&|_, b| b * b));
    if xx == 0.0 || yy == 0.0 { 0.0 } else { xy * xy / (xx * yy) }
}

/// Section V.B: "the execution time increases in a linear way (there is a step in the graph...)" with the average depth. What that is the section leaves open:
/// whichever way it is taken, a line has to fit.
fn linear(e: &Experiments) -> Check {
    let by = |depth: fn(&Searched) -> f64| {
        explained(&e.keys.iter().map(|of| (depth(of), of.remote_ns())).collect::<Vec<_>>())
    };
    let shares = [by(|of| of.probes), by(|of| of.nodes), by(|of| (of.keys as f64).log2())];
    let rising = e.keys.windows(2).filter(|pair| pair[1].remote_ns() >= pair[0].remote_ns()).count();
    let grows = e.keys[e.keys.len() - 1].remote_ns() > e.keys[0].remote_ns();
    let [probes, nodes, log2] = shares;
    Check::new(
        grows && shares.iter().all(|&share| share >= LINEAR),
        format!(
            "figure 10: in remote memory a line through the depth explains at least {LINEAR} of a search's time, be it the keys compared ({probes:.3}), the nodes visited \
             ({nodes:.3}) or log2 of the keys ({log2:.3}; it rises in {rising} of {} steps)",
            e.keys.len() - 1
        ),
    )
}

/// "On the contrary, the performance of the swap technique worsens exponentially, due to the page trashing syndrome."
fn sharply(e: &Experiments) -> Check {
    let local = e.frames as u64 * crate::regions::memory::PAGE_BYTES;
    let fits = e.keys.iter().rfind(|of| of.bytes <= local);
    let last = e.keys.last().expect("figure 10 was run");
    let Some(fits) = fits else { return Check::new(false, "figure 10: no tree fits in local memory") };
    let (swap, remote) = (last.swap_ns() / fits.swap_ns(), last.remote_ns() / fits.remote_ns());
    Check::new(
        swap > SHARPLY && swap > SHARPLY * remote,
        format!(
            "figure 10: over remote swap a search takes more than {SHARPLY} times as long once the tree has outgrown local memory, and grows more than {SHARPLY} times as much as in remote memory \
             ({:.1} M keys {}, {:.1} M keys {}: {swap:.1} times; remote memory {remote:.2} times)",
            fits.keys as f64 / 1e6,
            Unit::Ns.write(fits.swap_ns()),
            last.keys as f64 / 1e6,
            Unit::Ns.write(last.swap_ns()),
        ),
    )
}

fn whole(e: &Experiments, program: usize) -> [f64; 3] {
    let spent = e.programs[program].spent;
    [spent.local_ns, spent.remote_ns, spent.swap_ns].map(|ns| ns + spent.compute_ns)
}

fn prohibitive(e: &Experiments) -> Check {
    let [local, remote, swap] = whole(e, 2);
    Check::new(
        swap > PROHIBITIVE * remote
            && swap / local > PROHIBITIVE * 10.0
            && remote / local < swap / remote * 10.0,
        format!(
            "figure 11: annealing (canneal) takes more than {PROHIBITIVE} times as long over remote swap as in remote memory, and more than {} times as long as in local memory \
             ({:.1} and {:.0} times; remote memory {:.1} times local)",
            PROHIBITIVE * 10.0,
            swap / remote,
            swap / local,
            remote / local
        ),
    )
}

/// It fits because its data were chosen so; what can fail is that it does not swap then.
fn fits(e: &Experiments) -> Check {
    let ran = &e.programs[3];
    let [local, _, swap] = whole(e, 3);
    Check::new(
        ran.spent.faults == 0 && swap == local,
        format!(
            "figure 11: clustering (streamcluster) fits in local memory and does not swap ({:.0} of {:.0} MB, {} pages fetched)",
            ran.bytes as f64 / 1e6,
            e.frames as f64 * crate::regions::memory::PAGE_BYTES as f64 / 1e6,
            ran.spent.faults
        ),
    )
}

/// Programs whose time the paper gives a factor for.
pub(super) const DOUBLED: [usize; 2] = [0, 1];

/// Remote swap over remote memory, of a program.
pub(super) fn factor(e: &Experiments, program: usize) -> f64 {
    let [_, remote, swap] = whole(e, program);
    swap / remote
}

/// The number of children that the paper found best.
pub(super) fn best_printed() -> f64 {
    printed("figure 9", "b-tree of 10M keys on remote swap")
}
