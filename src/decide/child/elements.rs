//! Which elements of two versions of a list are the same, wherever they stand.

use serde_json::Value;

/// What tells the elements of Kubernetes' lists apart: the first of these that one has, and what has to agree beside it where
/// both have that. Two mounts may be of one volume, two ports of one number.
const KEYS: [(&str, &[&str]); 12] = [
    ("mountPath", &[]),
    ("devicePath", &[]),
    ("name", &["kind", "namespace"]),
    ("containerPort", &["protocol"]),
    ("port", &["protocol"]),
    ("host", &[]),
    ("ip", &[]),
    ("topologyKey", &["whenUnsatisfiable"]),
    ("key", &["effect", "operator"]),
    ("secretName", &[]),
    ("uid", &[]),
    ("type", &[]),
];

/// For each of `theirs` the one of `ours` that it is a version of. `fixed` is ours without what may differ.
pub fn pairs(theirs: &[Value], ours: &[Value], fixed: &[Value]) -> Vec<Option<usize>> {
    let mut pairs = vec![None; theirs.len()];
    let mut taken = vec![false; ours.len()];
    // Somebody may have put one in anywhere; what the form has more of comes last, as far as anybody knows.
    let in_place = theirs.len() <= ours.len();
    let same = |i: usize, j: usize| is_same(&theirs[i], &ours[j]);
    let port = |value: &Value| value.get("port").cloned();
    let rules: [&dyn Fn(usize, usize) -> bool; 5] = [
        &|i, j| same(i, j) == Some(true) && is_alike(&theirs[i], &ours[j]),
        // The port may be what changes, and may tell two apart.
        &|i, j| same(i, j) == Some(true) && port(&theirs[i]) == port(&ours[j]),
        &|i, j| same(i, j) == Some(true),
        &|i, j| key_of(&theirs[i]).is_none() && is_within(fixed.get(j), &theirs[i]),
        &|i, j| i == j && in_place && same(i, j).is_none(),
    ];
    for rule in rules {
        for (i, pair) in pairs.iter_mut().enumerate() {
            if pair.is_some() {
                continue;
            }
            // Its own place first: they may be many of one kind.
            let mut places = [i].into_iter().chain(0..ours.len());
            *pair = places.find(|j| *j < ours.len() && !taken[*j] && rule(i, *j));
            if let Some(j) = pair {
                taken[*j] = true;
            }
        }
    }
    pairs
}

/// Whether the one is a version of the other, as far as nothing speaks against it; None where nothing tells.
pub fn is_same(one: &Value, other: &Value) -> Option<bool> {
    let (key, also) = key_of(one)?;
    let agrees = |key: &&str| match (one.get(key), other.get(key)) {
        (Some(one), Some(other)) => one == other,
        // The API server fills some in.
        _ => true,
    };
    Some(one.get(key) == other.get(key) && also.iter().all(agrees))
}

/// Whether two of one key have all else in common that may tell them apart.
fn is_alike(one: &Value, other: &Value) -> bool {
    let also = key_of(one).map_or(&[] as &[&str], |(_, also)| also);
    let mut all = also.iter().chain(&["port"]);
    all.all(|key| one.get(key) == other.get(key))
}

fn key_of(element: &Value) -> Option<&'static (&'static str, &'static [&'static str])> {
    let is_scalar = |value: &Value| value.is_string() || value.is_number();
    let has = |(key, _): &&(&str, &[&str])| element.get(key).is_some_and(is_scalar);
    KEYS.iter().find(has)
}

/// Whether `all` says whatever `part` says; null says nothing.
fn is_within(part: Option<&Value>, all: &Value) -> bool {
    match (part, all) {
        (None | Some(Value::Null), _) => true,
        (Some(Value::Object(part)), Value::Object(all)) => part
            .iter()
            .all(|(name, part)| all.get(name).is_some_and(|all| is_within(Some(part), all))),
        (Some(Value::Array(part)), Value::Array(all)) => {
            part.len() <= all.len()
                && part
                    .iter()
                    .zip(all)
                    .all(|(part, all)| is_within(Some(part), all))
        }
        (Some(part), all) => part == all,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paired(theirs: Value, ours: Value) -> Vec<Option<usize>> {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        pairs(&list(&theirs), &list(&ours), &list(&ours))
    }

    #[test]
    fn elements_are_told_by_what_they_are() {
        let (udp, tcp) = (
            json!({"port": 53, "protocol": "UDP"}),
            json!({"port": 53, "protocol": "TCP"}),
        );
        let bare = json!({"port": 53});
        let backend = |port: u32| json!({"name": "svc", "port": port});
        for (theirs, ours, expected) in [
            (
                json!([tcp, udp]),
                json!([udp, bare]),
                vec![Some(1), Some(0)],
            ),
            (
                json!([backend(1), backend(2)]),
                json!([backend(2), backend(1)]),
                vec![Some(1), Some(0)],
            ),
            (
                json!([{"name": "other", "kind": "Service", "port": 9}, {"name": "svc", "kind": "Service", "port": 2}, {"name": "svc", "kind": "Service", "port": 1}]),
                json!([backend(1), backend(2)]),
                vec![None, Some(1), Some(0)],
            ),
            // Its port may be what changes.
            (json!([backend(1)]), json!([backend(3)]), vec![Some(0)]),
            (
                json!([{"name": "side"}, {"name": "app"}]),
                json!([{"name": "app"}]),
                vec![None, Some(0)],
            ),
            (json!(["a", "b"]), json!(["b"]), vec![None, Some(0)]),
            (json!(["a"]), json!(["b"]), vec![Some(0)]),
            (json!(["a", "b"]), json!(["c"]), vec![None, None]),
            (
                json!([{"from": ["x"], "to": 1}]),
                json!([{"from": ["y"]}, {"from": ["x"]}]),
                vec![Some(1)],
            ),
            (
                json!([{"from": ["x"]}]),
                json!([{"from": ["y"]}, {"from": ["z"]}]),
                vec![Some(0)],
            ),
            (json!([]), json!([1]), vec![]),
        ] {
            assert_eq!(
                paired(theirs.clone(), ours.clone()),
                expected,
                "{theirs} {ours}"
            );
        }
    }
}
