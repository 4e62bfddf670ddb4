//! What came of it, for people.

use super::{PERIOD, Scaled};
use crate::report::{Cell, Table};
use loam_core::units::Duration;

/// Tables, each with its file's name and caption.
pub fn tables(scaled: &[Scaled]) -> Vec<(String, String, Table)> {
    vec![
        (
            "epochs".into(),
            format!(
                "What an epoch costs, and its share of a processor at one each {} s",
                PERIOD.0 / 1_000_000_000
            ),
            epochs(scaled),
        ),
        ("joining".into(), "What a node that joins costs".into(), joining(scaled)),
        ("paging".into(), "Programs with twice their memory, all at once".into(), paging(scaled)),
    ]
}

fn ms(of: Duration) -> Cell {
    Cell::from(format!("{:.3}", of.0 as f64 / 1e6))
}

fn percent(of: Duration) -> Cell {
    Cell::from(format!("{:.3}%", 100.0 * of.0 as f64 / PERIOD.0 as f64))
}

fn kib(bytes: u64) -> Cell {
    Cell::from(format!("{:.1}", bytes as f64 / 1024.0))
}

fn named(of: &Scaled) -> Vec<Cell> {
    vec![Cell::from(of.hardware.as_str()), Cell::from(u64::from(of.nodes))]
}

fn epochs(scaled: &[Scaled]) -> Table {
    let mut table = Table::new([
        "hardware",
        "nodes",
        "one each, s",
        "weights / idle nodes",
        "initiator, ms",
        "share",
        "others, ms",
        "share",
        "master, ms",
        "initiator sends, KiB",
        "its link, ms",
        "all send, KiB",
    ]);
    for of in scaled {
        let mut row = named(of);
        let Some(interval) = of.interval else {
            // The next one is due before this one's weights have arrived: it is chosen from hardly any summaries.
            row.extend([Cell::from("breaks down"), Cell::from(format!("{} / {}", of.weights, of.idle))]);
            row.resize(12, Cell::Empty);
            table.push(row);
            continue;
        };
        let initiator = Duration(of.initiator.0 + of.others.0);
        row.extend([
            Cell::from(format!("{:.1}", interval.0 as f64 / 1e9)),
            Cell::from(format!("{} / {}", of.weights, of.idle)),
            ms(initiator),
            percent(initiator),
            ms(of.others),
            percent(of.others),
            ms(of.master),
            kib(of.initiator_bytes),
            ms(of.link),
            kib(of.all_bytes),
        ]);
        table.push(row);
    }
    table
}

fn joining(scaled: &[Scaled]) -> Table {
    let mut table = Table::new([
        "hardware",
        "nodes",
        "POD to each node, KiB",
        "master sends, MiB",
        "its link, s",
        "directory entries that move",
    ]);
    for of in scaled {
        let mut row = named(of);
        row.extend([
            kib(of.pod_bytes),
            Cell::from(format!("{:.1}", (of.pod_bytes * u64::from(of.nodes)) as f64 / f64::from(1 << 20))),
            Cell::from(format!("{:.3}", of.pod_link.0 as f64 / 1e9)),
            Cell::from(format!("{:.3}%", of.pod_moved_ppm as f64 / 1e4)),
        ]);
        table.push(row);
    }
    table
}

fn paging(scaled: &[Scaled]) -> Table {
    let mut table = Table::new([
        "hardware",
        "nodes",
        "faults",
        "from disk",
        "fault, us",
        "directory messages / fault",
        "directory bytes / fault",
        "speedup",
    ]);
    for of in scaled {
        let each = |sum: u64| format!("{:.2}", sum as f64 / of.faults.max(1) as f64);
        let mut row = named(of);
        row.extend([
            Cell::from(of.faults),
            Cell::from(of.from_disk),
            Cell::from(format!("{:.1}", of.fault.0 as f64 / 1e3)),
            Cell::from(each(of.directory.0)),
            Cell::from(each(of.directory.1)),
            Cell::from(format!("{:.2}", of.speedup())),
        ]);
        table.push(row);
    }
    table
}
