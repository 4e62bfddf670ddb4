//! Runs that have nothing to do with each other, on some threads: one engine a thread.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Does `work` for each job, in their order as threads become free, and gives what came of them in the same order, whichever ended first. `done` is
/// told after each how many have been done.
///
/// # Panics
/// If `work` or `done` does, as they did.
pub(crate) fn run<J: Sync, T: Send>(
    jobs: &[J],
    threads: usize,
    done: &(dyn Fn(usize) + Sync),
    work: impl Fn(&J) -> T + Sync,
) -> Vec<T> {
    let (next, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let worker = || {
        let mut own = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(at) else { return own };
            own.push((at, work(job)));
            done(ended.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    let mut all: Vec<(usize, T)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.clamp(1, jobs.len().max(1))).map(|_| scope.spawn(worker)).collect();
        let joined = workers.into_iter().map(|worker| match worker.join() {
            Ok(own) => own,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.flatten().collect()
    });
    all.sort_by_key(|&(at, _)| at);
    assert_eq!(all.len(), jobs.len(), "each job is done once");
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        for threads in [0, 1, 3, 100] {
            let told = Mutex::new(Vec::new());
            let jobs: Vec<u64> = (0..40).collect();
            let results = run(&jobs, threads, &|n| told.lock().unwrap().push(n), |&job| {
                // The first ones take longest.
                std::thread::sleep(std::time::Duration::from_micros(40 * (40 - job)));
                job * job
            });
            assert_eq!(results, jobs.iter().map(|job| job * job).collect::<Vec<_>>());
            let mut told = told.into_inner().unwrap();
            told.sort_unstable();
            assert_eq!(told, (1..=40).collect::<Vec<_>>(), "each is told once");
        }
        assert!(run(&[(); 0], 2, &|_| {}, |&()| 0).is_empty());
    }

    #[test]
    #[should_panic(expected = "job 7")]
    fn a_panic_is_passed_on() {
        let _: Vec<()> = run(&(0..20).collect::<Vec<u32>>(), 2, &|_| {}, |&n| assert!(n != 7, "job {n}"));
    }
}
