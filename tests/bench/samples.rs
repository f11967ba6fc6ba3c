//! What is measured: a form, rows, nodes and reviews of a given size, shaped like a tenant's web application.
//! Measures nothing itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use lynqgate::api::form::FormSpec;
use lynqgate::api::names;
use lynqgate::api::policy::{Rollout, Skew};
use lynqgate::decide::admission;
use lynqgate::decide::admission::form::Change;
use lynqgate::decide::gate;
use lynqgate::decide::gate::node::Node;
use lynqgate::decide::hub::render::{CompiledForm, RowInputs};
use lynqgate::decide::hub::rows::{Row, RowCount, Rows};
use lynqgate::decide::hub::sync::{self, Allowance, RenderSource};
use lynqgate::decide::rollout::{self, Live, Snapshot};
use serde_json::{Value, json};

/// The sizes that are looked at, in bytes of one node's content.
pub const SIZES: [(&str, usize); 2] = [("5 KB", 5_000), ("64 KB", 64_000)];
pub const OPERATOR: &str = "system:serviceaccount:lynq-system:lynq-controller-manager";
pub const USER: &str = "alice@example.com";

pub fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().expect("a time")
}

/// A form whose rendered content has about this many bytes.
pub fn form(bytes: usize) -> FormSpec {
    let length = |form: &Value| form.to_string().len();
    let one = length(&tiers(1, 0)) - length(&tiers(0, 0));
    let number = (bytes / one).max(1);
    let filler = bytes.saturating_sub(number * one) / number;
    serde_json::from_value(tiers(number, filler)).expect("a form")
}

fn tiers(number: usize, filler: usize) -> Value {
    let each = |make: fn(&str) -> Value| -> Vec<Value> {
        (0..number).map(|i| make(&format!("tier{i}"))).collect()
    };
    let mut maps = each(config_map);
    for map in &mut maps {
        map["spec"]["data"]["motd"] = json!("welcome to our \"shop\"\n".repeat(filler / 24));
    }
    json!({
        "hubId": "tenants",
        "deployments": each(deployment),
        "services": each(service),
        "ingresses": each(ingress),
        "configMaps": maps,
    })
}

fn deployment(tier: &str) -> Value {
    let variable = |i: usize| json!({"name": format!("SETTING_{i}"), "value": format!("value of setting {i}")});
    let mut environment: Vec<Value> = (0..12).map(variable).collect();
    environment.push(json!({"name": "TENANT", "value": "{{ .uid }}"}));
    environment
        .push(json!({"name": "URL", "value": "https://{{ .hostOrUrl }}/{{ .plan | lower }}"}));
    let probe = json!({"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 5, "failureThreshold": 3});
    let labels = json!({"app": "{{ .uid }}", "tier": tier});
    json!({
        "id": format!("app-{tier}"),
        "nameTemplate": format!("{{{{ .uid }}}}-{tier}"),
        "dependIds": [format!("config-{tier}")],
        "spec": {
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"labels": labels},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}, "type": "RollingUpdate"},
                "template": {
                    "metadata": {"labels": labels, "annotations": {"prometheus.io/scrape": "true"}},
                    "spec": {
                        "containers": [{
                            "name": "web",
                            "image": "registry.example.com/shop/web:{{ .image }}",
                            "args": ["--listen", ":8080", "--tenant", "{{ .uid }}"],
                            "env": environment,
                            "ports": [{"name": "http", "containerPort": 8080}],
                            "readinessProbe": probe,
                            "livenessProbe": probe,
                            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
                            "securityContext": {"allowPrivilegeEscalation": false, "runAsNonRoot": true},
                            "volumeMounts": [{"name": "config", "mountPath": "/etc/web"}],
                        }],
                        "volumes": [{"name": "config", "configMap": {"name": format!("{{{{ .uid }}}}-{tier}")}}],
                    },
                },
            },
        },
    })
}

fn service(tier: &str) -> Value {
    json!({
        "id": format!("service-{tier}"),
        "nameTemplate": format!("{{{{ .uid }}}}-{tier}"),
        "spec": {
            "apiVersion": "v1", "kind": "Service",
            "spec": {
                "selector": {"app": "{{ .uid }}", "tier": tier},
                "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
            },
        },
    })
}

fn ingress(tier: &str) -> Value {
    let backend =
        json!({"service": {"name": format!("{{{{ .uid }}}}-{tier}"), "port": {"name": "http"}}});
    json!({
        "id": format!("ingress-{tier}"),
        "nameTemplate": format!("{{{{ .uid }}}}-{tier}"),
        "dependIds": [format!("service-{tier}")],
        "spec": {
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "spec": {"rules": [{
                "host": "{{ .hostOrUrl }}",
                "http": {"paths": [{"path": format!("/{tier}"), "pathType": "Prefix", "backend": backend}]},
            }]},
        },
    })
}

fn config_map(tier: &str) -> Value {
    json!({
        "id": format!("config-{tier}"),
        "nameTemplate": format!("{{{{ .uid }}}}-{tier}"),
        "spec": {
            "apiVersion": "v1", "kind": "ConfigMap",
            "data": {
                "application.yaml": "tenant: {{ .uid }}\nplan: {{ .plan | default \"free\" }}\nlimits:\n  users: 25\n  storage: 10Gi\n",
            },
        },
    })
}

pub fn row(number: usize, image: &str) -> Row {
    let variables = [
        ("hostOrUrl", format!("tenant-{number}.example.com")),
        ("plan", "Pro".to_owned()),
        ("image", image.to_owned()),
    ];
    Row {
        uid: format!("tenant-{number}"),
        variables: variables
            .map(|(name, value)| (name.into(), value.into()))
            .into_iter()
            .collect(),
    }
}

/// As many rows, as a hub reads them.
pub fn rows(count: usize) -> Rows {
    let rows = (1..=count).map(|number| row(number, "1.0"));
    Rows {
        read: RowCount(count as u64),
        rows: rows.map(|row| (row.uid.clone(), row)).collect(),
        settled: BTreeSet::new(),
        inactive: 0,
        skipped: vec![],
        protected: BTreeSet::new(),
        unidentified: 0,
    }
}

/// A form of so many bytes that gets another image, as its author applies it.
pub fn change(bytes: usize) -> Change {
    let object = |image: &str| {
        let spec = serde_json::to_string(&form(bytes)).expect("a form");
        let spec = spec.replace("shop/web", image);
        let spec: Value = serde_json::from_str(&spec).expect("JSON");
        json!({"metadata": {"name": "web", "namespace": "tenants"}, "spec": spec})
    };
    let judged = admission::form::judge(Some(&object("shop/web")), &object("shop/new"), now());
    judged.change.expect("a change")
}

pub fn compile(form: &FormSpec) -> CompiledForm {
    CompiledForm::parse("web", form).expect("a form that parses")
}

pub fn render(form: &CompiledForm, row: &Row) -> Value {
    let (content, errors) = form.render(&RowInputs {
        hub: "tenants",
        form: "web",
        row,
        first_seen: now(),
        seed: [7; 32],
    });
    assert_eq!(errors, vec![], "the sample renders");
    content
}

/// What a hub renders its nodes from.
pub fn source(form: CompiledForm, rows: Rows) -> RenderSource {
    let form = sync::Form {
        generation: 2,
        policy: Rollout::default(),
        forced: false,
        all_written: false,
        compiled: Arc::new(form),
    };
    RenderSource {
        hub: sync::Hub {
            namespace: "tenants".to_owned(),
            name: "tenants".to_owned(),
            uid: "5f0c7e3a-0000-4000-8000-000000000000".to_owned(),
            skew: Skew::Count(5),
            deletions: Allowance::default(),
            creations: Allowance {
                max: Some(Skew::Count(1_000_000)),
                confirmation: None,
            },
            seed: [7; 32],
        },
        forms: BTreeMap::from([("web".to_owned(), form)]),
        rows,
    }
}

/// A node as the hub writes it, with the metadata that the API server adds.
pub fn node(form: &CompiledForm, number: usize, image: &str) -> Value {
    let mut spec = render(form, &row(number, image));
    spec["uid"] = json!(format!("tenant-{number}"));
    spec["templateRef"] = json!("web");
    spec["hubId"] = json!("tenants");
    json!({
        "apiVersion": "operator.lynq.sh/v1",
        "kind": "LynqNode",
        "metadata": {
            "name": format!("tenant-{number}-web"),
            "namespace": "tenants",
            "uid": format!("5f0c7e3a-0000-4000-8000-{number:012}"),
            "resourceVersion": "4711",
            "generation": 3,
            "creationTimestamp": "2026-02-01T08:00:00Z",
            "finalizers": [names::NODE_FINALIZER],
            "labels": {names::LABEL_HUB: "tenants", names::LABEL_UID: format!("tenant-{number}")},
            "annotations": {names::TEMPLATE_GENERATION: "3"},
        },
        "spec": spec,
    })
}

/// What is stored after a write.
fn stored(old: Option<&Value>, new: &Value, user: &str) -> Value {
    let (old, node) = (old.map(Node::of), Node::of(new));
    let write = gate::Write {
        old: old.as_ref(),
        new: &node,
        user,
        operator: OPERATOR,
    };
    let decision = gate::decide(&write, now()).expect("a write that is let in");
    let mut object = new.clone();
    let patch: json_patch::Patch = serde_json::from_str(&decision.patch).expect("a JSON patch");
    json_patch::patch(&mut object, &patch).expect("the gate's patch applies");
    object
}

/// A write that the gate is asked about.
pub struct Request {
    pub old: Value,
    pub new: Value,
    pub user: &'static str,
}

impl Request {
    /// The body that the API server sends.
    pub fn review(&self) -> Vec<u8> {
        let kind = json!({"group": names::GROUP, "version": names::VERSION, "kind": "LynqNode"});
        let resource =
            json!({"group": names::GROUP, "version": names::VERSION, "resource": "lynqnodes"});
        let review = json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": "9c7f0a52-1c1d-4c5a-9d0e-000000000001",
                "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
                "name": self.new["metadata"]["name"], "namespace": "tenants", "operation": "UPDATE",
                "userInfo": {"username": self.user, "groups": ["system:authenticated"]},
                "object": self.new, "oldObject": self.old,
                "dryRun": false,
                "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"},
            },
        });
        review.to_string().into_bytes()
    }
}

/// The three writes that a node sees: an edit, which is held; its release; and a write that leaves the content alone.
pub fn requests(form: &CompiledForm, number: usize) -> BTreeMap<&'static str, Request> {
    let created = stored(None, &node(form, number, "1.0"), USER);
    let live = stored(Some(&created), &release(&created), OPERATOR);
    let mut edited = live.clone();
    let fresh = node(form, number, "1.1");
    for (array, list) in fresh["spec"].as_object().expect("a spec") {
        edited["spec"][array] = list.clone();
    }
    let held = stored(Some(&live), &edited, USER);
    let mut labelled = live.clone();
    labelled["metadata"]["labels"]["team"] = json!("shop");
    let released = release(&held);
    BTreeMap::from([
        (
            "held",
            Request {
                old: live.clone(),
                new: edited,
                user: USER,
            },
        ),
        (
            "released",
            Request {
                old: held,
                new: released,
                user: OPERATOR,
            },
        ),
        (
            "unchanged",
            Request {
                old: live,
                new: labelled,
                user: USER,
            },
        ),
    ])
}

fn release(held: &Value) -> Value {
    let mut new = held.clone();
    let marker = format!(
        "{}/4711",
        held["metadata"]["annotations"][names::DESIRED_HASH]
            .as_str()
            .expect("a hash")
    );
    new["metadata"]["annotations"][names::RELEASE] = json!(marker);
    new
}

/// A hub with this many nodes, spread over 20 forms with a window of 5 each. `state` tells of a node, by its number among those
/// of its form, what is live on it.
pub fn fleet(nodes: usize, state: impl Fn(usize) -> State) -> Snapshot {
    let mut fleet = Snapshot {
        resource_version: "1000000".to_owned(),
        ..Snapshot::default()
    };
    for form in 0..FORMS {
        let policy = Rollout {
            max_skew: Skew::Count(5),
            ..Rollout::default()
        };
        let of_form = rollout::Form {
            policy,
            rendered_generation: 2,
            same_since: 2,
            ..rollout::Form::default()
        };
        fleet.forms.insert(format!("web-{form}"), of_form);
    }
    let old = "1.000000000000000000000000000000000000000000000000000000000000000a";
    let new = "1.000000000000000000000000000000000000000000000000000000000000000b";
    let forms = fleet.forms.keys().map(|form| form.as_str().into());
    let forms: Vec<Arc<str>> = forms.collect();
    for number in 0..nodes {
        let form = &forms[number % FORMS];
        let of_form = number / FORMS;
        let state = state(of_form);
        let live = if state == State::Held { old } else { new };
        let node = rollout::Node {
            uid: format!("{number:08}-0000-4000-8000-000000000000"),
            resource_version: (500_000 + number).to_string(),
            form: form.clone(),
            desired: new.to_owned(),
            live: Live::Hash(live.to_owned()),
            start: Some(now()),
            settled_since: (state != State::Broken).then(now),
            seen: true,
            ready: state != State::Broken,
            unchanged: Some(false),
            why: (state == State::Broken)
                .then(|| "Deployment web: 0 of 2 replicas are ready".to_owned()),
            ..rollout::Node::default()
        };
        fleet.nodes.insert(format!("tenant-{of_form}-{form}"), node);
    }
    fleet
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs the newest content, and is ready.
    Updated,
    /// It runs the old content, is ready, and waits for its turn.
    Held,
    /// It runs the newest content, and is not ready.
    Broken,
}

const FORMS: usize = 20;
