//! The one integration binary.

mod readiness;
