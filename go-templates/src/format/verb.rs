//! Formats one value for one verb of printf, with flags, width and precision. As in Go, a wrong verb is no error: the output
//! describes it.

use crate::budget::LimitError;
use crate::format::float::format_float;
use crate::format::time;
use crate::format::{Writer, number};
use crate::quote;
use crate::runes;
use crate::value::{Certificate, Dict, List, Typed, Value};

/// The flags between `%` and the verb.
#[derive(Debug, Clone, Copy, Default)]
pub struct Flags {
    pub sharp: bool,
    pub zero: bool,
    pub plus: bool,
    pub minus: bool,
    pub space: bool,
    /// `%#v`: Go syntax.
    pub go_syntax: bool,
    /// `%+v`: structs with the names of their fields.
    pub names: bool,
    pub width: Option<usize>,
    pub precision: Option<usize>,
}

/// Prints values into a writer under the same flags.
pub struct Formatter<'w, 'a> {
    out: &'w mut Writer<'a>,
    flags: Flags,
}

type Done = Result<(), LimitError>;

impl<'w, 'a> Formatter<'w, 'a> {
    pub fn new(out: &'w mut Writer<'a>) -> Formatter<'w, 'a> {
        Formatter::with_flags(out, Flags::default())
    }

    pub fn with_flags(out: &'w mut Writer<'a>, flags: Flags) -> Formatter<'w, 'a> {
        Formatter { out, flags }
    }

    /// `%v`.
    pub fn value(&mut self, value: &Value) -> Done {
        self.argument(value, 'v')
    }

    /// An argument under a verb.
    pub fn argument(&mut self, value: &Value, verb: char) -> Done {
        match (value, verb) {
            (Value::Nil, 'v' | 'T') => self.padded(b"<nil>"),
            (Value::Nil, _) => self.bad_verb(value, verb),
            (_, 'T') => self.string(value.type_name().as_bytes(), 's'),
            // An address is another one in every run.
            (_, 'p') => self.bad_verb(value, verb),
            _ => self.element(value, verb),
        }
    }

    fn element(&mut self, value: &Value, verb: char) -> Done {
        self.out.budget.spend_steps(1)?;
        match value {
            Value::Nil if self.flags.go_syntax => self.out.push(b"interface {}(nil)"),
            Value::Nil => self.out.push(b"<nil>"),
            Value::Bool(b) => self.boolean(*b, value, verb),
            Value::Int(n) | Value::Int64(n) => {
                self.integer(n.unsigned_abs(), *n < 0, true, value, verb)
            }
            Value::Uint8(n) => self.integer(u64::from(*n), false, false, value, verb),
            Value::Uint64(n) => self.integer(*n, false, false, value, verb),
            Value::Float(f) => self.float(*f, value, verb),
            Value::Str(text) => self.string(text, verb),
            Value::List(list) => self.list(list, value, verb),
            Value::Dict(dict) => self.dict(dict, value, verb),
            Value::Time(moment) if self.flags.go_syntax => {
                self.string(time::go_string(moment).as_bytes(), 's')
            }
            Value::Time(moment) => self.own_text(&time::string(moment), value, verb),
            Value::Named(named) => match verb {
                'v' | 's' | 'x' | 'X' | 'q' if !self.flags.go_syntax => {
                    self.own_text(&named.text(), value, verb)
                }
                _ => {
                    let n = named.number();
                    self.integer(n.unsigned_abs(), n < 0, true, value, verb)
                }
            },
            Value::Certificate(certificate) => self.certificate(certificate, verb),
            Value::Version(version) => self.own_text(&version.to_string(), value, verb),
            Value::Typed(typed) => self.typed(*typed, verb),
        }
    }

    /// The result of a type's own method for verbs of strings.
    fn own_text(&mut self, text: &str, value: &Value, verb: char) -> Done {
        match verb {
            'v' | 's' | 'x' | 'X' | 'q' => self.string(text.as_bytes(), verb),
            _ => self.bad_verb(value, verb),
        }
    }

    fn certificate(&mut self, certificate: &Certificate, verb: char) -> Done {
        let go_syntax = self.flags.go_syntax;
        self.out.push(if go_syntax {
            b"sprig.certificate{"
        } else {
            b"{"
        })?;
        for (index, (name, text)) in certificate.fields().into_iter().enumerate() {
            if index > 0 {
                self.out.push(if go_syntax { b", " } else { b" " })?;
            }
            if go_syntax || self.flags.names {
                self.out.push(name.as_bytes())?;
                self.out.push(b":")?;
            }
            self.string(text, verb)?;
        }
        self.out.push(b"}")
    }

    /// A typed value is a number under the verbs of numbers and a string under those of strings.
    fn typed(&mut self, typed: Typed, verb: char) -> Done {
        let plain = typed.plain();
        if !matches!(verb, 's' | 'q') {
            return self.element(&plain, verb);
        }
        let text = typed.text();
        self.string(text.as_bytes(), verb)
    }

    fn bad_verb(&mut self, value: &Value, verb: char) -> Done {
        let mut start = vec![b'%', b'!'];
        runes::push(&mut start, verb);
        start.push(b'(');
        self.out.push(&start)?;
        if matches!(value, Value::Nil) {
            self.out.push(b"<nil>")?;
        } else {
            self.out.push(value.type_name().as_bytes())?;
            self.out.push(b"=")?;
            match value {
                // For a bad verb, Go does not call the value's methods.
                Value::Named(named) => self.element(&Value::Int64(named.number()), 'v')?,
                _ => self.element(value, 'v')?,
            }
        }
        self.out.push(b")")
    }

    fn boolean(&mut self, b: bool, value: &Value, verb: char) -> Done {
        match verb {
            't' | 'v' => self.padded(if b { b"true" } else { b"false" }),
            _ => self.bad_verb(value, verb),
        }
    }

    fn integer(
        &mut self,
        magnitude: u64,
        negative: bool,
        signed: bool,
        value: &Value,
        verb: char,
    ) -> Done {
        let two_complement = if negative {
            magnitude.wrapping_neg()
        } else {
            magnitude
        };
        let mut flags = self.flags;
        // Charged before the zeros are made: width and precision go up to ten million.
        let room = flags.precision.unwrap_or(0).max(flags.width.unwrap_or(0));
        self.out.budget.spend_memory(room as u64)?;
        let base = match verb {
            'v' if self.flags.go_syntax && !signed => {
                flags.sharp = true;
                16
            }
            'v' | 'd' => 10,
            'b' => 2,
            'o' | 'O' => 8,
            'x' | 'X' => 16,
            'c' => return self.padded(number::character(two_complement).to_string().as_bytes()),
            'q' => {
                let c = number::character(two_complement);
                return self.padded(number::quoted_character(c, self.flags.plus).as_bytes());
            }
            'U' => {
                let text = number::unicode(two_complement, &self.flags);
                return self.padded_with(text.as_bytes(), b' ');
            }
            _ => return self.bad_verb(value, verb),
        };
        let text = number::integer(magnitude, negative, base, verb, &flags);
        self.padded_with(text.as_bytes(), b' ')
    }

    fn float(&mut self, f: f64, value: &Value, verb: char) -> Done {
        let (form, default) = match verb {
            'v' => (b'g', None),
            'b' | 'g' | 'G' | 'x' | 'X' => (verb as u8, None),
            'f' | 'e' | 'E' => (verb as u8, Some(6)),
            'F' => (b'f', Some(6)),
            _ => return self.bad_verb(value, verb),
        };
        let precision = self.flags.precision.or(default);
        self.out
            .budget
            .spend_memory(precision.unwrap_or(0) as u64)?;
        let mut digits = format_float(f, form, precision);
        if !digits.starts_with(['-', '+']) {
            digits.insert(0, '+');
        }
        if self.flags.space && digits.starts_with('+') && !self.flags.plus {
            digits.replace_range(..1, " ");
        }
        if !f.is_finite() {
            // No number: never filled up with zeros.
            let signed = self.flags.plus || self.flags.space || digits.starts_with('-');
            let keep_sign = signed || f.is_infinite();
            return self.padded_with(&digits.as_bytes()[usize::from(!keep_sign)..], b' ');
        }
        if self.flags.sharp && form != b'b' {
            digits = number::with_point(&digits, form, precision);
        }
        if !self.flags.plus && digits.starts_with('+') {
            return self.padded(&digits.as_bytes()[1..]);
        }
        match self.flags.width {
            Some(width) if self.flags.zero && !self.flags.minus && width > digits.len() => {
                self.out.push(&digits.as_bytes()[..1])?;
                self.out.repeat(b'0', width - digits.len())?;
                self.out.push(&digits.as_bytes()[1..])
            }
            _ => self.padded(digits.as_bytes()),
        }
    }

    fn string(&mut self, bytes: &[u8], verb: char) -> Done {
        match verb {
            'v' if self.flags.go_syntax => self.quoted(bytes),
            'v' | 's' => self.padded(self.cut(bytes)),
            'q' => self.quoted(bytes),
            'x' | 'X' => self.hexadecimal(bytes, verb == 'X'),
            _ => self.bad_verb(&Value::str(bytes), verb),
        }
    }

    /// The first characters of a string, as many as the precision says.
    fn cut<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let Some(precision) = self.flags.precision else {
            return bytes;
        };
        match runes::runes(bytes).nth(precision) {
            Some((end, ..)) => &bytes[..end],
            None => bytes,
        }
    }

    fn quoted(&mut self, bytes: &[u8]) -> Done {
        let bytes = self.cut(bytes);
        self.out.budget.spend_memory(bytes.len() as u64)?;
        let text = match std::str::from_utf8(bytes) {
            Ok(text) if self.flags.sharp && can_backquote(text) => format!("`{text}`"),
            _ if self.flags.plus => number::quote_to_ascii(bytes),
            _ => quote::quote(bytes),
        };
        self.padded(text.as_bytes())
    }

    fn hexadecimal(&mut self, bytes: &[u8], upper: bool) -> Done {
        let count = self.flags.precision.unwrap_or(bytes.len()).min(bytes.len());
        self.out.budget.spend_memory(count as u64)?;
        let text = number::hexadecimal(&bytes[..count], upper, &self.flags);
        if text.is_empty() && self.flags.width.is_none() {
            return Ok(());
        }
        self.padded(text.as_bytes())
    }

    fn list(&mut self, list: &List, value: &Value, verb: char) -> Done {
        if verb == 'w' {
            return self.bad_verb(value, verb);
        }
        if self.flags.go_syntax {
            self.out.push(value.type_name().as_bytes())?;
            if list.is_nil() {
                return self.out.push(b"(nil)");
            }
        }
        let (open, separator, close): (&[u8], &[u8], &[u8]) = match self.flags.go_syntax {
            true => (b"{", b", ", b"}"),
            false => (b"[", b" ", b"]"),
        };
        self.out.push(open)?;
        self.out.budget.enter()?;
        let mut index = 0;
        while let Some(item) = list.get(index) {
            if index > 0 {
                self.out.push(separator)?;
            }
            self.element(&item, verb)?;
            index += 1;
        }
        self.out.budget.leave();
        self.out.push(close)
    }

    fn dict(&mut self, dict: &Dict, value: &Value, verb: char) -> Done {
        if verb == 'w' {
            return self.bad_verb(value, verb);
        }
        let (open, separator, close): (&[u8], &[u8], &[u8]) = match self.flags.go_syntax {
            true => (b"{", b", ", b"}"),
            false => (b"map[", b" ", b"]"),
        };
        if self.flags.go_syntax {
            self.out.push(value.type_name().as_bytes())?;
        }
        self.out.push(open)?;
        self.out.budget.enter()?;
        self.out.budget.spend_steps(dict.len() as u64)?;
        for (index, (key, item)) in dict.entries().into_iter().enumerate() {
            if index > 0 {
                self.out.push(separator)?;
            }
            self.string(&key, verb)?;
            self.out.push(b":")?;
            self.element(&item, verb)?;
        }
        self.out.budget.leave();
        self.out.push(close)
    }

    fn padded(&mut self, bytes: &[u8]) -> Done {
        let fill = if self.flags.zero && !self.flags.minus {
            b'0'
        } else {
            b' '
        };
        self.padded_with(bytes, fill)
    }

    fn padded_with(&mut self, bytes: &[u8], fill: u8) -> Done {
        let Some(width) = self.flags.width else {
            return self.out.push(bytes);
        };
        let missing = width.saturating_sub(runes::count(bytes));
        if self.flags.minus {
            self.out.push(bytes)?;
            return self.out.repeat(b' ', missing);
        }
        self.out.repeat(fill, missing)?;
        self.out.push(bytes)
    }
}

/// Whether a raw string literal can hold the text.
fn can_backquote(text: &str) -> bool {
    !text
        .chars()
        .any(|c| matches!(c, '\u{feff}' | '`' | '\u{7f}') || (c < ' ' && c != '\t'))
}
