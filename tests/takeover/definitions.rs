//! Lynq's own definitions and webhooks, made of lynqgate's: without what docs/LYNQ.md marks as only lynqgate's. What is left must be
//! what Lynq has, no more and no less.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use lynqgate::api::resource::ARRAYS;
use serde_json::{Map, Value, json};

use crate::cluster::Cluster;
use crate::lynq::{COLUMNS_OF_LYNQ, only_ours, walk};
use crate::operating::{commands_of, run};
use crate::operator::root;

const KINDS: [(&str, &str); 3] = [
    ("LynqHub", "hubs"),
    ("LynqForm", "forms"),
    ("LynqNode", "nodes"),
];

/// Lynq's fields, besides the arrays of resources, which forms and nodes have.
const FIELDS: [(&str, &str); 4] = [
    (
        "LynqHub",
        "spec spec.source spec.source.type spec.source.syncInterval spec.source.mysql spec.source.mysql.host spec.source.mysql.port \
         spec.source.mysql.username spec.source.mysql.passwordRef spec.source.mysql.passwordRef.name \
         spec.source.mysql.passwordRef.key spec.source.mysql.database spec.source.mysql.table spec.valueMappings \
         spec.valueMappings.uid spec.valueMappings.activate spec.valueMappings.hostOrUrl spec.extraValueMappings status \
         status.observedGeneration status.referencingTemplates status.desired status.ready status.failed status.conditions",
    ),
    (
        "LynqForm",
        "spec spec.hubId spec.rollout spec.rollout.maxSkew spec.rollout.progressDeadlineSeconds status status.observedGeneration \
         status.totalNodes status.readyNodes status.rollout status.rollout.phase status.rollout.targetGeneration \
         status.rollout.totalNodes status.rollout.updatedNodes status.rollout.updatingNodes status.rollout.readyUpdatedNodes \
         status.rollout.startTime status.rollout.completionTime status.rollout.message status.conditions",
    ),
    (
        "LynqNode",
        "spec spec.uid spec.templateRef status status.observedGeneration status.readyResources status.desiredResources \
         status.failedResources status.skippedResources status.skippedResourceIds status.appliedResources status.conditions \
         status.lastFullReconcileAt",
    ),
    (
        "A resource",
        "id spec nameTemplate targetNamespace labelsTemplate annotationsTemplate dependIds skipOnDependencyFailure creationPolicy \
         deletionPolicy conflictPolicy patchStrategy waitForReady timeoutSeconds ignoreFields",
    ),
];

/// Also over lynqgate's, by the same command.
pub async fn install(cluster: &Cluster) -> Result<()> {
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    let list = all()?;
    cluster
        .kubectl(&apply, Some(&list))
        .await?
        .expect_success()?;
    Ok(())
}

/// The same by the commands of the page for the way back, with a Helm that has them in a chart.
pub async fn install_again(cluster: &Cluster) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let chart = directory.path().join("crds.json");
    std::fs::write(&chart, all()?)?;
    let commands = commands_of("docs/LYNQ.md", "Lynq's definitions")?;
    let helm = format!("helm() {{ cat {}; }}\n", chart.display());
    let (_, check) = commands.split_once('\n').context("two commands")?;
    let early = cluster.shell(check).await?;
    ensure!(!early.success, "lynqgate's are still there: {early:?}");
    run(cluster, &format!("{helm}{commands}")).await
}

fn all() -> Result<String> {
    let definitions = KINDS.map(|(kind, plural)| definition(kind, plural));
    let items: Vec<Value> = definitions.into_iter().collect::<Result<_>>()?;
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())
}

/// Lynqgate's, for what Lynq's have no fields for; by the page's command.
pub async fn install_ours(cluster: &Cluster) -> Result<()> {
    let commands = commands_of("docs/LYNQ.md", "definitions first")?;
    let manifests = root().join("manifests/").display().to_string();
    run(cluster, &commands.replace("manifests/", &manifests)).await
}

/// They stand before hubs and forms, and nobody answers: so Lynq's objects come first.
pub async fn install_webhooks(cluster: &Cluster) -> Result<()> {
    for (configuration, word) in [("Mutating", "mutate"), ("Validating", "validate")] {
        let webhooks = ["lynqform", "lynqhub"].map(|kind| {
            json!({
                "name": format!("{}{kind}.kb.io", &word[..1]), "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail", "sideEffects": "None",
                "clientConfig": {"service": {
                    "name": "lynq-webhook-service", "namespace": "lynq-system",
                    "path": format!("/{word}-operator-lynq-sh-v1-{kind}"),
                }},
                "rules": [{
                    "apiGroups": ["operator.lynq.sh"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                    "resources": [format!("{kind}s")],
                }],
            })
        });
        let lynqs = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{configuration}WebhookConfiguration"),
            "metadata": {
                "name": format!("lynq-{}-webhook-configuration", configuration.to_lowercase()),
                "annotations": {"cert-manager.io/inject-ca-from": "lynq-system/lynq-serving-cert"},
            },
            "webhooks": webhooks,
        });
        cluster.apply(&lynqs.to_string()).await?;
    }
    Ok(())
}

fn definition(kind: &str, plural: &str) -> Result<Value> {
    let file = root().join(format!("manifests/crd-lynq{plural}.yaml"));
    let mut definition: Value = serde_saphyr::from_str(&std::fs::read_to_string(file)?)?;
    let names = definition["spec"]["names"].as_object_mut();
    names
        .context("names")?
        .retain(|name, _| !["shortNames", "categories"].contains(&&**name));
    let version = &mut definition["spec"]["versions"][0];

    let columns = BTreeMap::from(COLUMNS_OF_LYNQ);
    let lynqs: Vec<&str> = columns[kind].split(' ').collect();
    let columns = version["additionalPrinterColumns"].as_array_mut();
    let columns = columns.context("columns")?;
    columns.retain(|column| {
        column["name"]
            .as_str()
            .is_some_and(|name| lynqs.contains(&name))
    });
    for column in columns {
        column
            .as_object_mut()
            .context("a column")?
            .remove("priority");
    }

    let schema = &mut version["schema"]["openAPIV3Schema"];
    let ours = only_ours();
    let take = |schema: &mut Value, section: &str| {
        for path in ours.get(section).into_iter().flatten() {
            remove(schema, path);
        }
    };
    take(schema, kind);
    if kind == "LynqNode" {
        schema["properties"]["status"]["properties"]["lastFullReconcileAt"] =
            json!({"type": "string", "format": "date-time"});
    }
    ensure_fields(kind, schema)?;
    let spec = &mut schema["properties"]["spec"];
    if kind != "LynqHub" {
        for array in ARRAYS {
            let items = &mut spec["properties"][array]["items"];
            take(items, "A resource");
            ensure_fields("A resource", items)?;
        }
    }
    plain(spec);
    match kind {
        "LynqHub" => {
            let source = &mut spec["properties"]["source"];
            source["required"] = json!(["syncInterval", "type"]);
            source["properties"]["type"]["enum"] = json!(["mysql"]);
        }
        "LynqForm" => {
            let fields = &mut spec["properties"];
            fields["hubId"]["x-kubernetes-validations"] =
                json!([{"rule": "self == oldSelf", "message": "hubId is immutable"}]);
            fields["rollout"]["properties"]["maxSkew"] =
                json!({"type": "integer", "format": "int32", "default": 0, "minimum": 0});
        }
        _ => {}
    }
    Ok(definition)
}

fn ensure_fields(section: &str, schema: &Value) -> Result<()> {
    let mut found = BTreeSet::new();
    walk(schema, "", &mut found);
    let arrays = ARRAYS.map(|array| format!("spec.{array}"));
    found.retain(|name| !arrays.contains(name));
    let fields = BTreeMap::from(FIELDS);
    let lynqs: BTreeSet<String> = fields[section].split(' ').map(str::to_owned).collect();
    let differing: Vec<_> = found.symmetric_difference(&lynqs).collect();
    ensure!(differing.is_empty(), "{section}: {differing:?}");
    Ok(())
}

/// Takes a field out, if what it is in is there.
fn remove(schema: &mut Value, path: &str) {
    let (outer, inner) = match path.split_once('.') {
        Some((outer, inner)) => (outer, Some(inner)),
        None => (path, None),
    };
    let name = outer.trim_end_matches("[]");
    let Some(fields) = schema["properties"].as_object_mut() else {
        return;
    };
    match (inner, fields.get_mut(name)) {
        (None, _) => {
            fields.remove(name);
        }
        (Some(inner), Some(field)) if outer != name => remove(&mut field["items"], inner),
        (Some(inner), Some(field)) => remove(field, inner),
        (Some(_), None) => {}
    }
}

/// Without what Lynq's definitions do not say of fields that both have.
fn plain(value: &mut Value) {
    match value {
        Value::Object(schema) => {
            let ours = [
                "nullable",
                "x-kubernetes-map-type",
                "x-kubernetes-validations",
            ];
            schema.retain(|name, _| !ours.contains(&&**name));
            require_only_what_is_there(schema);
            schema.values_mut().for_each(plain);
        }
        Value::Array(values) => values.iter_mut().for_each(plain),
        _ => {}
    }
}

fn require_only_what_is_there(schema: &mut Map<String, Value>) {
    let Some(fields) = schema.get("properties").cloned() else {
        return;
    };
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name.as_str().is_some_and(|name| !fields[name].is_null()));
    }
}
