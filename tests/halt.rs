//! What ends a halt, and what does not, on the real control plane.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::operator;
use crate::tenants::{Fleet, SOON};

/// Each tenant's image is its row's.
fn form(fleet: &Fleet, soak: u32) -> Value {
    let mut form = fleet.form("{{ .image }}", json!(2), 0);
    form["spec"]["rollout"]["minReadySeconds"] = json!(soak);
    form
}

/// A tenant that is ready now and then has failed all the same: until it is corrected nobody else goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_and_goes_ends_no_halt() -> Result<()> {
    const ROWS: usize = 8;
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "halt", ROWS).await?;
    let first = "UPDATE tenants SET image = 'web:1'";
    fleet.database.execute(first).await?;
    fleet.apply(&form(&fleet, 0)).await?;
    fleet.complete(ROWS, SOON).await?;
    fleet.apply(&form(&fleet, 20)).await?;

    let bad = "UPDATE tenants SET image = IF(id = 't0', 'web:2-flapping', 'web:2')";
    fleet.database.execute(bad).await?;
    let failed = |rollout: &Value| rollout["phase"] == "Failed";
    fleet.rollout("t0 has failed", 2 * SOON, failed).await?;
    // What was on its way by then has arrived.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let halted = fleet.get("LynqForm", "web").await?["status"]["rollout"].clone();
    ensure!(
        halted["heldNodes"].as_u64() > Some(0),
        "nobody is left: {halted}"
    );
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(15) {
        let form = fleet.get("LynqForm", "web").await?;
        let rollout = &form["status"]["rollout"];
        ensure!(
            rollout["phase"] == "Failed" && rollout["heldNodes"] == halted["heldNodes"],
            "{halted} became {rollout}"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    let good = "UPDATE tenants SET image = 'web:2' WHERE id = 't0'";
    fleet.database.execute(good).await?;
    let goes_on = |rollout: &Value| {
        rollout["phase"] == "InProgress"
            && rollout["heldNodes"].as_u64() < halted["heldNodes"].as_u64()
    };
    fleet.rollout("the others go on", SOON, goes_on).await?;
    fleet.retire().await
}
