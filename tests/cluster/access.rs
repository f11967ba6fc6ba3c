//! Ways into a running cluster: clients, kubeconfig files, namespaces, kubectl. Starts and ends no component.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::PostParams;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::credentials::Identity;
use super::{Cluster, START_DEADLINE, wait};

impl Cluster {
    /// The kubeconfig of an administrator, whom RBAC does not bind. Never for the operator under test.
    pub fn admin_kubeconfig(&self) -> &Path {
        &self.admin
    }

    pub async fn admin(&self) -> Result<Client> {
        client(&self.admin).await
    }

    /// A client without credentials of its own, for one that passes on those of others. It retries nothing.
    pub async fn anonymous(&self) -> Result<Client> {
        let mut config = config(&self.admin).await?;
        config.auth_info = AuthInfo::default();
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }

    pub async fn client_for(&self, identity: &Identity) -> Result<Client> {
        client(&self.kubeconfig_for(identity).await?).await
    }

    /// A new kubeconfig file of this user, who has no rights but those that RBAC gives. A service account must exist;
    /// its token is valid for a day.
    pub async fn kubeconfig_for(&self, identity: &Identity) -> Result<PathBuf> {
        let server = self.server_url();
        match identity {
            Identity::User { name, group } => {
                self.credentials
                    .certificate_kubeconfig(&server, name, group.as_deref())
            }
            Identity::ServiceAccount { namespace, name } => {
                let accounts = Api::<ServiceAccount>::namespaced(self.admin().await?, namespace);
                let spec = TokenRequestSpec {
                    expiration_seconds: Some(24 * 3600),
                    ..Default::default()
                };
                let request = TokenRequest {
                    spec: Some(spec),
                    ..Default::default()
                };
                let answer = accounts
                    .create_token_request(name, &PostParams::default(), &request)
                    .await;
                let answer = answer.with_context(|| {
                    format!("asking for a token of the service account {namespace}/{name}")
                })?;
                let token = answer
                    .status
                    .and_then(|status| status.token)
                    .context("the API server answered without a token")?;
                self.credentials
                    .token_kubeconfig(&server, &identity.username(), &token)
            }
        }
    }

    /// A new namespace whose name begins with `prefix`, in which pods can be created.
    pub async fn namespace(&self, prefix: &str) -> Result<String> {
        let admin = self.admin().await?;
        let wanted = serde_json::from_value(
            json!({ "metadata": { "generateName": format!("{prefix}-") } }),
        )?;
        let created = Api::<Namespace>::all(admin.clone())
            .create(&PostParams::default(), &wanted)
            .await?;
        let name = created
            .metadata
            .name
            .context("the API server answered without a name")?;
        let accounts = Api::<ServiceAccount>::namespaced(admin, &name);
        wait::until(
            "the namespace's default service account",
            START_DEADLINE,
            async || Ok(accounts.get("default").await?),
        )
        .await?;
        Ok(name)
    }

    /// Runs kubectl as administrator, or as whom a `--kubeconfig` among the arguments says.
    pub async fn kubectl(&self, arguments: &[&str], input: Option<&str>) -> Result<Outcome> {
        self.run("kubectl", arguments, &[], input).await
    }

    /// `kubectl apply` of one object, or of a List of them.
    pub async fn apply(&self, object: &str) -> Result<()> {
        let arguments = ["apply", "--filename=-"];
        let applied = self.kubectl(&arguments, Some(object)).await?;
        applied.expect_success()?;
        Ok(())
    }

    /// Runs the lines of a shell as an administrator would, up to the first that fails.
    pub async fn shell(&self, lines: &str) -> Result<Outcome> {
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", self.programs.display());
        let arguments = ["-euo", "pipefail", "-c", lines];
        self.run("/bin/bash", &arguments, &[("PATH", &path)], None)
            .await
    }

    /// `kubectl edit` with this shell command as the editor, which gets the name of the file as its last argument.
    pub async fn kubectl_edit(&self, arguments: &[&str], editor: &str) -> Result<Outcome> {
        let arguments = [&["edit"], arguments].concat();
        let editor = [("KUBE_EDITOR", editor)];
        self.run("kubectl", &arguments, &editor, None).await
    }

    /// The manifests that a kustomization directory stands for.
    pub async fn kustomize_build(&self, directory: &Path) -> Result<String> {
        let directory = directory.to_str().context("the path is not UTF-8")?;
        self.run("kustomize", &["build", directory], &[], None)
            .await?
            .expect_success()
    }

    async fn run(
        &self,
        program: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
        input: Option<&str>,
    ) -> Result<Outcome> {
        let mut command = tokio::process::Command::new(self.programs.join(program));
        command
            .args(arguments)
            .env("HOME", self.group.directory())
            .env("KUBECONFIG", &self.admin)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(self.group.id())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .with_context(|| format!("starting {program}"))?;
        let mut stdin = child
            .stdin
            .take()
            .context("the child has no standard input")?;
        let input = input.unwrap_or_default().as_bytes();
        let write = async move {
            // A program that ends without reading all of its input is judged by its outcome.
            let _ = stdin.write_all(input).await;
        };
        let ((), output) = tokio::join!(write, child.wait_with_output());
        let output = output?;
        Ok(Outcome {
            command: format!("{program} {}", arguments.join(" ")),
            success: output.status.success(),
            stdout: String::from_utf8(output.stdout)?,
            stderr: String::from_utf8(output.stderr)?,
        })
    }
}

/// How a command ended.
#[derive(Debug)]
pub struct Outcome {
    command: String,
    pub success: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    /// What the command printed, or an error with what it complained about.
    pub fn expect_success(self) -> Result<String> {
        if !self.success {
            bail!("`{}` failed: {}{}", self.command, self.stdout, self.stderr);
        }
        Ok(self.stdout)
    }
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    Ok(Client::try_from(config(kubeconfig).await?)?)
}

async fn config(kubeconfig: &Path) -> Result<Config> {
    let read = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    config.connect_timeout = Some(Duration::from_secs(5));
    // The way to 127.0.0.1 goes through no proxy, whatever the environment says.
    config.proxy_url = None;
    Ok(config)
}
