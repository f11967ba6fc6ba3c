//! The values of a running template, with Go's types kept apart. Knows nothing of templates, and holds no function.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use crate::format::float::format_float;
use crate::signature::Param;

pub use crate::named::Named;
pub use crate::time::{Time, Zone};
pub use crate::version::Version;

/// A Go string: bytes, not necessarily UTF-8. Cheap to clone.
pub type Text = Arc<[u8]>;

/// One value. Int and Int64 are different types to Go, and print and compare as such.
#[derive(Debug, Clone)]
pub enum Value {
    /// Go's untyped nil: a missing value.
    Nil,
    /// A `bool`.
    Bool(bool),
    /// An `int`, of 64 bits.
    Int(i64),
    /// An `int64`.
    Int64(i64),
    /// One byte of a string, as `index "abc" 0` gives it.
    Uint8(u8),
    /// An `uint64`.
    Uint64(u64),
    /// A `float64`.
    Float(f64),
    /// A `string`.
    Str(Text),
    /// A slice.
    List(List),
    /// A map with string keys.
    Dict(Dict),
    /// A `time.Time`.
    Time(Rc<Time>),
    /// The result of `semver`: a `*semver.Version`.
    Version(Arc<Version>),
    /// A month, a weekday or a duration.
    Named(Named),
    /// The result of `buildCustomCert`: sprig's struct of two strings.
    Certificate(Rc<Certificate>),
    /// A number or boolean that the embedder wants back as such.
    Typed(Typed),
}

/// A certificate and its private key, both in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The certificate.
    pub cert: Text,
    /// The private key.
    pub key: Text,
}

impl Certificate {
    /// The fields of the struct by their names in Go, in its order.
    pub fn fields(&self) -> [(&'static str, &Text); 2] {
        [("Cert", &self.cert), ("Key", &self.key)]
    }
}

/// A number or boolean that [`Output::finish`](crate::Output::finish) gives back as such when it is all that the template
/// writes. No function of this crate makes one: it is for those that the embedder adds.
///
/// It counts with numbers, fits where a string is wanted, and is never empty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Typed {
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A boolean.
    Bool(bool),
}

/// Go's `reflect.Kind`, for the kinds that occur here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The kind of a missing value.
    Invalid,
    /// `bool`
    Bool,
    /// `int`
    Int,
    /// `int64`
    Int64,
    /// `uint8`
    Uint8,
    /// `uint64`
    Uint64,
    /// `float64`
    Float64,
    /// `string`
    String,
    /// `slice`
    Slice,
    /// `map`
    Map,
    /// `ptr`
    Ptr,
    /// `struct`
    Struct,
}

impl Kind {
    /// The name that Go prints.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Invalid => "invalid",
            Kind::Bool => "bool",
            Kind::Int => "int",
            Kind::Int64 => "int64",
            Kind::Uint8 => "uint8",
            Kind::Uint64 => "uint64",
            Kind::Float64 => "float64",
            Kind::String => "string",
            Kind::Slice => "slice",
            Kind::Map => "map",
            Kind::Ptr => "ptr",
            Kind::Struct => "struct",
        }
    }
}

/// The element type of a list or dict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// `interface {}`
    Any,
    /// `string`
    Str,
    /// `int`
    Int,
    /// `[]interface {}`, as `chunk` makes them.
    List,
}

impl Value {
    /// A string.
    pub fn str(bytes: impl AsRef<[u8]>) -> Value {
        Value::Str(Arc::from(bytes.as_ref()))
    }

    /// A `[]interface {}`.
    pub fn list(items: impl IntoIterator<Item = Value>) -> Value {
        Value::List(List::new(Element::Any, items.into_iter().collect()))
    }

    /// A `map[string]interface {}`.
    pub fn dict<'k>(entries: impl IntoIterator<Item = (&'k str, Value)>) -> Value {
        let entries = entries.into_iter();
        let entries = entries.map(|(key, value)| (Text::from(key.as_bytes()), value));
        Value::Dict(Dict::new(entries.collect()))
    }

    /// A `time.Time`.
    pub fn time(time: Time) -> Value {
        Value::Time(Rc::new(time))
    }

    /// Go's text/template truth: what `if` and `and` ask.
    pub fn truth(&self) -> bool {
        match self {
            Value::Nil => false,
            Value::Bool(b) => *b,
            Value::Int(n) | Value::Int64(n) => *n != 0,
            Value::Uint8(n) => *n != 0,
            Value::Uint64(n) => *n != 0,
            Value::Float(f) => *f != 0.0,
            Value::Str(s) => !s.is_empty(),
            Value::List(list) => !list.is_empty(),
            Value::Dict(dict) => !dict.is_empty(),
            Value::Time(_) | Value::Version(_) | Value::Certificate(_) => true,
            Value::Named(named) => named.number() != 0,
            Value::Typed(typed) => typed.plain().truth(),
        }
    }

    /// The kind that sprig sees.
    pub fn kind(&self) -> Kind {
        match self {
            Value::Nil => Kind::Invalid,
            Value::Bool(_) => Kind::Bool,
            Value::Int(_) => Kind::Int,
            Value::Int64(_) => Kind::Int64,
            Value::Uint8(_) => Kind::Uint8,
            Value::Uint64(_) => Kind::Uint64,
            Value::Float(_) => Kind::Float64,
            Value::Str(_) => Kind::String,
            Value::List(_) => Kind::Slice,
            Value::Dict(_) => Kind::Map,
            Value::Time(_) | Value::Certificate(_) => Kind::Struct,
            Value::Named(named) => named.kind(),
            Value::Version(version) if version.derived => Kind::Struct,
            Value::Version(_) => Kind::Ptr,
            Value::Typed(typed) => typed.plain().kind(),
        }
    }

    /// The type as `%T` prints it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Nil => "<nil>",
            Value::List(list) => match list.element() {
                Element::Any => "[]interface {}",
                Element::Str => "[]string",
                Element::Int => "[]int",
                Element::List => "[][]interface {}",
            },
            Value::Dict(dict) => match dict.element() {
                Element::Str => "map[string]string",
                _ => "map[string]interface {}",
            },
            Value::Time(_) => "time.Time",
            Value::Named(named) => named.type_name(),
            Value::Certificate(_) => "sprig.certificate",
            Value::Version(version) if version.derived => "semver.Version",
            Value::Version(_) => "*semver.Version",
            other => other.kind().name(),
        }
    }

    /// A typed value as the number or boolean it holds; any other value as it is.
    pub fn plain(&self) -> Value {
        match self {
            Value::Typed(typed) => typed.plain(),
            other => other.clone(),
        }
    }
}

impl Typed {
    /// The number or boolean it holds.
    pub fn plain(self) -> Value {
        match self {
            Typed::Int(n) => Value::Int(n),
            Typed::Float(f) => Value::Float(f),
            Typed::Bool(b) => Value::Bool(b),
        }
    }

    /// The value to hand to a parameter of this type, if it fits: any string parameter, and those of its own kind.
    pub fn for_param(self, param: Param) -> Option<Value> {
        match (param, self) {
            (Param::Any | Param::Reflect, _) => Some(Value::Typed(self)),
            (Param::Str, _) => Some(Value::str(self.text())),
            (Param::Bool, Typed::Bool(b)) => Some(Value::Bool(b)),
            (Param::Int, Typed::Int(n)) => Some(Value::Int(n)),
            (Param::Int64, Typed::Int(n)) => Some(Value::Int64(n)),
            (Param::Uint32, Typed::Int(n)) => {
                u32::try_from(n).ok().map(|n| Value::Uint64(n.into()))
            }
            (Param::Float64, Typed::Int(n)) => Some(Value::Float(n as f64)),
            (Param::Float64, Typed::Float(f)) => Some(Value::Float(f)),
            _ => None,
        }
    }

    /// The value as it prints.
    pub fn text(self) -> String {
        match self {
            Typed::Int(n) => n.to_string(),
            Typed::Float(f) => format_float(f, b'g', None),
            Typed::Bool(b) => b.to_string(),
        }
    }
}

/// A Go slice. Clones share the items; only `sortAlpha` changes them in place.
#[derive(Debug, Clone)]
pub struct List(Rc<ListInner>);

#[derive(Debug)]
struct ListInner {
    element: Element,
    /// Whether it is a nil slice, which Go distinguishes from an empty one in JSON and in deepEqual.
    nil: bool,
    items: RefCell<Vec<Value>>,
}

impl List {
    /// A slice of these items.
    pub fn new(element: Element, items: Vec<Value>) -> List {
        List(Rc::new(ListInner {
            element,
            nil: false,
            items: RefCell::new(items),
        }))
    }

    /// A nil slice.
    pub fn nil(element: Element) -> List {
        List(Rc::new(ListInner {
            element,
            nil: true,
            items: RefCell::default(),
        }))
    }

    /// The type of its items.
    pub fn element(&self) -> Element {
        self.0.element
    }

    /// Whether it is a nil slice.
    pub fn is_nil(&self) -> bool {
        self.0.nil
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.0.items.borrow().len()
    }

    /// Whether it has no item.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The item at that index, the first is 0.
    pub fn get(&self, index: usize) -> Option<Value> {
        self.0.items.borrow().get(index).cloned()
    }

    /// The items as they are now. The caller has charged for them.
    pub fn items(&self) -> Vec<Value> {
        self.0.items.borrow().clone()
    }

    /// Replaces the items for everybody who shares this list.
    pub fn replace(&self, items: Vec<Value>) {
        // Dropped after the borrow has ended: dropping items runs other lists' drops.
        let old = self.0.items.replace(items);
        drop(old);
    }

    /// Whether both share their items.
    pub fn same(&self, other: &List) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

/// A Go map with string keys. Clones share the entries, and `set`, `unset`, `merge` change them for all.
#[derive(Debug, Clone)]
pub struct Dict(Rc<DictInner>);

#[derive(Debug)]
struct DictInner {
    element: Element,
    entries: RefCell<BTreeMap<Text, Value>>,
}

impl Dict {
    /// A `map[string]interface {}`.
    pub fn new(entries: BTreeMap<Text, Value>) -> Dict {
        Dict(Rc::new(DictInner {
            element: Element::Any,
            entries: RefCell::new(entries),
        }))
    }

    /// A `map[string]string`.
    pub fn of_strings(entries: BTreeMap<Text, Value>) -> Dict {
        Dict(Rc::new(DictInner {
            element: Element::Str,
            entries: RefCell::new(entries),
        }))
    }

    /// The type of its values.
    pub fn element(&self) -> Element {
        self.0.element
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.0.entries.borrow().len()
    }

    /// Whether it has no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of that key.
    pub fn get(&self, key: &[u8]) -> Option<Value> {
        self.0.entries.borrow().get(key).cloned()
    }

    /// Whether it has that key.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.0.entries.borrow().contains_key(key)
    }

    /// The entries sorted by key, as Go prints and ranges over them. The caller has charged for them.
    pub fn entries(&self) -> Vec<(Text, Value)> {
        let entries = self.0.entries.borrow();
        entries
            .iter()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    }

    /// The keys, sorted.
    pub fn keys(&self) -> Vec<Text> {
        self.0.entries.borrow().keys().cloned().collect()
    }

    /// For functions that go through `Context::insert`, which keeps cycles from leaking.
    pub(crate) fn insert(&self, key: Text, value: Value) {
        let old = self.0.entries.borrow_mut().insert(key, value);
        drop(old);
    }

    /// Removes an entry for all who share this dict.
    pub fn remove(&self, key: &[u8]) {
        let old = self.0.entries.borrow_mut().remove(key);
        drop(old);
    }

    /// Empties the dict, which breaks any cycle through it.
    pub(crate) fn clear(&self) {
        let old = self.0.entries.take();
        drop(Value::Dict(Dict::new(old)));
    }

    /// Whether both share their entries.
    pub fn same(&self, other: &Dict) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Drop for ListInner {
    fn drop(&mut self) {
        drop_nested(mem::take(self.items.get_mut()));
    }
}

impl Drop for DictInner {
    fn drop(&mut self) {
        drop_nested(mem::take(self.entries.get_mut()).into_values().collect());
    }
}

/// Drops values level by level with a list of its own: a template can nest them deeper than the stack allows.
fn drop_nested(mut values: Vec<Value>) {
    while let Some(value) = values.pop() {
        match value {
            Value::List(List(shared)) => {
                if let Some(mut inner) = Rc::into_inner(shared) {
                    values.append(inner.items.get_mut());
                }
            }
            Value::Dict(Dict(shared)) => {
                if let Some(mut inner) = Rc::into_inner(shared) {
                    values.extend(mem::take(inner.entries.get_mut()).into_values());
                }
            }
            _ => {}
        }
    }
}
