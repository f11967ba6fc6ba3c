//! Databases that are away or hang: nothing is deleted, other hubs go on, and all is well soon after.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::FutureExt;
use serde_json::{Value, json};

use crate::cluster::database::{self, Database, Product};
use crate::cluster::{Cluster, wait};
use crate::datasource::hostile::{Network, Then};
use crate::datasource::tls;
use crate::hub::{fleet_on, form, map, until_maps};
use crate::operator;
use crate::tenants::{Fleet, SOON};
use crate::words::all;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_ends_with_the_next_sync() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    all(vec![
        (
            "MariaDB stopped",
            stopped_and_started(cluster, Product::Mariadb).boxed_local(),
        ),
        (
            "PostgreSQL stopped",
            stopped_and_started(cluster, Product::Postgresql).boxed_local(),
        ),
        (
            "a form names the cause",
            a_form_names_the_cause(cluster).boxed_local(),
        ),
        (
            "MariaDB cut off",
            cut_off(cluster, Product::Mariadb).boxed_local(),
        ),
        (
            "PostgreSQL cut off",
            cut_off(cluster, Product::Postgresql).boxed_local(),
        ),
        (
            "MariaDB's schema changed",
            schema_changed(cluster, Product::Mariadb).boxed_local(),
        ),
        (
            "PostgreSQL's schema changed",
            schema_changed(cluster, Product::Postgresql).boxed_local(),
        ),
        (
            "hung",
            hung_databases_hold_up_no_other(cluster).boxed_local(),
        ),
        (
            "MariaDB's password changed",
            password_changed(cluster, Product::Mariadb).boxed_local(),
        ),
        (
            "PostgreSQL's password changed",
            password_changed(cluster, Product::Postgresql).boxed_local(),
        ),
        (
            "MariaDB's authority changed",
            authority_changed(cluster, Product::Mariadb).boxed_local(),
        ),
        (
            "PostgreSQL's authority changed",
            authority_changed(cluster, Product::Postgresql).boxed_local(),
        ),
    ])
    .await
}

async fn stopped_and_started(cluster: &Cluster, product: Product) -> Result<()> {
    let database = Database::start(product).await?;
    let fleet = Fleet::on(cluster, &database, "outage", 7, "SELECT 1").await?;
    fleet
        .apply(&form(&fleet, "web", &[map("app", "-app")]))
        .await?;
    fleet.complete(7, SOON).await?;
    one_connection_is_enough(cluster, &database, &fleet).await?;
    let before = fleet.versions(&["LynqNode", "ConfigMap"]).await?;

    database.stop().await?;
    let said = "cannot reach the database at 127.0.0.1:{port}: nothing listens there (connection refused); check source host and port, and that the network allows it";
    let (hub, away) = (
        ("LynqHub", "tenants"),
        ("Ready", "False", "DatabaseConnectionFailed"),
    );
    fleet.says(hub, away, said).await?;
    fleet.event("tenants", "DatabaseQueryFailed", said).await?;
    ensure!(
        fleet.versions(&["LynqNode", "ConfigMap"]).await? == before,
        "nothing is written"
    );

    database.start_again().await?;
    fleet.insert(7..8).await?;
    let started = Instant::now();
    let there = ("Ready", "True", "DatabaseConnected");
    fleet
        .says(
            hub,
            there,
            "Successfully connected to database and queried node data",
        )
        .await?;
    fleet.complete(8, SOON).await?;
    let took = started.elapsed();
    ensure!(
        took < Duration::from_secs(10),
        "the interval is 1 s, it took {took:?}"
    );
    fleet.retire().await
}

/// Its change waits for the rows, and whoever looks at the form reads why they cannot be read.
async fn a_form_names_the_cause(cluster: &Cluster) -> Result<()> {
    let database = Database::start(Product::Mariadb).await?;
    let fleet = Fleet::on(cluster, &database, "cause", 1, "SELECT 1").await?;
    let mut paused = form(&fleet, "web", &[map("app", "-app")]);
    fleet.apply(&paused).await?;
    fleet.complete(1, SOON).await?;
    let change = |form: &mut Value, plan: &str| {
        form["spec"]["rollout"] = json!({"maxSkew": 1, "paused": true});
        form["spec"]["configMaps"][0]["spec"]["data"]["plan"] = plan.into();
    };
    change(&mut paused, "second");
    fleet.apply(&paused).await?;
    wait::until("the node is held", SOON, async || {
        let form = fleet.get("LynqForm", "web").await?;
        ensure!(form["status"]["rollout"]["heldNodes"] == 1, "{form}");
        Ok(())
    })
    .await?;

    database.stop().await?;
    change(&mut paused, "third");
    fleet.apply(&paused).await?;
    wait::until("the form names the database", SOON, async || {
        let form = fleet.get("LynqForm", "web").await?;
        let waiting = &form["status"]["rollout"]["waiting"][0];
        let message = waiting["message"].as_str().unwrap_or_default();
        ensure!(
            waiting["reason"] == "NotRendered" && message.contains("cannot reach the database"),
            "{waiting}"
        );
        Ok(())
    })
    .await?;
    database.start_again().await?;
    fleet.retire().await
}

/// Each change of the form is tried on the rows, while the hub reads them every second; and each connection says goodbye.
async fn one_connection_is_enough(
    cluster: &Cluster,
    database: &Database,
    fleet: &Fleet,
) -> Result<()> {
    let user = &fleet.database.username;
    let limited = match database.product() {
        Product::Mariadb => format!("ALTER USER '{user}'@'%' WITH MAX_USER_CONNECTIONS 1"),
        Product::Postgresql => format!("ALTER ROLE \"{user}\" CONNECTION LIMIT 1"),
    };
    database.execute(&limited).await?;
    // PostgreSQL counts no such thing.
    let aborted = match database.product() {
        Product::Mariadb => {
            "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Aborted_clients'"
        }
        Product::Postgresql => "SELECT 0",
    };
    let before = database.query(None, aborted).await?;
    for change in 0..6 {
        let mut form = form(fleet, "web", &[map("app", "-app")]);
        form["spec"]["configMaps"][0]["spec"]["data"]["change"] = json!(change.to_string());
        let apply = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--dry-run=server",
            "-f",
            "-",
        ];
        let outcome = cluster.kubectl(&apply, Some(&form.to_string())).await?;
        let said = outcome.stdout + &outcome.stderr;
        ensure!(said.contains("changes 7 of 7 nodes"), "{change}: {said}");
    }
    let after = database.query(None, aborted).await?;
    ensure!(
        after == before,
        "{before:?} aborted connections became {after:?}"
    );
    Ok(())
}

/// Wherever a result ends too early, what it has not is not gone.
async fn cut_off(cluster: &Cluster, product: Product) -> Result<()> {
    let database = database::shared(product).await?;
    let network = Network::to(database, Then::Close).await;
    let fleet = fleet_on(cluster, product, 20).await?;
    let nodes = async || fleet.versions(&["LynqNode"]).await;
    let before = nodes().await?;
    network.limit.store(0, Ordering::SeqCst);
    let mut hub = fleet.hub();
    let source = &mut hub["spec"]["source"];
    let of_product = source["type"].as_str().unwrap_or_default().to_owned();
    source[of_product]["port"] = network.address.port().into();
    fleet.apply(&hub).await?;
    fleet.hub_condition("Ready", "False", "").await?;
    for bytes in (100..1400).step_by(300) {
        network.limit.store(bytes, Ordering::SeqCst);
        // More than one read, at an interval of 1 s.
        tokio::time::sleep(Duration::from_millis(2500)).await;
        fleet.hub_condition("Ready", "False", "").await?;
        ensure!(nodes().await? == before, "cut after {bytes} bytes");
    }
    network.limit.store(u64::MAX, Ordering::SeqCst);
    fleet.hub_condition("Ready", "True", "").await?;
    ensure!(nodes().await? == before, "nothing is written");
    fleet.retire().await
}

/// More of them than hubs may be worked on at a time (3, by default).
async fn hung_databases_hold_up_no_other(cluster: &Cluster) -> Result<()> {
    for product in Product::ALL {
        hung_database_holds_up_no_other(cluster, product).await?;
    }
    Ok(())
}

async fn hung_database_holds_up_no_other(cluster: &Cluster, product: Product) -> Result<()> {
    let fleet = fleet_on(cluster, product, 1).await?;
    // Each hub's query takes as long as it may: a minute.
    let slow = product.slow(300.0);
    fleet
        .database
        .execute(&format!(
            "CREATE VIEW slow AS SELECT id, {slow} active, url, plan, image FROM tenants"
        ))
        .await?;
    for number in 0..4 {
        let mut hub = fleet.hub();
        hub["metadata"]["name"] = format!("slow-{number}").into();
        hub["spec"]["source"][product.source()]["table"] = "slow".into();
        fleet.apply(&hub).await?;
    }
    for row in 1..4 {
        fleet.insert(row..row + 1).await?;
        fleet.complete(row + 1, Duration::from_secs(20)).await?;
    }
    until_maps(
        &fleet,
        &[
            ("t0-app", "pro"),
            ("t1-app", "pro"),
            ("t2-app", "pro"),
            ("t3-app", "pro"),
        ],
    )
    .await?;
    for number in 0..4 {
        let status = fleet.get("LynqHub", &format!("slow-{number}")).await?["status"].clone();
        ensure!(status["conditions"].is_null(), "it hangs still: {status}");
    }
    fleet.retire().await
}

/// First in the database alone, which the hub says; then in the Secret, of which nobody tells the operator.
async fn password_changed(cluster: &Cluster, product: Product) -> Result<()> {
    const NEW: &str = "an0ther-passw0rd";
    let fleet = fleet_on(cluster, product, 1).await?;
    let user = &fleet.database.username;
    let (change, disconnect) = match product {
        Product::Mariadb => (
            format!("SET PASSWORD FOR '{user}'@'%' = PASSWORD('{NEW}')"),
            format!("KILL USER '{user}'"),
        ),
        Product::Postgresql => (
            format!("ALTER ROLE \"{user}\" PASSWORD '{NEW}'"),
            format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{user}'"
            ),
        ),
    };
    fleet.database.execute(&change).await?;
    fleet.database.execute(&disconnect).await?;
    let denied = ("Ready", "False", "DatabaseConnectionFailed");
    let said = "the database denies user \"{user}\" access; check the user name and the Secret with the password, and whether it must use TLS (tls is disabled here)";
    fleet.says(("LynqHub", "tenants"), denied, said).await?;
    let mut secret = fleet.password();
    secret["stringData"]["password"] = NEW.into();
    fleet.apply(&secret).await?;
    fleet.insert(1..2).await?;
    fleet.complete(2, SOON).await?;
    fleet.retire().await
}

/// The Secret has the certificate of another authority than the server's, and then the right one; of neither anybody tells the
/// operator.
async fn authority_changed(cluster: &Cluster, product: Product) -> Result<()> {
    let (server, authority) = tls::server(product, false).await;
    let fleet = Fleet::on(cluster, &server, "authority", 1, "SELECT 1").await?;
    let secret = |pem: String| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "authority", "namespace": fleet.namespace},
            "stringData": {"ca.crt": pem},
        })
    };
    let mut hub = fleet.hub();
    hub["spec"]["source"][product.source()]["tls"] =
        json!({"mode": "required", "caRef": {"name": "authority", "key": "ca.crt"}});
    fleet.apply(&secret(tls::authority("ours").pem())).await?;
    fleet.apply(&hub).await?;
    fleet
        .apply(&form(&fleet, "web", &[map("app", "-app")]))
        .await?;
    let failed = ("Ready", "False", "DatabaseConnectionFailed");
    let said = format!(
        "no TLS with the database at {}:{}: its certificate is not issued by a trusted authority; check the Secret with the \
         authority's certificate",
        fleet.database.host, fleet.database.port
    );
    fleet.says(("LynqHub", "tenants"), failed, &said).await?;
    fleet.apply(&secret(authority.pem())).await?;
    fleet.complete(1, SOON).await?;
    fleet.retire().await
}

/// A column that is gone is named, and what runs stays as it is; so it does where a column has another type and the same
/// values. A row whose value is no text any more keeps what it has, and is named.
async fn schema_changed(cluster: &Cluster, product: Product) -> Result<()> {
    let fleet = fleet_on(cluster, product, 3).await?;
    let hub = ("LynqHub", "tenants");
    let connected = ("Ready", "True", "DatabaseConnected");
    let before = fleet.versions(&["LynqNode", "ConfigMap"]).await?;
    let rename = |from: &str, to: &str| format!("ALTER TABLE tenants RENAME COLUMN {from} TO {to}");
    fleet.database.execute(&rename("plan", "tier")).await?;
    let gone = ("Ready", "False", "SourceInvalid");
    let said = "{q}tenants{q} has no column \"plan\"; add it, or correct the hub's value mappings";
    fleet.says(hub, gone, said).await?;
    fleet.database.execute(&rename("tier", "plan")).await?;
    fleet
        .says(
            hub,
            connected,
            "Successfully connected to database and queried node data",
        )
        .await?;

    let (wider, bytes, broken) = match product {
        Product::Mariadb => (
            "ALTER TABLE tenants MODIFY plan TEXT",
            "ALTER TABLE tenants MODIFY plan BLOB",
            "UPDATE tenants SET plan = x'ff' WHERE id = 't1'",
        ),
        Product::Postgresql => (
            "ALTER TABLE tenants ALTER plan TYPE text",
            "ALTER TABLE tenants ALTER plan TYPE bytea USING convert_to(plan, 'UTF8')",
            "UPDATE tenants SET plan = '\\xff' WHERE id = 't1'",
        ),
    };
    for change in [wider, bytes, broken] {
        fleet.database.execute(change).await?;
    }
    wait::until("the row is named", SOON, async || {
        let events = fleet.events("tenants").await?;
        let named =
            |(reason, text): &(String, String)| reason == "RowsSkipped" && text.contains("t1");
        ensure!(events.iter().any(named), "{events:?}");
        Ok(())
    })
    .await?;
    let after = fleet.versions(&["LynqNode", "ConfigMap"]).await?;
    ensure!(after == before, "{before:?} became {after:?}");
    fleet.retire().await
}
