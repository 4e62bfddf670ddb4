//! What theory says must hold.
