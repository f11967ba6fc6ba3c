//! What the component node-maintenance installs: the rights on Kubernetes nodes, and the policy of the annotation.

use serde_json::{Value, json};

use crate::api::names;

const ROLE: &str = "lynq-node-maintenance-role";
const LEASES_ROLE: &str = "lynq-node-maintenance-leases-role";
const NAMESPACE: &str = "lynq-system";

pub fn all() -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io";
    let api_version = format!("{rbac}/v1");
    let subjects = json!([{"kind": "ServiceAccount", "name": "lynq-controller-manager", "namespace": NAMESPACE}]);
    let binding = |kind: &str, name: &str, namespace: Option<&str>| {
        let mut binding = json!({
            "apiVersion": api_version,
            "kind": format!("{kind}Binding"),
            "metadata": {"name": name.replace("-role", "-rolebinding")},
            "roleRef": {"apiGroup": rbac, "kind": kind, "name": name},
            "subjects": subjects,
        });
        if let Some(namespace) = namespace {
            binding["metadata"]["namespace"] = namespace.into();
        }
        binding
    };
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let role = json!({
        "apiVersion": api_version,
        "kind": "ClusterRole",
        "metadata": {"name": ROLE},
        "rules": [
            rule("", &["nodes"], &["get", "list", "watch", "patch"]),
            rule("", &["pods"], &["list"]),
            rule("", &["pods/eviction"], &["create"]),
            // Which budget refuses an eviction, and which form a pod is of.
            rule("policy", &["poddisruptionbudgets"], &["list"]),
            rule("apps", &["replicasets"], &["get"]),
        ],
    });
    let leases = json!({
        "apiVersion": api_version,
        "kind": "Role",
        "metadata": {"name": LEASES_ROLE, "namespace": NAMESPACE},
        "rules": [rule("coordination.k8s.io", &["leases"], &["get", "list", "create", "patch"])],
    });
    let [policy, of_policy] = policy();
    vec![
        role,
        binding("ClusterRole", ROLE, None),
        leases,
        binding("Role", LEASES_ROLE, Some(NAMESPACE)),
        policy,
        of_policy,
    ]
}

/// Asked only where the annotation is written: no write of a kubelet is, and no webhook stands before one.
fn policy() -> [Value; 2] {
    let api_version = "admissionregistration.k8s.io/v1";
    let value = |object: &str| format!("{object}.metadata.?annotations[?'{}']", names::MAINTENANCE);
    let has = format!("{}.hasValue()", value("object"));
    let changes = format!(
        "oldObject == null || {} != {}",
        value("object"),
        value("oldObject")
    );
    let policy = json!({
        "apiVersion": api_version,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": names::MAINTENANCE_POLICY},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["nodes"]},
            ]},
            "matchConditions": [
                {"name": "has-the-annotation", "expression": has},
                {"name": "writes-it", "expression": changes},
            ],
            "validations": [{
                "expression": format!("{}.orValue('').matches('^[1-9][0-9]{{0,8}}$')", value("object")),
                "message": format!(
                    "{}: not a number of seconds. Give a whole number from 1 to 999999999, such as 7200 for 2 hours",
                    names::MAINTENANCE
                ),
                "reason": "Invalid",
            }],
        },
    });
    let binding = json!({
        "apiVersion": api_version,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": names::MAINTENANCE_POLICY},
        "spec": {"policyName": names::MAINTENANCE_POLICY, "validationActions": ["Deny"]},
    });
    [policy, binding]
}
