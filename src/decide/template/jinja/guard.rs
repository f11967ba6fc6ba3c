//! Protects minijinja's stack and memory from hostile templates: rejects what nests or chains too far, and charges instructions
//! to the budget.

use std::collections::BTreeSet;

use minijinja::machinery::{Instruction, Instructions, Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Error, ErrorKind};

use crate::decide::template::jinja::library::is_function;
use crate::decide::template::jinja::operators;

/// Tokens between `{{` and `}}`, or `{%` and `%}`: a chain of operators nests as deep as it is long.
const TAG_TOKENS_MAX: usize = 250;
/// `elif` tags of a template: each nests in the one before.
const ELIF_MAX: usize = 100;

/// Why a template is not taken.
#[derive(Debug)]
pub struct GuardError {
    pub line: u32,
    /// Of the tag's first word in the text, in bytes.
    pub offset: usize,
    pub message: String,
}

/// Rejects what could exhaust the stack during parsing or rendering, and what minijinja would compute without limits while it
/// parses. Leaves syntax errors to the parser.
pub fn check(text: &str, syntax: &SyntaxConfig) -> Result<(), GuardError> {
    let (mut tag, mut elifs, mut first) = (Vec::new(), 0, None);
    let (mut lost, mut read) = (None, false);
    for token in tokenize(text, false, syntax.clone()) {
        let Ok((token, span)) = token else {
            return Ok(());
        };
        let place = first.unwrap_or(span);
        let refusal = |message: String| GuardError {
            line: u32::from(place.start_line),
            offset: place.start_offset as usize,
            message,
        };
        match token {
            Token::VariableStart | Token::BlockStart => {
                tag.clear();
                first = None;
            }
            Token::VariableEnd | Token::BlockEnd => {
                if let Some(message) = refused_tag(&tag) {
                    return Err(refusal(message));
                }
                lost = lost.or_else(|| lost_change(&tag).map(refusal));
                read |= reads_underscore(&tag);
                elifs += usize::from(matches!(tag.first(), Some(Token::Ident("elif"))));
                if elifs > ELIF_MAX {
                    return Err(refusal(format!(
                        "more than {ELIF_MAX} elif tags; use a dict"
                    )));
                }
            }
            Token::TemplateData(_) => {}
            token => {
                first.get_or_insert(span);
                tag.push(token);
            }
        }
        if tag.len() > TAG_TOKENS_MAX {
            return Err(refusal(format!(
                "a tag has more than {TAG_TOKENS_MAX} words and signs; set variables for its parts"
            )));
        }
    }
    match lost {
        Some(refusal) if !read => Err(refusal),
        _ => Ok(()),
    }
}

/// Functions that change a dict in Go; here they give a changed copy.
const CHANGING: [&str; 6] = [
    "merge",
    "mergeOverwrite",
    "mustMerge",
    "mustMergeOverwrite",
    "set",
    "unset",
];

/// The error for a tag that changes a dict as in Go and discards the changed copy, unless the template reads `_`.
fn lost_change(tag: &[Token]) -> Option<String> {
    let ([Token::Ident("do"), expression @ ..]
    | [
        Token::Ident("set"),
        Token::Ident("_"),
        Token::Assign,
        expression @ ..,
    ]) = tag
    else {
        return None;
    };
    let call = match expression.last() {
        Some(Token::ParenClose) => &expression[..group_start(expression)?],
        _ => expression,
    };
    match call {
        [Token::Ident(name)] | [.., Token::Pipe, Token::Ident(name)] if CHANGING.contains(name) => {
            Some(format!(
                "{name} changes no dict in Jinja, it gives a changed copy, which is lost here; keep it: {{% set d = {name}(d, …) %}}"
            ))
        }
        _ => None,
    }
}

fn reads_underscore(tag: &[Token]) -> bool {
    let read = match tag {
        [Token::Ident("set"), _, read @ ..] => read,
        read => read,
    };
    read.iter().any(|token| matches!(token, Token::Ident("_")))
}

fn refused_tag(tag: &[Token]) -> Option<String> {
    if let Some(Token::Ident(name @ ("include" | "import" | "from" | "extends" | "block"))) =
        tag.first()
    {
        return Some(format!("{name}: a template cannot take in others"));
    }
    let repeats = tag.iter().enumerate().any(|(at, token)| {
        matches!(token, Token::Mul)
            && (ends_constant(&tag[..at]) || begins_constant(&tag[at + 1..]))
    });
    repeats.then(|| "a constant string or list is multiplied; use repeat".to_owned())
}

/// Whether the operand before an operator is a constant other than a number.
fn ends_constant(before: &[Token]) -> bool {
    match before.last() {
        Some(Token::Str(_) | Token::String(_)) => true,
        Some(Token::ParenClose | Token::BracketClose) => {
            let Some(open) = group_start(before) else {
                return false;
            };
            // Behind a value, brackets are a call or an index.
            let is_suffix = matches!(
                open.checked_sub(1).and_then(|at| before.get(at)),
                Some(
                    Token::Ident(_)
                        | Token::Str(_)
                        | Token::String(_)
                        | Token::ParenClose
                        | Token::BracketClose
                )
            );
            !is_suffix && is_constant_group(&before[open..])
        }
        _ => false,
    }
}

fn begins_constant(after: &[Token]) -> bool {
    match after.first() {
        Some(Token::Str(_) | Token::String(_)) => true,
        Some(Token::ParenOpen | Token::BracketOpen) => {
            let end = (1..=after.len()).find(|end| group_start(&after[..*end]) == Some(0));
            end.is_some_and(|end| is_constant_group(&after[..end]))
        }
        _ => false,
    }
}

/// Where the group begins that ends with the last token.
fn group_start(tokens: &[Token]) -> Option<usize> {
    let mut open = 0;
    for (at, token) in tokens.iter().enumerate().rev() {
        match token {
            Token::ParenClose | Token::BracketClose | Token::BraceClose => open += 1,
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(at);
        }
    }
    None
}

/// Whether a bracketed group names nothing, and is a string, list or tuple.
fn is_constant_group(group: &[Token]) -> bool {
    const WORDS: [&str; 11] = [
        "and", "else", "false", "if", "in", "is", "none", "not", "null", "or", "true",
    ];
    let names_something = group
        .iter()
        .any(|token| matches!(token, Token::Ident(name) if !WORDS.contains(&name.to_ascii_lowercase().as_str())));
    let is_larger = group.iter().any(|token| {
        matches!(
            token,
            Token::Str(_) | Token::String(_) | Token::BracketOpen | Token::Comma
        )
    });
    is_larger && !names_something
}

/// Adds a charge to each instruction that writes text, builds a larger value from smaller ones, or reads a whole value. A
/// function's name that is not called becomes undefined, because the template must mean a variable.
pub fn guarded<'env>(instructions: &Instructions<'env>) -> Result<Instructions<'env>, Error> {
    let all = || (0..).map_while(|at| instructions.get(at));
    let landings: BTreeSet<u32> = all().filter_map(jump).collect();
    let reads = |at: u32| {
        let before = at
            .checked_sub(1)
            .and_then(|before| instructions.get(before));
        // A constant key needs no charge: errors show it, and a template's text is too short for it to take long.
        let is_constant = matches!(
            (before, instructions.get(at)),
            (Some(Instruction::LoadConst(_)), Some(Instruction::GetItem))
        );
        instructions.get(at).is_some_and(reads) && (!is_constant || landings.contains(&at))
    };
    let mut targets = Vec::new();
    let mut next = 0;
    let mut at = 0;
    for instruction in all() {
        targets.push(next);
        next += match instruction {
            Instruction::EmitRaw(_) => 2,
            Instruction::Lookup(name) if is_function(name) => 2,
            _ if reads(at) => 2,
            _ => 1,
        };
        at += 1;
    }
    targets.push(next);
    let target = |old: u32| targets.get(old as usize).copied().unwrap_or(old);
    let mut guarded = Instructions::new(instructions.name(), instructions.source());
    for at in 0..at {
        let Some(instruction) = instructions.get(at) else {
            break;
        };
        let line = instructions.get_line(at).unwrap_or(0);
        let line = u16::try_from(line).unwrap_or(u16::MAX);
        let span = instructions.get_span(at);
        let mut add = |instruction| match span {
            Some(span) => guarded.add_with_span(instruction, span),
            None => guarded.add_with_line(instruction, line),
        };
        match instruction.clone() {
            Instruction::EmitRaw(text) => {
                add(Instruction::LoadConst(text.into()));
                add(Instruction::Emit);
            }
            Instruction::Lookup(name) if is_function(name) => {
                add(Instruction::Lookup(name));
                add(filter(operators::VARIABLE, 1));
            }
            Instruction::CallMethod("changed", Some(3..) | None) => {
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    "changed: give it one value",
                ));
            }
            reading if reads(at) => {
                add(filter(operators::READ, 1));
                add(reading);
            }
            Instruction::Jump(to) => drop(add(Instruction::Jump(target(to)))),
            Instruction::JumpIfFalse(to) => drop(add(Instruction::JumpIfFalse(target(to)))),
            Instruction::JumpIfFalseOrPop(to) => {
                add(Instruction::JumpIfFalseOrPop(target(to)));
            }
            Instruction::JumpIfTrueOrPop(to) => {
                add(Instruction::JumpIfTrueOrPop(target(to)));
            }
            Instruction::Iterate(to) => drop(add(Instruction::Iterate(target(to)))),
            Instruction::BuildMacro(name, to, flags) => {
                add(Instruction::BuildMacro(name, target(to), flags));
            }
            other => drop(add(replaced(other))),
        }
    }
    Ok(guarded)
}

/// Whether an instruction's time grows with the size of its first operand. A comparison stops at the end of the smaller operand,
/// so charging the first is enough.
fn reads(instruction: &Instruction) -> bool {
    matches!(
        instruction,
        Instruction::Eq
            | Instruction::Ne
            | Instruction::Gt
            | Instruction::Gte
            | Instruction::Lt
            | Instruction::Lte
            | Instruction::In
            | Instruction::CompareAndPreserve(_)
            | Instruction::GetItem
            | Instruction::PushLoop(_)
            // On a loop: whether the value differs from the previous iteration's.
            | Instruction::CallMethod("changed", _)
    )
}

fn jump(instruction: &Instruction) -> Option<u32> {
    match instruction {
        Instruction::Jump(to)
        | Instruction::JumpIfFalse(to)
        | Instruction::JumpIfFalseOrPop(to)
        | Instruction::JumpIfTrueOrPop(to)
        | Instruction::Iterate(to)
        | Instruction::BuildMacro(_, to, _) => Some(*to),
        _ => None,
    }
}

fn filter(name: &str, count: usize) -> Instruction<'_> {
    const UNCACHED: u8 = !0;
    Instruction::ApplyFilter(name, u16::try_from(count).ok(), UNCACHED)
}

fn replaced(instruction: Instruction) -> Instruction {
    match instruction {
        Instruction::Add => filter(operators::ADD, 2),
        Instruction::Mul => filter(operators::MULTIPLY, 2),
        Instruction::StringConcat => filter(operators::CONCAT, 2),
        Instruction::Slice => filter(operators::SLICE, 4),
        Instruction::BuildList(Some(count)) => filter(operators::LIST, count),
        Instruction::BuildTuple(Some(count)) => filter(operators::TUPLE, count),
        Instruction::BuildMap(pairs) => filter(operators::MAP, pairs * 2),
        other => other,
    }
}
