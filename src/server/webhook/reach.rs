//! A changed hub is tried on the rows that it would read, beside the nodes that it has and by the forms that render these rows: whoever
//! applies it is warned, and never refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use crate::api::hub::HubSpec;
use crate::api::names;
use crate::cluster::clock;
use crate::cluster::objects::{ApiError, Objects};
use crate::cluster::process;
use crate::decide::admission::form;
use crate::decide::admission::reach::{self, NodeRow};
use crate::decide::admission::trial::{self, On, Trial};
use crate::decide::child::ObjectKey;
use crate::decide::hub::rows::Rows;
use crate::decide::hub::sync::allowances;
use crate::server::webhook::definitions::{Definitions, PATIENCE};

/// The rows that a hub would read which is not stored yet; or why there are none.
pub type RowsAs = Arc<dyn Fn(Value) -> BoxFuture<'static, Result<Rows, String>> + Send + Sync>;

/// Or why the rows could not be read.
pub async fn warnings(all: &Definitions, old: &Value, new: &Value) -> Result<Vec<String>, String> {
    let after = HubSpec::deserialize(&new["spec"]).map_err(|error| error.to_string())?;
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
    let found = timeout(PATIENCE, found).await;
    let (nodes, forms, rows) = found.unwrap_or_else(|_| too_late())?;
    // One process has one connection to a hub's database at a time.
    let before = timeout(PATIENCE / 2, (all.rows_as)(old.clone())).await;
    let before = before.unwrap_or_else(|_| Err("they did not come in time".to_owned()));
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
    let render = all.turns.render().await;
    let unread = before.as_ref().err().map(|why| {
        format!("which data goes is not known, for the rows as they were could not be read: {why}")
    });
    let rows = Arc::new(rows);
    let of_trial = rows.clone();
    let tried = process::beside(move || {
        let found = tried(&forms, &of_trial, before.as_ref().ok());
        drop(render);
        found
    });
    let Tried { told, changed } = tried.await.unwrap_or_default();
    let of_guard = (&deletions, &creations);
    let mut warnings = reach::warnings(&nodes, &rows, changed.as_ref(), of_guard);
    let first = warnings.len().min(1);
    warnings.splice(first..first, told);
    warnings.extend(unread);
    Ok(warnings)
}

/// What becomes of the nodes with the rows of a changed hub.
#[derive(Default)]
struct Tried {
    told: Vec<String>,
    /// The rows that a form renders to another content; None if that is not known of all rows and forms.
    changed: Option<BTreeSet<String>>,
}

/// The forms of a hub.
async fn forms(objects: &Objects, namespace: &str, hub: &str) -> Result<Vec<Value>, ApiError> {
    let kind = ObjectKey::own("LynqForm", namespace, "").kind;
    let mut forms = vec![];
    let each = |form: Value| forms.extend(Some(form).filter(|form| form["spec"]["hubId"] == hub));
    objects.list(&kind, namespace, each).await?;
    Ok(forms)
}

/// Tries each form on these rows, as far as there is time.
fn tried(forms: &[Value], rows: &Rows, before: Option<&Rows>) -> Tried {
    let on = On {
        before,
        ..On::rows(rows)
    };
    let start = clock::instant();
    let go_on = || start.elapsed() < PATIENCE;
    let mut tried = Tried {
        told: vec![],
        changed: before.map(|_| BTreeSet::new()),
    };
    for form in forms {
        let text = |pointer: &str| {
            form.pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let name = text("/metadata/name");
        let judged = form::judge(None, form, Timestamp::UNIX_EPOCH);
        let trial = judged.change.map(|mut change| {
            change.old = before.map(|_| change.new.clone());
            let place = (text("/metadata/namespace"), text("/spec/hubId"), name);
            trial::of(&change, &on, place, &go_on)
        });
        let told = trial.as_ref().map(|trial| trial.of_hub(name));
        tried.told.extend(told.into_iter().flatten());
        let changed = trial.and_then(Trial::into_changed_rows);
        tried.changed = tried.changed.zip(changed).map(|(mut all, mut of_form)| {
            all.append(&mut of_form);
            all
        });
    }
    tried
}
