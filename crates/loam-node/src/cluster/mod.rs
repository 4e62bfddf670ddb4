//! The control plane.
mod membership;
mod peer;
mod swim;
