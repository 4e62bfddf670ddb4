//! The paper's claims, one line each.

use super::experiments::Experiments;
use super::programs::{STOP_AT, Sizes};
use super::{page_sizes_kib, sizes_kib};
use crate::report::Check;
use crate::reproduce::Value;

/// "Near" and "about": to within a tenth.
const NEAR: f64 = 1.1;
/// "Drastically degraded": the largest pages take more than so many times what the smallest take.
const DEGRADED: f64 = 1.5;

/// A relative time; more than is waited for counts as that much.
fn time(e: &Experiments, program: usize, percent: u64, sizes: Sizes) -> f64 {
    e.get(program, percent, sizes).relative.unwrap_or(STOP_AT as f64)
}

pub(super) fn write(time: Option<f64>) -> String {
    write_beyond(time, STOP_AT)
}

/// A relative time, or that it is beyond what is waited for.
pub(super) fn write_beyond(time: Option<f64>, stop_at: u64) -> String {
    time.map_or_else(|| format!("> {stop_at}"), |time| format!("{time:.2}"))
}

/// All sizes' times, the smallest size first.
fn curve(e: &Experiments, program: usize, percent: u64) -> Vec<f64> {
    sizes_kib().into_iter().map(|kib| time(e, program, percent, Sizes::Fixed(kib))).collect()
}

fn written(e: &Experiments, program: usize, percent: u64) -> String {
    let times = sizes_kib().into_iter().map(|kib| write(e.get(program, percent, Sizes::Fixed(kib)).relative));
    times.collect::<Vec<_>>().join(" ")
}

pub(super) fn checks(e: &Experiments) -> Vec<Check> {
    assert!(
        super::rows().iter().all(|row| row.kind != crate::reproduce::Kind::Claim || row.value == Value::True),
        "claims are true or not"
    );
    vec![thrashing(e), growing(e), figure_5(e), figure_6(e), figure_7(e), figure_8(e)]
}

/// Section I: "Their performances are drastically degraded as page size becomes larger."
fn thrashing(e: &Experiments) -> Check {
    let mut pass = true;
    let mut said = Vec::new();
    for (name, percent) in [("bt", 5), ("sp", 10), ("ft", 5), ("ft", 10)] {
        let program = e.program(name);
        let times = curve(e, program, percent);
        let (first, last) = (times[0], times[times.len() - 1]);
        let worst = times.iter().copied().fold(0.0, f64::max);
        pass &= last > first * DEGRADED && last * NEAR >= worst;
        said.push(format!("{name} {percent}%: {}", written(e, program, percent)));
    }
    let [basic, _, most] = page_sizes_kib();
    Check::new(
        pass,
        format!(
            "figure 2: BT, SP and FT take more than {DEGRADED} times as long with {most} KiB pages as with {basic} KiB, and no size takes a tenth longer \
             than {most} KiB ({})",
            said.join("; ")
        ),
    )
}

/// Section I: "Himeno benchmark, which shows a typical case, performs better as page size becomes larger."
fn growing(e: &Experiments) -> Check {
    let program = e.program("himeno");
    let times = curve(e, program, 10);
    let steps = times.windows(2).all(|pair| pair[1] <= pair[0] * NEAR);
    Check::new(
        steps && times[times.len() - 1] * NEAR < times[0],
        format!(
            "figure 2: Himeno's time falls by more than a tenth from the smallest to the largest page, and by no step rises by a tenth ({})",
            written(e, program, 10)
        ),
    )
}

/// AAPC beside the best fixed size: its time, the best size and that one's time, and AAPC with the other period.
fn beside(e: &Experiments, name: &str, percent: u64) -> (f64, u64, f64, String) {
    let program = e.program(name);
    let aapc = time(e, program, percent, Sizes::Aapc(e.programs[program].steps));
    let (kib, best) = e.best(program, percent, &sizes_kib()).unwrap_or((0, STOP_AT as f64));
    let other = write(e.get(program, percent, Sizes::Aapc(1)).relative);
    (
        aapc,
        kib,
        best,
        format!(
            "AAPC {aapc:.2}, the best fixed size, {kib} KiB, {best:.2}; with whole parts as periods {other}"
        ),
    )
}

fn figure_5(e: &Experiments) -> Check {
    let (aapc, _, best, said) = beside(e, "bt", 5);
    Check::new(
        aapc <= best * NEAR,
        format!("figure 5: BT, 5% local: AAPC is within a tenth of the best fixed size ({said})"),
    )
}

fn figure_6(e: &Experiments) -> Check {
    let (aapc, _, best, said) = beside(e, "sp", 10);
    Check::new(
        aapc < best,
        format!(
            "figure 6: SP, 10% local: AAPC beats the best fixed size, which the paper has at 32 KiB ({said})"
        ),
    )
}

fn figure_7(e: &Experiments) -> Check {
    let sp = e.program("sp");
    let [small, large] = FIGURE_7_KIB.map(|kib| &e.get(sp, 10, Sizes::Fixed(kib)).parts);
    let mut said = Vec::new();
    let (mut smaller, mut larger) = (false, false);
    for (part, name) in (1..).zip(e.programs[sp].info.parts) {
        let (Some(a), Some(b)) = (small.get(&part), large.get(&part)) else { continue };
        smaller |= a < b;
        larger |= b < a;
        said.push(format!("{name} {a:.1} {b:.1}"));
    }
    Check::new(
        smaller && larger,
        format!(
            "figure 7: SP, 10% local: some parts are faster with {} KiB, some with {} KiB ({})",
            FIGURE_7_KIB[0],
            FIGURE_7_KIB[1],
            said.join(", ")
        ),
    )
}

/// The sizes of figure 7.
pub(super) const FIGURE_7_KIB: [u64; 2] = [16, 32];

fn figure_8(e: &Experiments) -> Check {
    let (aapc, _, best, said) = beside(e, "himeno", 10);
    let start = page_sizes_kib()[1];
    let program = e.program("himeno");
    let sizes = e.sizes_kib(program, 10, Sizes::Aapc(e.programs[program].steps));
    let grown = sizes.iter().all(|&kib| kib > start);
    Check::new(
        aapc <= best * NEAR && grown,
        format!(
            "figure 8: Himeno, 10% local: AAPC goes to larger pages than {start} KiB in each part ({}), and is within a tenth of the best fixed size ({said})",
            sizes.iter().map(|kib| format!("{kib} KiB")).collect::<Vec<_>>().join(", ")
        ),
    )
}
