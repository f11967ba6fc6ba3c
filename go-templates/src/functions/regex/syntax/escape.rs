//! Escapes after a backslash: positions, quoted text, classes and single characters.

use regex_syntax::hir::{Hir, Look};

use crate::functions::regex::syntax::{Parser, Stop, before, refused};

impl<'p> Parser<'p, '_> {
    pub(super) fn backslash(&mut self) -> Result<(), Stop> {
        let here = self.rest;
        match here[1..].chars().next() {
            Some('A') => self.look_here(Look::Start, 2),
            Some('z') => self.look_here(Look::End, 2),
            Some('b') => self.look_here(Look::WordAscii, 2),
            Some('B') => self.look_here(Look::WordAsciiNegate, 2),
            Some('C') => return refused("invalid escape sequence", &here[..2]),
            Some('Q') => {
                let (quoted, rest) = here[2..].split_once("\\E").unwrap_or((&here[2..], ""));
                self.rest = rest;
                for c in quoted.chars() {
                    self.budget.spend_steps(1)?;
                    self.literal(c);
                }
            }
            _ => match self.escaped_class()? {
                Some(class) => self.class(class)?,
                None => {
                    let code = self.escape()?;
                    match char::from_u32(code) {
                        Some(c) => self.literal(c),
                        // A surrogate, which no text holds.
                        None => self.push(Hir::fail()),
                    }
                }
            },
        }
        Ok(())
    }

    /// `\n`, `\.`, `\101`, `\x41`, `\x{10FFFF}`: the number of a character.
    pub(super) fn escape(&mut self) -> Result<u32, Stop> {
        let here = self.rest;
        let mut chars = here[1..].chars();
        let Some(letter) = chars.next() else {
            return refused("trailing backslash at end of expression", "");
        };
        let plain = match letter {
            'a' => Some(0x07),
            'f' => Some(0x0c),
            'n' => Some(0x0a),
            'r' => Some(0x0d),
            't' => Some(0x09),
            'v' => Some(0x0b),
            '0'..='7' => octal(letter, &mut chars),
            'x' => hexadecimal(&mut chars),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Some(u32::from(c)),
            _ => None,
        };
        let rest = chars.as_str();
        match plain {
            Some(code) => {
                self.rest = rest;
                Ok(code)
            }
            None => refused("invalid escape sequence", before(here, rest)),
        }
    }
}

/// Up to three octal digits. One alone would be a reference to a group, unless it is 0.
fn octal(first: char, chars: &mut std::str::Chars) -> Option<u32> {
    let next = |chars: &std::str::Chars| chars.clone().next().and_then(|c| c.to_digit(8));
    if first != '0' {
        next(chars)?;
    }
    let mut code = first.to_digit(8)?;
    for _ in 0..2 {
        let Some(digit) = next(chars) else { break };
        chars.next();
        code = code * 8 + digit;
    }
    Some(code)
}

/// Two digits, or any number of them in braces.
fn hexadecimal(chars: &mut std::str::Chars) -> Option<u32> {
    let first = chars.next()?;
    if first != '{' {
        let second = chars.next()?;
        return Some(first.to_digit(16)? * 16 + second.to_digit(16)?);
    }
    let mut code = None;
    loop {
        match chars.next()? {
            '}' => return code,
            c => {
                let digit = c.to_digit(16)?;
                let longer = code.unwrap_or(0) * 16 + digit;
                code = Some(longer).filter(|code| *code <= u32::from(char::MAX));
                code?;
            }
        }
    }
}
