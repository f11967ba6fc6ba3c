//! What the operator may do, and how users add to it.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::cluster::wait;
use crate::operator;
use crate::tenants::SOON;

/// The operator may do what it needs and little else. It may write Secrets and ConfigMaps everywhere, since forms make
/// them, as with Lynq; what would let it become somebody else, or another program, it may not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rbac_gives_the_operator_what_it_needs() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let reviews = Api::<SubjectAccessReview>::all(cluster.admin().await?);
    let user = operator::identity().username();
    let hooks = "admissionregistration.k8s.io mutatingwebhookconfigurations";
    let checks = hooks.replace("mutating", "validating");
    let rbac = "rbac.authorization.k8s.io";
    for (allowed, verbs, what, name, namespace) in [
        (
            true,
            "get list watch patch",
            "operator.lynq.sh lynqhubs",
            "",
            "tenants",
        ),
        (
            true,
            "get list watch patch",
            "operator.lynq.sh lynqforms",
            "",
            "tenants",
        ),
        (
            true,
            "get list watch create patch delete",
            "operator.lynq.sh lynqnodes",
            "",
            "tenants",
        ),
        (
            true,
            "patch",
            "operator.lynq.sh lynqhubs/status",
            "",
            "tenants",
        ),
        (
            true,
            "patch",
            "operator.lynq.sh lynqforms/status",
            "",
            "tenants",
        ),
        (
            true,
            "patch",
            "operator.lynq.sh lynqnodes/status",
            "",
            "tenants",
        ),
        (
            true,
            "get list watch create patch delete",
            "apps deployments",
            "",
            "tenants",
        ),
        (
            true,
            "get list watch create patch delete",
            "/v1 namespaces",
            "",
            "",
        ),
        (true, "get create patch", "/v1 secrets", "", "tenants"),
        (true, "create patch", "events.k8s.io events", "", "tenants"),
        // Why pods do not run.
        (true, "list", "/v1 pods", "", "tenants"),
        // A broken one that its StatefulSet does not replace.
        (true, "delete", "/v1 pods", "", "tenants"),
        (true, "list", "/v1 events", "", "tenants"),
        (
            true,
            "get create patch",
            "coordination.k8s.io leases",
            "",
            "lynq-system",
        ),
        (
            true,
            "get create patch",
            hooks,
            "lynq-mutating-webhook-configuration",
            "",
        ),
        (
            true,
            "get create patch",
            &checks,
            "lynq-validating-webhook-configuration",
            "",
        ),
        (
            true,
            "list watch",
            "admissionregistration.k8s.io validatingadmissionpolicies",
            "lynqgate-fence",
            "",
        ),
        (
            false,
            "update patch delete",
            "admissionregistration.k8s.io validatingadmissionpolicies",
            "lynqgate-fence",
            "",
        ),
        // Nothing of what its users own but its status and its annotations.
        (
            false,
            "create delete",
            "operator.lynq.sh lynqhubs",
            "",
            "tenants",
        ),
        (
            false,
            "create delete",
            "operator.lynq.sh lynqforms",
            "",
            "tenants",
        ),
        (
            false,
            "deletecollection",
            "operator.lynq.sh lynqnodes",
            "",
            "tenants",
        ),
        // No other program, and no other identity.
        (false, "create update patch", "/v1 pods", "", "tenants"),
        (false, "create", "/v1 pods/exec", "", "tenants"),
        (false, "create", "/v1 serviceaccounts/token", "", "tenants"),
        (false, "impersonate", "/v1 users", "", ""),
        (false, "impersonate", "/v1 serviceaccounts", "", "tenants"),
        (
            false,
            "create patch escalate bind",
            &format!("{rbac} clusterroles"),
            "",
            "",
        ),
        // What a tenant's namespace has. The API server lets nobody give rights in it that he has not.
        (
            true,
            "create patch",
            &format!("{rbac} roles"),
            "",
            "tenants",
        ),
        (
            true,
            "create patch",
            &format!("{rbac} rolebindings"),
            "",
            "tenants",
        ),
        (true, "create patch", "/v1 resourcequotas", "", "tenants"),
        (true, "create patch", "/v1 limitranges", "", "tenants"),
        (
            false,
            "escalate bind",
            &format!("{rbac} roles"),
            "",
            "tenants",
        ),
        (
            false,
            "create patch",
            "certificates.k8s.io certificatesigningrequests",
            "",
            "",
        ),
        // Nobody else's admission, no cluster-wide machinery, no leases of others.
        (false, "patch delete", hooks, "somebody-elses", ""),
        (
            false,
            "delete",
            hooks,
            "lynq-mutating-webhook-configuration",
            "",
        ),
        (
            false,
            "create patch",
            "apiextensions.k8s.io customresourcedefinitions",
            "",
            "",
        ),
        (false, "update patch delete", "/v1 nodes", "", ""),
        (
            false,
            "get patch",
            "coordination.k8s.io leases",
            "",
            "kube-system",
        ),
        (false, "get", "/v1 pods/log", "", "kube-system"),
    ] {
        let (group, resource) = what.split_once(' ').context("a group and a resource")?;
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        for verb in verbs.split(' ') {
            let attributes = json!({
                "verb": verb, "group": group.trim_end_matches("/v1"), "resource": resource,
                "subresource": subresource, "name": name, "namespace": namespace,
            });
            let groups = [
                "system:serviceaccounts",
                "system:serviceaccounts:lynq-system",
                "system:authenticated",
            ];
            let review = json!({"metadata": {}, "spec": {"user": user, "groups": groups, "resourceAttributes": attributes}});
            let answer = reviews
                .create(&PostParams::default(), &serde_json::from_value(review)?)
                .await?;
            let status = answer.status.context("an answer")?;
            assert_eq!(status.allowed, allowed, "{attributes}: {:?}", status.reason);
        }
    }
    Ok(())
}

/// A ClusterRole with the label adds to what tenants may be made of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_labelled_role_adds_a_kind_to_those_of_tenants() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let reviews = Api::<SubjectAccessReview>::all(cluster.admin().await?);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "certificates", "labels": {"rbac.lynq.sh/aggregate-to-tenants": "true"}},
        "rules": [{"apiGroups": ["cert-manager.io"], "resources": ["certificates"], "verbs": ["create"]}],
    });
    cluster.apply(&role.to_string()).await?;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
        "spec": {"user": operator::identity().username(), "resourceAttributes": {
            "group": "cert-manager.io", "resource": "certificates", "verb": "create", "namespace": "tenants",
        }},
    });
    let review: SubjectAccessReview = serde_json::from_value(review)?;
    wait::until("the operator may create certificates", SOON, async || {
        let answered = reviews.create(&PostParams::default(), &review).await?;
        let may = answered.status.is_some_and(|status| status.allowed);
        ensure!(may, "it may not");
        Ok(())
    })
    .await
}
