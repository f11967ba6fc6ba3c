//! A value together with what Go knows of its static type. Converts nothing.

use crate::signature::Param;
use crate::value::{Element, Value};

#[derive(Debug, Clone)]
pub struct Slot {
    pub value: Value,
    /// Found in a list or dict of `interface {}` and not yet through a pipeline. Go's messages then name that type,
    /// and a nil is a nil interface rather than no value at all.
    pub boxed: bool,
}

impl Slot {
    pub fn plain(value: Value) -> Self {
        Slot {
            value,
            boxed: false,
        }
    }

    /// An element of a list or dict.
    pub fn element(value: Value, element: Element) -> Self {
        Slot {
            value,
            boxed: element == Element::Any,
        }
    }

    pub fn is_nil_interface(&self) -> bool {
        self.boxed && matches!(self.value, Value::Nil)
    }

    /// The static type as Go prints it.
    pub fn type_name(&self) -> &'static str {
        if self.boxed {
            Param::Any.go_name()
        } else {
            self.value.type_name()
        }
    }
}
