//! The CEL that a probe may use: only what is fast and builds no value larger than its input.

use cel::IdedExpr;
use cel::common::ast::{Expr, LiteralValue, operators};

const DEPTH_MAX: u32 = 24;
/// The depth of nested loops.
const LOOPS_MAX: u32 = 2;

/// Operators and functions that take little, and make nothing large.
const KNOWN: [&str; 23] = [
    operators::CONDITIONAL,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::SUBSTRACT,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER_EQUALS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::LESS,
    operators::NEGATE,
    operators::INDEX,
    operators::NOT_STRICTLY_FALSE,
    operators::IN,
    "contains",
    "double",
    "endsWith",
    "int",
    "size",
    "startsWith",
    "string",
    "uint",
];

/// A rejected expression: the parser's number for it, and why.
pub struct RefusedExpression {
    pub expression: u64,
    pub why: String,
}

/// The position of an expression in a probe.
#[derive(Clone, Default)]
struct Scope<'a> {
    /// The variables of the enclosing loops.
    variables: Vec<&'a str>,
    loops: u32,
    depth: u32,
}

/// Rejects expressions that could take long or grow, and unknown names.
pub fn check(expr: &IdedExpr) -> Result<(), RefusedExpression> {
    check_in(expr, &Scope::default())
}

fn check_in<'a>(expr: &'a IdedExpr, scope: &Scope<'a>) -> Result<(), RefusedExpression> {
    let refuse = |why: String| {
        let expression = expr.id;
        Err(RefusedExpression { expression, why })
    };
    if scope.depth > DEPTH_MAX {
        return refuse(format!("it is more than {DEPTH_MAX} expressions deep"));
    }
    let mut inner = scope.clone();
    inner.depth += 1;
    match &expr.expr {
        Expr::Unspecified | Expr::Literal(_) => Ok(()),
        Expr::Ident(name) if name == "object" || scope.variables.contains(&name.as_str()) => Ok(()),
        Expr::Ident(name) => refuse(format!(
            "{name} is not known to probes; the object is called object"
        )),
        Expr::Select(select) => check_in(&select.operand, &inner),
        Expr::List(list) => list.elements.iter().try_for_each(|e| check_in(e, &inner)),
        Expr::Map(_) | Expr::Struct(_) => {
            refuse("a probe makes no maps and no messages".to_owned())
        }
        Expr::Call(call) => {
            let name = call.func_name.as_str();
            // One more, or one more item: what the macros count and collect with.
            let adds_one = name == operators::ADD && call.args.iter().any(is_one);
            if !adds_one && !KNOWN.contains(&name) {
                let name = name.trim_matches(['_', '@']);
                return refuse(format!(
                    "{name} is not known to probes; they compare, look through lists (exists, all, exists_one, filter), and know has, \
                     size, contains, startsWith, endsWith, string, int, uint and double"
                ));
            }
            let target = call.target.iter().map(|target| &**target);
            target
                .chain(&call.args)
                .try_for_each(|e| check_in(e, &inner))
        }
        Expr::Comprehension(over) => {
            if scope.loops == LOOPS_MAX {
                return refuse(format!(
                    "a probe may look through a list within a list, and no deeper than {LOOPS_MAX} lists"
                ));
            }
            check_in(&over.iter_range, &inner)?;
            inner.loops += 1;
            let names = [&over.iter_var, &over.accu_var];
            let second = over.iter_var2.iter();
            let names = names.into_iter().chain(second).map(String::as_str);
            inner.variables.extend(names);
            let body = [
                &over.accu_init,
                &over.loop_cond,
                &over.loop_step,
                &over.result,
            ];
            body.into_iter().try_for_each(|e| check_in(e, &inner))
        }
    }
}

/// False if the result is certainly not a boolean.
pub fn may_be_true(expr: &IdedExpr) -> bool {
    const OTHERS: [&str; 8] = [
        operators::ADD,
        operators::SUBSTRACT,
        operators::NEGATE,
        "double",
        "int",
        "size",
        "string",
        "uint",
    ];
    match &expr.expr {
        Expr::Literal(literal) => matches!(literal, LiteralValue::Boolean(_)),
        Expr::Ident(name) => name != "object",
        Expr::List(_) => false,
        Expr::Call(call) if call.func_name == operators::CONDITIONAL => {
            call.args.iter().skip(1).all(may_be_true)
        }
        Expr::Call(call) => !OTHERS.contains(&call.func_name.as_str()),
        Expr::Comprehension(over) => match &over.result.expr {
            Expr::Ident(name) if *name == over.accu_var => may_be_true(&over.accu_init),
            _ => may_be_true(&over.result),
        },
        _ => true,
    }
}

fn is_one(expr: &IdedExpr) -> bool {
    match &expr.expr {
        Expr::Literal(LiteralValue::Int(_)) => true,
        Expr::List(list) => list.elements.len() == 1,
        _ => false,
    }
}
