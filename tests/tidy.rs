//! The rules of the source tree, held by reading it. Each stands in docs/ARCHITECTURE.md; neither exists alone.
//! It reads text and must not grow into a parser: what needs types is clippy's (clippy.toml).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{env, fs, process};

/// A layer uses only layers with a smaller number; equal ones do not meet. `src/lib.rs` and `src/main.rs` are free.
const LAYERS: [(&str, u8); 7] = [
    ("api", 0),
    ("decide", 1),
    ("cluster", 2),
    ("datasource", 2),
    ("controller", 3),
    ("server", 3),
    ("cli", 4),
];

/// Text, and the only layers in which it may stand.
const ONLY_IN: [(&str, &[&str]); 16] = [
    (".await", SHELLS),
    ("async ", SHELLS),
    ("tokio", SHELLS),
    ("tracing::", SHELLS),
    ("println!", &["cli"]),
    ("Instant", SHELLS),
    ("SystemTime", &[]),
    ("std::fs", &["cli", "server"]),
    ("std::env", &["cli"]),
    ("std::process", &["cluster", "cli"]),
    ("std::thread", &["datasource"]),
    ("kube::Client", &["cluster", "controller", "cli"]),
    ("kube::Api", &["cluster"]),
    ("mysql_async", &["datasource"]),
    ("tokio_postgres", &["datasource"]),
    ("axum", &["server", "cli"]),
];
const SHELLS: &[&str] = &["cluster", "datasource", "controller", "server", "cli"];

/// What the loops take from one place, so that the simulation can give each of its processes its own.
const OF_THE_PROCESS: [(&str, &str); 9] = [
    ("Timestamp::now", "src/cluster/clock.rs"),
    ("Zoned::now", "src/cluster/clock.rs"),
    ("Instant::now", "src/cluster/clock.rs"),
    ("block_in_place", "src/cluster/process.rs"),
    ("std::process::exit", "src/cluster/process.rs"),
    ("secure_random", "src/cluster/process.rs"),
    ("getrandom", "src/cluster/process.rs"),
    ("tokio::spawn", "src/cluster/process.rs"),
    ("spawn_blocking", "src/cluster/process.rs"),
];

/// State that all processes of the simulation would share, so that they, and its seeds, would not be apart.
const SHARED_STATE: [&str; 5] = ["Semaphore", "Mutex", "RwLock", "Atomic", "OnceLock"];

/// What `decide` has no use for: an order that differs from run to run, and state that outlives a call.
const NOT_IN_DECIDE: [&str; 6] = [
    "HashMap",
    "HashSet",
    "RwLock",
    "Atomic",
    "thread_local!",
    "kube::",
];

/// The only file of `decide` that uses threads (decision 0045), and the words that are allowed in it.
const PARALLEL: (&str, [&str; 2]) = ("src/decide/shared/parallel.rs", ["std::thread", "Atomic"]);

/// The libraries of this workspace that anybody could use, and the words that they have no use for.
const LIBRARIES: [(&str, &[&str]); 2] = [
    ("go-templates", &["lynq", "kube", "jinja"]),
    ("webhook-certs", &["lynq"]),
];

const BANNED_NAMES: [&str; 8] = [
    "mod.rs",
    "utils.rs",
    "util.rs",
    "helpers.rs",
    "helper.rs",
    "common.rs",
    "misc.rs",
    "types.rs",
];

const LINES_MAX: usize = 600;

#[test]
fn the_source_is_tidy() {
    let mut problems = vec![];
    for path in rust_files(["src", "go-templates", "webhook-certs", "tests"]) {
        let text = fs::read_to_string(root().join(&path)).expect("a source file");
        problems.extend(problems_of(&path, &text));
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn what_is_untidy_is_found() {
    let good = "//! What it is.\n\nuse crate::api::names;\n";
    let long = "//! Long.\n".to_owned() + &"// line\n".repeat(LINES_MAX);
    for (name, path, text, found) in [
        ("nothing wrong", "src/decide/gate.rs", good, ""),
        (
            "a test may do more",
            "src/decide/gate/tests.rs",
            "//! T.\nuse std::thread;\n",
            "",
        ),
        (
            "words in comments",
            "src/decide/gate.rs",
            "//! T.\n// a Mutex is crate::cli's\n",
            "",
        ),
        (
            "no first sentence",
            "src/api/form.rs",
            "use a::b;\n",
            "must say what it is for",
        ),
        ("too long", "tests/form.rs", &long, "over 600 lines"),
        (
            "mod.rs",
            "src/decide/gate/mod.rs",
            good,
            "name the file after",
        ),
        ("a drawer", "tests/helpers.rs", good, "name the file after"),
        ("an unknown layer", "src/tools/a.rs", good, "has no layer"),
        (
            "upwards",
            "src/decide/gate.rs",
            "//! T.\nuse crate::cluster::lease;\n",
            "must not know `cluster`",
        ),
        (
            "upwards by super",
            "src/decide.rs",
            "//! T.\nuse super::cli;\n",
            "must not know `cli`",
        ),
        (
            "upwards in passing",
            "src/api/a.rs",
            "//! T.\nlet a = crate::decide::gate::b();\n",
            "must not know `decide`",
        ),
        (
            "sideways",
            "src/cluster/a.rs",
            "//! T.\nuse crate::datasource::mysql;\n",
            "must not know `datasource`",
        ),
        (
            "state that processes share",
            "src/controller/a.rs",
            "//! T.\nstatic LOOKS: Semaphore = Semaphore::const_new(4);\n",
            "belongs in its `World`",
        ),
        (
            "several layers in one use",
            "src/cli/a.rs",
            "//! T.\nuse crate::{api, decide};\n",
            "one `use` for each module",
        ),
        (
            "far up",
            "src/decide/gate/state.rs",
            "//! T.\nuse super::super::content;\n",
            "one `use` for each module",
        ),
        (
            "waiting",
            "src/decide/a.rs",
            "//! T.\nthing().await;\n",
            "`.await` belongs in",
        ),
        (
            "a clock",
            "src/decide/a.rs",
            "//! T.\nlet now = Timestamp::now();\n",
            "`Timestamp::now` belongs in \"src/cluster/clock.rs\"",
        ),
        (
            "a database outside",
            "src/controller/a.rs",
            "//! T.\nuse mysql_async::Pool;\n",
            "`mysql_async` belongs in",
        ),
        (
            "no order",
            "src/decide/a.rs",
            "//! T.\nuse std::collections::HashMap;\n",
            "`HashMap` has no place in decide",
        ),
        (
            "state",
            "src/decide/a.rs",
            "//! T.\nstatic A: RwLock<u8>;\n",
            "`RwLock` has no place in decide",
        ),
        (
            "an excuse",
            "src/decide/a.rs",
            "//! T.\n#[allow(clippy::disallowed_types)]\n",
            "purity has no exceptions",
        ),
        (
            "a name on the wire",
            "src/cluster/a.rs",
            "//! T.\nlet a = \"lynq.sh/hub\";\n",
            "belongs in src/api/names.rs",
        ),
        (
            "whose webhooks",
            "webhook-certs/src/a.rs",
            "//! T.\n// a LynqNode\n",
            "webhook-certs knows nothing of lynqgate",
        ),
        (
            "whose templates",
            "go-templates/src/a.rs",
            "//! T.\n// a name for Kubernetes\n",
            "go-templates knows nothing of lynqgate",
        ),
    ] {
        let problems = problems_of(Path::new(path), text);
        if found.is_empty() {
            assert!(problems.is_empty(), "{name}: {problems:?}");
        } else {
            assert_eq!(problems.len(), 1, "{name}: {problems:?}");
            assert!(problems[0].contains(found), "{name}: {problems:?}");
        }
    }
}

/// The bans of clippy.toml have no effect of their own.
#[test]
fn clippys_bans_bind_in_decide_and_in_the_templates() {
    let lib = fs::read_to_string(root().join("src/lib.rs")).expect("src/lib.rs");
    let words: String = lib.split_whitespace().collect();
    let forbidden = "#[cfg_attr(not(test),forbid(clippy::disallowed_macros,clippy::disallowed_methods,\
                     clippy::disallowed_types))]pubmoddecide;";
    assert!(
        words.contains(forbidden),
        "src/lib.rs must forbid the three `disallowed` lints on `pub mod decide`"
    );
    let lib = fs::read_to_string(root().join("go-templates/src/lib.rs")).expect("its lib.rs");
    let words: String = lib.split_whitespace().collect();
    let forbidden = "#![cfg_attr(not(test),forbid(clippy::disallowed_macros,clippy::disallowed_methods,\
                     clippy::disallowed_types))]";
    assert!(
        words.contains(forbidden),
        "go-templates/src/lib.rs must forbid the three `disallowed` lints"
    );
}

/// cargo-deny reads the same list where it is installed; this needs nothing but cargo.
#[test]
fn no_banned_crate_is_built() {
    let deny = fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    let banned: BTreeSet<&str> = deny
        .lines()
        .filter_map(|line| line.trim().strip_prefix("{ crate = \""))
        .filter(|line| line.contains("reason"))
        .filter_map(|line| line.split('"').next())
        .collect();
    assert!(
        banned.contains("ring"),
        "the bans in deny.toml were not understood"
    );
    let tree = process::Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "--locked",
            "--workspace",
            "--edges",
            "normal,build",
        ])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(root())
        .output()
        .expect("cargo tree");
    assert!(
        tree.status.success(),
        "{}",
        String::from_utf8_lossy(&tree.stderr)
    );
    let built = String::from_utf8(tree.stdout).expect("names of crates");
    let built: BTreeSet<&str> = built
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(built.contains("kube"), "cargo tree was not understood");
    let both: Vec<_> = banned.intersection(&built).collect();
    assert!(
        both.is_empty(),
        "banned in deny.toml, but built: {both:?}; `cargo tree -i` says for whom"
    );
}

fn problems_of(path: &Path, text: &str) -> Vec<String> {
    let shown = path.display();
    let mut problems = vec![];
    if !text.starts_with("//!") {
        problems.push(format!(
            "{shown}:1: a //! sentence must say what it is for, and what it must not do"
        ));
    }
    if text.lines().count() > LINES_MAX {
        problems.push(format!(
            "{shown}: over {LINES_MAX} lines; split it by responsibility"
        ));
    }
    let name = path.file_name().expect("a file").to_string_lossy();
    if BANNED_NAMES.contains(&&*name) {
        problems.push(format!(
            "{shown}: name the file after what it holds (`foo.rs` beside `foo/`)"
        ));
    }
    for (library, words) in LIBRARIES {
        if !path.starts_with(library) {
            continue;
        }
        let knows = |line: &str| words.iter().any(|word| line.to_lowercase().contains(word));
        let lines = (1..).zip(text.lines()).filter(|(_, line)| knows(line));
        problems.extend(
            lines.map(|(at, _)| format!("{shown}:{at}: {library} knows nothing of lynqgate")),
        );
    }
    let Some(layer) = layer_of(path) else {
        return problems;
    };
    let layers = BTreeMap::from(LAYERS);
    let Some(&height) = layers.get(&*layer) else {
        problems.push(format!("{shown}: `{layer}` has no layer in tests/tidy.rs"));
        return problems;
    };
    let is_test = path.components().any(|part| part.as_os_str() == "tests") || name == "tests.rs";
    for (at, line) in numbered(text) {
        let mut complain = |what: String| problems.push(format!("{shown}:{at}: {what}"));
        if line.contains("crate::{") || line.contains("super::super") {
            complain(
                "one `use` for each module, from `crate::`, so that the edges show".to_owned(),
            );
        }
        for used in modules_named(line) {
            if *used != *layer && layers.get(used).is_some_and(|other| *other >= height) {
                complain(format!("`{layer}` must not know `{used}`"));
            }
        }
        if layer == "decide" && line.contains("allow(clippy::disallowed") {
            complain("purity has no exceptions".to_owned());
        }
        if is_test {
            continue;
        }
        for (word, homes) in ONLY_IN {
            if line.contains(word) && !homes.contains(&&*layer) && !is_parallel(path, word) {
                complain(format!("`{word}` belongs in {homes:?}"));
            }
        }
        let is_simulated = ["cluster", "controller", "decide"].contains(&&*layer)
            || path.starts_with("src/server/webhook");
        for (word, home) in OF_THE_PROCESS {
            if is_simulated && line.contains(word) && path != Path::new(home) {
                complain(format!("`{word}` belongs in {home:?}"));
            }
        }
        let code = line.trim_start().trim_start_matches("pub ");
        let has_state = SHARED_STATE.iter().any(|word| code.contains(word));
        // What `decide` may not have at all is below.
        if is_simulated && layer != "decide" && code.starts_with("static ") && has_state {
            complain("the state of a process belongs in its `World`".to_owned());
        }
        for word in NOT_IN_DECIDE {
            if layer == "decide" && line.contains(word) && !is_parallel(path, word) {
                complain(format!("`{word}` has no place in decide"));
            }
        }
        let name_on_the_wire = line.replace("b\"lynq.sh/", "").contains("\"lynq.sh/");
        if name_on_the_wire && !path.ends_with("api/names.rs") {
            complain("a name on the wire belongs in src/api/names.rs".to_owned());
        }
    }
    problems
}

fn is_parallel(path: &Path, word: &str) -> bool {
    path == Path::new(PARALLEL.0) && PARALLEL.1.contains(&word)
}

/// The code of each line, without comments, up to the tests at the end of a file.
fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    (1..).zip(
        code.lines()
            .map(|line| line.split("//").next().unwrap_or_default()),
    )
}

/// The layer of a file under `src`; None for others and for `src/lib.rs` and `src/main.rs`. The template engine is as pure as `decide`.
fn layer_of(path: &Path) -> Option<String> {
    if path.starts_with("go-templates/src") {
        return Some("decide".to_owned());
    }
    let first = path
        .strip_prefix("src")
        .ok()?
        .iter()
        .next()?
        .to_string_lossy();
    let layer = first.trim_end_matches(".rs");
    (!matches!(layer, "lib" | "main")).then(|| layer.to_owned())
}

/// The modules that a line names by way of the crate's root.
fn modules_named(line: &str) -> impl Iterator<Item = &str> {
    let after = ["crate::", "super::", "lynqgate::"]
        .into_iter()
        .flat_map(|root| line.split(root).skip(1));
    after.map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        &rest[..end.unwrap_or(rest.len())]
    })
}

pub fn rust_files<const N: usize>(roots: [&str; N]) -> Vec<PathBuf> {
    let mut found = vec![];
    let mut directories: Vec<PathBuf> = roots.into_iter().map(PathBuf::from).collect();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root().join(&directory)).expect("a source directory") {
            let entry = entry.expect("an entry");
            let path = directory.join(entry.file_name());
            if entry.file_type().expect("a type").is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
