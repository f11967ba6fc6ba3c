//! Completion of `kubectl lynqgate`: kubectl runs the program under another name, and reads a word from each line and a directive.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::offline::succeeded;
use crate::operator::program;

#[test]
fn kubectl_completes_the_plugin() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("kubectl_complete-lynqgate");
    std::os::unix::fs::symlink(program("lynqgate")?, &path)?;
    std::fs::write(directory.path().join("form.yaml"), "")?;
    for (words, expected) in [
        (&["stat"][..], "status\n:4\n"),
        (&["status", ""], "hub\nform\nnode\nstatefulset\n:4\n"),
        (&["force", "--of"], "--off\n:4\n"),
        (&["diff", "-f", "f"], "form.yaml\n:4\n"),
        // No cluster has names.
        (&["explain", "sts", ""], ":4\n"),
    ] {
        let output = Command::new(&path)
            .args(words)
            .current_dir(&directory)
            .env("KUBECONFIG", directory.path().join("none"))
            .env_remove("KUBERNETES_SERVICE_HOST")
            .output()?;
        let answer = succeeded(&output)?;
        ensure!(answer == expected, "{words:?}: {answer}");
    }
    Ok(())
}
