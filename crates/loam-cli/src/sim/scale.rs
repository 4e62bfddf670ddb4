//! `loam sim scale`.

use super::output;
use crate::failure::Failure;
use clap::Args;
use loam_sim::model::Model;
use loam_sim::report::Table;
use loam_sim::scale::{self, Hardware, Scaled};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `loam sim scale`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ScaleArgs {
    /// Sizes of clusters: multiples of five
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [100, 1_000, 10_000])]
    nodes: Vec<u32>,
    /// Networks: `paper`, a model's name, or a model's TOML file
    #[arg(long, value_name = "MODEL", value_delimiter = ',', default_values = ["paper", "tcp-25g", "tcp-100g", "rdma-100g"])]
    network: Vec<String>,
    /// The disk of all networks but the paper's: a model's name or its TOML file
    #[arg(long, value_name = "MODEL", default_value = "nvme")]
    disk: String,
    /// What all chances come from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the tables as CSV into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  loam sim scale                                       100, 1,000 and 10,000 nodes: minutes, and 4 GB of memory
  loam sim scale --nodes 100,500 --network tcp-25g     seconds
  loam sim scale --network paper,mine.toml --out scale

What came of it, and why it stops: docs/scaling.md.";

/// The most nodes: each keeps a list of all others.
const NODES_MAX: u32 = 20_000;

/// Runs clusters of all sizes on all networks, and prints what came of them.
pub(super) fn scale(args: &ScaleArgs) -> Result<ExitCode, Failure> {
    if let Some(nodes) = args.nodes.iter().find(|&&nodes| nodes == 0 || nodes % 5 != 0 || nodes > NODES_MAX) {
        return Err(Failure::new(format!("--nodes {nodes}: give multiples of five, up to {NODES_MAX}")));
    }
    let load = |name: &str| Model::load(name).map_err(Failure::new);
    let disk = load(&args.disk)?;
    let hardware: Vec<Hardware> = args
        .network
        .iter()
        .map(|name| match name.as_str() {
            "paper" => Ok(Hardware::paper()),
            name => Ok(Hardware::today(&load(name)?, &disk)),
        })
        .collect::<Result<_, Failure>>()?;
    if let Some(folder) = &args.out {
        output::make_folder(folder)?;
    }
    let mut scaled: Vec<Scaled> = Vec::new();
    for &nodes in &args.nodes {
        for hardware in &hardware {
            // One at a time: the largest take gigabytes.
            scaled.push(scale::run(hardware, nodes, args.seed));
        }
    }
    let tables = scale::tables(&scaled);
    print(&tables).map_err(|error| Failure::new(format!("stdout: {error}")))?;
    if let Some(folder) = &args.out {
        for (name, _, table) in &tables {
            output::write(&folder.join(name).with_extension("csv"), table.csv().as_bytes())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(tables: &[(String, String, Table)]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for (_, caption, table) in tables {
        writeln!(out, "{caption}\n\n{}", table.text())?;
    }
    Ok(())
}
