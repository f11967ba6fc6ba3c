//! `make demo`: what lynqgate does, played on a real control plane. Exits non-zero if something of it did not happen.

mod acts;
mod screen;
mod stage;
/// The harness of the tests. The path leads out of this directory; below it the files are found as usual.
#[path = ".."]
mod harness {
    pub mod cluster;
    pub mod operator;
    pub mod witness;
}

use std::process::ExitCode;

use anyhow::{Context, Result};
use harness::{cluster, operator, witness};

use screen::{Screen, clock};
use stage::Stage;

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
    acts::database::stateful_set(stage).await?;
    acts::database::maintenance(stage).await?;
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

/// Lets everything live on, and says how to look at it and how to end it.
fn leave_running(stage: &Stage) -> Result<()> {
    let (cluster, database) = (&stage.cluster, &stage.database);
    let directory = cluster.group().directory();
    let end = directory.join("end");
    let lynqgate = operator::program("lynqgate")?;
    let lynqgate = lynqgate.parent().context("its directory")?;
    let ends = [
        database.group().leave_running()?,
        cluster.group().leave_running()?,
    ];
    std::fs::write(&end, ends.join(" ; "))?;
    println!(
        "
Everything is still running. In another shell, in this directory:

    export KUBECONFIG={kubeconfig}
    export PATH={programs}:{lynqgate}:$PATH

    kubectl get lynqhub,lynqform,lynqnode
    sed 's/web:1.0/web:3.0/' tests/demo/form.yaml | kubectl apply -f - && kubectl get lynqform --watch
    sed 's/db:1.0/db:1.2-broken/' tests/demo/db.yaml | kubectl apply -f - && lynqgate explain statefulset db
    mariadb --no-defaults --user=root --socket={socket} product

Logs are in {directory}. The end of it all:

    sh {end}",
        kubeconfig = cluster.admin_kubeconfig().display(),
        programs = cluster.programs().display(),
        lynqgate = lynqgate.display(),
        socket = database.socket().display(),
        directory = directory.display(),
        end = end.display(),
    );
    Ok(())
}
