//! Golden files: what a form is expected to render for a node, to be compared with what it renders. They have no values of
//! Secrets. A caller reads and writes them.

use serde_json::Value;

use crate::decide::node::diff;
use crate::decide::shared::content::DEPTH_MAX;

/// How deep a file may be nested: a manifest, and what is around it.
const LEVELS_MAX: usize = DEPTH_MAX + 16;

/// The resources of a node, as they are in its file.
#[derive(Debug)]
pub struct Golden<'a> {
    form: &'a str,
    text: String,
}

/// How a node compares with its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    Same,
    /// There is no file.
    Missing,
    /// A diff for each resource that differs, or why the file cannot be read.
    Different(String),
}

/// What becomes of a node's file when the files are updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    Keep,
    Write,
    /// The file differs, but lynqgate did not write it for this form.
    Refuse,
}

impl<'a> Golden<'a> {
    /// `spec`: that of the LynqNode.
    pub fn of(form: &'a str, spec: &Value) -> Self {
        let resources = diff::text(&diff::without_secrets(spec));
        Golden {
            form,
            text: format!("{}\n{resources}", mark(form)),
        }
    }

    /// The whole file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// `file`: the text of the node's file. Only its resources count, not the format of the file.
    pub fn compare(&self, file: Option<&str>) -> Compared {
        let Some(file) = file else {
            return Compared::Missing;
        };
        if file == self.text {
            return Compared::Same;
        }
        // Both are read, so that what YAML does to a value happens on both sides.
        let diff = match (read(file), read(&self.text)) {
            (Ok(before), Ok(after)) => diff::of_contents(("golden", &before), ("rendered", &after)),
            (Err(line), _) | (_, Err(line)) => format!("line {line} of the file is not YAML\n"),
        };
        match diff.is_empty() {
            true => Compared::Same,
            false => Compared::Different(diff),
        }
    }

    /// `file`: the text of the node's file.
    pub fn update(&self, file: Option<&str>) -> Update {
        match file {
            Some(file) if file == self.text => Update::Keep,
            Some(file) if !is_own(self.form, file) => match self.compare(Some(file)) {
                Compared::Same => Update::Keep,
                Compared::Missing | Compared::Different(_) => Update::Refuse,
            },
            Some(_) | None => Update::Write,
        }
    }
}

/// The first line of the files of a form. A file without it is somebody else's: lynqgate neither overwrites nor deletes it.
fn mark(form: &str) -> String {
    format!("# Written by lynqgate test --update for form {form}.")
}

/// Whether lynqgate wrote the file for this form.
pub fn is_own(form: &str, file: &str) -> bool {
    file.lines().next() == Some(&*mark(form))
}

/// The content of a file, or the line at which it cannot be read.
fn read(file: &str) -> Result<Value, u64> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: LEVELS_MAX,
        },
    };
    let read = serde_saphyr::from_str_with_options(file, options);
    read.map_err(|error| error.location().map_or(1, |location| location.line()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn golden(plan: &str, password: &str) -> Golden<'static> {
        Golden::of(
            "web",
            &json!({
                "uid": "acme", "services": [],
                "configMaps": [{"id": "map", "spec": {"kind": "ConfigMap", "data": {"plan": plan, "zip": "01234"}}}],
                "secrets": [{"id": "login", "spec": {"kind": "Secret", "stringData": {"password": password}}}],
            }),
        )
    }

    #[test]
    fn a_file_is_marked_and_has_no_secret() {
        let golden = golden("pro", "hunter2");
        let text = golden.text();
        assert!(
            text.starts_with("# Written by lynqgate test --update for form web.\n"),
            "{text}"
        );
        assert!(is_own("web", text) && !is_own("other", text), "{text}");
        assert!(is_own("web", &text.replace('\n', "\r\n")), "{text}");
        assert!(!is_own("web", "") && !is_own("web", "configMaps: []\n"));
        assert!(!text.contains("hunter2"), "{text}");
        assert!(!text.contains("acme"), "only resources: {text}");
    }

    #[test]
    fn only_the_resources_of_a_file_count() {
        let rendered = golden("pro", "hunter2");
        let own = rendered.text().to_owned();
        let (_, resources) = own.split_once('\n').unwrap();
        let same = [
            own.clone(),
            own.replace('\n', "\r\n"),
            format!("# by hand\n{resources}\n"),
            golden("pro", "another").text().to_owned(),
        ];
        for file in &same {
            assert_eq!(rendered.compare(Some(file)), Compared::Same, "{file}");
        }
        assert_eq!(rendered.compare(None), Compared::Missing);
        for (file, said) in [
            (
                golden("basic", "hunter2").text(),
                "--- golden/configMaps/map\n+++ rendered/configMaps/map\n",
            ),
            (
                golden("basic", "hunter2").text(),
                "-    plan: basic\n+    plan: pro\n",
            ),
            (&own.replace("01234", "012"), "+    zip: "),
            ("{}\n", "--- /dev/null\n+++ rendered/secrets/login\n"),
            ("a: 1\nb: [\n", "of the file is not YAML\n"),
        ] {
            let compared = rendered.compare(Some(file));
            let Compared::Different(diff) = &compared else {
                panic!("{file}: {compared:?}");
            };
            assert!(diff.contains(said), "{file}: {diff}");
        }
    }

    #[test]
    fn only_own_files_are_overwritten() {
        let rendered = golden("pro", "hunter2");
        let before = golden("basic", "hunter2").text().to_owned();
        let reformatted = format!("{}\n", rendered.text());
        let of_another = before.replace("form web", "form api");
        let (_, resources) = rendered.text().split_once('\n').unwrap();
        for (name, file, expected) in [
            ("no file", None, Update::Write),
            ("the same", Some(rendered.text()), Update::Keep),
            ("another content", Some(before.as_str()), Update::Write),
            ("another format", Some(reformatted.as_str()), Update::Write),
            ("by hand, and the same", Some(resources), Update::Keep),
            ("by hand", Some("configMaps: []\n"), Update::Refuse),
            ("of another form", Some(of_another.as_str()), Update::Refuse),
        ] {
            assert_eq!(rendered.update(file), expected, "{name}");
        }
    }
}
