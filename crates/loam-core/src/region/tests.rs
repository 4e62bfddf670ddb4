//! The paper's example, every order of events of small clusters, and the ledger against a simple model.

mod cases;
mod every_order;
mod ledger;
