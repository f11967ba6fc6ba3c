//! `lynqgate replay`: what it says of a state, its exit statuses, and the cases that it writes.

use std::process::Command;
use std::{fs, str};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::offline::{failed, lynqgate, succeeded};
use crate::operator::{program, root};

fn case() -> Result<(String, Value)> {
    let path = root().join("tests/cases/snapshots/halted.json");
    let text = fs::read_to_string(path)?;
    let document = serde_json::from_str(&text)?;
    Ok((text, document))
}

#[test]
fn a_state_is_planned_again_and_what_differs_is_said() -> Result<()> {
    let (text, mut document) = case()?;
    let same = lynqgate(&["replay", "-"], &text)?;
    let said = succeeded(&same)?;
    let first = said.lines().next().context("a line")?;
    ensure!(first.ends_with(": the same plan"), "{first}");
    ensure!(said.contains(" waits: RolloutFailed: halted"), "{said}");

    document["hubs"][0]["plan"]["failed"] = json!(["nobody-web"]);
    document["lynqgate"] = json!("0.0.9");
    let differs = lynqgate(&["replay", "-", "-o", "json"], &document.to_string())?;
    let error = failed(&differs)?;
    ensure!(
        error == "lynqgate: 1 of 1 plans is not as recorded\n",
        "{error}"
    );
    let hubs: Value = serde_json::from_slice(&differs.stdout)?;
    let differences = &hubs[0]["differences"];
    ensure!(differences[0]["path"] == "failed", "{differences}");
    ensure!(hubs[0]["lynqgate"] == "0.0.9", "{hubs}");

    let follower = json!({"kind": "LynqgateState", "format": 1, "lynqgate": "0.1.0", "leads": false, "hubs": []});
    document["format"] = json!(2);
    for (input, arguments, said) in [
        ("{}", &[][..], "-: it is not an answer of /debug/state"),
        (
            &document.to_string(),
            &[],
            "lynqgate 0.0.9 wrote it in format 2",
        ),
        (
            &follower.to_string(),
            &[],
            "the replica that answered leads no hub",
        ),
        (
            &text,
            &["--hub", "a/b"],
            "there is no pass of hub a/b in it",
        ),
    ] {
        let arguments = [&["replay", "-"], arguments].concat();
        let output = lynqgate(&arguments, input)?;
        let error = str::from_utf8(&output.stderr)?;
        ensure!(
            output.status.code() == Some(2),
            "{}: {error}",
            output.status
        );
        ensure!(error.contains(said), "{error}");
    }
    Ok(())
}

#[test]
fn a_state_becomes_a_case_once() -> Result<()> {
    let (text, _) = case()?;
    let directory = tempfile::tempdir()?;
    let state = directory.path().join("state.json");
    fs::write(&state, &text)?;
    let write = || -> Result<(Option<i32>, String)> {
        let output = Command::new(program("lynqgate")?)
            .args(["replay", "state.json", "--as-case", "an-incident"])
            .current_dir(directory.path())
            .output()?;
        Ok((output.status.code(), String::from_utf8(output.stderr)?))
    };
    let (code, error) = write()?;
    let no_checkout = error.contains("run this in the root of a checkout of lynqgate");
    ensure!(code == Some(2) && no_checkout, "{code:?}: {error}");
    let cases = directory.path().join("tests/cases/snapshots");
    fs::create_dir_all(&cases)?;
    let (code, error) = write()?;
    ensure!(code == Some(0) && error.is_empty(), "{code:?}: {error}");
    let written = fs::read_to_string(cases.join("an-incident.json"))?;
    ensure!(written == text, "{written}");
    let (code, error) = write()?;
    let is_there = error.contains("give the case another name, or delete that one");
    ensure!(code == Some(2) && is_there, "{code:?}: {error}");
    Ok(())
}
