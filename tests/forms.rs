//! The example forms under tests/forms, rolled out and changed as their users would.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lynqgate::api::names;
use serde_json::json;

use crate::cluster::database::Product;
use crate::cluster::{Cluster, database, wait};
use crate::offline;
use crate::operator::{self, root};
use crate::tenants::{Fleet, SOON};

/// The documents of an example, in the fleet's namespace and on its database.
async fn apply_example(
    cluster: &Cluster,
    fleet: &Fleet,
    file: &str,
    change: impl Fn(String) -> String,
) -> Result<()> {
    let text = std::fs::read_to_string(root().join("tests/forms").join(file))?;
    apply(cluster, fleet, &change(text)).await
}

async fn apply(cluster: &Cluster, fleet: &Fleet, text: &str) -> Result<()> {
    let text = text
        .replace(
            "namespace: tenants",
            &format!("namespace: {}", fleet.namespace),
        )
        .replace(
            "t-{{ .uid }}",
            &format!("{}-{{{{ .uid }}}}", fleet.namespace),
        )
        .replace("port: 3306", &format!("port: {}", fleet.database.port))
        .replace(
            "username: lynq",
            &format!("username: {}", fleet.database.username),
        )
        .replace(
            "database: product",
            &format!("database: {}", fleet.database.database),
        )
        .replace("host: db.example.com", "host: 127.0.0.1")
        .replace("name: tenants-db", "name: database")
        .replace("name: product-db", "name: database")
        .replace("syncInterval: 10s", "syncInterval: 1s");
    cluster
        .kubectl(&["apply", "-f", "-"], Some(&text))
        .await?
        .expect_success()?;
    Ok(())
}

async fn fleet(cluster: &Cluster, prefix: &str) -> Result<Fleet> {
    let namespace = cluster.namespace(prefix).await?;
    let database = database::shared(Product::Mariadb)
        .await?
        .create(&namespace.replace('-', "_"))
        .await?;
    database
        .execute("CREATE TABLE tenants (id VARCHAR(63), url VARCHAR(200), plan VARCHAR(40), replicas INT, image VARCHAR(200), active BOOLEAN, region VARCHAR(40))")
        .await?;
    database
        .execute("INSERT INTO tenants VALUES ('acme', 'https://acme.example.com/', 'enterprise', 2, NULL, TRUE, 'eu-west-1'), ('beta', 'beta.example.com:8443', NULL, NULL, 'registry.example.com/web:1.1', TRUE, NULL), ('gone', '', '', 1, '', FALSE, '')")
        .await?;
    let fleet = Fleet {
        namespace,
        client: cluster.admin().await?,
        database,
    };
    fleet.apply(&fleet.password()).await?;
    Ok(fleet)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_web_tenant_form_rolls_out_and_changes() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster, "web").await?;
    apply_example(cluster, &fleet, "web-tenant.yaml", |text| text).await?;
    fleet.complete(2, SOON).await?;
    let row = json!({
        "id": "acme", "url": "https://acme.example.com/", "plan": "enterprise", "replicas": 2, "image": null,
        "active": 1, "region": "eu-west-1",
    });
    let rendered = offline::render("web-tenant.yaml", &row)?;
    let node = fleet.get("LynqNode", "acme-web").await?;
    for (field, value) in rendered["spec"].as_object().context("a spec")? {
        assert_eq!(*value, node["spec"][field], "{field}, rendered offline");
    }
    let settings = fleet.get("ConfigMap", "acme-settings").await?;
    assert_eq!(settings["data"]["host"], "acme.example.com");
    assert_eq!(settings["data"]["tier"], "dedicated");
    assert_eq!(settings["metadata"]["labels"]["plan"], "enterprise");
    let settings = fleet.get("ConfigMap", "beta-settings").await?;
    assert_eq!(settings["data"]["host"], "beta.example.com");
    assert_eq!(
        settings["data"]["limits.yaml"],
        "requestsPerMinute: 600\nregion: \"eu-central-1\"\n"
    );
    assert_eq!(
        fleet.get("Deployment", "acme-app").await?["spec"]["replicas"],
        2
    );
    // The form leaves replicas to others: a change of it does not take the scaling back.
    let scale = async |replicas: u32| -> Result<()> {
        let (namespace, replicas) = (&fleet.namespace, format!("--replicas={replicas}"));
        let scale = [
            "scale",
            "--namespace",
            namespace,
            "deployment/acme-app",
            &replicas,
        ];
        cluster.kubectl(&scale, None).await?.expect_success()?;
        Ok(())
    };
    scale(4).await?;
    apply_example(cluster, &fleet, "web-tenant.yaml", |text| {
        text.replace("}}6000{{", "}}9000{{")
            .replace("web:1.0", "web:2.0")
    })
    .await?;
    fleet.complete(2, SOON).await?;
    let deployment = fleet.get("Deployment", "acme-app").await?;
    assert_eq!(
        deployment["spec"]["template"]["spec"]["containers"][0]["image"],
        "registry.example.com/web:2.0"
    );
    assert_eq!(deployment["spec"]["replicas"], 4);
    // Nor is one a reason to apply once more: what is others' is not named.
    scale(3).await?;
    wait::until("all three are there", SOON, async || {
        let deployment = fleet.get("Deployment", "acme-app").await?;
        ensure!(
            deployment["status"]["availableReplicas"] == 3,
            "{}",
            deployment["status"]
        );
        let fields = deployment["metadata"]["managedFields"].as_array();
        let mut fields = fields.into_iter().flatten();
        let ours = fields.find(|entry| {
            entry["manager"] == names::FIELD_MANAGER && entry["operation"] == "Apply"
        });
        let ours = &ours.context("our fields")?["fieldsV1"]["f:spec"];
        ensure!(
            ours["f:template"].is_object() && ours["f:replicas"].is_null(),
            "{ours}"
        );
        Ok(())
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_form_of_the_readme_rolls_out_and_changes() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster, "readme").await?;
    let page = std::fs::read_to_string(root().join("README.md"))?;
    let blocks = page.split("```yaml\n").skip(1);
    let mut blocks = blocks.filter_map(|rest| Some(rest.split_once("```\n")?.0));
    let first = blocks.find(|block| block.contains("kind: LynqForm"));
    let first = first.context("the README has a form")?;
    apply(cluster, &fleet, first).await?;
    fleet.complete(2, SOON).await?;
    apply(cluster, &fleet, &first.replace("web:1.0", "web:2.0")).await?;
    fleet.complete(2, SOON).await?;
    for (name, image) in [("acme-app", "2.0"), ("beta-app", "1.1")] {
        let deployment = fleet.get("Deployment", name).await?;
        let found = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
        assert_eq!(*found, format!("registry.example.com/web:{image}"));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demos_form_and_one_in_jinja_roll_out_and_change() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster, "demo").await?;
    let example = std::fs::read_to_string(root().join("tests/forms/web-tenant.yaml"))?;
    let mut documents = example.split("\n---\n");
    let hub = documents.find(|document| document.contains("kind: LynqHub"));
    apply(cluster, &fleet, hub.context("the example has a hub")?).await?;
    let demo = std::fs::read_to_string(root().join("tests/demo/form.yaml"))?;
    let name = format!("{{name: web, namespace: {}}}", fleet.namespace);
    let demo = demo.replace("{name: web}", &name);
    apply(cluster, &fleet, &demo).await?;
    fleet.complete(2, SOON).await?;
    apply(cluster, &fleet, &demo.replace("web:1.0", "web:2.0")).await?;
    fleet.complete(2, SOON).await?;
    let deployment = fleet.get("Deployment", "acme-app").await?;
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "registry.example.com/web:2.0");

    let jinja = |text: &str| {
        json!({
            "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm",
            "metadata": {"name": "plain", "namespace": fleet.namespace},
            "spec": {"hubId": "tenants", "templateEngine": "Jinja", "configMaps": [{
                "id": "map", "nameTemplate": "{{ uid }}-plain",
                "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": text}},
            }]},
        })
    };
    for (text, acme, beta) in [
        ("{{ plan | default('basic', true) }}", "enterprise", "basic"),
        (
            "{% if plan %}{{ plan | upper | trunc(4) }}{% else %}none{% endif %}",
            "ENTE",
            "none",
        ),
    ] {
        fleet.apply(&jinja(text)).await?;
        wait::until("both have it", SOON, async || {
            for (name, value) in [("acme-plain", acme), ("beta-plain", beta)] {
                let map = fleet.get("ConfigMap", name).await?;
                ensure!(map["data"]["plan"] == value, "{name}: {}", map["data"]);
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stateful_tenant_form_rolls_out_in_order_and_keeps_what_is_retained() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster, "stateful").await?;
    apply_example(cluster, &fleet, "web-tenant.yaml", |text| {
        text.split("\n---\n").next().unwrap_or_default().to_owned()
    })
    .await?;
    apply_example(cluster, &fleet, "stateful-tenant.yaml", |text| text).await?;
    let ready = |form: &serde_json::Value| {
        form["status"]["rollout"]["phase"] == "Complete" && form["status"]["totalNodes"] == 2
    };
    let complete = async || {
        wait::until(
            "the stateful form is complete",
            Duration::from_secs(90),
            async || {
                let form = fleet.get("LynqForm", "stateful").await?;
                let observed = &form["status"]["observedGeneration"];
                let current = *observed == form["metadata"]["generation"];
                anyhow::ensure!(current && ready(&form), "{}", form["status"]);
                Ok(())
            },
        )
        .await
    };
    complete().await?;
    let namespace = format!("{}-acme", fleet.namespace);
    let get = async |what: &str| -> Result<serde_json::Value> {
        let text = cluster
            .kubectl(
                &["get", "--namespace", &namespace, what, "--output=json"],
                None,
            )
            .await?
            .expect_success()?;
        Ok(serde_json::from_str(&text)?)
    };
    let database = get("statefulset/db").await?;
    assert_eq!(
        database["spec"]["template"]["spec"]["containers"][0]["image"],
        "registry.example.com/db:16"
    );
    let created = |object: &serde_json::Value| {
        object["metadata"]["creationTimestamp"]
            .as_str()
            .map(str::to_owned)
            .context("created")
    };
    assert!(
        created(&database)? <= created(&get("job/migrate-1-0").await?)?
            && created(&get("job/migrate-1-0").await?)? <= created(&get("deployment/app").await?)?
    );

    let secret = get("secret/db-credentials").await?;
    apply_example(cluster, &fleet, "stateful-tenant.yaml", |text| {
        text.replace("}}16{{", "}}17{{")
            .replace("uid | replace \"-\" \"_\"", "uid | upper")
    })
    .await?;
    complete().await?;
    let database = get("statefulset/db").await?;
    assert_eq!(
        database["spec"]["template"]["spec"]["containers"][0]["image"],
        "registry.example.com/db:17"
    );
    let kept = get("secret/db-credentials").await?;
    assert_eq!(kept["data"], secret["data"], "it is made once");

    fleet
        .database
        .execute("DELETE FROM tenants WHERE id = 'acme'")
        .await?;
    wait::until("the node is gone", SOON, async || {
        let nodes = fleet.list("LynqNode").await?;
        anyhow::ensure!(nodes.len() == 1, "{} nodes", nodes.len());
        Ok(())
    })
    .await?;
    let secret = get("secret/db-credentials").await?;
    assert_eq!(secret["metadata"]["labels"]["lynq.sh/orphaned"], "true");
    assert!(
        get("statefulset/db").await.is_err(),
        "what is not retained is deleted"
    );
    Ok(())
}
