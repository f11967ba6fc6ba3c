//! Jinja, by minijinja, over the shared function table.

use crate::decide::template::functions::Context;
use crate::decide::template::value::Typed;
use crate::decide::template::{Inputs, TemplateError};

#[derive(Debug)]
pub struct Template;

impl Template {
    pub fn parse(_: &str, _: &str) -> Result<Template, TemplateError> {
        Ok(Template)
    }

    pub fn render(&self, _: &Inputs, _: Context) -> Result<(String, Option<Typed>), TemplateError> {
        Ok((String::new(), None))
    }
}
