//! `make chaos`: a hundred tenants, three operators that divide the work into shards, and faults from a seed while users edit. Exits non-zero if the window
//! did not hold, a child changed that must not, or the fleet did not converge once the faults had stopped.

mod auditor;
mod bot;
mod clock;
mod deck;
mod etcd;
mod faults;
/// The harness of the tests. The path leads out of this directory; below it the files are found as usual.
#[path = ".."]
mod harness {
    #[allow(dead_code)]
    pub mod admission {
        pub mod tls;
    }
    pub mod cluster;
    pub mod dice;
    pub mod operator;
    pub mod proxy;
    pub mod relay;
    pub mod tenants;
}
mod intruders;
mod plants;
mod sight;
mod stage;
mod widgets;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use harness::{cluster, dice, operator, proxy, relay, tenants};
use lynqgate_plants::{Plant, Proof};
use tokio::sync::watch;

use bot::Bot;
use dice::Dice;
use stage::Stage;

/// A line of the screen every so often.
const LINE: Duration = Duration::from_secs(5);

/// How late an operator may learn of an edit, or a release reach the API server: the faults here hold back nothing for
/// longer than 15 s. In seconds.
const LAG: u32 = 20;

/// As many as operators.
const SHARDS: usize = 3;

struct Wanted {
    faults: Duration,
    seed: u64,
    nodes: usize,
}

fn wanted() -> Result<Wanted> {
    let number = |name: &str| match std::env::var(name) {
        Ok(text) if !text.is_empty() => {
            let number = text.parse::<u64>();
            number.map(Some).with_context(|| format!("{name}={text}"))
        }
        _ => Ok(None),
    };
    Ok(Wanted {
        faults: Duration::from_secs(number("DURATION")?.unwrap_or(180)),
        // Short enough to be read out.
        seed: number("SEED")?
            .unwrap_or_else(|| (u64::from(std::process::id()) << 16) ^ (now() % 65_536)),
        nodes: number("NODES")?.unwrap_or(100) as usize,
    })
}

fn now() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed();
    since.map_or(0, |since| since.as_millis() as u64)
}

#[tokio::main]
async fn main() -> ExitCode {
    let played = match (std::env::var("PLANT"), wanted()) {
        (Ok(name), _) if !name.is_empty() => convict(&name).await,
        (_, Ok(wanted)) => play(wanted).await,
        (_, Err(error)) => Err(error),
    };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nchaos: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// `PLANT=all`, or the name of one: the auditor must find each planted bug, and nothing where none is planted.
async fn convict(name: &str) -> Result<()> {
    let chosen: Vec<Plant> = match name {
        "all" => Proof::Chaos.plants().collect(),
        name => vec![Proof::Chaos.plant(name).map_err(anyhow::Error::msg)?],
    };
    let mut wrong = 0;
    for (plant, planted) in chosen.into_iter().flat_map(|p| [(p, true), (p, false)]) {
        let started = Instant::now();
        let stage = Arc::new(Stage::set(1, plants::NODES, (5, false), 1).await?);
        let supervisor = tokio::spawn(stage::keep_running(stage.clone()));
        let played = plants::play(plant, &stage, planted).await;
        supervisor.abort();
        let (status, report) = stage.auditor.report().await?;
        let breaks = plant.breaks_in(Proof::Chaos).expect("it is its own");
        let broken = |rule: &&str| auditor::names(&report, rule);
        let right = played.is_ok()
            && match planted && !breaks.is_empty() {
                true => status == 1 && breaks.iter().any(broken),
                false => status == 0,
            };
        let with = if planted { "planted" } else { "not planted" };
        let verdict = match status {
            0 => "held",
            1 => "violated",
            _ => "not concluded",
        };
        let took = sight::seconds(started.elapsed());
        println!("{plant:26} {with:12} {verdict:14} {took}");
        if !right {
            wrong += 1;
            println!("{report}\n{:?}", played.err());
        }
    }
    anyhow::ensure!(wrong == 0, "{wrong} verdicts are not what they have to be");
    Ok(())
}

async fn play(wanted: Wanted) -> Result<()> {
    let started = Instant::now();
    let seconds = wanted.faults.as_secs();
    println!(
        "chaos: SEED={} DURATION={seconds} NODES={}",
        wanted.seed, wanted.nodes
    );
    if !clock::Clock::can_be_set() {
        println!(
            "chaos: without libfaketime no clock jumps (on Debian: apt-get install libfaketime)"
        );
    }
    let stage = Arc::new(Stage::set(wanted.seed, wanted.nodes, (LAG, true), SHARDS).await?);
    println!(
        "{:5} s  the fleet stands; the faults begin",
        started.elapsed().as_secs()
    );

    let lines = tokio::spawn(sight::show(stage.clone(), started, LINE));
    let supervisor = tokio::spawn(stage::keep_running(stage.clone()));
    let end = Instant::now() + wanted.faults;
    let mut bot = Bot::new(stage.clone(), Dice::for_purpose(wanted.seed, "bot"));
    let cards = |purpose| Dice::for_purpose(wanted.seed, purpose);
    let (over, is_over) = watch::channel(false);
    let decks = async {
        let missed = tokio::join!(
            deck::play(&stage, &deck::MACHINES, cards("machines"), end),
            deck::play(&stage, &deck::NETWORK, cards("network"), end),
        );
        over.send_replace(true);
        [missed.0, missed.1].concat()
    };
    let (missed, ()) = tokio::join!(decks, bot.play_until(is_over));
    stage.heal().await?;
    println!("{:5} s  the faults are over", started.elapsed().as_secs());
    let healed = Instant::now();
    let converged = match bot.settle().await {
        Ok(()) => stage.widgets.settle(&stage.cluster).await,
        failed => failed,
    };
    lines.abort();
    supervisor.abort();
    stage.summary();
    println!(
        "{:5} s  {} after the last fault: {}",
        started.elapsed().as_secs(),
        sight::seconds(healed.elapsed()),
        match &converged {
            Ok(()) => "the fleet converged",
            Err(_) => "THE FLEET DID NOT CONVERGE",
        }
    );
    let events = stage.fleet.events("web").await?;
    let said = |wanted| events.iter().filter(|(reason, _)| reason == wanted).count();
    println!(
        "         {} events said that the rollout was halted, and {} that lynqgate took the change back; users did so {} times",
        said("RolloutHalted"),
        said("RolloutReverted"),
        bot.undone
    );
    let verdict = stage.auditor.verdict().await;
    if (converged.is_err() || verdict.is_err()) && stage::is_set("KEEP") {
        println!(
            "everything is left running: {}",
            stage.cluster.group().leave_running()?
        );
    }
    converged.and(verdict)?;
    anyhow::ensure!(
        missed.is_empty(),
        "faults that were never played, and so not survived: {}",
        missed.join("; ")
    );
    Ok(())
}
