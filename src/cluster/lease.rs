//! Carries out leader election on coordination.k8s.io Leases, one for each shard.

use futures::future::join_all;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep, timeout};

use crate::api::names;
use crate::cluster::clock::{self, Instant};
use crate::cluster::objects::{ApiError, Objects};
use crate::cluster::vital;
use crate::decide::child::{Kind, ObjectKey};
use crate::decide::operator::election::{
    LEASE, LeaderCandidate, Lease, RENEW_DEADLINE, RETRY, Step, next_turn, step,
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
    replica: Replica,
    shards: Vec<Candidacy>,
}

/// What all candidacies of this process share.
struct Replica {
    objects: Objects,
    name: String,
    /// Into how many shards it divides the work.
    shards: usize,
}

/// This process as a candidate for one shard.
struct Candidacy {
    shard: usize,
    key: ObjectKey,
    candidate: LeaderCandidate,
    /// As it was read last; None where there is none.
    lease: Option<Lease>,
    /// When it expires, if another replica held it then.
    expires: Option<Timestamp>,
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
            shard,
            key: lease_key(namespace, shard),
            candidate: LeaderCandidate::default(),
            lease: None,
            expires: None,
            renewed: None,
            successor: None,
            disagrees: None,
        };
        Election {
            shards: (0..shards).map(candidacy).collect(),
            replica: Replica {
                objects,
                name: me,
                shards,
            },
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
        let me = &self.replica;
        for candidacy in &mut self.shards {
            if candidacy.read(me).await.is_ok()
                && (candidacy.lease.as_ref()).is_some_and(|lease| lease.holder == me.name)
            {
                let spec = json!({"holderIdentity": "", "leaseDurationSeconds": 1});
                if let Err(error) = candidacy.write(me, spec, None).await {
                    let lease = &candidacy.key;
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
        let me = &self.replica;
        // Together: a replica takes a free shard only after it has read every lease.
        let looks = self.shards.iter_mut().map(|shard| shard.look(me, leader));
        let looks = join_all(looks).await;
        let mut views = vec![];
        for (looked, candidacy) in looks.into_iter().zip(&self.shards) {
            match looked {
                Ok(view) => views.push(view),
                Err(Failed::Lost) => return Err(Lost),
                Err(Failed::Api(error)) => {
                    let lease = &candidacy.key;
                    tracing::warn!(%lease, %error, "the lease could not be read or renewed");
                }
            }
        }
        if views.len() < self.shards.len() {
            // Without every lease, the shards cannot be divided.
            return Ok(RETRY.unsigned_abs());
        }
        match act(&me.name, &views) {
            None => {}
            Some(Act::Take(shard)) => {
                self.shards[shard].take(me, leader).await;
                if views.len() > 1 {
                    return Ok(TAKE_NEXT);
                }
            }
            Some(Act::Ask(shard)) => {
                let candidacy = &self.shards[shard];
                let asked = candidacy.write(me, json!({}), Some(&me.name)).await;
                let lease = &candidacy.key;
                tracing::info!(%lease, holder = views[shard].holder, good = asked.is_ok(), "asking for the shard");
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
        let expire = self.shards.iter().filter_map(|shard| shard.expires);
        Ok(next_turn(expire, clock::now()).unsigned_abs())
    }
}

impl Candidacy {
    /// Reads the lease, and renews it if this process holds it. Returns who leads the shard now.
    async fn look(&mut self, me: &Replica, leader: &impl Leader) -> Result<ShardLease, Failed> {
        self.read(me).await?;
        self.compare_shards(me);
        let lease = self.lease.as_ref();
        let next = step(&me.name, lease, &mut self.candidate, clock::now());
        let of_other = lease.filter(|_| next == Step::Wait);
        self.expires = of_other.and_then(|lease| self.candidate.runs_out(lease));
        let (holder, wanted_by) = match lease {
            Some(lease) => (lease.holder.clone(), lease.wanted_by.clone()),
            None => Default::default(),
        };
        let view = |holder| ShardLease { holder, wanted_by };
        match next {
            Step::StartAnew => start_anew(),
            Step::Wait if self.renewed.is_some() => Err(Failed::Lost),
            Step::Wait => Ok(view(holder)),
            // The shard is free, and `act` decides who takes it; a process that led it before takes it back at once, below.
            Step::Create | Step::TakeOver if self.renewed.is_none() => Ok(view(String::new())),
            Step::Create | Step::TakeOver => {
                self.take(me, leader).await;
                Ok(view(me.name.clone()))
            }
            Step::Renew => {
                let successor = self.successor.clone();
                if let Some(to) = successor.filter(|_| leader.has_left(self.shard)) {
                    self.hand_over(me, &to).await?;
                    return Ok(view(to));
                }
                let sent = clock::instant();
                match self.write(me, held(&me.name), None).await {
                    Ok(written) => self.holds(&written, sent, leader),
                    // Another replica asked for the shard at the same moment.
                    Err(ApiError::Conflict(_)) => {}
                    Err(error) => return Err(error.into()),
                }
                Ok(view(me.name.clone()))
            }
        }
    }

    /// Warns if the holder divides the hubs into another number of shards: then some hubs have two leaders, and others none.
    fn compare_shards(&mut self, me: &Replica) {
        let Some(lease) = &self.lease else { return };
        let shards = me.shards;
        let is_other = lease.shards != shards && ![&me.name, ""].contains(&lease.holder.as_str());
        let disagrees = is_other.then(|| lease.holder.clone());
        if self.disagrees != disagrees
            && let Some(holder) = &disagrees
        {
            let (lease, theirs) = (&self.key, lease.shards);
            tracing::warn!(
                %lease, holder, theirs, shards,
                "another replica has another --shards: some hubs have two leaders, others none, until all replicas have the same; see \
                 kubectl rollout status"
            );
        }
        self.disagrees = disagrees;
    }

    async fn take(&mut self, me: &Replica, leader: &impl Leader) {
        let sent = clock::instant();
        match self.write(me, self.held_newly(&me.name), Some("")).await {
            Ok(written) => self.holds(&written, sent, leader),
            // Another was faster.
            Err(ApiError::Conflict(_)) => {}
            Err(error) => {
                tracing::warn!(lease = %self.key, %error, "the lease could not be taken");
            }
        }
    }

    async fn hand_over(&mut self, me: &Replica, to: &str) -> Result<(), ApiError> {
        self.write(me, self.held_newly(to), Some("")).await?;
        (self.renewed, self.successor) = (None, None);
        tracing::info!(lease = %self.key, to, "handed the shard over");
        Ok(())
    }

    /// The spec of the lease once another replica than before holds it.
    fn held_newly(&self, holder: &str) -> Value {
        let mut spec = held(holder);
        spec["acquireTime"] = spec["renewTime"].clone();
        let transitions = self.lease.as_ref().map_or(0, |lease| lease.transitions + 1);
        spec["leaseTransitions"] = transitions.into();
        spec
    }

    /// A write made, or left, this process the holder.
    fn holds(&mut self, written: &Value, sent: Instant, leader: &impl Leader) {
        let written = lease_of(written);
        if !self.candidate.note_written(&written, clock::now()) {
            start_anew();
        }
        if self.renewed.replace(sent).is_none() {
            leader.take(self.shard);
        }
    }

    /// Writes over the version that was read, or creates the lease. `wanted_by`: empty removes the annotation.
    async fn write(
        &self,
        me: &Replica,
        spec: Value,
        wanted_by: Option<&str>,
    ) -> Result<Value, ApiError> {
        let Some(lease) = &self.lease else {
            return self.create(me, spec).await;
        };
        let mut annotations = json!({});
        if spec["holderIdentity"]
            .as_str()
            .is_some_and(|holder| !holder.is_empty())
        {
            annotations[names::SHARDS] = me.shards.to_string().into();
        }
        if let Some(who) = wanted_by {
            annotations[names::WANTED_BY] = (!who.is_empty()).then_some(who).into();
        }
        let patch = json!({"metadata": {"resourceVersion": lease.resource_version, "annotations": annotations}, "spec": spec});
        me.objects.merge(&self.key, &patch).await
    }

    async fn create(&self, me: &Replica, spec: Value) -> Result<Value, ApiError> {
        let key = &self.key;
        let shards = me.shards.to_string();
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": key.name, "namespace": key.namespace, "annotations": {names::SHARDS: shards}},
            "spec": spec,
        });
        me.objects.create(key, &object).await
    }

    async fn read(&mut self, me: &Replica) -> Result<(), ApiError> {
        self.lease = match me.objects.get(&self.key).await {
            Ok(object) => Some(lease_of(&object)),
            Err(ApiError::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        Ok(())
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
