//! The webhooks of forms and hubs in every process, and people who ask them about what they write, and about what they had better
//! not write and never do. Whatever the answer, they go on as they would have, as after `kubectl apply --dry-run=server`.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use lynqgate::api::names;
use lynqgate::cli::webhooks;
use lynqgate::cluster::process;
use lynqgate::controller::World as Operator;
use lynqgate::server::webhook::authors::Authors;
use lynqgate::server::webhook::{Metrics, definitions};
use lynqgate_plants::Plant;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant, timeout};
use tower::ServiceExt;

use crate::api::requests::Call;
use crate::api::store::{FORM, HUB, KINDS, OWN_ACCESS_REVIEW, Object};
use crate::life::Life;
use crate::random::Random;
use crate::settings::Fault;
use crate::world::{NAMESPACE, OPERATOR, Refusing, Shared, TENANTS, World, lock};

/// How long the API server waits.
const PATIENCE: Duration = Duration::from_secs(10);
/// She may do nothing.
const MALLORY: &str = "mallory";

tokio::task_local! {
    static REVIEW: ();
}

/// Whether what is going on is a review.
pub fn is_one() -> bool {
    REVIEW.try_with(|()| ()).is_ok()
}

pub struct Reviews {
    random: Random,
    /// What nobody has been asked about yet.
    waiting: Vec<Review>,
}

impl Reviews {
    pub fn new(random: Random) -> Self {
        let waiting = vec![];
        Reviews { random, waiting }
    }
}

/// What a review must come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Nothing is wrong with it.
    Good,
    /// It makes nothing for any row: it is denied, or could not be tried.
    Bad,
    Denied,
    /// It is denied, or something is said of it.
    Warned,
    Any,
}
use Expected::{Any, Bad, Denied, Good, Warned};

struct Review {
    what: &'static str,
    kind: usize,
    expected: Expected,
    user: &'static str,
    /// The object before, and as it would be; null where there is none.
    old: Value,
    new: Value,
}

/// What people ask about, and never write: of an object as it is, and as it would be, what they would change.
type Tried = (&'static str, usize, Expected, fn(&mut Value, &mut Value));
const TRIED: [Tried; 27] = [
    ("has another image", FORM, Good, |_, form| {
        image(form, "v0-good for {{ .uid }}");
    }),
    ("is merged", FORM, Good, |_, form| {
        app(form)["patchStrategy"] = "merge".into();
        image(form, "v0-good for {{ .uid }}");
    }),
    ("is replaced", FORM, Good, |_, form| {
        app(form)["patchStrategy"] = "replace".into();
        app(form)["ignoreFields"] = json!(["$.spec.replicas"]);
    }),
    ("is made once", FORM, Good, |_, form| {
        app(form)["creationPolicy"] = "Once".into();
    }),
    ("takes objects over", FORM, Good, |_, form| {
        app(form)["conflictPolicy"] = "Force".into();
        image(form, "v0-good for {{ .uid }}");
    }),
    ("says no replicas", FORM, Good, |_, form| {
        let spec = app(form)["spec"]["spec"].as_object_mut();
        spec.map(|spec| spec.remove("replicas"));
    }),
    ("has another id", FORM, Good, |_, form| {
        app(form)["id"] = "renamed".into()
    }),
    ("has other names", FORM, Good, |_, form| {
        app(form)["nameTemplate"] = "{{ .uid }}-renamed".into();
    }),
    ("makes something else", FORM, Good, |_, form| {
        form["spec"]["deployments"] = json!([]);
        form["spec"]["configMaps"] = json!([{
            "id": "settings", "nameTemplate": "{{ .uid }}-settings",
            "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"of": "{{ .uid }}"}},
        }]);
    }),
    ("goes elsewhere", FORM, Good, |_, form| {
        app(form)["targetNamespace"] = "elsewhere".into();
    }),
    (
        "has another selector, and is recreated",
        FORM,
        Good,
        |_, form| {
            app(form)["onImmutable"] = "Recreate".into();
            app(form)["conflictPolicy"] = "Force".into();
            app(form)["spec"]["spec"]["selector"] = json!({"matchLabels": {"of": "all"}});
        },
    ),
    ("has another selector", FORM, Any, |_, form| {
        app(form)["spec"]["spec"]["selector"] = json!({"matchLabels": {"of": "all"}});
    }),
    ("makes its namespace", FORM, Good, |_, form| {
        app(form)["targetNamespace"] = "{{ .uid }}-own".into();
        form["spec"]["namespaces"] = json!([{
            "id": "own", "nameTemplate": "{{ .uid }}-own", "spec": {"apiVersion": "v1", "kind": "Namespace"},
        }]);
    }),
    ("had claims", FORM, Any, |old, form| {
        old["spec"]["persistentVolumeClaims"] = json!([{
            "id": "data", "nameTemplate": "{{ .uid }}-data", "spec": {"apiVersion": "v1", "kind": "PersistentVolumeClaim"},
        }]);
        image(form, "v0-good for {{ .uid }}");
    }),
    ("had Pods", FORM, Any, |old, _| {
        old["spec"]["manifests"] = json!([{
            "id": "pod", "nameTemplate": "{{ .uid }}-pod", "spec": {"apiVersion": "v1", "kind": "Pod"},
        }]);
    }),
    ("brings a kind", FORM, Any, |_, form| {
        let names = json!({"kind": "Shop", "plural": "shops"});
        let version = json!({"name": "v1", "served": true, "storage": true});
        form["spec"]["manifests"] = json!([
            {"id": "kind", "nameTemplate": "shops.example.com", "spec": {
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "spec": {"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]},
            }},
            {"id": "shop", "nameTemplate": "{{ .uid }}", "spec": {"apiVersion": "example.com/v1", "kind": "Shop"}},
        ]);
    }),
    ("fails", FORM, Bad, |_, form| {
        image(form, "{{ fail \"on purpose\" }}")
    }),
    ("is of no kind", FORM, Bad, |_, form| {
        app(form)["spec"]["kind"] = "Deploymnet".into();
    }),
    ("has names that are none", FORM, Bad, |_, form| {
        app(form)["nameTemplate"] = "{{ .uid }}_".into();
    }),
    ("has less than no replicas", FORM, Bad, |_, form| {
        app(form)["conflictPolicy"] = "Force".into();
        app(form)["spec"]["spec"]["replicas"] = json!(-1);
    }),
    (
        "goes elsewhere with less than no replicas",
        FORM,
        Bad,
        |_, form| {
            app(form)["targetNamespace"] = "elsewhere".into();
            app(form)["spec"]["spec"]["replicas"] = json!(-1);
        },
    ),
    ("has metadata of no kind", FORM, Bad, |_, form| {
        app(form)["spec"]["metadata"] = json!({"lables": {}});
    }),
    ("names no hub", FORM, Denied, |_, form| {
        form["spec"]["hubId"] = "".into()
    }),
    ("reads a column that is not there", HUB, Warned, |_, hub| {
        hub["spec"]["valueMappings"]["uid"] = "nobody".into();
    }),
    ("reads another ConfigMap", HUB, Warned, |_, hub| {
        hub["spec"]["source"]["configMap"]["name"] = "nothing".into();
    }),
    ("has no active rows", HUB, Any, |_, hub| {
        hub["spec"]["valueMappings"]["activate"] = "id".into();
    }),
    (
        "has its rows at a link-local address",
        HUB,
        Denied,
        |_, hub| {
            let mysql = json!({"host": "169.254.1.1", "database": "shop", "username": "lynq", "table": "tenants"});
            hub["spec"]["source"] = json!({"type": "mysql", "mysql": mysql});
        },
    ),
];

fn app(form: &mut Value) -> &mut Value {
    &mut form["spec"]["deployments"][0]
}

fn image(form: &mut Value, image: &str) {
    app(form)["spec"]["spec"]["image"] = image.into();
}

/// The webhooks of a process, as `lynqgate run` has them.
pub fn webhooks(shared: &Shared, operator: &Arc<Operator>, registry: &mut Registry) -> Router {
    let authors = Authors {
        operator: OPERATOR.to_owned(),
        objects: operator.objects.clone(),
        enforce: true,
    };
    let metrics = Metrics::register(registry);
    let mut all = webhooks::definitions(operator, Some(authors), metrics, false);
    if lock(shared).planted(Plant::TrialUnasked) {
        all.try_on_server = Arc::new(|_, trial, _| Box::pin(async move { trial }));
    }
    definitions::router(all)
}

/// What the API server says to who asks whether somebody may do something. Where it forbids the operator something, it says so.
pub fn access(world: &World, call: &Call) -> Arc<Object> {
    let forbids = |refusing: &Refusing| refusing.answer.0 == 403 && refusing.until > Instant::now();
    let may = match call.kind {
        OWN_ACCESS_REVIEW => !world.refusing.as_ref().is_some_and(forbids),
        _ => call.body["spec"]["user"] != MALLORY,
    };
    let mut review = call.body.clone();
    review["status"]["allowed"] = may.into();
    Object::new(review)
}

/// Somebody has written a form or a hub: nothing is wrong with it.
pub fn written(world: &mut World, kind: usize, old: Option<&Object>, new: &Object) {
    if [FORM, HUB].contains(&kind) && world.settings.faults.contains(&Fault::Reviews) {
        world.reviews.waiting.push(Review {
            what: "is written",
            kind,
            expected: Good,
            user: "alice",
            old: old.map(|old| old.value.clone()).unwrap_or_default(),
            new: new.value.clone(),
        });
    }
}

/// Now and then somebody asks about something.
pub fn act(world: &mut World) {
    if world.has(Fault::Reviews) && world.reviews.random.below(15) == 0 {
        let tried = *world.reviews.random.pick(&TRIED);
        ask(world, tried);
    }
}

/// Somebody asks about everything.
pub fn ask_all(world: &mut World) {
    if world.settings.faults.contains(&Fault::Reviews) {
        TRIED.into_iter().for_each(|tried| ask(world, tried));
        if let Some(hub) = world.get(HUB, TENANTS) {
            world.reviews.waiting.push(Review {
                what: "is deleted",
                kind: HUB,
                expected: Any,
                user: "alice",
                old: hub.value.clone(),
                new: Value::Null,
            });
        }
    }
}

fn ask(world: &mut World, (what, kind, expected, change): Tried) {
    world.count(Fault::Reviews);
    let names = world.names(kind);
    if names.is_empty() {
        return;
    }
    let random = &mut world.reviews.random;
    let name = random.pick(&names).clone();
    // What another form makes already cannot be tried for a copy: not where each answer is to be whole.
    let is_copy = random.permille(150) && world.faults_on;
    let is_mallory = random.permille(100);
    let old = world.get(kind, &name).expect("it is there");
    let (mut old, mut new) = (old.value.clone(), old.value.clone());
    change(&mut old, &mut new);
    if kind == FORM && is_copy {
        new["metadata"] = json!({"name": "copy", "namespace": NAMESPACE});
        new["status"].take();
        old.take();
    }
    let is_mallory = kind == FORM && is_mallory;
    world.reviews.waiting.push(Review {
        what,
        kind,
        expected: if is_mallory { Denied } else { expected },
        user: if is_mallory { MALLORY } else { "alice" },
        old,
        new,
    });
}

/// Processes are asked about all that waits.
pub fn send(shared: &Shared) {
    let mut world = lock(shared);
    let waiting = std::mem::take(&mut world.reviews.waiting);
    for review in waiting {
        let serving = |replica: usize| {
            let replica = &world.replicas[replica];
            let life = replica.life.clone().filter(|life| !life.is_dead())?;
            Some((life, replica.webhooks.clone()?))
        };
        let all: Vec<_> = (0..2).filter_map(serving).collect();
        if !all.is_empty() {
            let (life, webhooks) = world.reviews.random.pick(&all).clone();
            tokio::spawn(answered(shared.clone(), life, webhooks, review));
        }
    }
}

async fn answered(shared: Shared, life: Arc<Life>, webhooks: Router, review: Review) {
    let start = Instant::now();
    let is_calm = !lock(&shared).faults_on;
    let (sender, answer) = oneshot::channel();
    let request = review.request();
    let asked = REVIEW.scope((), async move {
        let Ok(reply) = webhooks.oneshot(request).await;
        let status = reply.status();
        let body = reply.into_body().collect().await;
        let body = body.expect("a whole body").to_bytes();
        // Who waits no longer has said so.
        let _ = sender.send((status, serde_json::from_slice(&body).unwrap_or_default()));
    });
    tokio::spawn(process::within(life.clone(), Box::pin(asked)));
    let answer = timeout(PATIENCE, answer).await;
    let mut world = lock(&shared);
    match answer {
        Ok(Ok((status, answer))) => review.judge(&mut world, &life, is_calm, status, &answer),
        _ if life.is_dead() || life.was_frozen_since(start) => {}
        _ => {
            let text = || format!("{} is not answered", review.shown());
            world.witness.fail("answer", text);
        }
    }
}

impl Review {
    fn shown(&self) -> String {
        let object = if self.new.is_null() {
            &self.old
        } else {
            &self.new
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let (kind, user, what) = (KINDS[self.kind].kind, self.user, self.what);
        format!("whether {user}'s {kind} {name}, which {what}, is good")
    }

    fn request(&self) -> Request<Body> {
        let operation = match (self.old.is_null(), self.new.is_null()) {
            (true, _) => "CREATE",
            (_, true) => "DELETE",
            _ => "UPDATE",
        };
        let path = match self.kind {
            FORM => names::VALIDATE_FORM_PATH,
            _ => names::VALIDATE_HUB_PATH,
        };
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "asked", "operation": operation, "userInfo": {"username": self.user}, "object": self.new,
                "oldObject": self.old,
            },
        });
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(Body::from(review.to_string()));
        request.expect("a request")
    }

    fn judge(
        &self,
        world: &mut World,
        life: &Life,
        is_calm: bool,
        status: StatusCode,
        answer: &Value,
    ) {
        let response = &answer["response"];
        let why = response["status"]["message"].as_str().unwrap_or_default();
        let warnings: Vec<&str> = response["warnings"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        world.trace(|| {
            let (replica, boot) = (life.replica, life.boot);
            let allowed = &response["allowed"];
            format!(
                "operator {replica}.{boot} is asked {}: {status}, {allowed} {why} {warnings:?}",
                self.shown()
            )
        });
        let is_told = |what: &str| warnings.iter().any(|warning| warning.contains(what));
        let has_rows = world.rows.values().any(|active| *active);
        let is_untried = is_told("not tried") || is_told("cannot be applied now");
        let holds = match (self.expected, response["allowed"].as_bool()) {
            (_, None) => false,
            (Good, Some(false)) => !is_calm && why.starts_with("whether you may do what"),
            (Bad, Some(true)) => is_untried && !(is_calm && has_rows),
            (Denied, Some(allowed)) => !allowed,
            (Warned, Some(true)) => !warnings.is_empty(),
            _ => true,
        };
        if !holds || status != StatusCode::OK {
            let text = || format!("{}: {status} {answer}", self.shown());
            world.witness.fail("answer", text);
        }
    }
}
