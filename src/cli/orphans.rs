//! `lynqgate orphans`: lists the objects that lynqgate left behind with `deletionPolicy: Retain`, and deletes those that nobody needs.

use std::collections::{BTreeMap, BTreeSet};

use clap_complete::engine::ArgValueCandidates;
use futures::{StreamExt, stream};
use serde_json::{Value, json};

use crate::cli::Output;
use crate::cli::complete;
use crate::cli::connection::{self, AnyError, Connected, Connection, run};
use crate::cli::output::{print, table, tell};
use crate::cli::steer::{Common, ask};
use crate::cluster::inventory;
use crate::cluster::objects::{ApiError, Objects, Served};
use crate::decide::child::orphan::{self, Orphan};
use crate::decide::child::{ObjectKey, Scope, deletes_claims};
use crate::decide::node::plan::recreate::Dependents;

const HEAD: [&str; 5] = ["KIND", "NAMESPACE/NAME", "SINCE", "REASON", "LEFT BY"];
/// Kinds whose objects are listed at a time.
const KINDS_MAX: usize = 8;
/// How often a deletion is tried again if somebody wrote the object at that moment.
const TRIES_MAX: usize = 5;

/// Why there is no verb for it.
const ADOPTION: &str = "No command adopts an orphan: activate its row again, or put its resource back into the form. A LynqNode of the orphan's namespace \
                        adopts it as soon as it names an object of that kind, namespace and name. A LynqNode of another namespace needs \
                        conflictPolicy: Force on the resource.";

#[derive(clap::Args)]
#[command(after_help = ADOPTION)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// List the objects that lynqgate left behind. Standard error names the kinds that you may not list.
    List(List),
    /// Delete one object that lynqgate left behind, or all that one LynqNode left behind. This cannot be undone.
    Delete(Delete),
}

#[derive(clap::Args)]
#[command(mut_arg("namespace", |it| it.help("Namespace of the objects. Default: all of them, and objects without a namespace")))]
struct List {
    /// Only objects of this kind, such as ConfigMap or certificates.cert-manager.io.
    #[arg(long)]
    kind: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Args)]
struct Delete {
    /// Kind of the object, such as ConfigMap or certificates.cert-manager.io.
    #[arg(required_unless_present = "left_by")]
    kind: Option<String>,
    /// Name of the object.
    #[arg(required_unless_present = "left_by")]
    name: Option<String>,
    /// Delete all objects that this LynqNode (NAME or NAMESPACE/NAME) left behind, in all namespaces.
    #[arg(long, value_name = "NODE", conflicts_with_all = ["kind", "name"], add = ArgValueCandidates::new(complete::nodes))]
    left_by: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(
        "the API server serves no kind {0:?} whose objects can be listed and deleted. Give the kind or its plural in full, such as \
         ConfigMap"
    )]
    NoKind(String),
    #[error("{word:?} is a kind of several groups: {kinds}. Give one of these")]
    ManyKinds { word: String, kinds: String },
    #[error("{key}: {reason}")]
    Api { key: ObjectKey, reason: ApiError },
    #[error("{0} is no orphan: it lacks the label {label}", label = orphan::selector())]
    NoOrphan(ObjectKey),
    #[error("{failed} of {all} objects were not deleted: see above")]
    NotDeleted { failed: usize, all: usize },
}

pub fn orphans(arguments: &Arguments) -> Result<(), AnyError> {
    match &arguments.verb {
        Verb::List(arguments) => run(list(arguments)),
        Verb::Delete(arguments) => run(delete(arguments)),
    }
}

async fn list(arguments: &List) -> Result<(), AnyError> {
    let cluster = arguments.connection.connect().await?;
    let namespace = arguments.connection.given_namespace().unwrap_or_default();
    let all = all_kinds(&cluster).await?;
    let kinds = match &arguments.kind {
        Some(word) => vec![meant(all, word)?],
        None => all,
    };
    let found = search(&cluster.objects, &kinds, namespace).await;
    let unsearched = found.unsearched();
    if let Some(unsearched) = &unsearched {
        if arguments.kind.is_some() {
            return Err(unsearched.clone().into());
        }
        let hint = match namespace {
            "" => ". -n searches one namespace",
            _ => "",
        };
        tell(format_args!("{unsearched}{hint}"));
    }
    match arguments.output {
        Output::Json => {
            let all: Vec<Value> = found.orphans.iter().map(answer).collect();
            print(serde_json::to_string_pretty(&all)? + "\n")?;
        }
        Output::Text if !found.orphans.is_empty() => {
            print(table(HEAD, found.orphans.iter().map(row)))?
        }
        Output::Text if unsearched.is_some() => print("no orphans of the other kinds\n")?,
        Output::Text => print("no orphans\n")?,
    }
    Ok(())
}

fn answer(orphan: &Orphan) -> Value {
    json!({
        "apiVersion": orphan.key.kind.api_version, "kind": orphan.key.kind.kind,
        "namespace": &*orphan.key.namespace, "name": orphan.key.name, "uid": orphan.uid,
        "since": orphan.since, "reason": orphan.reason, "leftBy": orphan.left_by, "deleting": orphan.deleting,
    })
}

fn row(orphan: &Orphan) -> [String; 5] {
    let ObjectKey {
        kind,
        namespace,
        name,
    } = &orphan.key;
    let or_dash = |text: &str| match text {
        "" => "-".to_owned(),
        text => text.to_owned(),
    };
    let since = orphan.since;
    let since = since.map(|at| at.strftime("%F %T UTC").to_string());
    let reason = match orphan.deleting {
        true => "being deleted".to_owned(),
        false => or_dash(&orphan.reason),
    };
    [
        kind.called(),
        match &**namespace {
            "" => name.clone(),
            namespace => format!("{namespace}/{name}"),
        },
        or_dash(since.as_deref().unwrap_or_default()),
        reason,
        or_dash(orphan.left_by.as_deref().unwrap_or_default()),
    ]
}

async fn all_kinds(cluster: &Connected) -> Result<Vec<Served>, AnyError> {
    let all = inventory::deletable_kinds(&cluster.objects).await;
    let all = all.map_err(|reason| connection::Error::Api {
        what: "the kinds that the API server serves".to_owned(),
        reason,
    });
    Ok(all?)
}

/// The kind that the user means. Of several with one name, one of Kubernetes' own.
fn meant(all: Vec<Served>, word: &str) -> Result<Served, Error> {
    let is_meant = |served: &Served| served.kind().is_called(&served.resource.plural, word);
    let (mut own, mut custom): (Vec<Served>, Vec<Served>) = all
        .into_iter()
        .filter(is_meant)
        .partition(|served| !served.kind().is_custom());
    match (own.pop(), custom.pop()) {
        (Some(served), _) => Ok(served),
        (None, Some(served)) if custom.is_empty() => Ok(served),
        (None, Some(served)) => {
            custom.push(served);
            let kinds: Vec<String> = custom.iter().map(|it| it.kind().called()).collect();
            Err(Error::ManyKinds {
                word: word.to_owned(),
                kinds: kinds.join(", "),
            })
        }
        (None, None) => Err(Error::NoKind(word.to_owned())),
    }
}

#[derive(Default)]
struct Found {
    orphans: Vec<Orphan>,
    /// The kinds that could not be listed.
    failed: BTreeMap<String, ApiError>,
}

impl Found {
    /// A line on the kinds that could not be listed.
    fn unsearched(&self) -> Option<String> {
        let first = self.failed.values().next()?;
        let kinds: Vec<&str> = self.failed.keys().map(String::as_str).collect();
        Some(format!("not searched: {}: {first}", kinds.join(", ")))
    }
}

/// All orphans of these kinds in a namespace; without one, in the whole cluster.
async fn search(objects: &Objects, kinds: &[Served], namespace: &str) -> Found {
    let selector = &orphan::selector();
    let is_there = |served: &&Served| namespace.is_empty() || served.scope == Scope::Namespaced;
    let lists = kinds.iter().filter(is_there).map(|served| async move {
        let kind = served.kind();
        let mut there = vec![];
        let listed = objects.metadata(&kind, namespace, selector, |_, metadata| {
            there.extend(Orphan::of(&kind, metadata));
        });
        let listed = listed.await;
        (kind.called(), listed.map(|()| there))
    });
    let mut lists = stream::iter(lists).buffer_unordered(KINDS_MAX);
    let mut found = Found::default();
    while let Some((kind, listed)) = lists.next().await {
        match listed {
            Ok(there) => found.orphans.extend(there),
            // Its definition has just been deleted.
            Err(ApiError::NotFound(_)) => {}
            Err(error) => drop(found.failed.insert(kind, error)),
        }
    }
    found.orphans.sort_by(|a, b| a.key.cmp(&b.key));
    // Two groups may serve the same object.
    let mut seen = BTreeSet::new();
    found
        .orphans
        .retain(|orphan| seen.insert(orphan.uid.clone()));
    found
}

async fn delete(arguments: &Delete) -> Result<(), AnyError> {
    let common = &arguments.common;
    let mut cluster = common.connection.connect().await?;
    let (orphans, effect) = match (&arguments.left_by, &arguments.kind, &arguments.name) {
        (None, Some(kind), Some(name)) => {
            let orphan = one(&cluster, kind, name).await?;
            let effect = orphan.deletion();
            (vec![orphan], effect)
        }
        (node, ..) => {
            let node = node.as_deref().unwrap_or_default();
            let node = orphan::node_named(node, &cluster.namespace);
            let orphans = all_of(&cluster, &node).await?;
            if orphans.is_empty() {
                return Ok(print(format_args!(
                    "LynqNode {node} left nothing behind\n"
                ))?);
            }
            let effect = orphan::deletion_of_all(&orphans, &node);
            (orphans, effect)
        }
    };
    if !common.dry_run && !common.yes {
        if arguments.left_by.is_some() {
            orphans.iter().for_each(|orphan| tell(orphan.named()));
        }
        ask(&effect)?;
    }
    if common.dry_run {
        cluster.objects = cluster.objects.dry_run();
    }
    let (mut failed, mut answers) = (0, vec![]);
    for orphan in &orphans {
        if let Err(error) = remove(&cluster.objects, orphan).await {
            tell(format_args!("{} was not deleted: {error}", orphan.key));
            failed += 1;
            continue;
        }
        match common.output {
            Output::Text => {
                let dry = if common.dry_run { " (dry run)" } else { "" };
                print(format_args!("{}: deleted{dry}\n", orphan.key))?;
            }
            Output::Json => {
                let mut answer = answer(orphan);
                answer["dryRun"] = common.dry_run.into();
                answers.push(answer);
            }
        }
    }
    if common.output == Output::Json {
        print(serde_json::to_string_pretty(&answers)? + "\n")?;
    }
    match failed {
        0 => Ok(()),
        failed => {
            let all = orphans.len();
            Err(Error::NotDeleted { failed, all }.into())
        }
    }
}

async fn one(cluster: &Connected, word: &str, name: &str) -> Result<Orphan, AnyError> {
    let served = meant(all_kinds(cluster).await?, word)?;
    let kind = served.kind();
    let namespace = match served.scope {
        Scope::Cluster => "",
        Scope::Namespaced => cluster.namespace.as_str(),
    };
    let key = ObjectKey {
        kind: kind.clone().into(),
        namespace: namespace.into(),
        name: name.to_owned(),
    };
    let metadata = cluster.objects.metadata_of(&key).await;
    let metadata = metadata.map_err(|reason| Error::Api {
        key: key.clone(),
        reason,
    })?;
    match Orphan::of(&kind, &metadata) {
        Some(orphan) => Ok(with_claims(&cluster.objects, orphan).await),
        None => Err(Error::NoOrphan(key).into()),
    }
}

/// All that this node left behind.
async fn all_of(cluster: &Connected, node: &str) -> Result<Vec<Orphan>, AnyError> {
    let kinds = all_kinds(cluster).await?;
    let found = search(&cluster.objects, &kinds, "").await;
    if let Some(unsearched) = found.unsearched() {
        tell(unsearched);
    }
    let (mut all, mut last) = (vec![], vec![]);
    for orphan in found.orphans {
        if orphan.left_by.as_deref() != Some(node) {
            continue;
        }
        // With a namespace or a definition go objects that may be among the others.
        match orphan.key.namespace.is_empty() {
            true => last.push(orphan),
            false => all.push(with_claims(&cluster.objects, orphan).await),
        }
    }
    all.append(&mut last);
    Ok(all)
}

/// Says so of a StatefulSet that deletes its PersistentVolumeClaims with itself, which its metadata do not show.
async fn with_claims(objects: &Objects, mut orphan: Orphan) -> Orphan {
    if orphan.key.kind.is_stateful_set()
        && let Ok(object) = objects.get(&orphan.key).await
        && deletes_claims(&object)
    {
        orphan.lost = Some(orphan::CLAIMS);
    }
    orphan
}

/// Deletes the object that the user was asked about, if it is still there, and still an orphan.
async fn remove(objects: &Objects, orphan: &Orphan) -> Result<(), ApiError> {
    let Orphan { key, uid, .. } = orphan;
    let mut tries = 1..TRIES_MAX;
    loop {
        let metadata = match objects.metadata_of(key).await {
            Err(ApiError::NotFound(_)) => return Ok(()),
            read => read?,
        };
        let now = Orphan::of(&key.kind, &metadata).filter(|now| now.uid == *uid);
        let now = now.ok_or_else(|| {
            ApiError::Refused("it is no orphan any more, or a new object".to_owned())
        })?;
        let version = Some(now.resource_version.as_str());
        match objects.delete(key, uid, version, Dependents::Go).await {
            // Somebody wrote it since it was read, perhaps only its status.
            Err(ApiError::Conflict(_)) if tries.next().is_some() => {}
            deleted => return deleted,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use kube::api::ApiResource;

    use super::*;
    use crate::decide::child::Kind;

    #[derive(clap::Parser)]
    struct Typed {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn one_object_is_deleted_or_all_of_a_node() {
        for (line, expected) in [
            ("list", true),
            ("list -n tenants --kind ConfigMap -o json", true),
            ("delete ConfigMap acme -n tenants --yes", true),
            ("delete --left-by acme-web --dry-run", true),
            ("delete", false),
            ("delete ConfigMap", false),
            ("delete ConfigMap acme --left-by acme-web", false),
            ("adopt ConfigMap acme", false),
        ] {
            let words = ["orphans"].into_iter().chain(line.split(' '));
            let typed = Typed::try_parse_from(words);
            assert_eq!(typed.is_ok(), expected, "{line}");
            let verb = typed.ok().map(|typed| typed.arguments.verb);
            let is_list = matches!(verb, Some(Verb::List(_)));
            assert_eq!(is_list, line.starts_with("list"), "{line}");
        }
    }

    #[test]
    fn a_word_means_one_kind() {
        let served = |api_version: &str, kind: &str| {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            Served {
                resource: ApiResource {
                    group: group.to_owned(),
                    version: version.to_owned(),
                    api_version: api_version.to_owned(),
                    kind: kind.to_owned(),
                    plural: format!("{}s", kind.to_ascii_lowercase()),
                },
                scope: Scope::Namespaced,
                has_status: false,
            }
        };
        let all = || {
            vec![
                served("a.example.com/v1", "Policy"),
                served("b.example.com/v1", "Policy"),
                served("b.example.com/v1", "Job"),
                served("batch/v1", "Job"),
                served("v1", "ConfigMap"),
            ]
        };
        for (word, expected) in [
            ("configmaps", Ok(Kind::new("v1", "ConfigMap"))),
            ("Job", Ok(Kind::new("batch/v1", "Job"))),
            (
                "Job.b.example.com",
                Ok(Kind::new("b.example.com/v1", "Job")),
            ),
            (
                "policys.a.example.com",
                Ok(Kind::new("a.example.com/v1", "Policy")),
            ),
            (
                "Policy",
                Err(
                    "\"Policy\" is a kind of several groups: Policy.a.example.com, Policy.b.example.com. Give one of these",
                ),
            ),
            (
                "cm",
                Err(
                    "the API server serves no kind \"cm\" whose objects can be listed and deleted. Give the kind or its plural in full, \
                     such as ConfigMap",
                ),
            ),
        ] {
            let found = meant(all(), word).map(|served| served.kind());
            let found = found.map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(str::to_owned), "{word}");
        }
    }

    #[test]
    fn the_table_has_a_line_for_each() {
        let metadata = json!({
            "namespace": "tenants", "name": "acme", "labels": {"lynq.sh/orphaned": "true"},
            "annotations": {
                "lynq.sh/orphaned-at": "2026-03-01T12:00:00.000Z", "lynq.sh/orphaned-reason": "LynqNodeDeleted",
                "lynq.sh/orphaned-from": "tenants/acme-web",
            },
        });
        let of_lynq = json!({"name": "acme", "labels": {"lynq.sh/orphaned": "true"}});
        let found = [("ConfigMap", metadata), ("Namespace", of_lynq)].map(|(kind, metadata)| {
            Orphan::of(&Kind::new("v1", kind), &metadata).expect("an orphan")
        });
        let expected = "\
KIND       NAMESPACE/NAME  SINCE                    REASON           LEFT BY
ConfigMap  tenants/acme    2026-03-01 12:00:00 UTC  LynqNodeDeleted  tenants/acme-web
Namespace  acme            -                        -                -
";
        assert_eq!(table(HEAD, found.iter().map(row)), expected);
    }
}
