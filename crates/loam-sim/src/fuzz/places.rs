//! Where each acknowledged copy really is: what lenders have said and borrowers have not taken back, without what faults have taken. The checkers go by
//! this and not by the borrower's own record.

use super::kernel;
use super::lenders::Page;
use super::seat::Seat;
use super::sim::{FailureKind, Sim};
use loam_core::borrower::{BaseState, LenderIndex, SpaceKey};

impl Seat {
    /// A lender, other than one, that can be reached or is waited for has these contents as far as it has said, and no fault has taken them.
    pub(crate) fn is_at_lender(&self, page: Page, except: Option<LenderIndex>, sim: &Sim) -> bool {
        (0..self.conns.len())
            .filter(|&n| except.is_none_or(|lender| usize::from(lender.0) != n))
            .any(|n| self.has_at(n, page, sim))
    }

    /// That lender has it.
    pub(crate) fn has_at(&self, n: usize, page: Page, sim: &Sim) -> bool {
        let conn = &self.conns[n];
        (conn.up || conn.away) && conn.stored.contains_key(&page) && !self.is_rotten_at(n, page, sim)
    }

    pub(crate) fn is_rotten_at(&self, n: usize, (copy, version): Page, sim: &Sim) -> bool {
        let conn = &self.conns[n];
        sim.is_rotten(conn.lender, (sim.wires[conn.wire].space, u64::from(copy.0), version))
    }

    /// A fault has taken one of the places of a copy.
    pub(crate) fn is_harmed(&self, page: Page, sim: &Sim) -> bool {
        let rotten = |n: usize| self.conns[n].stored.contains_key(&page) && self.is_rotten_at(n, page, sim);
        self.harmed.get(&page.0) == Some(&page.1) || (0..self.conns.len()).any(rotten)
    }

    /// Some lender has what a page left as. (Not only its value: a relative may have left with the same contents as a copy of its own.)
    pub(crate) fn has_page(&self, page: &kernel::Page, sim: &Sim) -> bool {
        page.left_as.is_some_and(|copy| {
            let is_it = |n: &usize| self.conns[*n].stored.get(&copy) == Some(&page.truth);
            (0..self.conns.len()).filter(is_it).any(|n| self.has_at(n, copy, sim))
        })
    }

    /// A page has left. While mappings change, the address may mean another page: then [`Self::remember_copies`] sees to it.
    pub(crate) fn remember_copy(&mut self, space: SpaceKey, base: u64) {
        let copy = self.borrower.copy_of(space, base);
        let process = self.processes.get_mut(&space.0).filter(|p| !p.is_changing());
        if let Some(page) = process.and_then(|p| p.page(base)) {
            page.left_as = copy.map(|copy| (copy.index, copy.version));
        }
    }

    /// Changes of mappings have been dealt with: pages may have gone to other addresses, and to children.
    pub(crate) fn remember_copies(&mut self, key: u32) {
        let Some(process) = self.processes.get_mut(&key).filter(|p| !p.is_changing()) else { return };
        for i in 0..process.pages.len() {
            if let Some(copy) = self.borrower.copy_of(process.key, process.base_of(i)) {
                process.pages[i].left_as = Some((copy.index, copy.version));
            }
        }
    }

    /// A copy has as many places again as it is to have: what a fault once took of it excuses nothing any more.
    pub(crate) fn is_mended(&mut self, page: Page) {
        if self.harmed.get(&page.0) == Some(&page.1) {
            self.harmed.remove(&page.0);
        }
    }

    /// A page is sent: to as many lenders as are to have it, and once more for each that has lost it or did not take it.
    pub(crate) fn count_sent(&mut self, (copy, version): Page, sim: &mut Sim) {
        let replicas = i64::from(sim.settings.replicas);
        let may = self.may_send.entry(copy).or_insert((version, replicas));
        if may.0 != version {
            *may = (version, replicas);
        }
        may.1 -= 1;
        // What lenders of other kinds give back without a word is not counted as lost.
        if may.1 < 0 && sim.settings.cache.is_some() {
            let index = self.index;
            sim.fail(FailureKind::Leak, || {
                format!("borrower {index}: copy {} is sent once more than it needs to be", copy.0)
            });
        }
    }

    /// Somebody does not have it, or not any more.
    pub(crate) fn may_send_again(&mut self, (copy, version): Page) {
        if let Some(may) = self.may_send.get_mut(&copy).filter(|may| may.0 == version) {
            may.1 += 1;
        }
    }

    /// A lender's memory is lost to this borrower, or all that it had.
    pub(crate) fn loses_places(&mut self, n: usize, memory_only: bool, sim: &mut Sim) {
        let conn = &mut self.conns[n];
        let lender = conn.lender;
        let told = std::mem::take(&mut conn.told);
        let mut sent: Vec<Page> = std::mem::take(&mut conn.sent).into_keys().collect();
        sent.extend(conn.puts.drain(..).map(|put| (put.copy, put.version)));
        let before = std::mem::take(&mut conn.stored);
        before.values().for_each(|&value| sim.harm(lender, value));
        let stays = |page: &Page| memory_only && told.contains(page);
        conn.stored =
            before.iter().filter(|(page, _)| stays(page)).map(|(&page, &value)| (page, value)).collect();
        conn.spared.clear();
        sent.extend(before.keys());
        sent.retain(|page| !stays(page));
        let harmed = before.keys().filter(|page| !stays(page));
        self.harmed.extend(harmed.copied());
        self.conns[n].told = told.iter().copied().filter(stays).collect();
        sent.into_iter().for_each(|page| self.may_send_again(page));
    }

    /// A lender says that it does not have a page (any more).
    pub(crate) fn lender_lacks(&mut self, n: usize, page: Page, sim: &mut Sim) {
        let rotten = self.is_rotten_at(n, page, sim);
        let conn = &mut self.conns[n];
        let had = conn.stored.remove(&page).is_some();
        let spared = conn.spared.remove(&page);
        conn.told.remove(&page);
        if had && rotten {
            self.harmed.insert(page.0, page.1);
        }
        let may_go = sim.settings.disk || spared || rotten;
        if sim.settings.cache.is_some() && had && !may_go {
            let index = self.index;
            sim.fail(FailureKind::Unsafe, || {
                format!("borrower {index}: lender {n} has lost copy {}, which it said it has", page.0.0)
            });
        }
        self.may_send_again(page);
    }

    /// A lender's disk has pages.
    pub(crate) fn lender_stored(&mut self, n: usize, pages: &[Page]) {
        let conn = &mut self.conns[n];
        let known = pages.iter().filter(|page| conn.stored.contains_key(page));
        conn.told.extend(known);
    }

    /// Whatever page is called lost is nowhere.
    pub(crate) fn check_lost(&self, sim: &mut Sim) {
        if sim.settings.cache.is_none() {
            return;
        }
        for process in self.processes.values().filter(|p| p.known && !p.ended && !p.is_changing()) {
            for (i, page) in process.pages.iter().enumerate() {
                let missing = page.mapped && page.registered && page.present.is_none() && page.also.is_none();
                let base = process.base_of(i);
                if missing
                    && self.borrower.state(process.key, base) == BaseState::Lost
                    && self.has_page(page, sim)
                {
                    let (index, key, value) = (self.index, process.key.0, page.truth);
                    sim.fail(FailureKind::WrongBytes, || {
                        format!("borrower {index}: page {base} of process {key} (value {value}) is called lost, and a lender has it")
                    });
                }
            }
        }
    }
}
