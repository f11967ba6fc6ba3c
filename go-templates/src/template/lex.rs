//! Cuts a template's text into tokens, one at a time. Knows no grammar beyond the delimiters and their trim markers.

use std::fmt;

use unicode_general_category::{GeneralCategory, get_general_category};

use crate::quote::{describe, quote};

const LEFT: &str = "{{";
const RIGHT: &str = "}}";
const COMMENT_OPEN: &str = "/*";
const COMMENT_CLOSE: &str = "*/";
/// The white space that trim markers remove and that separates operands: never Unicode's.
const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The text between actions.
    Text,
    LeftDelim,
    RightDelim,
    Space,
    /// `=`
    Assign,
    /// `:=`
    Declare,
    Pipe,
    LeftParen,
    RightParen,
    Bool,
    Char,
    /// `1+2i`
    Complex,
    Number,
    String,
    RawString,
    /// `.name`
    Field,
    Identifier,
    /// `$` or `$name`
    Variable,
    Keyword(Keyword),
    /// Any other printable ASCII character.
    Other,
    Error(LexError),
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keyword {
    Block,
    Break,
    Continue,
    Define,
    Dot,
    Else,
    End,
    If,
    Nil,
    Range,
    Template,
    With,
}

impl Keyword {
    fn of(word: &str) -> Option<Keyword> {
        Some(match word {
            "block" => Keyword::Block,
            "break" => Keyword::Break,
            "continue" => Keyword::Continue,
            "define" => Keyword::Define,
            "else" => Keyword::Else,
            "end" => Keyword::End,
            "if" => Keyword::If,
            "nil" => Keyword::Nil,
            "range" => Keyword::Range,
            "template" => Keyword::Template,
            "with" => Keyword::With,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LexError {
    BadCharacter(char),
    BadNumber,
    CommentNotLast,
    ExpectedDeclare,
    UnclosedAction,
    UnclosedComment,
    UnclosedParen,
    UnexpectedParen,
    UnknownCharacter(char),
    UnterminatedChar,
    UnterminatedRawString,
    UnterminatedString,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'t> {
    pub kind: Kind,
    /// Byte offset in the template.
    pub pos: usize,
    /// Line on which the token begins, from 1.
    pub line: usize,
    pub text: &'t str,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::End => f.write_str("EOF"),
            Kind::Error(error) => self.write_error(error, f),
            Kind::Keyword(_) => write!(f, "<{}>", self.text),
            _ if self.text.len() > 10 => {
                let start: String = self.text.chars().take(10).collect();
                write!(f, "{}...", quote(start.as_bytes()))
            }
            _ => f.write_str(&quote(self.text.as_bytes())),
        }
    }
}

impl Token<'_> {
    fn write_error(&self, error: LexError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match error {
            LexError::BadCharacter(c) => return write!(f, "bad character {}", describe(c)),
            LexError::BadNumber => {
                return write!(f, "bad number syntax: {}", quote(self.text.as_bytes()));
            }
            LexError::UnknownCharacter(c) => {
                return write!(f, "unrecognized character in action: {}", describe(c));
            }
            LexError::CommentNotLast => "comment ends before closing delimiter",
            LexError::ExpectedDeclare => "expected :=",
            LexError::UnclosedAction => "unclosed action",
            LexError::UnclosedComment => "unclosed comment",
            LexError::UnclosedParen => "unclosed left paren",
            LexError::UnexpectedParen => "unexpected right paren",
            LexError::UnterminatedChar => "unterminated character constant",
            LexError::UnterminatedRawString => "unterminated raw quoted string",
            LexError::UnterminatedString => "unterminated quoted string",
        })
    }
}

#[derive(Debug)]
pub struct Lexer<'t> {
    text: &'t str,
    pos: usize,
    /// `line` is that of the character at `line_pos`.
    line: usize,
    line_pos: usize,
    in_action: bool,
    open_parens: usize,
}

impl<'t> Lexer<'t> {
    pub fn new(text: &'t str) -> Self {
        Lexer {
            text,
            pos: 0,
            line: 1,
            line_pos: 0,
            in_action: false,
            open_parens: 0,
        }
    }

    /// The next token. After an error or the end it stays there.
    pub fn next_token(&mut self) -> Token<'t> {
        if self.in_action {
            self.action_token()
        } else {
            self.text_token()
        }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.pos..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn skip_while(&mut self, wanted: impl Fn(char) -> bool) {
        let rest = self.rest();
        self.pos += rest.len() - rest.trim_start_matches(wanted).len();
    }

    fn accept(&mut self, wanted: &[char]) -> bool {
        let accepted = self.peek().filter(|c| wanted.contains(c));
        self.pos += accepted.map_or(0, char::len_utf8);
        accepted.is_some()
    }

    /// The token from `start` to where the lexer stands.
    fn token(&mut self, kind: Kind, start: usize) -> Token<'t> {
        self.token_of(kind, start, &self.text[start..self.pos])
    }

    fn token_of(&mut self, kind: Kind, start: usize, text: &'t str) -> Token<'t> {
        let passed = &self.text.as_bytes()[self.line_pos..start];
        self.line += passed.iter().filter(|byte| **byte == b'\n').count();
        self.line_pos = start;
        Token {
            kind,
            pos: start,
            line: self.line,
            text,
        }
    }

    fn error(&mut self, error: LexError, start: usize) -> Token<'t> {
        let token = self.token(Kind::Error(error), start);
        self.pos = start;
        token
    }

    /// Text, or the beginning of an action. Comments are skipped.
    fn text_token(&mut self) -> Token<'t> {
        loop {
            let start = self.pos;
            let Some(length) = self.rest().find(LEFT) else {
                self.pos = self.text.len();
                let kind = if start < self.pos {
                    Kind::Text
                } else {
                    Kind::End
                };
                return self.token(kind, start);
            };
            let delim = start + length;
            let after = &self.text[delim + LEFT.len()..];
            let trims = after.starts_with('-') && after[1..].starts_with(SPACES);
            let mut text = &self.text[start..delim];
            if trims {
                text = text.trim_end_matches(SPACES);
            }
            self.pos = delim;
            if !text.is_empty() {
                return self.token_of(Kind::Text, start, text);
            }
            self.pos += LEFT.len() + if trims { 2 } else { 0 };
            if !self.rest().starts_with(COMMENT_OPEN) {
                self.in_action = true;
                self.open_parens = 0;
                return self.token_of(Kind::LeftDelim, delim, LEFT);
            }
            if let Err(error) = self.skip_comment() {
                return error;
            }
        }
    }

    fn skip_comment(&mut self) -> Result<(), Token<'t>> {
        let start = self.pos;
        self.pos += COMMENT_OPEN.len();
        let Some(length) = self.rest().find(COMMENT_CLOSE) else {
            return Err(self.error(LexError::UnclosedComment, start));
        };
        self.pos += length + COMMENT_CLOSE.len();
        let Some(delim) = self.right_delim() else {
            return Err(self.error(LexError::CommentNotLast, start));
        };
        self.pass(delim);
        Ok(())
    }

    /// The closing delimiter, if the lexer stands before one.
    fn right_delim(&self) -> Option<RightDelim> {
        let rest = self.rest();
        if rest.starts_with(RIGHT) {
            return Some(RightDelim { trims: false });
        }
        let marked = rest.strip_prefix(SPACES)?.strip_prefix('-')?;
        marked
            .starts_with(RIGHT)
            .then_some(RightDelim { trims: true })
    }

    /// Moves behind a closing delimiter and the white space that it trims; tells where the delimiter begins.
    fn pass(&mut self, delim: RightDelim) -> usize {
        self.pos += if delim.trims { 2 } else { 0 };
        let start = self.pos;
        self.pos += RIGHT.len();
        if delim.trims {
            self.skip_while(|c| SPACES.contains(&c));
        }
        start
    }

    fn action_token(&mut self) -> Token<'t> {
        let start = self.pos;
        if let Some(delim) = self.right_delim() {
            if self.open_parens > 0 {
                return self.error(LexError::UnclosedParen, start);
            }
            self.in_action = false;
            let delim_start = self.pass(delim);
            return self.token_of(Kind::RightDelim, delim_start, RIGHT);
        }
        let Some(c) = self.peek() else {
            return self.error(LexError::UnclosedAction, start);
        };
        self.pos += c.len_utf8();
        match c {
            _ if SPACES.contains(&c) => self.space(start),
            '=' => self.token(Kind::Assign, start),
            ':' if self.accept(&['=']) => self.token(Kind::Declare, start),
            ':' => self.error(LexError::ExpectedDeclare, start),
            '|' => self.token(Kind::Pipe, start),
            '(' => {
                self.open_parens += 1;
                self.token(Kind::LeftParen, start)
            }
            ')' if self.open_parens == 0 => self.error(LexError::UnexpectedParen, start),
            ')' => {
                self.open_parens -= 1;
                self.token(Kind::RightParen, start)
            }
            '"' => self.quoted(start, '"', Kind::String, LexError::UnterminatedString),
            '\'' => self.quoted(start, '\'', Kind::Char, LexError::UnterminatedChar),
            '`' => self.raw_string(start),
            '$' => self.name_after(start, Kind::Variable, Kind::Variable),
            '.' if self.peek().is_some_and(|next| !next.is_ascii_digit()) => {
                self.name_after(start, Kind::Field, Kind::Keyword(Keyword::Dot))
            }
            '.' | '+' | '-' | '0'..='9' => {
                self.pos = start;
                self.number(start)
            }
            _ if is_name_char(c) => self.word(start),
            ' '..='~' => self.token(Kind::Other, start),
            _ => self.error(LexError::UnknownCharacter(c), start),
        }
    }

    /// A run of spaces, without the last one where that belongs to a trim marker.
    fn space(&mut self, start: usize) -> Token<'t> {
        self.skip_while(|c| SPACES.contains(&c));
        let last = self.pos - 1;
        if last > start && self.rest().starts_with('-') && self.rest()[1..].starts_with(RIGHT) {
            self.pos = last;
        }
        self.token(Kind::Space, start)
    }

    fn word(&mut self, start: usize) -> Token<'t> {
        self.skip_while(is_name_char);
        let word = &self.text[start..self.pos];
        let kind = match Keyword::of(word) {
            Some(keyword) => Kind::Keyword(keyword),
            None if matches!(word, "true" | "false") => Kind::Bool,
            None => Kind::Identifier,
        };
        self.terminated(kind, start)
    }

    /// What follows `.` or `$`: a name, or nothing.
    fn name_after(&mut self, start: usize, named: Kind, bare: Kind) -> Token<'t> {
        if self.at_terminator() {
            return self.token(bare, start);
        }
        self.skip_while(is_name_char);
        self.terminated(named, start)
    }

    fn terminated(&mut self, kind: Kind, start: usize) -> Token<'t> {
        match self.peek() {
            Some(c) if !self.at_terminator() => self.error(LexError::BadCharacter(c), start),
            _ => self.token(kind, start),
        }
    }

    /// Whether a name may end here.
    fn at_terminator(&self) -> bool {
        match self.peek() {
            None | Some('.' | ',' | '|' | ':' | ')' | '(') => true,
            Some(c) => SPACES.contains(&c) || self.rest().starts_with(RIGHT),
        }
    }

    /// A string or character up to its closing quote; the parser checks the escapes.
    fn quoted(
        &mut self,
        start: usize,
        quote: char,
        kind: Kind,
        unterminated: LexError,
    ) -> Token<'t> {
        while let Some(c) = self.peek().filter(|c| *c != '\n') {
            self.pos += c.len_utf8();
            if c == quote {
                return self.token(kind, start);
            }
            if c == '\\' {
                match self.peek().filter(|c| *c != '\n') {
                    Some(escaped) => self.pos += escaped.len_utf8(),
                    None => break,
                }
            }
        }
        self.error(unterminated, start)
    }

    fn raw_string(&mut self, start: usize) -> Token<'t> {
        match self.rest().find('`') {
            Some(length) => {
                self.pos += length + 1;
                self.token(Kind::RawString, start)
            }
            None => self.error(LexError::UnterminatedRawString, start),
        }
    }

    /// Takes too much rather than too little (`089`, `0x0.2`): the parser says what is wrong with it.
    fn number(&mut self, start: usize) -> Token<'t> {
        if !self.scan_number() {
            return self.error(LexError::BadNumber, start);
        }
        if !matches!(self.peek(), Some('+' | '-')) {
            return self.token(Kind::Number, start);
        }
        let is_complex = self.scan_number() && self.text[..self.pos].ends_with('i');
        if is_complex {
            self.token(Kind::Complex, start)
        } else {
            self.error(LexError::BadNumber, start)
        }
    }

    fn scan_number(&mut self) -> bool {
        self.accept(&['+', '-']);
        let mut base = 10;
        if self.accept(&['0']) {
            if self.accept(&['x', 'X']) {
                base = 16;
            } else if self.accept(&['o', 'O']) {
                base = 8;
            } else if self.accept(&['b', 'B']) {
                base = 2;
            }
        }
        self.skip_while(|c| c == '_' || c.is_digit(base));
        if self.accept(&['.']) {
            self.skip_while(|c| c == '_' || c.is_digit(base));
        }
        let has_exponent = match base {
            10 => self.accept(&['e', 'E']),
            16 => self.accept(&['p', 'P']),
            _ => false,
        };
        if has_exponent {
            self.accept(&['+', '-']);
            self.skip_while(|c| c == '_' || c.is_ascii_digit());
        }
        self.accept(&['i']);
        match self.peek().filter(|c| is_name_char(*c)) {
            Some(c) => {
                self.pos += c.len_utf8();
                false
            }
            None => true,
        }
    }
}

/// A closing delimiter, with or without the marker that trims what follows.
#[derive(Debug, Clone, Copy)]
struct RightDelim {
    trims: bool,
}

/// Letters, decimal digits and the underscore: what names are made of.
pub fn is_name_char(c: char) -> bool {
    use GeneralCategory::{
        DecimalNumber, LowercaseLetter, ModifierLetter, OtherLetter, TitlecaseLetter,
        UppercaseLetter,
    };
    if c.is_ascii() {
        return c == '_' || c.is_ascii_alphanumeric();
    }
    matches!(
        get_general_category(c),
        UppercaseLetter
            | LowercaseLetter
            | TitlecaseLetter
            | ModifierLetter
            | OtherLetter
            | DecimalNumber
    )
}
