//! What a request asks for, and what the API server answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Method, Request, header};
use hyper::body::Bytes;
use serde_json::{Value, json};

use crate::api::patch::{self, Writer};
use crate::api::store::{DEPLOYMENT, KINDS, Key, NODE, Object, STATEFUL_SET, Store};
use crate::api::validation;

/// A request that was understood.
#[derive(Clone, Debug)]
pub struct Call {
    pub verb: Verb,
    pub kind: usize,
    pub key: Key,
    pub of_status: bool,
    pub evicts: bool,
    pub query: BTreeMap<String, String>,
    /// Only metadata is asked for.
    pub metadata_only: bool,
    pub body: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Replace,
    Apply,
    Merge,
    JsonPatch,
    Delete,
}

/// What is asked of the API server.
#[derive(Clone, Debug)]
pub enum Asked {
    Call(Box<Call>),
    /// Which kinds a group has, in one version.
    Kinds(String, String),
    Unknown,
}

#[derive(Clone, Debug)]
pub struct Refused {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    pub causes: Value,
}

impl Refused {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Refused {
            code,
            reason,
            message: message.into(),
            causes: json!([]),
        }
    }

    pub fn conflict(message: impl Into<String>) -> Self {
        Refused::new(409, "Conflict", message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Refused::new(404, "NotFound", message)
    }

    pub fn unavailable() -> Self {
        Refused::new(
            503,
            "ServiceUnavailable",
            "the API server cannot answer just now",
        )
    }

    pub fn status(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {},
            "message": self.message, "reason": self.reason, "code": self.code,
            "details": {"causes": self.causes},
        })
    }
}

impl Call {
    pub fn is_read(&self) -> bool {
        matches!(self.verb, Verb::Get | Verb::List | Verb::Watch)
    }

    pub fn is_dry_run(&self) -> bool {
        self.query.contains_key("dryRun")
    }

    pub fn manager(&self) -> &str {
        let manager = self.query.get("fieldManager");
        manager.map_or("unknown", String::as_str)
    }

    /// For the trace.
    pub fn shown(&self) -> String {
        let kind = KINDS[self.kind].kind;
        let status = if self.of_status { " status" } else { "" };
        let body = match self.verb {
            Verb::Apply if self.kind == DEPLOYMENT => {
                let owner = &self.body["metadata"]["ownerReferences"][0]["uid"];
                format!(" {} for {owner}", self.body["spec"]["image"])
            }
            Verb::Get | Verb::List | Verb::Watch | Verb::Apply | Verb::Create => String::new(),
            _ => format!(" {}", self.body),
        };
        format!("{:?} {kind}{status} {}{body}", self.verb, self.key.1)
    }

    pub fn selector(&self) -> Selector {
        let of = |name: &str| self.query.get(name).cloned().unwrap_or_default();
        Selector {
            namespace: self.key.0.clone(),
            labels: of("labelSelector"),
            fields: of("fieldSelector"),
        }
    }
}

/// Which objects of a kind.
#[derive(Clone, Debug)]
pub struct Selector {
    namespace: String,
    labels: String,
    fields: String,
}

impl Selector {
    pub fn has(&self, key: &Key, object: &Object) -> bool {
        if !self.namespace.is_empty() && key.0 != self.namespace {
            return false;
        }
        let labels = &object.value["metadata"]["labels"];
        let each = self.labels.split(',').filter(|one| !one.is_empty());
        let has = |one: &str| match one.split_once('=') {
            Some((name, value)) => labels[name] == value.trim_start_matches('='),
            None => match one.strip_prefix('!') {
                Some(name) => labels[name].is_null(),
                None => !labels[one].is_null(),
            },
        };
        let field = match self.fields.split_once('=') {
            None => true,
            Some(("metadata.name", name)) => key.1 == name,
            Some(("spec.nodeName", node)) => object.value["spec"]["nodeName"] == node,
            Some((field, _)) => unreachable!("nobody selects by {field}"),
        };
        each.into_iter().all(has) && field
    }
}

pub fn parse<B>(request: &Request<B>, body: &Bytes) -> Asked {
    let query: BTreeMap<String, String> = request
        .uri()
        .query()
        .unwrap_or_default()
        .split('&')
        .filter_map(|one| one.split_once('='))
        .map(|(name, value)| (name.to_owned(), decoded(value)))
        .collect();
    let parts: Vec<&str> = request.uri().path().split('/').skip(1).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Asked::Unknown,
    };
    let (namespace, rest) = match rest {
        [] => return Asked::Kinds(group.to_owned(), version.to_owned()),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, "", ""),
        [plural, name] => (*plural, *name, ""),
        [plural, name, subresource] => (*plural, *name, *subresource),
        _ => return Asked::Unknown,
    };
    let is_it = |kind: &crate::api::store::Kind| {
        kind.group == group && kind.version == version && kind.plural == plural
    };
    let Some(kind) = KINDS.iter().position(is_it) else {
        return Asked::Unknown;
    };
    let header = |name| {
        let value = request.headers().get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let verb = match (request.method(), name) {
        (&Method::GET, "") if query.contains_key("watch") => Verb::Watch,
        (&Method::GET, "") => Verb::List,
        (&Method::GET, _) => Verb::Get,
        (&Method::POST, _) => Verb::Create,
        (&Method::PUT, _) => Verb::Replace,
        (&Method::DELETE, _) => Verb::Delete,
        (&Method::PATCH, _) => match header(header::CONTENT_TYPE) {
            "application/apply-patch+yaml" => Verb::Apply,
            "application/json-patch+json" => Verb::JsonPatch,
            _ => Verb::Merge,
        },
        _ => return Asked::Unknown,
    };
    let mut body: Value = serde_json::from_slice(body).unwrap_or_default();
    // An eviction is a deletion that may be refused.
    let evicts = subresource == "eviction";
    let verb = if evicts { Verb::Delete } else { verb };
    if evicts {
        body = body["deleteOptions"].take();
    }
    let name = match (verb, &body) {
        (Verb::Create, Value::Object(_)) => text(&body, "name"),
        _ => name.to_owned(),
    };
    Asked::Call(Box::new(Call {
        verb,
        kind,
        key: (namespace.to_owned(), name),
        of_status: subresource == "status",
        evicts,
        query,
        metadata_only: header(header::ACCEPT).contains("as=PartialObjectMetadata"),
        body,
    }))
}

fn decoded(text: &str) -> String {
    let mut bytes = vec![];
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let hex = |rest: &mut std::str::Bytes| {
            let digits = [rest.next()?, rest.next()?];
            u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()
        };
        match byte {
            b'%' => bytes.extend(hex(&mut rest)),
            b'+' => bytes.push(b' '),
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).unwrap_or_default()
}

fn text(object: &Value, field: &str) -> String {
    let text = object["metadata"][field].as_str();
    text.unwrap_or_default().to_owned()
}

pub fn kinds(group: &str, version: &str) -> Option<Value> {
    let of_group = |kind: &&crate::api::store::Kind| kind.group == group && kind.version == version;
    let of = |name: String, kind: &crate::api::store::Kind| {
        json!({
            "name": name, "singularName": "", "namespaced": kind.namespaced, "kind": kind.kind,
            "verbs": ["get", "list", "watch", "create", "patch", "update", "delete"],
        })
    };
    let mut all = vec![];
    for kind in KINDS.iter().filter(of_group) {
        all.push(of(kind.plural.to_owned(), kind));
        if kind.has_status {
            all.push(of(format!("{}/status", kind.plural), kind));
        }
    }
    let group_version = match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    };
    (!all.is_empty()).then(|| {
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": all})
    })
}

/// What becomes of an object on its way to the store: the webhooks' part.
pub trait Admission {
    fn admit(&mut self, call: &Call, old: Option<&Value>, new: Value) -> Result<Value, Refused>;
}

/// What a write did.
pub struct Written {
    pub before: Option<Arc<Object>>,
    /// None where it is gone now.
    pub now: Option<Arc<Object>>,
    /// What the client reads.
    pub answer: Arc<Object>,
}

/// A get, or a write.
pub fn execute(
    store: &mut Store,
    call: &Call,
    now: &str,
    admission: &mut dyn Admission,
) -> Result<Written, Refused> {
    let kind = &KINDS[call.kind];
    let old = store.get(call.kind, &call.key);
    let missing = || Refused::not_found(format!("{} {:?} not found", kind.plural, call.key.1));
    let writer = Writer {
        manager: call.manager(),
        now,
        of_status: call.of_status,
    };
    let mut new = match (call.verb, &old) {
        (Verb::Get, _) => {
            let object = old.ok_or_else(missing)?;
            return Ok(Written {
                before: None,
                now: None,
                answer: object,
            });
        }
        (Verb::Delete, _) => return delete(store, call, old.ok_or_else(missing)?, now),
        (Verb::Create, Some(_)) => {
            let message = format!("{} {:?} already exists", kind.plural, call.key.1);
            return Err(Refused::new(409, "AlreadyExists", message));
        }
        (Verb::Create, None) => call.body.clone(),
        (Verb::Apply, old) => {
            let force = call.query.get("force").is_some_and(|force| force == "true");
            let live = old.as_ref().map(|old| &old.value);
            let applied = patch::apply(live, &call.body, &writer, force);
            applied.map_err(|fields| Refused {
                causes: fields
                    .iter()
                    .map(|field| json!({"reason": "FieldManagerConflict", "message": "conflict with \"another\"", "field": field}))
                    .collect(),
                ..Refused::conflict(format!("Apply failed with conflicts: {}", fields.join(", ")))
            })?
        }
        (_, None) => return Err(missing()),
        (Verb::Replace, Some(_)) => call.body.clone(),
        (Verb::Merge, Some(old)) => {
            let mut new = old.value.clone();
            patch::merge(&mut new, &call.body);
            new
        }
        (Verb::JsonPatch, Some(old)) => {
            let mut new = old.value.clone();
            let patch = serde_json::from_value::<json_patch::Patch>(call.body.clone());
            let patch = patch.map_err(|e| Refused::new(400, "BadRequest", e.to_string()))?;
            let patched = json_patch::patch(&mut new, &patch);
            patched.map_err(|e| Refused::new(422, "Invalid", e.to_string()))?;
            new
        }
        (Verb::List | Verb::Watch, _) => unreachable!("they are no calls of one object"),
    };
    // The version that a write names is the one that it means.
    let named = &call.body["metadata"]["resourceVersion"];
    let named = named.as_str().filter(|_| call.verb != Verb::JsonPatch);
    if let Some(named) = named {
        match &old {
            Some(old) if old.version() != named => {
                return Err(Refused::conflict(format!(
                    "Operation cannot be fulfilled on {} {:?}: the object has been modified",
                    kind.plural, call.key.1
                )));
            }
            None if call.verb == Verb::Apply => return Err(missing()),
            _ => {}
        }
    }
    keep(&mut new, old.as_deref(), call, kind.has_status);
    let before = old.as_ref().map_or(&Value::Null, |old| &old.value);
    let applied = (call.verb == Verb::Apply).then(|| new.clone());
    if !call.of_status {
        let live = old.as_ref().map(|old| &old.value);
        new = admission.admit(call, live, new)?;
        validation::check(call.kind, &call.key, live, &new)?;
    }
    // Who owns a status, or an object that nobody applies, is nothing that anybody asks.
    if !call.of_status && [NODE, DEPLOYMENT, STATEFUL_SET].contains(&call.kind) {
        patch::updated(applied.as_ref().unwrap_or(before), &mut new, &writer);
    }
    if call.is_dry_run() {
        let mut store = Store::default();
        let answer = store.put(call.kind, &call.key, new);
        return Ok(Written {
            before: None,
            now: None,
            answer,
        });
    }
    if old.is_none() {
        store.born(&mut new, now);
    }
    let leaves = new["metadata"]["deletionTimestamp"].is_string()
        && new["metadata"]["finalizers"]
            .as_array()
            .is_none_or(Vec::is_empty);
    if leaves {
        let answer = store.remove(call.kind, &call.key).ok_or_else(missing)?;
        return Ok(Written {
            before: old,
            now: None,
            answer,
        });
    }
    let stored = store.put(call.kind, &call.key, new);
    Ok(Written {
        before: old,
        now: Some(stored.clone()),
        answer: stored,
    })
}

/// What no write changes: what the API server says of the object, and its status, or all but that.
fn keep(new: &mut Value, old: Option<&Object>, call: &Call, has_status: bool) {
    let null = Value::Null;
    let before = old.map_or(&null, |old| &old.value);
    if call.of_status {
        keep_field(new, before, "metadata");
        keep_field(new, before, "spec");
        return;
    }
    for field in [
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
    ] {
        keep_field(&mut new["metadata"], &before["metadata"], field);
    }
    if has_status {
        keep_field(new, before, "status");
    }
    if call.verb != Verb::Apply {
        keep_field(&mut new["metadata"], &before["metadata"], "managedFields");
    }
    let kind = &KINDS[call.kind];
    new["apiVersion"] = kind.api_version().into();
    new["kind"] = kind.kind.into();
    new["metadata"]["name"] = call.key.1.as_str().into();
    if kind.namespaced {
        new["metadata"]["namespace"] = call.key.0.as_str().into();
    }
}

fn keep_field(object: &mut Value, before: &Value, field: &str) {
    match &before[field] {
        Value::Null => drop(object.as_object_mut().map(|all| all.remove(field))),
        // As a rule it is as it was, and to compare it takes less than a copy.
        value if object[field] == *value => {}
        value => object[field] = value.clone(),
    }
}

fn delete(store: &mut Store, call: &Call, old: Arc<Object>, now: &str) -> Result<Written, Refused> {
    let conditions = &call.body["preconditions"];
    for (field, is) in [("uid", old.uid()), ("resourceVersion", old.version())] {
        if conditions[field]
            .as_str()
            .is_some_and(|wanted| wanted != is)
        {
            return Err(Refused::conflict(format!(
                "Precondition failed: {field} in precondition: {}, in object meta: {is}",
                conditions[field]
            )));
        }
    }
    if call.is_dry_run() {
        return Ok(Written {
            before: None,
            now: None,
            answer: old,
        });
    }
    if call.body["propagationPolicy"] == "Orphan" {
        orphan(store, old.uid());
    }
    let finalizers = old.value["metadata"]["finalizers"].as_array();
    if finalizers.is_none_or(Vec::is_empty) {
        let gone = store.remove(call.kind, &call.key).expect("it is there");
        return Ok(Written {
            before: Some(old),
            now: None,
            answer: gone,
        });
    }
    let mut new = old.value.clone();
    if new["metadata"]["deletionTimestamp"].is_null() {
        new["metadata"]["deletionTimestamp"] = now.into();
        new["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    }
    let stored = store.put(call.kind, &call.key, new);
    Ok(Written {
        before: Some(old),
        now: Some(stored.clone()),
        answer: stored,
    })
}

/// The dependents of this owner, by kind and key.
pub fn dependents(store: &Store, owner: &str) -> Vec<(usize, Key)> {
    let owned = |object: &Object| {
        let owners = object.value["metadata"]["ownerReferences"].as_array();
        let mut owners = owners.into_iter().flatten();
        owners.any(|one| one["uid"] == owner)
    };
    let of_kind = |kind: usize| {
        let all = store.all(kind).iter();
        all.filter(|(_, object)| owned(object))
            .map(move |(key, _)| (kind, key.clone()))
    };
    (0..KINDS.len()).flat_map(of_kind).collect()
}

fn orphan(store: &mut Store, owner: &str) {
    for (kind, key) in dependents(store, owner) {
        let Some(object) = store.get(kind, &key) else {
            continue;
        };
        let mut value = object.value.clone();
        if let Some(owners) = value["metadata"]["ownerReferences"].as_array_mut() {
            owners.retain(|one| one["uid"] != owner);
        }
        store.put(kind, &key, value);
    }
}

/// Where a page of a list begins: after so many objects, of those that were there at a revision.
pub struct Page {
    revision: u64,
    start: usize,
}

impl Page {
    /// The first one, of the objects as they were so many events ago.
    pub fn first(store: &Store, call: &Call, events: usize) -> Self {
        let revision = store.before(call.kind, events);
        Page { revision, start: 0 }
    }

    /// The one that a continue token names.
    pub fn named(token: &str) -> Option<Self> {
        let (revision, start) = token.split_once('-')?;
        Some(Page {
            revision: revision.parse().ok()?,
            start: start.parse().ok()?,
        })
    }

    fn token(&self) -> String {
        format!("{}-{}", self.revision, self.start)
    }
}

pub fn expired() -> Refused {
    Refused::new(410, "Expired", "the provided continue parameter is too old")
}

/// A page of a list, with no more objects than this and than the call wants.
pub fn list(store: &Store, call: &Call, at: &Page, most: usize) -> Result<String, Refused> {
    let kind = &KINDS[call.kind];
    let objects = store.at(call.kind, at.revision).ok_or_else(expired)?;
    let selector = call.selector();
    let limit: Option<usize> = call.query.get("limit").and_then(|text| text.parse().ok());
    // Who names no limit reads all at once.
    let size = limit.map_or(usize::MAX, |limit| limit.min(most));
    let mut selected = objects
        .iter()
        .filter(|(key, object)| selector.has(key, object))
        .skip(at.start);
    let text = |(_, object): (_, &Arc<Object>)| match call.metadata_only {
        true => json!({"metadata": object.value["metadata"]}).to_string(),
        false => String::from_utf8_lossy(&object.text()).into_owned(),
    };
    let items: Vec<String> = selected.by_ref().take(size).map(text).collect();
    let next = Page {
        revision: at.revision,
        start: at.start + items.len(),
    };
    let more = match selected.next() {
        Some(_) => next.token(),
        None => String::new(),
    };
    let metadata = json!({"resourceVersion": at.revision.to_string(), "continue": more});
    Ok(format!(
        r#"{{"apiVersion":"{}","kind":"{}List","metadata":{metadata},"items":[{}]}}"#,
        kind.api_version(),
        kind.kind,
        items.join(",")
    ))
}
