//! Bad input on the way to the rows: the hub, its Secret, the server, the table.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::bad_input::fleet_on;
use crate::cluster::database::Product;
use crate::cluster::{Cluster, etcd, wait};
use crate::datasource::hostile::mysql_wire::breaks_the_driver;
use crate::operator;
use crate::tenants::SOON;
use crate::words::{all, keeps_secrets};

struct Case {
    name: &'static str,
    /// What happens to the table, and to the block of the hub's spec that names the server.
    sql: &'static str,
    server: Value,
    /// Reason and message of the hub's condition, reason of the event.
    reason: &'static str,
    message: &'static str,
    event: &'static str,
    /// What is done to the table to mend it; the hub is put back as it was.
    mend: &'static str,
}

/// Nothing but the spec's block of the server differs.
fn server(name: &'static str, server: Value, message: &'static str) -> Case {
    Case {
        name,
        sql: "SELECT 1",
        server,
        reason: "DatabaseConnectionFailed",
        message,
        event: "DatabaseQueryFailed",
        mend: "SELECT 1",
    }
}

/// The server is well.
fn source(name: &'static str, changed: Value, message: &'static str) -> Case {
    Case {
        reason: "SourceInvalid",
        ..server(name, changed, message)
    }
}

fn table(name: &'static str, sql: &'static str, mend: &'static str, message: &'static str) -> Case {
    Case {
        sql,
        mend,
        ..source(name, json!({}), message)
    }
}

/// What panics in the driver is an error, and nothing of it stands in the log.
fn breaking() -> Case {
    let port = breaks_the_driver();
    let said = format!(
        "the server at 127.0.0.1:{port} does not keep to the protocol (a packet that the driver cannot read); check that host and port \
         are those of the database"
    );
    server(
        "a server that breaks the driver",
        json!({"port": port}),
        said.leak(),
    )
}

fn cases(product: Product) -> Vec<Case> {
    let mut cases = vec![
        server(
            "port closed",
            json!({"port": 1}),
            "cannot reach the database at 127.0.0.1:1: nothing listens there (connection refused); check source host and \
             port, and that the network allows it",
        ),
        server(
            "host unknown",
            json!({"host": "no-such-host.invalid"}),
            "cannot reach the database at no-such-host.invalid:{port}: the host name is unknown; check source host and port, and that the network allows it",
        ),
        Case {
            reason: "SecretNotFound",
            ..server(
                "missing Secret",
                json!({"passwordRef": {"name": "nowhere"}}),
                "Secret \"nowhere\" in namespace {namespace}, named by spec.source.{source}.passwordRef, does not exist; create it, or correct the name",
            )
        },
        source(
            "Secret without the key",
            json!({"passwordRef": {"key": "pass"}}),
            "Secret \"database\" in namespace {namespace}, named by spec.source.{source}.passwordRef, has no key \"pass\"; its keys are [\"password\"]; add it, or correct passwordRef",
        ),
        source(
            "Secret with bytes",
            json!({"passwordRef": {"name": "bytes", "key": "password"}}),
            "Secret \"bytes\" in namespace {namespace}, named by spec.source.{source}.passwordRef, has no text under key \"password\"; put the password there as UTF-8",
        ),
        server(
            "wrong password",
            json!({"passwordRef": {"name": "wrong"}}),
            "the database denies user \"{user}\" access; check the user name and the Secret with the password, and whether it must use TLS (tls is disabled here)",
        ),
        server(
            "unknown user",
            json!({"username": "nobody"}),
            "the database denies user \"nobody\" access; check the user name and the Secret with the password, and whether it must use TLS (tls is disabled here)",
        ),
        source(
            "unknown table",
            json!({"table": "tenant"}),
            "there is no table or view {q}tenant{q}; create it, or correct the name (for a query, create a view and give its name)",
        ),
        source(
            "SQL for a table",
            json!({"table": "tenants WHERE active = 1"}),
            "there is no table or view {q}tenants WHERE active = 1{q}; create it, or correct the name (for a query, create a view and give its name)",
        ),
        Case {
            reason: "InvalidSpec",
            event: "InvalidSpec",
            ..server(
                "no block of the server",
                Value::Null,
                "spec.source.type is {source}, so spec.source.{source} must say where the database is; add it",
            )
        },
        table(
            "missing uid column",
            "ALTER TABLE tenants RENAME COLUMN id TO ident",
            "ALTER TABLE tenants RENAME COLUMN ident TO id",
            "{q}tenants{q} has no column \"id\"; add it, or correct the hub's value mappings",
        ),
        table(
            "missing activate column",
            "ALTER TABLE tenants RENAME COLUMN active TO activated",
            "ALTER TABLE tenants RENAME COLUMN activated TO active",
            "{q}tenants{q} has no column \"active\"; add it, or correct the hub's value mappings",
        ),
        table(
            "missing extra column",
            "ALTER TABLE tenants RENAME COLUMN plan TO tariff",
            "ALTER TABLE tenants RENAME COLUMN tariff TO plan",
            "{q}tenants{q} has no column \"plan\"; add it, or correct the hub's value mappings",
        ),
        table(
            "table dropped",
            "ALTER TABLE tenants RENAME TO renters",
            "ALTER TABLE renters RENAME TO tenants",
            "there is no table or view {q}tenants{q}; create it, or correct the name (for a query, create a view and give its name)",
        ),
    ];
    cases.extend(match product {
        Product::Mariadb => vec![
            breaking(),
            server(
            "no right to the database",
            json!({"database": "mysql"}),
            "the database lets user \"{user}\" in, but not read database \"mysql\"; GRANT it SELECT on it, or correct the name",
        ),
        server(
            "unknown database",
            json!({"database": "nowhere"}),
            "the database lets user \"{user}\" in, but not read database \"nowhere\"; GRANT it SELECT on it, or correct the name",
        ),
        ],
        Product::Postgresql => vec![
            source(
                "unknown database",
                json!({"database": "nowhere"}),
                "there is no database \"nowhere\" on the server; check its name",
            ),
            source(
                "unknown schema",
                json!({"table": "crm.tenants"}),
                "there is no table or view \"crm\".\"tenants\"; create it, or correct the name (for a query, create a view and give its name)",
            ),
            Case {
                reason: "DatabaseConnectionFailed",
                ..table(
                "a view that cannot be computed",
                "ALTER TABLE tenants RENAME TO renters; CREATE VIEW tenants AS SELECT id, 1 / (SELECT COUNT(*) - 2 FROM renters) active, url, plan, image FROM renters",
                "DROP VIEW tenants; ALTER TABLE renters RENAME TO tenants",
                "the database refused with error 22012: the database cannot compute the view from its data; correct the view or the data",
            )
            },
        ],
    });
    cases
}

/// Each failure leaves everything as it is, says what is wrong, and is over with the next sync after it is mended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sync_changes_nothing_and_says_why() -> Result<()> {
    let (cluster, operator) = operator::shared().await?;
    let mut named = vec![];
    for product in Product::ALL {
        for case in cases(product) {
            named.push((format!("{product:?}: {}", case.name), product, case));
        }
    }
    let running = named.iter().map(|(name, product, case)| {
        let running = fail_and_mend(cluster, operator, *product, case);
        (name.as_str(), running)
    });
    all(running.collect()).await
}

async fn fail_and_mend(
    cluster: &Cluster,
    operator: &operator::Operator,
    product: Product,
    case: &Case,
) -> Result<()> {
    const KINDS: [&str; 2] = ["LynqNode", "ConfigMap"];
    let fleet = fleet_on(cluster, product, 2).await?;
    for (name, data) in [
        (
            "wrong",
            json!({"stringData": {"password": "wr0ng-passw0rd"}}),
        ),
        ("bytes", json!({"data": {"password": "//79"}})),
    ] {
        let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
        let data = data.as_object().expect("an object").clone();
        secret.as_object_mut().expect("an object").extend(data);
        fleet.apply(&secret).await?;
    }
    wait::until("the hub has counted its nodes", SOON, async || {
        let status = fleet.get("LynqHub", "tenants").await?["status"].clone();
        let counts = (&status["desired"], &status["ready"]);
        ensure!(counts == (&json!(2), &json!(2)), "{status}");
        Ok(())
    })
    .await?;
    let before = fleet.versions(&KINDS).await?;
    ensure!(
        before.len() == 5,
        "2 nodes, 2 objects, the namespace's own: {before:?}"
    );

    fleet.database.execute(case.sql).await?;
    let changed = json!({"source": {product.source(): case.server}});
    match case.server {
        // The webhook does not let it in.
        Value::Null => {
            let refused = fleet.change("LynqHub", "tenants", &changed).await;
            let why = format!("{:#}", refused.err().context("it was let in")?);
            let source = product.source();
            let said = format!("{source} configuration is required when source type is {source}");
            ensure!(why.contains(&said), "{why}");
            let mut hub = fleet.hub();
            hub["spec"]["source"]
                .as_object_mut()
                .context("a source")?
                .remove(source);
            etcd::store(cluster, &hub).await?;
        }
        _ => fleet.change("LynqHub", "tenants", &changed).await?,
    }
    let bad = ("Ready", "False", case.reason);
    fleet
        .says(("LynqHub", "tenants"), bad, case.message)
        .await?;
    fleet.event("tenants", case.event, case.message).await?;
    let after = fleet.versions(&KINDS).await?;
    ensure!(after == before, "was written: {:?}", &after - &before);
    let status = fleet.get("LynqHub", "tenants").await?["status"].clone();
    ensure!(
        (&status["desired"], &status["ready"]) == (&json!(2), &json!(2)),
        "the counts stay: {status}"
    );

    fleet.database.execute(case.mend).await?;
    fleet.insert(2..3).await?;
    fleet.apply(&fleet.hub()).await?;
    fleet.complete(3, SOON).await?;
    let good = ("Ready", "True", "DatabaseConnected");
    let said = "Successfully connected to database and queried node data";
    fleet.says(("LynqHub", "tenants"), good, said).await?;
    keeps_secrets(&[&fleet], operator).await?;
    let log = std::fs::read_to_string(operator.process.log())?;
    ensure!(
        !log.contains("wr0ng-passw0rd"),
        "the wrong password stands in the log"
    );
    ensure!(!log.contains("panicked"), "a panic stands in the log");
    fleet.retire().await
}
