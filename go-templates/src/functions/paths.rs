//! Slash-separated paths as text. No file is looked at; the `os` names do the same, as on Linux.

use crate::context::Context;
use crate::functions::arguments::text;
use crate::functions::{Function, Outcome};
use crate::signature::Param::Str;
use crate::signature::Signature;
use crate::value::Value;

const ONE: Signature = Signature::exactly(&[Str]);

pub const FUNCTIONS: &[Function] = &[
    Function::new("base", ONE, base),
    Function::new("clean", ONE, clean),
    Function::new("dir", ONE, dir),
    Function::new("ext", ONE, ext),
    Function::new("isAbs", ONE, is_abs),
    Function::new("osBase", ONE, base),
    Function::new("osClean", ONE, clean),
    Function::new("osDir", ONE, dir),
    Function::new("osExt", ONE, ext),
    Function::new("osIsAbs", ONE, is_abs),
];

fn base(context: &mut Context, args: &[Value]) -> Outcome {
    let whole = text(args, 0)?;
    let end = whole.iter().rposition(|byte| *byte != b'/');
    context.string(match end {
        None if whole.is_empty() => b".",
        None => b"/",
        Some(end) => {
            let start = whole[..end].iter().rposition(|byte| *byte == b'/');
            &whole[start.map_or(0, |start| start + 1)..=end]
        }
    })
}

fn clean(context: &mut Context, args: &[Value]) -> Outcome {
    cleaned(context, text(args, 0)?)
}

fn dir(context: &mut Context, args: &[Value]) -> Outcome {
    let whole = text(args, 0)?;
    let slash = whole.iter().rposition(|byte| *byte == b'/');
    cleaned(context, &whole[..slash.map_or(0, |slash| slash + 1)])
}

fn ext(context: &mut Context, args: &[Value]) -> Outcome {
    let whole = text(args, 0)?;
    let found = whole.iter().rposition(|byte| matches!(byte, b'/' | b'.'));
    context.string(match found {
        Some(at) if whole[at] == b'.' => &whole[at..],
        _ => b"",
    })
}

fn is_abs(_: &mut Context, args: &[Value]) -> Outcome {
    Ok(Value::Bool(text(args, 0)?.starts_with(b"/")))
}

/// The shortest path that means the same: without empty parts, `.`, and `..` behind a name.
fn cleaned(context: &mut Context, path: &[u8]) -> Outcome {
    let slashes = path.iter().filter(|byte| **byte == b'/').count();
    context.reserve(slashes * size_of::<&[u8]>())?;
    let is_rooted = path.starts_with(b"/");
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => match parts.last() {
                Some(last) if *last != b".." => {
                    parts.pop();
                }
                _ if is_rooted => {}
                _ => parts.push(part),
            },
            _ => parts.push(part),
        }
    }
    let joined = parts.join(&b'/');
    context.string(match (is_rooted, joined.is_empty()) {
        (true, _) => [b"/", &joined[..]].concat(),
        (false, true) => b".".to_vec(),
        (false, false) => joined,
    })
}
