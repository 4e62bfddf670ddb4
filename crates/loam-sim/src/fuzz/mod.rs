//! Fault-injecting simulation: borrowers, lenders, a hostile network, and checkers after every event.
