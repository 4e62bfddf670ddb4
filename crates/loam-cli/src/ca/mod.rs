//! `loam ca`: an authority, the certificates that it issues, and what a certificate says.
//!
//! A node has a folder with three files: `ca.pem` (whom it believes), `node.pem` (who it is) and `node.key`. The authority's
//! own folder has `ca.pem` and `ca.key`, which is needed nowhere else.

pub(crate) mod args;
mod authority;
mod files;
mod show;

use crate::failure::Failure;
use args::{CaArgs, CaCommand};
use std::process::ExitCode;

pub(crate) use authority::throwaway;

/// Dispatches.
pub(crate) fn ca(args: &CaArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        CaCommand::Init(init) => authority::init(init),
        CaCommand::Issue(issue) => authority::issue(issue),
        CaCommand::Show { file } => show::show(file),
    }
}
