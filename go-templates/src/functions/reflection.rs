//! Types and kinds by Go's names, and equality of whole values.

use crate::context::Context;
use crate::functions::arguments::{any, text};
use crate::functions::cast::deep_equal;
use crate::functions::{Function, Outcome};
use crate::signature::Param::{Any, Str};
use crate::signature::Signature;
use crate::value::Value;

const ONE: Signature = Signature::exactly(&[Any]);
const NAMED: Signature = Signature::exactly(&[Str, Any]);

pub const FUNCTIONS: &[Function] = &[
    Function::new(
        "deepEqual",
        Signature::exactly(&[Any, Any]),
        |context, args| {
            let equal = deep_equal(any(args, 0), any(args, 1), &mut context.budget)?;
            Ok(Value::Bool(equal))
        },
    ),
    Function::new("kindIs", NAMED, |_, args| {
        let name = any(args, 1).kind().name();
        Ok(Value::Bool(text(args, 0)?[..] == *name.as_bytes()))
    }),
    Function::new("kindOf", ONE, |_, args| {
        Ok(Value::str(any(args, 0).kind().name()))
    }),
    Function::new("typeIs", NAMED, type_is),
    Function::new("typeIsLike", NAMED, |_, args| {
        let (wanted, name) = (text(args, 0)?, any(args, 1).type_name());
        // A pointer is like what it points to.
        let pointed_to = name.strip_prefix('*').unwrap_or(name);
        let found = [name, pointed_to].map(str::as_bytes);
        Ok(Value::Bool(found.contains(&&wanted[..])))
    }),
    Function::new("typeOf", ONE, |_, args| {
        Ok(Value::str(any(args, 0).type_name()))
    }),
];

fn type_is(_: &mut Context, args: &[Value]) -> Outcome {
    let name = any(args, 1).type_name();
    Ok(Value::Bool(text(args, 0)?[..] == *name.as_bytes()))
}
