//! The auditor: it follows what is stored, revision by revision, and judges by rules of its own whether lynqgate kept its
//! promises. It shares no code with lynqgate, writes nothing to any cluster, and prints no value of a child object.

pub mod cli;
pub mod core;
pub mod kinds;
pub mod report;
pub mod source;
