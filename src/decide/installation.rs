//! What must be installed as it is, or lynqgate cannot keep its promises: its own CustomResourceDefinitions, and the name by
//! which the policy lynqgate-fence knows it.

use serde_json::Value;

use crate::api::names;

/// Fields that the API server must store, by the plural of their kind, and what would become of it otherwise. Lynq's own
/// definitions do not have them.
pub const STORED: [(&str, &[&str]); 3] = [
    ("lynqhubs", &["status.rollout.slots"]),
    ("lynqforms", &["spec.rollout.paused", "spec.rollout.order"]),
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

/// What is wrong with the ConfigMap that tells the fence who the operator is.
pub fn identity_problem(map: Option<&Value>, namespace: &str, operator: &str) -> Option<String> {
    let what = format!(
        "ConfigMap {} in namespace {namespace}",
        names::IDENTITY_CONFIG_MAP
    );
    let Some(map) = map else {
        return Some(format!(
            "{what} is not there, and without it the policy lynqgate-fence refuses every write of a LynqNode; install \
             lynqgate as the README says"
        ));
    };
    let named = &map["data"]["username"];
    (*named != operator).then(|| {
        format!("{what} names {named} as the operator, but this is {operator:?}; correct it")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        let map = |name: &str| json!({"data": {"username": name}});
        let problem = |map: Option<&Value>| identity_problem(map, "here", "me");
        assert_eq!(problem(Some(&map("me"))), None);
        assert_eq!(
            problem(None).unwrap(),
            "ConfigMap lynqgate-identity in namespace here is not there, and without it the policy lynqgate-fence refuses \
             every write of a LynqNode; install lynqgate as the README says"
        );
        assert_eq!(
            problem(Some(&map("you"))).unwrap(),
            "ConfigMap lynqgate-identity in namespace here names \"you\" as the operator, but this is \"me\"; correct it"
        );
    }
}
