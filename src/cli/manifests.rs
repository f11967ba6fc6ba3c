//! The manifests that follow from the code: CRDs, RBAC, webhook configurations.

mod maintenance;
mod rbac;

use serde_json::{Value, json};

use crate::api::resource::ARRAYS;
use crate::api::{crd, names};
use crate::decide::operator::installation::{OPERATOR_VARIABLE, is_operator};
use crate::decide::operator::watched::WatchedNamespaces;
use crate::decide::shared::content::{self, HASH_VERSION};

/// User name of the operator as these manifests install it.
const OPERATOR: &str = "system:serviceaccount:lynq-system:lynq-controller-manager";

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
    files.push(("rbac.yaml".to_owned(), yaml(&rbac::all())));
    let everywhere = WatchedNamespaces::default();
    files.push((
        "webhooks.yaml".to_owned(),
        yaml(&webhook_configurations(&Address::Service, &everywhere)),
    ));
    files.push(("fence.yaml".to_owned(), yaml(&fence())));
    files.push((
        "node-maintenance/maintenance.yaml".to_owned(),
        yaml(&maintenance::all()),
    ));
    files.push((
        "namespaced/cluster-scoped.yaml".to_owned(),
        yaml(&rbac::cluster_scoped()),
    ));
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

/// A merge patch of the installed configuration: what is wanted at a URL is no longer at a Service. The authority that the API
/// server trusts stays, since the gate goes on answering. None where that is so already.
pub fn without_services(installed: &Value, wanted: &Value) -> Option<Value> {
    let mut webhooks = installed["webhooks"].as_array()?.clone();
    let mut changed = false;
    for webhook in &mut webhooks {
        let is_same = |other: &&Value| other["name"] == webhook["name"];
        let Some(wanted) = wanted["webhooks"].as_array()?.iter().find(is_same) else {
            continue;
        };
        let config = webhook["clientConfig"].as_object_mut()?;
        if config.remove("service").is_some() {
            config.insert("url".to_owned(), wanted["clientConfig"]["url"].clone());
            changed = true;
        }
    }
    let version = &installed["metadata"]["resourceVersion"];
    changed.then(|| json!({"metadata": {"resourceVersion": version}, "webhooks": webhooks}))
}

/// Both configurations, without the `caBundle`: that is kept by the operator. They hold writes in the watched namespaces.
pub fn webhook_configurations(address: &Address, watched: &WatchedNamespaces) -> [Value; 2] {
    let probe = format!(
        "!(has(request.dryRun) && request.dryRun && has(object.metadata.generateName) && object.metadata.generateName == '{}')",
        names::WRITE_PROBE
    );
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
            "matchConditions": [
                // What is on its way out must be able to lose its finalizer while no webhook answers.
                {"name": "not-terminating", "expression": "!has(object.metadata.deletionTimestamp)"},
                // So must the operator know, before a webhook answers, that nothing else denies its writes. Nothing is stored of a dry run.
                {"name": "not-the-write-probe", "expression": probe},
            ],
        })
    };
    let configuration = |kind: &str, name: &str, mut webhooks: Vec<Value>| {
        if let Some(selector) = watched.selector() {
            for webhook in &mut webhooks {
                webhook["namespaceSelector"] = selector.clone();
            }
        }
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": webhooks,
        })
    };
    let gate = reinvoked(entry(
        names::MUTATING_WEBHOOK,
        names::MUTATE_NODE_PATH,
        "lynqnodes",
        5,
    ));
    let mut of_hubs = entry(names::HUB_WEBHOOK, names::VALIDATE_HUB_PATH, "lynqhubs", 10);
    of_hubs["rules"][0]["operations"] = json!(["CREATE", "UPDATE", "DELETE"]);
    // Where a namespace is deleted, nobody is asked; its controller has one of two names.
    of_hubs["matchConditions"] = json!([
        {
            "name": "not-terminating",
            "expression": "object == null ? !has(oldObject.metadata.deletionTimestamp) : !has(object.metadata.deletionTimestamp)",
        },
        {
            "name": "not-with-its-namespace",
            "expression": "request.operation != 'DELETE' || !(request.userInfo.username in \
                           ['system:serviceaccount:kube-system:namespace-controller', 'system:kube-controller-manager'])",
        },
    ]);
    let [managed, other] = stateful_sets(&entry, names::MUTATE_STATEFUL_SET_PATH);
    let mutating = vec![gate, reinvoked(managed), reinvoked(other)];
    let [managed, other] = stateful_sets(&entry, names::VALIDATE_STATEFUL_SET_PATH);
    let validating = vec![
        managed,
        other,
        without_releases(entry(
            names::VALIDATING_WEBHOOK,
            names::VALIDATE_NODE_PATH,
            "lynqnodes",
            5,
        )),
        entry(
            names::FORM_WEBHOOK,
            names::VALIDATE_FORM_PATH,
            "lynqforms",
            10,
        ),
        of_hubs,
    ];
    [
        configuration(
            "MutatingWebhookConfiguration",
            names::MUTATING_CONFIGURATION,
            mutating,
        ),
        configuration(
            "ValidatingWebhookConfiguration",
            names::VALIDATING_CONFIGURATION,
            validating,
        ),
    ]
}

fn reinvoked(mut webhook: Value) -> Value {
    webhook["reinvocationPolicy"] = json!("IfNeeded");
    webhook
}

/// The next tenant waits for each release by a slot, so none is sent to a second webhook: the fence checks it.
fn without_releases(mut webhook: Value) -> Value {
    let marker = |object: &str| {
        format!(
            "{object}.metadata.?annotations[?'{}'].orValue('')",
            names::RELEASE
        )
    };
    let expression = format!(
        "oldObject == null || {} in ['', {}]",
        marker("object"),
        marker("oldObject")
    );
    if let Some(conditions) = webhook["matchConditions"].as_array_mut() {
        conditions.push(json!({"name": "not-a-release", "expression": expression}));
    }
    webhook
}

/// Only what is lynqgate's, or asked for it, waits for lynqgate.
fn stateful_sets(entry: &impl Fn(&str, &str, &str, u8) -> Value, path: &str) -> [Value; 2] {
    let has = |label: &str, operator: &str| json!({"key": label, "operator": operator, "values": [names::TRUE]});
    let (managed, gated) = (names::LABEL_MANAGED, names::PARTITION_GATE);
    [
        (names::MANAGED_STATEFUL_SETS, vec![has(managed, "In")]),
        (names::OTHER_STATEFUL_SETS, vec![has(gated, "In"), has(managed, "NotIn")]),
    ]
    .map(|(name, labels)| {
        let mut webhook = entry(name, path, "statefulsets", 5);
        webhook["rules"][0]["apiGroups"] = json!(["apps"]);
        webhook["objectSelector"] = json!({"matchExpressions": labels});
        // Whoever changes an owner or a finalizer, such as the garbage collector, need not wait for lynqgate.
        let moves_pods = "oldObject == null || object.spec != oldObject.spec || \
                          object.metadata.?labels.orValue({}) != oldObject.metadata.?labels.orValue({})";
        webhook["matchConditions"] = json!([
            {"name": "not-terminating", "expression": "!has(object.metadata.deletionTimestamp)"},
            {"name": "moves-pods", "expression": moves_pods},
        ]);
        webhook
    })
}

/// The second fence: what of the gate's rules can be said without computing a hash, for releases by a slot, and for when the webhooks
/// are away.
pub fn fence() -> [Value; 2] {
    let api_version = "admissionregistration.k8s.io/v1";
    [
        json!({
            "apiVersion": api_version,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": names::FENCE},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [
                    {"apiGroups": [names::GROUP], "apiVersions": [names::VERSION], "operations": ["CREATE", "UPDATE"], "resources": ["lynqnodes"]},
                ]},
                "matchConditions": [{"name": "not-terminating", "expression": "!has(object.metadata.deletionTimestamp)"}],
                "variables": fence_variables(),
                "validations": fence_rules(),
            },
        }),
        json!({
            "apiVersion": api_version,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": names::FENCE},
            "spec": {
                "policyName": names::FENCE,
                "validationActions": ["Deny"],
            },
        }),
    ]
}

/// The annotation's value in a variable of the fence: `now` or `before`.
fn value_in(variable: &str, annotation: &str) -> String {
    format!("variables.{variable}[?'{annotation}'].orValue('')")
}

fn fence_variables() -> [Value; 9] {
    let variable = |name: &str, expression: String| json!({"name": name, "expression": expression});
    let annotations_of = |object: &str| format!("{object}.metadata.?annotations.orValue({{}})");
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
    [
        variable("now", annotations_of("object")),
        variable(
            "before",
            format!("oldObject == null ? {{}} : {}", annotations_of("oldObject")),
        ),
        variable(OPERATOR_VARIABLE, is_operator(OPERATOR)),
        variable(
            "forced",
            format!("{} == 'true'", value_in("now", names::FORCE_ROLLOUT)),
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
        variable("live", value_in("now", names::LIVE_HASH)),
        variable("wasLive", value_in("before", names::LIVE_HASH)),
    ]
}

fn fence_rules() -> [Value; 7] {
    let unchanged =
        |name: &str| format!("{} == {}", value_in("now", name), value_in("before", name));
    let rule = |expression: String, message: &str| json!({"expression": expression, "message": message, "reason": "Forbidden"});
    let bypassed = "lynqgate's mutating webhook did not see this write: see that its configuration is as installed";
    [
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
                value_in("now", names::DESIRED_HASH)
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
        rule(
            format!(
                "oldObject == null || {} || {} && variables.sameContent && {} == variables.live && variables.live.matches('^[0-9]+:') && \
                 !object.?spec.?released.hasValue() && !('{}' in variables.now) && !('{}' in variables.now)",
                unchanged(names::RELEASE),
                unchanged(names::UNGATED),
                value_in("now", names::DESIRED_HASH),
                names::HELD_SINCE,
                names::HELD_BY
            ),
            &format!(
                "a release ({}) must not change content or leave content held. See that the configuration of lynqgate's mutating webhook is as \
                 installed (lynqgate check), and exclude LynqNodes from other mutating webhooks",
                names::RELEASE
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_replaces_the_service_and_keeps_the_authority() {
        let wanted = json!({"webhooks": [{"name": "a", "clientConfig": {"url": "https://x/a"}}]});
        let installed = |config: Value| {
            json!({"metadata": {"resourceVersion": "7"}, "webhooks": [
                {"name": "a", "clientConfig": config}, {"name": "other", "clientConfig": {"service": {}}},
            ]})
        };
        let with_service = installed(json!({"service": {"name": "s"}, "caBundle": "ca"}));
        let mut patch = installed(json!({"url": "https://x/a", "caBundle": "ca"}));
        assert_eq!(
            without_services(&with_service, &wanted),
            Some(patch.clone())
        );
        patch["webhooks"][0]["clientConfig"]["url"] = json!("https://old/a");
        assert_eq!(
            without_services(&patch, &wanted),
            None,
            "the apply changes it"
        );
        assert_eq!(without_services(&Value::Null, &wanted), None);
    }

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
        for configuration in
            webhook_configurations(&Address::Service, &WatchedNamespaces::default())
        {
            for webhook in configuration["webhooks"].as_array().unwrap() {
                assert_eq!(webhook["failurePolicy"], "Fail");
                // Other teams' StatefulSets must not wait for lynqgate.
                if webhook["rules"][0]["resources"] == json!(["statefulsets"]) {
                    assert!(webhook.get("objectSelector").is_some());
                    continue;
                }
                for selector in ["namespaceSelector", "objectSelector"] {
                    assert!(
                        webhook.get(selector).is_none(),
                        "a {selector} is a way round the gate"
                    );
                }
                // No way to a LynqNode leads through a hub; its conditions are tried on the real API server.
                if webhook["name"] == names::HUB_WEBHOOK {
                    continue;
                }
                // What they leave out is on its way out, or never stored. The mutating webhook and the fence see the releases.
                let conditions = webhook["matchConditions"].as_array().unwrap();
                let (going, probe, more) = match conditions.as_slice() {
                    [going, probe, more @ ..] => (going, probe, more),
                    _ => panic!("{conditions:?}"),
                };
                let marker = |object: &str| {
                    format!("{object}.metadata.?annotations[?'lynq.sh/release'].orValue('')")
                };
                let (now, before) = (marker("object"), marker("oldObject"));
                let expression = format!("oldObject == null || {now} in ['', {before}]");
                let releases = json!([{"name": "not-a-release", "expression": expression}]);
                match webhook["name"] == names::VALIDATING_WEBHOOK {
                    true => assert_eq!(json!(more), releases),
                    false => assert!(more.is_empty(), "{more:?}"),
                }
                assert_eq!(
                    going["expression"],
                    "!has(object.metadata.deletionTimestamp)"
                );
                assert_eq!(
                    probe["expression"],
                    "!(has(request.dryRun) && request.dryRun && has(object.metadata.generateName) && \
                     object.metadata.generateName == 'lynqgate-write-probe-')"
                );
            }
        }
    }
}
