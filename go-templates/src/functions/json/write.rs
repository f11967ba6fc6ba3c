//! Values as JSON text.

use crate::budget::Budget;
use crate::format::float::format_float;
use crate::format::{Writer, time};
use crate::functions::FunctionError;
use crate::runes;
use crate::value::Value;

#[derive(Debug, Clone, Copy)]
pub struct Style {
    escapes_html: bool,
    indents: bool,
}

impl Style {
    pub const COMPACT: Style = Style {
        escapes_html: true,
        indents: false,
    };
    pub const PRETTY: Style = Style {
        escapes_html: true,
        indents: true,
    };
    pub const RAW: Style = Style {
        escapes_html: false,
        indents: false,
    };
}

type Done = Result<(), FunctionError>;

pub fn write(value: &Value, style: Style, budget: &mut Budget) -> Result<Vec<u8>, FunctionError> {
    let mut out = Vec::new();
    let mut json = Json {
        out: Writer::in_memory(&mut out, budget),
        style,
        level: 0,
    };
    json.value(value)?;
    Ok(out)
}

struct Json<'a> {
    out: Writer<'a>,
    style: Style,
    level: usize,
}

impl Json<'_> {
    fn value(&mut self, value: &Value) -> Done {
        self.out.budget.spend_steps(1)?;
        let plain = value.plain();
        match &plain {
            Value::Nil | Value::Typed(_) => self.raw("null"),
            Value::Bool(b) => self.raw(&b.to_string()),
            Value::Int(n) | Value::Int64(n) => self.raw(&n.to_string()),
            Value::Uint8(n) => self.raw(&n.to_string()),
            Value::Uint64(n) => self.raw(&n.to_string()),
            Value::Float(f) => self.float(*f),
            Value::Str(text) => self.string(text),
            Value::Time(moment) => self.string(time::rfc3339(moment).as_bytes()),
            Value::Version(version) => self.string(version.to_string().as_bytes()),
            Value::Named(named) => self.raw(&named.number().to_string()),
            Value::Certificate(certificate) => {
                self.open("{")?;
                for (index, (name, text)) in certificate.fields().into_iter().enumerate() {
                    self.entry(index == 0, name.as_bytes())?;
                    self.string(text)?;
                }
                self.close("}", false)
            }
            Value::List(list) if list.is_nil() => self.raw("null"),
            Value::List(list) => {
                self.open("[")?;
                let mut index = 0;
                while let Some(item) = list.get(index) {
                    self.item(index == 0)?;
                    self.value(&item)?;
                    index += 1;
                }
                self.close("]", index == 0)
            }
            Value::Dict(dict) => {
                self.open("{")?;
                self.out.budget.spend_steps(dict.len() as u64)?;
                let entries = dict.entries();
                for (index, (key, item)) in entries.iter().enumerate() {
                    self.entry(index == 0, key)?;
                    self.value(item)?;
                }
                self.close("}", entries.is_empty())
            }
        }
    }

    fn raw(&mut self, text: &str) -> Done {
        Ok(self.out.push(text.as_bytes())?)
    }

    fn open(&mut self, bracket: &str) -> Done {
        self.out.budget.enter()?;
        self.level += 1;
        self.raw(bracket)
    }

    fn item(&mut self, is_first: bool) -> Done {
        if !is_first {
            self.raw(",")?;
        }
        self.line()
    }

    fn entry(&mut self, is_first: bool, key: &[u8]) -> Done {
        self.item(is_first)?;
        self.string(key)?;
        self.raw(if self.style.indents { ": " } else { ":" })
    }

    fn close(&mut self, bracket: &str, is_empty: bool) -> Done {
        self.out.budget.leave();
        self.level -= 1;
        if !is_empty {
            self.line()?;
        }
        self.raw(bracket)
    }

    fn line(&mut self) -> Done {
        if self.style.indents {
            self.raw("\n")?;
            self.out.repeat(b' ', self.level * 2)?;
        }
        Ok(())
    }

    fn float(&mut self, f: f64) -> Done {
        if !f.is_finite() {
            let shown = format_float(f, b'g', None);
            return Err(FunctionError::new(format!(
                "json: unsupported value: {shown}"
            )));
        }
        self.raw(&float(f))
    }

    fn string(&mut self, bytes: &[u8]) -> Done {
        self.raw("\"")?;
        for (at, c, size) in runes::runes(bytes) {
            match c {
                '"' | '\\' => self.raw(&format!("\\{c}"))?,
                '\u{8}' => self.raw("\\b")?,
                '\u{c}' => self.raw("\\f")?,
                '\n' => self.raw("\\n")?,
                '\r' => self.raw("\\r")?,
                '\t' => self.raw("\\t")?,
                '<' | '>' | '&' if !self.style.escapes_html => self.out.push(&[c as u8])?,
                '\0'..' ' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                    self.raw(&format!("\\u{:04x}", u32::from(c)))?;
                }
                runes::ERROR if size == 1 => self.raw("\\ufffd")?,
                _ => self.out.push(&bytes[at..at + size])?,
            }
        }
        self.raw("\"")
    }
}

/// A finite float, with an exponent only for the very small and the very large.
pub fn float(f: f64) -> String {
    let magnitude = f.abs();
    if magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
        return format_float(f, b'f', None);
    }
    let text = format_float(f, b'e', None);
    match text.split_once("e-0") {
        Some((mantissa, digit)) => format!("{mantissa}e-{digit}"),
        None => text,
    }
}
