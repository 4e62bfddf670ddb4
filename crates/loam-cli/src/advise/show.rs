//! Advice as people and programs read it.

use crate::text::{count, micros, table};
use loam_core::units::Bytes;
use loam_sim::advise::cluster;
use loam_sim::advise::{Advice, Choice, Cluster, Structure, Way};
use serde_json::json;
use std::fmt::Write;

/// Page sizes that have a column, in KiB. JSON has all.
const COLUMNS_KIB: [u64; 5] = [4, 16, 64, 256, 1024];

fn time(ns: u64) -> String {
    micros(ns as f64 / 1_000.0)
}

/// What a fault for a base page takes.
fn fault_ns(cluster: &Cluster) -> u64 {
    let path = cluster::path(&cluster.paging);
    path.latency_ns + path.ps_per_byte * 4096 / 1000 + path.message_ns + path.install_ns
}

/// One object.
pub(super) fn json(advice: &Advice, cluster: &Cluster) -> String {
    let direct = cluster.direct.as_ref();
    json!({
        "cluster": {
            "local_bytes": cluster.local_bytes,
            "paging": cluster.paging.name,
            "fault_ns": fault_ns(cluster),
            "direct": direct.map(|of| json!({ "name": of.name, "load_ns": of.load_ns, "local_ns": of.local_ns })),
            "cache_bytes": cluster.cache_bytes,
        },
        "advice": advice,
    })
    .to_string()
}

/// A table, and what to know about it.
pub(super) fn text(name: &str, advice: &Advice, cluster: &Cluster) -> String {
    let references: u64 = advice.structures.iter().map(|of| of.references).sum();
    let bytes: u64 = advice.structures.iter().map(|of| of.bytes).sum();
    let mut out = format!(
        "{name}: {} references of {} ns to {}\n{}\n\n",
        count(references),
        advice.reference_ns,
        Bytes(bytes),
        described(cluster)
    );
    let mut rows = vec![heading()];
    rows.extend(advice.structures.iter().map(|of| row(of, advice)));
    out.push_str(&table(&rows));
    out.push('\n');
    out.push_str(&table(&totals(advice)));
    if let Some(of) = advice.faster() {
        let much = "What is used at different times does better under one local memory.";
        write!(out, "\nFaster than a part of local memory for each: {}. {much}\n", of.name)
            .expect("a String takes it");
    }
    out.push_str(&notes(advice, cluster));
    out
}

fn described(cluster: &Cluster) -> String {
    let mut out = format!(
        "{} local; a fault for 4 KiB takes {} ({})",
        Bytes(cluster.local_bytes),
        time(fault_ns(cluster)),
        cluster.paging.name
    );
    match &cluster.direct {
        Some(of) => write!(
            out,
            "; a load from another node {} ns, from here {} ns ({})",
            of.load_ns, of.local_ns, of.name
        ),
        None => write!(out, "; no loads from other nodes"),
    }
    .and_then(|()| write!(out, "; {} of cache", Bytes(cluster.cache_bytes)))
    .expect("a String takes it");
    out
}

fn heading() -> Vec<String> {
    let mut heading: Vec<String> =
        ["structure", "size", "references", "here", "paged with"].map(String::from).into();
    heading.extend(
        COLUMNS_KIB.map(|kib| if kib < 1024 { format!("{kib}K") } else { format!("{}M", kib >> 10) }),
    );
    heading.extend(["direct", "best"].map(String::from));
    heading
}

/// The local memory with which paged times are shown: as advised, else the largest that was tried within its part.
fn shown_local(of: &Structure, advice: &Advice) -> Option<u64> {
    let paged = |choice: &&Choice| matches!(choice.way, Way::Paged { .. });
    let best = &of.options[of.best];
    if paged(&best) {
        return Some(best.local_bytes);
    }
    let all: u64 = advice.structures.iter().map(|of| of.bytes).sum();
    let part = u128::from(advice.local_bytes) * u128::from(of.bytes) / u128::from(all.max(1));
    let tried = || of.options.iter().filter(paged).map(|choice| choice.local_bytes);
    tried().filter(|&bytes| u128::from(bytes) <= part).max().or(tried().min())
}

fn row(of: &Structure, advice: &Advice) -> Vec<String> {
    let best = &of.options[of.best];
    let local = shown_local(of, advice);
    let here = of.options.iter().find(|choice| choice.way == Way::Local).map_or(0, |choice| choice.time_ns);
    let mut row = vec![
        of.name.clone(),
        Bytes(of.bytes).to_string(),
        count(of.references),
        time(here),
        local.map_or("-".into(), |bytes| Bytes(bytes).to_string()),
    ];
    row.extend(COLUMNS_KIB.map(|kib| {
        let way = Way::Paged { page_bytes: kib << 10 };
        let choice = of.options.iter().find(|choice| choice.way == way && Some(choice.local_bytes) == local);
        choice.map_or("-".into(), |choice| time(choice.time_ns))
    }));
    let direct = of.options.iter().find(|choice| choice.way == Way::Direct);
    row.push(direct.map_or("-".into(), |of| {
        let (fewest, most) = (time(of.time_with_fewest_ns()), time(of.time_ns));
        if fewest == most { most } else { format!("{fewest} to {most}") }
    }));
    let other = of.best_with_fewest_lines.map(|at| format!(" or {}", way(&of.options[at])));
    row.push(format!("{}{}", way(best), other.unwrap_or_default()));
    row
}

fn way(choice: &Choice) -> String {
    match choice.way {
        Way::Local => "here".into(),
        Way::Paged { page_bytes } => format!("paged {}K", page_bytes >> 10),
        Way::Direct => "direct".into(),
    }
}

fn totals(advice: &Advice) -> Vec<Vec<String>> {
    let buffers = match advice.buffers_bytes {
        0 => String::new(),
        bytes => format!(", and {} for the agent's buffers", Bytes(bytes)),
    };
    let local = format!("{} of local memory{buffers}", Bytes(advice.local_used_bytes));
    let mut rows = vec![
        vec!["the program".into(), "time".into()],
        vec!["each as advised".into(), time(advice.time_ns), local],
    ];
    for of in advice.fixed.iter().chain(&advice.together) {
        let Some(ns) = of.time_ns else { continue };
        let much = if of.local_bytes > advice.local_bytes { ": more than there is" } else { "" };
        rows.push(vec![
            of.name.clone(),
            time(ns),
            format!("{} of local memory{much}", Bytes(of.local_bytes)),
        ]);
    }
    rows
}

fn notes(advice: &Advice, cluster: &Cluster) -> String {
    let mut out =
        String::from("\npaged: -, too few pages would fit, or four times the waits of a smaller size.");
    if cluster.direct.is_some() && advice.structures.iter().any(|of| of.lines.is_none()) {
        out.push_str("\ndirect: not told. The trace names pages, so which lines of them a program needs is not known: record its addresses.");
    } else if cluster.direct.is_some() {
        out.push_str(
            "\ndirect: one load at a time; from as few lines as may be to as many, since a trace names 256 bytes, not lines. \"best\" takes the most, and names \
             another way where the fewest would change it. Needs hardware that loads from other nodes.",
        );
    }
    if advice.buffers_shared {
        out.push_str(
            "\neach as advised: too short. Local memory is too little to take off what the replay of each paged structure has for page buffers; what is paged under one \
             --local is replayed as live.",
        );
    }
    out.push_str("\nWhat is assumed: docs/advise.md\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_sim::advise::{Direct, Fixed};
    use loam_sim::model::Model;

    fn choice(way: Way, local_bytes: u64, time_ns: u64) -> Choice {
        Choice { way, local_bytes, time_ns, time_fewest_ns: None, faults: None }
    }

    fn shown(lines: Option<[u64; 2]>) -> String {
        let direct = Choice { time_fewest_ns: Some(4_000_000), ..choice(Way::Direct, 0, 9_000_000) };
        let paged = choice(Way::Paged { page_bytes: 65_536 }, 8 << 20, 7_000_000);
        let of = Structure {
            name: "table".into(),
            start: 0,
            end: 32 << 20,
            ranges: 1,
            bytes: 32 << 20,
            references: 1_000_000,
            lines,
            options: [choice(Way::Local, 32 << 20, 2_000_000), paged, direct][..2 + lines.iter().count()]
                .into(),
            best: 1,
            best_with_fewest_lines: lines.map(|_| 2),
        };
        let advice = Advice {
            local_bytes: 16 << 20,
            buffers_bytes: 4 << 20,
            buffers_shared: lines.is_none(),
            reference_ns: 2.0,
            structures: vec![of],
            time_ns: 7_000_000,
            local_used_bytes: 8 << 20,
            fixed: vec![Fixed { name: "all here".into(), time_ns: Some(2_000_000), local_bytes: 32 << 20 }],
            together: Vec::new(),
        };
        let cluster = Cluster {
            local_bytes: 16 << 20,
            paging: Model::load("tcp-25g").expect("built in"),
            direct: Direct::known("cxl2-switch"),
            cache_bytes: 2 << 20,
        };
        let parsed: serde_json::Value = serde_json::from_str(&json(&advice, &cluster)).expect("JSON");
        assert_eq!(parsed["advice"]["structures"][0]["options"][1]["way"]["page_bytes"], 65_536);
        assert_eq!(parsed["cluster"]["direct"]["load_ns"], 265);
        text("t", &advice, &cluster)
    }

    #[test]
    fn a_structure_has_a_row_with_each_way() {
        let text = shown(Some([1, 2]));
        assert!(text.contains("4000 us to 9000 us") && text.contains("paged 64K or direct"), "{text}");
        assert!(text.contains("8.0 MiB of local memory, and 4.0 MiB for the agent's buffers"), "{text}");
        assert!(text.contains("32.0 MiB of local memory: more than there is"), "{text}");
        assert!(text.contains("a fault for 4 KiB takes 16 us (TCP, 25 Gb/s)"), "{text}");
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        let text = shown(None);
        assert!(text.contains("direct: not told") && !text.contains("or direct"), "{text}");
        assert!(
            text.contains("each as advised: too short") && !shown(Some([1, 2])).contains("too short"),
            "{text}"
        );
    }
}
