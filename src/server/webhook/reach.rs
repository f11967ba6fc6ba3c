//! A changed hub is tried on the rows that it would read, beside the nodes that it has and by the forms that render these rows: whoever
//! applies it is warned, and never refused.

use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::api::hub::HubSpec;
use crate::api::names;
use crate::cluster::objects::{ApiError, Objects};
use crate::decide::admission::reach::{self, NodeRow};
use crate::decide::admission::{form, trial};
use crate::decide::child::ObjectKey;
use crate::decide::hub_sync::{allowances, rows_hash};
use crate::decide::rows::Rows;
use crate::server::webhook::definitions::{Definitions, PATIENCE};

/// The rows that a hub would read which is not stored yet; or why there are none.
pub type RowsAs = Arc<dyn Fn(Value) -> BoxFuture<'static, Result<Rows, String>> + Send + Sync>;

/// Nothing where the rows are the same: the guard, the window and the interval change no tenant.
pub async fn warnings(all: &Definitions, old: &Value, new: &Value) -> Vec<String> {
    let spec = |hub: &Value| serde_json::from_value::<HubSpec>(hub["spec"].clone()).ok();
    let (Some(before), Some(after)) = (spec(old), spec(new)) else {
        return vec![];
    };
    if rows_hash(&before) == rows_hash(&after) {
        return vec![];
    }
    let text = |field: &str| new["metadata"][field].as_str().unwrap_or_default();
    let kind = ObjectKey::own("LynqNode", "", "").kind;
    let nodes = all.objects.owned(&kind, text("namespace"), text("uid"));
    let forms = forms(&all.objects, text("namespace"), text("name"));
    let found = async {
        let (nodes, forms, rows) = tokio::join!(nodes, forms, (all.rows_as)(new.clone()));
        let failed = |error: ApiError| error.to_string();
        Ok::<_, String>((nodes.map_err(failed)?, forms.map_err(failed)?, rows?))
    };
    let too_late = || Err(format!("it took more than {} s", PATIENCE.as_secs()));
    let (nodes, forms, rows) = match timeout(PATIENCE, found)
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
    let mut warnings = reach::warnings(&nodes, &rows, (&deletions, &creations));
    let render = all.turns.render().await;
    let unrendered = spawn_blocking(move || {
        let found = unrendered(&forms, &rows);
        drop(render);
        found
    });
    let unrendered = unrendered.await.unwrap_or_default();
    let first = warnings.len().min(1);
    warnings.splice(first..first, unrendered);
    warnings
}

/// The forms of a hub.
async fn forms(objects: &Objects, namespace: &str, hub: &str) -> Result<Vec<Value>, ApiError> {
    let kind = ObjectKey::own("LynqForm", namespace, "").kind;
    let mut forms = vec![];
    let each = |form: Value| forms.extend(Some(form).filter(|form| form["spec"]["hubId"] == hub));
    objects.list(&kind, namespace, each).await?;
    Ok(forms)
}

/// Of each form, what it does not render of these rows, as far as there is time.
fn unrendered(forms: &[Value], rows: &Rows) -> Vec<String> {
    let start = Instant::now();
    let go_on = || start.elapsed() < PATIENCE;
    let of_form = |form: &Value| {
        let text = |pointer: &str| {
            form.pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let name = text("/metadata/name");
        let change = form::judge(None, form, Timestamp::UNIX_EPOCH).change?;
        let place = (text("/metadata/namespace"), text("/spec/hubId"), name);
        trial::of(&change, rows, place, None, &go_on).unrendered(name)
    };
    forms.iter().filter_map(of_form).collect()
}
