//! Work that waits (connecting, asking for a name's addresses), each on a thread that ends with it. Not on tokio's: where the system has no thread
//! to give (`pids.max`, `ulimit -u`) tokio panics, and memory is still lent then.

use std::io;
use std::sync::Arc;
use std::thread;
use tokio::sync::{Semaphore, oneshot};

/// Who wants more threads at once waits for one to end.
#[derive(Clone, Debug)]
pub(super) struct Blocking(Arc<Semaphore>);

impl Blocking {
    pub(super) fn new(threads_max: usize) -> Self {
        Self(Arc::new(Semaphore::new(threads_max)))
    }

    /// Does `work` on a thread. If nobody waits for it any more, the thread goes on until it ends by itself, and counts until then.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        self.run_on(thread::Builder::new().name("loam-connect".into()), work).await
    }

    async fn run_on<T: Send + 'static>(
        &self,
        thread: thread::Builder,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let place = Arc::clone(&self.0).acquire_owned().await.expect("it is never closed");
        let (tell, told) = oneshot::channel();
        thread.spawn(move || {
            let done = work();
            drop(place);
            // Whoever has gone does not want to know.
            let _ = tell.send(done);
        })?;
        told.await.map_err(|_| io::ErrorKind::Interrupted.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    #[test]
    fn a_system_without_threads_is_an_error_and_the_next_one_is_tried() {
        let blocking = Blocking::new(1);
        block_on(async {
            // No system has memory for its stack.
            let impossible = thread::Builder::new().stack_size(1 << 60);
            assert!(blocking.run_on(impossible, || 1).await.is_err());
            assert_eq!(blocking.run(|| 2).await.unwrap(), 2);
        });
    }

    #[test]
    fn one_that_nobody_waits_for_keeps_its_place_until_it_ends() {
        let blocking = Blocking::new(1);
        block_on(async {
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let moment = std::time::Duration::from_millis(20);
            let first = blocking.run(move || ended.recv());
            assert!(tokio::time::timeout(moment, first).await.is_err(), "it waits");
            assert!(tokio::time::timeout(moment, blocking.run(|| ())).await.is_err(), "there is one place");
            end.send(()).unwrap();
            blocking.run(|| ()).await.unwrap();
        });
    }
}
