//! Names of objects for the completion of a shell: `source <(COMPLETE=bash lynqgate)`. What cannot be read completes nothing.

use std::ffi::OsString;
use std::time::Duration;

use clap_complete::engine::CompletionCandidate;

use crate::cluster::client;
use crate::cluster::objects::Objects;
use crate::decide::child::ObjectKey;

/// A shell that waits longer than this for a completion is in the way.
const PATIENCE: Duration = Duration::from_secs(2);

pub fn forms() -> Vec<CompletionCandidate> {
    of_kind("LynqForm")
}

pub fn hubs() -> Vec<CompletionCandidate> {
    of_kind("LynqHub")
}

pub fn nodes() -> Vec<CompletionCandidate> {
    of_kind("LynqNode")
}

/// Of the kind that stands before the name.
pub fn any() -> Vec<CompletionCandidate> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let is_there = |names: &[&str]| {
        words
            .iter()
            .any(|word| names.iter().any(|name| word == name))
    };
    match () {
        () if is_there(&["hub", "lynqhub", "lhub"]) => hubs(),
        () if is_there(&["form", "lynqform", "lform"]) => forms(),
        () if is_there(&["node", "lynqnode", "lnode"]) => nodes(),
        () => vec![],
    }
}

/// The value of an option that is already typed.
fn option(names: &[&str]) -> Option<String> {
    let words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let after = words.iter().position(|word| names.contains(&word.as_str()));
    let spelled = |word: &String| {
        let (name, value) = word.split_once('=')?;
        names.contains(&name).then(|| value.to_owned())
    };
    after
        .and_then(|at| words.get(at + 1).cloned())
        .or_else(|| words.iter().find_map(spelled))
}

fn of_kind(kind: &str) -> Vec<CompletionCandidate> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let names = runtime.map(|runtime| {
        runtime.block_on(async { tokio::time::timeout(PATIENCE, names(kind)).await })
    });
    let names = names.ok().and_then(Result::ok).flatten();
    let names = names.unwrap_or_default().into_iter();
    names.map(CompletionCandidate::new).collect()
}

async fn names(kind: &str) -> Option<Vec<String>> {
    let (kubeconfig, context) = (option(&["--kubeconfig"]), option(&["--context"]));
    let connected = client::connect(kubeconfig.as_deref(), context.as_deref()).await;
    let (client, _) = connected.ok()?;
    let namespace = option(&["-n", "--namespace"]);
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let of_kind = ObjectKey::own(kind, "", "").kind;
    let mut names = vec![];
    let objects = Objects::new(client);
    let listed = objects.list(&of_kind, &namespace, |object| {
        names.extend(object["metadata"]["name"].as_str().map(str::to_owned));
    });
    listed.await.ok()?;
    Some(names)
}
