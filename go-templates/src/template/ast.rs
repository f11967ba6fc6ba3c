//! The syntax tree of a parsed template, and how its nodes are written in messages. Decides nothing.

use std::fmt;

use crate::functions::Function;
use crate::quote::quote;
use crate::template::literal::Number;
use crate::value;

/// A sequence of actions and text.
#[derive(Debug, Default)]
pub struct List {
    pub nodes: Vec<Node>,
}

impl List {
    /// Nothing but white space. An empty definition gives way to another of the same name.
    pub fn is_blank(&self) -> bool {
        self.nodes.iter().all(|node| match node {
            Node::Text(text) => text.text.trim().is_empty(),
            _ => false,
        })
    }
}

#[derive(Debug)]
pub enum Node {
    Text(Text),
    /// `{{pipeline}}`
    Action(Pipe),
    If(Choice),
    With(Choice),
    Range(Range),
    Template(TemplateCall),
    Break,
    Continue,
}

#[derive(Debug)]
pub struct Text {
    pub pos: usize,
    pub text: String,
}

/// `if` and `with`. A chain of `else if` is one choice with many arms, so that its length costs no depth.
#[derive(Debug)]
pub struct Choice {
    pub arms: Vec<Arm>,
    pub otherwise: Option<List>,
}

#[derive(Debug)]
pub struct Arm {
    pub pipe: Pipe,
    pub body: List,
}

#[derive(Debug)]
pub struct Range {
    pub pipe: Pipe,
    pub body: List,
    pub otherwise: Option<List>,
}

/// `{{template "name" pipeline}}`; a `block` also becomes one.
#[derive(Debug)]
pub struct TemplateCall {
    pub pos: usize,
    pub name: String,
    pub pipe: Option<Pipe>,
}

/// `$a, $b := command | command`
#[derive(Debug)]
pub struct Pipe {
    pub pos: usize,
    pub assignment: Option<Assignment>,
    pub commands: Vec<Command>,
}

#[derive(Debug)]
pub struct Assignment {
    /// With the dollar sign. At most two, and two only in a `range`.
    pub names: Vec<String>,
    /// `:=` makes variables, `=` changes them.
    pub declares: bool,
}

#[derive(Debug)]
pub struct Command {
    pub pos: usize,
    /// The function or value of the command.
    pub first: Operand,
    pub args: Vec<Operand>,
}

#[derive(Debug)]
pub struct Operand {
    pub pos: usize,
    pub term: Term,
}

#[derive(Debug)]
pub enum Term {
    Dot,
    Nil,
    Bool(bool),
    Number(Number),
    Quoted(Quoted),
    Function(Callee),
    /// `.a.b`
    Field(Vec<String>),
    /// `$x.a.b`
    Variable {
        name: String,
        fields: Vec<String>,
    },
    /// `(pipeline)`
    Pipe(Box<Pipe>),
    /// `(pipeline).a.b` or `function.a.b`
    Chain {
        base: Box<Operand>,
        fields: Vec<String>,
    },
}

#[derive(Debug)]
pub struct Quoted {
    /// As written, with its quotes, for messages.
    pub source: String,
    pub text: value::Text,
}

/// The meaning of a name in command position.
pub enum Callee {
    And,
    Or,
    Library(Box<Function>),
}

impl Callee {
    pub fn name(&self) -> &'static str {
        match self {
            Callee::And => "and",
            Callee::Or => "or",
            Callee::Library(function) => function.name,
        }
    }
}

impl fmt::Debug for Callee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for TemplateCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{{template {}", quote(self.name.as_bytes()))?;
        if let Some(pipe) = &self.pipe {
            write!(f, " {pipe}")?;
        }
        f.write_str("}}")
    }
}

impl fmt::Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(assignment) = &self.assignment {
            f.write_str(&assignment.names.join(", "))?;
            f.write_str(if assignment.declares { " := " } else { " = " })?;
        }
        for (index, command) in self.commands.iter().enumerate() {
            let separator = if index == 0 { "" } else { " | " };
            write!(f, "{separator}{command}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_operand(f, &self.first)?;
        self.args.iter().try_for_each(|operand| {
            f.write_str(" ")?;
            write_operand(f, operand)
        })
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.term {
            Term::Dot => f.write_str("."),
            Term::Nil => f.write_str("nil"),
            Term::Bool(value) => write!(f, "{value}"),
            Term::Number(number) => f.write_str(&number.text),
            Term::Quoted(quoted) => f.write_str(&quoted.source),
            Term::Function(callee) => f.write_str(callee.name()),
            Term::Field(fields) => write_fields(f, fields),
            Term::Variable { name, fields } => {
                f.write_str(name)?;
                write_fields(f, fields)
            }
            Term::Pipe(pipe) => write!(f, "{pipe}"),
            Term::Chain { base, fields } => {
                write_operand(f, base)?;
                write_fields(f, fields)
            }
        }
    }
}

/// A pipeline has parentheses only inside another node.
fn write_operand(f: &mut fmt::Formatter<'_>, operand: &Operand) -> fmt::Result {
    match operand.term {
        Term::Pipe(_) => write!(f, "({operand})"),
        _ => write!(f, "{operand}"),
    }
}

fn write_fields(f: &mut fmt::Formatter<'_>, fields: &[String]) -> fmt::Result {
    fields.iter().try_for_each(|field| write!(f, ".{field}"))
}
