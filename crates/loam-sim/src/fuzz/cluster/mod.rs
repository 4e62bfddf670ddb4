//! Fault-injecting simulation of whole clusters: 2 to 9 nodes of global memory (`loam_core::global::GlobalNode`), their programs, a hostile
//! network, a membership that learns late and is wrong at times, and checkers after every event.
//!
//! ```text
//! programs ──accesses──► Machine: GlobalNode + contents + disk ──messages──► Net: late, lost, doubled, parted ──► another Machine
//!                              ▲        ▲                                       (contents travel with Put and Data)
//!     Acts: kill, stop, join … ┘        └── Views: each node learns of each other's coming and going by itself, some time later
//! ```
//!
//! Contents are numbers. What a private page holds is what its program wrote last; what a file's page holds is a function of the file, its
//! version and the page. A machine that is killed is gone with its memory and its programs; who starts in its place is another node.
//!
//! **At every moment:** what a program reads is what it wrote last, or the contents of the file's version that it asked for; a node has no more
//! pages than its machine gives frames; a page is local, held for others, or waited for, and one of these only (`check::at_any_time`, with the
//! counts that it names). **Now and then** the same for everything that lies in memory unread: a copy that says that it has version 7
//! has the contents of version 7.
//!
//! **At the end** faults cease, and ten seconds later all agree: [`check::views`]; nobody waits; nothing is held or recorded for nodes that are
//! gone: [`check::nothing_is_left`]; in runs whose network was true, directories tell where copies are, and no copy is counted twice:
//! [`check::directories`]. Then every program reads all that it ever wrote.

mod acts;
mod check;
mod machine;
mod net;
mod programs;
mod script;
#[cfg(test)]
mod tests;
mod world;

pub use machine::Sabotage;
pub use script::{Act, Action, Script, Settings};
pub use world::{Outcome, run};
