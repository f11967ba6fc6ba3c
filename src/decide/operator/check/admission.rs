//! What stands before a write of a LynqNode: the webhooks, and the fence for when they are away.

use serde_json::Value;

use crate::api::names;
use crate::decide::operator::check::{Finding, Observed, Tried, listed, logs, pods};
use crate::decide::operator::installation::{fence_problem, write_problem};
use crate::decide::operator::watched::WatchedNamespaces;
use crate::decide::shared::fields::text_at;

/// Fields of a webhook that must be as installed. The address and the patience are the installation's own.
const OF_WEBHOOKS: [&str; 8] = [
    "failurePolicy",
    "matchConditions",
    "matchPolicy",
    "namespaceSelector",
    "objectSelector",
    "reinvocationPolicy",
    "rules",
    "sideEffects",
];
/// The same of the fence's spec; its variables name the operator.
const OF_FENCE: [&str; 3] = ["failurePolicy", "matchConditions", "validations"];

const AGAIN: &str =
    "Apply the kustomization of lynqgate again: kubectl apply --server-side -k DIRECTORY";
/// An operator outside of the cluster registers its webhooks itself.
const REGISTER: &str = " (with --webhook-url: restart the operator)";
/// In front of it, where only the version may differ.
const VERSION: &str = "Use the operator's version of lynqgate. If it is the same: ";

/// `wanted`: the webhook configuration of this program.
pub fn configuration(wanted: &Value, installed: &Observed, namespace: &str) -> Finding {
    let (kind, name) = (text_at(wanted, "/kind"), text_at(wanted, "/metadata/name"));
    let object = format!("{kind} {name}");
    let again = format!("{AGAIN}{REGISTER}");
    let installed = match installed {
        Observed::Denied(why) => return Finding::unread(object, why),
        Observed::Absent => {
            let said = "it is not there, so writes are not held and not checked";
            return Finding::failed(object, said, again);
        }
        Observed::Object(installed) => installed,
    };
    let (mut differing, mut without_bundle) = (vec![], vec![]);
    for webhook in webhooks(wanted) {
        let name = text_at(webhook, "/name");
        let Some(found) = webhooks(installed).find(|found| found["name"] == name) else {
            differing.push(format!("{name} is missing"));
            continue;
        };
        let fields = OF_WEBHOOKS.into_iter();
        let fields = fields.filter(|field| !is_same(&webhook[*field], &found[*field]));
        differing.extend(fields.map(|field| format!("{field} of {name} differs")));
        if !leads_to(found, text_at(webhook, "/clientConfig/service/path")) {
            differing.push(format!("the path of {name} differs"));
        }
        if text_at(found, "/clientConfig/caBundle").is_empty() {
            without_bundle.push(name);
        }
    }
    match (differing.as_slice(), without_bundle.as_slice()) {
        ([], []) => Finding::ok(object, "it is as this version installs it, with a caBundle"),
        ([], names) => {
            let names = listed(names);
            let said = format!(
                "{names}: no caBundle, so the API server cannot call them: the operator has not written it"
            );
            Finding::failed(object, said, logs(namespace))
        }
        (differing, _) => {
            let said = format!(
                "it is not as this version installs it: {}",
                listed(differing)
            );
            Finding::failed(object, said, format!("{VERSION}{again}"))
        }
    }
}

/// The namespaces that the webhooks select by their names; all if they select none so.
pub fn watched(configuration: &Value) -> WatchedNamespaces {
    let mut webhooks = webhooks(configuration);
    let selector = webhooks.next().map(|webhook| &webhook["namespaceSelector"]);
    let watched = selector.and_then(WatchedNamespaces::selected_by);
    watched.unwrap_or_default()
}

fn webhooks(configuration: &Value) -> impl Iterator<Item = &Value> {
    configuration["webhooks"].as_array().into_iter().flatten()
}

/// The API server adds empty selectors. Namespaces may stand in any order.
fn is_same(wanted: &Value, found: &Value) -> bool {
    let is_unset = |value: &Value| {
        value.is_null() || value.as_object().is_some_and(|fields| fields.is_empty())
    };
    let selected = WatchedNamespaces::selected_by(wanted);
    wanted == found
        || (is_unset(wanted) && is_unset(found))
        || (selected.is_some() && selected == WatchedNamespaces::selected_by(found))
}

/// By Service or by URL.
fn leads_to(webhook: &Value, path: &str) -> bool {
    let url = text_at(webhook, "/clientConfig/url");
    text_at(webhook, "/clientConfig/service/path") == path || url.ends_with(path)
}

/// `tried`: a LynqNode without content. `namespace`: the operator's.
pub fn gate(tried: &Tried, namespace: &str) -> Finding {
    const OBJECT: &str = "Webhooks of LynqNodes";
    match tried {
        Tried::NotAllowed => Finding::warning(
            OBJECT,
            "not called, because you may not create LynqNodes in this namespace",
            "Let an administrator run lynqgate check",
        ),
        Tried::Accepted(node) => {
            let hash = &node["metadata"]["annotations"][names::DESIRED_HASH];
            match hash.is_string() {
                true => Finding::ok(OBJECT, "they answer (a LynqNode was created in a dry run)"),
                false => Finding::failed(
                    OBJECT,
                    format!(
                        "{} did not see a new LynqNode (dry run)",
                        names::MUTATING_WEBHOOK
                    ),
                    format!("{AGAIN}{REGISTER}"),
                ),
            }
        }
        Tried::Rejected(why) => Finding::failed(
            OBJECT,
            format!("the API server rejects a new LynqNode (dry run): {why}"),
            format!(
                "If a webhook does not answer, find out why: {}; otherwise correct what rejects it",
                pods(namespace)
            ),
        ),
    }
}

/// `wanted`: the policy and the binding of this program. `operator`: the user name.
pub fn fence(
    [wanted, _]: &[Value; 2],
    [policy, binding]: [&Observed; 2],
    operator: &str,
) -> [Finding; 2] {
    [of_policy(wanted, policy, operator), of_binding(binding)]
}

fn of_policy(wanted: &Value, policy: &Observed, operator: &str) -> Finding {
    let object = format!("ValidatingAdmissionPolicy {}", names::FENCE);
    let policy = match policy {
        Observed::Denied(why) => return Finding::unread(object, why),
        Observed::Absent => {
            let said = "it is not there, so nothing denies writes past the gate while the webhooks are away";
            return Finding::failed(object, said, AGAIN);
        }
        Observed::Object(policy) => policy,
    };
    if let Some(problem) = fence_problem(Some(policy), operator) {
        let said = problem.strip_prefix(&format!("{object}: "));
        let said = said.unwrap_or(&problem).to_owned();
        return Finding::failed(object, said, "");
    }
    let fields = OF_FENCE.into_iter();
    let differing = fields.filter(|field| wanted["spec"][*field] != policy["spec"][*field]);
    match Vec::from_iter(differing).as_slice() {
        [] => Finding::ok(object, format!("it knows {operator} as the operator")),
        differing => Finding::warning(
            object,
            format!(
                "it is not of this program's version: {} differs",
                listed(differing)
            ),
            format!("{VERSION}{AGAIN}"),
        ),
    }
}

fn of_binding(binding: &Observed) -> Finding {
    let object = format!("ValidatingAdmissionPolicyBinding {}", names::FENCE);
    let spec = match binding {
        Observed::Denied(why) => return Finding::unread(object, why),
        Observed::Absent => {
            let said = "it is not there, so the policy denies nothing";
            return Finding::failed(object, said, AGAIN);
        }
        Observed::Object(binding) => &binding["spec"],
    };
    let actions = spec["validationActions"].as_array();
    let denies = actions.is_some_and(|actions| actions.iter().any(|action| action == "Deny"));
    match spec["policyName"] == names::FENCE && denies && spec["paramRef"].is_null() {
        true => Finding::ok(object, "it denies what the policy rejects"),
        false => Finding::failed(
            object,
            format!(
                "it must have policyName: {}, validationActions: [Deny] and no paramRef",
                names::FENCE
            ),
            AGAIN,
        ),
    }
}

/// `tried`: the write that only the operator may make, tried by a user who `is_operator` or not. None if it was not tried.
pub fn fence_in_force(tried: &Tried, is_operator: bool) -> Option<Finding> {
    const OBJECT: &str = "Release by a user (dry run)";
    Some(match tried {
        Tried::NotAllowed => return None,
        Tried::Accepted(_) if is_operator => Finding::ok(
            "Write of the operator (dry run)",
            "the API server accepts it",
        ),
        Tried::Rejected(why) if is_operator => {
            let problem = write_problem(why);
            let said = problem.strip_prefix("LynqNodes: ").unwrap_or(&problem);
            Finding::failed("LynqNodes", said, "")
        }
        Tried::Accepted(_) => Finding::failed(
            OBJECT,
            format!(
                "{} does not deny it, although only the operator may release",
                names::FENCE
            ),
            format!("If its binding is there, wait a few seconds. Otherwise: {AGAIN}"),
        ),
        Tried::Rejected(why) if why.contains(names::FENCE) => {
            Finding::ok(OBJECT, format!("{} denies it", names::FENCE))
        }
        Tried::Rejected(why) => Finding::warning(
            OBJECT,
            format!("something else denies it before {}: {why}", names::FENCE),
            "Correct what denies it, if it also denies writes of the operator",
        ),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::operator::check::tests::line;
    use crate::decide::operator::installation::is_operator;

    fn wanted() -> Value {
        json!({
            "kind": "MutatingWebhookConfiguration", "metadata": {"name": "lynq"},
            "webhooks": [
                {"name": "a", "failurePolicy": "Fail", "rules": [1], "clientConfig": {"service": {"path": "/a"}}},
                {"name": "b", "objectSelector": {"x": 1}, "clientConfig": {"service": {"path": "/b"}}},
            ],
        })
    }

    /// As the API server stores it.
    fn installed() -> Value {
        let mut installed = wanted();
        for webhook in installed["webhooks"].as_array_mut().unwrap() {
            webhook["namespaceSelector"] = json!({});
            webhook["timeoutSeconds"] = json!(5);
            webhook["clientConfig"]["caBundle"] = json!("Y2E=");
        }
        installed
    }

    #[test]
    fn webhooks_are_as_installed_with_a_bundle() {
        let said = |observed: Observed| line(&configuration(&wanted(), &observed, "lynq-system"));
        let with = |place: &str, value: Value| {
            let mut installed = installed();
            *installed.pointer_mut(place).unwrap() = value;
            said(Observed::Object(installed))
        };
        let name = "MutatingWebhookConfiguration lynq";
        let again = format!("{AGAIN}{REGISTER}");
        assert_eq!(
            said(Observed::Object(installed())),
            format!("ok {name}: it is as this version installs it, with a caBundle")
        );
        let url = json!({"url": "https://10.0.0.5:9443/a", "caBundle": "Y2E="});
        assert!(with("/webhooks/0/clientConfig", url).starts_with("ok "));
        for (place, value, differing) in [
            (
                "/webhooks/0/failurePolicy",
                json!("Ignore"),
                "failurePolicy of a differs",
            ),
            (
                "/webhooks/0/namespaceSelector",
                json!({"x": 1}),
                "namespaceSelector of a differs",
            ),
            (
                "/webhooks/1/objectSelector",
                json!({}),
                "objectSelector of b differs",
            ),
            (
                "/webhooks/1/clientConfig/service/path",
                json!("/c"),
                "the path of b differs",
            ),
            ("/webhooks/1/name", json!("c"), "b is missing"),
        ] {
            assert_eq!(
                with(place, value),
                format!(
                    "failed {name}: it is not as this version installs it: {differing}. {VERSION}{again}"
                )
            );
        }
        assert_eq!(
            with("/webhooks/1/clientConfig/caBundle", json!("")),
            format!(
                "failed {name}: b: no caBundle, so the API server cannot call them: the operator has not written it. {}",
                logs("lynq-system")
            )
        );
        assert_eq!(
            said(Observed::Absent),
            format!(
                "failed {name}: it is not there, so writes are not held and not checked. {again}"
            )
        );
        assert!(said(Observed::Denied("no".to_owned())).starts_with("warning "));
    }

    #[test]
    fn the_watched_namespaces_are_those_that_the_webhooks_select() {
        let mut installed = installed();
        assert!(watched(&installed).is_all());
        let some = WatchedNamespaces::of(["a".to_owned(), "b".to_owned()]);
        installed["webhooks"][0]["namespaceSelector"] = some.selector().unwrap();
        assert_eq!(watched(&installed), some);
        assert!(watched(&json!({})).is_all());
        let wanted = some.selector().unwrap();
        let mut turned = wanted.clone();
        turned["matchExpressions"][0]["values"] = json!(["b", "a"]);
        assert!(is_same(&wanted, &turned));
        turned["matchExpressions"][0]["values"] = json!(["b", "c"]);
        assert!(!is_same(&wanted, &turned));
    }

    #[test]
    fn the_gate_shows_in_what_it_adds() {
        let said = |tried: Tried| line(&gate(&tried, "lynq-system"));
        let node =
            |annotations: Value| Tried::Accepted(json!({"metadata": {"annotations": annotations}}));
        let seen = node(json!({names::DESIRED_HASH: "1:x"}));
        assert_eq!(
            said(seen),
            "ok Webhooks of LynqNodes: they answer (a LynqNode was created in a dry run)"
        );
        assert_eq!(
            said(node(Value::Null)),
            format!(
                "failed Webhooks of LynqNodes: mlynqnode.kb.io did not see a new LynqNode (dry run). {AGAIN}{REGISTER}"
            )
        );
        assert_eq!(
            said(Tried::Rejected("failed calling webhook".to_owned())),
            "failed Webhooks of LynqNodes: the API server rejects a new LynqNode (dry run): failed calling webhook. If a webhook does \
             not answer, find out why: kubectl get pods -n lynq-system -l control-plane=controller-manager; otherwise correct what \
             rejects it"
        );
        assert!(said(Tried::NotAllowed).starts_with("warning "));
    }

    #[test]
    fn the_fence_is_of_this_version_and_bound() {
        let policy = |failure: &str, operator: &str| {
            let variable = json!({"name": "operator", "expression": is_operator(operator)});
            json!({"spec": {"failurePolicy": failure, "variables": [variable], "validations": []}})
        };
        let binding = |actions: Value, parameter: Value| {
            let spec = json!({"policyName": names::FENCE, "validationActions": actions, "paramRef": parameter});
            Observed::Object(json!({ "spec": spec }))
        };
        let wanted = [policy("Fail", "ns:me"), Value::Null];
        let said = |policy: Observed, binding: Observed| {
            let findings = fence(&wanted, [&policy, &binding], "ns:me");
            findings.map(|finding| line(&finding))
        };
        let name = "ValidatingAdmissionPolicy lynqgate-fence";
        let good = || binding(json!(["Deny"]), Value::Null);
        let [of_policy, of_binding] = said(Observed::Object(policy("Fail", "ns:me")), good());
        assert_eq!(
            of_policy,
            format!("ok {name}: it knows ns:me as the operator")
        );
        assert_eq!(
            of_binding,
            "ok ValidatingAdmissionPolicyBinding lynqgate-fence: it denies what the policy rejects"
        );
        let [of_policy, _] = said(Observed::Object(policy("Fail", "ns:you")), good());
        assert_eq!(
            of_policy,
            format!(
                "failed {name}: it names \"ns:you\" as the operator, but this operator is \"ns:me\". Correct its variable \
                 \"operator\" (docs/OPERATING.md, \"Another namespace\")"
            )
        );
        let [of_policy, _] = said(Observed::Object(policy("Ignore", "ns:me")), good());
        assert_eq!(
            of_policy,
            format!(
                "warning {name}: it is not of this program's version: failurePolicy differs. {VERSION}{AGAIN}"
            )
        );
        let [of_policy, of_binding] = said(Observed::Absent, Observed::Absent);
        assert!(of_policy.starts_with("failed ") && of_binding.starts_with("failed "));
        for bad in [
            binding(json!(["Warn"]), Value::Null),
            binding(json!(["Deny"]), json!({"name": "x"})),
        ] {
            let [_, of_binding] = said(Observed::Absent, bad);
            assert!(
                of_binding.contains(": it must have policyName: "),
                "{of_binding}"
            );
        }
    }

    #[test]
    fn the_fence_denies_a_release_of_anyone_else() {
        let said = |tried: Tried, is_operator: bool| {
            let finding = fence_in_force(&tried, is_operator);
            finding.map(|finding| line(&finding)).unwrap_or_default()
        };
        let denied =
            || Tried::Rejected("ValidatingAdmissionPolicy 'lynqgate-fence' denied it".to_owned());
        let accepted = || Tried::Accepted(Value::Null);
        assert_eq!(said(Tried::NotAllowed, false), "");
        assert_eq!(
            said(denied(), false),
            "ok Release by a user (dry run): lynqgate-fence denies it"
        );
        assert!(said(Tried::Rejected("a quota".to_owned()), false).starts_with("warning "));
        assert!(said(accepted(), false).starts_with("failed "));
        assert_eq!(
            said(accepted(), true),
            "ok Write of the operator (dry run): the API server accepts it"
        );
        assert!(
            said(denied(), true)
                .starts_with("failed LynqNodes: the API server denies what lynqgate writes")
        );
    }
}
