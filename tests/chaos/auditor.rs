//! The auditor at work: a program of its own, which follows every revision from etcd and has the last word.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cluster::Cluster;
use crate::cluster::process::Process;
use crate::operator;

/// How long an object may be without what is live, and a form be wrong about being complete, in seconds; 30 s less a held node without a
/// reason. While the faults strike there may be nobody to see to it: a leader that is frozen, killed or cut off is followed by
/// the next after 15 s and more, and that one meets the same. For 56 s nobody acted in a run whose logs were read.
const SETTLE: u32 = 120;

/// It reads what etcd still has.
const END: Duration = Duration::from_secs(60);

pub struct Auditor {
    process: Process,
}

impl Auditor {
    /// `lag`: how late an operator may learn of an edit, in seconds. `converge`: whether the fleet has to, in the end.
    pub fn start(cluster: &Cluster, lag: u32, converge: bool) -> Result<Auditor> {
        let mut command = Command::new(operator::program("lynqgate-audit")?);
        command
            .args([
                "etcd",
                "--endpoint",
                &cluster.etcd_url(),
                "--from-revision=1",
            ])
            .args([format!("--lag={lag}"), format!("--settle={SETTLE}")])
            .args(converge.then_some("--require-converged"));
        let process = cluster.process("lynqgate-audit", command)?;
        process.start()?;
        Ok(Auditor { process })
    }

    /// What it has found until now.
    pub fn so_far(&self) -> u64 {
        let log = std::fs::read_to_string(self.process.log()).unwrap_or_default();
        let count = |line: &str| {
            let line = line.strip_prefix("lynqgate-audit: ")?;
            line.strip_suffix(" violations so far")?.parse().ok()
        };
        log.lines().rev().find_map(count).unwrap_or_default()
    }

    /// Its report, which is printed, and whether every promise was kept.
    pub async fn verdict(&self) -> Result<()> {
        let (status, report) = self.report().await?;
        println!("\n{report}");
        match status {
            0 => Ok(()),
            1 => bail!("the auditor found violations; its report is above"),
            _ => bail!("the auditor could not conclude; its report is above"),
        }
    }

    /// Its exit status and what it printed.
    pub async fn report(&self) -> Result<(i32, String)> {
        let status = self.process.terminate(END).await?;
        let report = std::fs::read_to_string(self.process.log())?;
        Ok((status.code().context("the auditor was killed")?, report))
    }
}

/// Whether the report has a violation of this rule.
pub fn names(report: &str, rule: &str) -> bool {
    report.contains(&format!("VIOLATION {rule} at revision"))
}
