//! The command line of `loam ca`.

use clap::{Args, Subcommand, ValueEnum};
use loam_wire::tls::Role;
use std::path::PathBuf;

/// Folder of the authority unless told otherwise.
const DIR_DEFAULT: &str = "loam-ca";
/// Longest validity.
const DAYS_MAX: i64 = 36_500;

/// Arguments of `loam ca`.
#[derive(Args, Debug)]
#[command(after_help = CA_EXAMPLES)]
pub(crate) struct CaArgs {
    #[command(subcommand)]
    pub(crate) command: CaCommand,
}

const CA_EXAMPLES: &str = "\
Examples:
  loam ca init
  loam ca issue node-7 --role node           writes node-7/, to be copied to that machine
  loam ca issue busy-1 --role borrower
  loam lend 16G --listen 10.0.0.7:7070 --tls node-7
  loam run --local 4G --lender node-7@10.0.0.7:7070 --tls busy-1 -- ./assembler reads";

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum CaCommand {
    /// Make a certificate authority
    Init(InitArgs),
    /// Issue a certificate and its key
    ///
    /// Writes a folder with ca.pem, node.pem and node.key, for `--tls` of the machine with that name.
    Issue(IssueArgs),
    /// Print what the certificates in a file say, one line each
    Show {
        /// File with certificates (ca.pem, node.pem)
        file: PathBuf,
    },
}

/// Arguments of `loam ca init`.
#[derive(Args, Debug)]
pub(crate) struct InitArgs {
    /// Folder of the authority
    #[arg(long, value_name = "DIR", default_value = DIR_DEFAULT)]
    pub(crate) dir: PathBuf,
    /// Days that it is valid
    #[arg(long, value_name = "N", default_value_t = 3650, value_parser = clap::value_parser!(i64).range(1..=DAYS_MAX))]
    pub(crate) days: i64,
    /// Replace an authority: what the old one has issued is worth nothing to whoever believes only the new one
    #[arg(long)]
    pub(crate) force: bool,
}

/// Arguments of `loam ca issue`.
#[derive(Args, Debug)]
pub(crate) struct IssueArgs {
    /// Name of the machine, as a host name: small letters, digits, '-' and '.'
    pub(crate) name: String,
    /// Folder of the authority
    #[arg(long, value_name = "DIR", default_value = DIR_DEFAULT)]
    pub(crate) dir: PathBuf,
    /// Folder to write to [default: NAME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// What its holder may do
    #[arg(long, value_enum, default_value = "both")]
    pub(crate) role: RoleArg,
    /// Days that it is valid; never longer than its authority
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(i64).range(1..=DAYS_MAX))]
    pub(crate) days: i64,
    /// Believe the authorities in this file, too (while one takes over from another); may be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) trust: Vec<PathBuf>,
    /// Replace what is in the folder
    #[arg(long)]
    pub(crate) force: bool,
}

/// Roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoleArg {
    /// Lends: `loam lend`
    Node,
    /// Borrows: `loam run`
    Borrower,
    /// Lends and borrows
    Both,
}

impl RoleArg {
    /// The roles that it stands for.
    pub(crate) fn roles(self) -> &'static [Role] {
        match self {
            Self::Node => &[Role::Node],
            Self::Borrower => &[Role::Borrower],
            Self::Both => &Role::ALL,
        }
    }
}
