//! `lynqgate test`: renders a form for every row of a CSV file, without a database, validates the manifests by the schemas of a
//! cluster or of files, and compares the result with golden files.

mod schemas;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::Value;

use crate::cli::Output;
use crate::cli::connection::{Access, AnyError, run};
use crate::cli::definitions::{self, Definitions};
use crate::cli::file;
use crate::cli::output::print;
use crate::cli::rows::{self, RowsFile};
use crate::cluster::client::ConnectError;
use crate::cluster::objects::ApiError;
use crate::decide::hub::rows::Rows;
use crate::decide::hub::rows::names::uid_of;
use crate::decide::hub::sync::{NodeWrite, Plan, RenderSource};
use crate::decide::hub::tested::{Comparison, Tested, Updated};
use crate::decide::node::golden::{Compared, Golden, Update, is_own};

#[derive(clap::Args)]
pub struct Arguments {
    /// File with the LynqForm, in YAML or JSON; it may hold other objects, too. - for standard input.
    form: PathBuf,
    /// File with the LynqHub, which maps columns to template variables.
    #[arg(long, value_name = "FILE")]
    hub: Option<PathBuf>,
    /// CSV file with the rows; its first line names the columns. Without --hub, each column is a template variable, and one is
    /// `uid`. - for standard input.
    #[arg(long, value_name = "FILE")]
    rows: PathBuf,
    /// Validate the manifests against the OpenAPI v3 schemas of their kinds: unknown fields, wrong types, missing fields. With
    /// `cluster`, lynqgate asks the cluster of the kubeconfig. Otherwise give a file, or a directory of files: OpenAPI v3 documents
    /// (kubectl get --raw /openapi/v3/apis/apps/v1 > apps-v1.json), and CustomResourceDefinitions. Default: lynqgate validates no
    /// manifest, and asks no cluster.
    #[arg(long, value_name = "cluster|PATH")]
    schemas: Option<PathBuf>,
    /// Directory of the golden files: one for each LynqNode, with its resources but no values of Secrets.
    #[arg(long, value_name = "DIRECTORY")]
    golden: Option<PathBuf>,
    /// Write the golden files, and delete the files of rows that no longer exist.
    #[arg(long, requires = "golden")]
    update: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
    #[command(flatten)]
    access: Access,
}

/// A file or a schema could not be read, or a file not written, so that the form was not tested.
#[derive(Debug, thiserror::Error)]
pub enum Untested {
    #[error(transparent)]
    File(#[from] file::Error),
    #[error(transparent)]
    Rows(rows::Error),
    #[error("{path}: {reason}")]
    Golden { path: String, reason: io::Error },
    #[error("{path}: there is no such directory; create the golden files with --update")]
    NoGolden { path: String },
    #[error(transparent)]
    Cluster(#[from] ConnectError),
    #[error("the schema of kind {kind}: {reason}")]
    Schema { kind: String, reason: ApiError },
    #[error(
        "{path}: there is no OpenAPI v3 document and no CustomResourceDefinition in it. Write one there, for example: kubectl get --raw \
         /openapi/v3/apis/apps/v1 > apps-v1.json"
    )]
    NoSchema { path: String },
}

/// What `now` gives in every row, so that each run renders the same. The seed of random functions is fixed, too.
const NOW: Timestamp = Timestamp::UNIX_EPOCH;

pub fn test(arguments: &Arguments) -> Result<(), AnyError> {
    let read = Definitions::read(&arguments.form, arguments.hub.as_deref());
    let definitions = read.map_err(|error| match error {
        definitions::Error::File(error) => AnyError::from(Untested::File(error)),
        invalid => invalid.into(),
    })?;
    let form = definitions.form().to_owned();
    let rows = rows(&arguments.rows, &definitions)?;
    let source = definitions.source(rows);
    let plan = definitions::plan(&source, NOW);
    let mut tested = Tested::of(&form, &source.rows, &plan);
    if let Some(given) = &arguments.schemas
        && tested.has_rendered()
    {
        let validation = schemas::validate(given, &arguments.access, &source, &plan);
        tested.validation = Some(run(validation)?);
    }
    if let Some(path) = &arguments.golden
        && tested.has_rendered()
    {
        let directory = Directory {
            path,
            form: &form,
            source: &source,
            plan: &plan,
        };
        tested.comparison = Some(match arguments.update {
            true => directory.update()?,
            false => directory.compare()?,
        });
    }
    match arguments.output {
        Output::Text => print(&tested)?,
        Output::Json => print(serde_json::to_string_pretty(&tested.json())? + "\n")?,
    }
    match tested.failure() {
        None => Ok(()),
        Some(failure) => Err(failure.into()),
    }
}

/// What the hub maps wrongly is no fault of the file.
fn rows(path: &Path, definitions: &Definitions) -> Result<Rows, AnyError> {
    let file = RowsFile::read(path).map_err(Untested::File)?;
    let rows = file.rows(definitions);
    rows.map_err(|error| match error {
        rows::Error::Columns(error) => error.into(),
        error => Untested::Rows(error).into(),
    })
}

/// Each node that was rendered without an error. One is rendered at a time, so that the memory holds one.
fn rendered<'a>(
    source: &'a RenderSource,
    plan: &'a Plan,
) -> impl Iterator<Item = (&'a NodeWrite, Value)> {
    let unrendered = plan.render_errors.names();
    let writes = plan.writes.iter();
    let writes = writes.filter(move |write| !unrendered.contains(&*write.name));
    writes.map(move |write| (write, source.object(write)))
}

/// The golden files of a form, and what it renders.
struct Directory<'a> {
    path: &'a Path,
    form: &'a str,
    source: &'a RenderSource,
    plan: &'a Plan,
}

impl Directory<'_> {
    fn compare(&self) -> Result<Comparison, Untested> {
        let mut comparison = Comparison::with(&self.path.display().to_string());
        comparison.left_over = self.left_over()?;
        self.each(|node, uid, golden, file| {
            comparison.add(node, uid, golden.compare(file));
            Ok(())
        })?;
        Ok(comparison)
    }

    fn update(&self) -> Result<Comparison, Untested> {
        fs::create_dir_all(self.path).map_err(|reason| failed(self.path, reason))?;
        let mut comparison = Comparison::with(&self.path.display().to_string());
        let mut updated = Updated::default();
        for node in self.left_over()? {
            let path = self.file(&node);
            fs::remove_file(&path).map_err(|reason| failed(&path, reason))?;
            updated.deleted += 1;
        }
        self.each(|node, uid, golden, file| {
            match golden.update(file) {
                Update::Keep => comparison.add(node, uid, Compared::Same),
                Update::Refuse => updated.refused.push(node.to_owned()),
                Update::Write => {
                    let path = self.file(node);
                    fs::write(&path, golden.text()).map_err(|reason| failed(&path, reason))?;
                    updated.written += 1;
                }
            }
            Ok(())
        })?;
        comparison.updated = Some(updated);
        Ok(comparison)
    }

    fn file(&self, node: &str) -> PathBuf {
        self.path.join(format!("{node}{ENDING}"))
    }

    /// Calls this for each node that was rendered without an error: with its name, the id of its row, and the text of its file. The
    /// files of other nodes stay as they are.
    fn each(
        &self,
        mut call: impl FnMut(&str, &str, &Golden, Option<&str>) -> Result<(), Untested>,
    ) -> Result<(), Untested> {
        for (write, node) in rendered(self.source, self.plan) {
            let golden = Golden::of(self.form, &node["spec"]);
            let file = text_of(&self.file(&write.name))?;
            call(&write.name, &write.uid, &golden, file.as_deref())?;
        }
        Ok(())
    }

    /// The nodes that have a file of this form, and no row any more. A row that is skipped keeps its file.
    fn left_over(&self) -> Result<Vec<String>, Untested> {
        let unreadable = |reason: io::Error| match reason.kind() {
            ErrorKind::NotFound => Untested::NoGolden {
                path: self.path.display().to_string(),
            },
            _ => failed(self.path, reason),
        };
        let mut left_over = BTreeSet::new();
        for entry in fs::read_dir(self.path).map_err(unreadable)? {
            let name = entry.map_err(unreadable)?.file_name();
            let Some(node) = name.to_str().and_then(|name| name.strip_suffix(ENDING)) else {
                continue;
            };
            let is_gone = self.source.rows.is_gone(uid_of(node, self.form));
            if is_gone && self.is_own(node)? {
                left_over.insert(node.to_owned());
            }
        }
        Ok(left_over.into_iter().collect())
    }

    fn is_own(&self, node: &str) -> Result<bool, Untested> {
        let file = text_of(&self.file(node))?;
        Ok(file.is_some_and(|file| is_own(self.form, &file)))
    }
}

/// The end of the names of golden files.
const ENDING: &str = ".yaml";

fn failed(path: &Path, reason: io::Error) -> Untested {
    Untested::Golden {
        path: path.display().to_string(),
        reason,
    }
}

/// None if there is no such file.
fn text_of(path: &Path) -> Result<Option<String>, Untested> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(path, error)),
    }
}
