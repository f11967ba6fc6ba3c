//! Writes the revisions that `decide::rollout::history` asks for, and sets a failed form back to one.

use kube::api::ListParams;
use serde_json::json;

use crate::api::events::EventReason;
use crate::api::form::{FormSpec, FormStatus};
use crate::api::names;
use crate::cluster::catalog::Form;
use crate::cluster::clock;
use crate::cluster::events::About;
use crate::cluster::objects::ApiError;
use crate::controller::rollout::RolloutReconciler;
use crate::decide::child::ObjectKey;
use crate::decide::node::plan::recreate::Dependents;
use crate::decide::rollout::history::{self, Recorded, Reverted, Revision};

impl RolloutReconciler<'_> {
    /// Writes the revisions that a status names, before the status is written.
    pub async fn record(&self, form: &Form, status: &FormStatus) -> Result<(), ApiError> {
        let (before, objects) = (&form.status, &self.world.objects);
        if let Ok(spec) = &form.spec
            && status.update_revision != before.update_revision
        {
            self.record_update(form, spec, status).await?;
        }
        if let Some(current) = &status.current_revision
            && status.current_revision != before.current_revision
        {
            let key = history::key(&form.namespace, current);
            let patch = history::completed(clock::now());
            let marked = objects.merge(&key, &patch);
            // Somebody has deleted it: nobody can go back to it.
            match marked.await {
                Ok(_) | Err(ApiError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn record_update(
        &self,
        form: &Form,
        spec: &FormSpec,
        status: &FormStatus,
    ) -> Result<(), ApiError> {
        let objects = &self.world.objects;
        let name = status.update_revision.as_deref().unwrap_or_default();
        let key = history::key(&form.namespace, name);
        let (mut there, mut uids) = (vec![], vec![]);
        let params = ListParams::default().labels(&history::selector(&form.uid));
        let list = objects.list_selected(&key.kind, &form.namespace, params, |object| {
            there.push(Revision::of(&object));
            uids.push(object["metadata"]["uid"].as_str().map(str::to_owned));
        });
        list.await?;
        let recording = history::record(form.owner(), spec, status, &there);
        match &recording.newest {
            Recorded::There => {}
            Recorded::Create(revision) => drop(objects.create(&key, revision).await?),
            Recorded::Renumber(patch) => drop(objects.merge(&key, patch).await?),
        }
        for (revision, uid) in there.iter().zip(uids) {
            if recording.delete.contains(&revision.name) {
                let key = history::key(&form.namespace, &revision.name);
                let uid = uid.unwrap_or_default();
                objects.delete(&key, &uid, None, Dependents::Go).await?;
            }
        }
        Ok(())
    }

    /// Sets the failed form back to a revision, if nobody has changed the form meanwhile.
    pub async fn revert(&self, form: &Form, to: &str) -> Result<(), ApiError> {
        let objects = &self.world.objects;
        let revision = objects.get(&history::key(&form.namespace, to)).await?;
        let Ok(spec) = &form.spec else {
            return Ok(());
        };
        let now = serde_json::to_value(&**spec).unwrap_or_default();
        let failed = form.status.update_revision.as_deref().unwrap_or_default();
        let reverted = Reverted {
            from: failed,
            to: Some(to),
        };
        let mut patch = history::set_back(&now, &Revision::of(&revision).content);
        patch["metadata"] = json!({
            "resourceVersion": form.resource_version,
            "annotations": {names::REVERTED: reverted.to_string()},
        });
        let key = ObjectKey::own("LynqForm", &form.namespace, &form.name);
        self.world.forms.learn(&objects.merge(&key, &patch).await?);
        let about = About::new("LynqForm", &form.namespace, &form.name, &form.uid);
        let name = &form.name;
        let text = format!(
            "rollout.onFailure is Revert: lynqgate set the form back from revision {failed}, whose rollout failed, to {to}, which was \
             complete last; failed nodes get it first. See both: lynqgate history {name}. Next: {}. If you apply {failed} again and it \
             fails again, the rollout halts",
            history::after_revert(name)
        );
        (self.world.events).tell(&about, EventReason::RolloutReverted, text);
        Ok(())
    }
}
