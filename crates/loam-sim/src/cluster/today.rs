//! What an operation costs on machines of today, from the hardware models of `models/`.
//!
//! A model has what a page's way takes, not who is busy in it, so a request's time is split evenly: of the round trip of two small messages a quarter is
//! sending one, a quarter its way, and so on. The lender's stage is its processor's, the wire the network's, the last stage the borrower's processor's.

use super::costs::{Costs, DiskCosts};
use super::message::PAGE_BYTES;
use crate::model::{Model, Place, Stage};
use loam_core::units::Duration;

/// Of the live code, measured on the machine of docs/benchmarks.md (docs/scaling.md says how): looking at a page for a summary.
const SCAN_PS: u64 = 8_000;
/// Choosing an epoch, for each summary in it.
const CHOOSE_NS: u64 = 90;
/// Taking an epoch over, for each node in it.
const WEIGH_NS: u64 = 20;
/// Finding a page in the own tables. Assumed: a few misses of the processor's caches.
const LOOK_UP: Duration = Duration(200);

impl Costs {
    /// The machines and the network of `network`, with the disk of `disk`. Each frame that is simulated stands for `frame_pages` when ages are
    /// counted.
    pub fn today(network: &Model, disk: &Model, frame_pages: u64) -> Self {
        let quarter = Duration(network.request_ns / 4);
        let small = quarter;
        let page = |place: Place| stages(network, place, page_ns);
        let per_byte = |place: Place| stages(network, place, |stage| stage.ps_per_byte).0;
        let more = |a: Duration, b: Duration| Duration(a.0 + b.0);
        let (lender, wire, install) = (page(Place::Lender), page(Place::Shared), page(Place::Processor));
        // Each node has its own: at whatever place a stage is, every page passes through it.
        let every: u64 = disk.stages.iter().map(page_ns).sum();
        let seek: u64 = disk.stages.iter().map(|stage| stage.random_ns).sum();
        // A model may say that it takes no time, but how many writes fit between two reads must have a number.
        let sequential = Duration((disk.request_ns + every).max(1));
        let disk_costs = DiskCosts { sequential, random: Duration(sequential.0 + seek) };
        let served = more(Duration(network.request_ns), more(lender, more(wire, install)));
        Self {
            lookup: LOOK_UP,
            request: more(quarter, LOOK_UP),
            request_shared: quarter,
            locate_miss: more(quarter, LOOK_UP),
            locate_hit: more(quarter, LOOK_UP),
            target: more(quarter, lender),
            target_shared: more(quarter, lender),
            receipt: install,
            receipt_shared: install,
            receipt_miss: quarter,
            put: more(quarter, lender),
            put_own_directory: LOOK_UP,
            put_directory: more(quarter, LOOK_UP),
            put_target: more(quarter, install),
            put_target_shared: more(quarter, install),
            put_tell: quarter,
            send: quarter,
            receive: quarter,
            scan_local_ps: SCAN_PS * frame_pages,
            scan_global_ps: SCAN_PS * frame_pages,
            choose_ns: CHOOSE_NS,
            weigh_ns: WEIGH_NS,
            cpu_ps_per_byte: per_byte(Place::Lender).max(per_byte(Place::Processor)),
            frame_free: wire,
            disk: disk_costs,
            file_server: disk_costs,
            file_server_hit: served,
            network_small: small,
            network_page: more(small, wire),
            network_put: more(small, wire),
            ps_per_byte: per_byte(Place::Shared),
        }
    }

    /// Nothing costs anything but the disk: to set a cluster up before it is measured.
    pub(crate) fn nothing_but_the_disk(&self) -> Self {
        Self { disk: self.disk, file_server: self.file_server, ..Self::default() }
    }

    /// The paper's, where each frame that is simulated stands for so many when ages are counted.
    pub fn paper_in_little(frame_pages: u64) -> Self {
        let paper = Self::paper();
        Self {
            scan_local_ps: paper.scan_local_ps * frame_pages,
            scan_global_ps: paper.scan_global_ps * frame_pages,
            ..paper
        }
    }
}

fn page_ns(stage: &Stage) -> u64 {
    stage.fixed_ns + stage.ps_per_byte * PAGE_BYTES / 1_000
}

fn stages(model: &Model, place: Place, of: impl Fn(&Stage) -> u64) -> Duration {
    Duration(model.stages.iter().filter(|stage| stage.at == place).map(of).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_page_s_way_are_the_model_s() {
        let disk = Model::load("nvme").expect("it is built in");
        for name in ["tcp-25g", "tcp-100g", "rdma-100g"] {
            let model = Model::load(name).expect("it is built in");
            let c = Costs::today(&model, &disk, 1);
            let way = [c.request, c.network_small, c.target, c.network_page, c.receipt];
            let stages: u64 = model
                .stages
                .iter()
                .map(|stage| stage.fixed_ns + stage.ps_per_byte * PAGE_BYTES / 1_000)
                .sum();
            let whole: u64 = way.iter().map(|part| part.0).sum();
            assert_eq!(whole, model.request_ns / 4 * 4 + stages + LOOK_UP.0, "{name}");
            assert!(c.disk.random.0 > 2 * whole, "{name}: memory elsewhere is nearer than the disk");
        }
    }

    #[test]
    fn all_stages_of_a_disk_take_their_time() {
        let network = Model::load("tcp-25g").expect("it is built in");
        let reads = |disk: &Model| {
            let DiskCosts { sequential, random } = Costs::today(&network, disk, 1).disk;
            [sequential.0, random.0]
        };
        let cxl = Model::load("cxl").expect("it is built in");
        assert_eq!(reads(&cxl), [1_500 + 500 + 50 * PAGE_BYTES / 1_000; 2], "a processor's");
        let mut far = Model::load("nvme").expect("it is built in");
        let here = reads(&far);
        far.stages[0].at = Place::Lender;
        assert_eq!(reads(&far), here, "a lender's");
        far.stages[0].random_ns = 7_000;
        assert_eq!(reads(&far), [here[0], here[0] + 7_000]);
    }

    #[test]
    fn a_disk_that_takes_no_time_is_no_division_by_zero() {
        let network = Model::load("tcp-25g").expect("it is built in");
        let mut disk = Model::load("nvme").expect("it is built in");
        (disk.request_ns, disk.stages[0].fixed_ns, disk.stages[0].ps_per_byte) = (0, 0, 0);
        assert_eq!(Costs::today(&network, &disk, 1).disk.sequential, Duration(1));
    }
}
