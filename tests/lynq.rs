//! docs/LYNQ.md is read here: a table that names what is not there, or leaves out a field, a column, a flag or a reason, fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use lynqgate::api::conditions::ConditionReason;
use lynqgate::api::events::EventReason;
use lynqgate::api::resource::ARRAYS;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::operator::program;
use crate::tidy::{root, rust_files};

const PAGE: &str = "docs/LYNQ.md";

/// The flags of Lynq's operator.
const FLAGS_OF_LYNQ: &str = "--metrics-bind-address --metrics-secure --metrics-cert-path --metrics-cert-name --metrics-cert-key \
    --health-probe-bind-address --leader-elect --webhook-cert-path --webhook-cert-name --webhook-cert-key --enable-http2 \
    --hub-concurrency --form-concurrency --node-concurrency --enable-pprof --kubeconfig --zap-devel --zap-encoder --zap-log-level \
    --zap-stacktrace-level --zap-time-encoding";

/// What else Lynq has: each has a row, whatever became of it.
const OF_LYNQ: [(&str, &str); 5] = [
    (
        "Conditions",
        "Ready Valid Applied Progressing Conflicted Degraded DatabaseConnected DatabaseConnectionFailed ValidationPassed \
         ValidationFailed AllNodesReady NotAllNodesReady NoNodes Reconciled ResourcesFailedAndConflicted ResourcesConflicted \
         ResourcesFailed NotAllResourcesReady VariablesBuildError DependencyError SortError Reconciling ReconcileComplete \
         ResourceConflict NoConflict ResourceFailuresAndConflicts ResourceFailures ResourceConflicts ResourcesNotReady \
         DependencyCycle Healthy",
    ),
    (
        "Events",
        "CleanupFailed DatabaseQueryFailed RolloutThrottled NodeDeleting NodeDeleted NodeDeletionFailed TemplateRenderFailed \
         RetainResourceProcessFailed TemplateApplied DataUpdated RetainResourcePreserved ValidationPassed ValidationFailed \
         HubNotFound DuplicateResourceIDs DependencyValidationFailed DependencySkipped DependencyFailedButProceeding \
         TemplateRenderError ResourceConflict ApplyFailed ReadinessTimeout TemplateResourcesApplying TemplateAppliedSuccess \
         TemplateAppliedPartial ResourceRetained OrphanedResourceRetained OrphanedResourceDeleted CleanupPartialFailure \
         LynqNodeDeleted OrphanMarkersAdded OrphanMarkersRemoved",
    ),
    (
        "Metrics",
        "lynqnode_reconcile_duration_seconds lynqnode_resources_ready lynqnode_resources_desired lynqnode_resources_failed \
         lynqnode_resources_conflicted lynqnode_condition_status lynqnode_degraded_status lynqnode_conflicts_total \
         apply_attempts_total hub_desired hub_ready hub_failed lynqform_rollout_updating_nodes lynqform_rollout_phase \
         lynqform_rollout_progress controller_runtime_reconcile_total workqueue_depth",
    ),
    (
        "Names on the wire",
        "lynq.sh/hub-finalizer lynqnode.operator.lynq.sh/finalizer f2130106.lynq.sh lynq-operator lynq.sh/hub lynq.sh/uid \
         lynq.sh/node lynq.sh/node-namespace lynq.sh/orphaned lynq.sh/hostOrUrl lynq.sh/activate lynq.sh/extra lynq.sh/hubId \
         lynq.sh/template-generation lynq.sh/rollout-update-start lynq.sh/deletion-policy lynq.sh/created-once \
         lynq.sh/applied-hash lynq.sh/apply-start-time lynq.sh/orphaned-at lynq.sh/orphaned-reason RemovedFromTemplate \
         LynqNodeDeleted",
    ),
    (
        "Webhooks",
        "mlynqform.kb.io mlynqhub.kb.io vlynqform.kb.io vlynqhub.kb.io /mutate-operator-lynq-sh-v1-lynqform \
         /mutate-operator-lynq-sh-v1-lynqhub /validate-operator-lynq-sh-v1-lynqform /validate-operator-lynq-sh-v1-lynqhub",
    ),
];
/// Lynq's printer columns.
pub const COLUMNS_OF_LYNQ: [(&str, &str); 3] = [
    ("LynqHub", "Templates Desired Ready Failed Conditions Age"),
    ("LynqForm", "Hub Total Ready Rollout Updating Applied Age"),
    (
        "LynqNode",
        "UID Form Ready Desired Skipped Conflicted Conditions Age",
    ),
];

const FAULTS: [(char, usize); 3] = [('S', 8), ('C', 28), ('P', 7)];

/// A row of a table: its three cells.
type Row = [String; 3];
/// Whether a name is there.
type Holds<'a> = &'a dyn Fn(&str) -> bool;

#[test]
fn the_page_says_what_is_there() -> Result<()> {
    let page = read(PAGE);
    let (tables, faults) = page
        .split_once("\n## Lynq's faults\n")
        .context("two parts")?;
    let (_, tables) = tables
        .split_once("\n## What Lynq has\n")
        .context("tables")?;
    let sections: BTreeMap<&str, Vec<Row>> = tables
        .split("\n### ")
        .skip(1)
        .filter_map(|section| section.split_once('\n'))
        .map(|(title, text)| (title, rows(text)))
        .collect();
    let mut problems = vec![];
    for row in sections.values().flatten() {
        let has_reason = !row[2].is_empty();
        match row[1].as_str() {
            "`same`" => {}
            "`better`" | "`refused`" if has_reason => {}
            mark => problems.push(format!("{}: {mark} without a reason", row[0])),
        }
    }

    for (section, found) in [
        ("LynqHub", fields("hubs", "")?),
        ("LynqForm", fields("forms", "")?),
        ("LynqNode", fields("nodes", "")?),
        (
            "A resource",
            fields("nodes", "/properties/spec/properties/serviceAccounts/items")?,
        ),
        (
            "A condition",
            fields("hubs", "/properties/status/properties/conditions/items")?,
        ),
        ("Printer columns", columns()?),
    ] {
        let named = names(sections[section].iter().filter(|row| is_there(row)));
        problems.extend(differences(section, &named, &found));
    }
    // A flag that is taken and does nothing is there.
    let flags = flags()?;
    let named = names(&sections["Flags"]);
    problems.extend(differences("Flags", &named, &flags));
    let lost = FLAGS_OF_LYNQ
        .split_whitespace()
        .filter(|flag| !flags.contains(*flag));
    problems.extend(lost.map(|flag| format!("Flags: {flag} of Lynq is not taken")));

    let source = texts(&["src"], |text| {
        text.split("#[cfg(test)]").next().unwrap_or_default()
    });
    let wire = read("src/api/names.rs");
    let installed = words_of_the_manifests()?;
    let says = |name: &str| source.contains(&format!("{name:?}"));
    let has_metric = |name: &str| {
        let stem = name.trim_end_matches("_total");
        says(name) || says(stem) || says(stem.trim_end_matches("_seconds"))
    };
    let on_the_wire = |name: &str| wire.contains(&format!("{name:?}"));
    let checks: [(&str, Holds); 4] = [
        ("Metrics", &has_metric),
        ("Names on the wire", &on_the_wire),
        ("Webhooks", &on_the_wire),
        ("Installation and rights", &|name| installed.contains(name)),
    ];
    for (section, holds) in checks {
        let named = names(sections[section].iter().filter(|row| is_there(row)));
        let gone = named.iter().filter(|name| !holds(name));
        problems.extend(gone.map(|name| format!("{section}: there is no {name}")));
    }
    for (section, lynqs) in OF_LYNQ {
        let named = names(&sections[section]);
        let lost = lynqs.split(' ').filter(|name| !named.contains(*name));
        problems.extend(lost.map(|name| format!("{section}: no row has Lynq's {name}")));
    }
    let named = names(&sections["Printer columns"]);
    for (kind, lynqs) in COLUMNS_OF_LYNQ {
        let lynqs = lynqs.split(' ').map(|column| format!("{kind} {column}"));
        let lost = lynqs.filter(|column| !named.contains(column));
        problems.extend(lost.map(|column| format!("Printer columns: no row has Lynq's {column}")));
    }
    problems.extend(of_reasons(&sections, &source)?);
    problems.extend(unsaid(&sections["Messages"]));

    let tests = texts(&["src", "go-templates", "webhook-certs", "tests"], |text| {
        text
    });
    let faults = rows(faults);
    for [fault, _, shown] in &faults {
        let shown = quoted(shown);
        let none = shown
            .iter()
            .filter(|name| !tests.contains(&format!("fn {name}(")));
        problems.extend(none.map(|name| format!("{fault}: there is no test {name}")));
    }
    for (letter, count) in FAULTS {
        let absent = (1..=count)
            .map(|number| format!("{letter}{number}: "))
            .filter(|number| !faults.iter().any(|row| row[0].starts_with(number)));
        problems.extend(absent.map(|number| format!("{number}no row")));
    }
    ensure!(problems.is_empty(), "{PAGE}:\n{}\n", problems.join("\n"));
    Ok(())
}

/// The enums' words that have no row, or one that says something else of them; and what a row has and no enum.
fn of_reasons(sections: &BTreeMap<&str, Vec<Row>>, source: &str) -> Result<Vec<String>> {
    let mut problems = vec![];
    let (conditions, events) = (conditions()?, events()?);
    for (section, all) in [
        ("Conditions", &words(&conditions)),
        ("Events", &events.keys().cloned().collect()),
    ] {
        let (kept, refused): (Vec<&Row>, Vec<&Row>) =
            sections[section].iter().partition(|row| is_there(row));
        problems.extend(differences(section, &names(kept.iter().copied()), all));
        let refused = names(refused);
        let said = refused.intersection(all);
        problems.extend(said.map(|name| format!("{section}: {name} is refused, and there")));
        problems.extend(kept.into_iter().filter_map(|row| misplaced(section, row)));
    }
    for (word, reason) in &conditions {
        let rows = sections["Conditions"]
            .iter()
            .filter(|row| quoted(&row[0]).contains(word));
        let told: String = rows.map(|row| row[2].as_str()).collect();
        let mut places = reason.conditions().iter();
        let untold = places
            .find(|(kind, type_)| !(told.contains(kind) && told.contains(&format!("`{type_}`"))));
        problems.extend(untold.map(|place| format!("Conditions: {word} is also of {place:?}")));
    }
    problems.extend(unused(source, &conditions, &events));
    Ok(problems)
}

/// All words of an enum, as its schema has them, and what each of them is.
fn all<T: JsonSchema + DeserializeOwned>() -> Result<BTreeMap<String, T>> {
    let schema = schemars::schema_for!(T).to_value();
    // One that has a comment stands alone.
    let branches = schema["oneOf"].as_array().cloned();
    let branches = branches.unwrap_or_else(|| vec![schema]);
    let words = branches.iter().flat_map(|branch| {
        let many = branch["enum"].as_array().into_iter().flatten();
        many.chain(branch.get("const"))
    });
    let each = words.map(|word| {
        let name = word.as_str().context("a word")?.to_owned();
        Ok((name, serde_json::from_value(word.clone())?))
    });
    each.collect()
}

fn conditions() -> Result<BTreeMap<String, ConditionReason>> {
    let all = all::<ConditionReason>()?;
    for (word, reason) in &all {
        ensure!(
            reason.as_str() == word && ConditionReason::named(word) == Some(*reason),
            "{word}"
        );
    }
    Ok(all)
}

/// The reasons of conditions, and the types.
fn words(conditions: &BTreeMap<String, ConditionReason>) -> BTreeSet<String> {
    let places = conditions.values().flat_map(|reason| reason.conditions());
    let types = places.map(|(_, type_)| (*type_).to_owned());
    conditions.keys().cloned().chain(types).collect()
}

/// With those that repeat what a form's conditions say. Nobody is told that nothing waits, or that somebody's turn has come.
fn events() -> Result<BTreeMap<String, EventReason>> {
    let own = all::<EventReason>()?;
    for (word, reason) in &own {
        ensure!(reason.as_str() == word, "{word}");
    }
    let is_told = |reason: &ConditionReason| {
        let mut places = reason.conditions().iter();
        *reason == ConditionReason::NoForm
            || *reason != ConditionReason::NotHeld
                && places.any(|place| [("LynqForm", "Valid"), ("LynqForm", "Held")].contains(place))
    };
    let of_forms = conditions()?
        .into_iter()
        .filter(|(_, reason)| is_told(reason));
    let of_forms = of_forms.map(|(word, reason)| (word, EventReason::Of(reason)));
    // A hub has an event of the same name as one of them.
    Ok(of_forms.chain(own).collect())
}

/// What Lynq has too stands in other rows than what it has not.
fn misplaced(section: &str, row: &Row) -> Option<String> {
    let own = row[2].contains("only lynqgate's");
    let (_, lynqs) = OF_LYNQ.iter().find(|(title, _)| *title == section)?;
    let is_lynqs = |name: &String| lynqs.split(' ').any(|of_lynq| of_lynq == name);
    let name = quoted(&row[0])
        .into_iter()
        .find(|name| is_lynqs(name) == own)?;
    Some(format!(
        "{section}: {name} in the row {}: is it only lynqgate's?",
        row[0]
    ))
}

/// Words that nothing says.
fn unused(
    source: &str,
    conditions: &BTreeMap<String, ConditionReason>,
    events: &BTreeMap<String, EventReason>,
) -> Vec<String> {
    let own = events
        .iter()
        .filter(|(_, reason)| !matches!(reason, EventReason::Of(_)));
    let all = conditions
        .keys()
        .map(|word| format!("ConditionReason::{word}"));
    let all = all.chain(own.map(|(word, _)| format!("EventReason::{word}")));
    let is_said = |name: &String| {
        source.match_indices(name.as_str()).any(|(at, _)| {
            !source[at + name.len()..].starts_with(|c: char| c.is_ascii_alphanumeric())
        })
    };
    all.filter(|name| !is_said(name))
        .map(|name| format!("nothing says {name}"))
        .collect()
}

/// Whoever is on call looks for what lynqgate says.
#[test]
fn what_other_pages_name_is_there() -> Result<()> {
    let mut there = words(&conditions()?);
    there.extend(events()?.into_keys());
    for page in ["docs/OPERATING.md", "docs/ROLLOUTS.md"] {
        let is_word = |name: &String| {
            name.starts_with(|c: char| c.is_ascii_uppercase())
                && name.chars().all(|c| c.is_ascii_alphabetic())
                && name.chars().any(|c| c.is_ascii_lowercase())
        };
        let named: BTreeSet<String> = read(page)
            .lines()
            .flat_map(quoted)
            .filter(is_word)
            .collect();
        let gone: Vec<&String> = named.difference(&there).collect();
        ensure!(gone.is_empty() && !named.is_empty(), "{page}: {gone:?}");
    }
    Ok(())
}

/// What the page marks as lynqgate's alone, by section.
pub fn only_ours() -> BTreeMap<String, BTreeSet<String>> {
    let page = read(PAGE);
    let sections = page.split("\n### ").skip(1);
    let sections = sections.filter_map(|section| section.split_once('\n'));
    sections
        .map(|(title, text)| {
            let rows = rows(text.split("\n## ").next().unwrap_or_default());
            let ours = rows.iter().filter(|row| row[2].contains("only lynqgate's"));
            (title.to_owned(), names(ours))
        })
        .collect()
}

/// Messages that nothing says: of each part, one file has all longer words.
fn unsaid(messages: &[Row]) -> Vec<String> {
    let words = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric());
        let long = words.filter(|word| word.len() > 3 && *word != "mysql");
        long.map(str::to_lowercase).collect()
    };
    let mut said = vec![];
    for path in rust_files(["src"]) {
        let text = read(&path.to_string_lossy());
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        said.push(words(text));
    }
    let is_said = |message: &String| {
        message.split(": ").map(words).all(|part| {
            let mut files = said.iter();
            files.any(|texts| part.is_subset(texts))
        })
    };
    let of_row = |row: &Row| match row[1].as_str() {
        "`same`" => quoted(&row[0]),
        // What is said in its place, if that is more than a name.
        _ => quoted(&row[2])
            .into_iter()
            .filter(|text| text.contains(' '))
            .collect(),
    };
    let gone = messages.iter().flat_map(of_row).filter(|m| !is_said(m));
    gone.map(|message| format!("Messages: nothing says {message:?}"))
        .collect()
}

fn is_there(row: &Row) -> bool {
    matches!(row[1].as_str(), "`same`" | "`better`")
}

/// What is served and has no row, and what has one and is not served.
pub fn metrics(text: &str) -> Vec<String> {
    let page = read(PAGE);
    let table = page.split("\n### Metrics\n").nth(1).unwrap_or_default();
    let table = rows(table.split("\n### ").next().unwrap_or_default());
    let kept = |row: &&Row| is_there(row);
    let own = |name: &String| !name.starts_with("lynqgate_");
    let stem = |name: &str| name.trim_end_matches("_total").to_owned();
    let named: BTreeSet<String> = names(table.iter().filter(kept));
    let named = named.iter().map(|name| stem(name)).collect();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let served = types.filter_map(|line| line.split(' ').next()).map(stem);
    let mut problems = differences("Metrics", &named, &served.filter(own).collect());
    let cells = table.iter().filter(kept).map(|row| row[0].as_str());
    let labels = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let labels: BTreeMap<String, BTreeSet<&str>> = labels
        .filter_map(|metric| metric.strip_suffix('}')?.split_once('{'))
        .map(|(name, labels)| (stem(name), labels.split(',').collect()))
        .collect();
    let served: BTreeSet<_> = text.lines().filter_map(series).collect();
    for (name, has) in served {
        let name = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .unwrap_or(name);
        let named = labels.get(&stem(name));
        if let Some(named) = named.filter(|named| **named != has) {
            problems.push(format!("Metrics: {name} has {has:?}, not {named:?}"));
        }
    }
    problems
}

/// A line's metric, and the names of its labels, but for a histogram's own.
fn series(line: &str) -> Option<(&str, BTreeSet<&str>)> {
    let (name, labels) = line.split_once('}')?.0.split_once('{')?;
    let names = labels
        .split("\",")
        .filter_map(|label| label.split_once('='));
    let own = names.map(|(name, _)| name).filter(|name| *name != "le");
    Some((name, own.collect()))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The rows of all tables in the text, without those that head them.
fn rows(text: &str) -> Vec<Row> {
    let lines = text.lines().collect::<Vec<_>>();
    let heads = |at: usize| {
        lines
            .get(at + 1)
            .is_some_and(|next| next.starts_with("|--"))
    };
    let of_tables = lines
        .iter()
        .enumerate()
        .filter(|(at, line)| line.starts_with('|') && !line.starts_with("|--") && !heads(*at));
    of_tables
        .map(|(_, line)| {
            // A bar inside of backticks is text.
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let cells: Result<Row, _> = cells
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>()
                .try_into();
            cells.unwrap_or_else(|cells| panic!("not three cells: {cells:?}"))
        })
        .collect()
}

/// What stands in backticks, without the labels of metrics.
fn quoted(text: &str) -> BTreeSet<String> {
    let inside = text.split('`').skip(1).step_by(2);
    inside
        .map(|name| name.split('{').next().unwrap_or_default().to_owned())
        .collect()
}

fn names<'a>(rows: impl IntoIterator<Item = &'a Row>) -> BTreeSet<String> {
    rows.into_iter().flat_map(|row| quoted(&row[0])).collect()
}

fn differences(section: &str, named: &BTreeSet<String>, there: &BTreeSet<String>) -> Vec<String> {
    let unnamed = there
        .difference(named)
        .map(|name| format!("{section}: no row has {name}"));
    let gone = named
        .difference(there)
        .map(|name| format!("{section}: there is no {name}"));
    unnamed.chain(gone).collect()
}

fn version(kind: &str) -> Result<Value> {
    let definition: Value =
        serde_saphyr::from_str(&read(&format!("manifests/crd-lynq{kind}.yaml")))?;
    Ok(definition["spec"]["versions"][0].clone())
}

/// The fields of the schema at that place of a kind.
fn fields(kind: &str, place: &str) -> Result<BTreeSet<String>> {
    let version = version(kind)?;
    let schema = version
        .pointer(&format!("/schema/openAPIV3Schema{place}"))
        .context("a schema")?;
    let mut found = BTreeSet::new();
    walk(schema, "", &mut found);
    found.retain(|name| !place.is_empty() || !["spec", "status"].contains(&name.as_str()));
    Ok(found)
}

/// What is in resources and conditions has tables of its own.
pub fn walk(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let at = format!("{path}{name}");
        if !ARRAYS.contains(&name.as_str()) && name != "conditions" {
            walk(inner, &format!("{at}."), found);
            walk(&inner["items"], &format!("{at}[]."), found);
        }
        found.insert(at);
    }
}

fn columns() -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for (kind, title) in [
        ("hubs", "LynqHub"),
        ("forms", "LynqForm"),
        ("nodes", "LynqNode"),
    ] {
        let columns = version(kind)?["additionalPrinterColumns"].clone();
        let names = columns
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|column| column["name"].as_str());
        found.extend(names.map(|name| format!("{title} {name}")));
    }
    Ok(found)
}

/// The flags that the program says it takes.
fn flags() -> Result<BTreeSet<String>> {
    let output = Command::new(program("lynqgate")?)
        .args(["run", "--help"])
        .output()?;
    let help = String::from_utf8(output.stdout)?;
    let flags = help
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("--"));
    let names = flags.filter_map(|flag| flag.split([' ', '[', '=']).next());
    Ok(names.map(|name| format!("--{name}")).collect())
}

fn texts(roots: &[&'static str], part: impl Fn(&str) -> &str) -> String {
    let files = roots.iter().flat_map(|root| rust_files([root]));
    let files =
        files.filter(|path| !(roots.len() == 1 && path.to_string_lossy().contains("tests")));
    files
        .map(|path| part(&read(&path.to_string_lossy())).to_owned())
        .collect()
}

/// Whatever is a name there.
fn words_of_the_manifests() -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for directory in ["manifests", "manifests/node-maintenance", "kustomize/base"] {
        for entry in fs::read_dir(root().join(directory))? {
            let path = entry?.path();
            if path.is_dir() {
                continue;
            }
            let text = fs::read_to_string(path)?;
            let words = text.split(|c: char| !c.is_alphanumeric() && c != '-');
            found.extend(words.map(str::to_owned));
        }
    }
    Ok(found)
}
