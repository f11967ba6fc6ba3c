//! `make demo`: what lynqgate does, played on a real control plane. Exits non-zero if something of it did not happen.

mod acts;
mod screen;
mod stage;
/// The harness of the tests. The path leads out of this directory; below it the files are found as usual.
#[path = ".."]
mod harness {
    pub mod cluster;
    pub mod operator;
}
mod witness;

use std::process::ExitCode;

use anyhow::Result;
use harness::{cluster, operator};

use screen::{Screen, clock};
use stage::{NAMESPACE, Stage};

#[tokio::main]
async fn main() -> ExitCode {
    let keep = std::env::var_os("KEEP").is_some_and(|keep| !keep.is_empty() && keep != "0");
    let mut stage = match Stage::set(Screen::new()).await {
        Ok(stage) => stage,
        Err(error) => {
            eprintln!("\nThe demo could not begin: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let played = play(&mut stage).await;
    if let Err(error) = &played {
        stage.screen.bad(&format!("{error:#}"));
    }
    let left = if keep { leave_running(&stage) } else { Ok(()) };
    if played.is_ok() && left.is_ok() {
        return ExitCode::SUCCESS;
    }
    if let Err(error) = left {
        eprintln!("{error:#}");
    } else if !keep {
        eprintln!("`make demo KEEP=1` leaves everything running for a look.");
    }
    ExitCode::FAILURE
}

async fn play(stage: &mut Stage) -> Result<()> {
    acts::first_sync(stage).await?;
    acts::change(stage).await?;
    acts::bad_change(stage).await?;
    acts::fix(stage).await?;
    acts::force(stage).await?;
    acts::row_deleted(stage).await?;
    acts::window_held(stage)?;
    let (peak, cost) = (stage.witness.seen().peak, stage.cost()?);
    println!(
        "\nAll of it happened, in {}. The demo's own watch never saw more than {peak} of 20 Deployments not rolled out.",
        clock(stage.screen.elapsed())
    );
    println!(
        "lynqgate used {:.1} s of processor time and {} MiB of memory at most.",
        cost.processor.as_secs_f64(),
        cost.peak_mib
    );
    Ok(())
}

fn leave_running(stage: &Stage) -> Result<()> {
    let directory = stage.cluster.group().directory().to_owned();
    let ends = [
        stage.cluster.group().leave_running()?,
        stage.database.group().leave_running()?,
    ];
    let end = directory.join("end");
    std::fs::write(&end, ends.map(|line| line + "\n").concat())?;
    println!("\nEverything is still running. In another shell:");
    println!(
        "    export KUBECONFIG={}",
        stage.cluster.admin_kubeconfig().display()
    );
    println!(
        "    export PATH={}:$PATH",
        stage.cluster.programs().display()
    );
    println!("    kubectl get lynqhub,lynqform,lynqnode --namespace {NAMESPACE}");
    println!("The database, for its administrator:");
    println!(
        "    mariadb --no-defaults --user=root --socket={} product",
        stage.database.socket().display()
    );
    println!("Logs are in {}. To end it all:", directory.display());
    println!("    sh {}", end.display());
    Ok(())
}
