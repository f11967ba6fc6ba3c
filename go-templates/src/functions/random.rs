//! Repeatable random values: derived from the seed for this place and template, so that only an edit of the template changes
//! them.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::context::Context;
use crate::functions::arguments::{int, text};
use crate::functions::encoding::encode64;
use crate::functions::{Function, FunctionError, Outcome};
use crate::runes;
use crate::signature::Param::{Int, Str};
use crate::signature::Signature;
use crate::value::Value;

const COUNT: Signature = Signature::exactly(&[Int]);

pub const FUNCTIONS: &[Function] = &[
    Function::new("randAlpha", COUNT, |context, args| {
        characters(context, args, |c| c.is_ascii_alphabetic())
    }),
    Function::new("randAlphaNum", COUNT, |context, args| {
        characters(context, args, |c| c.is_ascii_alphanumeric())
    }),
    Function::new("randAscii", COUNT, |context, args| {
        characters(context, args, |c| matches!(c, b' '..=b'~'))
    }),
    Function::new("randBytes", COUNT, rand_bytes),
    Function::new("randInt", Signature::exactly(&[Int, Int]), rand_int),
    Function::new("randNumeric", COUNT, |context, args| {
        characters(context, args, |c| c.is_ascii_digit())
    }),
    Function::new("shuffle", Signature::exactly(&[Str]), shuffle),
    Function::new("uuidv4", Signature::exactly(&[]), uuidv4),
];

/// The bytes of one random value: HMAC-SHA256 of everything that tells it from all others, and a counter.
pub struct Draw {
    mac: Hmac<Sha256>,
    block: [u8; 32],
    used: usize,
    blocks: u64,
}

impl Draw {
    fn new(context: &mut Context) -> Result<Draw, FunctionError> {
        Draw::of(context, None)
    }

    /// A value that also depends on the text.
    pub fn of(context: &mut Context, text: Option<&[u8]>) -> Result<Draw, FunctionError> {
        let seed = context.facts.seed.as_ref();
        let seed = seed.map_err(|why| FunctionError::new(*why))?;
        let mut mac = Hmac::<Sha256>::new_from_slice(&seed.key)
            .map_err(|error| FunctionError::new(error.to_string()))?;
        let parts = [
            context.place.path.as_bytes(),
            context.place.text.as_bytes(),
            &context.draws.to_be_bytes(),
        ];
        let parts = seed.scope.iter().map(Vec::as_slice).chain(parts);
        for part in parts.chain(text) {
            // With its length, so that no two lists of parts read the same.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        context.draws += 1;
        Ok(Draw {
            mac,
            block: [0; 32],
            used: 32,
            blocks: 0,
        })
    }

    pub fn byte(&mut self) -> u8 {
        if self.used == self.block.len() {
            let mut mac = self.mac.clone();
            mac.update(&self.blocks.to_be_bytes());
            self.block = mac.finalize().into_bytes().into();
            self.blocks += 1;
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    /// A number below `bound`, all equally likely.
    fn below(&mut self, bound: u64) -> u64 {
        let bound = bound.max(1);
        let fair_end = u64::MAX - u64::MAX % bound;
        loop {
            let number = (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte()));
            if number < fair_end {
                return number % bound;
            }
        }
    }
}

/// As many characters of the set; none for a negative count, as upstream.
fn characters(context: &mut Context, args: &[Value], belongs: fn(&u8) -> bool) -> Outcome {
    let count = usize::try_from(int(args, 0)?).unwrap_or(0);
    context.reserve(count)?;
    context.budget.spend_steps(count as u64)?;
    let set: Vec<u8> = (0..=u8::MAX).filter(belongs).collect();
    let mut draw = Draw::new(context)?;
    let drawn: Vec<u8> = (0..count)
        .map(|_| set[draw.below(set.len() as u64) as usize])
        .collect();
    Ok(Value::str(drawn))
}

fn rand_bytes(context: &mut Context, args: &[Value]) -> Outcome {
    let Ok(count) = usize::try_from(int(args, 0)?) else {
        return Err(FunctionError::new(
            "runtime error: makeslice: len out of range",
        ));
    };
    context.reserve(count.saturating_mul(3))?;
    context.budget.spend_steps(count as u64)?;
    let mut draw = Draw::new(context)?;
    let bytes: Vec<u8> = (0..count).map(|_| draw.byte()).collect();
    Ok(Value::str(encode64(&bytes)))
}

/// A number from `min` on and below `max`.
fn rand_int(context: &mut Context, args: &[Value]) -> Outcome {
    let (min, max) = (int(args, 0)?, int(args, 1)?);
    let Some(span) = max.checked_sub(min).filter(|span| *span > 0) else {
        return Err(FunctionError::new("invalid argument to Intn"));
    };
    let drawn = Draw::new(context)?.below(span.unsigned_abs());
    Ok(Value::Int(min + drawn as i64))
}

fn shuffle(context: &mut Context, args: &[Value]) -> Outcome {
    let whole = text(args, 0)?;
    context.reserve(whole.len().saturating_mul(size_of::<char>()))?;
    context.budget.spend_steps(whole.len() as u64)?;
    let mut chars: Vec<char> = runes::runes(whole).map(|(_, c, _)| c).collect();
    let mut draw = Draw::new(context)?;
    for last in (1..chars.len()).rev() {
        let other = draw.below(last as u64 + 1) as usize;
        chars.swap(last, other);
    }
    context.string(chars.into_iter().collect::<String>())
}

fn uuidv4(context: &mut Context, _: &[Value]) -> Outcome {
    let mut draw = Draw::new(context)?;
    let mut bytes = [0; 16];
    bytes.fill_with(|| draw.byte());
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Value::str(format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )))
}
