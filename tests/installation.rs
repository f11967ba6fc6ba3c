//! What is installed changes under the running operator: Lynq's CustomResourceDefinition over ours, another name for the
//! operator in the fence. It is not ready, and says why; the window counts what breaks meanwhile.

use anyhow::{Context, Result, ensure};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, wait};
use crate::operator::{Operator, get};
use crate::tenants::{Fleet, SOON, condition};

const DEFINITION: &str = "lynqnodes.operator.lynq.sh";
const CONTENT: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/released";

struct Definition(Api<DynamicObject>);

impl Definition {
    async fn of(cluster: &Cluster) -> Result<Definition> {
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let resource = ApiResource::from_gvk(&kind);
        Ok(Definition(Api::all_with(cluster.admin().await?, &resource)))
    }

    /// As Lynq's own, applied over ours; returns the field that is gone.
    async fn drop_released(&self) -> Result<Value> {
        let definition = serde_json::to_value(self.0.get(DEFINITION).await?)?;
        let field = definition.pointer(CONTENT).context("ours has it")?.clone();
        self.patch(json!([{"op": "remove", "path": CONTENT}]))
            .await?;
        Ok(field)
    }

    async fn restore(&self, field: &Value) -> Result<()> {
        self.patch(json!([{"op": "add", "path": CONTENT, "value": field}]))
            .await
    }

    async fn patch(&self, patch: Value) -> Result<()> {
        let patch: json_patch::Patch = serde_json::from_value(patch)?;
        let patch: Patch<Value> = Patch::Json(patch);
        self.0
            .patch(DEFINITION, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }
}

async fn not_ready(operator: &Operator, why: &str) -> Result<()> {
    wait::until("the operator is not ready", SOON, async || {
        let answer = get(operator.health_port, "/readyz").await?;
        ensure!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        ensure!(answer.ends_with(why), "{answer}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_that_drops_what_runs_is_told_and_what_breaks_fills_the_window() -> Result<()>
{
    let cluster = Cluster::start(Options::default()).await?;
    let operator = Operator::start(&cluster, "operator", &[]).await?;
    let fleet = Fleet::new(&cluster, "definition", 3).await?;
    let form = |image: &str, paused: bool| {
        let mut form = fleet.form(image, json!(1), 0);
        form["spec"]["rollout"]["paused"] = json!(paused);
        form["spec"]["deployments"][0]["conflictPolicy"] = json!("Force");
        form
    };
    fleet.apply(&form("web:1", false)).await?;
    fleet.complete(3, SOON).await?;
    fleet.apply(&form("web:2", true)).await?;
    fleet
        .rollout("all are held", SOON, |rollout| rollout["heldNodes"] == 3)
        .await?;

    let definition = Definition::of(&cluster).await?;
    let field = definition.drop_released().await?;
    not_ready(
        &operator,
        "CustomResourceDefinition lynqnodes.operator.lynq.sh is not lynqgate's: the API server drops spec.released of what is \
         written; install lynqgate as the README says, which brings its own definitions",
    )
    .await?;
    // The next write of each node loses it: what runs there is not known any more.
    let live_hash = async |name: &str| -> Result<Value> {
        let node = fleet.get("LynqNode", name).await?;
        Ok(node["metadata"]["annotations"]["lynq.sh/live-hash"].clone())
    };
    for name in ["t0-web", "t1-web", "t2-web"] {
        let touch = json!({"metadata": {"annotations": {"touched": "1"}}});
        wait::until("the live content is not known", SOON, async || {
            fleet.merge("LynqNode", name, &touch).await?;
            let hash = live_hash(name).await?;
            ensure!(hash == "unknown", "{hash}");
            Ok(())
        })
        .await?;
    }
    definition.restore(&field).await?;
    operator.ready().await?;

    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "web:1-broken"}]}}}});
    fleet.merge("Deployment", "t2-app", &image).await?;
    wait::until("the node says what is broken", SOON, async || {
        let node = fleet.get("LynqNode", "t2-web").await?;
        let ready = condition(&node, "Ready").context("Ready")?;
        ensure!(ready["status"] == "False", "{ready}");
        let message = ready["message"].as_str().unwrap_or_default();
        ensure!(message.starts_with("Deployment t2-app: "), "{message}");
        Ok(())
    })
    .await?;
    let deployment = fleet.get("Deployment", "t2-app").await?;
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    ensure!(container["image"] == "web:1-broken", "nothing is applied");

    // It goes first, and the others wait until it is well again.
    fleet.apply(&form("web:2", false)).await?;
    fleet.complete(3, SOON).await?;
    let mut starts = vec![];
    for name in ["t0-web", "t1-web", "t2-web"] {
        let node = fleet.get("LynqNode", name).await?;
        let start = &node["metadata"]["annotations"]["lynq.sh/rollout-update-start-time"];
        starts.push((start.as_str().unwrap_or_default().to_owned(), name));
    }
    starts.sort();
    ensure!(starts[0].1 == "t2-web", "{starts:?}");
    fleet.retire().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_name_for_the_operator_is_noticed_while_it_runs() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let operator = Operator::start(&cluster, "operator", &[]).await?;
    let name_it = async |name: &str| -> Result<()> {
        let literal = format!("system:serviceaccount:lynq-system:{name}:");
        let expression = format!("{literal:?} == request.userInfo.username + \":\"");
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "lynqgate-fence"},
            "spec": {"variables": [{"name": "operator", "expression": expression}]},
        });
        let arguments = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--field-manager=somebody",
            "-f",
            "-",
        ];
        let applied = cluster
            .kubectl(&arguments, Some(&policy.to_string()))
            .await?;
        applied.expect_success()?;
        Ok(())
    };
    name_it("somebody").await?;
    not_ready(
        &operator,
        "ValidatingAdmissionPolicy lynqgate-fence: it names \"system:serviceaccount:lynq-system:somebody\" as the operator, but this \
         operator is \"system:serviceaccount:lynq-system:lynq-controller-manager\". Correct its variable \"operator\" \
         (docs/OPERATING.md, \"Another namespace\")",
    )
    .await?;
    name_it("lynq-controller-manager").await?;
    operator.ready().await
}
