//! The nouns: custom resources, their names on the wire, and nothing that decides or acts.

pub mod conditions;
pub mod crd;
pub mod events;
#[allow(clippy::duplicated_attributes)] // one printcolumn attribute for each column
pub mod form;
#[allow(clippy::duplicated_attributes)] // one printcolumn attribute for each column
pub mod hub;

pub mod names;
#[allow(clippy::duplicated_attributes)] // one printcolumn attribute for each column
pub mod node;
pub mod policy;
pub mod resource;
pub mod stamp;
pub mod text;
pub mod texts;
