//! `lynqgate diff`: what the release of held nodes would change, as a unified diff of live and held content.

use std::collections::BTreeMap;
use std::fmt::Write;

use clap_complete::engine::ArgValueCandidates;
use kube::api::ListParams;

use crate::api::names;
use crate::cli::complete;
use crate::cli::connection::{AnyError, Connected, Connection, Error};
use crate::cli::output::print;
use crate::decide::child::ObjectKey;
use crate::decide::node::diff;

/// So many different diffs are shown.
const SHOWN_MAX: usize = 3;
/// So many names of the nodes that have one.
const NAMES_MAX: usize = 3;

#[derive(clap::Args)]
pub struct Arguments {
    /// form or node.
    kind: Subject,
    /// Its name.
    #[arg(add = ArgValueCandidates::new(complete::any))]
    name: String,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Subject {
    #[value(alias = "lynqform", alias = "lform")]
    Form,
    #[value(alias = "lynqnode", alias = "lnode")]
    Node,
}

pub fn diff(arguments: &Arguments) -> Result<(), AnyError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(show(arguments))
}

async fn show(arguments: &Arguments) -> Result<(), AnyError> {
    let cluster = arguments.connection.connect().await?;
    let name = &arguments.name;
    let text = match arguments.kind {
        Subject::Node => {
            let node = cluster.get("LynqNode", name).await?;
            diff::of_node(&node).unwrap_or_else(|| format!("node {name} is not held\n"))
        }
        Subject::Form => of_form(&cluster, name).await?,
    };
    Ok(print(text)?)
}

/// Nodes whose contents change in the same way.
#[derive(Default)]
struct Alike {
    count: usize,
    names: Vec<String>,
    /// Of the first one.
    diff: String,
}

async fn of_form(cluster: &Connected, form: &str) -> Result<String, AnyError> {
    let object = cluster.get("LynqForm", form).await?;
    let hub = object["spec"]["hubId"].as_str().unwrap_or_default();
    let of_hub = ListParams::default().labels(&format!("{}={hub}", names::LABEL_HUB));
    let of_nodes = ObjectKey::own("LynqNode", "", "").kind;
    // By their diffs, in which the row's id stands for any row's.
    let mut all: BTreeMap<String, Alike> = BTreeMap::new();
    let listed = cluster
        .objects
        .list_selected(&of_nodes, &cluster.namespace, of_hub, |node| {
            let text = |at: &str| node.pointer(at).and_then(|text| text.as_str());
            let text = |at: &str| text(at).unwrap_or_default().to_owned();
            if text("/spec/templateRef") != form {
                return;
            }
            let Some(diff) = diff::of_node(&node) else {
                return;
            };
            let same = diff.replace(&text("/spec/uid"), "\0");
            let alike = all.entry(same).or_insert_with(|| Alike {
                diff,
                ..Alike::default()
            });
            alike.count += 1;
            if alike.names.len() < NAMES_MAX {
                alike.names.push(text("/metadata/name"));
            }
        });
    listed.await.map_err(|reason| Error::Api {
        what: "LynqNodes".to_owned(),
        reason,
    })?;
    let mut all: Vec<Alike> = all.into_values().collect();
    all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.names.cmp(&b.names)));
    let held: usize = all.iter().map(|alike| alike.count).sum();
    if held == 0 {
        return Ok(format!("form {form}: no node is held\n"));
    }
    let ways = match all.len() {
        1 => "alike".to_owned(),
        ways => format!("in {ways} ways"),
    };
    let mut text = format!("form {form}: {held} held nodes change {ways}\n");
    for alike in all.iter().take(SHOWN_MAX) {
        let more = if alike.count > alike.names.len() {
            ", ..."
        } else {
            ""
        };
        let names = alike.names.join(", ");
        write!(
            text,
            "\n{} nodes ({names}{more}):\n{}",
            alike.count, alike.diff
        )?;
    }
    if let Some(more @ 1..) = all.len().checked_sub(SHOWN_MAX) {
        write!(text, "\nand {more} more ways: lynqgate diff node NAME\n")?;
    }
    Ok(text)
}
