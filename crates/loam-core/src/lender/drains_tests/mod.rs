//! The write cache at a lender: against a model with a disk of its own, and case by case.

mod cases;
mod model;

use super::*;

/// The contents of a page follow from its name and version, as they do live as long as one borrower uses a space.
fn contents(space: u64, index: u64, version: u32) -> u128 {
    u128::from(space) << 96 | u128::from(version) << 64 | u128::from(index) | 1 << 127
}

fn put(space: u64, index: u64, version: u32, class: PutClass) -> Put {
    Put { index, version: Version(version), hash: ContentHash(contents(space, index, version)), class }
}
