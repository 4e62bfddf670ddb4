//! The event engine: time, order, and resources with queues.

mod queue;

pub use queue::Queue;
