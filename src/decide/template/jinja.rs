//! Jinja, by minijinja, with the functions and limits of Go's templates. A template cannot include another one.

mod convert;
mod guard;
mod library;
mod meter;
mod operators;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use go_templates::value::Typed;
use go_templates::{Context, LimitError, TemplateError};
use minijinja::machinery::{Instruction, eval, get_compiled_template, make_string_output};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};

use crate::decide::template::{Inputs, inputs};

use meter::Meter;

/// The instructions of one rendering; function calls additionally spend steps of the budget.
const FUEL_MAX: u64 = 50_000;
/// The steps that each rendering costs, because minijinja does not report its instructions. If every text of a row spends all its
/// instructions, the row's budget ends after about a second.
const STEPS_EACH: u64 = 500;
/// The depth of nested macros and recursive loops.
const CALLS_MAX: u32 = 50;

/// What all templates share: functions, filters, and the output of values.
static LIBRARY: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL_MAX));
    environment.set_recursion_limit(CALLS_MAX as usize);
    // So that errors say what is undefined. They then also contain the row's values: show only their kind, detail and place.
    environment.set_debug(true);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    // Cannot fail: these are the default delimiters.
    if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
        environment.set_syntax(syntax);
    }
    library::add_to(&mut environment);
    environment
});

/// A parsed template.
#[derive(Debug)]
pub struct Template {
    name: String,
    environment: Environment<'static>,
}

impl Template {
    pub fn parse(name: &str, text: &str) -> Result<Template, TemplateError> {
        guard::check(text, LIBRARY.syntax()).map_err(|refusal| {
            let (line, column) = (refusal.line, column(text, refusal.offset));
            TemplateError {
                template: name.to_owned(),
                line: Some(line),
                column: Some(column),
                message: format!("template: {name}:{line}:{column}: {}", refusal.message),
                limit: None,
                unknown_function: None,
            }
        })?;
        let mut environment = LIBRARY.clone();
        environment
            .add_template_owned(name.to_owned(), text.to_owned())
            .map_err(|error| described(name, text, &error, None, None))?;
        Ok(Template {
            name: name.to_owned(),
            environment,
        })
    }

    /// The text, and the typed value if it is all that was written.
    pub fn render(
        &self,
        inputs: &Inputs,
        context: Context,
    ) -> Result<(String, Option<Typed>), TemplateError> {
        let meter = Meter::new(context);
        let mut text = String::new();
        let begun = meter.spend(|budget| budget.spend_steps(STEPS_EACH));
        match begun.and_then(|()| self.run(inputs, &meter, &mut text)) {
            Ok(()) => {
                let typed = meter.typed_output(&text);
                Ok((text, typed))
            }
            Err(error) => {
                let detail = match error.kind() {
                    ErrorKind::UndefinedError => self.undefined(inputs, &error, meter.missed()),
                    _ => None,
                };
                let template = self.environment.get_template(&self.name);
                let source = template.as_ref().map_or("", |template| template.source());
                let limit = meter.limit();
                Err(described(&self.name, source, &error, limit, detail))
            }
        }
    }

    fn run(&self, inputs: &Inputs, meter: &Meter, text: &mut String) -> Result<(), Error> {
        let template = self.environment.get_template(&self.name)?;
        let compiled = get_compiled_template(&template);
        let instructions = guard::guarded(&compiled.instructions)?;
        let texts = inputs.variables.iter().map(|(name, value)| {
            let name = String::from_utf8_lossy(name).into_owned();
            (name, Value::from(String::from_utf8_lossy(value).as_ref()))
        });
        let mut variables: BTreeMap<String, Value> = texts.collect();
        for (name, value) in inputs.structured.iter() {
            let value = convert::to_jinja(&inputs::value(value), meter)?;
            variables.insert(name.clone(), value);
        }
        let root = variables
            .into_iter()
            .chain([(meter::NAME.to_owned(), Value::from_object(meter.clone()))]);
        eval(
            &self.environment,
            &instructions,
            Value::from_pairs(root),
            &BTreeMap::new(),
            &mut make_string_output(text),
            AutoEscape::None,
        )?;
        Ok(())
    }

    /// What is undefined, and the function that got it.
    fn undefined(&self, inputs: &Inputs, error: &Error, function: Option<&str>) -> Option<String> {
        let named = |detail: &str| match detail.strip_prefix('`')?.rsplit_once("` is undefined")? {
            (name, _) if !name.contains(['.', '[']) => Some(format!("the row has no {name}")),
            (path, from) => Some(format!("{}{from}", readable(path))),
        };
        let what = match error.detail() {
            None => self.missing(inputs),
            Some(detail) => named(detail).or_else(|| function.map(|_| detail.to_owned())),
        };
        let call = function.map(|name| format!("error calling {name}: an argument is undefined"));
        let all = Vec::from_iter([call, what].into_iter().flatten());
        (!all.is_empty()).then(|| all.join(": "))
    }

    /// Variables of the template that the row lacks.
    fn missing(&self, inputs: &Inputs) -> Option<String> {
        let template = self.environment.get_template(&self.name).ok()?;
        let declared_nowhere = template.undeclared_variables(false);
        let instructions = &get_compiled_template(&template).instructions;
        let instructions = (0..).map_while(|at| instructions.get(at));
        let unknown: BTreeSet<&str> = instructions
            .filter_map(|instruction| match instruction {
                Instruction::Lookup(name) => Some(*name),
                _ => None,
            })
            .filter(|name| declared_nowhere.contains(*name) && !inputs.has(name))
            .collect();
        if unknown.is_empty() {
            return None;
        }
        let functions = unknown.iter().filter(|name| library::is_function(name));
        let hints =
            functions.map(|name| format!(", and the function {name} is called as {name}(…)"));
        let hints: String = hints.collect();
        let unknown = Vec::from_iter(unknown).join(", ");
        Some(format!("the row has no {unknown}{hints}"))
    }
}

/// minijinja's text for an expression, without the part before a calculated key, which minijinja gets wrong.
fn readable(path: &str) -> String {
    match path.rsplit_once("[...]") {
        Some((_, behind)) => format!("(…)[…]{behind}"),
        None => path.replace("(...)", "(…)"),
    }
}

/// Builds an error whose message says where and what; `detail` replaces minijinja's own detail.
fn described(
    name: &str,
    text: &str,
    error: &Error,
    limit: Option<LimitError>,
    detail: Option<String>,
) -> TemplateError {
    let limit = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => Some(LimitError::Steps(FUEL_MAX)),
        (_, Some("recursion limit exceeded" | "template exceeds maximum recursion limits")) => {
            Some(LimitError::Depth(CALLS_MAX))
        }
        _ => limit,
    };
    let what = match limit {
        Some(limit) => limit.to_string(),
        None => {
            let kind = error.kind().to_string();
            let detail = detail.or_else(|| error.detail().map(str::to_owned));
            Vec::from_iter([Some(kind), detail].into_iter().flatten()).join(": ")
        }
    };
    let line = error.line().and_then(|line| u32::try_from(line).ok());
    let column = error.range().map(|range| column(text, range.start));
    let place = [line, column].into_iter().flatten();
    let place: String = place.map(|number| format!("{number}:")).collect();
    let gap = if place.is_empty() { "" } else { " " };
    TemplateError {
        template: name.to_owned(),
        line,
        column,
        message: format!("template: {name}:{place}{gap}{what}"),
        limit: limit.map(|limit| limit.limit()),
        unknown_function: None,
    }
}

/// In bytes from the start of the line, like Go's.
fn column(text: &str, offset: usize) -> u32 {
    let before = text.get(..offset).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    u32::try_from(before.len() - start).unwrap_or(u32::MAX)
}
