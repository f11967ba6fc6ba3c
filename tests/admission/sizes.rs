//! How large content may be: what is accepted can be held, which stores it twice, and what cannot is refused by name.

use anyhow::Result;
use lynqgate::decide::shared::content::SIZE_MAX;
use serde_json::{Value, json};

use super::*;

/// As much content as a node may have, in 5,000 small keys; `version` makes two of them differ.
fn many_small_keys(version: u32) -> Value {
    let entry = |i: usize| {
        (
            format!("key-{i:05}"),
            json!(format!("{version}{}", "v".repeat(105))),
        )
    };
    config_map((0..5_000).map(entry).collect())
}

/// 600 KiB of 5,000 small keys, held: stored with its copy, and without a record of who owns each key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_content_can_be_held() -> Result<()> {
    let nodes = Nodes::new("large").await?;
    let size = many_small_keys(1)["configMaps"].to_string().len();
    assert!(
        (SIZE_MAX - SIZE_MAX / 20..SIZE_MAX).contains(&size),
        "{size}"
    );
    nodes.create_live("n", many_small_keys(1)).await?;
    let held = merge(&nodes.admin, "n", &json!({"spec": many_small_keys(2)})).await?;
    assert!(is_held(&held));
    let stored = nodes.get("n").await?;
    assert_eq!(
        stored["spec"]["released"]["configMaps"][0]["spec"],
        many_small_keys(1)["configMaps"][0]["spec"]
    );
    // The operator's own apply of such a node, and another hold of it.
    let mut applied = nodes.node("n", many_small_keys(3));
    applied["spec"]["deployments"] = json!([]);
    let params = kube::api::PatchParams::apply("lynq-operator").force();
    let patch = kube::api::Patch::Apply(&applied);
    nodes.operator.patch("n", &params, &patch).await?;
    let stored = nodes.get("n").await?;
    assert!(is_held(&stored));
    let managed = stored["metadata"]["managedFields"].to_string().len();
    assert!(managed < 10_000, "{managed} bytes of managedFields");
    Ok(())
}

/// More than that is refused before anything is stored, and the message names the limit and the largest resource. Text is
/// counted as the API server stores it, where `<` takes 6 bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_that_could_not_be_held_is_refused_by_the_name_of_its_largest_resource()
-> Result<()> {
    let nodes = Nodes::new("too-large").await?;
    let content = |text: &str| {
        let manifest = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
        json!({"configMaps": [
            {"id": "small", "nameTemplate": "small", "spec": manifest(json!({"a": "b"}))},
            {"id": "big", "nameTemplate": "big", "spec": manifest(json!({"text": text}))},
        ]})
    };
    let small = nodes.create_live("n", content("small")).await?;
    for (name, text) in [
        ("plain text", "x".repeat(SIZE_MAX)),
        ("text that is stored escaped", "<".repeat(SIZE_MAX / 6)),
    ] {
        let patch = json!({"spec": content(&text)});
        let (code, message) = refusal(merge(&nodes.admin, "n", &patch).await)?;
        assert_eq!(code, 413, "{name}: {message}");
        for said in [
            "and a node may have 614400",
            "the largest resource is \"big\" in configMaps",
        ] {
            assert!(message.contains(said), "{name}: {message}");
        }
        assert_eq!(state(&nodes.get("n").await?), state(&small), "{name}");
    }
    let escaped = json!({"spec": content(&"<".repeat(SIZE_MAX / 6 - 200))});
    let held = merge(&nodes.admin, "n", &escaped).await?;
    assert!(is_held(&held));
    let back = json!({"spec": content("small")});
    let reverted = merge(&nodes.admin, "n", &back).await?;
    assert_eq!(state(&reverted), state(&small));
    Ok(())
}
