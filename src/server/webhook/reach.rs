//! A changed hub is tried on the rows that it would read, beside the nodes that it has: whoever applies it is warned, and never refused.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::timeout;

use crate::api::hub::HubSpec;
use crate::api::names;
use crate::cluster::objects::Objects;
use crate::decide::admission::reach::{self, NodeRow};
use crate::decide::child::ObjectKey;
use crate::decide::hub_sync::{allowances, rows_hash};
use crate::decide::rows::Rows;
use crate::server::webhook::definitions::PATIENCE;

/// The rows that a hub would read which is not stored yet; or why there are none.
pub type RowsAs = Arc<dyn Fn(Value) -> BoxFuture<'static, Result<Rows, String>> + Send + Sync>;

/// Nothing where the rows are the same: the guard, the window and the interval change no tenant.
pub async fn warnings(
    objects: &Objects,
    rows_as: &RowsAs,
    old: &Value,
    new: &Value,
) -> Vec<String> {
    let spec = |hub: &Value| serde_json::from_value::<HubSpec>(hub["spec"].clone()).ok();
    let (Some(before), Some(after)) = (spec(old), spec(new)) else {
        return vec![];
    };
    if rows_hash(&before) == rows_hash(&after) {
        return vec![];
    }
    let text = |field: &str| new["metadata"][field].as_str().unwrap_or_default();
    let kind = ObjectKey::own("LynqNode", "", "").kind;
    let nodes = objects.owned(&kind, text("namespace"), text("uid"));
    let found = async {
        let (nodes, rows) = tokio::join!(nodes, rows_as(new.clone()));
        Ok::<_, String>((nodes.map_err(|error| error.to_string())?, rows?))
    };
    let too_late = || Err(format!("it took more than {} s", PATIENCE.as_secs()));
    let (nodes, rows) = match timeout(PATIENCE, found)
        .await
        .unwrap_or_else(|_| too_late())
    {
        Ok(found) => found,
        Err(why) => return vec![format!("not tried on the rows: {why}")],
    };
    let node = |object: kube::api::ObjectMeta| NodeRow {
        name: object.name.unwrap_or_default(),
        uid: object
            .labels
            .and_then(|mut all| all.remove(names::LABEL_UID))
            .unwrap_or_default(),
        hash: object
            .annotations
            .and_then(|mut all| all.remove(names::ROW_HASH)),
    };
    let nodes: Vec<NodeRow> = nodes.into_iter().map(node).collect();
    let annotation = |name: &str| {
        new["metadata"]["annotations"][name]
            .as_str()
            .map(str::to_owned)
    };
    let (deletions, creations) = allowances(&after, &annotation);
    reach::warnings(&nodes, &rows, (&deletions, &creations))
}
