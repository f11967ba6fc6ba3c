//! Bad input on the way to the rows: the hub, its Secret, the server, the table.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::bad_input::fleet;
use crate::cluster::{Cluster, wait};
use crate::operator;
use crate::tenants::SOON;
use crate::words::{all, keeps_secrets};

struct Case {
    name: &'static str,
    /// What happens to the table, and to the hub's spec.
    sql: &'static str,
    hub: Value,
    /// Reason and message of the hub's condition, reason of the event.
    reason: &'static str,
    message: &'static str,
    event: &'static str,
    /// What is done to the table to mend it; the hub is put back as it was.
    mend: &'static str,
}

/// Nothing but the spec's `mysql` block differs.
fn mysql(name: &'static str, mysql: Value, message: &'static str) -> Case {
    Case {
        name,
        sql: "DO 0",
        hub: json!({"source": {"mysql": mysql}}),
        reason: "DatabaseConnectionFailed",
        message,
        event: "DatabaseQueryFailed",
        mend: "DO 0",
    }
}

fn table(name: &'static str, sql: &'static str, mend: &'static str, message: &'static str) -> Case {
    Case {
        sql,
        mend,
        ..mysql(name, json!({}), message)
    }
}

fn cases() -> Vec<Case> {
    vec![
        mysql(
            "port closed",
            json!({"port": 1}),
            "cannot reach the database at 127.0.0.1:1: nothing listens there (connection refused); check source host and \
             port, and that the network allows it",
        ),
        mysql(
            "host unknown",
            json!({"host": "no-such-host.invalid"}),
            "cannot reach the database at no-such-host.invalid:{port}: the host name is unknown; check source host and port, and that the network allows it",
        ),
        mysql(
            "missing Secret",
            json!({"passwordRef": {"name": "nowhere"}}),
            "Secret \"nowhere\" in namespace {namespace}, named by spec.source.mysql.passwordRef, does not exist; create it, or correct the name",
        ),
        mysql(
            "Secret without the key",
            json!({"passwordRef": {"key": "pass"}}),
            "Secret \"database\" in namespace {namespace}, named by spec.source.mysql.passwordRef, has no key \"pass\"; its keys are [\"password\"]; add it, or correct passwordRef",
        ),
        mysql(
            "Secret with bytes",
            json!({"passwordRef": {"name": "bytes", "key": "password"}}),
            "Secret \"bytes\" in namespace {namespace}, named by spec.source.mysql.passwordRef, has no text under key \"password\"; put the password there as UTF-8",
        ),
        mysql(
            "wrong password",
            json!({"passwordRef": {"name": "wrong"}}),
            "the database denies user \"{user}\" access; check the user name and the Secret with the password, and whether it must use TLS (tls is disabled here)",
        ),
        mysql(
            "unknown user",
            json!({"username": "nobody"}),
            "the database denies user \"nobody\" access; check the user name and the Secret with the password, and whether it must use TLS (tls is disabled here)",
        ),
        mysql(
            "no right to the database",
            json!({"database": "mysql"}),
            "the database lets user \"{user}\" in, but not read database \"mysql\"; GRANT it SELECT on it, or correct the name",
        ),
        mysql(
            "unknown table",
            json!({"table": "tenant"}),
            "there is no table or view `tenant`; create it, or correct the name (anything but a name belongs into a view)",
        ),
        mysql(
            "SQL for a table",
            json!({"table": "tenants WHERE active = 1"}),
            "there is no table or view `tenants WHERE active = 1`; create it, or correct the name (anything but a name belongs into a view)",
        ),
        Case {
            reason: "InvalidSpec",
            event: "InvalidSpec",
            ..mysql(
                "no mysql block",
                Value::Null,
                "spec.source.type is mysql, so spec.source.mysql must say where the database is; add it",
            )
        },
        mysql(
            "unknown database",
            json!({"database": "nowhere"}),
            "the database lets user \"{user}\" in, but not read database \"nowhere\"; GRANT it SELECT on it, or correct the name",
        ),
        table(
            "missing uid column",
            "ALTER TABLE tenants RENAME COLUMN id TO ident",
            "ALTER TABLE tenants RENAME COLUMN ident TO id",
            "`tenants` has no column \"id\"; correct the hub's value mappings or the table",
        ),
        table(
            "missing activate column",
            "ALTER TABLE tenants RENAME COLUMN active TO activated",
            "ALTER TABLE tenants RENAME COLUMN activated TO active",
            "`tenants` has no column \"active\"; correct the hub's value mappings or the table",
        ),
        table(
            "missing extra column",
            "ALTER TABLE tenants RENAME COLUMN plan TO tariff",
            "ALTER TABLE tenants RENAME COLUMN tariff TO plan",
            "`tenants` has no column \"plan\"; correct the hub's value mappings or the table",
        ),
        table(
            "table dropped",
            "RENAME TABLE tenants TO renters",
            "RENAME TABLE renters TO tenants",
            "there is no table or view `tenants`; create it, or correct the name (anything but a name belongs into a view)",
        ),
    ]
}

/// Each failure leaves everything as it is, says what is wrong, and is over with the next sync after it is mended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sync_changes_nothing_and_says_why() -> Result<()> {
    let (cluster, operator) = operator::shared().await?;
    let cases = cases();
    let running = cases
        .iter()
        .map(|case| (case.name, fail_and_mend(cluster, operator, case)));
    all(running.collect()).await
}

async fn fail_and_mend(
    cluster: &Cluster,
    operator: &operator::Operator,
    case: &Case,
) -> Result<()> {
    const KINDS: [&str; 2] = ["LynqNode", "ConfigMap"];
    let fleet = fleet(cluster, 2).await?;
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
    fleet.change("LynqHub", "tenants", &case.hub).await?;
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
    fleet.retire().await
}
