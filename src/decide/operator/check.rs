//! `lynqgate check`: what is wrong with an installation, and with the hubs and forms of a namespace. A finding names an object, its
//! fault, and the command or file that corrects it.

pub mod admission;
pub mod certificate;
pub mod hub;
pub mod replicas;
pub mod rights;

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::decide::operator::installation::{definition_of, definition_problem};
use crate::decide::partition::explain::faulty;
use crate::decide::shared::fields::text_at;

/// The first release of Kubernetes that has all that lynqgate uses (docs/INSTALL.md).
const KUBERNETES_MIN: (u32, u32) = (1, 30);
/// The most names in a list.
const NAMES_MAX: usize = 3;

/// The result of a check; of several, the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ok,
    /// Something is not as usual and may be right, or could not be checked.
    Warning,
    Failed,
}

impl Verdict {
    /// For continuous integration.
    pub fn exit_status(self) -> u8 {
        match self {
            Verdict::Ok | Verdict::Warning => 0,
            Verdict::Failed => 1,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Failed => "failed",
        }
    }
}

/// The result for one object, a line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub verdict: Verdict,
    pub object: String,
    /// What the object is, or what is wrong with it.
    pub said: String,
    /// What corrects it, if `said` does not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Finding {
    fn ok(object: impl Into<String>, said: impl Into<String>) -> Self {
        Finding {
            verdict: Verdict::Ok,
            object: object.into(),
            said: said.into(),
            next: None,
        }
    }

    fn warning(
        object: impl Into<String>,
        said: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Finding {
            verdict: Verdict::Warning,
            next: Some(next.into()).filter(|next| !next.is_empty()),
            ..Finding::ok(object, said)
        }
    }

    fn failed(object: impl Into<String>, said: impl Into<String>, next: impl Into<String>) -> Self {
        Finding {
            verdict: Verdict::Failed,
            ..Finding::warning(object, said, next)
        }
    }

    /// For an object that the user may not read; `why` is the API server's text.
    fn unread(object: impl Into<String>, why: &str) -> Self {
        Finding::warning(
            object,
            format!("not checked, because you may not read it: {why}"),
            "Let an administrator run lynqgate check",
        )
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding {
            verdict,
            object,
            said,
            next,
        } = self;
        let line = match next {
            None => format!("{object}: {said}"),
            Some(next) => format!("{object}: {}. {next}", said.trim_end_matches('.')),
        };
        let printable = |c: char| if c.is_control() { ' ' } else { c };
        let line: String = line.chars().map(printable).collect();
        write!(f, "{:<7}  {line}", verdict.word())
    }
}

pub fn worst(findings: &[Finding]) -> Verdict {
    let verdicts = findings.iter().map(|finding| finding.verdict);
    verdicts.max().unwrap_or(Verdict::Ok)
}

/// The answer to a read.
#[derive(Clone, Debug, PartialEq)]
pub enum Observed<T = Value> {
    Object(T),
    Absent,
    /// The user may not read it; with the API server's text.
    Denied(String),
}

impl<T> Observed<T> {
    pub fn object(&self) -> Option<&T> {
        match self {
            Observed::Object(object) => Some(object),
            Observed::Absent | Observed::Denied(_) => None,
        }
    }

    pub fn map<U>(self, to: impl FnOnce(T) -> U) -> Observed<U> {
        match self {
            Observed::Object(object) => Observed::Object(to(object)),
            Observed::Absent => Observed::Absent,
            Observed::Denied(why) => Observed::Denied(why),
        }
    }
}

/// The answer to a write in a dry run.
#[derive(Clone, Debug, PartialEq)]
pub enum Tried {
    /// With the object as the API server would store it.
    Accepted(Value),
    /// With the API server's text.
    Rejected(String),
    /// The user may not create such objects at all.
    NotAllowed,
}

/// `version`: as the API server has it, such as `v1.36.3`.
pub fn version(version: &str) -> Finding {
    const OBJECT: &str = "API server";
    let (major, minor) = KUBERNETES_MIN;
    match release(version) {
        None => Finding::warning(
            OBJECT,
            format!("its version {version:?} names no release of Kubernetes"),
            format!("Make sure that it is {major}.{minor} or later"),
        ),
        Some(found) if found < KUBERNETES_MIN => Finding::failed(
            OBJECT,
            format!("it is Kubernetes {version}, and lynqgate needs {major}.{minor} or later"),
            "Upgrade the cluster (docs/INSTALL.md, \"Kubernetes versions\")",
        ),
        Some(_) => match faulty(version) {
            Some(fault) => Finding::warning(OBJECT, fault, ""),
            None => Finding::ok(OBJECT, format!("Kubernetes {version}")),
        },
    }
}

fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim_start_matches('v').split(['.', '-', '+']);
    let mut number = || numbers.next()?.parse::<u32>().ok();
    Some((number()?, number()?))
}

/// `ours`: the CustomResourceDefinition of this program.
pub fn definition(ours: &Value, installed: &Observed) -> Finding {
    let plural = text_at(ours, "/spec/names/plural");
    let object = format!("CustomResourceDefinition {}", definition_of(plural));
    let installed = match installed {
        Observed::Denied(why) => return Finding::unread(object, why),
        Observed::Absent => None,
        Observed::Object(definition) => Some(definition),
    };
    let apply =
        format!("kubectl apply --server-side --force-conflicts -f manifests/crd-{plural}.yaml");
    if let Some(problem) = definition_problem(plural, installed) {
        let said = problem.strip_prefix(&object).unwrap_or(&problem);
        let said = format!("it{said}");
        return Finding::failed(object, said, apply);
    }
    let (ours, theirs) = (fields_of(ours), installed.map(fields_of));
    let theirs = theirs.unwrap_or_default();
    let lacks: Vec<&str> = ours.difference(&theirs).map(String::as_str).collect();
    let has_more: Vec<&str> = theirs.difference(&ours).map(String::as_str).collect();
    match (lacks.as_slice(), has_more.as_slice()) {
        ([], []) => Finding::ok(object, "it has all fields of this version"),
        ([], more) => Finding::warning(
            object,
            format!(
                "it is newer than this program, and also has {}",
                listed(more)
            ),
            "Use the operator's version of lynqgate",
        ),
        (lacks, _) => Finding::warning(
            object,
            format!(
                "it is not of this program's version: it lacks {}",
                listed(lacks)
            ),
            format!("Use the operator's version of lynqgate, or upgrade the definition: {apply}"),
        ),
    }
}

/// The paths of all fields of spec and status. The API server adds defaults around them.
fn fields_of(definition: &Value) -> BTreeSet<String> {
    let mut fields = BTreeSet::new();
    let versions = definition["spec"]["versions"].as_array();
    for version in versions.into_iter().flatten() {
        for part in ["spec", "status"] {
            let schema = &version["schema"]["openAPIV3Schema"]["properties"][part];
            add_fields(schema, part, &mut fields);
        }
    }
    fields
}

fn add_fields(schema: &Value, path: &str, fields: &mut BTreeSet<String>) {
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        add_fields(schema, &path, fields);
        fields.insert(path);
    }
    for of_each in ["items", "additionalProperties"] {
        add_fields_of_each(&schema[of_each], path, fields);
    }
}

/// Those of the items of a list, or of the values of a map.
fn add_fields_of_each(schema: &Value, path: &str, fields: &mut BTreeSet<String>) {
    if schema.is_object() {
        add_fields(schema, &format!("{path}[]"), fields);
    }
}

/// The first names, and the count of the others.
fn listed<T: AsRef<str>>(names: &[T]) -> String {
    let shown: Vec<&str> = names.iter().take(NAMES_MAX).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(NAMES_MAX) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The commands that show the operator's pods, and what they log.
fn pods(namespace: &str) -> String {
    format!("kubectl get pods -n {namespace} -l control-plane=controller-manager")
}

fn logs(namespace: &str) -> String {
    format!("kubectl logs -n {namespace} -l control-plane=controller-manager --prefix")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::crd;

    /// The verdict and the whole line.
    pub fn line(finding: &Finding) -> String {
        let line = finding.to_string();
        let words: Vec<&str> = line.split_whitespace().collect();
        words.join(" ")
    }

    #[test]
    fn a_finding_is_one_line() {
        let warning = Finding::warning("a", "two\nlines.", "Do this");
        assert_eq!(warning.to_string(), "warning  a: two lines. Do this");
        let failed = Finding::failed("a", "no next step.", "");
        assert_eq!(failed.to_string(), "failed   a: no next step.");
        let ok = Finding::ok("a", "good");
        assert_eq!(ok.to_string(), "ok       a: good");
        for (findings, verdict, status) in [
            (vec![], Verdict::Ok, 0),
            (vec![warning.clone(), ok.clone()], Verdict::Warning, 0),
            (vec![warning, failed, ok], Verdict::Failed, 1),
        ] {
            assert_eq!(worst(&findings), verdict);
            assert_eq!(verdict.exit_status(), status);
        }
    }

    #[test]
    fn the_version_is_at_least_the_first_with_all_features() {
        for (text, said) in [
            ("v1.36.3", "ok API server: Kubernetes v1.36.3"),
            ("v1.30.0-eks-1", "ok API server: Kubernetes v1.30.0-eks-1"),
            (
                "v1.29.9",
                "failed API server: it is Kubernetes v1.29.9, and lynqgate needs 1.30 or later. Upgrade the cluster (docs/INSTALL.md, \
                 \"Kubernetes versions\")",
            ),
            (
                "v1.35.3",
                "warning API server: Kubernetes v1.35.3 has a fault in the updates of StatefulSets (kubernetes#137409), so that their \
                 partition may not hold: upgrade to 1.35.4 or later",
            ),
            (
                "main",
                "warning API server: its version \"main\" names no release of Kubernetes. Make sure that it is 1.30 or later",
            ),
        ] {
            assert_eq!(line(&version(text)), said);
        }
    }

    #[test]
    fn a_definition_has_the_fields_of_this_version() {
        let ours = &crd::definitions()[0];
        let said = |installed: Observed| line(&definition(ours, &installed));
        let name = "CustomResourceDefinition lynqhubs.operator.lynq.sh";
        let apply = "kubectl apply --server-side --force-conflicts -f manifests/crd-lynqhubs.yaml";
        let own = "install lynqgate as the README says, which brings its own definitions";
        let properties = "/spec/versions/0/schema/openAPIV3Schema/properties";
        let with = |field: &str, value: Option<Value>| {
            let mut changed = ours.clone();
            let fields = changed.pointer_mut(&format!("{properties}/spec/properties"));
            let fields = fields.and_then(Value::as_object_mut).unwrap();
            match value {
                Some(value) => drop(fields.insert(field.to_owned(), value)),
                None => drop(fields.remove(field)),
            }
            Observed::Object(changed)
        };
        let mut lynqs = ours.clone();
        *lynqs.pointer_mut(&format!("{properties}/status")).unwrap() = json!({"type": "object"});
        for (installed, expected) in [
            (
                Observed::Object(ours.clone()),
                format!("ok {name}: it has all fields of this version"),
            ),
            (
                Observed::Absent,
                format!("failed {name}: it is not there; {own}. {apply}"),
            ),
            (
                Observed::Object(lynqs),
                format!(
                    "failed {name}: it is not lynqgate's: the API server drops status.rollout.slots of what is written; {own}. {apply}"
                ),
            ),
            (
                with("activeValues", None),
                format!(
                    "warning {name}: it is not of this program's version: it lacks spec.activeValues. Use the operator's version \
                     of lynqgate, or upgrade the definition: {apply}"
                ),
            ),
            (
                with("more", Some(json!({"items": {"properties": {"x": {}}}}))),
                format!(
                    "warning {name}: it is newer than this program, and also has spec.more, spec.more[].x. Use the operator's version \
                     of lynqgate"
                ),
            ),
            (
                Observed::Denied("no".to_owned()),
                format!(
                    "warning {name}: not checked, because you may not read it: no. Let an administrator run lynqgate check"
                ),
            ),
        ] {
            assert_eq!(said(installed), expected);
        }
    }

    #[test]
    fn lists_are_short() {
        assert_eq!(listed(&["a", "b", "c"]), "a, b, c");
        assert_eq!(listed(&["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
    }
}
