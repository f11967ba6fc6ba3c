//! The nouns: custom resources, their names on the wire, and nothing that decides or acts.

pub mod conditions;
pub mod crd;
pub mod form;
pub mod hub;
pub mod names;
pub mod node;
pub mod policy;
pub mod resource;
pub mod stamp;
