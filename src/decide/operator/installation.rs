//! What must be installed as it is, or lynqgate cannot keep its promises: its own CustomResourceDefinitions, the name by
//! which the policy lynqgate-fence knows it, and that it may write LynqNodes.

use serde_json::{Value, json};

use crate::api::names;
use crate::decide::shared::content;

/// Fields that the API server must store, by the plural of their kind, and what would become of it otherwise. Lynq's own
/// definitions do not have them.
pub const STORED: [(&str, &[&str]); 3] = [
    ("lynqhubs", &["status.rollout.slots"]),
    (
        "lynqforms",
        &[
            "spec.rollout.paused",
            "spec.rollout.order",
            "spec.rollout.domains",
        ],
    ),
    (
        "lynqnodes",
        &[
            "spec.released",
            "status.observedHash",
            "status.landedRelease",
            "status.freedRelease",
            "status.slotGivenUp",
        ],
    ),
];

/// Name of the CustomResourceDefinition of a plural.
pub fn definition_of(plural: &str) -> String {
    format!("{plural}.{}", names::GROUP)
}

/// What is wrong with a definition; None for one that stores these fields.
pub fn definition_problem(plural: &str, definition: Option<&Value>) -> Option<String> {
    let name = definition_of(plural);
    let again = "install lynqgate as the README says, which brings its own definitions";
    let Some(definition) = definition else {
        return Some(format!(
            "CustomResourceDefinition {name} is not there; {again}"
        ));
    };
    let fields = STORED.iter().find(|(of, _)| *of == plural)?.1;
    let versions = definition["spec"]["versions"].as_array();
    let schema = versions
        .into_iter()
        .flatten()
        .find(|version| version["name"] == names::VERSION)
        .map(|version| &version["schema"]["openAPIV3Schema"]);
    let lost: Vec<&str> = fields
        .iter()
        .filter(|path| !schema.is_some_and(|schema| stores(schema, path)))
        .copied()
        .collect();
    (!lost.is_empty()).then(|| {
        format!(
            "CustomResourceDefinition {name} is not lynqgate's: the API server drops {} of what is written; {again}",
            lost.join(", ")
        )
    })
}

fn stores(schema: &Value, path: &str) -> bool {
    let mut here = schema;
    for field in path.split('.') {
        if here["x-kubernetes-preserve-unknown-fields"] == true {
            return true;
        }
        here = &here["properties"][field];
    }
    here.is_object()
}

/// The variable of the fence that is true for the operator.
pub const OPERATOR_VARIABLE: &str = "operator";

/// What follows the operator's name in [`is_operator`].
const IS_THE_USER: &str = r#" == request.userInfo.username + ":""#;

/// The CEL expression of that variable. A literal, for a policy with a parameter depends on an informer of the API server that
/// may have stopped (decision 0031). Each part of the name stands between colons: kustomize replaces such parts.
pub fn is_operator(username: &str) -> String {
    // A JSON string is a CEL string.
    format!("{}{IS_THE_USER}", Value::from(format!("{username}:")))
}

/// The user name by which the fence knows the operator; None where its variable is not this version's.
pub fn operator_of(policy: &Value) -> Option<String> {
    let variables = policy["spec"]["variables"].as_array();
    let mut variables = variables.into_iter().flatten();
    let variable = variables.find(|variable| variable["name"] == OPERATOR_VARIABLE)?;
    named_operator(variable["expression"].as_str()?)
}

fn named_operator(expression: &str) -> Option<String> {
    let literal = expression.strip_suffix(IS_THE_USER)?;
    let name: String = serde_json::from_str(literal).ok()?;
    Some(name.strip_suffix(':')?.to_owned())
}

/// What is wrong with the fence. One that is not there refuses nothing.
pub fn fence_problem(policy: Option<&Value>, operator: &str) -> Option<String> {
    let what = format!("ValidatingAdmissionPolicy {}", names::FENCE);
    match operator_of(policy?) {
        Some(named) if named == operator => None,
        Some(named) => Some(format!(
            "{what}: it names {named:?} as the operator, but this operator is {operator:?}. Correct its variable {OPERATOR_VARIABLE:?} \
             (docs/OPERATING.md, \"Another namespace\")"
        )),
        None => Some(format!(
            "{what}: its variable {OPERATOR_VARIABLE:?} is not this version's, so that it may deny every release. Install \
             lynqgate's manifests again, as the README says"
        )),
    }
}

/// A write that only the operator may make, to be tried in a dry run. lynqgate's own webhooks leave it out, for before a replica is
/// ready the API server reaches none of them; those of an earlier version do not, and allow it.
pub fn write_probe(namespace: &str) -> Value {
    let mut node = empty_node(namespace, names::WRITE_PROBE);
    node["metadata"]["annotations"] = json!({names::UNGATED: content::hash(None).as_str()});
    node
}

/// A write of a LynqNode without content, to be tried in a dry run by anyone who may create LynqNodes. lynqgate's webhooks see it.
pub fn gate_probe(namespace: &str) -> Value {
    empty_node(namespace, names::GATE_PROBE)
}

fn empty_node(namespace: &str, generate_name: &str) -> Value {
    json!({
        "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
        "kind": "LynqNode",
        "metadata": {"generateName": generate_name, "namespace": namespace},
        "spec": {"uid": generate_name, "templateRef": generate_name},
    })
}

/// What a refusal of the probe means.
pub fn write_problem(refusal: &str) -> String {
    format!(
        "LynqNodes: the API server denies what lynqgate writes (tried in a dry run): {refusal}. Correct what denies it; lynqgate tries \
         again"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::crd;

    #[test]
    fn our_own_definitions_store_what_must_be_stored() {
        for definition in crd::definitions() {
            let plural = definition["spec"]["names"]["plural"].as_str().unwrap();
            assert_eq!(definition_problem(plural, Some(&definition)), None);
        }
    }

    #[test]
    fn a_definition_that_drops_fields_is_a_problem_and_an_open_one_is_not() {
        let with = |schema: Value| {
            let definition = json!({"spec": {"versions": [
                {"name": "v1", "schema": {"openAPIV3Schema": schema}},
            ]}});
            definition_problem("lynqnodes", Some(&definition)).unwrap_or_default()
        };
        let again = "install lynqgate as the README says, which brings its own definitions";
        let name = "CustomResourceDefinition lynqnodes.operator.lynq.sh";
        let lost = |fields: &str| {
            format!(
                "{name} is not lynqgate's: the API server drops {fields} of what is written; {again}"
            )
        };
        assert_eq!(
            with(json!({})),
            lost(
                "spec.released, status.observedHash, status.landedRelease, status.freedRelease, status.slotGivenUp"
            )
        );
        let released = json!({"properties": {"released": {"type": "object"}}});
        assert_eq!(
            with(json!({"properties": {"spec": released}})),
            lost(
                "status.observedHash, status.landedRelease, status.freedRelease, status.slotGivenUp"
            )
        );
        let open = json!({"x-kubernetes-preserve-unknown-fields": true});
        assert_eq!(
            with(json!({"properties": {"spec": released, "status": open}})),
            ""
        );
        assert_eq!(
            definition_problem("lynqnodes", None),
            Some(format!("{name} is not there; {again}"))
        );
    }

    #[test]
    fn the_fence_must_know_the_operator_by_its_name() {
        let problem = |expression: &str| {
            let other = json!({"name": "now", "expression": "{}"});
            let variable = json!({"name": "operator", "expression": expression});
            let policy = json!({"spec": {"variables": [other, variable]}});
            fence_problem(Some(&policy), "ns:me").unwrap_or_default()
        };
        assert_eq!(
            is_operator("ns:me"),
            r#""ns:me:" == request.userInfo.username + ":""#
        );
        for name in ["ns:me", r#"a "quoted" \ name"#] {
            assert_eq!(named_operator(&is_operator(name)).as_deref(), Some(name));
        }
        assert_eq!(problem(&is_operator("ns:me")), "");
        assert_eq!(
            problem(&is_operator("ns:you")),
            "ValidatingAdmissionPolicy lynqgate-fence: it names \"ns:you\" as the operator, but this operator is \"ns:me\". Correct \
             its variable \"operator\" (docs/OPERATING.md, \"Another namespace\")"
        );
        let not_ours = "ValidatingAdmissionPolicy lynqgate-fence: its variable \"operator\" is not this version's, so that it may deny \
                        every release. Install lynqgate's manifests again, as the README says";
        assert_eq!(
            problem("request.userInfo.username == params.data.username"),
            not_ours
        );
        assert_eq!(
            fence_problem(Some(&json!({})), "ns:me").as_deref(),
            Some(not_ours)
        );
        assert_eq!(fence_problem(None, "ns:me"), None, "it denies nothing");
    }
}
