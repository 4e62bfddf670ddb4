//! The event engine: time, order, and resources with queues.
