//! `lynqgate diff`: what the release of held nodes would change, as a unified diff of live and held content.

use clap_complete::engine::ArgValueCandidates;
use kube::api::ListParams;

use crate::api::names;
use crate::cli::complete;
use crate::cli::connection::{AnyError, Connected, Connection, Error, run};
use crate::cli::output::print;
use crate::decide::child::ObjectKey;
use crate::decide::node::diff;
use crate::decide::node::diff::alike::Groups;

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
    run(show(arguments))
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

async fn of_form(cluster: &Connected, form: &str) -> Result<String, AnyError> {
    let object = cluster.get("LynqForm", form).await?;
    let hub = object["spec"]["hubId"].as_str().unwrap_or_default();
    let of_hub = ListParams::default().labels(&format!("{}={hub}", names::LABEL_HUB));
    let of_nodes = ObjectKey::own("LynqNode", "", "").kind;
    let mut groups = Groups::default();
    let listed = cluster
        .objects
        .list_selected(&of_nodes, &cluster.namespace, of_hub, |node| {
            let text = |at: &str| node.pointer(at).and_then(|text| text.as_str());
            let text = |at: &str| text(at).unwrap_or_default().to_owned();
            if text("/spec/templateRef") != form {
                return;
            }
            if let Some(diff) = diff::of_node(&node) {
                groups.add(&text("/metadata/name"), &text("/spec/uid"), diff);
            }
        });
    listed.await.map_err(|reason| Error::Api {
        what: "LynqNodes".to_owned(),
        reason,
    })?;
    let held = groups.nodes();
    if held == 0 {
        return Ok(format!("form {form}: no node is held\n"));
    }
    let more = match groups.left_out() {
        0 => String::new(),
        more => format!("\nand {more} more ways: lynqgate diff node NAME\n"),
    };
    let ways = groups.ways();
    Ok(format!(
        "form {form}: {held} held nodes change {ways}\n{groups}{more}"
    ))
}
