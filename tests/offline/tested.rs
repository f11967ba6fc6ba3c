//! `lynqgate test` with the example in tests/cases/tested: what it reports, its exit statuses, and what it writes.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::offline::{config_map, form, lynqgate};
use crate::operator::root;

/// A copy of the example.
struct Example(TempDir);

/// What the command printed, and its exit status.
struct Answer {
    status: i32,
    out: String,
    error: String,
}

impl Example {
    fn copied() -> Result<Self> {
        let example = Example(tempfile::tempdir()?);
        fs::create_dir(example.path("golden"))?;
        fs::create_dir(example.path("schemas"))?;
        for file in [
            "web.yaml",
            "app.yaml",
            "rows.csv",
            "golden/acme-web.yaml",
            "golden/beta-web.yaml",
            "schemas/apps-v1.json",
            "schemas/bucket.yaml",
            "schemas/v1.json",
        ] {
            let original = root().join("tests/cases/tested").join(file);
            fs::write(example.path(file), fs::read_to_string(original)?)?;
        }
        Ok(example)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// Puts one text of a file in the place of another.
    fn change(&self, file: &str, before: &str, after: &str) -> Result<()> {
        let text = fs::read_to_string(self.path(file))?;
        ensure!(text.contains(before), "{before} is not in {text}");
        Ok(fs::write(self.path(file), text.replace(before, after))?)
    }

    /// `options`: with `golden` for the directory of that name.
    fn test(&self, options: &[&str]) -> Result<Answer> {
        let [form, rows, golden] =
            ["web.yaml", "rows.csv", "golden"].map(|file| self.path(file).display().to_string());
        let mut arguments = vec!["test", &form, "--hub", &form, "--rows", &rows];
        arguments.extend(options.iter().map(|option| match *option {
            "golden" => golden.as_str(),
            other => other,
        }));
        answer(&arguments)
    }

    /// The same of the form that is there to be validated; with `schemas` for the directory of that name, here and in the answer.
    fn validate(&self, options: &[&str]) -> Result<Answer> {
        let [form, hub, rows, schemas] = ["app.yaml", "web.yaml", "rows.csv", "schemas"]
            .map(|file| self.path(file).display().to_string());
        let mut arguments = vec!["test", &form, "--hub", &hub, "--rows", &rows];
        arguments.extend(options.iter().map(|option| match *option {
            "schemas" => schemas.as_str(),
            other => other,
        }));
        let answer = answer(&arguments)?;
        Ok(Answer {
            out: answer.out.replace(&schemas, "schemas"),
            ..answer
        })
    }
}

fn answer(arguments: &[&str]) -> Result<Answer> {
    let output = lynqgate(arguments, "")?;
    Ok(Answer {
        status: output.status.code().context("it was not killed")?,
        out: String::from_utf8(output.stdout)?,
        error: String::from_utf8(output.stderr)?,
    })
}

impl Answer {
    /// `parts`: of what was printed to standard output.
    fn expect(&self, status: i32, error: &str, parts: &[&str]) -> Result<()> {
        let Answer {
            out, error: said, ..
        } = self;
        let shown = format!("exit status {}\n{out}{said}", self.status);
        ensure!(self.status == status, "{status} is wanted: {shown}");
        ensure!(said == error, "{error:?} is wanted: {shown}");
        for part in parts {
            ensure!(out.contains(part), "{part:?} is wanted: {shown}");
        }
        Ok(())
    }
}

#[test]
fn a_form_that_renders_for_all_rows_passes() -> Result<()> {
    let example = Example::copied()?;
    let counts = "form web: 3 rows: 2 rendered, 0 failed, 0 skipped, 1 inactive\n";
    let without = example.test(&[])?;
    without.expect(0, "", &[])?;
    let hint = "  schemas    none given: the manifests were not validated. Give --schemas cluster, or --schemas PATH\n";
    ensure!(without.out == format!("{counts}{hint}"), "{}", without.out);
    let compared = example.test(&["--golden", "golden"])?;
    compared.expect(0, "", &[counts, ": 2 as expected\n"])?;
    let compared = example.test(&["--golden", "golden", "-o", "json"])?;
    let told: Value = serde_json::from_str(&compared.out)?;
    ensure!(
        told["rendered"] == 2 && told["golden"]["same"] == 2,
        "{told}"
    );
    Ok(())
}

#[test]
fn rows_that_fail_are_grouped_by_cause() -> Result<()> {
    let example = Example::copied()?;
    example.change(
        "rows.csv",
        "gone,0,pro\n",
        "gone,0,pro\nbad1,1,gold!\nbad2,1,silver!\nA!,1,pro\n",
    )?;
    let failed = "lynqgate: form web: 2 failed, 1 skipped\n";
    let parts = [
        "form web: 6 rows: 2 rendered, 2 failed, 1 skipped, 1 inactive\n",
        "\n  failed     LynqNodes bad1-web, bad2-web: resource \"settings\": labelsTemplate[plan]: ",
        "\n  skipped    Row \"A!\": the uid cannot be part of a Kubernetes name; ",
    ];
    example.test(&[])?.expect(1, failed, &parts)?;
    // Nodes that do not render are not compared.
    let compared = example.test(&["--golden", "golden"])?;
    compared.expect(1, failed, &[": 2 as expected\n"])?;
    let answer = example.test(&["-o", "json"])?;
    answer.expect(1, failed, &[])?;
    let told: Value = serde_json::from_str(&answer.out)?;
    let names = &told["whyFailed"][0]["names"];
    ensure!(*names == json!(["bad1-web", "bad2-web"]), "{told}");
    ensure!(
        told["skipped"] == 1 && told["golden"] == Value::Null,
        "{told}"
    );
    Ok(())
}

const INVALID: &str = "form app: 3 rows: 2 rendered, 0 failed, 0 skipped, 1 inactive
  schemas    schemas: 0 of 2 nodes valid
  invalid    LynqNodes acme-app, beta-app: resource \"app\" (Deployment): spec.template.spec.containers[0].readynessProbe: unknown field; did you mean \"readinessProbe\"?
  invalid    LynqNode acme-app: resource \"app\" (Deployment): spec.template.spec.containers[0].resources.limits.memory: not a quantity; write it like 64Mi, 1G, 500m or 2
  invalid    LynqNodes acme-app, beta-app: resource \"bucket\" (Bucket.example.com): spec.region: missing; the field is required
  invalid    LynqNodes acme-app, beta-app: resource \"bucket\" (Bucket.example.com): spec.regoin: unknown field; did you mean \"region\"?
";

#[test]
fn manifests_are_validated_by_the_schemas_in_files() -> Result<()> {
    let example = Example::copied()?;
    // Its `value: 8080` is sent as a text.
    let valid = example.validate(&["--schemas", "schemas"])?;
    valid.expect(0, "", &["\n  schemas    schemas: 2 of 2 nodes valid\n"])?;
    fs::rename(
        example.path("schemas/bucket.yaml"),
        example.path("schemas/bucket.txt"),
    )?;
    let unknown = example.validate(&["--schemas", "schemas"])?;
    let parts = [
        "\n  schemas    schemas: 2 of 2 nodes valid\n",
        "\n  no schema  example.com/v1 Bucket: not validated\n",
    ];
    unknown.expect(0, "", &parts)?;

    let example = Example::copied()?;
    for (before, after) in [
        ("readinessProbe", "readynessProbe"),
        ("64Mi", "\"{{ if .plan }}64 MB{{ else }}64Mi{{ end }}\""),
        ("region", "regoin"),
    ] {
        example.change("app.yaml", before, after)?;
    }
    let failed = "lynqgate: form app: 2 with an invalid manifest\n";
    let invalid = example.validate(&["--schemas", "schemas"])?;
    invalid.expect(1, failed, &[])?;
    ensure!(invalid.out == INVALID, "{}", invalid.out);
    let invalid = example.validate(&["--schemas", "schemas", "-o", "json"])?;
    invalid.expect(1, failed, &[])?;
    let told: Value = serde_json::from_str(&invalid.out)?;
    let fault = json!({
        "resource": "app", "kind": "apps/v1 Deployment",
        "path": "spec.template.spec.containers[0].readynessProbe",
        "what": "unknown field; did you mean \"readinessProbe\"?",
        "nodes": ["acme-app", "beta-app"],
    });
    ensure!(told["schemas"]["faults"][0] == fault, "{told}");
    Ok(())
}

#[test]
fn schemas_that_cannot_be_read_are_no_answer() -> Result<()> {
    let example = Example::copied()?;
    let path = |file: &str| example.path(file).display().to_string();
    let (form, missing) = (path("web.yaml"), path("missing"));
    for (options, said) in [
        (
            &["--schemas", &form][..],
            "web.yaml: there is no OpenAPI v3 document and no CustomResourceDefinition in it. ",
        ),
        (&["--schemas", &missing], "missing: No such file"),
        (
            &["--schemas", "cluster", "--kubeconfig", &missing],
            "lynqgate: kubeconfig ",
        ),
    ] {
        let answer = example.validate(options)?;
        ensure!(
            answer.status == 2 && answer.error.contains(said),
            "{said}: {}: {}",
            answer.status,
            answer.error
        );
    }
    Ok(())
}

#[test]
fn golden_files_that_differ_are_shown_and_updated() -> Result<()> {
    let example = Example::copied()?;
    example.change(
        "web.yaml",
        "        kind: Secret\n",
        "        kind: Secret\n        type: Opaque\n",
    )?;
    let differs = example.test(&["--golden", "golden"])?;
    let failed = "lynqgate: form web: 2 not as in the golden file. If this is intended, repeat the command with --update\n";
    let parts = [
        ": 0 as expected, 2 nodes differ alike\n",
        "\n2 nodes (acme-web, beta-web):\n--- golden/secrets/login\n+++ rendered/secrets/login\n",
        "\n     password: (redacted)\n+  type: Opaque\n",
    ];
    differs.expect(1, failed, &parts)?;
    let diffs = differs.out.matches("+++ ").count();
    ensure!(diffs == 1, "{}", differs.out);

    fs::rename(
        example.path("golden/acme-web.yaml"),
        example.path("golden/old-web.yaml"),
    )?;
    fs::write(example.path("golden/values.yaml"), "by: hand\n")?;
    let failed = "lynqgate: form web: 1 not as in the golden file, 1 without a golden file, 1 with a golden file, but without a row. \
                  If this is intended, repeat the command with --update\n";
    let parts = [
        ": 0 as expected, 1 node differs\n",
        "\n  no file    1: acme-web\n",
        "\n  no row     1: old-web\n",
    ];
    let compared = example.test(&["--golden", "golden"])?;
    compared.expect(1, failed, &parts)?;

    let updated = example.test(&["--golden", "golden", "--update"])?;
    updated.expect(0, "", &[": 2 written, 1 deleted, 0 unchanged\n"])?;
    for (file, is_there) in [
        ("golden/acme-web.yaml", true),
        ("golden/beta-web.yaml", true),
        ("golden/old-web.yaml", false),
        ("golden/values.yaml", true),
    ] {
        ensure!(example.path(file).exists() == is_there, "{file}");
    }
    let again = example.test(&["--golden", "golden", "--update"])?;
    again.expect(0, "", &[": 0 written, 0 deleted, 2 unchanged\n"])?;
    let same = example.test(&["--golden", "golden"])?;
    same.expect(0, "", &[": 2 as expected\n"])?;

    fs::write(example.path("golden/beta-web.yaml"), "configMaps: []\n")?;
    let refused = example.test(&["--golden", "golden", "--update"])?;
    let failed = "lynqgate: form web: 1 with a golden file that lynqgate did not write\n";
    let part = "\n  refused    beta-web: lynqgate did not write the file. ";
    refused.expect(1, failed, &[part])?;
    let kept = fs::read_to_string(example.path("golden/beta-web.yaml"))?;
    ensure!(kept == "configMaps: []\n", "{kept}");
    Ok(())
}

#[test]
fn what_cannot_be_tested_changes_no_file() -> Result<()> {
    let example = Example::copied()?;
    let update = ["--golden", "golden", "--update"];
    for (rows, status, said) in [
        (
            "id,active,plan\nacme,0,pro\n",
            1,
            "lynqgate: form web: nothing was rendered: no row is active. ",
        ),
        (
            "id,active\nacme,1\n",
            2,
            "rows.csv: the file has no column \"plan\"; ",
        ),
        (
            "id,active,plan\nacme,1,\"pro\n",
            2,
            "rows.csv: line 2 of the rows cannot be read: ",
        ),
    ] {
        fs::write(example.path("rows.csv"), rows)?;
        let answer = example.test(&update)?;
        let is_said = answer.status == status && answer.error.contains(said);
        ensure!(is_said, "{said}: {}: {}", answer.status, answer.error);
        let kept = example.path("golden/beta-web.yaml");
        ensure!(kept.exists(), "{said}");
    }
    fs::remove_file(example.path("rows.csv"))?;
    ensure!(example.test(&[])?.status == 2);
    ensure!(example.test(&["--update"])?.status == 2);
    let example = Example::copied()?;
    let missing = example.path("missing").display().to_string();
    let answer = example.test(&["--golden", &missing])?;
    let is_said = answer
        .error
        .contains("missing: there is no such directory; ");
    ensure!(answer.status == 2 && is_said, "{}", answer.error);
    example.change("web.yaml", "{{ .uid }}-login", "{{ .uid }-login")?;
    let answer = example.test(&[])?;
    let said = "lynqgate: lynqform web: template validation failed: ";
    ensure!(
        answer.status == 1 && answer.error.contains(said),
        "{}",
        answer.error
    );
    Ok(())
}

/// Times and random values are the same at each run.
#[test]
fn without_a_hub_the_columns_are_the_variables() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |file: &str| directory.path().join(file).display().to_string();
    let template = "{{ .plan }} {{ now }} {{ randAlphaNum 8 }}";
    fs::write(
        path("form.json"),
        form(config_map("{{ .uid }}-map", template)),
    )?;
    let (form, rows, golden) = (path("form.json"), path("rows.csv"), path("golden"));
    let arguments = [
        "test", &form, "--rows", &rows, "--golden", &golden, "--update",
    ];
    fs::write(&rows, "plan,uid\npro,acme\n,beta\n")?;
    answer(&arguments)?.expect(0, "", &[": 2 written, 0 deleted, 0 unchanged\n"])?;
    answer(&arguments[..6])?.expect(0, "", &[": 2 as expected\n"])?;
    fs::write(&rows, "uid,activate,plan\nacme,1,pro\nbeta,0,\n")?;
    answer(&arguments[..6])?.expect(
        1,
        "lynqgate: form web: 1 with a golden file, but without a row. If this is intended, repeat the command with --update\n",
        &[": 1 as expected\n", "\n  no row     1: beta-web\n"],
    )?;
    fs::write(&rows, "id,plan\nacme,pro\n")?;
    let answer = answer(&arguments)?;
    let said = "rows.csv: the first line has no column \"uid\"; ";
    ensure!(
        answer.status == 2 && answer.error.contains(said),
        "{}",
        answer.error
    );
    Ok(())
}
