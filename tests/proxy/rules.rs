//! Which requests a fault meets, and what it does to them. Sends nothing itself.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::Value;

/// What a request asks for, as the API server's audit log would say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub verb: &'static str,
    /// Plural; empty for what is no resource, such as `/readyz`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub subresource: String,
}

impl Target {
    pub fn of(method: &Method, path: &str, query: &str) -> Target {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let rest = match parts.as_slice() {
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
            _ => &[],
        };
        // `namespaces/a/status` is of the namespace itself.
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..]
                if !matches!(rest, [] | ["status"] | ["finalize"]) =>
            {
                (*namespace, rest)
            }
            rest => ("", rest),
        };
        let at = |i: usize| rest.get(i).copied().unwrap_or_default().to_owned();
        let (resource, name, subresource) = (at(0), at(1), at(2));
        let watch = query
            .split('&')
            .any(|p| p == "watch=true" || p == "watch=1");
        let verb = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ if watch => "watch",
            _ if name.is_empty() && !resource.is_empty() => "list",
            _ => "get",
        };
        Target {
            verb,
            resource,
            namespace: namespace.to_owned(),
            name,
            subresource,
        }
    }

    pub fn is_write(&self) -> bool {
        matches!(self.verb, "create" | "update" | "patch" | "delete")
    }
}

/// Changes the body of a request; false when the request is none of those that it is for.
pub type Rewrite = Arc<dyn Fn(&Target, &mut Value) -> bool + Send + Sync>;

/// Changes an object of this resource (plural) as it is shown to the operator: by a get, a list or a watch.
pub type Shown = Arc<dyn Fn(&str, &mut Value) + Send + Sync>;

#[derive(Clone)]
pub enum Action {
    /// The proxy answers; the API server never sees the request. The second number is `Retry-After`.
    Status(u16, Option<u32>),
    /// The request reaches the API server this much later, also if nobody waits for the answer any more.
    Delay(Duration),
    /// The connection ends after this many bytes of the answer's body.
    CutAfter(usize),
    /// The API server does what it is asked; the connection ends before the answer.
    LoseReply,
    /// A watch is answered with the event `ERROR`, code 410.
    Gone,
    Rewrite(Rewrite),
    /// Both.
    DelayAndRewrite(Duration, Rewrite),
    /// Asks for another object: in the path, the first text is replaced by the second.
    Rename(String, String),
}

/// An action for some requests. A list that is empty matches everything.
#[derive(Clone)]
pub struct Rule {
    pub verbs: &'static [&'static str],
    pub resources: &'static [&'static str],
    /// `status`, say; an empty text is for the object itself.
    pub subresource: Option<&'static str>,
    /// A text that the request's body has.
    pub body: Option<&'static str>,
    /// How many matching requests pass before the first that is met.
    pub skip: usize,
    /// How many are met before the rule is used up.
    pub times: usize,
    /// Of those, in percent.
    pub chance: u32,
    pub action: Action,
}

impl Rule {
    pub fn new(action: Action) -> Rule {
        Rule {
            verbs: &[],
            resources: &[],
            subresource: None,
            body: None,
            skip: 0,
            times: usize::MAX,
            chance: 100,
            action,
        }
    }

    pub fn verbs(self, verbs: &'static [&'static str]) -> Rule {
        Rule { verbs, ..self }
    }

    pub fn resources(self, resources: &'static [&'static str]) -> Rule {
        Rule { resources, ..self }
    }

    pub fn subresource(self, subresource: &'static str) -> Rule {
        Rule {
            subresource: Some(subresource),
            ..self
        }
    }

    pub fn body(self, text: &'static str) -> Rule {
        Rule {
            body: Some(text),
            ..self
        }
    }

    pub fn skip(self, skip: usize) -> Rule {
        Rule { skip, ..self }
    }

    pub fn times(self, times: usize) -> Rule {
        Rule { times, ..self }
    }

    pub fn chance(self, chance: u32) -> Rule {
        Rule { chance, ..self }
    }

    pub fn matches(&self, target: &Target, body: &[u8]) -> bool {
        let among = |all: &[&str], one: &str| all.is_empty() || all.contains(&one);
        among(self.verbs, target.verb)
            && among(self.resources, &target.resource)
            && self
                .subresource
                .is_none_or(|subresource| subresource == target.subresource)
            && self
                .body
                .is_none_or(|text| memchr::memmem::find(body, text.as_bytes()).is_some())
    }
}
