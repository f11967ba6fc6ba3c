//! Carries out leader election on a coordination.k8s.io Lease.

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::cluster::clock;
use crate::cluster::objects::{ApiError, Objects};
use crate::cluster::vital;
use crate::decide::child::{Kind, ObjectKey};
use crate::decide::operator::election::{
    LEASE, LeaderCandidate, Lease, RENEW_DEADLINE, RETRY, Step, step,
};

/// A candidate for one lease.
pub struct Election {
    objects: Objects,
    key: ObjectKey,
    me: String,
    candidate: LeaderCandidate,
}

impl Election {
    pub fn new(objects: Objects, namespace: &str, name: &str, me: String) -> Self {
        let kind = Kind {
            api_version: "coordination.k8s.io/v1".into(),
            kind: "Lease".into(),
        };
        let key = ObjectKey {
            kind,
            namespace: namespace.into(),
            name: name.into(),
        };
        Election {
            objects,
            key,
            me,
            candidate: LeaderCandidate::default(),
        }
    }

    /// Returns once this process leads.
    pub async fn acquire(&mut self) {
        loop {
            match self.look().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(lease = %self.key, %error, "cannot take part in the leader election")
                }
            }
            sleep(RETRY.unsigned_abs()).await;
        }
    }

    /// Renews; returns when this process must not lead any more.
    pub async fn hold(&mut self) {
        let mut renewed = clock::instant();
        loop {
            sleep(RETRY.unsigned_abs()).await;
            let left = RENEW_DEADLINE
                .unsigned_abs()
                .saturating_sub(renewed.elapsed());
            let sent = clock::instant();
            match tokio::time::timeout(left, self.look()).await {
                Ok(Ok(true)) => renewed = sent,
                Ok(Ok(false)) => return,
                Ok(Err(error)) => {
                    tracing::warn!(lease = %self.key, %error, "the lease could not be renewed")
                }
                Err(_) => {}
            }
            if renewed.elapsed() >= RENEW_DEADLINE.unsigned_abs() {
                return;
            }
        }
    }

    /// Gives the lease up, so that another replica need not wait for its end.
    pub async fn release(&mut self) {
        let Ok(Some(lease)) = self.read().await else {
            return;
        };
        if lease.holder == self.me {
            let patch = json!({"metadata": {"resourceVersion": lease.resource_version}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}});
            if let Err(error) = self.objects.merge(&self.key, &patch).await {
                tracing::warn!(lease = %self.key, %error, "the lease could not be given up; it ends by itself");
            }
        }
    }

    /// One look at the lease; true while this process leads.
    async fn look(&mut self) -> Result<bool, ApiError> {
        let lease = self.read().await?;
        let next = step(&self.me, lease.as_ref(), &mut self.candidate, clock::now());
        let now = clock::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let mut spec = json!({"holderIdentity": self.me, "leaseDurationSeconds": LEASE.as_secs(), "renewTime": now});
        let written = match (next, lease) {
            (Step::Wait, _) => return Ok(false),
            (Step::StartAnew, _) => start_anew(),
            (Step::Renew, Some(lease)) => self.write(&lease, spec).await,
            (Step::TakeOver, Some(lease)) => {
                spec["acquireTime"] = now.into();
                spec["leaseTransitions"] = (lease.transitions + 1).into();
                self.write(&lease, spec).await
            }
            (_, _) => {
                spec["acquireTime"] = now.into();
                spec["leaseTransitions"] = 0.into();
                let object = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self.key.name, "namespace": self.key.namespace}, "spec": spec});
                self.objects.create(&self.key, &object).await
            }
        };
        match written {
            Ok(object) => {
                let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
                let (uid, version) = (text("uid"), text("resourceVersion"));
                match self.candidate.note_written(uid, version, clock::now()) {
                    true => Ok(true),
                    false => start_anew(),
                }
            }
            Err(ApiError::Conflict(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn write(&self, lease: &Lease, spec: Value) -> Result<Value, ApiError> {
        self.objects
            .merge(
                &self.key,
                &json!({"metadata": {"resourceVersion": lease.resource_version}, "spec": spec}),
            )
            .await
    }

    async fn read(&self) -> Result<Option<Lease>, ApiError> {
        match self.objects.get(&self.key).await {
            Ok(object) => Ok(Some(Lease {
                uid: object["metadata"]["uid"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
                holder: object["spec"]["holderIdentity"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
                resource_version: object["metadata"]["resourceVersion"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
                transitions: object["spec"]["leaseTransitions"]
                    .as_i64()
                    .unwrap_or_default() as i32,
                duration_seconds: object["spec"]["leaseDurationSeconds"]
                    .as_i64()
                    .unwrap_or_default() as i32,
            })),
            Err(ApiError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn start_anew() -> ! {
    vital::end(
        "the API server's storage was restored from a backup: nothing that this process remembers is true any more",
    )
}

/// A name for this process among the candidates.
pub fn identity(host: &str) -> String {
    format!("{host}_{}", std::process::id())
}
