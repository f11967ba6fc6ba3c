//! Text to syntax tree: actions, blocks and definitions, as strict as Go's parser and with its messages. Evaluates nothing.

use std::collections::BTreeMap;

use crate::budget::{DEPTH_MAX, LimitError};
use crate::error::TemplateError;
use crate::library::Library;
use crate::quote::quote;
use crate::template::ast::{Arm, Choice, List, Node, Range, TemplateCall, Text};
use crate::template::lex::{Keyword, Kind, Token};
use crate::template::literal::unquote;
use crate::template::parse::tokens::Tokens;
use crate::template::parse::variables::Variables;

mod pipeline;
mod tokens;
mod variables;

/// Every template that `text` defines, with `name` itself for what stands outside of definitions.
pub fn parse(
    library: &Library,
    name: &str,
    text: &str,
) -> Result<BTreeMap<String, List>, TemplateError> {
    let mut parser = Parser {
        library,
        name,
        tokens: Tokens::new(text),
        scope: Scope::default(),
        depth: 0,
        definitions: BTreeMap::new(),
    };
    let root = parser.root()?;
    parser.define(name.to_owned(), root)?;
    Ok(parser.definitions)
}

struct Parser<'t> {
    library: &'t Library,
    name: &'t str,
    tokens: Tokens<'t>,
    scope: Scope<'t>,
    /// The number of open blocks and parentheses.
    depth: u32,
    definitions: BTreeMap<String, List>,
}

/// The part of the state that a definition does not share with the surrounding template.
#[derive(Default)]
struct Scope<'t> {
    variables: Variables<'t>,
    /// Ranges around the current place: `break` needs one.
    ranges: u32,
    /// Where the action being read began, for messages; 0 between actions.
    action_line: usize,
}

/// A node, or what ends a list.
enum Item {
    Node(Node),
    End,
    Else,
}

/// What ended a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closer {
    End,
    Else,
}

impl Closer {
    fn source(self) -> &'static str {
        match self {
            Closer::End => "{{end}}",
            Closer::Else => "{{else}}",
        }
    }
}

/// `if` and `with` differ in their keyword only.
#[derive(Clone, Copy)]
enum Condition {
    If,
    With,
}

impl Condition {
    fn keyword(self) -> Keyword {
        match self {
            Condition::If => Keyword::If,
            Condition::With => Keyword::With,
        }
    }

    fn context(self) -> &'static str {
        match self {
            Condition::If => "if",
            Condition::With => "with",
        }
    }

    fn node(self, choice: Choice) -> Node {
        match self {
            Condition::If => Node::If(choice),
            Condition::With => Node::With(choice),
        }
    }
}

impl<'t> Parser<'t> {
    /// Parses the whole text. Templates may be defined only at this level.
    fn root(&mut self) -> Result<List, TemplateError> {
        let mut list = List::default();
        while self.tokens.peek().kind != Kind::End {
            if self.tokens.peek().kind == Kind::LeftDelim {
                let delim = self.tokens.next();
                let token = self.tokens.next_solid();
                if token.kind == Kind::Keyword(Keyword::Define) {
                    self.definition()?;
                    continue;
                }
                self.tokens.put_back(token);
                self.tokens.put_back(delim);
            }
            match self.item()? {
                Item::Node(node) => list.nodes.push(node),
                Item::End => return Err(self.stray(Closer::End)),
                Item::Else => return Err(self.stray(Closer::Else)),
            }
        }
        Ok(list)
    }

    /// `{{define "name"}} list {{end}}`, behind the keyword.
    fn definition(&mut self) -> Result<(), TemplateError> {
        const CONTEXT: &str = "define clause";
        let outer = std::mem::take(&mut self.scope);
        let token = self.tokens.next_solid();
        let name = self.template_name(token, CONTEXT)?;
        self.expect(Kind::RightDelim, CONTEXT)?;
        let (body, closer) = self.list()?;
        if closer != Closer::End {
            return Err(self.error(format!("unexpected {} in {CONTEXT}", closer.source())));
        }
        self.scope = outer;
        self.define(name, body)
    }

    fn define(&mut self, name: String, body: List) -> Result<(), TemplateError> {
        match self.definitions.get(&name) {
            Some(old) if !old.is_blank() => {
                if body.is_blank() {
                    return Ok(());
                }
                let quoted = quote(name.as_bytes());
                Err(self.error(format!(
                    "template: multiple definition of template {quoted}"
                )))
            }
            _ => {
                self.definitions.insert(name, body);
                Ok(())
            }
        }
    }

    /// Everything up to the `end` or `else` that belongs to the block around it.
    fn list(&mut self) -> Result<(List, Closer), TemplateError> {
        let mut list = List::default();
        while self.tokens.peek_solid().kind != Kind::End {
            match self.item()? {
                Item::Node(node) => list.nodes.push(node),
                Item::End => return Ok((list, Closer::End)),
                Item::Else => return Ok((list, Closer::Else)),
            }
        }
        Err(self.error("unexpected EOF".to_owned()))
    }

    fn item(&mut self) -> Result<Item, TemplateError> {
        let token = self.tokens.next_solid();
        match token.kind {
            Kind::Text => Ok(Item::Node(Node::Text(Text {
                pos: token.pos,
                text: token.text.to_owned(),
            }))),
            Kind::LeftDelim => {
                self.scope.action_line = token.line;
                let item = self.action();
                if item.is_ok() {
                    self.scope.action_line = 0;
                }
                item
            }
            _ => Err(self.unexpected(token, "input")),
        }
    }

    /// Parses after a left delimiter.
    fn action(&mut self) -> Result<Item, TemplateError> {
        let token = self.tokens.next_solid();
        let Kind::Keyword(keyword) = token.kind else {
            return self.plain_action(token);
        };
        match keyword {
            Keyword::End => {
                self.expect(Kind::RightDelim, "end")?;
                Ok(Item::End)
            }
            Keyword::Else => self.otherwise(),
            Keyword::If => self.choice(Condition::If).map(Item::Node),
            Keyword::With => self.choice(Condition::With).map(Item::Node),
            Keyword::Range => self.range().map(Item::Node),
            Keyword::Break => self.jump("{{break}}", Node::Break).map(Item::Node),
            Keyword::Continue => self.jump("{{continue}}", Node::Continue).map(Item::Node),
            Keyword::Block => self.block().map(Item::Node),
            Keyword::Template => self.template_call().map(Item::Node),
            Keyword::Define | Keyword::Dot | Keyword::Nil => self.plain_action(token),
        }
    }

    fn plain_action(&mut self, first: Token<'t>) -> Result<Item, TemplateError> {
        self.tokens.put_back(first);
        let pipe = self.pipeline("command", Kind::RightDelim)?;
        Ok(Item::Node(Node::Action(pipe)))
    }

    /// Consumes the delimiter after `else`; leaves the second word of `else if` and `else with` to the enclosing block.
    fn otherwise(&mut self) -> Result<Item, TemplateError> {
        let next = self.tokens.peek_solid().kind;
        if !matches!(next, Kind::Keyword(Keyword::If | Keyword::With)) {
            self.expect(Kind::RightDelim, "else")?;
        }
        Ok(Item::Else)
    }

    /// `if` or `with`, behind the keyword, with all of its `else if` or `else with`.
    ///
    /// Variables live until the `end`, so that later arms see those of earlier ones.
    fn choice(&mut self, condition: Condition) -> Result<Node, TemplateError> {
        self.enter()?;
        let mark = self.scope.variables.mark();
        let mut choice = Choice {
            arms: Vec::new(),
            otherwise: None,
        };
        loop {
            let pipe = self.pipeline(condition.context(), Kind::RightDelim)?;
            let (body, closer) = self.list()?;
            choice.arms.push(Arm { pipe, body });
            if closer == Closer::End {
                break;
            }
            if self.tokens.peek().kind == Kind::Keyword(condition.keyword()) {
                self.tokens.next();
                continue;
            }
            choice.otherwise = Some(self.last_list()?);
            break;
        }
        self.scope.variables.forget_since(mark);
        self.leave();
        Ok(condition.node(choice))
    }

    /// The list behind an `else`, which only `end` may close.
    fn last_list(&mut self) -> Result<List, TemplateError> {
        match self.list()? {
            (list, Closer::End) => Ok(list),
            (_, closer) => Err(self.error(format!("expected end; found {}", closer.source()))),
        }
    }

    /// `range`, behind the keyword.
    fn range(&mut self) -> Result<Node, TemplateError> {
        self.enter()?;
        let mark = self.scope.variables.mark();
        let pipe = self.pipeline("range", Kind::RightDelim)?;
        self.scope.ranges += 1;
        let (body, closer) = self.list()?;
        self.scope.ranges -= 1;
        let otherwise = match closer {
            Closer::End => None,
            Closer::Else => Some(self.last_list()?),
        };
        self.scope.variables.forget_since(mark);
        self.leave();
        Ok(Node::Range(Range {
            pipe,
            body,
            otherwise,
        }))
    }

    /// `break` and `continue`, behind the keyword.
    fn jump(&mut self, source: &str, node: Node) -> Result<Node, TemplateError> {
        self.expect(Kind::RightDelim, source)?;
        if self.scope.ranges == 0 {
            return Err(self.error(format!("{source} outside {{{{range}}}}")));
        }
        Ok(node)
    }

    /// `{{block "name" pipeline}} list {{end}}`, behind the keyword: a definition and a call of it.
    fn block(&mut self) -> Result<Node, TemplateError> {
        const CONTEXT: &str = "block clause";
        self.enter()?;
        let token = self.tokens.next_solid();
        let name = self.template_name(token, CONTEXT)?;
        let pipe = self.pipeline(CONTEXT, Kind::RightDelim)?;
        let clause_line = self.tokens.newest_line();
        let outer = std::mem::take(&mut self.scope);
        let (body, closer) = self.list()?;
        if closer != Closer::End {
            // Go's parser of the outer template has seen no more than the clause.
            let message = format!("unexpected {} in {CONTEXT}", closer.source());
            return Err(self.error_on(clause_line, message));
        }
        self.define(name.clone(), body)?;
        self.scope = outer;
        self.leave();
        Ok(Node::Template(TemplateCall {
            pos: token.pos,
            name,
            pipe: Some(pipe),
        }))
    }

    /// `{{template "name" pipeline}}`, behind the keyword; the pipeline may be absent.
    fn template_call(&mut self) -> Result<Node, TemplateError> {
        const CONTEXT: &str = "template clause";
        let token = self.tokens.next_solid();
        let name = self.template_name(token, CONTEXT)?;
        let next = self.tokens.next_solid();
        let pipe = if next.kind == Kind::RightDelim {
            None
        } else {
            self.tokens.put_back(next);
            Some(self.pipeline(CONTEXT, Kind::RightDelim)?)
        };
        Ok(Node::Template(TemplateCall {
            pos: token.pos,
            name,
            pipe,
        }))
    }

    fn template_name(&self, token: Token<'t>, context: &str) -> Result<String, TemplateError> {
        if !matches!(token.kind, Kind::String | Kind::RawString) {
            return Err(self.unexpected(token, context));
        }
        let bytes = unquote(token.text).map_err(|message| self.error(message.to_owned()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn expect(&mut self, kind: Kind, context: &str) -> Result<Token<'t>, TemplateError> {
        let token = self.tokens.next_solid();
        if token.kind != kind {
            return Err(self.unexpected(token, context));
        }
        Ok(token)
    }

    /// One block or parenthesis deeper.
    fn enter(&mut self) -> Result<(), TemplateError> {
        if self.depth == DEPTH_MAX {
            let limit = LimitError::Depth(DEPTH_MAX);
            return Err(TemplateError {
                limit: Some(limit.limit()),
                ..self.error(limit.to_string())
            });
        }
        self.depth += 1;
        Ok(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    fn stray(&self, closer: Closer) -> TemplateError {
        self.error(format!("unexpected {}", closer.source()))
    }

    fn unexpected(&self, token: Token<'t>, context: &str) -> TemplateError {
        if !matches!(token.kind, Kind::Error(_)) {
            return self.error(format!("unexpected {token} in {context}"));
        }
        let mut message = token.to_string();
        let action_line = self.scope.action_line;
        if action_line != 0 && action_line != token.line {
            if !message.ends_with(" action") {
                message.push_str(" in action");
            }
            message.push_str(&format!(" started at {}:{action_line}", self.name));
        }
        self.error(message)
    }

    fn error(&self, message: String) -> TemplateError {
        self.error_on(self.tokens.newest_line(), message)
    }

    fn error_on(&self, line: usize, message: String) -> TemplateError {
        TemplateError {
            template: self.name.to_owned(),
            line: u32::try_from(line).ok(),
            column: None,
            message: format!("template: {}:{line}: {message}", self.name),
            limit: None,
            unknown_function: None,
        }
    }
}
