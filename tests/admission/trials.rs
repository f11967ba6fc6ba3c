//! A form tried on the API server before it is stored: what would stop its rollout later is refused with its place and what was
//! meant; and what its change does is counted by what runs.

use anyhow::{Result, ensure};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::forms::{apply, refused, taken};
use super::*;
use crate::tenants::deployment;
use crate::words::CANARY;

const DRY: [&str; 1] = ["--dry-run=server"];

fn form_of(fleet: &Fleet, resources: Value) -> Value {
    json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm",
        "metadata": {"name": "tried", "namespace": fleet.namespace},
        "spec": {"hubId": "tenants", "rollout": {"maxSkew": 2}, "manifests": resources},
    })
}

fn resource(id: &str, spec: Value) -> Value {
    json!({"id": id, "nameTemplate": format!("{{{{ .uid }}}}-{id}"), "spec": spec})
}

/// A Deployment whose container has this field.
fn with(field: &str, value: Value) -> Value {
    let mut spec = deployment("web:1", 0);
    spec["spec"]["template"]["spec"]["containers"][0][field] = value;
    json!([resource("app", spec)])
}

/// A form's resources, and what is said of them.
fn refusals() -> Vec<(Value, &'static str)> {
    let only = |spec: Value| json!([resource("it", spec)]);
    let memory = |text: &str| json!({"limits": {"memory": text}});
    let mut second = deployment("web:2", 0);
    second["apiVersion"] = json!("apps/v2");
    let mut labels = deployment("web:1", 0);
    labels["metadata"] = json!({"lables": {"a": "b"}});
    vec![
        (
            with("ports", json!([{"containerPrt": 80}])),
            "the API server refuses resource 'app' (Deployment, row t0): spec.template.spec.containers[0].ports[0].containerPrt: unknown field; \
             did you mean \"containerPort\"? Correct the form or the row; to store it as it is, annotate it with \
             lynq.sh/allow-render-errors=\"true\": these resources then fail when their nodes are released",
        ),
        (
            with("ports", json!([{"containerPort": "http"}])),
            "spec.template.spec.containers[0].ports[0].containerPort: expected a number, got a text; write it without quotes, or end its template with int. Correct",
        ),
        (
            with("resources", memory("64MB")),
            "spec.template.spec.containers[0].resources.limits.memory: not a quantity; write it like 64Mi, 1G, 500m or 2. Correct",
        ),
        (
            with(
                "resources",
                memory("{{ if eq .uid \"t1\" }}1 Gi{{ else }}1Gi{{ end }}"),
            ),
            "resource 'app' (Deployment, row t1): spec.template.spec.containers[0].resources.limits.memory: not a quantity",
        ),
        (
            with("ports", json!([{"containerPort": 80, "name": "a port"}])),
            "resource 'app' (Deployment, row t0): spec.template.spec.containers[0].ports[0].name: Invalid value: (value)",
        ),
        (
            only(json!({"apiVersion": "v1", "kind": "Secrets", "data": {}})),
            "resource 'it' (Secrets, row t0): the cluster has no kind Secrets in v1; did you mean kind Secret in v1? Correct",
        ),
        (
            only(second),
            "the cluster has no kind Deployment in apps/v2; did you mean kind Deployment in apps/v1? Correct",
        ),
        (
            only(json!({"apiVersion": "example.com/v1", "kind": "Bucket"})),
            "the cluster has no kind Bucket in example.com/v1; install its CustomResourceDefinition first, or correct apiVersion and kind. Correct",
        ),
        (
            only(json!({"apiVersion": "v1", "kind": "Secret", "stringData": 12})),
            "resource 'it' (Secret, row t0): stringData: expected a map, got a number. Correct",
        ),
        (
            only(json!({"apiVersion": "v1", "kind": "Secret", "data": {"x": "hello"}})),
            "resource 'it' (Secret, row t0): data.x: not base64; write it under stringData, as it is, or encode it (b64enc). Correct",
        ),
        (
            only(labels),
            "metadata.lables: unknown field; did you mean \"labels\"? Correct",
        ),
        (
            json!([
                {"id": "ns", "nameTemplate": "{{ .uid }}-trial-ns", "spec": {"apiVersion": "v1", "kind": "Namespace"}},
                {"id": "map", "nameTemplate": "x", "targetNamespace": "{{ .uid }}-trial-ns",
                 "spec": {"apiVersion": "v1", "kind": "ConfigMap", "dota": {}}},
            ]),
            "resource 'map' (ConfigMap, row t0): dota: unknown field; did you mean \"data\"? Correct",
        ),
        (
            only(
                json!({"apiVersion": "v1", "kind": "Service", "spec": {"type": "{{ .plan }}", "ports": [{"port": 80}]}}),
            ),
            "resource 'it' (Service, row t0): spec.type: Unsupported value: (value): supported values: \"ClusterIP\"",
        ),
        (
            only(
                json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "{{ .plan | tohost }}"}}),
            ),
            "function \"tohost\" not defined; did you mean \"toHost\"?",
        ),
        (
            only(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "{{ .pln }}"}})),
            "the hub's extraValueMappings have no such variable; did you mean \"plan\"?",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_api_server_would_refuse_is_refused_with_its_place() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let secret = format!("UPDATE tenants SET plan = '{CANARY}'");
    let fleet = Fleet::new_with(cluster, "trial", 2, &secret).await?;
    for (resources, why) in refusals() {
        let (was_taken, said) = apply(cluster, &form_of(&fleet, resources), &DRY).await?;
        println!("{said}");
        ensure!(!was_taken && said.contains(why), "not {why:?}: {said}");
        ensure!(!said.contains(CANARY), "{said}");
    }
    // Several at once; and at night it has to be stored.
    let mut bad = form_of(&fleet, with("ports", json!([{"containerPrt": 80}])));
    let all = ["b", "c", "d"].map(|id| {
        resource(
            id,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "dota": {}}),
        )
    });
    let manifests = bad["spec"]["manifests"].as_array_mut().context("a list")?;
    manifests.extend(all);
    let why = "'c' (ConfigMap, row t0): dota: unknown field; did you mean \"data\"?; and 1 more resource: d. Correct";
    refused(cluster, &bad, why, &DRY).await?;
    bad["metadata"]["annotations"] = json!({"lynq.sh/allow-render-errors": "true"});
    let warning =
        "Warning: the API server refuses resource 'app' (Deployment, row t0): spec.template";
    taken(cluster, &bad, warning, &DRY).await?;

    // What may be taken another time is let in, and told.
    let away = json!([{
        "id": "map", "nameTemplate": "{{ .uid }}-x", "targetNamespace": "no-such-namespace",
        "spec": {"apiVersion": "v1", "kind": "ConfigMap"},
    }]);
    let why = "Warning: cannot be applied now: resource 'map' (ConfigMap, row t0): there is no namespace \"no-such-namespace\"; create it";
    taken(cluster, &form_of(&fleet, away), why, &DRY).await?;
    let role = json!({"apiVersion": "v1", "kind": "PodTemplate"});
    let why = "Warning: cannot be applied now: resource 'role' (PodTemplate, row t0): lynqgate has no rights on podtemplates; \
               add a ClusterRole with label rbac.lynq.sh/aggregate-to-tenants: \"true\" (lynqgate check shows its rule)";
    taken(
        cluster,
        &form_of(&fleet, json!([resource("role", role)])),
        why,
        &DRY,
    )
    .await?;
    // A form may bring its own kind.
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let brings = json!([
        {"id": "crd", "nameTemplate": "trials.trial.example.com", "spec": {
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "spec": {
                "group": "trial.example.com", "scope": "Namespaced",
                "names": {"plural": "trials", "singular": "trial", "kind": "Trial", "listKind": "TrialList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        }},
        resource("it", json!({"apiVersion": "trial.example.com/v1", "kind": "Trial"})),
    ]);
    let why = "Warning: 1 of 2 resources not tried on the API server: the form itself installs their kind";
    taken(cluster, &form_of(&fleet, brings), why, &DRY).await?;
    let many = (0..16).map(|n| resource(&format!("m{n}"), deployment("web:1", 0)));
    let many = form_of(&fleet, many.collect());
    let begin = std::time::Instant::now();
    taken(cluster, &many, "Warning: creates 2 nodes; ", &DRY).await?;
    println!("16 resources are tried in {:?}", begin.elapsed());
    let nothing = fleet.list("ConfigMap").await?;
    ensure!(nothing.len() == 1, "a trial stores nothing: {nothing:?}");
    fleet.retire().await
}

/// Every row has a Deployment, a Service, a Job and a StatefulSet.
fn workloads(fleet: &Fleet, image: &str) -> Value {
    let labels = json!({"app": "{{ .uid }}"});
    let pods = json!({
        "metadata": {"labels": labels},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "app", "image": "web:1"}]},
    });
    let mut always = pods.clone();
    always["spec"]["restartPolicy"] = json!("Always");
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let mut app = deployment(image, 0);
    for place in [
        "/spec/selector/matchLabels",
        "/spec/template/metadata/labels",
    ] {
        app.pointer_mut(place).expect("labels")["tier"] = json!("web");
    }
    let mut all = vec![
        resource("app", app),
        resource(
            "svc",
            json!({"apiVersion": "v1", "kind": "Service", "spec": {"selector": labels, "ports": [{"port": 80}]}}),
        ),
        resource(
            "job",
            json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": pods}}),
        ),
        resource(
            "db",
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {
                "replicas": 0, "serviceName": "db", "selector": {"matchLabels": labels}, "template": always,
                "volumeClaimTemplates": [claim],
            }}),
        ),
    ];
    for resource in &mut all[1..] {
        resource["waitForReady"] = json!(false);
    }
    let mut form = form_of(fleet, json!(all));
    form["metadata"]["name"] = json!("web");
    form
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_tried_on_what_is_there() -> Result<()> {
    const ROWS: usize = 6;
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "fixed", ROWS).await?;
    let good = workloads(&fleet, "web:1");
    fleet.apply(&good).await?;
    fleet.complete(ROWS, SOON).await?;

    // What can be set only once.
    let changed = |number: usize, pointer: &str, value: Value| -> Result<Value> {
        let mut form = good.clone();
        let place = form["spec"]["manifests"][number]["spec"].pointer_mut(pointer);
        *place.with_context(|| pointer.to_owned())? = value;
        Ok(form)
    };
    let recreate = |kind: &str, meanwhile: &str| {
        format!(
            "; or set onImmutable: Recreate on the resource: lynqgate then deletes the {kind} and creates it again as each node is \
             released ({meanwhile}). Correct"
        )
    };
    let mut selector = changed(0, "/spec/selector/matchLabels/app", json!("{{ .uid }}-x"))?;
    selector["spec"]["manifests"][0]["spec"]["spec"]["template"]["metadata"]["labels"]["app"] =
        json!("{{ .uid }}-x");
    // Of two labels the selector loses one.
    let mut fewer = good.clone();
    let app = &mut fewer["spec"]["manifests"][0]["spec"]["spec"];
    for place in ["/selector/matchLabels", "/template/metadata/labels"] {
        let labels = app.pointer_mut(place).and_then(Value::as_object_mut);
        labels.context("labels")?.remove("tier");
    }
    let mut address = good.clone();
    address["spec"]["manifests"][1]["spec"]["spec"]["clusterIP"] = json!("None");
    let cases = [
        (selector, "resource 'app' (Deployment, row t0): spec.selector: ", recreate("Deployment", "its pods go meanwhile")),
        (fewer, "resource 'app' (Deployment, row t0): spec.selector: ", recreate("Deployment", "its pods go meanwhile")),
        (address, "resource 'svc' (Service, row t0): spec.clusterIPs", recreate("Service", "it is missing meanwhile")),
        (
            changed(2, "/spec/template/spec/containers/0/image", json!("web:2"))?,
            "resource 'job' (Job, row t0): spec.template: ",
            "put a version into its nameTemplate, so that another Job runs; or set onImmutable: Recreate".to_owned(),
        ),
        (
            changed(3, "/spec/volumeClaimTemplates/0/spec/resources/requests/storage", json!("2Gi"))?,
            "resource 'db' (StatefulSet, row t0): spec.volumeClaimTemplates: field is immutable. ",
            recreate("StatefulSet", "its pods stay"),
        ),
    ];
    for (form, why, way_out) in cases {
        let (was_taken, said) = apply(cluster, &form, &DRY).await?;
        println!("{said}");
        ensure!(!was_taken && said.contains(why), "not {why:?}: {said}");
        ensure!(said.contains(&way_out), "not {way_out:?}: {said}");
    }

    // What can be changed, if nobody else had a field there.
    let surge = json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 3}}}});
    fleet.merge("Deployment", "t0-app", &surge).await?;
    let mut strategy = good.clone();
    strategy["spec"]["manifests"][0]["spec"]["spec"]["strategy"] = json!({"type": "Recreate"});
    let why = "owns do not fit with this change: set patchStrategy: replace on the resource, which removes them, or remove them yourself";
    refused(cluster, &strategy, why, &DRY).await?;
    strategy["spec"]["manifests"][0]["patchStrategy"] = json!("replace");
    taken(cluster, &strategy, "Warning: changes 6 of 6 nodes", &DRY).await?;

    // What is held of a bad edit is no restart when it is taken back.
    let mut bad = changed(0, "/spec/template/spec/containers/0/image", json!("web:2"))?;
    bad["spec"]["rollout"]["paused"] = json!(true);
    taken(
        cluster,
        &bad,
        "changes 6 of 6 nodes (0 identical); paused: they wait; up to 6 Deployments restart",
        &[],
    )
    .await?;
    fleet
        .rollout("all wait", SOON, |rollout| rollout["heldNodes"] == ROWS)
        .await?;
    // What runs tells which pods are made anew, and not what the form was.
    let mut beside = changed(1, "/spec/ports/0/port", json!(81))?;
    beside["spec"]["rollout"]["paused"] = json!(true);
    let said = "Warning: changes 6 of 6 nodes (0 identical); paused: they wait\n";
    taken(cluster, &beside, said, &DRY).await?;
    let mut back = good.clone();
    back["spec"]["rollout"]["paused"] = json!(true);
    let said = "Warning: takes the change back: 6 held tenants keep what runs, 0 change\n";
    taken(cluster, &back, said, &[]).await?;
    fleet
        .rollout("nothing waits", SOON, |rollout| rollout["heldNodes"] == 0)
        .await?;

    // The nodes of a form that is gone stay until their deletion is confirmed; one of its name has them again.
    fleet
        .api("LynqForm")
        .delete("web", &DeleteParams::default())
        .await?;
    wait::until("the form is gone", SOON, async || {
        ensure!(fleet.get("LynqForm", "web").await.is_err(), "it is there");
        Ok(())
    })
    .await?;
    taken(cluster, &good, "Warning: adopts 6 existing nodes\n", &DRY).await?;
    fleet.retire().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_of_many_tenants_goes_only_when_its_count_is_confirmed() -> Result<()> {
    const ROWS: usize = 8;
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "data", ROWS).await?;
    let renamed = r#"{{ if ne .plan "pro" }}-x{{ end }}"#;
    let team = format!("{}-{{{{ .uid }}}}{renamed}", fleet.namespace);
    let team = json!({"id": "team", "nameTemplate": team, "spec": {"apiVersion": "v1", "kind": "Namespace"}});
    let map = resource("map", json!({"apiVersion": "v1", "kind": "ConfigMap"}));
    let web = |resources: Value| {
        let mut form = form_of(&fleet, resources);
        form["metadata"]["name"] = json!("web");
        form["spec"]["rollout"]["maxSkew"] = json!(ROWS);
        form
    };
    let (both, without) = (web(json!([team, map])), web(json!([map])));
    fleet.apply(&both).await?;
    fleet.complete(ROWS, SOON).await?;

    let data = format!(
        "this change deletes data of 8 tenants: 8 Namespaces and everything in them ({0}-t0, {0}-t1, {0}-t2, {0}-t3 and 4 more)",
        fleet.namespace
    );
    refused(cluster, &without, &data, &[]).await?;
    let annotated = |annotations: Value| {
        let mut form = without.clone();
        form["metadata"]["annotations"] = annotations;
        form
    };
    let others = json!({"lynq.sh/allow-render-errors": "true", "lynq.sh/force-rollout": "true"});
    refused(cluster, &annotated(others), &data, &[]).await?;
    let confirmed = |count: &str| annotated(json!({"lynq.sh/confirm-deletions": count}));
    let five = format!("{data} (lynq.sh/confirm-deletions confirms 5). ");
    refused(cluster, &confirmed("5"), &five, &[]).await?;

    // The nodes stay when their rows are gone, and get the change when these come back.
    let set = async |active: &str| {
        let statement = format!("UPDATE tenants SET active = '{active}'");
        fleet.database.execute(&statement).await
    };
    set("0").await?;
    let later = "this change deletes data of 8 tenants: later resource 'team' (Namespace) of 8 nodes whose rows are gone, undecided or do";
    refused(cluster, &without, later, &DRY).await?;
    let mut bad = form_of(&fleet, with("ports", json!([{"containerPrt": 80}])));
    bad["metadata"]["name"] = json!("bad");
    let untried = "Warning: not tried on the rows: the hub has no active rows";
    taken(cluster, &bad, untried, &DRY).await?;
    set("1").await?;

    // What another mapping renames is told beforehand.
    let mut mapped = fleet.hub();
    mapped["spec"]["extraValueMappings"]["plan"] = json!("id");
    let goes = format!(
        "Warning: of form web, deletes 8 Namespaces and everything in them ({0}-t0, {0}-t1 and 6 more); to keep them",
        fleet.namespace
    );
    taken(cluster, &mapped, &goes, &DRY).await?;
    let mut switched = fleet.hub();
    switched["spec"]["activeValues"] = json!(["yes"]);
    switched["spec"]["inactiveValues"] = json!(["1"]);
    let goes = "this hub, of 8 tenants, deletes 8 (t0, t1, t2 and 5 more)";
    taken(cluster, &switched, goes, &DRY).await?;

    // Without the rows nobody knows the count.
    let mut away = fleet.hub();
    away["spec"]["source"][fleet.database.product.source()]["port"] = json!(1);
    let (_, said) = apply(cluster, &away, &DRY).await?;
    ensure!(
        said.matches("cannot reach the database").count() == 1,
        "{said}"
    );
    fleet.apply(&away).await?;
    let unknown = "this change takes away resource 'team' (Namespace), which may hold data, and how many tenants would lose it is not known: not tried on the rows: ";
    refused(cluster, &confirmed("8"), unknown, &[]).await?;
    fleet.apply(&fleet.hub()).await?;

    // Another form that names what this one has.
    let mut second = without.clone();
    second["metadata"]["name"] = json!("second");
    let has = format!(
        "row t0): lynqnode {}/t0-web of form web has it, and keeps it",
        fleet.namespace
    );
    taken(cluster, &second, &has, &DRY).await?;

    let goes = format!(
        "Warning: deletes 8 Namespaces and everything in them ({0}-t0, {0}-t1 and 6 more); to keep them",
        fleet.namespace
    );
    taken(cluster, &confirmed("8"), &goes, &[]).await?;
    fleet.complete(ROWS, SOON).await?;
    wait::until("the Namespaces go", SOON, async || {
        for row in 0..ROWS {
            let name = format!("{}-t{row}", fleet.namespace);
            let namespace = fleet.api_in("Namespace", "").get_opt(&name).await?;
            let is_there =
                namespace.filter(|namespace| namespace.metadata.deletion_timestamp.is_none());
            ensure!(is_there.is_none(), "{name} is there");
        }
        Ok(())
    })
    .await?;
    fleet.retire().await
}
