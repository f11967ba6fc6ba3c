//! Runs a parsed template: text, conditions, loops and template calls. Every loop spends steps and every nesting spends depth.

use crate::budget::LimitError;
use crate::context::Context;
use crate::error::TemplateError;
use crate::output::Output;
use crate::quote::quote;
use crate::template::Template;
use crate::template::ast::{Choice, List, Node, Pipe, TemplateCall};
use crate::template::eval::place::Place;
use crate::template::eval::slot::Slot;
use crate::value::Value;

mod call;
mod operand;
mod place;
mod range;
mod slot;

/// Renders the template with `vars`.
pub fn render(
    template: &Template,
    vars: &Value,
    context: &mut Context,
) -> Result<Output, TemplateError> {
    let dot = Slot::plain(vars.clone());
    let mut machine = Machine {
        template,
        context,
        output: Output::default(),
        frame: Frame::new(&template.name, &dot),
    };
    if let Some(root) = template.definitions.get(&template.name) {
        machine.list(root, &dot)?;
    }
    Ok(machine.output)
}

struct Machine<'t, 'c> {
    template: &'t Template,
    context: &'c mut Context,
    output: Output,
    frame: Frame<'t>,
}

/// One running template. A template that is called sees no variables of its caller.
struct Frame<'t> {
    name: &'t str,
    variables: Vec<(&'t str, Slot)>,
    /// The node that is evaluated, for messages.
    at: Place<'t>,
}

impl<'t> Frame<'t> {
    fn new(name: &'t str, dot: &Slot) -> Self {
        Frame {
            name,
            variables: vec![("$", dot.clone())],
            at: Place::Start,
        }
    }
}

/// Where to go on after a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

impl<'t> Machine<'t, '_> {
    fn list(&mut self, list: &'t List, dot: &Slot) -> Result<Flow, TemplateError> {
        for node in &list.nodes {
            let flow = self.node(node, dot)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn node(&mut self, node: &'t Node, dot: &Slot) -> Result<Flow, TemplateError> {
        match node {
            Node::Text(text) => {
                self.frame.at = Place::Text(text);
                self.spend_step()?;
                let budget = &mut self.context.budget;
                let written = self.output.write_text(text.text.as_bytes(), budget);
                written.map_err(|limit| self.limit(limit))?;
            }
            Node::Action(pipe) => self.action(pipe, dot)?,
            Node::If(choice) => return self.choice(choice, false, dot),
            Node::With(choice) => return self.choice(choice, true, dot),
            Node::Range(range) => return self.range(range, dot),
            Node::Template(call) => self.call_template(call, dot)?,
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    /// Writes the pipeline's value, unless the pipeline sets variables. Those live on to the end of the block.
    fn action(&mut self, pipe: &'t Pipe, dot: &Slot) -> Result<(), TemplateError> {
        let value = self.pipeline(pipe, dot)?;
        if pipe.assignment.is_some() {
            return Ok(());
        }
        self.frame.at = Place::Pipe(pipe);
        let written = self.output.write_value(&value, &mut self.context.budget);
        written.map_err(|limit| self.limit(limit))
    }

    /// `if`; or `with`, which also moves the dot (`moves_dot`).
    fn choice(
        &mut self,
        choice: &'t Choice,
        moves_dot: bool,
        dot: &Slot,
    ) -> Result<Flow, TemplateError> {
        self.enter()?;
        let mark = self.frame.variables.len();
        let flow = self.chosen(choice, moves_dot, dot)?;
        self.frame.variables.truncate(mark);
        self.leave();
        Ok(flow)
    }

    fn chosen(
        &mut self,
        choice: &'t Choice,
        moves_dot: bool,
        dot: &Slot,
    ) -> Result<Flow, TemplateError> {
        for arm in &choice.arms {
            let value = self.pipeline(&arm.pipe, dot)?;
            if !value.truth() {
                continue;
            }
            return if moves_dot {
                self.list(&arm.body, &Slot::plain(value))
            } else {
                self.list(&arm.body, dot)
            };
        }
        match &choice.otherwise {
            Some(list) => self.list(list, dot),
            None => Ok(Flow::Next),
        }
    }

    /// Without a pipeline, the called template's dot is nil, not the caller's.
    fn call_template(&mut self, call: &'t TemplateCall, dot: &Slot) -> Result<(), TemplateError> {
        self.frame.at = Place::Call(call);
        let template = self.template;
        let Some((name, body)) = template.definitions.get_key_value(&call.name) else {
            let quoted = quote(call.name.as_bytes());
            return Err(self.fail(format!("template {quoted} not defined")));
        };
        self.spend_step()?;
        self.enter()?;
        let value = match &call.pipe {
            Some(pipe) => self.pipeline(pipe, dot)?,
            None => Value::Nil,
        };
        let dot = Slot::plain(value);
        let caller = std::mem::replace(&mut self.frame, Frame::new(name, &dot));
        self.list(body, &dot)?;
        self.frame = caller;
        self.leave();
        Ok(())
    }

    /// The value of a pipeline, after its variables are set.
    fn pipeline(&mut self, pipe: &'t Pipe, dot: &Slot) -> Result<Value, TemplateError> {
        self.frame.at = Place::Pipe(pipe);
        self.spend_step()?;
        let mut piped = None;
        for command in &pipe.commands {
            piped = Some(self.command(command, dot, piped)?.value);
        }
        let value = piped.unwrap_or(Value::Nil);
        if let Some(assignment) = &pipe.assignment {
            for name in &assignment.names {
                let slot = Slot::plain(value.clone());
                if assignment.declares {
                    self.frame.variables.push((name, slot));
                } else {
                    self.assign(name, slot)?;
                }
            }
        }
        Ok(value)
    }

    /// Changes the innermost variable of that name.
    fn assign(&mut self, name: &str, slot: Slot) -> Result<(), TemplateError> {
        let index = self.find_variable(name)?;
        self.frame.variables[index].1 = slot;
        Ok(())
    }

    /// The parser knows the name, but its declaration may stand in a branch that did not run.
    fn find_variable(&mut self, name: &str) -> Result<usize, TemplateError> {
        let variables = &self.frame.variables;
        let found = variables.iter().rposition(|(known, _)| *known == name);
        let looked_at = variables.len() - found.unwrap_or(0);
        self.spend_steps(looked_at as u64 / 64)?;
        found.ok_or_else(|| self.fail(format!("undefined variable: {name}")))
    }

    fn spend_step(&mut self) -> Result<(), TemplateError> {
        self.spend_steps(1)
    }

    fn spend_steps(&mut self, count: u64) -> Result<(), TemplateError> {
        let spent = self.context.budget.spend_steps(count);
        spent.map_err(|limit| self.limit(limit))
    }

    fn enter(&mut self) -> Result<(), TemplateError> {
        let entered = self.context.budget.enter();
        entered.map_err(|limit| self.limit(limit))
    }

    fn leave(&mut self) {
        self.context.budget.leave();
    }

    /// An error at the current place.
    fn fail(&self, message: String) -> TemplateError {
        let template = self.template;
        let (line, column) = template.line_and_column(self.frame.at.pos());
        let frame = quote(self.frame.name.as_bytes());
        let place = match self.frame.at.source() {
            Some(source) => format!("executing {frame} at <{source}>"),
            None => format!("executing {frame}"),
        };
        TemplateError {
            template: template.name.clone(),
            line: u32::try_from(line).ok(),
            column: u32::try_from(column).ok(),
            message: format!(
                "template: {}:{line}:{column}: {place}: {message}",
                template.name
            ),
            limit: None,
            unknown_function: None,
        }
    }

    fn limit(&self, limit: LimitError) -> TemplateError {
        TemplateError {
            limit: Some(limit.limit()),
            ..self.fail(limit.to_string())
        }
    }
}
