//! Content: the resource arrays of a node's spec, how two of them are compared, and how large one may be.

mod canonical;
pub mod lists;

use std::fmt;

use canonical::ListsDigest;
use serde_json::{Map, Value};

use crate::api::resource::ARRAYS;

/// The largest content, in bytes as the API server encodes it. A held node carries its content twice, and etcd takes
/// about 1.5 MiB an object.
pub const SIZE_MAX: usize = 600 * 1024;

/// How deep the manifest of a resource may be nested, itself included. Nothing useful comes near it, and what is some
/// levels deeper cannot be read back: see `cluster::shallow`.
pub const DEPTH_MAX: usize = 64;

/// The algorithm behind [`hash`]; stands before every hash, so that nodes of another version can be told apart.
pub const HASH_VERSION: &str = "1";

/// Hash of a content: `1:` and 32 hex digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hash(String);

impl Hash {
    /// A hash of the version that this operator writes; None for anything else, other versions included.
    pub fn parse(text: &str) -> Option<Hash> {
        let digits = text.strip_prefix(HASH_VERSION)?.strip_prefix(':')?;
        let good = digits.len() == 32
            && digits
                .bytes()
                .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        good.then(|| Hash(text.to_owned()))
    }

    fn of(digest: ListsDigest) -> Hash {
        Hash(format!("{HASH_VERSION}:{}", digest.digits()))
    }

    /// True for text in the form of a hash, but of another version: an older or newer operator wrote it.
    pub fn is_of_another_version(text: &str) -> bool {
        text.split_once(':').is_some_and(|(version, digits)| {
            version != HASH_VERSION
                && !version.is_empty()
                && version.bytes().all(|b| b.is_ascii_digit())
                && digits.bytes().all(|b| b.is_ascii_hexdigit())
        })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether the content of this hash is another than a hub rendered, as the node's `lynq.sh/rendered-hash` names it; None where no
/// hub did, or one of another version.
pub fn is_edited(rendered: Option<&str>, desired: &str) -> Option<bool> {
    let (content, _) = rendered?.split_once('/')?;
    (!Hash::is_of_another_version(content)).then(|| content != desired)
}

/// The 16 arrays of `spec` that are not empty, as they stand there; everything else of it left out.
pub fn of_spec(spec: Option<&Value>) -> Value {
    let mut content = Map::new();
    for array in ARRAYS {
        if let Some(list) = spec
            .and_then(|s| s.get(array))
            .filter(|list| !is_empty(list))
        {
            content.insert(array.to_owned(), list.clone());
        }
    }
    Value::Object(content)
}

/// Hash of the content in `spec` (a node's spec, or its `released`): SHA-256 over canonical JSON of the normalised
/// arrays. Equal contents hash alike whatever the order of keys and resources, and whether defaults are filled in.
///
/// Not RFC 8785: its crates turn numbers into doubles, so that two large integers would hash alike.
pub fn hash(spec: Option<&Value>) -> Hash {
    let mut arrays: Vec<&str> = ARRAYS.to_vec();
    arrays.sort_unstable();
    let mut digest = ListsDigest::default();
    for array in arrays {
        let list = spec.and_then(|spec| spec.get(array)?.as_array());
        if let Some(list) = list {
            digest.add_values(array, list);
        }
    }
    Hash::of(digest)
}

/// Hash of any JSON value, with its own key order ignored: for what is compared but is not content.
pub fn hash_value(value: &Value) -> String {
    canonical::digits_of(value)
}

/// The same in fewer digits, for what is compared within one process, of very many objects.
pub fn hash_number(value: &Value) -> u64 {
    u64::from_str_radix(&hash_value(value)[..16], 16).expect("they are hex digits")
}

/// Content that is too large to be held. Names the largest resource, for that is where to cut.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the content has {size} bytes, and a node may have {SIZE_MAX}; the largest resource is {id:?} in {array} with {largest} bytes: \
     make it smaller, or move part of it into another form"
)]
pub struct TooLarge {
    pub size: usize,
    pub array: &'static str,
    pub id: String,
    pub largest: usize,
}

/// Whether the content fits into an object that holds it twice.
pub fn check_size(spec: Option<&Value>) -> Result<(), TooLarge> {
    let mut error = TooLarge {
        size: 0,
        array: ARRAYS[0],
        id: String::new(),
        largest: 0,
    };
    for array in ARRAYS {
        for resource in spec
            .and_then(|s| s.get(array))
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let size = encoded_len(resource);
            error.size += size + 1;
            if size > error.largest {
                error.largest = size;
                error.array = array;
                error.id = resource
                    .get("id")
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned();
            }
        }
    }
    if error.size > SIZE_MAX {
        Err(error)
    } else {
        Ok(())
    }
}

/// A resource that is nested too deeply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "resource {id:?} in {array} is nested too deeply: a manifest may have {DEPTH_MAX} levels, itself included"
)]
pub struct TooDeep {
    pub array: &'static str,
    pub id: String,
}

/// Whether everybody can read every resource back.
pub fn check_depth(spec: Option<&Value>) -> Result<(), TooDeep> {
    for array in ARRAYS {
        let list = spec.and_then(|s| s.get(array)).and_then(Value::as_array);
        for resource in list.into_iter().flatten() {
            // The resource around the manifest is one level more.
            if is_deeper(resource, DEPTH_MAX + 1) {
                let id = resource.get("id").and_then(Value::as_str);
                let id = id.unwrap_or_default().to_owned();
                return Err(TooDeep { array, id });
            }
        }
    }
    Ok(())
}

/// Whether there is a template in it, or what looks like one.
pub fn has_template(spec: Option<&Value>) -> bool {
    fn found(value: &Value) -> bool {
        match value {
            Value::String(text) => text.contains("{{"),
            Value::Array(items) => items.iter().any(found),
            Value::Object(fields) => fields.values().any(found),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
    let of_array = |array: &&str| spec.and_then(|spec| spec.get(*array));
    ARRAYS.iter().filter_map(of_array).any(found)
}

/// Whether arrays and objects are nested in more levels than these.
pub fn is_deeper(value: &Value, levels: usize) -> bool {
    let Some(left) = levels.checked_sub(1) else {
        return value.is_array() || value.is_object();
    };
    match value {
        Value::Array(items) => items.iter().any(|item| is_deeper(item, left)),
        Value::Object(fields) => fields.values().any(|value| is_deeper(value, left)),
        _ => false,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Bytes of the value as Go's encoding/json writes it, which is what the API server stores.
fn encoded_len(value: &Value) -> usize {
    match value {
        Value::Null => 4,
        Value::Bool(yes) => 5 - usize::from(*yes),
        Value::Number(number) => number.to_string().len(),
        Value::String(text) => encoded_string_len(text),
        Value::Array(list) => {
            list.iter()
                .map(|item| encoded_len(item) + 1)
                .sum::<usize>()
                .max(1)
                + 1
        }
        Value::Object(fields) => {
            fields
                .iter()
                .map(|(name, item)| encoded_string_len(name) + encoded_len(item) + 2)
                .sum::<usize>()
                .max(1)
                + 1
        }
    }
}

/// How much longer the escape of a byte is than what it stands for.
const ESCAPED: [u8; 256] = {
    let mut more = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        more[byte] = match byte as u8 {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
            b'<' | b'>' | b'&' | 0..=0x1f => 5,
            _ => 0,
        };
        byte += 1;
    }
    more
};

fn encoded_string_len(text: &str) -> usize {
    let more = |byte: u8| usize::from(ESCAPED[usize::from(byte)]);
    let ascii: usize = text.bytes().map(more).sum();
    let separators = match text.is_ascii() {
        true => 0,
        false => 3 * text.matches(['\u{2028}', '\u{2029}']).count(),
    };
    text.len() + ascii + separators + 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_means_the_same_hashes_alike() {
        let plain =
            r#"{"uid":"a","services":[{"id":"x","spec":{"b":1,"a":2}},{"id":"y","spec":{}}]}"#;
        for (name, other) in [
            (
                "key order",
                r#"{"services":[{"spec":{"a":2,"b":1},"id":"x"},{"id":"y","spec":{}}]}"#,
            ),
            (
                "resource order",
                r#"{"services":[{"id":"y","spec":{}},{"id":"x","spec":{"a":2,"b":1}}]}"#,
            ),
            (
                "empty arrays",
                r#"{"services":[{"id":"x","spec":{"b":1,"a":2}},{"id":"y","spec":{}}],"jobs":[],"secrets":null}"#,
            ),
            (
                "defaults filled in",
                r#"{"services":[{"id":"x","spec":{"b":1,"a":2},"waitForReady":true,"timeoutSeconds":300,"creationPolicy":"WhenNeeded"},{"id":"y","spec":{},"dependIds":[],"nameTemplate":""}]}"#,
            ),
            (
                "a double that is an integer",
                r#"{"services":[{"id":"x","spec":{"b":1.0,"a":2e0}},{"id":"y","spec":{}}]}"#,
            ),
        ] {
            assert_eq!(hash(Some(&spec(plain))), hash(Some(&spec(other))), "{name}");
        }
    }

    #[test]
    fn what_differs_hashes_differently() {
        let of = |text: &str| hash(Some(&spec(text)));
        for (name, a, b) in [
            (
                "a value",
                r#"{"jobs":[{"id":"x","spec":{"a":1}}]}"#,
                r#"{"jobs":[{"id":"x","spec":{"a":2}}]}"#,
            ),
            (
                "null inside spec",
                r#"{"jobs":[{"id":"x","spec":{"a":null}}]}"#,
                r#"{"jobs":[{"id":"x","spec":{}}]}"#,
            ),
            (
                "a default's value inside spec",
                r#"{"jobs":[{"id":"x","spec":{"waitForReady":true}}]}"#,
                r#"{"jobs":[{"id":"x","spec":{}}]}"#,
            ),
            (
                "the array",
                r#"{"jobs":[{"id":"x","spec":{}}]}"#,
                r#"{"cronJobs":[{"id":"x","spec":{}}]}"#,
            ),
            (
                "two large integers",
                r#"{"jobs":[{"id":"x","spec":{"a":9007199254740993}}]}"#,
                r#"{"jobs":[{"id":"x","spec":{"a":9007199254740992}}]}"#,
            ),
            (
                "text and number",
                r#"{"jobs":[{"id":"x","spec":{"a":"1"}}]}"#,
                r#"{"jobs":[{"id":"x","spec":{"a":1}}]}"#,
            ),
            (
                "quotes",
                r#"{"jobs":[{"id":"x","spec":{"a":"\",\"b\":\""}}]}"#,
                r#"{"jobs":[{"id":"x","spec":{"a":"","b":""}}]}"#,
            ),
            (
                "a policy",
                r#"{"jobs":[{"id":"x","spec":{},"deletionPolicy":"Retain"}]}"#,
                r#"{"jobs":[{"id":"x","spec":{}}]}"#,
            ),
        ] {
            assert_ne!(of(a), of(b), "{name}");
        }
    }

    #[test]
    fn the_hash_of_version_1_never_changes() {
        let content =
            spec(r#"{"services":[{"id":"x","spec":{"b":[1,-2.5,"é<"],"a":null,"c":true}}]}"#);
        assert_eq!(
            hash(Some(&content)).as_str(),
            "1:4504204cb00b16ede8c035b997942d72"
        );
        let content = spec(
            r#"{"jobs":[{"id":"y","timeoutSeconds":300,"dependIds":[],"spec":{"\"":"\\","a":[],"n":[1.0,-0,1e2,1e300,18446744073709551615]}},{"id":"x","deletionPolicy":"Retain"}],"secrets":[7]}"#,
        );
        assert_eq!(
            hash(Some(&content)).as_str(),
            "1:f15c1770ddeb45e9680feab2d36091a5"
        );
        assert_eq!(hash(None), hash(Some(&json!({"jobs": []}))));
    }

    #[test]
    fn hashes_are_recognised() {
        let text = hash(None).to_string();
        assert_eq!(Hash::parse(&text).unwrap().as_str(), text);
        for bad in [
            "none",
            "unknown",
            "1:abc",
            "2:00000000000000000000000000000000",
            &text.to_uppercase().replace('A', "G"),
        ] {
            assert_eq!(
                Hash::parse(bad).filter(|h| h.as_str() != text),
                None,
                "{bad}"
            );
        }
        assert!(
            Hash::is_of_another_version("2:00ff")
                && !Hash::is_of_another_version(&text)
                && !Hash::is_of_another_version("none")
        );
    }

    #[test]
    fn size_is_counted_as_the_api_server_encodes() {
        for (text, size) in [
            ("a", 3),
            ("<>&", 20),
            ("\n\u{1}", 10),
            ("é", 4),
            ("\u{2028}", 8),
        ] {
            assert_eq!(encoded_len(&json!(text)), size, "{text:?}");
        }
        for (value, size) in [
            (json!({}), 2),
            (json!([]), 2),
            (json!({"a": 1}), 7),
            (json!([1, 2]), 5),
            (json!([true, null]), 11),
        ] {
            assert_eq!(encoded_len(&value), size, "{value}");
        }
    }

    #[test]
    fn too_large_names_the_largest_resource() {
        let spec = json!({"jobs": [{"id": "small", "spec": {}}, {"id": "big", "spec": {"a": "<".repeat(110_000)}}]});
        let error = check_size(Some(&spec)).unwrap_err();
        assert_eq!((error.array, error.id.as_str()), ("jobs", "big"));
        assert!(error.to_string().contains("\"big\" in jobs"), "{error}");
        assert_eq!(
            check_size(Some(
                &json!({"jobs": [{"id": "big", "spec": {"a": "a".repeat(500_000)}}]})
            )),
            Ok(())
        );
    }
}
