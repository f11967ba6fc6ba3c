//! `lynqgate check`: reads the installation, and the hubs and forms of a namespace, and prints a line for each check. Stores nothing:
//! its two writes of a LynqNode are dry runs.

use std::collections::BTreeSet;

use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::api::form::FormSpec;
use crate::api::{crd, names};
use crate::cli::Output;
use crate::cli::connection::{AnyError, Connected, Connection, Error, run};
use crate::cli::manifests::{self, Address};
use crate::cli::output::print;
use crate::cluster::catalog::{Form, Hub};
use crate::cluster::client::REQUEST_TIMEOUT;
use crate::cluster::clock;
use crate::cluster::lease::{lease_key, lease_of};
use crate::cluster::objects::{ApiError, timed};
use crate::decide::admission::review::UserInfo;
use crate::decide::child::{Kind, ObjectKey, key_of};
use crate::decide::operator::check::hub::{self, HubTold};
use crate::decide::operator::check::rights::{self, Rights, Used};
use crate::decide::operator::check::{
    self, Finding, Observed, Tried, Verdict, admission, certificate, replicas,
};
use crate::decide::operator::installation::{gate_probe, write_probe};
use crate::decide::operator::watched::WatchedNamespaces;

/// `--shards` allows no more, and a Lease may name any number.
const SHARDS_MAX: usize = 64;

#[derive(clap::Args)]
pub struct Arguments {
    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

/// The API server could not be asked.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Unasked(AnyError);

pub fn check(arguments: &Arguments) -> Result<Verdict, Unasked> {
    run(tell(arguments)).map_err(Unasked)
}

async fn tell(arguments: &Arguments) -> Result<Verdict, AnyError> {
    let cluster = arguments.connection.connect().await?;
    let findings = findings(&cluster).await?;
    match arguments.output {
        Output::Text => {
            let lines = findings.iter().map(|finding| format!("{finding}\n"));
            print(lines.collect::<String>())?;
        }
        Output::Json => print(serde_json::to_string_pretty(&findings)? + "\n")?,
    }
    Ok(check::worst(&findings))
}

/// In the order in which one depends on the other.
async fn findings(cluster: &Connected) -> Result<Vec<Finding>, Error> {
    let namespace = &cluster.operator_namespace;
    let mut findings = vec![version(cluster).await?];
    for ours in crd::definitions() {
        let installed = read(cluster, &key_of(&ours)).await?;
        findings.push(check::definition(&ours, &installed));
    }
    let deployment = key("apps/v1", "Deployment", namespace, names::OPERATOR);
    let deployment = read(cluster, &deployment).await?;
    let fence = manifests::fence();
    let policy = read(cluster, &key_of(&fence[0])).await?;
    let operator = replicas::username(&deployment, &policy, namespace);
    let watched = watched(cluster, &deployment).await?;
    let of_fence = (&fence, &policy);
    findings.extend(before_writes(cluster, of_fence, &operator, &watched).await?);
    findings.push(replicas::deployment(&deployment, namespace));
    findings.extend(leases(cluster).await?);
    match watched.has(&cluster.namespace) {
        true => findings.extend(of_forms(cluster, &operator, &watched).await?),
        false => findings.push(rights::home_unwatched(&cluster.namespace)),
    }
    findings.extend(of_hubs(cluster).await?);
    Ok(findings)
}

/// As the operator's Deployment says; if that cannot be read, as its webhooks select them.
async fn watched(cluster: &Connected, deployment: &Observed) -> Result<WatchedNamespaces, Error> {
    if let Some(watched) = replicas::watched(deployment) {
        return Ok(watched);
    }
    let everywhere = WatchedNamespaces::default();
    let [mutating, _] = manifests::webhook_configurations(&Address::Service, &everywhere);
    let installed = read(cluster, &key_of(&mutating)).await?;
    Ok(installed.object().map_or(everywhere, admission::watched))
}

async fn version(cluster: &Connected) -> Result<Finding, Error> {
    let version = cluster.objects.client.apiserver_version();
    match timed(REQUEST_TIMEOUT, version).await {
        Ok(version) => Ok(check::version(&version.git_version)),
        Err(reason) => Err(Error::Api {
            what: "the version of the API server".to_owned(),
            reason,
        }),
    }
}

/// The webhooks with their certificate, and the fence. `policy`: of the fence, as it was read.
async fn before_writes(
    cluster: &Connected,
    (fence, policy): (&[Value; 2], &Observed),
    operator: &str,
    watched: &WatchedNamespaces,
) -> Result<Vec<Finding>, Error> {
    let namespace = &cluster.operator_namespace;
    let (mut findings, mut configurations) = (vec![], vec![]);
    for wanted in manifests::webhook_configurations(&Address::Service, watched) {
        let installed = read(cluster, &key_of(&wanted)).await?;
        findings.push(admission::configuration(&wanted, &installed, namespace));
        configurations.push(installed);
    }
    let home = cluster.namespace.as_str();
    let other = watched.names().and_then(BTreeSet::first);
    let place: &str = match other.filter(|_| !watched.has(home)) {
        Some(other) => other,
        None => home,
    };
    let may_create = may_create_nodes(cluster, place).await?;
    let tried = dry_run(cluster, may_create, &gate_probe(place)).await;
    findings.push(admission::gate(&tried, namespace));
    let secret = key("v1", "Secret", namespace, names::CERTIFICATE_SECRET);
    let secret = read(cluster, &secret).await?;
    let now = clock::now();
    findings.push(certificate::certificate(
        namespace,
        &secret,
        &configurations,
        now,
    ));
    let binding = read(cluster, &key_of(&fence[1])).await?;
    findings.extend(admission::fence(fence, [policy, &binding], operator));
    let tried = dry_run(cluster, may_create, &write_probe(place)).await;
    let is_operator = cluster.user == operator;
    findings.extend(admission::fence_in_force(&tried, is_operator));
    Ok(findings)
}

/// Whether the user may create LynqNodes in the namespace.
async fn may_create_nodes(cluster: &Connected, namespace: &str) -> Result<bool, Error> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {},
        "spec": {"resourceAttributes": {
            "group": names::GROUP, "version": names::VERSION, "resource": "lynqnodes",
            "verb": "create", "namespace": namespace,
        }},
    });
    let may = cluster.objects.may(&review).await;
    may.map_err(|reason| Error::Api {
        what: "your right to create LynqNodes".to_owned(),
        reason,
    })
}

/// Tries to create the LynqNode; nothing is stored.
async fn dry_run(cluster: &Connected, may_create: bool, node: &Value) -> Tried {
    if !may_create {
        return Tried::NotAllowed;
    }
    let objects = cluster.objects.dry_run();
    match objects.create(&key_of(node), node).await {
        Ok(created) => Tried::Accepted(created),
        Err(reason) => Tried::Rejected(reason.to_string()),
    }
}

/// The lease of each shard.
async fn leases(cluster: &Connected) -> Result<Vec<Finding>, Error> {
    let namespace = &cluster.operator_namespace;
    let (mut findings, mut shard, mut shards) = (vec![], 0, 1);
    while shard < shards {
        let key = lease_key(namespace, shard);
        let lease = read(cluster, &key).await?;
        let lease = lease.map(|lease| lease_of(&lease));
        if let (0, Some(lease)) = (shard, lease.object()) {
            shards = lease.shards.clamp(1, SHARDS_MAX);
        }
        let of_shard = (shard, shards);
        let name = (namespace.as_str(), key.name.as_str());
        findings.push(replicas::lease(name, of_shard, &lease, clock::now()));
        shard += 1;
    }
    Ok(findings)
}

/// The operator's rights on the kinds that the forms of the namespace use.
async fn of_forms(
    cluster: &Connected,
    operator: &str,
    watched: &WatchedNamespaces,
) -> Result<Vec<Finding>, Error> {
    let home = &cluster.namespace;
    let forms = match list(cluster, "LynqForm").await? {
        Observed::Object(forms) => forms,
        Observed::Absent => vec![],
        Observed::Denied(why) => return Ok(vec![rights::unread(home, &why)]),
    };
    let forms: Vec<Form> = forms.iter().map(Form::of).collect();
    let specs = forms.iter().filter_map(|form| {
        let spec: &FormSpec = form.spec.as_ref().ok()?;
        Some((form.name.as_str(), spec))
    });
    let user = UserInfo::named(operator);
    let mut kinds = vec![];
    for (kind, used) in rights::used(&Vec::from_iter(specs), home) {
        match rights_on(cluster, &user, (&kind, &used), watched).await {
            Ok(rights) => kinds.push((kind, used, rights)),
            Err(reason) if reason.may_pass() => {
                let what = format!("rights on {kind}");
                return Err(Error::Api { what, reason });
            }
            Err(reason) => return Ok(vec![rights::unasked(operator, &reason.to_string())]),
        }
    }
    Ok(rights::findings(operator, home, &kinds))
}

async fn rights_on(
    cluster: &Connected,
    user: &UserInfo,
    (kind, used): (&Kind, &Used),
    watched: &WatchedNamespaces,
) -> Result<Rights, ApiError> {
    let objects = &cluster.objects;
    let Some(served) = objects.served(kind).await? else {
        return Ok(Rights::Unserved);
    };
    let unwatched = rights::unwatched(used, served.scope, watched);
    if !unwatched.is_empty() {
        return Ok(Rights::Unwatched(unwatched));
    }
    let resource = &served.resource;
    let questions = rights::questions(used, served.scope, watched).into_iter();
    let answers = questions.map(|(verb, namespace)| {
        let review = user.review(json!({
            "group": resource.group, "version": resource.version, "resource": resource.plural,
            "verb": verb, "namespace": namespace,
        }));
        async move {
            let may = objects.may(&review).await?;
            Ok::<_, ApiError>((verb, may))
        }
    });
    let answers = try_join_all(answers).await?;
    let denied = answers.into_iter().filter(|(_, may)| !may);
    let verbs: BTreeSet<&'static str> = denied.map(|(verb, _)| verb).collect();
    Ok(match verbs.is_empty() {
        true => Rights::Complete,
        false => Rights::Missing {
            group: resource.group.clone(),
            plural: resource.plural.clone(),
            verbs,
        },
    })
}

async fn of_hubs(cluster: &Connected) -> Result<Vec<Finding>, Error> {
    let hubs = list(cluster, "LynqHub").await?;
    let hubs = hubs.map(|all| {
        let told = all.iter().map(Hub::of).map(|hub| HubTold {
            name: hub.name,
            generation: hub.generation,
            status: hub.status,
        });
        told.collect::<Vec<_>>()
    });
    let namespace = &cluster.operator_namespace;
    Ok(hub::findings(&cluster.namespace, &hubs, namespace))
}

fn key(api_version: &str, kind: &str, namespace: &str, name: &str) -> ObjectKey {
    ObjectKey {
        kind: Kind::new(api_version, kind).into(),
        namespace: namespace.into(),
        name: name.to_owned(),
    }
}

/// An error where the API server does not answer.
async fn read(cluster: &Connected, key: &ObjectKey) -> Result<Observed, Error> {
    observed(cluster.objects.get(key).await, key.to_string())
}

/// All of one of the three kinds in the namespace that is asked about.
async fn list(cluster: &Connected, kind: &'static str) -> Result<Observed<Vec<Value>>, Error> {
    match cluster.list(kind).await {
        Ok(all) => Ok(Observed::Object(all)),
        Err(Error::Api { what, reason }) => observed(Err(reason), what),
        Err(error) => Err(error),
    }
}

fn observed<T>(read: Result<T, ApiError>, what: String) -> Result<Observed<T>, Error> {
    match read {
        Ok(object) => Ok(Observed::Object(object)),
        Err(ApiError::NotFound(_)) => Ok(Observed::Absent),
        Err(reason) if reason.may_pass() => Err(Error::Api { what, reason }),
        Err(reason) => Ok(Observed::Denied(reason.to_string())),
    }
}
