//! The canonical form of JSON, of which hashes are made: sorted keys, and numbers as they are after one trip through the API server.
//! Of text nothing is built first: a visitor reads it piece by piece. Values, of which a sync and a trial hash very many, are walked.

use std::borrow::Cow;
use std::fmt;
use std::io::Write;

use memchr::memchr2;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::api::resource::DEFAULTS;
use crate::decide::shared::fields::Name;

/// Canonical text, as far as it is written.
#[derive(Default)]
struct CanonicalText<'de> {
    text: Vec<u8>,
    /// The fields of the objects that are open, and where in the text they begin.
    fields: Vec<(Cow<'de, str>, usize)>,
    level: usize,
    deepest: usize,
}

/// A list of resources in canonical form.
#[derive(Debug)]
pub struct CanonicalList {
    /// What a hash is made of: nothing, if the list has no resource.
    bytes: Vec<u8>,
    /// In how many levels arrays and objects of a resource are nested at most, itself included.
    pub levels: usize,
}

impl CanonicalList {
    /// Of a list that is text.
    pub fn read(name: &str, list: &str) -> serde_json::Result<Self> {
        let mut form = CanonicalText::default();
        let mut ends = vec![0];
        let resources = Resources {
            form: &mut form,
            ends: &mut ends,
        };
        resources.deserialize(&mut serde_json::Deserializer::from_str(list))?;
        Ok(Self::new(name, &form, &ends))
    }

    /// The same of a list that is a value.
    fn of(name: &str, list: &[Value]) -> Self {
        let mut form = CanonicalText::default();
        let mut ends = vec![0];
        for resource in list {
            form.resource(resource);
            ends.push(form.text.len());
        }
        Self::new(name, &form, &ends)
    }

    /// `ends`: where in the text each resource ends.
    fn new(name: &str, form: &CanonicalText, ends: &[usize]) -> Self {
        let text = &form.text;
        let mut resources: Vec<&[u8]> = ends.windows(2).map(|at| &text[at[0]..at[1]]).collect();
        resources.sort_unstable();
        let lengths = size_of::<u64>() * ends.len();
        let mut bytes = Vec::with_capacity(name.len() + lengths + text.len());
        if !resources.is_empty() {
            bytes.extend(name.as_bytes());
            bytes.extend((resources.len() as u64).to_be_bytes());
        }
        for resource in resources {
            bytes.extend((resource.len() as u64).to_be_bytes());
            bytes.extend(resource);
        }
        CanonicalList {
            bytes,
            levels: form.deepest,
        }
    }
}

/// The hash of lists of resources, one list after the other.
#[derive(Default)]
pub struct ListsDigest(Sha256);

impl ListsDigest {
    /// Adds a list; the caller keeps to one order of names.
    pub fn add(&mut self, list: &CanonicalList) {
        self.0.update(&list.bytes);
    }

    pub fn add_values(&mut self, name: &str, list: &[Value]) {
        self.add(&CanonicalList::of(name, list));
    }

    pub fn digits(self) -> String {
        digits(self.0)
    }
}

/// Digits of the hash of any JSON value.
pub fn digits_of(value: &Value) -> String {
    let mut form = CanonicalText::default();
    form.value(value);
    digits(Sha256::new_with_prefix(&form.text))
}

fn digits(digest: Sha256) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let bytes = digest.finalize();
    let both = |byte: &u8| [byte >> 4, byte & 0xf];
    let halves = bytes[..16].iter().flat_map(both);
    halves
        .map(|half| char::from(DIGITS[usize::from(half)]))
        .collect()
}

impl CanonicalText<'_> {
    /// Strings are only compared, so it is enough that the encoding is unambiguous.
    fn string(&mut self, text: &str) {
        self.text.push(b'"');
        let mut rest = text.as_bytes();
        while let Some(at) = memchr2(b'"', b'\\', rest) {
            self.text.extend_from_slice(&rest[..at]);
            self.text.extend([b'\\', rest[at]]);
            rest = &rest[at + 1..];
        }
        self.text.extend_from_slice(rest);
        self.text.push(b'"');
    }

    /// A string that stands in JSON without escapes.
    fn plain(&mut self, text: &str) {
        self.text.push(b'"');
        self.text.extend_from_slice(text.as_bytes());
        self.text.push(b'"');
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.text.extend(b"null"),
            Value::Bool(yes) => self.bool(*yes),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(number), _) => self.integer(number),
                (None, double) => self.double(double.unwrap_or_default()),
            },
            Value::String(text) => self.string(text),
            Value::Array(items) => {
                self.open(b'[');
                for item in items {
                    self.value(item);
                    self.text.push(b',');
                }
                self.close(b']');
            }
            Value::Object(fields) => {
                self.open(b'{');
                // In the order of their names, as the map has them.
                for (name, value) in fields {
                    self.string(name);
                    self.text.push(b':');
                    self.value(value);
                    self.text.push(b',');
                }
                self.close(b'}');
            }
        }
    }

    /// An item of a list of resources.
    fn resource(&mut self, resource: &Value) {
        let Value::Object(fields) = resource else {
            return self.value(resource);
        };
        // Before it, so that the sorted texts are in the order of ids.
        self.value(fields.get("id").unwrap_or(&Value::Null));
        self.open(b'{');
        for (name, value) in fields {
            let at = self.text.len();
            self.string(name);
            self.text.push(b':');
            let value_at = self.text.len();
            self.value(value);
            match is_left_out(name, &self.text[value_at..]) {
                true => self.text.truncate(at),
                false => self.text.push(b','),
            }
        }
        self.close(b'}');
    }

    fn bool(&mut self, yes: bool) {
        let text: &[u8] = if yes { b"true" } else { b"false" };
        self.text.extend(text);
    }

    fn integer(&mut self, number: i64) {
        write!(self.text, "{number}").expect("writing to memory succeeds");
    }

    /// The API server keeps integers of 64 bits with a sign; everything else is a double, and a double without a fraction
    /// is written without one, so it comes back as an integer (`1.0` as `1`, `-0` as `0`).
    fn double(&mut self, number: f64) {
        if number.fract() == 0.0 && number.abs() < 9_223_372_036_854_775_808.0 {
            return self.integer(number as i64);
        }
        write!(self.text, "{number:e}").expect("writing to memory succeeds");
    }

    fn open(&mut self, bracket: u8) {
        self.text.push(bracket);
        self.level += 1;
        self.deepest = self.deepest.max(self.level);
    }

    /// What is between the brackets ends with a comma, or is nothing.
    fn close(&mut self, bracket: u8) {
        self.level -= 1;
        self.text.pop_if(|last| *last == b',');
        self.text.push(bracket);
    }

    /// Brings the open object's fields into the order of their names, of twins the last one. `first` is its first field.
    fn sort(&mut self, first: usize) {
        let own = &self.fields[first..];
        let Some(&(_, start)) = own.first() else {
            return;
        };
        if own.is_sorted_by(|(one, _), (next, _)| one < next) {
            return;
        }
        let ends = own[1..].iter().map(|(_, start)| *start);
        let ends = ends.chain([self.text.len()]);
        let mut fields: Vec<_> = own.iter().zip(ends).collect();
        fields.sort_by(|(one, _), (other, _)| one.0.cmp(&other.0));
        let is_last = |i: usize| {
            fields
                .get(i + 1)
                .is_none_or(|next| next.0.0 != fields[i].0.0)
        };
        let kept = (0..fields.len())
            .filter(|i| is_last(*i))
            .map(|i| &fields[i]);
        let text = kept.flat_map(|((_, start), end)| &self.text[*start..*end]);
        let text: Vec<u8> = text.copied().collect();
        self.text.truncate(start);
        self.text.extend(text);
    }
}

/// The resources of a list, and where each ends.
struct Resources<'f, 'de> {
    form: &'f mut CanonicalText<'de>,
    ends: &'f mut Vec<usize>,
}

impl<'de> DeserializeSeed<'de> for Resources<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, list: D) -> Result<(), D::Error> {
        list.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Resources<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of resources")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Resources { form, ends } = self;
        let is_resource = true;
        while let Some(()) = list.next_element_seed(Piece { form, is_resource })? {
            ends.push(form.text.len());
        }
        Ok(())
    }
}

/// The next value of the text, which serde_json reads. The depth is bounded by serde_json, which refuses to read more than 128 levels.
struct Piece<'f, 'de> {
    form: &'f mut CanonicalText<'de>,
    /// Of a resource defaults and empty fields are dropped: never inside its `spec`, where an empty value means something.
    is_resource: bool,
}

impl<'de> DeserializeSeed<'de> for Piece<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Piece<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.form.text.extend(b"null");
        Ok(())
    }

    fn visit_bool<E>(self, yes: bool) -> Result<(), E> {
        self.form.bool(yes);
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.form.integer(number);
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        match i64::try_from(number) {
            Ok(number) => self.form.integer(number),
            Err(_) => self.form.double(number as f64),
        }
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.form.double(number);
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.form.string(text);
        Ok(())
    }

    /// serde_json borrows what has no escapes.
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<(), E> {
        self.form.plain(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let form = self.form;
        form.open(b'[');
        let is_resource = false;
        while let Some(()) = list.next_element_seed(Piece { form, is_resource })? {
            form.text.push(b',');
        }
        form.close(b']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Piece { form, is_resource } = self;
        let (start, first) = (form.text.len(), form.fields.len());
        let mut id = None;
        form.open(b'{');
        while let Some(Name(name)) = map.next_key()? {
            let at = form.text.len();
            match &name {
                Cow::Borrowed(name) => form.plain(name),
                Cow::Owned(name) => form.string(name),
            }
            form.text.push(b':');
            let value_at = form.text.len();
            let value = Piece {
                form,
                is_resource: false,
            };
            map.next_value_seed(value)?;
            let value = &form.text[value_at..];
            if is_resource && name == "id" {
                id = Some(value.to_vec());
            }
            if is_resource && is_left_out(&name, value) {
                // Its place stays known: of twins the last one counts, also if it is left out.
                form.text.truncate(at);
            } else {
                form.text.push(b',');
            }
            form.fields.push((name, at));
        }
        form.sort(first);
        form.fields.truncate(first);
        form.close(b'}');
        if is_resource {
            // The id first, so that the sorted texts are in the order of ids.
            let id = id.as_deref().unwrap_or(b"null");
            drop(form.text.splice(start..start, id.iter().copied()));
        }
        Ok(())
    }
}

/// Whether a resource means the same without this field, whose value has this canonical text.
fn is_left_out(name: &str, value: &[u8]) -> bool {
    let is_default = |default: Value| match default {
        Value::String(text) => {
            value
                .strip_prefix(b"\"")
                .and_then(|v| v.strip_suffix(b"\""))
                == Some(text.as_bytes())
        }
        other => value == other.to_string().as_bytes(),
    };
    let mut defaults = DEFAULTS.iter();
    name != "spec"
        && (matches!(value, b"null" | b"[]" | b"{}" | b"\"\"")
            || defaults.any(|(field, default)| *field == name && is_default(default())))
}
