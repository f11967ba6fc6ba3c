//! The manifests that follow from the code: CRDs, RBAC, webhook configurations.

use serde_json::{Value, json};

use crate::api::resource::ARRAYS;
use crate::api::{crd, names};
use crate::decide::content::{self, HASH_VERSION};
use crate::decide::installation::{STORED, definition_of};

/// Where the API server finds the webhooks.
#[derive(Clone, Debug)]
pub enum Address {
    /// In the cluster, by the Service.
    Service,
    /// Outside, at this base URL.
    Url(String),
}

/// File names and contents, as `lynqgate generate` writes them.
pub fn files() -> Vec<(String, String)> {
    let mut files = vec![];
    for definition in crd::definitions() {
        let plural = definition["spec"]["names"]["plural"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        files.push((format!("crd-{plural}.yaml"), yaml(&[definition])));
    }
    files.push(("rbac.yaml".to_owned(), yaml(&[cluster_role(), role()])));
    files.push((
        "webhooks.yaml".to_owned(),
        yaml(&webhook_configurations(&Address::Service)),
    ));
    files.push(("fence.yaml".to_owned(), yaml(&fence())));
    files
}

fn yaml(documents: &[Value]) -> String {
    let mut text = "# Written by `lynqgate generate`; change the code instead.\n".to_owned();
    for document in documents {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(document).expect("JSON is YAML"));
    }
    text
}

/// Both configurations, without the `caBundle`: that is kept by the operator.
pub fn webhook_configurations(address: &Address) -> [Value; 2] {
    let entry = |name: &str, path: &str, resource: &str, seconds: u8| {
        let client_config = match address {
            Address::Service => {
                json!({"service": {"name": "lynq-webhook-service", "namespace": "lynq-system", "path": path}})
            }
            Address::Url(base) => json!({"url": format!("{}{path}", base.trim_end_matches('/'))}),
        };
        json!({
            "name": name,
            "admissionReviewVersions": ["v1"],
            "clientConfig": client_config,
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": seconds,
            "rules": [{"apiGroups": [names::GROUP], "apiVersions": [names::VERSION], "operations": ["CREATE", "UPDATE"], "resources": [resource], "scope": "Namespaced"}],
            // What is on its way out must be able to lose its finalizer while no webhook answers.
            "matchConditions": [{"name": "not-terminating", "expression": "!has(object.metadata.deletionTimestamp)"}],
        })
    };
    let configuration = |kind: &str, name: &str, webhooks: Vec<Value>| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": webhooks,
        })
    };
    let mut gate = entry(
        names::MUTATING_WEBHOOK,
        names::MUTATE_NODE_PATH,
        "lynqnodes",
        5,
    );
    gate["reinvocationPolicy"] = json!("IfNeeded");
    let validating = vec![
        entry(
            names::VALIDATING_WEBHOOK,
            names::VALIDATE_NODE_PATH,
            "lynqnodes",
            5,
        ),
        entry(
            names::FORM_WEBHOOK,
            names::VALIDATE_FORM_PATH,
            "lynqforms",
            10,
        ),
        entry(names::HUB_WEBHOOK, names::VALIDATE_HUB_PATH, "lynqhubs", 10),
    ];
    [
        configuration(
            "MutatingWebhookConfiguration",
            names::MUTATING_CONFIGURATION,
            vec![gate],
        ),
        configuration(
            "ValidatingWebhookConfiguration",
            names::VALIDATING_CONFIGURATION,
            validating,
        ),
    ]
}

/// The second fence: what of the gate's rules can be said without computing a hash, for when the webhooks are away.
fn fence() -> [Value; 2] {
    let same = |content: &str| -> String {
        let same = ARRAYS.iter().map(|array| {
            format!("object.spec.?{array}.orValue([]) == {content}.?{array}.orValue([])")
        });
        same.collect::<Vec<_>>().join(" && ")
    };
    let empty: Vec<String> = ARRAYS
        .iter()
        .map(|array| format!("size(object.spec.?{array}.orValue([])) == 0"))
        .collect();
    let variable = |name: &str, expression: String| json!({"name": name, "expression": expression});
    let annotations = |object: &str| format!("{object}.metadata.?annotations.orValue({{}})");
    let value = |which: &str, name: &str| format!("variables.{which}[?'{name}'].orValue('')");
    let unchanged = |name: &str| format!("{} == {}", value("now", name), value("before", name));
    let rule = |expression: String, message: &str| json!({"expression": expression, "message": message, "reason": "Forbidden"});
    let variables = [
        variable("now", annotations("object")),
        variable(
            "before",
            format!("oldObject == null ? {{}} : {}", annotations("oldObject")),
        ),
        variable(
            "operator",
            "request.userInfo.username == params.data.username".to_owned(),
        ),
        variable(
            "forced",
            format!("{} == 'true'", value("now", names::FORCE_ROLLOUT)),
        ),
        variable(
            "sameContent",
            format!(
                "oldObject != null && (has(object.spec) == has(oldObject.spec)) && (!has(object.spec) || ({}))",
                same("oldObject.spec")
            ),
        ),
        variable(
            "reverts",
            format!(
                "oldObject != null && has(object.spec) && oldObject.?spec.?released.hasValue() && {}",
                same("oldObject.spec.released")
            ),
        ),
        variable(
            "empty",
            format!("!has(object.spec) || ({})", empty.join(" && ")),
        ),
        variable("live", value("now", names::LIVE_HASH)),
        variable("wasLive", value("before", names::LIVE_HASH)),
    ];
    let bypassed = "lynqgate's mutating webhook did not see this write: see that its configuration is as installed";
    let validations = [
        rule(
            format!(
                "oldObject == null || variables.sameContent || !({})",
                unchanged(names::DESIRED_HASH)
            ),
            &format!("the content changed, but its lynq.sh/desired-hash did not; {bypassed}"),
        ),
        rule(
            format!(
                "oldObject == null || variables.sameContent || variables.operator || variables.forced || variables.reverts || \
                 {} != variables.live",
                value("now", names::DESIRED_HASH)
            ),
            &format!(
                "changed content is held until its release, so its lynq.sh/desired-hash is not its lynq.sh/live-hash; {bypassed}"
            ),
        ),
        rule(
            format!(
                "oldObject == null || variables.live == variables.wasLive || variables.operator || variables.forced || \
                 variables.live == 'unknown' || variables.wasLive.matches('^[0-9]+:') && !variables.wasLive.startsWith('{HASH_VERSION}:')"
            ),
            &format!(
                "only lynqgate itself lets content go live (lynq.sh/live-hash), or the annotation {}=true",
                names::FORCE_ROLLOUT
            ),
        ),
        rule(
            format!(
                "oldObject == null || variables.operator || variables.live != variables.wasLive && variables.live != 'unknown' || {}",
                unchanged(names::START_TIME)
            ),
            &format!(
                "only lynqgate itself sets {}; leave it out of the change",
                names::START_TIME
            ),
        ),
        rule(
            format!(
                "oldObject != null || variables.live in ['', 'none', 'unknown'] || variables.operator || variables.forced || \
                 variables.empty && variables.live == '{}'",
                content::hash(None)
            ),
            &format!(
                "a new LynqNode is held until its release, so its lynq.sh/live-hash is none; {bypassed}"
            ),
        ),
        rule(
            format!(
                "variables.operator || ({} && {})",
                unchanged(names::RELEASE),
                unchanged(names::UNGATED)
            ),
            &format!(
                "only lynqgate itself sets {} and {}; to let content go live annotate {}=true",
                names::RELEASE,
                names::UNGATED,
                names::FORCE_ROLLOUT
            ),
        ),
    ];
    let api_version = "admissionregistration.k8s.io/v1";
    [
        json!({
            "apiVersion": api_version,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": names::FENCE},
            "spec": {
                "failurePolicy": "Fail",
                "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                "matchConstraints": {"resourceRules": [
                    {"apiGroups": [names::GROUP], "apiVersions": [names::VERSION], "operations": ["CREATE", "UPDATE"], "resources": ["lynqnodes"]},
                ]},
                "matchConditions": [{"name": "not-terminating", "expression": "!has(object.metadata.deletionTimestamp)"}],
                "variables": variables,
                "validations": validations,
            },
        }),
        json!({
            "apiVersion": api_version,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": names::FENCE},
            "spec": {
                "policyName": names::FENCE,
                "validationActions": ["Deny"],
                "paramRef": {"name": names::IDENTITY_CONFIG_MAP, "namespace": "lynq-system", "parameterNotFoundAction": "Deny"},
            },
        }),
    ]
}

/// What the operator may do in the whole cluster.
fn cluster_role() -> Value {
    let definitions = STORED.map(|(plural, _)| definition_of(plural));
    let all = [
        "get", "list", "watch", "create", "update", "patch", "delete",
    ];
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
    let named = |mut rule: Value, names: &[&str]| {
        rule["resourceNames"] = json!(names);
        rule
    };
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "lynq-manager-role"},
        "rules": [
            rule(&[names::GROUP], &["lynqhubs", "lynqforms"], &["get", "list", "watch", "patch"]),
            rule(&[names::GROUP], &["lynqnodes"], &all),
            rule(&[names::GROUP], &["lynqhubs/status", "lynqforms/status", "lynqnodes/status"], &["get", "patch"]),
            // An owner reference that blocks deletion needs it.
            rule(&[names::GROUP], &["lynqhubs/finalizers", "lynqnodes/finalizers"], &["update"]),
            rule(&[""], &["namespaces", "serviceaccounts", "services", "configmaps", "secrets", "persistentvolumeclaims"], &all),
            // What keeps a workload's pods from running is said by the pods alone.
            rule(&[""], &["pods"], &["list"]),
            rule(&["apps"], &["deployments", "statefulsets", "daemonsets"], &all),
            rule(&["batch"], &["jobs", "cronjobs"], &all),
            rule(&["networking.k8s.io"], &["ingresses", "networkpolicies"], &all),
            rule(&["policy"], &["poddisruptionbudgets"], &all),
            rule(&["autoscaling"], &["horizontalpodautoscalers"], &all),
            rule(&["events.k8s.io"], &["events"], &["create", "patch"]),
            rule(&["authentication.k8s.io"], &["selfsubjectreviews", "tokenreviews"], &["create"]),
            rule(&["authorization.k8s.io"], &["subjectaccessreviews"], &["create"]),
            rule(&["admissionregistration.k8s.io"], &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"], &["list", "watch"]),
            named(
                rule(&["apiextensions.k8s.io"], &["customresourcedefinitions"], &["list", "watch"]),
                &definitions.each_ref().map(String::as_str),
            ),
            named(
                rule(&["admissionregistration.k8s.io"], &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"], &["get", "create", "patch"]),
                &[names::MUTATING_CONFIGURATION, names::VALIDATING_CONFIGURATION],
            ),
        ],
    })
}

/// What the operator may do in its own namespace.
fn role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "lynq-leader-election-role", "namespace": "lynq-system"},
        "rules": [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update", "patch"]},
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch", "create", "update", "patch"]},
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifests_in_the_repository_are_those_of_the_code() {
        for (name, text) in files() {
            let path = format!("{}/manifests/{name}", env!("CARGO_MANIFEST_DIR"));
            let found = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                found == text,
                "manifests/{name} is stale: run `make generate`"
            );
        }
    }

    #[test]
    fn the_gate_has_no_way_round() {
        for configuration in webhook_configurations(&Address::Service) {
            for webhook in configuration["webhooks"].as_array().unwrap() {
                assert_eq!(webhook["failurePolicy"], "Fail");
                for selector in ["namespaceSelector", "objectSelector"] {
                    assert!(
                        webhook.get(selector).is_none(),
                        "a {selector} is a way round the gate"
                    );
                }
            }
        }
    }
}
