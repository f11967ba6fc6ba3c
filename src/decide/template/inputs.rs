//! The inputs of a rendering: a row's variables, and everything else on which the result depends.

use std::collections::BTreeMap;
use std::sync::Arc;

use go_templates::value::{Dict, Element, List, Text, Value};
use go_templates::{Facts, Limits, SharedBudget, SharedLimits, Sharers};
use serde_json::{Map, Value as Json};

use crate::decide::template::facts;

/// The limits of one rendering.
pub const LIMITS: Limits = Limits {
    steps: 200_000,
    memory_bytes: 8 << 20,
    output_bytes: 1 << 20,
    depth: 100,
};

/// The limits of all renderings of a form for one row together.
const ROW_LIMITS: SharedLimits = SharedLimits {
    steps: 400_000,
    output_bytes: 1 << 20,
    sharers: Sharers {
        templates: "the form's templates",
        occasion: "for one row",
    },
};

/// The budget of one form's templates for one row.
pub fn row_budget() -> Arc<SharedBudget> {
    Arc::new(SharedBudget::new(ROW_LIMITS))
}

/// What a row provides to the templates of one resource. Clones are cheap.
#[derive(Debug, Clone)]
pub struct Inputs {
    pub(super) variables: Arc<BTreeMap<Text, Text>>,
    /// Lists and objects, only for trying out templates: a row has none.
    pub(super) structured: Arc<Map<String, Json>>,
    pub(super) facts: Arc<Facts>,
    pub(super) limits: Limits,
    pub(super) row: Arc<SharedBudget>,
}

impl Inputs {
    /// Without facts, `now` and random functions return an error.
    pub fn new(
        variables: &BTreeMap<String, String>,
        facts: Option<Arc<Facts>>,
        limits: Limits,
    ) -> Inputs {
        let variables = variables
            .iter()
            .map(|(name, value)| (Arc::from(name.as_bytes()), Arc::from(value.as_bytes())));
        Inputs {
            variables: Arc::new(variables.collect()),
            structured: Arc::default(),
            facts: facts.unwrap_or_else(facts::unknown),
            limits,
            row: row_budget(),
        }
    }

    /// Uses a budget that is shared with the row's other templates.
    pub fn within(mut self, row: &Arc<SharedBudget>) -> Inputs {
        self.row = row.clone();
        self
    }

    pub fn with_facts(mut self, facts: Arc<Facts>) -> Inputs {
        self.facts = facts;
        self
    }

    /// Adds variables of any type, for trying out templates: each is converted as by `fromJson`.
    pub fn with_structured(mut self, values: Map<String, Json>) -> Inputs {
        self.structured = Arc::new(values);
        self
    }

    pub(super) fn has(&self, variable: &str) -> bool {
        self.variables.contains_key(variable.as_bytes()) || self.structured.contains_key(variable)
    }

    /// A dict of its own for every rendering: a template may change it.
    pub(super) fn variables(&self) -> Dict {
        let texts = self.variables.iter();
        let texts = texts.map(|(name, text)| (name.clone(), Value::Str(text.clone())));
        let others = self.structured.iter();
        let others = others.map(|(name, json)| (Arc::from(name.as_bytes()), value(json)));
        Dict::new(texts.chain(others).collect())
    }
}

/// Converts as `fromJson`: every number becomes a float.
pub(super) fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(truth) => Value::Bool(*truth),
        Json::Number(number) => Value::Float(number.as_f64().unwrap_or_default()),
        Json::String(text) => Value::str(text),
        Json::Array(items) => {
            let items = items.iter().map(value).collect();
            Value::List(List::new(Element::Any, items))
        }
        Json::Object(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(name, field)| (Arc::from(name.as_bytes()), value(field)));
            Value::Dict(Dict::new(fields.collect()))
        }
    }
}
