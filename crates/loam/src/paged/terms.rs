//! On what terms a part of memory is paged.

use super::PagedError;

/// The largest page.
const PAGE_BYTES_MAX: usize = 1 << 20;
const PAGE_BYTES_MIN: usize = 4096;

/// In which order the pieces of a page come (`--fetch-plan`). Pieces are as large as `--subpage` says, 4 KiB unless told otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The touched one alone; the others when they are touched.
    Lazy,
    /// All of them before the program goes on.
    Full,
    /// The touched one, and the rest behind it.
    Eager,
    /// The touched one, its two neighbours, the rest.
    Pipelined,
    /// The same with neighbours of twice the size.
    PipelinedDoubled,
    /// The same with one neighbour beside the touched one at once.
    PipelinedBeside,
    /// As `Pipelined`, with those for neighbours that were wanted most often. What it learns in one part of memory it knows in all that have this plan.
    Learned,
}

impl Plan {
    /// All of them, each at its number.
    pub const ALL: [Self; 7] = [
        Self::Lazy,
        Self::Full,
        Self::Eager,
        Self::Pipelined,
        Self::PipelinedDoubled,
        Self::PipelinedBeside,
        Self::Learned,
    ];

    /// As `--fetch-plan` calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lazy => "lazy",
            Self::Full => "full",
            Self::Eager => "eager",
            Self::Pipelined => "pipelined",
            Self::PipelinedDoubled => "pipelined-doubled",
            Self::PipelinedBeside => "pipelined-beside",
            Self::Learned => "learned",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plan| plan.name() == name)
    }
}

/// What a part of memory is to have in place of what `loam run` or [`connect`](super::connect) were told of all memory, or find out. What is not named is as
/// everywhere; with nothing named ([`new`](Self::new)) it takes everything back.
///
/// ```no_run
/// # use loam::paged::{self, Plan, Terms, PagedVec};
/// # let table = PagedVec::<u64>::zeroed(1 << 27)?;
/// paged::set_terms(&table, &Terms::new().page_size(64 << 10).plan(Plan::Eager).local(256 << 20))?;
/// # Ok::<(), paged::PagedError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    pub(super) page_bytes: Option<usize>,
    pub(super) plan: Option<Plan>,
    pub(super) local_bytes: Option<u64>,
}

impl Terms {
    /// Nothing in particular.
    pub fn new() -> Self {
        Self::default()
    }

    /// A fault brings a page of so many bytes, of what is away and of zeros alike: a power of two from 4 KiB to 1 MiB. No page lies across the edge of such
    /// memory; there they are as large as fits. It holds for [`Advice::Random`](super::Advice::Random) memory as well, and nothing is learnt from it for other memory.
    #[must_use]
    pub fn page_size(mut self, bytes: usize) -> Self {
        self.page_bytes = Some(bytes);
        self
    }

    /// Pages come by this plan.
    #[must_use]
    pub fn plan(mut self, plan: Plan) -> Self {
        self.plan = Some(plan);
        self
    }

    /// At most so many bytes of it are here, whether or not there is room: when more of it comes, what came first of it leaves, whatever its priority, and who
    /// touches more of it than can leave in the meantime waits. It is a cap below the budget of all, and no guarantee. At least eight pages of its size (of
    /// 4 KiB if none is named) count; pages are no larger than an eighth of it. A process may have 64 such budgets, one for each call.
    #[must_use]
    pub fn local(mut self, bytes: u64) -> Self {
        self.local_bytes = Some(bytes.max(1));
        self
    }

    /// Whether there are such terms.
    pub(super) fn check(&self) -> Result<(), PagedError> {
        let is_page =
            |bytes: &usize| bytes.is_power_of_two() && (PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(bytes);
        match self.page_bytes.filter(|bytes| !is_page(bytes)) {
            Some(bytes) => Err(PagedError::PageSize { bytes }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_core::borrower::FETCH_PLANS;

    #[test]
    fn pages_are_powers_of_two() {
        for bytes in (12..=20).map(|log2| 1_usize << log2) {
            assert!(Terms::new().page_size(bytes).check().is_ok(), "{bytes}");
        }
        for bytes in [0, 1, 2048, 5000, 12_288, 2 << 20, usize::MAX] {
            let line = Terms::new().page_size(bytes).check().expect_err("no such page").to_string();
            assert!(line.contains(&bytes.to_string()), "{line}");
        }
    }

    /// They travel by number.
    #[test]
    fn plans_are_numbered_as_the_agent_has_them() {
        assert_eq!(Plan::ALL.map(Plan::name), FETCH_PLANS);
        for (number, plan) in Plan::ALL.into_iter().enumerate() {
            assert_eq!((plan as usize, Plan::named(plan.name())), (number, Some(plan)));
        }
        assert_eq!(Plan::named("quick"), None);
    }
}
