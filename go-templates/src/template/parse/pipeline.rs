//! Pipelines, commands and operands: what stands inside an action. Knows no blocks.

use crate::error::TemplateError;
use crate::quote::quote;
use crate::template::ast::{Assignment, Callee, Command, Operand, Pipe, Quoted, Term};
use crate::template::lex::{Keyword, Kind, Token};
use crate::template::literal;
use crate::template::parse::Parser;
use crate::value::Text;

impl<'t> Parser<'t> {
    /// `$x, $y := command | command` up to and with the token `end`. `context` is for messages, and `range` may
    /// declare two variables.
    pub(super) fn pipeline(&mut self, context: &str, end: Kind) -> Result<Pipe, TemplateError> {
        let pos = self.tokens.peek_solid().pos;
        let assignment = self.assignment(context)?;
        let mut commands = Vec::new();
        loop {
            let token = self.tokens.next_solid();
            match token.kind {
                kind if kind == end => break,
                Kind::Bool
                | Kind::Char
                | Kind::Complex
                | Kind::Field
                | Kind::Identifier
                | Kind::Keyword(Keyword::Dot | Keyword::Nil)
                | Kind::LeftParen
                | Kind::Number
                | Kind::RawString
                | Kind::String
                | Kind::Variable => {
                    self.tokens.put_back(token);
                    commands.push(self.command()?);
                }
                _ => return Err(self.unexpected(token, context)),
            }
        }
        self.check_stages(&commands, context)?;
        Ok(Pipe {
            pos,
            assignment,
            commands,
        })
    }

    /// The variables in front of `:=` or `=`, if there are any.
    fn assignment(&mut self, context: &str) -> Result<Option<Assignment>, TemplateError> {
        let mut names = Vec::new();
        let mut declares = true;
        loop {
            let variable = self.tokens.peek_solid();
            if variable.kind != Kind::Variable {
                break;
            }
            self.tokens.next();
            let after = self.tokens.peek();
            let sign = self.tokens.peek_solid();
            let is_comma = sign.kind == Kind::Other && sign.text == ",";
            if !is_comma && !matches!(sign.kind, Kind::Assign | Kind::Declare) {
                // It is an operand: keep the space, which matters.
                if after.kind == Kind::Space {
                    self.tokens.put_back(after);
                }
                self.tokens.put_back(variable);
                break;
            }
            self.tokens.next();
            names.push(variable.text.to_owned());
            self.scope.variables.declare(variable.text);
            if !is_comma {
                declares = sign.kind == Kind::Declare;
                break;
            }
            self.check_second_variable(context, names.len())?;
        }
        let assignment = Assignment { names, declares };
        Ok((!assignment.names.is_empty()).then_some(assignment))
    }

    /// Checks what follows the comma after variable number `count`.
    fn check_second_variable(&mut self, context: &str, count: usize) -> Result<(), TemplateError> {
        if context != "range" || count >= 2 {
            return Err(self.error(format!("too many declarations in {context}")));
        }
        match self.tokens.peek_solid().kind {
            Kind::Variable | Kind::RightDelim | Kind::RightParen => Ok(()),
            _ => Err(self.error("range can only initialize variables".to_owned())),
        }
    }

    /// A pipeline has a command, and only the first one may be a constant.
    fn check_stages(&self, commands: &[Command], context: &str) -> Result<(), TemplateError> {
        if commands.is_empty() {
            return Err(self.error(format!("missing value for {context}")));
        }
        let is_constant = |command: &Command| {
            matches!(
                command.first.term,
                Term::Bool(_) | Term::Dot | Term::Nil | Term::Number(_) | Term::Quoted(_)
            )
        };
        match commands.iter().skip(1).position(is_constant) {
            Some(index) => Err(self.error(format!(
                "non executable command in pipeline stage {}",
                index + 2
            ))),
            None => Ok(()),
        }
    }

    /// Operands up to a pipe, which is taken, or to the end of the pipeline, which is not.
    fn command(&mut self) -> Result<Command, TemplateError> {
        let pos = self.tokens.peek_solid().pos;
        let mut operands = Vec::new();
        loop {
            self.tokens.peek_solid();
            operands.extend(self.operand()?);
            let token = self.tokens.next();
            match token.kind {
                Kind::Space => {}
                Kind::Pipe => break,
                Kind::RightDelim | Kind::RightParen => {
                    self.tokens.put_back(token);
                    break;
                }
                _ => return Err(self.unexpected(token, "operand")),
            }
        }
        let mut operands = operands.into_iter();
        let Some(first) = operands.next() else {
            return Err(self.error("empty command".to_owned()));
        };
        Ok(Command {
            pos,
            first,
            args: operands.collect(),
        })
    }

    /// A term with its fields; None if no operand begins here.
    fn operand(&mut self) -> Result<Option<Operand>, TemplateError> {
        let Some(operand) = self.term()? else {
            return Ok(None);
        };
        let first = self.tokens.peek();
        if first.kind != Kind::Field {
            return Ok(Some(operand));
        }
        let mut added = Vec::new();
        while self.tokens.peek().kind == Kind::Field {
            added.push(field_name(self.tokens.next()));
        }
        let term = match operand.term {
            Term::Field(mut fields) => {
                fields.append(&mut added);
                Term::Field(fields)
            }
            Term::Variable { name, .. } => Term::Variable {
                name,
                fields: added,
            },
            Term::Bool(_) | Term::Quoted(_) | Term::Number(_) | Term::Nil | Term::Dot => {
                let quoted = quote(operand.to_string().as_bytes());
                return Err(self.error(format!("unexpected . after term {quoted}")));
            }
            Term::Function(_) | Term::Pipe(_) | Term::Chain { .. } => Term::Chain {
                base: Box::new(operand),
                fields: added,
            },
        };
        Ok(Some(Operand {
            pos: first.pos,
            term,
        }))
    }

    fn term(&mut self) -> Result<Option<Operand>, TemplateError> {
        let token = self.tokens.next_solid();
        let term = match token.kind {
            Kind::Identifier => self.function(token)?,
            Kind::Keyword(Keyword::Dot) => Term::Dot,
            Kind::Keyword(Keyword::Nil) => Term::Nil,
            Kind::Variable => self.variable(token)?,
            Kind::Field => Term::Field(vec![field_name(token)]),
            Kind::Bool => Term::Bool(token.text == "true"),
            Kind::Char => self.number(literal::character(token.text))?,
            Kind::Complex => return Err(self.error(literal::imaginary(token.text))),
            Kind::Number => self.number(literal::number(token.text))?,
            Kind::LeftParen => {
                self.enter()?;
                let pipe = self.pipeline("parenthesized pipeline", Kind::RightParen)?;
                self.leave();
                return Ok(Some(Operand {
                    pos: pipe.pos,
                    term: Term::Pipe(Box::new(pipe)),
                }));
            }
            Kind::String | Kind::RawString => {
                let bytes = literal::unquote(token.text)
                    .map_err(|message| self.error(message.to_owned()))?;
                Term::Quoted(Quoted {
                    source: token.text.to_owned(),
                    text: Text::from(bytes),
                })
            }
            _ => {
                self.tokens.put_back(token);
                return Ok(None);
            }
        };
        Ok(Some(Operand {
            pos: token.pos,
            term,
        }))
    }

    fn function(&self, token: Token<'t>) -> Result<Term, TemplateError> {
        let callee = match (token.text, self.library.get(token.text)) {
            ("and", _) => Callee::And,
            ("or", _) => Callee::Or,
            (_, Some(function)) => Callee::Library(Box::new(*function)),
            (name, None) => return Err(self.no_function(name)),
        };
        Ok(Term::Function(callee))
    }

    fn no_function(&self, name: &str) -> TemplateError {
        match self.library.refusal(name) {
            Some(refusal) => self.error(refusal.to_owned()),
            None => TemplateError {
                unknown_function: Some(name.to_owned()),
                ..self.error(format!("function {} not defined", quote(name.as_bytes())))
            },
        }
    }

    fn variable(&self, token: Token<'t>) -> Result<Term, TemplateError> {
        if !self.scope.variables.contains(token.text) {
            let quoted = quote(token.text.as_bytes());
            return Err(self.error(format!("undefined variable {quoted}")));
        }
        Ok(Term::Variable {
            name: token.text.to_owned(),
            fields: Vec::new(),
        })
    }

    fn number(&self, number: Result<literal::Number, String>) -> Result<Term, TemplateError> {
        number
            .map(Term::Number)
            .map_err(|message| self.error(message))
    }
}

/// `.name` without the point.
fn field_name(token: Token<'_>) -> String {
    token.text[1..].to_owned()
}
