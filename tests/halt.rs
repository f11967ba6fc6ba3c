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
    form["spec"]["rollout"]["creation"] = json!("Immediate");
    form
}

/// A tenant that is ready now and then has failed all the same: until it is corrected nobody else goes, nor does a new tenant,
/// for which there is no window otherwise.
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
    let held = |rollout: &Value| rollout["heldNodes"].as_u64().unwrap_or_default();
    let before = held(&fleet.get("LynqForm", "web").await?["status"]["rollout"]);
    ensure!(before > 0, "nobody is left");
    fleet.insert(ROWS..ROWS + 1).await?;
    let waits = move |rollout: &Value| held(rollout) == before + 1;
    let halted = fleet.rollout("a new tenant waits", SOON, waits).await?;
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
