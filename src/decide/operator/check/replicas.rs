//! The operator's replicas: whether they are ready, which of them leads which shard, and under which user name they write.

use jiff::Timestamp;
use serde_json::Value;

use crate::api::names;
use crate::decide::operator::check::{Finding, Observed, pods};
use crate::decide::operator::election::Lease;
use crate::decide::operator::installation::operator_of;
use crate::decide::operator::watched::WatchedNamespaces;
use crate::decide::rollout::explain::short;
use crate::decide::shared::fields::{at, text_at};

/// The flag that gives the operator another user name than that of its service account.
const OPERATOR_USER: &str = "--operator-user";
/// The flag with the namespaces that the operator watches.
const WATCH_NAMESPACES: &str = "--watch-namespaces";

/// The operator's user name: as its Deployment has it; else as the fence has it; else that of the manifests.
pub fn username(deployment: &Observed, fence: &Observed, namespace: &str) -> String {
    let of_account = |name: &str| format!("system:serviceaccount:{namespace}:{name}");
    let Some(deployment) = deployment.object() else {
        let named = fence.object().and_then(operator_of);
        return named.unwrap_or_else(|| of_account(names::OPERATOR));
    };
    match value_of(deployment, OPERATOR_USER) {
        Some(user) => user.to_owned(),
        None => match text_at(deployment, "/spec/template/spec/serviceAccountName") {
            "" => of_account("default"),
            name => of_account(name),
        },
    }
}

/// The namespaces that the operator watches, if there is a Deployment that says it.
pub fn watched(deployment: &Observed) -> Option<WatchedNamespaces> {
    let given = value_of(deployment.object()?, WATCH_NAMESPACES);
    let given = given.into_iter().flat_map(|given| given.split(','));
    let given = given.map(|name| name.trim().to_owned());
    Some(WatchedNamespaces::of(given))
}

/// The last value of a flag, behind `=` or in an argument of its own.
fn value_of<'a>(deployment: &'a Value, flag: &str) -> Option<&'a str> {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array();
    let containers = containers.into_iter().flatten();
    let arguments = containers.flat_map(|container| container["args"].as_array());
    let arguments: Vec<&str> = arguments.flatten().filter_map(Value::as_str).collect();
    let mut from_the_end = arguments.iter().enumerate().rev();
    from_the_end.find_map(|(at, argument)| match argument.strip_prefix(flag)? {
        "" => arguments.get(at + 1).copied(),
        rest => rest.strip_prefix('='),
    })
}

pub fn deployment(observed: &Observed, namespace: &str) -> Finding {
    let name = names::OPERATOR;
    let object = format!("Deployment {namespace}/{name}");
    let deployment = match observed {
        Observed::Denied(why) => return Finding::unread(object, why),
        Observed::Absent => {
            return Finding::warning(
                object,
                "it is not there: the operator runs outside of the cluster, or in another namespace",
                "For another namespace: lynqgate check --operator-namespace NAMESPACE",
            );
        }
        Observed::Object(deployment) => deployment,
    };
    let count = |place: &str| at(deployment, place).and_then(Value::as_i64);
    let wanted = count("/spec/replicas").unwrap_or(1);
    let ready = count("/status/readyReplicas").unwrap_or_default();
    let said = format!("{ready} of {wanted} replicas are ready");
    let describe =
        format!("kubectl describe pods -n {namespace} -l control-plane=controller-manager");
    match ready {
        _ if wanted == 0 => Finding::failed(
            object,
            "it is scaled to 0 replicas: nothing is applied or released, and the API server rejects writes of LynqNodes",
            format!("kubectl scale deployment {name} -n {namespace} --replicas=2"),
        ),
        0 => Finding::failed(object, said, describe),
        _ if ready < wanted => Finding::warning(object, said, describe),
        _ => Finding::ok(object, said),
    }
}

/// `shard`: its number, from 0, and how many there are. `name`: of the Lease.
pub fn lease(
    (namespace, name): (&str, &str),
    (shard, shards): (usize, usize),
    observed: &Observed<Lease>,
    now: Timestamp,
) -> Finding {
    let object = format!("Lease {namespace}/{name}");
    let work = match shards {
        0 | 1 => "all hubs".to_owned(),
        _ => format!("the hubs of 1 of {shards} shards"),
    };
    let pods = pods(namespace);
    let lease = match observed {
        Observed::Denied(why) => return Finding::unread(object, why),
        Observed::Absent if shard == 0 => {
            return Finding::warning(
                object,
                "it is not there: the operator runs without --leader-elect, or in another namespace, or no replica has led yet",
                format!("If it runs with --leader-elect: {pods}"),
            );
        }
        Observed::Absent => {
            let said = format!("it is not there: no replica has led {work} yet");
            return Finding::failed(object, said, pods);
        }
        Observed::Object(lease) => lease,
    };
    let holder = &lease.holder;
    match lease.renewed_at() {
        Some(at) if lease.is_held(now) => {
            let ago = short(now.duration_since(at));
            Finding::ok(object, format!("{holder} leads {work}; renewed {ago} ago"))
        }
        renewed => {
            let since = renewed.map(|at| format!(" since {at}")).unwrap_or_default();
            Finding::failed(
                object,
                format!(
                    "no replica has led {work}{since}, so nothing of them is applied or released"
                ),
                format!(
                    "{pods}. Only if the operator runs without --leader-elect: kubectl delete lease -n {namespace} {name}"
                ),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::operator::check::tests::line;
    use crate::decide::operator::installation::is_operator;

    #[test]
    fn the_operator_is_who_its_deployment_says_else_the_fence() {
        let deployment = |account: Value, arguments: Value| {
            let pod = json!({"serviceAccountName": account, "containers": [{"args": arguments}]});
            Observed::Object(json!({"spec": {"template": {"spec": pod}}}))
        };
        let variable = json!({"name": "operator", "expression": is_operator("of the fence")});
        let fence = || Observed::Object(json!({"spec": {"variables": [variable]}}));
        for (deployment, fence, expected) in [
            (
                deployment(json!("me"), json!(["run"])),
                fence(),
                "system:serviceaccount:ns:me",
            ),
            (
                deployment(Value::Null, Value::Null),
                fence(),
                "system:serviceaccount:ns:default",
            ),
            (
                deployment(json!("me"), json!(["run", "--operator-user=alice"])),
                fence(),
                "alice",
            ),
            (Observed::Absent, fence(), "of the fence"),
            (
                Observed::Absent,
                Observed::Absent,
                "system:serviceaccount:ns:lynq-controller-manager",
            ),
        ] {
            assert_eq!(username(&deployment, &fence, "ns"), expected);
        }
    }

    #[test]
    fn the_watched_namespaces_are_those_of_the_deployment() {
        let said = |arguments: Value| {
            let pod = json!({"containers": [{"args": arguments}]});
            let deployment = json!({"spec": {"template": {"spec": pod}}});
            let watched = watched(&Observed::Object(deployment)).unwrap();
            watched.names().map(|names| Vec::from_iter(names.clone()))
        };
        let two = Some(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(said(json!(["run", "--watch-namespaces=b, a"])), two);
        assert_eq!(said(json!(["run", "--watch-namespaces", "a,b"])), two);
        let last = json!(["--watch-namespaces=x", "--watch-namespaces=a,b"]);
        assert_eq!(said(last), two);
        assert_eq!(said(json!(["run", "--watch-namespaces"])), None);
        assert_eq!(said(json!(["run"])), None);
        assert_eq!(watched(&Observed::Absent), None);
    }

    #[test]
    fn replicas_are_ready() {
        let said = |observed: Observed| line(&deployment(&observed, "lynq-system"));
        let of = |wanted: Value, ready: Value| {
            let object = json!({"spec": {"replicas": wanted}, "status": {"readyReplicas": ready}});
            said(Observed::Object(object))
        };
        let name = "Deployment lynq-system/lynq-controller-manager";
        let describe = "kubectl describe pods -n lynq-system -l control-plane=controller-manager";
        assert_eq!(
            of(json!(2), json!(2)),
            format!("ok {name}: 2 of 2 replicas are ready")
        );
        assert_eq!(
            of(json!(2), json!(1)),
            format!("warning {name}: 1 of 2 replicas are ready. {describe}")
        );
        assert_eq!(
            of(Value::Null, Value::Null),
            format!("failed {name}: 0 of 1 replicas are ready. {describe}")
        );
        assert_eq!(
            of(json!(0), Value::Null),
            format!(
                "failed {name}: it is scaled to 0 replicas: nothing is applied or released, and the API server rejects writes of \
                 LynqNodes. kubectl scale deployment lynq-controller-manager -n lynq-system --replicas=2"
            )
        );
        assert_eq!(
            said(Observed::Absent),
            format!(
                "warning {name}: it is not there: the operator runs outside of the cluster, or in another namespace. For another \
                 namespace: lynqgate check --operator-namespace NAMESPACE"
            )
        );
    }

    #[test]
    fn each_shard_has_a_leader() {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let said = |observed: Observed<Lease>, shard: usize, shards: usize| {
            let key = ("lynq-system", "lease");
            line(&lease(key, (shard, shards), &observed, now))
        };
        let renewed = |at: &str| {
            Observed::Object(Lease {
                uid: String::new(),
                holder: "pod_1".to_owned(),
                resource_version: String::new(),
                renewed: at.to_owned(),
                transitions: 0,
                duration_seconds: 15,
                wanted_by: String::new(),
                shards: 1,
            })
        };
        let name = "Lease lynq-system/lease";
        let pods = pods("lynq-system");
        let delete = "Only if the operator runs without --leader-elect: kubectl delete lease -n lynq-system lease";
        assert_eq!(
            said(renewed("2026-01-01T00:00:58Z"), 0, 1),
            format!("ok {name}: pod_1 leads all hubs; renewed 2s ago")
        );
        assert_eq!(
            said(renewed("2026-01-01T00:00:00Z"), 1, 3),
            format!(
                "failed {name}: no replica has led the hubs of 1 of 3 shards since 2026-01-01T00:00:00Z, so nothing of them is applied \
                 or released. {pods}. {delete}"
            )
        );
        assert_eq!(
            said(renewed(""), 0, 1),
            format!(
                "failed {name}: no replica has led all hubs, so nothing of them is applied or released. {pods}. {delete}"
            )
        );
        assert_eq!(
            said(Observed::Absent, 0, 1),
            format!(
                "warning {name}: it is not there: the operator runs without --leader-elect, or in another namespace, or no replica \
                 has led yet. If it runs with --leader-elect: {pods}"
            )
        );
        assert_eq!(
            said(Observed::Absent, 2, 3),
            format!(
                "failed {name}: it is not there: no replica has led the hubs of 1 of 3 shards yet. {pods}"
            )
        );
    }
}
