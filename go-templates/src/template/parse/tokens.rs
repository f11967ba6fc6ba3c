//! The parser's view of the tokens: looking ahead and putting back. Skips nothing but spaces.

use crate::template::lex::{Kind, Lexer, Token};

pub struct Tokens<'t> {
    lexer: Lexer<'t>,
    /// Tokens that were put back, the next one last.
    ahead: Vec<Token<'t>>,
    newest_line: usize,
}

impl<'t> Tokens<'t> {
    pub fn new(text: &'t str) -> Self {
        Tokens {
            lexer: Lexer::new(text),
            ahead: Vec::new(),
            newest_line: 1,
        }
    }

    pub fn next(&mut self) -> Token<'t> {
        if let Some(token) = self.ahead.pop() {
            return token;
        }
        let token = self.lexer.next_token();
        self.newest_line = token.line;
        token
    }

    pub fn put_back(&mut self, token: Token<'t>) {
        self.ahead.push(token);
    }

    pub fn peek(&mut self) -> Token<'t> {
        let token = self.next();
        self.put_back(token);
        token
    }

    /// The next token that is no space.
    pub fn next_solid(&mut self) -> Token<'t> {
        loop {
            let token = self.next();
            if token.kind != Kind::Space {
                return token;
            }
        }
    }

    /// As `next_solid`, but consumes only the spaces.
    pub fn peek_solid(&mut self) -> Token<'t> {
        let token = self.next_solid();
        self.put_back(token);
        token
    }

    /// The line of the newest token that was read or peeked at, which Go's messages name.
    pub fn newest_line(&self) -> usize {
        self.newest_line
    }
}
