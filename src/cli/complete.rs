//! Completion in a shell. The names of objects, of `source <(COMPLETE=bash lynqgate)`: what cannot be read completes nothing. And the
//! answer to kubectl, which completes its plugins by programs of their own.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use clap::{Command, ValueEnum};
use clap_complete::engine::{self, CompletionCandidate};

use crate::cli::subject::Subject;
use crate::cluster::client;
use crate::cluster::objects::Objects;

/// A shell that waits longer than this for a completion is in the way.
const PATIENCE: Duration = Duration::from_secs(2);

/// The program that kubectl runs to complete `kubectl lynqgate` (its pkg/cmd/plugin/plugin_completion.go).
const FOR_KUBECTL: &str = "kubectl_complete-lynqgate";

/// What the last line tells the shell, as of cobra: bits.
const NO_SPACE: u8 = 2;
const NO_FILES: u8 = 4;

/// What kubectl reads, where it asks.
pub fn for_kubectl(command: Command) -> Option<String> {
    let mut words = std::env::args_os();
    let program = words.next()?;
    let is_asked = Path::new(&program).file_name()? == FOR_KUBECTL;
    is_asked.then(|| answer(command, words))
}

/// `words`: what follows `kubectl lynqgate`; the last of them is completed.
pub fn answer(mut command: Command, words: impl Iterator<Item = OsString>) -> String {
    let program = OsString::from("lynqgate");
    let words: Vec<OsString> = std::iter::once(program).chain(words).collect();
    let place = words.len() - 1;
    let is_option = words[place].to_string_lossy().starts_with('-');
    let here = std::env::current_dir().ok();
    let found = engine::complete(&mut command, words, place, here.as_deref());
    let found = found.unwrap_or_default().into_iter();
    let found = found.map(|candidate| candidate.get_value().to_string_lossy().into_owned());
    // As kubectl does with its own: options, once a dash is typed.
    let found: Vec<String> = found
        .filter(|word| is_option || !word.starts_with('-'))
        .collect();
    let directive = match found.iter().any(|word| word.ends_with('/')) {
        true => NO_FILES | NO_SPACE,
        false => NO_FILES,
    };
    let lines = found.iter().map(|word| format!("{word}\n"));
    lines.collect::<String>() + &format!(":{directive}\n")
}

pub fn forms() -> Vec<CompletionCandidate> {
    of_kind(Subject::Form)
}

pub fn hubs() -> Vec<CompletionCandidate> {
    of_kind(Subject::Hub)
}

pub fn nodes() -> Vec<CompletionCandidate> {
    of_kind(Subject::Node)
}

/// Of the kind that stands before the name.
pub fn any() -> Vec<CompletionCandidate> {
    let mut words = std::env::args_os();
    let kind = words.find_map(|word| Subject::from_str(word.to_str()?, false).ok());
    kind.map(of_kind).unwrap_or_default()
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

fn of_kind(kind: Subject) -> Vec<CompletionCandidate> {
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

async fn names(kind: Subject) -> Option<Vec<String>> {
    let (kubeconfig, context) = (option(&["--kubeconfig"]), option(&["--context"]));
    let connected = client::connect(kubeconfig.as_deref(), context.as_deref()).await;
    let (client, _) = connected.ok()?;
    let namespace = option(&["-n", "--namespace"]);
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let of_kind = kind.key("", "").kind;
    let mut names = vec![];
    let objects = Objects::new(client);
    let listed = objects.list(&of_kind, &namespace, |object| {
        names.extend(object["metadata"]["name"].as_str().map(str::to_owned));
    });
    listed.await.ok()?;
    Some(names)
}
