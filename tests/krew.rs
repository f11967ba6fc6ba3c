//! `make krew`: what it packs is a plugin by the rules of krew (kubernetes-sigs/krew, internal/index/validation).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::operator::root;

/// Longer ones do not fit into the list of `kubectl krew search`.
const DESCRIPTION_CHARS_MAX: usize = 50;

/// The program itself is not built here: another file has its name.
#[test]
fn krew_takes_what_is_packed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |file: &str| directory.path().join(file);
    for made in ["bin", "target/release"] {
        fs::create_dir_all(path(made))?;
    }
    fs::write(path("target/release/lynqgate"), "the program")?;
    fs::write(path("bin/cargo"), "#!/bin/sh\n")?;
    fs::set_permissions(path("bin/cargo"), fs::Permissions::from_mode(0o755))?;
    let programs = std::env::var("PATH")?;
    let programs = format!("{}:{programs}", path("bin").display());
    let make = |arguments: &[&str]| {
        Command::new("make")
            .args(["--no-print-directory", "krew"])
            .args(arguments)
            .current_dir(root())
            .env("PATH", &programs)
            .env("CARGO_TARGET_DIR", path("target"))
            // Of a make that runs the tests.
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL")
            .output()
    };
    let version = format!("v{}", env!("CARGO_PKG_VERSION"));
    let (given, uri) = (format!("VERSION={version}"), "https://example.com/?a=1&b=2");
    let packed = make(&[&given, &format!("URI={uri}")])?;
    let said = String::from_utf8(packed.stderr)?;
    ensure!(packed.status.success(), "{said}");

    let text = fs::read_to_string(path("target/krew/lynqgate.yaml"))?;
    ensure!(!text.contains('@'), "a word is left to fill in:\n{text}");
    let plugin: Value = serde_saphyr::from_str(&text)?;
    ensure!(plugin["apiVersion"] == "krew.googlecontainertools.github.io/v1alpha2");
    ensure!(plugin["kind"] == "Plugin" && plugin["metadata"]["name"] == "lynqgate");
    let spec = &plugin["spec"];
    ensure!(spec["version"] == version.as_str(), "{text}");
    let short = spec["shortDescription"].as_str().unwrap_or_default();
    let chars = short.chars().count();
    ensure!((1..=DESCRIPTION_CHARS_MAX).contains(&chars) && !short.contains('\n'));
    let platforms = spec["platforms"].as_array().context("platforms")?;
    ensure!(platforms.len() == 1, "{text}");
    let platform = &platforms[0];
    let labels = &platform["selector"]["matchLabels"];
    let [os, arch] = ["os", "arch"].map(|label| labels[label].as_str().unwrap_or_default());
    ensure!(["linux", "darwin"].contains(&os), "{text}");
    ensure!(["amd64", "arm64"].contains(&arch), "{text}");
    ensure!(platform["uri"] == uri, "{text}");

    let archive = path(&format!("target/krew/lynqgate-{os}-{arch}.tar.gz"));
    let sum = Sha256::digest(fs::read(&archive)?);
    let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    ensure!(platform["sha256"] == sum.as_str(), "{sum}: {text}");
    let listed = Command::new("tar").arg("-tzf").arg(&archive).output()?;
    let listed = String::from_utf8(listed.stdout)?;
    let packed: Vec<&str> = listed.lines().collect();
    let files = platform["files"].as_array().context("files")?;
    let installed = files.iter().map(|file| file["from"].as_str());
    let installed: Vec<&str> = installed.collect::<Option<_>>().context("names")?;
    ensure!(packed == installed, "{packed:?}, and {installed:?}");
    ensure!(platform["bin"] == installed[0] && installed[0] == "lynqgate");

    let other = make(&["VERSION=v99.0.0"])?;
    let said = String::from_utf8(other.stderr)?;
    ensure!(
        !other.status.success() && said.contains("VERSION is v99.0.0"),
        "{said}"
    );
    Ok(())
}
