//! Reports: what people read of a simulation.

pub mod svg;
