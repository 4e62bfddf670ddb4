//! What `loam run` asks of the agent.

use loam_core::units::Bytes;
use loam_wire::client::Target;
use std::ffi::OsString;
use std::path::PathBuf;

/// When a page's local frame may be reused (DESIGN.md, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When the slot file has it. A lender may die at any time.
    Disk,
    /// When one lender has it. That lender's death ends the program.
    None,
}

/// Everything that [`crate::run`] needs to know.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// The program, as given; looked up in `PATH` if it has no slash.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Memory that the process tree may keep here.
    pub local: Bytes,
    /// Whom to borrow from; may be empty under [`Durability::Disk`].
    pub lenders: Vec<Target>,
    /// See [`Durability`].
    pub durability: Durability,
    /// Where the slot file goes.
    pub disk_dir: PathBuf,
    /// Page size: a power of two from 4 KiB to 1 MiB.
    pub page: Bytes,
    /// Fetch ahead of sequential and strided faults.
    pub prefetch: bool,
    /// Show a line that is rewritten twice a second on stderr.
    pub live_line: bool,
    /// Print nothing but errors.
    pub quiet: bool,
    /// `libloam_shim.so`.
    pub shim: PathBuf,
}
