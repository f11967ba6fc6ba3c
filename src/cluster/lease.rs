//! Carries out leader election on coordination.k8s.io Leases, one for each shard.

use serde_json::{Value, json};
use tokio::time::{Duration, sleep, timeout};

use crate::api::names;
use crate::cluster::clock::{self, Instant};
use crate::cluster::objects::{ApiError, Objects};
use crate::cluster::vital;
use crate::decide::child::{Kind, ObjectKey};
use crate::decide::operator::election::{
    LEASE, LeaderCandidate, Lease, RENEW_DEADLINE, RETRY, Step, step,
};
use crate::decide::operator::shards::{Act, ShardLease, act};

/// Is notified which shards this process leads.
pub trait Leader: Sync {
    /// This process leads the shard from now on.
    fn take(&self, shard: usize);
    /// Another replica asked for the shard: start no more work on it.
    fn leave(&self, shard: usize);
    /// Whether all that was under way of a shard that was left has ended.
    fn has_left(&self, shard: usize) -> bool;
}

/// This process as a candidate for all shards.
pub struct Election {
    objects: Objects,
    me: String,
    shards: Vec<Candidacy>,
}

struct Candidacy {
    key: ObjectKey,
    candidate: LeaderCandidate,
    /// When the last renewal was sent; None while another leads the shard.
    renewed: Option<Instant>,
    /// The replica that gets the shard once this process has left it.
    successor: Option<String>,
    /// The holder for which this process has logged that its number of shards differs.
    disagrees: Option<String>,
}

/// Another replica leads what this process believed to lead.
struct Lost;

/// The pause before taking the next shard, so that replicas that start at the same time each get their share.
const TAKE_NEXT: Duration = Duration::from_millis(500);

pub fn lease_key(namespace: &str, shard: usize) -> ObjectKey {
    ObjectKey {
        kind: Kind {
            api_version: "coordination.k8s.io/v1".into(),
            kind: "Lease".into(),
        }
        .into(),
        namespace: namespace.into(),
        name: match shard {
            0 => names::LEADER_LEASE.to_owned(),
            _ => format!("{}-{shard}", names::LEADER_LEASE),
        },
    }
}

impl Election {
    pub fn new(objects: Objects, namespace: &str, shards: usize, me: String) -> Self {
        let candidacy = |shard| Candidacy {
            key: lease_key(namespace, shard),
            candidate: LeaderCandidate::default(),
            renewed: None,
            successor: None,
            disagrees: None,
        };
        Election {
            objects,
            me,
            shards: (0..shards).map(candidacy).collect(),
        }
    }

    /// Takes shards, renews their leases and hands shards over; returns when this process must not lead any more.
    pub async fn run(&mut self, leader: &impl Leader) {
        loop {
            let again = match self.renewed() {
                None => self.turn(leader).await,
                Some(renewed) => {
                    let left = (RENEW_DEADLINE.unsigned_abs()).saturating_sub(renewed.elapsed());
                    let turn = timeout(left, self.turn(leader)).await;
                    turn.unwrap_or(Ok(Duration::ZERO))
                }
            };
            let is_late = |at: Instant| at.elapsed() >= RENEW_DEADLINE.unsigned_abs();
            let Ok(again) = again else { return };
            if self.renewed().is_some_and(is_late) {
                return;
            }
            sleep(again).await;
        }
    }

    /// Releases the leases, so that other replicas need not wait until they expire.
    pub async fn release(&mut self) {
        for shard in 0..self.shards.len() {
            if let Ok(Some(lease)) = self.read(shard).await
                && lease.holder == self.me
            {
                let spec = json!({"holderIdentity": "", "leaseDurationSeconds": 1});
                if let Err(error) = self.write(shard, &lease, spec, None).await {
                    let lease = &self.shards[shard].key;
                    tracing::warn!(%lease, %error, "the lease could not be given up; it ends by itself");
                }
            }
        }
    }

    /// The renewal of the lease that ends first.
    fn renewed(&self) -> Option<Instant> {
        self.shards.iter().filter_map(|shard| shard.renewed).min()
    }

    /// Reads every lease once, and returns the time until the next turn.
    async fn turn(&mut self, leader: &impl Leader) -> Result<Duration, Lost> {
        let (mut seen, mut views) = (vec![], vec![]);
        let mut failed = false;
        for shard in 0..self.shards.len() {
            match self.look(shard, leader).await {
                Ok((lease, view)) => {
                    seen.push(lease);
                    views.push(view);
                }
                Err(Failed::Lost) => return Err(Lost),
                Err(Failed::Api(error)) => {
                    let lease = &self.shards[shard].key;
                    tracing::warn!(%lease, %error, "the lease could not be read or renewed");
                    failed = true;
                }
            }
        }
        if failed {
            // Without every lease, the shards cannot be divided.
            return Ok(RETRY.unsigned_abs());
        }
        match act(&self.me, &views) {
            None => {}
            Some(Act::Take(shard)) => {
                self.take(shard, seen[shard].as_ref(), leader).await;
                if views.len() > 1 {
                    return Ok(TAKE_NEXT);
                }
            }
            Some(Act::Ask(shard)) => {
                if let Some(lease) = &seen[shard] {
                    let asked = self.write(shard, lease, json!({}), Some(&self.me)).await;
                    let lease = &self.shards[shard].key;
                    tracing::info!(%lease, holder = views[shard].holder, good = asked.is_ok(), "asking for the shard");
                }
            }
            Some(Act::HandOver { shard, to }) => {
                let candidacy = &mut self.shards[shard];
                if candidacy.successor.is_none() {
                    tracing::info!(lease = %candidacy.key, to, "another replica asks for the shard; leaving it");
                    candidacy.successor = Some(to);
                    leader.leave(shard);
                }
            }
        }
        Ok(self.next_look(&seen))
    }

    /// The time until the next turn. It ends when the lease of another replica expires, because nobody works on that shard then.
    fn next_look(&self, seen: &[Option<Lease>]) -> Duration {
        let now = clock::now();
        let others = self.shards.iter().zip(seen);
        let others = others.filter(|(shard, _)| shard.renewed.is_none());
        let left = others.filter_map(|(shard, lease)| {
            let runs_out = shard.candidate.runs_out(lease.as_ref()?)?;
            Some(runs_out.duration_since(now)).filter(|left| left.is_positive())
        });
        left.chain([RETRY]).min().unwrap_or(RETRY).unsigned_abs()
    }

    /// Reads a lease, and renews it if this process holds it. Returns the lease as read, and its holder now.
    async fn look(
        &mut self,
        shard: usize,
        leader: &impl Leader,
    ) -> Result<(Option<Lease>, ShardLease), Failed> {
        let lease = self.read(shard).await?;
        if let Some(lease) = &lease {
            self.compare_shards(shard, lease);
        }
        let of_shard = &mut self.shards[shard];
        let next = step(
            &self.me,
            lease.as_ref(),
            &mut of_shard.candidate,
            clock::now(),
        );
        let (holder, wanted_by) = match &lease {
            Some(lease) => (lease.holder.clone(), lease.wanted_by.clone()),
            None => Default::default(),
        };
        let view = |holder| ShardLease { holder, wanted_by };
        match next {
            Step::StartAnew => start_anew(),
            Step::Wait if of_shard.renewed.is_some() => Err(Failed::Lost),
            Step::Wait => Ok((lease, view(holder))),
            // The shard is free, and `act` decides who takes it; a process that led it before takes it back at once, below.
            Step::Create | Step::TakeOver if of_shard.renewed.is_none() => {
                Ok((lease, view(String::new())))
            }
            Step::Create | Step::TakeOver => {
                self.take(shard, lease.as_ref(), leader).await;
                Ok((lease, view(self.me.clone())))
            }
            Step::Renew => {
                let lease = lease.expect("a lease that is renewed was read");
                let successor = of_shard.successor.clone();
                if let Some(to) = successor.filter(|_| leader.has_left(shard)) {
                    self.hand_over(shard, &lease, &to).await?;
                    return Ok((Some(lease), view(to)));
                }
                let sent = clock::instant();
                let spec = held(&self.me);
                match self.write(shard, &lease, spec, None).await {
                    Ok(written) => self.holds(shard, &written, sent, leader),
                    // Another replica asked for the shard at the same moment.
                    Err(ApiError::Conflict(_)) => {}
                    Err(error) => return Err(error.into()),
                }
                Ok((Some(lease), view(self.me.clone())))
            }
        }
    }

    /// Warns if the holder divides the hubs into another number of shards: then some hubs have two leaders, and others none.
    fn compare_shards(&mut self, shard: usize, lease: &Lease) {
        let shards = self.shards.len();
        let candidacy = &mut self.shards[shard];
        let is_other = lease.shards != shards && ![&self.me, ""].contains(&lease.holder.as_str());
        let disagrees = is_other.then(|| lease.holder.clone());
        if candidacy.disagrees != disagrees
            && let Some(holder) = &disagrees
        {
            let (lease, theirs) = (&candidacy.key, lease.shards);
            tracing::warn!(
                %lease, holder, theirs, shards,
                "another replica has another --shards: some hubs have two leaders, others none, until all replicas have the same; see \
                 kubectl rollout status"
            );
        }
        candidacy.disagrees = disagrees;
    }

    async fn take(&mut self, shard: usize, lease: Option<&Lease>, leader: &impl Leader) {
        let sent = clock::instant();
        let mut spec = held(&self.me);
        spec["acquireTime"] = spec["renewTime"].clone();
        spec["leaseTransitions"] = lease.map_or(0, |lease| lease.transitions + 1).into();
        let written = match lease {
            Some(lease) => self.write(shard, lease, spec, Some("")).await,
            None => self.create(shard, spec).await,
        };
        match written {
            Ok(written) => self.holds(shard, &written, sent, leader),
            // Another was faster.
            Err(ApiError::Conflict(_)) => {}
            Err(error) => {
                let lease = &self.shards[shard].key;
                tracing::warn!(%lease, %error, "the lease could not be taken");
            }
        }
    }

    async fn hand_over(&mut self, shard: usize, lease: &Lease, to: &str) -> Result<(), ApiError> {
        let mut spec = held(to);
        spec["acquireTime"] = spec["renewTime"].clone();
        spec["leaseTransitions"] = (lease.transitions + 1).into();
        self.write(shard, lease, spec, Some("")).await?;
        let of_shard = &mut self.shards[shard];
        (of_shard.renewed, of_shard.successor) = (None, None);
        tracing::info!(lease = %of_shard.key, to, "handed the shard over");
        Ok(())
    }

    /// A write made, or left, this process the holder.
    fn holds(&mut self, shard: usize, written: &Value, sent: Instant, leader: &impl Leader) {
        let of_shard = &mut self.shards[shard];
        let written = lease_of(written);
        if !of_shard.candidate.note_written(&written, clock::now()) {
            start_anew();
        }
        if of_shard.renewed.replace(sent).is_none() {
            leader.take(shard);
        }
    }

    async fn create(&self, shard: usize, spec: Value) -> Result<Value, ApiError> {
        let key = &self.shards[shard].key;
        let shards = self.shards.len().to_string();
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": key.name, "namespace": key.namespace, "annotations": {names::SHARDS: shards}},
            "spec": spec,
        });
        self.objects.create(key, &object).await
    }

    /// Writes over this version. `wanted_by`: empty removes the annotation.
    async fn write(
        &self,
        shard: usize,
        lease: &Lease,
        spec: Value,
        wanted_by: Option<&str>,
    ) -> Result<Value, ApiError> {
        let mut annotations = json!({});
        if spec["holderIdentity"]
            .as_str()
            .is_some_and(|holder| !holder.is_empty())
        {
            annotations[names::SHARDS] = self.shards.len().to_string().into();
        }
        if let Some(who) = wanted_by {
            annotations[names::WANTED_BY] = (!who.is_empty()).then_some(who).into();
        }
        let patch = json!({"metadata": {"resourceVersion": lease.resource_version, "annotations": annotations}, "spec": spec});
        self.objects.merge(&self.shards[shard].key, &patch).await
    }

    async fn read(&self, shard: usize) -> Result<Option<Lease>, ApiError> {
        match self.objects.get(&self.shards[shard].key).await {
            Ok(object) => Ok(Some(lease_of(&object))),
            Err(ApiError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

enum Failed {
    Lost,
    Api(ApiError),
}

impl From<ApiError> for Failed {
    fn from(error: ApiError) -> Self {
        Failed::Api(error)
    }
}

/// The number of shards into which the lease's holder divides the work.
pub fn shards_of(lease: &Value) -> usize {
    let shards = lease["metadata"]["annotations"][names::SHARDS].as_str();
    shards.and_then(|text| text.parse().ok()).unwrap_or(1)
}

pub fn lease_of(object: &Value) -> Lease {
    let (metadata, spec) = (&object["metadata"], &object["spec"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |field: &str| spec[field].as_i64().unwrap_or_default() as i32;
    Lease {
        uid: text(&metadata["uid"]),
        holder: text(&spec["holderIdentity"]),
        resource_version: text(&metadata["resourceVersion"]),
        renewed: text(&spec["renewTime"]),
        transitions: number("leaseTransitions"),
        duration_seconds: number("leaseDurationSeconds"),
        wanted_by: text(&metadata["annotations"][names::WANTED_BY]),
        shards: shards_of(object),
    }
}

/// The spec of a lease that is renewed now.
fn held(holder: &str) -> Value {
    let now = clock::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    json!({"holderIdentity": holder, "leaseDurationSeconds": LEASE.as_secs(), "renewTime": now})
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
