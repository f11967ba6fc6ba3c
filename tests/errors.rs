//! What a real API server says of requests that fail, and what lynqgate takes that for: by reasons and causes, and by prose where
//! there is nothing else.

use anyhow::{Result, ensure};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use lynqgate::cluster::objects::{ApiError, Objects};
use lynqgate::decide::child::{Kind, ObjectKey, key_of};
use serde_json::{Value, json};

use crate::cluster;

#[tokio::test]
async fn errors_are_what_their_fields_say() -> Result<()> {
    let cluster = cluster::shared().await?;
    let namespace = cluster.namespace("errors").await?;
    let client = cluster.admin().await?;
    let objects = Objects::new(client.clone());
    let map = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": namespace}, "data": data});
    let key = key_of(&map(Value::Null));
    let made = objects.create(&key, &map(json!({"ours": "1"}))).await?;
    let kind = GroupVersionKind::gvk("", "v1", "ConfigMap");
    let api: Api<DynamicObject> =
        Api::namespaced_with(client, &namespace, &ApiResource::from_gvk(&kind));
    let theirs = map(json!({"theirs": "1"}));
    api.patch("a", &PatchParams::apply("them"), &Patch::Apply(&theirs))
        .await?;

    let is = |case: &str, got: Result<Value, ApiError>, good: fn(&ApiError) -> bool| {
        let got = got.expect_err(case);
        ensure!(good(&got), "{case}: {got:?}");
        Ok(())
    };
    let is_conflict = |error: &ApiError| matches!(error, ApiError::Conflict(_));
    let is_absence = |error: &ApiError| matches!(error, ApiError::NotFound(_));
    let is_misfit = |error: &ApiError| matches!(error, ApiError::Invalid { text, why } if why.starts_with(".") && text.starts_with("the manifest does not fit its kind: ."));

    let taken = objects
        .apply(&key, &map(json!({"theirs": "2"})), false)
        .await;
    is(
        "another manager's field",
        taken,
        |error| matches!(error, ApiError::FieldsTaken(text) if text.contains(".data.theirs")),
    )?;
    let again = objects.create(&key, &map(json!({}))).await;
    is("it is there", again, is_conflict)?;
    let mut old = made.clone();
    old["metadata"]["resourceVersion"] = json!("1");
    let replaced = objects.replace(&key, &old).await;
    is("an old version", replaced, is_conflict)?;
    let mut other = map(json!({"ours": "2"}));
    other["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    let applied = objects.apply(&key, &other, true).await;
    is("another one, applied", applied, is_conflict)?;
    let merged = objects.merge(&key, &other).await;
    is("another one, merged", merged, is_conflict)?;
    let gone = ObjectKey {
        name: "gone".to_owned(),
        ..key.clone()
    };
    is("nothing", objects.get(&gone).await, is_absence)?;
    other["metadata"]["name"] = json!("gone");
    let applied = objects.apply(&gone, &other, true).await;
    is("one that is gone", applied, is_conflict)?;
    let elsewhere = ObjectKey {
        namespace: "nowhere".to_owned().into(),
        ..key.clone()
    };
    let mut homeless = map(json!({}));
    homeless["metadata"]["namespace"] = json!("nowhere");
    let applied = objects.apply(&elsewhere, &homeless, true).await;
    is("no namespace", applied, is_absence)?;
    let unlike = objects.apply(&key, &map(json!({"a": ["b"]})), true).await;
    is("a list for a text", unlike, is_misfit)?;
    let spec = json!({"replicas": "x", "selector": {"matchLabels": {"a": "b"}}});
    let unlike = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": namespace}, "spec": spec});
    let applied = objects.apply(&key_of(&unlike), &unlike, true).await;
    is("a text for a number", applied, is_misfit)?;
    let fixed = |value: &str| {
        let mut fixed = map(json!({"a": value}));
        fixed["metadata"]["name"] = json!("fixed");
        fixed["immutable"] = json!(true);
        fixed
    };
    let set = |service: &str| {
        let pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}});
        let spec = json!({
            "serviceName": service, "replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": pod,
        });
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "fixed", "namespace": namespace}, "spec": spec})
    };
    for (case, before, after) in [
        ("an immutable ConfigMap", fixed("1"), fixed("2")),
        ("a StatefulSet", set("one"), set("two")),
    ] {
        let key = key_of(&before);
        objects.create(&key, &before).await?;
        let changed = objects.apply(&key, &after, true).await;
        is(case, changed, ApiError::is_immutable)?;
    }
    let kind = Kind {
        api_version: "no.such/v1".to_owned(),
        kind: "Gadget".to_owned(),
    };
    let served = objects.served(&kind).await?;
    ensure!(served.is_none(), "a path that is not served: {served:?}");
    let invalid = map(json!({"not a key": "1"}));
    let applied = objects.apply(&key, &invalid, true).await;
    is(
        "an invalid key",
        applied,
        |error| matches!(error, ApiError::Invalid { why, .. } if why.starts_with("data[not a key]: ")),
    )?;
    Ok(())
}
