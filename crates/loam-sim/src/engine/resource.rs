//! Something that does one thing at a time: a wire, a DMA engine, a disk's arm.

use loam_core::units::{Duration, Instant};

/// Who comes first is served first; the others wait in line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resource {
    free_at: Instant,
    busy: Duration,
    waited: Duration,
}

impl Resource {
    /// Something that is ready at `ready` and takes `takes`: when it is done. Calls are made in the order of `ready`.
    pub fn serve(&mut self, ready: Instant, takes: Duration) -> Instant {
        let start = self.free_at.max(ready);
        self.waited.0 += (start - ready).0;
        self.busy.0 += takes.0;
        self.free_at = start + takes;
        self.free_at
    }

    /// When it is free.
    pub fn free_at(&self) -> Instant {
        self.free_at
    }

    /// How long it has been at work.
    pub fn busy(&self) -> Duration {
        self.busy
    }

    /// How long things stood in line for it, all together.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let mut wire = Resource::default();
        assert_eq!(wire.serve(Instant(10), Duration(5)), Instant(15));
        assert_eq!(wire.serve(Instant(12), Duration(5)), Instant(20), "it waits for the first");
        assert_eq!(wire.serve(Instant(30), Duration(1)), Instant(31));
        assert_eq!((wire.busy(), wire.waited()), (Duration(11), Duration(3)));
    }
}
