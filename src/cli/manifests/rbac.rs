//! The rights of the operator. What is in namespaces stands apart from the rest: an operator that watches some namespaces only has it
//! there, by RoleBindings.

use serde_json::{Value, json};

use crate::api::names;
use crate::decide::operator::installation::{STORED, definition_of};

const API_VERSION: &str = "rbac.authorization.k8s.io/v1";
const CLUSTER_SCOPED_ROLE: &str = "lynq-cluster-scoped-role";

pub fn all() -> [Value; 4] {
    [cluster_role(), tenants_role(), usual_kinds_role(), role()]
}

/// For the component namespaced: of the ClusterRole lynq-manager-role, what a RoleBinding cannot give.
pub fn cluster_scoped() -> [Value; 2] {
    [
        json!({
            "apiVersion": API_VERSION,
            "kind": "ClusterRole",
            "metadata": {"name": CLUSTER_SCOPED_ROLE},
            "rules": cluster_scoped_rules(),
        }),
        json!({
            "apiVersion": API_VERSION,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": CLUSTER_SCOPED_ROLE.replace("-role", "-rolebinding")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": CLUSTER_SCOPED_ROLE},
            "subjects": [{"kind": "ServiceAccount", "name": names::OPERATOR, "namespace": "lynq-system"}],
        }),
    ]
}

/// What the operator may do in the whole cluster.
fn cluster_role() -> Value {
    let rules = [namespaced_rules(), cluster_scoped_rules()].concat();
    json!({
        "apiVersion": API_VERSION,
        "kind": "ClusterRole",
        "metadata": {"name": "lynq-manager-role"},
        "rules": rules,
    })
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

fn namespaced_rules() -> Vec<Value> {
    let all = [
        "get", "list", "watch", "create", "update", "patch", "delete",
    ];
    vec![
        rule(
            &[names::GROUP],
            &["lynqhubs", "lynqforms"],
            &["get", "list", "watch", "patch"],
        ),
        rule(&[names::GROUP], &["lynqnodes"], &all),
        rule(
            &[names::GROUP],
            &["lynqhubs/status", "lynqforms/status", "lynqnodes/status"],
            &["get", "patch"],
        ),
        // An owner reference that blocks deletion needs it.
        rule(
            &[names::GROUP],
            &["lynqhubs/finalizers", "lynqnodes/finalizers"],
            &["update"],
        ),
        // Hubs name ConfigMaps and Secrets; the operator stores the seeds of generated passwords in Secrets.
        rule(&[""], &["configmaps"], &["get"]),
        rule(&[""], &["secrets"], &["get", "create", "patch"]),
        // By a RoleBinding, `get` of that namespace alone.
        rule(&[""], &["namespaces"], &["get", "list", "watch"]),
        // StatefulSets of other owners may have the label of the partition gate.
        rule(
            &["apps"],
            &["statefulsets"],
            &["get", "list", "watch", "patch"],
        ),
        // The revisions of forms.
        rule(
            &["apps"],
            &["controllerrevisions"],
            &["get", "list", "create", "patch", "delete"],
        ),
        // What keeps a workload's pods from running is said by the pods alone, and in events where there may be none.
        rule(&[""], &["pods", "events"], &["list"]),
        // A broken pod that its StatefulSet does not replace.
        rule(&[""], &["pods"], &["delete"]),
        rule(&["events.k8s.io"], &["events"], &["create", "patch"]),
    ]
}

fn cluster_scoped_rules() -> Vec<Value> {
    const ADMISSION: &str = "admissionregistration.k8s.io";
    const CONFIGURATIONS: [&str; 2] = [
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ];
    let definitions = STORED.map(|(plural, _)| definition_of(plural));
    let named = |mut rule: Value, names: &[&str]| {
        rule["resourceNames"] = json!(names);
        rule
    };
    vec![
        rule(
            &["authentication.k8s.io"],
            &["selfsubjectreviews", "tokenreviews"],
            &["create"],
        ),
        rule(
            &["authorization.k8s.io"],
            &["subjectaccessreviews"],
            &["create"],
        ),
        rule(&[ADMISSION], &CONFIGURATIONS, &["list", "watch"]),
        named(
            rule(
                &[ADMISSION],
                &["validatingadmissionpolicies"],
                &["list", "watch"],
            ),
            &[names::FENCE],
        ),
        named(
            rule(
                &["apiextensions.k8s.io"],
                &["customresourcedefinitions"],
                &["list", "watch"],
            ),
            &definitions.each_ref().map(String::as_str),
        ),
        named(
            rule(&[ADMISSION], &CONFIGURATIONS, &["get", "create", "patch"]),
            &[
                names::MUTATING_CONFIGURATION,
                names::VALIDATING_CONFIGURATION,
            ],
        ),
    ]
}

/// What tenants may be made of: the rules of all cluster roles with the label.
fn tenants_role() -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "ClusterRole",
        "metadata": {"name": "lynq-tenants-role"},
        // Its rules are Kubernetes' own: another apply of the manifests leaves them alone.
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {names::AGGREGATE_TO_TENANTS: names::TRUE}}]},
    })
}

/// The kinds of a form's lists, and those that a tenant's own namespace usually has. Without `bind` and `escalate`, the API server
/// rejects a Role with a right that the operator lacks.
fn usual_kinds_role() -> Value {
    let rule = |group: &str, resources: &[&str]| {
        json!({
            "apiGroups": [group],
            "resources": resources,
            "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
        })
    };
    let core = [
        "namespaces",
        "serviceaccounts",
        "services",
        "configmaps",
        "secrets",
        "persistentvolumeclaims",
        "resourcequotas",
        "limitranges",
    ];
    json!({
        "apiVersion": API_VERSION,
        "kind": "ClusterRole",
        "metadata": {
            "name": "lynq-tenants-usual-kinds",
            "labels": {names::AGGREGATE_TO_TENANTS: names::TRUE},
        },
        "rules": [
            rule("", &core),
            rule("apps", &["deployments", "statefulsets", "daemonsets"]),
            rule("batch", &["jobs", "cronjobs"]),
            rule("networking.k8s.io", &["ingresses", "networkpolicies"]),
            rule("policy", &["poddisruptionbudgets"]),
            rule("autoscaling", &["horizontalpodautoscalers"]),
            rule("rbac.authorization.k8s.io", &["roles", "rolebindings"]),
        ],
    })
}

/// What the operator may do in its own namespace.
fn role() -> Value {
    json!({
        "apiVersion": API_VERSION,
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

    /// An operator of some namespaces gets these rights for the whole cluster, and no others.
    #[test]
    fn no_right_in_namespaces_is_among_those_of_the_cluster() {
        let [role, _] = cluster_scoped();
        let rules = role["rules"].as_array().unwrap();
        let resources = rules.iter().flat_map(|rule| rule["resources"].as_array());
        let mut resources: Vec<&str> = resources.flatten().filter_map(Value::as_str).collect();
        resources.sort_unstable();
        resources.dedup();
        assert_eq!(
            resources,
            [
                "customresourcedefinitions",
                "mutatingwebhookconfigurations",
                "selfsubjectreviews",
                "subjectaccessreviews",
                "tokenreviews",
                "validatingadmissionpolicies",
                "validatingwebhookconfigurations",
            ]
        );
        for rule in rules {
            let verbs = rule["verbs"].as_array().unwrap();
            let writes = verbs
                .iter()
                .any(|verb| *verb == "patch" || *verb == "update");
            assert!(!writes || rule["resourceNames"].is_array(), "{rule}");
        }
    }
}
