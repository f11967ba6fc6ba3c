//! A manifest as a tree of parsed templates: each text of it is rendered to a text, a number or a boolean, as Lynq does.

use serde_json::Value;

use crate::decide::hub::render::FormError;
use crate::decide::template::{Inputs, Template};

/// A manifest whose strings are parsed templates.
pub enum Tree {
    Fixed(Value),
    Text {
        template: Template,
        path: String,
        keep_text: bool,
    },
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

/// The position of a value in a manifest.
struct Position<'a> {
    path: String,
    key: &'a str,
    parent: &'a str,
    /// Whether `data` and its like hold texts only: in a ConfigMap and a Secret.
    keeps_data: bool,
}

impl Position<'_> {
    /// Fields that stay text though their template writes a number or a boolean (Lynq's list).
    fn keep_text(&self) -> bool {
        matches!(self.key, "apiVersion" | "kind")
            || matches!(
                self.parent,
                "annotations" | "labels" | "matchLabels" | "nodeSelector"
            )
            || (self.keeps_data && matches!(self.parent, "data" | "binaryData" | "stringData"))
    }
}

/// Parses the text at this path.
pub type Parse<'a> = dyn Fn(&str, &str) -> Result<Template, FormError> + 'a;

impl Tree {
    /// The manifest is a resource's `spec`.
    pub fn of_manifest(manifest: &Value, kind: &str, parse: &Parse) -> Result<Tree, FormError> {
        let position = Position {
            path: "spec".to_owned(),
            key: "",
            parent: "",
            keeps_data: matches!(kind, "ConfigMap" | "Secret"),
        };
        Tree::parse(manifest, &position, parse)
    }

    fn parse(value: &Value, position: &Position, parse: &Parse) -> Result<Tree, FormError> {
        Ok(match value {
            Value::String(text) => {
                let template = parse(&position.path, text)?;
                if template.is_plain() {
                    return Ok(Tree::Fixed(value.clone()));
                }
                Tree::Text {
                    template,
                    path: position.path.clone(),
                    keep_text: position.keep_text(),
                }
            }
            Value::Array(items) => {
                let at = |i: usize| Position {
                    path: format!("{}[{i}]", position.path),
                    ..*position
                };
                Tree::List(
                    items
                        .iter()
                        .enumerate()
                        .map(|(i, item)| Tree::parse(item, &at(i), parse))
                        .collect::<Result<_, _>>()?,
                )
            }
            Value::Object(fields) => {
                let at = |key: &'_ String| format!("{}.{key}", position.path);
                let parsed = fields.iter().map(|(key, item)| {
                    let inner = Position {
                        path: at(key),
                        key,
                        parent: position.key,
                        keeps_data: position.keeps_data,
                    };
                    Ok((key.clone(), Tree::parse(item, &inner, parse)?))
                });
                Tree::Map(parsed.collect::<Result<_, FormError>>()?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Tree::Fixed(value.clone()),
        })
    }

    /// The form's own text in labels, and in the keys of labels and annotations.
    pub fn said(&self) -> Vec<&str> {
        match self {
            Tree::Text { .. } => Vec::new(),
            Tree::Fixed(value) => said_in(value),
            Tree::List(items) => items.iter().flat_map(Tree::said).collect(),
            Tree::Map(fields) => {
                let found = fields.iter().map(|(key, item)| match (key.as_str(), item) {
                    ("labels" | "annotations", Tree::Map(all)) => {
                        let names = all.iter().map(|(name, _)| name.as_str());
                        let labels = all.iter().filter(|_| key == "labels");
                        names
                            .chain(labels.filter_map(|(_, label)| label.text()))
                            .collect()
                    }
                    (key, Tree::Fixed(value)) => said_at(key, value),
                    _ => item.said(),
                });
                found.flatten().collect()
            }
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Tree::Fixed(value) => value.as_str(),
            Tree::Text { template, .. } => Some(template.text()),
            Tree::List(_) | Tree::Map(_) => None,
        }
    }

    pub fn render(&self, inputs: &Inputs) -> Result<Value, String> {
        Ok(match self {
            Tree::Fixed(value) => value.clone(),
            Tree::Text {
                template,
                path,
                keep_text,
            } => template
                .render_publicly(inputs, path)?
                .into_leaf(*keep_text),
            Tree::List(items) => Value::Array(
                items
                    .iter()
                    .map(|item| item.render(inputs))
                    .collect::<Result<_, _>>()?,
            ),
            Tree::Map(fields) => {
                let rendered = fields
                    .iter()
                    .map(|(key, item)| Ok((key.clone(), item.render(inputs)?)));
                Value::Object(rendered.collect::<Result<_, String>>()?)
            }
        })
    }
}
fn said_in(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(items) => items.iter().flat_map(said_in).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            fields
                .flat_map(|(key, value)| said_at(key, value))
                .collect()
        }
        _ => Vec::new(),
    }
}

fn said_at<'a>(key: &str, value: &'a Value) -> Vec<&'a str> {
    match (key, value) {
        ("labels" | "annotations", Value::Object(all)) => {
            let names = all.keys().map(String::as_str);
            let labels = all.values().filter(|_| key == "labels");
            names.chain(labels.filter_map(Value::as_str)).collect()
        }
        _ => said_in(value),
    }
}
