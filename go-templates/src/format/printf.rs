//! Format strings: assigns arguments to verbs, and reports missing and extra ones. Formats no value itself.

use crate::budget::{Budget, LimitError};
use crate::format::Writer;
use crate::format::verb::{Flags, Formatter};
use crate::runes;
use crate::value::{Typed, Value};

/// The largest width and precision that Go takes.
const NUMBER_MAX: i64 = 1_000_000;

/// As Go's Sprintf.
pub fn sprintf(format: &[u8], args: &[Value], budget: &mut Budget) -> Result<Vec<u8>, LimitError> {
    let mut out = Vec::new();
    let mut scan = Scan {
        format,
        at: 0,
        args,
        next: 0,
        reordered: false,
        index_is_good: true,
        out: Writer::in_memory(&mut out, budget),
    };
    scan.run()?;
    Ok(out)
}

/// The parser's state in the format string.
struct Scan<'f, 'a> {
    format: &'f [u8],
    at: usize,
    args: &'f [Value],
    next: usize,
    /// An explicit index was used: extra arguments are then no mistake.
    reordered: bool,
    index_is_good: bool,
    out: Writer<'a>,
}

impl Scan<'_, '_> {
    fn run(&mut self) -> Result<(), LimitError> {
        while self.at < self.format.len() {
            let rest = &self.format[self.at..];
            let literal = rest.iter().position(|b| *b == b'%').unwrap_or(rest.len());
            self.out.push(&rest[..literal])?;
            self.at += literal;
            if self.at < self.format.len() {
                self.at += 1;
                self.directive()?;
            }
        }
        self.extra()
    }

    /// Everything from behind the `%` to the verb.
    fn directive(&mut self) -> Result<(), LimitError> {
        self.index_is_good = true;
        let mut flags = self.flags();
        let mut after_index = self.index();
        if self.take(b'*') {
            match self.number_from_argument() {
                Some(width) => {
                    flags.minus |= width < 0;
                    flags.zero &= width >= 0;
                    flags.width = usize::try_from(width.abs()).ok();
                }
                None => self.out.push(b"%!(BADWIDTH)")?,
            }
            after_index = false;
        } else {
            flags.width = self.number();
            self.index_is_good &= !(after_index && flags.width.is_some());
        }
        if self.at + 1 < self.format.len() && self.take(b'.') {
            self.index_is_good &= !after_index;
            after_index = self.index();
            if self.take(b'*') {
                match self.number_from_argument() {
                    Some(precision) if precision >= 0 => {
                        flags.precision = usize::try_from(precision).ok();
                    }
                    _ => self.out.push(b"%!(BADPREC)")?,
                }
                after_index = false;
            } else {
                flags.precision = Some(self.number().unwrap_or(0));
            }
        }
        if !after_index {
            self.index();
        }
        let Some((verb, size)) = runes::decode(&self.format[self.at..]) else {
            return self.out.push(b"%!(NOVERB)");
        };
        self.at += size;
        self.print(verb, flags)
    }

    fn print(&mut self, verb: char, mut flags: Flags) -> Result<(), LimitError> {
        if verb == '%' {
            return self.out.push(b"%");
        }
        if !self.index_is_good {
            return self.complain(verb, "BADINDEX");
        }
        let Some(value) = self.args.get(self.next) else {
            return self.complain(verb, "MISSING");
        };
        if matches!(verb, 'v' | 'w') {
            flags.go_syntax = flags.sharp;
            flags.sharp = false;
            flags.names = flags.plus;
            flags.plus = false;
        }
        self.next += 1;
        Formatter::with_flags(&mut self.out, flags).argument(value, verb)
    }

    fn complain(&mut self, verb: char, what: &str) -> Result<(), LimitError> {
        let mut text = b"%!".to_vec();
        runes::push(&mut text, verb);
        text.extend_from_slice(format!("({what})").as_bytes());
        self.out.push(&text)
    }

    fn extra(&mut self) -> Result<(), LimitError> {
        if self.reordered || self.next >= self.args.len() {
            return Ok(());
        }
        self.out.push(b"%!(EXTRA ")?;
        for (index, value) in self.args[self.next..].iter().enumerate() {
            if index > 0 {
                self.out.push(b", ")?;
            }
            if !matches!(value, Value::Nil) {
                self.out.push(value.type_name().as_bytes())?;
                self.out.push(b"=")?;
            }
            Formatter::new(&mut self.out).value(value)?;
        }
        self.out.push(b")")
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.format.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn flags(&mut self) -> Flags {
        let mut flags = Flags::default();
        loop {
            match self.format.get(self.at) {
                Some(b'#') => flags.sharp = true,
                Some(b'0') => flags.zero = true,
                Some(b'+') => flags.plus = true,
                Some(b'-') => flags.minus = true,
                Some(b' ') => flags.space = true,
                _ => return flags,
            }
            self.at += 1;
        }
    }

    /// A decimal number of the format, if one stands here. One that is too large swallows the rest of the format.
    fn number(&mut self) -> Option<usize> {
        let mut number = None;
        while let Some(digit) = self.format.get(self.at).filter(|b| b.is_ascii_digit()) {
            let value = number.unwrap_or(0);
            if value > NUMBER_MAX as usize {
                self.at = self.format.len();
                return None;
            }
            number = Some(value * 10 + usize::from(digit - b'0'));
            self.at += 1;
        }
        number
    }

    /// The argument for a `*`.
    fn number_from_argument(&mut self) -> Option<i64> {
        let value = self.args.get(self.next)?;
        self.next += 1;
        let number = match value {
            Value::Int(n) | Value::Int64(n) | Value::Typed(Typed::Int(n)) => *n,
            Value::Named(named) => named.number(),
            Value::Uint8(n) => i64::from(*n),
            Value::Uint64(n) => i64::try_from(*n).ok()?,
            _ => return None,
        };
        (-NUMBER_MAX..=NUMBER_MAX)
            .contains(&number)
            .then_some(number)
    }

    /// An explicit argument index (`[3]`) at this position, if there is one.
    fn index(&mut self) -> bool {
        if self.format.get(self.at) != Some(&b'[') {
            return false;
        }
        self.reordered = true;
        let rest = &self.format[self.at..];
        let close = rest.iter().position(|b| *b == b']');
        let Some(close) = close.filter(|_| rest.len() >= 3) else {
            self.at += 1;
            self.index_is_good = false;
            return false;
        };
        let digits = &rest[1..close];
        self.at += close + 1;
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        let index = std::str::from_utf8(digits)
            .ok()
            .filter(|_| is_number)
            .and_then(|digits| digits.parse::<usize>().ok())
            .filter(|index| *index <= 10 * NUMBER_MAX as usize);
        match index {
            Some(index) if (1..=self.args.len()).contains(&index) => {
                self.next = index - 1;
                true
            }
            _ => {
                self.index_is_good = false;
                index.is_some()
            }
        }
    }
}
