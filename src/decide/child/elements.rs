//! Matches the elements of two versions of a list, whatever their position.

use serde_json::Value;

/// The fields that identify an element of Kubernetes' lists: the first that the element has, and those that must also agree if
/// both elements have them. Two mounts may share a volume's name, two ports a number.
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

/// For each of `theirs`, the index of its counterpart in `ours`. `fixed` is `ours` without the fields that may differ.
pub fn pairs(theirs: &[Value], ours: &[Value], fixed: &[Value]) -> Vec<Option<usize>> {
    let mut pairs = vec![None; theirs.len()];
    let mut taken = vec![false; ours.len()];
    // A longer list has an element that was inserted anywhere, so positions prove nothing. With a shorter one, assume that the
    // form's additional elements come last.
    let in_place = theirs.len() <= ours.len();
    let same = |i: usize, j: usize| is_same(&theirs[i], &ours[j]);
    let port = |value: &Value| value.get("port").cloned();
    let rules: [&dyn Fn(usize, usize) -> bool; 5] = [
        &|i, j| same(i, j) == Some(true) && is_alike(&theirs[i], &ours[j]),
        // The port may be the field that changes, or the one that distinguishes two elements.
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
            // Try the same position first: there may be many equal elements.
            let mut places = [i].into_iter().chain(0..ours.len());
            *pair = places.find(|j| *j < ours.len() && !taken[*j] && rule(i, *j));
            if let Some(j) = pair {
                taken[*j] = true;
            }
        }
    }
    pairs
}

/// Whether both are versions of the same element; None if neither has an identifying field.
pub fn is_same(one: &Value, other: &Value) -> Option<bool> {
    let (key, also) = key_of(one)?;
    let agrees = |key: &&str| match (one.get(key), other.get(key)) {
        (Some(one), Some(other)) => one == other,
        // The API server may have filled in the field.
        _ => true,
    };
    Some(one.get(key) == other.get(key) && also.iter().all(agrees))
}

/// Whether two elements with the same key also agree in the secondary fields and the port.
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

/// Whether `all` contains every field of `part`; null counts as absent.
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
            // The port may be the field that changes.
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
