//! The event engine: time, order, and resources with queues.
//!
//! Time is integer nanoseconds. Events happen in the order of their times, and of their numbers where times are equal, so a run is a
//! function of what was pushed. One engine is one thread's; sweeps run one each.

mod queue;
mod resource;

pub use queue::Queue;
pub use resource::Resource;
