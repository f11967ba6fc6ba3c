//! `lynqgate diff`: what the release of held nodes would change, as a unified diff of live and held content; and what an apply of a
//! form would change.

mod preview;

use std::path::PathBuf;

use clap_complete::engine::ArgValueCandidates;
use kube::api::ListParams;
use serde_json::Value;

use crate::api::names;
use crate::cli::Output;
use crate::cli::complete;
use crate::cli::connection::{AnyError, Connected, Connection, Error, run};
use crate::cli::output::print;
use crate::decide::child::ObjectKey;
use crate::decide::node::diff;
use crate::decide::node::diff::alike::Groups;

// As a doc comment it would be the help of the command.
#[derive(clap::Args)]
#[command(
    override_usage = "lynqgate diff [OPTIONS] <KIND> <NAME>\n       lynqgate diff [OPTIONS] --filename <FILE> [--rows <FILE>]"
)]
pub struct Arguments {
    /// form or node: shows what the release of its held content would change.
    #[arg(required_unless_present = "filename")]
    kind: Option<Subject>,
    /// Name of the form or node.
    #[arg(required_unless_present = "filename", add = ArgValueCandidates::new(complete::any))]
    name: Option<String>,
    /// File with LynqForms: shows what an apply of each would change, and ignores other objects. - for standard input.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["kind", "name"])]
    filename: Option<PathBuf>,
    /// CSV file with the rows; its first line names the columns that the hub maps. - for standard input. Default: the hub's own
    /// source, which the command reads from here with your rights.
    #[arg(long, value_name = "FILE", conflicts_with = "kind")]
    rows: Option<PathBuf>,
    /// Output format.
    #[arg(
        short,
        long,
        value_enum,
        default_value = "text",
        conflicts_with = "kind"
    )]
    output: Output,
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

/// It is not known what an apply would change.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Unknown(AnyError);

/// Whether an apply of the file would change anything. Without a file it is false: the exit status says nothing of held content.
pub fn diff(arguments: &Arguments) -> Result<bool, AnyError> {
    match (&arguments.filename, arguments.kind, &arguments.name) {
        (Some(file), ..) => {
            let shown = run(preview::show(file, arguments));
            shown.map_err(|error| Unknown(error).into())
        }
        (None, Some(kind), Some(name)) => {
            run(show(kind, name, &arguments.connection))?;
            Ok(false)
        }
        (None, ..) => unreachable!("clap demands a kind and a name, or a file"),
    }
}

async fn show(kind: Subject, name: &str, connection: &Connection) -> Result<(), AnyError> {
    let cluster = connection.connect().await?;
    let text = match kind {
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
    let mut groups = Groups::default();
    let seen = each_node(cluster, hub, |node| {
        let text = |at: &str| node.pointer(at).and_then(|text| text.as_str());
        let text = |at: &str| text(at).unwrap_or_default().to_owned();
        if text("/spec/templateRef") != form {
            return;
        }
        if let Some(diff) = diff::of_node(&node) {
            groups.add(&text("/metadata/name"), &text("/spec/uid"), diff);
        }
    });
    seen.await?;
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

/// Hands over the LynqNodes of a hub. One page of them is in memory at once.
async fn each_node(cluster: &Connected, hub: &str, each: impl FnMut(Value)) -> Result<(), Error> {
    let of_hub = ListParams::default().labels(&format!("{}={hub}", names::LABEL_HUB));
    let of_nodes = ObjectKey::own("LynqNode", "", "").kind;
    let objects = &cluster.objects;
    let listed = objects.list_selected(&of_nodes, &cluster.namespace, of_hub, each);
    listed.await.map_err(|reason| Error::Api {
        what: "LynqNodes".to_owned(),
        reason,
    })
}
