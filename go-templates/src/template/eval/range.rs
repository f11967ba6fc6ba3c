//! `range` over integers, lists and dicts. Never holds a borrow of what it ranges over: the body may change it.

use crate::error::TemplateError;
use crate::named::Named;
use crate::template::ast::{Assignment, Range};
use crate::template::eval::slot::Slot;
use crate::template::eval::{Flow, Machine};
use crate::value::{List, Text, Value};

/// The items that are left.
enum Items {
    Nothing,
    Count {
        next: u64,
        end: u64,
        of: fn(u64) -> Value,
    },
    List {
        list: List,
        next: usize,
        len: usize,
    },
    Dict(std::vec::IntoIter<(Text, Value)>, fn(Value) -> Slot),
}

impl Items {
    fn signed(count: i64, of: fn(u64) -> Value) -> Items {
        let end = u64::try_from(count).unwrap_or(0);
        Items::Count { next: 0, end, of }
    }

    fn unsigned(end: u64, of: fn(u64) -> Value) -> Items {
        Items::Count { next: 0, end, of }
    }
}

impl Iterator for Items {
    /// The index or key, and the item.
    type Item = (Slot, Slot);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Items::Nothing => None,
            Items::Count { next, end, of } => {
                let number = *next;
                *next += u64::from(number < *end);
                (number < *end).then(|| (Slot::plain(Value::Nil), Slot::plain(of(number))))
            }
            Items::List { list, next, len } => {
                let index = *next;
                let item = list.get(index).filter(|_| index < *len)?;
                *next += 1;
                let index = Slot::plain(Value::Int(index as i64));
                Some((index, Slot::element(item, list.element())))
            }
            Items::Dict(entries, slot) => {
                let (key, value) = entries.next()?;
                Some((Slot::plain(Value::Str(key)), slot(value)))
            }
        }
    }
}

/// The function that converts a number to the same type.
fn of_type(named: Named) -> fn(u64) -> Value {
    match named {
        Named::Month(_) => |number| Value::Named(Named::Month(number as i64)),
        Named::Weekday(_) => |number| Value::Named(Named::Weekday(number as i64)),
        Named::Duration(_) => |number| Value::Named(Named::Duration(number as i64)),
    }
}

impl<'t> Machine<'t, '_> {
    pub(super) fn range(&mut self, range: &'t Range, dot: &Slot) -> Result<Flow, TemplateError> {
        self.enter()?;
        let outer_mark = self.frame.variables.len();
        let value = self.pipeline(&range.pipe, dot)?;
        let assignment = range.pipe.assignment.as_ref();
        let items = self.items(&value, assignment)?;
        let mark = self.frame.variables.len();
        let mut is_empty = true;
        for (index, item) in items {
            is_empty = false;
            self.spend_step()?;
            if let Some(assignment) = assignment {
                self.set_range_variables(assignment, index, &item)?;
            }
            let flow = self.list(&range.body, &item)?;
            self.frame.variables.truncate(mark);
            if flow == Flow::Break {
                break;
            }
        }
        let flow = match &range.otherwise {
            Some(list) if is_empty => self.list(list, dot)?,
            _ => Flow::Next,
        };
        // As in Go, a `break` in a range's `else` ends that range, and a `continue` affects the enclosing range.
        let flow = match flow {
            Flow::Break => Flow::Next,
            flow => flow,
        };
        self.frame.variables.truncate(outer_mark);
        self.leave();
        Ok(flow)
    }

    fn items(
        &mut self,
        value: &Value,
        assignment: Option<&Assignment>,
    ) -> Result<Items, TemplateError> {
        let items = match value.plain() {
            Value::Nil => Items::Nothing,
            Value::Int(count) => Items::signed(count, |number| Value::Int(number as i64)),
            Value::Int64(count) => Items::signed(count, |number| Value::Int64(number as i64)),
            Value::Named(named) => Items::signed(named.number(), of_type(named)),
            Value::Uint8(count) => {
                Items::unsigned(count.into(), |number| Value::Uint8(number as u8))
            }
            Value::Uint64(count) => Items::unsigned(count, Value::Uint64),
            Value::List(list) => Items::List {
                len: list.len(),
                next: 0,
                list,
            },
            Value::Dict(dict) => {
                let bytes = dict.len() * size_of::<(Text, Value)>();
                let spent = self.context.budget.spend_memory(bytes as u64);
                spent.map_err(|limit| self.limit(limit))?;
                let entries = dict.entries().into_iter();
                match Slot::element(Value::Nil, dict.element()).boxed {
                    true => Items::Dict(entries, |value| Slot { value, boxed: true }),
                    false => Items::Dict(entries, Slot::plain),
                }
            }
            other => {
                let text = self.text(&other)?;
                return Err(self.fail(format!("range can't iterate over {text}")));
            }
        };
        let names = assignment.map_or(0, |assignment| assignment.names.len());
        if names > 1 && matches!(items, Items::Count { .. }) {
            let text = self.text(value)?;
            let message = format!("can't use {text} to iterate over more than one variable");
            return Err(self.fail(message));
        }
        Ok(items)
    }

    /// One variable is the item, two are the index and the item. Those declared by the range are its innermost ones.
    fn set_range_variables(
        &mut self,
        assignment: &'t Assignment,
        index: Slot,
        item: &Slot,
    ) -> Result<(), TemplateError> {
        let slots = match assignment.names.len() {
            1 => vec![item.clone()],
            _ => vec![index, item.clone()],
        };
        let first = self.frame.variables.len() - slots.len();
        for (offset, (name, slot)) in assignment.names.iter().zip(slots).enumerate() {
            if assignment.declares {
                self.frame.variables[first + offset].1 = slot;
            } else {
                self.assign(name, slot)?;
            }
        }
        Ok(())
    }
}
