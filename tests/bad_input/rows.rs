//! Rows that cannot be tenants: each is named with its reason, and its neighbours go on.

use anyhow::{Result, ensure};
use futures::FutureExt;
use serde_json::json;

use crate::bad_input::{config_map, fleet, fleet_on, form};
use crate::cluster::database::Product;
use crate::operator;
use crate::tenants::SOON;
use crate::words::{CANARY, all, keeps_secrets};

const DUPLICATE: &str = "Rows \"t0\", \"t1\", \"twice\": 2 active rows have this uid (case and surrounding white space aside); leave one of them active";
const INVALID: &str = "Rows \"Acme\", \"T1\", \"\\u{1b}[2J\": the uid cannot be part of a Kubernetes name; use lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit";

/// Name, the rows (uid and plan, as SQL but for BYTES), and what is said of them. All in one table, so the uids differ.
const CASES: [(&str, &str, &str); 12] = [
    (
        "NULL",
        "(NULL, 'CANARY')",
        "Row no. 3: the uid is NULL; fill it in, or deactivate the row",
    ),
    (
        "empty",
        "('', 'CANARY')",
        "Row no. 4: the uid is empty; fill it in, or deactivate the row",
    ),
    ("upper case", "('Acme', 'CANARY')", INVALID),
    (
        "space after",
        "('acme ', 'CANARY')",
        "Row \"acme \": the uid has white space or NUL characters around it; trim the column, or read it through a view that does",
    ),
    (
        "too long",
        "(CAST(REPEAT('a', 64) AS BYTES), 'CANARY')",
        "Row \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\": the uid has 64 characters; at most 63 fit into a Kubernetes label, so use another column or shorten it in a view",
    ),
    (
        "bytes",
        "(BYTES '61FF62', 'CANARY')",
        "Row \"a\\xffb\": the uid is not UTF-8 text; map a column that is, or convert it in a view",
    ),
    (
        "twice",
        "('twice', 'CANARY'), ('twice', 'CANARY')",
        DUPLICATE,
    ),
    (
        "value that is no text",
        "('bytes', BYTES 'FF')",
        "Row \"bytes\": column \"plan\" does not hold UTF-8 text; map a text column, or convert it in a view",
    ),
    (
        "value of 1 MiB and a byte",
        "('big', CAST(REPEAT('CANARY', 87382) AS BYTES))",
        "Row \"big\": column \"plan\" holds 1048584 bytes; at most 1048576 can be used in a template",
    ),
    ("t0 again", "('t0', 'CANARY')", DUPLICATE),
    ("t1 in upper case", "('T1', 'CANARY')", INVALID),
    ("escape sequence", "(BYTES '1B5B324A', 'CANARY')", INVALID),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_row_is_named_and_the_others_go_on() -> Result<()> {
    let cases = vec![
        (
            "uids and values of MariaDB",
            uids_and_values(Product::Mariadb).boxed_local(),
        ),
        (
            "uids and values of PostgreSQL",
            uids_and_values(Product::Postgresql).boxed_local(),
        ),
        ("names that collide", names_that_collide().boxed_local()),
        ("a name that is taken", a_name_that_is_taken().boxed_local()),
    ];
    all(cases).await
}

async fn uids_and_values(product: Product) -> Result<()> {
    let (cluster, operator) = operator::shared().await?;
    let fleet = fleet_on(cluster, product, 2).await?;
    let before = fleet.versions(&["LynqNode", "ConfigMap"]).await?;
    let (bytes, literal, cast) = match product {
        Product::Mariadb => (
            "MODIFY id VARBINARY(80), MODIFY plan LONGBLOB",
            "X'",
            " AS BINARY)",
        ),
        Product::Postgresql => (
            "ALTER id TYPE bytea USING id::bytea, ALTER plan TYPE bytea USING plan::bytea",
            "bytea '\\x",
            " AS bytea)",
        ),
    };
    let active = "ALTER active SET DEFAULT '1'";
    fleet
        .database
        .execute(&format!("ALTER TABLE tenants {bytes}, {active}"))
        .await?;
    let rows: Vec<&str> = CASES.iter().map(|(_, rows, _)| *rows).collect();
    let insert = format!("INSERT INTO tenants (id, plan) VALUES {}", rows.join(", "))
        .replace("CANARY", CANARY)
        .replace("BYTES '", literal)
        .replace(" AS BYTES)", cast);
    fleet.database.execute(&insert).await?;
    let mut said: Vec<&str> = CASES.iter().map(|(_, _, said)| *said).collect();
    // In the order of the causes, so that the order of the rows does not matter.
    let cause = |said: &&str| {
        said.rsplit_once("\": ")
            .or(said.split_once(": "))
            .map(|(_, cause)| cause.to_owned())
    };
    said.sort_by_key(cause);
    said.dedup();
    let hub = ("LynqHub", "tenants");
    let bad = ("RowsSkipped", "True", "UnusableRows");
    fleet.says(hub, bad, &said.join(". ")).await?;
    for (_, _, said) in CASES {
        fleet.event("tenants", "RowsSkipped", said).await?;
    }
    let status = fleet.get("LynqHub", "tenants").await?["status"].clone();
    ensure!(
        status["skippedRows"] == 15,
        "t0, t1 and twice count both rows: {status}"
    );
    ensure!(
        fleet.versions(&["LynqNode", "ConfigMap"]).await? == before,
        "nothing is written or deleted"
    );

    fleet
        .database
        .execute("INSERT INTO tenants (id, active) VALUES ('good', 'yes')")
        .await?;
    fleet.complete(3, SOON).await?;
    fleet
        .database
        .execute("DELETE FROM tenants WHERE id NOT IN ('t0', 't1', 'good') OR id IS NULL")
        .await?;
    fleet
        .database
        .execute("DELETE FROM tenants WHERE id = 't0' AND url IS NULL")
        .await?;
    let good = ("RowsSkipped", "False", "AllRowsUsable");
    fleet.says(hub, good, "").await?;
    fleet
        .until_names("LynqNode", &["good-web", "t0-web", "t1-web"])
        .await?;
    keeps_secrets(&[&fleet], operator).await?;
    fleet.retire().await
}

/// `a-b` + `c` and `a` + `b-c` would be one node: it is neither's, and neither of those that are there changes.
async fn names_that_collide() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster, 1).await?;
    for name in ["c", "b-c"] {
        let spec =
            json!({"configMaps": [config_map("app", &format!("{{{{ .uid }}}}-of-{name}"), "x")]});
        fleet.apply(&form(&fleet, name, &spec)).await?;
    }
    fleet
        .until_names("LynqNode", &["t0-b-c", "t0-c", "t0-web"])
        .await?;
    fleet
        .database
        .execute("INSERT INTO tenants (id, active) VALUES ('a', '1'), ('a-b', '1')")
        .await?;
    let said = "Row \"a\": left out of form \"b-c\": its node would be named \"a-b-c\", as the node of row \"a-b\" and form \"c\" would; rename one of the forms or uids. Row \"a-b\": left out of form \"c\": its node would be named \"a-b-c\", as the node of row \"a\" and form \"b-c\" would; rename one of the forms or uids";
    let bad = ("RowsSkipped", "True", "UnusableRows");
    fleet.says(("LynqHub", "tenants"), bad, said).await?;
    let nodes = [
        "a-b-b-c", "a-b-web", "a-c", "a-web", "t0-b-c", "t0-c", "t0-web",
    ];
    fleet.until_names("LynqNode", &nodes).await?;
    fleet.retire().await
}

async fn a_name_that_is_taken() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster, 1).await?;
    let node = json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqNode",
        "metadata": {"name": "t1-web", "labels": {"lynq.sh/hub": "other"}},
        "spec": {"uid": "t1", "templateRef": "web", "hubId": "other"},
    });
    fleet.apply(&node).await?;
    fleet.insert(1..3).await?;
    let said = "LynqNode t1-web: the node of this name belongs to hub \"other\", and lynqgate creates it here once it is deleted there: see the \
                condition DeletionsHeld of that hub; or rename the form";
    let bad = ("RowsSkipped", "True", "UnusableRows");
    fleet.says(("LynqHub", "tenants"), bad, said).await?;
    fleet.event("tenants", "RowsSkipped", said).await?;
    fleet
        .until_names("LynqNode", &["t0-web", "t1-web", "t2-web"])
        .await?;
    let node = fleet.get("LynqNode", "t1-web").await?;
    ensure!(
        node["metadata"]["generation"] == 1 && node["metadata"]["labels"]["lynq.sh/hub"] == "other",
        "the other hub's node is left alone: {}",
        node["metadata"]
    );
    fleet.retire().await
}
