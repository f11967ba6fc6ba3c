//! The Go signatures of template functions: which argument types the evaluator lets through to a function. Calls nothing.

/// The type of one parameter of a Go function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Param {
    /// `interface {}`
    Any,
    /// `reflect.Value`: as `Any`, but a constant or value is never converted on its way.
    Reflect,
    /// `bool`
    Bool,
    /// `int`
    Int,
    /// `int64`
    Int64,
    /// `uint32`
    Uint32,
    /// `float64`
    Float64,
    /// `string`
    Str,
    /// `[]interface {}`
    List,
    /// `[]string`
    StrList,
    /// `map[string]interface {}`
    Dict,
    /// `map[string]string`
    StrDict,
    /// Any other type by its Go name, such as `time.Time`. Takes no constant, unless it is a duration, and no nil,
    /// unless it is a pointer.
    Named(&'static str),
}

impl Param {
    /// The type as Go prints it.
    pub fn go_name(self) -> &'static str {
        match self {
            Param::Any => "interface {}",
            Param::Reflect => "reflect.Value",
            Param::Bool => "bool",
            Param::Int => "int",
            Param::Int64 => "int64",
            Param::Uint32 => "uint32",
            Param::Float64 => "float64",
            Param::Str => "string",
            Param::List => "[]interface {}",
            Param::StrList => "[]string",
            Param::Dict => "map[string]interface {}",
            Param::StrDict => "map[string]string",
            Param::Named(name) => name,
        }
    }

    /// Whether a missing value may stand here. The function then gets `Value::Nil`.
    pub fn takes_nil(self) -> bool {
        match self {
            Param::Any
            | Param::Reflect
            | Param::List
            | Param::StrList
            | Param::Dict
            | Param::StrDict => true,
            Param::Named(name) => name.starts_with('*'),
            _ => false,
        }
    }

    /// Whether a value of the Go type `type_name` may stand here.
    pub fn takes_type(self, type_name: &str) -> bool {
        matches!(self, Param::Any | Param::Reflect) || self.go_name() == type_name
    }
}

/// The parameters of one Go function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// The types of the arguments that every call has.
    pub fixed: &'static [Param],
    /// The type of each further argument, for `func(fixed, more ...T)`.
    pub variadic: Option<Param>,
}

impl Signature {
    /// `func(fixed)`
    pub const fn exactly(fixed: &'static [Param]) -> Self {
        Signature {
            fixed,
            variadic: None,
        }
    }

    /// `func(fixed, more ...T)`
    pub const fn at_least(fixed: &'static [Param], variadic: Param) -> Self {
        Signature {
            fixed,
            variadic: Some(variadic),
        }
    }

    /// The type of the argument at `index`, if the function takes so many.
    pub fn param(&self, index: usize) -> Option<Param> {
        self.fixed.get(index).copied().or(self.variadic)
    }
}
