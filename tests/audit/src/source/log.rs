//! From the API server's audit logs: what was answered to each write, in the order of the revisions it made.
//!
//! It needs the answers' bodies (level RequestResponse) of every successful write to the kinds that are followed, with
//! managedFields. A write without a body is counted by kind, and then no more than what was found can be concluded.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::Value;

use super::{Sink, SourceError, send};
use crate::core::{Change, Input};
use crate::kinds::{Key, Kind};

/// Reads the files whole (several API servers write one each), sorts, and sends.
pub async fn follow(files: Vec<PathBuf>, sink: Sink) -> Result<(), SourceError> {
    let mut entries = vec![];
    for path in files {
        let failed = |e: std::io::Error| SourceError::File {
            path: path.display().to_string(),
            reason: e.to_string(),
        };
        let reader = BufReader::new(File::open(&path).map_err(failed)?);
        for line in reader.lines() {
            entries.extend(entry(&line.map_err(failed)?));
        }
    }
    for input in in_order(entries) {
        send(&sink, input).await?;
    }
    Ok(())
}

#[derive(Debug)]
struct Entry {
    /// None where the answer does not say: then the time gives the place.
    revision: Option<u64>,
    at: Timestamp,
    input: Input,
}

/// One line of a log; None for what changed nothing that is followed.
fn entry(line: &str) -> Option<Entry> {
    if line.trim().is_empty() {
        return None;
    }
    let Ok(event) = serde_json::from_str::<Value>(line) else {
        let what = "a line of the log that is not JSON".to_owned();
        return Some(Entry {
            revision: None,
            at: Timestamp::MIN,
            input: Input::Unreadable { what },
        });
    };
    let text = |pointer: &str| {
        event
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let kind = Kind::of_resource(text("/objectRef/apiGroup"), text("/objectRef/resource"))?;
    let verb = text("/verb");
    let code = event
        .pointer("/responseStatus/code")
        .and_then(Value::as_u64)
        .unwrap_or(0);
    // A pod's place, and that somebody asks for its end, change nothing that is looked at.
    if kind == Kind::Pod && matches!(text("/objectRef/subresource"), "binding" | "eviction") {
        return None;
    }
    let is_write = matches!(
        verb,
        "create" | "update" | "patch" | "delete" | "deletecollection"
    );
    let other_part = match text("/objectRef/subresource") {
        // The last step of its deletion, answered with the namespace itself.
        "finalize" => kind != Kind::Namespace,
        part => matches!(part, "scale" | "token"),
    };
    if !is_write
        || text("/stage") != "ResponseComplete"
        || !(200..300).contains(&code)
        || text("/requestURI").contains("dryRun=")
    {
        return None;
    }
    let at = text("/stageTimestamp").parse().ok()?;
    let unreadable = |why: &str| {
        let what = format!("{verb} of {}s: {why}", kind.name());
        Some(Entry {
            revision: None,
            at,
            input: Input::Unreadable { what },
        })
    };
    let object = event.get("responseObject");
    if verb == "deletecollection" {
        return unreadable("the log does not say which objects went, and when");
    }
    if other_part {
        return unreadable("the answer to its subresource is another object");
    }
    let Some(object) = object.filter(|object| object.is_object()) else {
        return unreadable("the log has no body of the answer (level RequestResponse)");
    };
    let key = Key::new(kind, text("/objectRef/namespace"), name_of(&event, object));
    let is_status = object["kind"] == "Status";
    let revision = object
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok());
    let gone = verb == "delete" && (is_status || !stays(object))
        || (verb != "delete" && is_last_finalizer(object));
    if is_status && !gone {
        return unreadable("the answer has no object");
    }
    // Deletion makes a revision of its own, which the answer does not name.
    let revision = revision.filter(|_| !(gone && verb == "delete"));
    let change = Change {
        revision: revision.unwrap_or(0),
        at,
        key,
        // A server-side apply may create, too.
        created: verb == "create" || code == 201,
        object: (!gone).then(|| object.clone()),
    };
    Some(Entry {
        revision,
        at,
        input: Input::Change(change),
    })
}

/// A generated name is in the answer alone.
fn name_of<'e>(event: &'e Value, object: &'e Value) -> &'e str {
    let named = event
        .pointer("/objectRef/name")
        .or(object.pointer("/metadata/name"));
    named.and_then(Value::as_str).unwrap_or_default()
}

/// An object that was told to go and has finalizers, or a grace period, is still there.
fn stays(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some() && has_finalizers(object)
}

fn is_last_finalizer(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some() && !has_finalizers(object)
}

fn has_finalizers(object: &Value) -> bool {
    let finalizers = object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array);
    finalizers.is_some_and(|list| !list.is_empty())
}

/// By revision. What has none keeps its place in time; what is there twice (a write that changed nothing) goes once.
fn in_order(mut entries: Vec<Entry>) -> Vec<Input> {
    entries.sort_by_key(|entry| entry.at);
    let mut newest = 0;
    let mut placed: Vec<(u64, usize, Input)> = vec![];
    for (at, entry) in entries.into_iter().enumerate() {
        newest = newest.max(entry.revision.unwrap_or(0));
        let revision = entry.revision.unwrap_or(newest);
        let input = match entry.input {
            Input::Change(change) => Input::Change(Change { revision, ..change }),
            other => other,
        };
        placed.push((revision, at, input));
    }
    placed.sort_by_key(|(revision, at, _)| (*revision, *at));
    let mut seen: Option<(u64, Key)> = None;
    let mut out = vec![];
    for (_, _, input) in placed {
        if let Input::Change(change) = &input {
            let this = (change.revision, change.key.clone());
            if change.object.is_some() && seen.as_ref() == Some(&this) {
                continue;
            }
            seen = Some(this);
        }
        out.push(input);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(verb: &str, at: &str, object: Value) -> String {
        json!({
            "stage": "ResponseComplete", "verb": verb, "requestURI": "/x", "stageTimestamp": format!("2026-01-01T00:00:{at}Z"),
            "objectRef": {"resource": "lynqnodes", "apiGroup": "operator.lynq.sh", "namespace": "ns", "name": "a"},
            "responseStatus": {"code": 200}, "responseObject": object,
        })
        .to_string()
    }

    #[test]
    fn a_namespace_that_goes_is_read_to_its_end() {
        let told =
            json!({"metadata": {"name": "ns", "resourceVersion": "5", "deletionTimestamp": "t"}});
        for (verb, part) in [("delete", ""), ("update", "finalize")] {
            let mut event: Value =
                serde_json::from_str(&event(verb, "01", told.clone())).expect("JSON");
            // So the API server writes it: a namespace as if it were in itself.
            event["objectRef"] = json!({"resource": "namespaces", "namespace": "ns", "name": "ns", "subresource": part});
            let input = entry(&event.to_string()).expect(verb).input;
            let Input::Change(change) = input else {
                panic!("{verb}: {input:?}");
            };
            assert_eq!(change.key, Key::new(Kind::Namespace, "", "ns"), "{verb}");
            assert_eq!(change.object, None, "{verb}");
        }
    }

    fn show(input: &Input) -> String {
        match input {
            Input::Change(c) => format!("{} {} {}", c.revision, c.created, c.object.is_some()),
            Input::Unreadable { what } => what.clone(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn answers_come_in_the_order_of_their_revisions() {
        let object = |version: &str| json!({"metadata": {"name": "a", "resourceVersion": version}});
        let lines = [
            event("patch", "03", object("12")),
            event("create", "01", object("10")),
            event("update", "04", object("11")),
            event("patch", "05", object("12")),
            event(
                "delete",
                "06",
                json!({"kind": "Status", "status": "Success"}),
            ),
            event("patch", "07", json!(null)),
            event("get", "07", object("12")),
        ];
        let inputs = in_order(lines.iter().filter_map(|line| entry(line)).collect());
        let shown: Vec<String> = inputs.iter().map(show).collect();
        assert_eq!(
            shown,
            [
                "10 true true",
                "11 false true",
                "12 false true",
                "12 false false",
                "patch of LynqNodes: the log has no body of the answer (level RequestResponse)",
            ]
        );
    }

    #[test]
    fn a_deletion_waits_for_the_last_finalizer() {
        let told = json!({"metadata": {"resourceVersion": "5", "deletionTimestamp": "t", "finalizers": ["f"]}});
        let last = json!({"metadata": {"resourceVersion": "6", "deletionTimestamp": "t"}});
        let shown = |verb, object| entry(&event(verb, "01", object)).map(|e| show(&e.input));
        assert_eq!(shown("delete", told).as_deref(), Some("5 false true"));
        assert_eq!(shown("patch", last).as_deref(), Some("6 false false"));
    }
}
