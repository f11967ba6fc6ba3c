//! What needs no cluster: `lynqgate render`, `lynqgate test`, `lynqgate eval` and `lynqgate replay`, as a user or a pipeline calls
//! them.

mod api_server;
mod completed;
mod ends;
mod replay;
mod tested;

use std::process::{Command, Output, Stdio};
use std::{io::Write, str};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::operator::{program, root};

/// Runs it with this on its standard input.
pub fn lynqgate(arguments: &[&str], input: &str) -> Result<Output> {
    let mut child = Command::new(program("lynqgate")?)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child
        .stdin
        .take()
        .context("stdin")?
        .write_all(input.as_bytes())?;
    Ok(child.wait_with_output()?)
}

pub fn succeeded(output: &Output) -> Result<&str> {
    let said = str::from_utf8(&output.stderr)?;
    ensure!(output.status.success() && said.is_empty(), "{said}");
    Ok(str::from_utf8(&output.stdout)?)
}

fn failed(output: &Output) -> Result<&str> {
    ensure!(output.status.code() == Some(1), "{}", output.status);
    Ok(str::from_utf8(&output.stderr)?)
}

/// A value may look like a template, and a list stand in a list.
#[test]
fn each_text_is_rendered_once_wherever_it_stands() -> Result<()> {
    let mut resource = config_map("{{ .uid }}-map", "{{ .plan }}");
    resource["spec"]["rules"] = json!([["{{ .uid }}", {"of": ["{{ .plan }}"]}]]);
    let row = r#"{"uid": "acme", "plan": "{{ .uid }}"}"#;
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("row.json");
    std::fs::write(&path, row)?;
    let path = path.display().to_string();
    let arguments = ["render", "-f", "-", "--row", &path, "-o", "json"];
    let output = lynqgate(&arguments, &form(resource))?;
    let node: Value = serde_json::from_str(succeeded(&output)?)?;
    let rendered = &node["spec"]["configMaps"][0]["spec"];
    ensure!(rendered["data"]["plan"] == "{{ .uid }}", "{rendered}");
    let rules = json!([["acme", {"of": ["{{ .uid }}"]}]]);
    ensure!(rendered["rules"] == rules, "{rendered}");
    Ok(())
}

/// An example rendered for a row of its hub's table.
pub fn render(example: &str, row: &Value) -> Result<Value> {
    let path = |name: &str| format!("{}/tests/forms/{name}", root().display());
    let (form, hub) = (path(example), path("web-tenant.yaml"));
    let arguments = [
        "render", "-f", &form, "--hub", &hub, "--row", "-", "-o", "json",
    ];
    let output = lynqgate(&arguments, &row.to_string())?;
    Ok(serde_json::from_str(succeeded(&output)?)?)
}

fn form(resource: Value) -> String {
    json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm", "metadata": {"name": "web"},
        "spec": {"hubId": "tenants", "configMaps": [resource]},
    })
    .to_string()
}

fn config_map(name: &str, plan: &str) -> Value {
    json!({
        "id": "map", "nameTemplate": name,
        "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": plan}},
    })
}

#[test]
fn a_form_is_rendered_for_a_row_in_the_operators_words() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let row = |row: &str| -> Result<String> {
        let path = directory.path().join("row.json");
        std::fs::write(&path, row)?;
        Ok(path.display().to_string())
    };
    let acme = r#"{"uid": "acme", "plan": "pro"}"#;
    let good = form(config_map("{{ .uid }}-map", "{{ .plan | upper }}"));
    let output = lynqgate(&["render", "-f", "-", "--row", &row(acme)?], &good)?;
    let node: Value = serde_saphyr::from_str(succeeded(&output)?)?;
    ensure!(node["metadata"]["name"] == "acme-web", "{node}");
    let map = &node["spec"]["configMaps"][0];
    ensure!(
        map["nameTemplate"] == "acme-map" && map["spec"]["data"]["plan"] == "PRO",
        "{map}"
    );

    let output = lynqgate(
        &[
            "render",
            "-f",
            "-",
            "--row",
            &row(r#"{"uid": "acme", "activate": false}"#)?,
        ],
        &good,
    )?;
    ensure!(
        output.status.success() && output.stdout.is_empty(),
        "an inactive row has no node"
    );
    let said = str::from_utf8(&output.stderr)?;
    ensure!(said == "the row is inactive: it gets no node\n", "{said}");

    let mut labelled = config_map("{{ .uid }}-map", "x");
    labelled["labelsTemplate"] = json!({"tier": "{{ .tier }} for all"});
    let mut labelled_itself = config_map("{{ .uid }}-map", "x");
    labelled_itself["spec"]["metadata"] = json!({"labels": {"tier": "gold!"}});
    let mut annotated = config_map("{{ .uid }}-map", "{{ .uid }}");
    annotated["spec"]["metadata"] = json!({"annotations": {"two words": "x"}});
    let mut delayed = config_map("{{ .uid }}-map", "x");
    delayed["minDelay"] = json!("10x");
    for (what, form, given, said) in [
        (
            "a template that does not parse",
            form(config_map("{{ .uid }-map", "x")),
            acme,
            "lynqgate: lynqform web: template validation failed: invalid NameTemplate in resource 'map': failed to parse template: ",
        ),
        (
            "an unknown variable",
            form(config_map("{{ .uid }}-map", "{{ .tier }}")),
            acme,
            "lynqgate: LynqNode acme-web: resource \"map\": spec.data.plan: template: web:1:3: executing \"web\" at <.tier>: map has no entry for key \"tier\"",
        ),
        (
            "a label whose value only the row has, in a form's words",
            form(labelled),
            r#"{"uid": "acme", "tier": "hunter2"}"#,
            "labelsTemplate[tier]: \"… for all\" is no label",
        ),
        (
            "a label that the form has",
            form(labelled_itself),
            acme,
            "spec.metadata.labels[tier]: \"gold!\" is no label",
        ),
        (
            "the name of an annotation",
            form(annotated),
            acme,
            "spec.metadata.annotations: \"two words\" is no key",
        ),
        (
            "a bad uid",
            good.clone(),
            r#"{"uid": "Acme!"}"#,
            "lynqgate: Row \"Acme!\": the uid cannot be part of a Kubernetes name",
        ),
        (
            "no uid",
            good.clone(),
            r#"{"plan": "pro"}"#,
            "row.json: the row has no \"uid\": add it, or give --hub: its valueMappings say which column that is",
        ),
        (
            "no row",
            good.clone(),
            "[]",
            "row.json: give one JSON object, and nothing else",
        ),
        (
            "a nested value",
            good.clone(),
            r#"{"uid": "a", "plan": {}}"#,
            "row.json: \"plan\" is an object; give a text",
        ),
        (
            "no form",
            json!({"kind": "LynqHub"}).to_string(),
            acme,
            "lynqgate: -: there is no LynqForm in it",
        ),
        ("no YAML", "a: [".to_owned(), acme, "lynqgate: -: "),
        (
            "what only the API server's pattern refuses",
            form(delayed),
            acme,
            "lynqgate: lynqform web: spec.configMaps[0].minDelay: \"10x\" does not match ",
        ),
    ] {
        let output = lynqgate(&["render", "-f", "-", "--row", &row(given)?], &form)?;
        let text = failed(&output)?;
        ensure!(text.contains(said), "{what}: {text}");
    }
    Ok(())
}

#[test]
fn one_template_is_evaluated_to_standard_output() -> Result<()> {
    let variables = r#"{"name": "acme", "n": 3, "nothing": null, "tags": ["a", "b"], "db": {"port": 5432}, "empty": []}"#;
    for (engine, template, expected) in [
        (
            "go",
            "{{ .name | upper }}-{{ .n }}{{ .nothing }}\n",
            "ACME-3\n",
        ),
        ("jinja", "{{ name | upper }}-{{ n }}{{ nothing }}", "ACME-3"),
        (
            "go",
            "{{ range .tags }}{{ . }};{{ end }}{{ .db.port }} {{ add1 .n }} {{ len .empty }}",
            "a;b;5432 4 0",
        ),
        (
            "jinja",
            "{% for tag in tags %}{{ tag }};{% endfor %}{{ db.port }} {{ n }}{{ empty | length }}",
            "a;b;5432 30",
        ),
    ] {
        let arguments = [
            "eval",
            "--template",
            template,
            "--vars",
            "-",
            "--engine",
            engine,
        ];
        let output = lynqgate(&arguments, variables)?;
        let text = succeeded(&output)?;
        ensure!(text == expected, "{engine}: {text:?}");
    }
    let output = lynqgate(&["eval", "--template", "{{ .missing }}"], "")?;
    let text = failed(&output)?;
    ensure!(
        text == "lynqgate: template: template:1:3: executing \"template\" at <.missing>: map has no entry for key \"missing\"\n",
        "{text}"
    );
    Ok(())
}

/// Runs it with 2 s of a processor and 64 MiB of memory of its own: with more it is killed.
fn bounded(arguments: &[&str], input: &str) -> Result<Output> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("input");
    std::fs::write(&path, input)?;
    let output = Command::new("sh")
        .args(["-c", "ulimit -t 2 && ulimit -d 65536 && exec \"$@\"", "sh"])
        .arg(program("lynqgate")?)
        .args(arguments)
        .stdin(std::fs::File::open(&path)?)
        .output()?;
    Ok(output)
}

#[test]
fn hostile_templates_end_with_their_limit_in_little_time_and_memory() -> Result<()> {
    let nested = format!(
        "{}{}",
        "{{ if true }}".repeat(5000),
        "{{ end }}".repeat(5000)
    );
    let nested = nested.as_str();
    let nested_in_jinja = format!(
        "{}{}",
        "{% if true %}".repeat(5000),
        "{% endif %}".repeat(5000)
    );
    let in_parentheses = format!("{{{{ {}1{} }}}}", "(".repeat(5000), ")".repeat(5000));
    let (steps, memory, output) = (
        "takes more than 200000 steps",
        "values take more than 8388608 bytes",
        "writes more than 1048576 bytes",
    );
    for (engine, template, said) in [
        ("go", "{{ range 1000000000 }}{{ end }}", steps),
        ("go", "{{ range until 1000000000 }}{{ end }}", steps),
        (
            "go",
            "{{ range 100 }}{{ repeat 100000 \"x\" }}{{ end }}",
            output,
        ),
        ("go", "{{ repeat 10000000 \"x\" }}", memory),
        ("go", nested, "more than 100 deep"),
        (
            "go",
            "{{ define \"t\" }}{{ template \"t\" }}{{ end }}{{ template \"t\" }}",
            "more than 100 deep",
        ),
        (
            "go",
            "{{ regexMatch \"(x+x+)+y\" (repeat 1000000 \"x\") }}",
            steps,
        ),
        (
            "go",
            "{{ regexReplaceAll \"\" (repeat 1000000 \"m\") .uid }}",
            steps,
        ),
        (
            "go",
            "{{ printf (repeat 10000 \"%[1]v\") (repeat 10000 \"x\") }}",
            memory,
        ),
        ("go", "{{ printf \"%999999999d\" 1 }}", ""),
        (
            "go",
            "{{ $x := repeat 1000000 \"aB\" }}{{ range 9 }}{{ snakecase $x | len }}{{ end }}",
            steps,
        ),
        (
            "go",
            "{{ $l := list 1 2 3 4 }}{{ range 30 }}{{ $l = concat $l $l }}{{ end }}",
            memory,
        ),
        (
            "jinja",
            "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
            "takes more than 50000 steps",
        ),
        (
            "jinja",
            "{% for i in range(100) %}{{ repeat(100000, 'x') }}{% endfor %}",
            output,
        ),
        ("jinja", "{{ repeat(10000000, 'x') }}", memory),
        (
            "jinja",
            "{{ range(1000000000) }}",
            "a range has more than 10000 items",
        ),
        ("jinja", "{{ until(1000000000) }}", steps),
        ("jinja", &nested_in_jinja, "more than 50 deep"),
        ("jinja", &in_parentheses, "more than 250 words and signs"),
        (
            "jinja",
            "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
            "more than 50 deep",
        ),
        (
            "jinja",
            "{{ regexMatch('(x+x+)+y', repeat(1000000, 'x')) }}",
            steps,
        ),
    ] {
        let arguments = [
            "eval",
            "--vars",
            "-",
            "--engine",
            engine,
            "--template",
            template,
        ];
        let ended = bounded(&arguments, r#"{"uid": "acme"}"#)?;
        let shown: String = template.chars().take(80).collect();
        ensure!(ended.status.code().is_some(), "{shown}: {}", ended.status);
        if !said.is_empty() {
            let told = failed(&ended)?;
            ensure!(told.contains(said), "{shown}: {told}");
        }
    }
    Ok(())
}

/// Each of its texts keeps to its own limits.
#[test]
fn a_hostile_form_ends_with_the_limit_of_its_row() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("row.json");
    std::fs::write(&path, r#"{"uid": "acme"}"#)?;
    let row = path.display().to_string();
    for (engine, texts, text, said) in [
        (
            "Go",
            200,
            "{{ repeat 1000000 \"x\" }}",
            "write more than 1048576 bytes for one row",
        ),
        (
            "Go",
            1000,
            "{{ range 190000 }}{{ end }}",
            "take more than 400000 steps for one row",
        ),
        (
            "Jinja",
            1000,
            "{% for i in range(9999) %}{% endfor %}",
            "take more than 400000 steps for one row",
        ),
    ] {
        let mut map = config_map("{{ .uid }}", "");
        map["nameTemplate"] = json!("map");
        let data = (0..texts).map(|i| (format!("k{i}"), json!(text)));
        map["spec"]["data"] = Value::Object(data.collect());
        let mut form: Value = serde_json::from_str(&form(map))?;
        form["spec"]["templateEngine"] = json!(engine);
        let arguments = ["render", "-f", "-", "--row", &row];
        let ended = bounded(&arguments, &form.to_string())?;
        let told = failed(&ended).with_context(|| text.to_owned())?;
        ensure!(told.contains(said), "{text}: {told}");
    }
    Ok(())
}

/// Whoever tries what docs/TEMPLATES.md shows gets what it shows.
#[test]
fn the_manual_shows_what_is_printed() -> Result<()> {
    let manual = std::fs::read_to_string(root().join("docs/TEMPLATES.md"))?;
    let (_, trying) = manual.split_once("```console\n").context("commands")?;
    let (console, after) = trying.split_once("```").context("their end")?;
    let directory = tempfile::tempdir()?;
    std::os::unix::fs::symlink(root().join("tests"), directory.path().join("tests"))?;
    let row = after.split('`').nth(1).context("the row")?;
    std::fs::write(directory.path().join("row.json"), row)?;
    let program = program("lynqgate")?;
    let programs = program.parent().context("its directory")?.display();
    let mut tried = 0;
    for step in console.split("$ ").skip(1) {
        let (command, shown) = step.split_once('\n').context("a line")?;
        if let Some(file) = command.strip_prefix("cat ") {
            std::fs::write(directory.path().join(file), shown)?;
            continue;
        }
        let output = Command::new("sh")
            .args(["-c", &format!("PATH=\"{programs}:$PATH\"; {command} 2>&1")])
            .current_dir(&directory)
            .output()?;
        let printed = str::from_utf8(&output.stdout)?;
        let as_shown = match shown {
            "" => printed.contains("kind: LynqNode") && printed.contains("acme.example.com"),
            // A result ends where its template ends.
            shown => printed.trim_end() == shown.trim_end(),
        };
        ensure!(as_shown, "{command}\n{printed}");
        tried += 1;
    }
    ensure!(tried == 5, "{tried} commands");
    Ok(())
}
