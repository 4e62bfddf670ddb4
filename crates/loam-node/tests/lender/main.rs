//! A real lender on loopback, against peers that behave and peers that do not.

mod cluster;
mod giveback;
mod hostile;
mod plans;
mod refusals;
mod regions;
mod reserving;
mod sharing;
mod signals;
mod staging;
mod staging_churn;
mod support;
mod tls;
mod transfer;
