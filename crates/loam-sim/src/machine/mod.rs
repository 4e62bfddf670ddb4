//! One simulated machine: a program's references, the live `Borrower` that serves its faults, `Lender`s, and the model's hardware
//! between them.
//!
//! Time passes as the paper has it (subpages-1996, section 3.2): a fixed time for each reference, and waiting where a
//! reference meets a page, or a part of one, that is not here. The driver does for the `Borrower` what the live agent does (evict, install, get,
//! put), with contents that are numbers: each arrival is checked to be what the program wrote last.
//!
//! Evictions cost no time here and puts none of the network, as in the paper's simulator, which models faults alone.

mod driver;
mod lender;
mod outcome;
mod path;
mod prepared;
mod touches;

pub use outcome::{Outcome, StageFigures};
pub use prepared::Prepared;

use crate::model::Model;
use crate::trace::GRAIN_BYTES;
use driver::Machine;
use loam_core::borrower::{FETCH_PLANS, Replacement};
use loam_core::units::EXTENT_BASE_PAGES;

/// What is simulated, beside the trace.
#[derive(Clone, Debug)]
pub struct Config {
    /// The hardware.
    pub model: Model,
    /// Bytes of a subpage: a power of two from the unit to the page.
    pub subpage_bytes: u64,
    /// Bytes that are here or not as a whole: 4,096 where hardware decides, less for what the simulator alone can do. A power of two
    /// from 256 bytes to the subpage.
    pub unit_bytes: u64,
    /// Pages of local memory; None: as many as the program touches.
    pub local_pages: Option<u64>,
    /// A name of [`FETCH_PLANS`].
    pub fetch_plan: String,
    /// Messages between the first and the last of a plan cost the borrower's processor nothing (section 4.3: "we assume zero CPU overhead
    /// on the receiving node for the follow-on pipelined subpages").
    pub pipelined_unattended: bool,
    /// Record what single faults waited, when they came, and which subpage was wanted next.
    pub details: bool,
}

/// A configuration that cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A size.
    #[error(
        "subpage_bytes {subpage}, unit_bytes {unit}: powers of two, {GRAIN_BYTES} <= unit <= subpage <= page ({page}), at most {EXTENT_BASE_PAGES} units a page"
    )]
    Sizes {
        /// Bytes of a page.
        page: u64,
        /// As configured.
        subpage: u64,
        /// As configured.
        unit: u64,
    },
    /// No plan of that name.
    #[error("fetch plan {0}: one of {names}", names = FETCH_PLANS.join(", "))]
    FetchPlan(String),
    /// Less than the policy can work with.
    #[error("{pages} local pages: at least {least} are needed")]
    TooLittle {
        /// As configured.
        pages: u64,
        /// What works.
        least: u64,
    },
}

/// Fewest local pages: the policy keeps some free, and one is being brought.
pub const LOCAL_PAGES_MIN: u64 = 8;

/// Replays `trace` on the machine of `config`, with the replacement policy that is given.
///
/// # Errors
/// [`ConfigError`].
pub fn run(
    config: &Config,
    trace: &Prepared,
    replacement: Box<dyn Replacement>,
) -> Result<Outcome, ConfigError> {
    let (page, subpage, unit) = (trace.page_bytes(), config.subpage_bytes, config.unit_bytes);
    let fits = subpage.is_power_of_two()
        && unit.is_power_of_two()
        && GRAIN_BYTES <= unit
        && unit <= subpage
        && subpage <= page
        && page / unit <= EXTENT_BASE_PAGES as u64;
    if !fits {
        return Err(ConfigError::Sizes { page, subpage, unit });
    }
    if let Some(pages) = config.local_pages.filter(|&pages| pages < LOCAL_PAGES_MIN) {
        return Err(ConfigError::TooLittle { pages, least: LOCAL_PAGES_MIN });
    }
    let planner = loam_core::borrower::fetch_planner(&config.fetch_plan)
        .ok_or_else(|| ConfigError::FetchPlan(config.fetch_plan.clone()))?;
    let mut machine = Machine::new(config, trace, replacement, planner);
    machine.replay();
    Ok(machine.finish())
}

#[cfg(test)]
mod tests;
