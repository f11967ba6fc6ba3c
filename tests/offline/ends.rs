//! What is no form, no row, or no reader.

use std::process::{Command, Stdio};
use std::{io::Write, str};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::offline::{config_map, failed, form, lynqgate, succeeded};
use crate::operator::program;

/// `| head -1` closes the pipe.
#[test]
fn a_reader_that_goes_is_no_failure() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let row = directory.path().join("row.json");
    std::fs::write(&row, r#"{"uid": "acme"}"#)?;
    let row = row.display().to_string();
    let good = form(config_map("{{ .uid }}-map", "x"));
    let template = "{{ range 1000 }}{{ $.uid }}\n{{ end }}";
    for (arguments, input, code) in [
        (
            &["eval", "--template", template, "--vars", "-"][..],
            r#"{"uid": "acme"}"#,
            0,
        ),
        (&["render", "-f", "-", "--row", &row], &good, 0),
        (
            &["render", "-f", "-", "--row", &row, "-o", "json"],
            &good,
            0,
        ),
        (&["render", "-f", "-", "--row", &row], "a: [", 1),
        (&["--help"], "", 0),
    ] {
        let mut child = Command::new(program("lynqgate")?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        // It has read nothing yet, so that it writes nothing before.
        drop(child.stdout.take());
        // An error has nobody who reads it, either.
        let stderr = child.stderr.take().filter(|_| code == 0);
        let mut stdin = child.stdin.take().context("stdin")?;
        // --help reads nothing.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let said = stderr.map(std::io::read_to_string).transpose()?;
        let said = said.unwrap_or_default();
        let status = child.wait()?;
        let silent = status.code() == Some(code) && said.is_empty();
        ensure!(silent, "{arguments:?}: {status}: {said}");
    }
    Ok(())
}

#[test]
fn a_form_or_a_hub_that_is_none_is_refused() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str, text: &str| -> Result<String> {
        let path = directory.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    };
    let row = path("row.json", r#"{"uid": "acme", "activate": "1"}"#)?;
    let with = |field: &str, value: Value| -> Result<String> {
        let mut object: Value = serde_json::from_str(&form(config_map("{{ .uid }}-map", "x")))?;
        *object.pointer_mut(field).context("the field")? = value;
        Ok(object.to_string())
    };
    for (form, said) in [
        (
            with("/apiVersion", json!("v1"))?,
            "lynqform web: apiVersion: a LynqForm is of operator.lynq.sh/v1",
        ),
        (
            with("/metadata", json!({}))?,
            "metadata.name: null cannot be a name; give up to 253 of a-z",
        ),
        (
            with("/metadata", json!({"name": "Web"}))?,
            "metadata.name: \"Web\" cannot be a name",
        ),
        (
            with("/metadata", json!({"name": "web", "namespace": "a.b"}))?,
            "metadata.namespace: \"a.b\" cannot be one",
        ),
    ] {
        let output = lynqgate(&["render", "-f", "-", "--row", &row], &form)?;
        let text = failed(&output)?;
        ensure!(text.contains(said), "{said}: {text}");
    }
    let hub = |namespace: Value| {
        json!({
            "apiVersion": "operator.lynq.sh/v1", "kind": "LynqHub",
            "metadata": {"name": "tenants", "namespace": namespace},
            "spec": {
                "source": {"type": "configMap", "configMap": {"name": "rows", "key": "rows.csv"}},
                "valueMappings": {"uid": "uid", "activate": "activate"},
            },
        })
        .to_string()
    };
    let ours = with("/metadata", json!({"name": "web", "namespace": "ours"}))?;
    for (namespace, said) in [
        (json!("ours"), ""),
        (Value::Null, ""),
        (
            json!("theirs"),
            "lynqhub tenants: it is in namespace \"theirs\", and the form in \"ours\"; a form is of a hub in its own",
        ),
    ] {
        let hub = path("hub.json", &hub(namespace))?;
        let output = lynqgate(&["render", "-f", "-", "--row", &row, "--hub", &hub], &ours)?;
        if said.is_empty() {
            succeeded(&output)?;
            continue;
        }
        let text = failed(&output)?;
        ensure!(text.contains(said), "{text}");
    }
    Ok(())
}

/// A text of so many levels, in YAML's block form and in JSON.
fn nested(levels: usize) -> [String; 2] {
    let block = (0..levels).map(|level| format!("{}a:\n", " ".repeat(level)));
    let indented = block.map(|line| format!("      {line}")).collect();
    let json = format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    [indented, json]
}

#[test]
fn a_form_that_is_nested_too_deep_is_told_where() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let row = directory.path().join("row.json");
    std::fs::write(&row, r#"{"uid": "acme"}"#)?;
    let row = row.display().to_string();
    for (levels, said) in [
        (60, ""),
        (
            65,
            "resource \"map\" in configMaps is nested too deeply: a manifest may have 64 levels, itself included",
        ),
        (
            90,
            " is nested more than 80 levels deep; a manifest may have 64 levels, itself included",
        ),
        (
            600,
            " is nested more than 80 levels deep; a manifest may have 64 levels, itself included",
        ),
    ] {
        let [block, json] = nested(levels);
        let head = "apiVersion: operator.lynq.sh/v1\nkind: LynqForm\nmetadata: {name: web}\n\
                    spec:\n  hubId: h\n  configMaps:\n  - id: map\n    nameTemplate: x\n    spec:\n      \
                    apiVersion: v1\n      kind: ConfigMap\n";
        let mut of_json: Value = serde_json::from_str(&form(config_map("x", "x")))?;
        of_json["spec"]["configMaps"][0]["spec"]["data"] = json!("DEEP");
        for text in [
            format!("{head}{block}"),
            of_json.to_string().replace("\"DEEP\"", &json),
        ] {
            let output = lynqgate(&["render", "-f", "-", "--row", &row], &text)?;
            if said.is_empty() {
                succeeded(&output).with_context(|| levels.to_string())?;
                continue;
            }
            let told = failed(&output)?;
            ensure!(told.contains(said), "{levels}: {told}");
        }
    }
    Ok(())
}

#[test]
fn a_number_that_a_row_would_write_otherwise_is_refused() -> Result<()> {
    for (rows, said) in [
        (
            "zip: 01234\n",
            "lynqgate: -: \"zip\" would lose how it is written",
        ),
        ("{\"zip\": \"01234\"}", ""),
    ] {
        let output = lynqgate(&["eval", "--template", "{{ .zip }}", "--vars", "-"], rows)?;
        if said.is_empty() {
            ensure!(succeeded(&output)? == "01234");
            continue;
        }
        let told = failed(&output)?;
        ensure!(told.contains(said), "{told}");
    }
    Ok(())
}
