//! Whole resources as templates.
