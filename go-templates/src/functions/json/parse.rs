//! Parses JSON, with Go's error messages. The budget limits depth and size.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::context::Context;
use crate::functions::{FunctionError, Outcome};
use crate::number;
use crate::quote::quote;
use crate::runes;
use crate::value::{Text, Value};

/// JSON as `mustFromJson` reads it: every number is a float64.
pub fn parse_json(context: &mut Context, text: &[u8]) -> Outcome {
    let mut parser = Parser {
        text,
        at: 0,
        too_large: None,
        context,
    };
    let value = parser.value()?;
    parser.space();
    if parser.at < text.len() {
        return Err(parser.unexpected("after top-level value"));
    }
    match parser.too_large {
        Some(number) => Err(FunctionError::new(format!(
            "json: cannot unmarshal number {number} into Go value of type float64"
        ))),
        None => Ok(value),
    }
}

struct Parser<'t, 'c> {
    text: &'t [u8],
    at: usize,
    /// The first number that no float can hold: said only when all the rest is well-formed.
    too_large: Option<String>,
    context: &'c mut Context,
}

impl Parser<'_, '_> {
    fn value(&mut self) -> Outcome {
        self.context.budget.spend_steps(1)?;
        self.space();
        match self.peek()? {
            b'{' => self.nested(Self::object),
            b'[' => self.nested(Self::array),
            b'"' => Ok(Value::Str(self.string()?)),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.literal("true", Value::Bool(true)),
            b'f' => self.literal("false", Value::Bool(false)),
            b'n' => self.literal("null", Value::Nil),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn nested(&mut self, inner: fn(&mut Self) -> Outcome) -> Outcome {
        self.context.budget.enter()?;
        self.at += 1;
        let value = inner(self)?;
        self.context.budget.leave();
        Ok(value)
    }

    fn object(&mut self) -> Outcome {
        let mut entries: BTreeMap<Text, Value> = BTreeMap::new();
        self.space();
        if self.peek()? == b'}' {
            self.at += 1;
            return self.context.dict(entries);
        }
        loop {
            self.space();
            if self.peek()? != b'"' {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let key = self.string()?;
            self.space();
            if self.peek()? != b':' {
                return Err(self.unexpected("after object key"));
            }
            self.at += 1;
            let value = self.value()?;
            entries.insert(key, value);
            self.space();
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return self.context.dict(entries);
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
        }
    }

    fn array(&mut self) -> Outcome {
        let mut items = Vec::new();
        self.space();
        if self.peek()? == b']' {
            self.at += 1;
            return self.context.list(items);
        }
        loop {
            items.push(self.value()?);
            self.space();
            match self.peek()? {
                b',' => self.at += 1,
                b']' => {
                    self.at += 1;
                    return self.context.list(items);
                }
                _ => return Err(self.unexpected("after array element")),
            }
        }
    }

    fn literal(&mut self, word: &str, value: Value) -> Outcome {
        for expected in word.bytes() {
            if self.peek_inside() != expected {
                let place = format!("in literal {word} (expecting '{}')", char::from(expected));
                return Err(self.unexpected(&place));
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn number(&mut self) -> Outcome {
        let start = self.at;
        if self.peek_inside() == b'-' {
            self.at += 1;
        }
        match self.peek_inside() {
            b'0' => self.at += 1,
            b'1'..=b'9' => self.digits(),
            _ => return Err(self.unexpected("in numeric literal")),
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.text.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        let digits = String::from_utf8_lossy(&self.text[start..self.at]).into_owned();
        Ok(Value::Float(number::float(&digits).unwrap_or_else(|| {
            self.too_large.get_or_insert(digits);
            0.0
        })))
    }

    fn some_digits(&mut self, place: &str) -> Result<(), FunctionError> {
        if !self.peek_inside().is_ascii_digit() {
            return Err(self.unexpected(place));
        }
        self.digits();
        Ok(())
    }

    fn digits(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    /// A string, the opening quote being next. Invalid UTF-8 and lone surrogates become U+FFFD.
    fn string(&mut self) -> Result<Text, FunctionError> {
        self.at += 1;
        let mut out = Vec::new();
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    self.context.reserve(out.len())?;
                    return Ok(Arc::from(out));
                }
                b'\\' => {
                    self.at += 1;
                    let c = self.escape()?;
                    runes::push(&mut out, c);
                }
                0..b' ' => return Err(self.unexpected("in string literal")),
                _ => {
                    let Some((c, size)) = runes::decode(&self.text[self.at..]) else {
                        return Err(ended());
                    };
                    self.at += size;
                    runes::push(&mut out, c);
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, FunctionError> {
        let c = match self.peek_inside() {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            c @ (b'\\' | b'/' | b'"') => char::from(c),
            b'u' => {
                self.at += 1;
                return self.code_point();
            }
            _ => return Err(self.unexpected("in string escape code")),
        };
        self.at += 1;
        Ok(c)
    }

    /// The four digits behind `\u`, and those of a second escape if the two make a surrogate pair.
    fn code_point(&mut self) -> Result<char, FunctionError> {
        let first = self.four_digits()?;
        if let Some(c) = char::from_u32(first) {
            return Ok(c);
        }
        if first < 0xdc00 && self.text[self.at..].starts_with(b"\\u") {
            let before = self.at;
            self.at += 2;
            let second = self.four_digits()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(runes::ERROR));
            }
            self.at = before;
        }
        Ok(runes::ERROR)
    }

    fn four_digits(&mut self) -> Result<u32, FunctionError> {
        let mut code = 0;
        for _ in 0..4 {
            let Some(digit) = char::from(self.peek_inside()).to_digit(16) else {
                return Err(self.unexpected("in \\u hexadecimal character escape"));
            };
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }

    fn space(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Result<u8, FunctionError> {
        self.text.get(self.at).copied().ok_or_else(ended)
    }

    /// The next byte inside a word, number or escape. At the end of the text, Go reports an unexpected space.
    fn peek_inside(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(b' ')
    }

    fn unexpected(&self, place: &str) -> FunctionError {
        let byte = self.peek_inside();
        let shown = match char::from(byte) {
            '\'' => r"'\''".to_owned(),
            '"' => "'\"'".to_owned(),
            c => {
                let quoted = quote(c.to_string().as_bytes());
                format!("'{}'", &quoted[1..quoted.len() - 1])
            }
        };
        FunctionError::new(format!("invalid character {shown} {place}"))
    }
}

fn ended() -> FunctionError {
    FunctionError::new("unexpected end of JSON input")
}
