//! Every reason to wait, brought about on the real control plane as users would bring it about, and what they then read,
//! word for word. After a change of a text: `UPDATE_GOLDENS=1`, and read the difference.

mod alone;
mod shared;
mod shot;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use lynqgate::decide::rollout::reason::{NEXT, Reason};

use crate::cluster::Cluster;
use crate::operator;
use crate::words::all;

/// Where a reason is brought about.
enum Scene {
    /// In a namespace of its own, by an operator that others use.
    Shared(fn(&'static Cluster) -> LocalBoxFuture<'static, Result<()>>),
    /// By an operator of its own, which is stopped and started.
    Alone,
}

struct Golden {
    code: &'static str,
    text: &'static str,
    /// What its cause must name.
    names: &'static [&'static str],
    scene: Scene,
}

macro_rules! goldens {
    ($($variant:ident $names:expr => $scene:expr),* $(,)?) => {
        /// Names every variant, so that one without a golden and a scene does not compile. For a new one make an empty
        /// file, and let `UPDATE_GOLDENS=1` fill it.
        const fn code(reason: &Reason) -> &'static str {
            match reason {
                // It is over in a moment, and its form's status is written after it.
                Reason::Releasing => "Releasing",
                $(Reason::$variant { .. } => stringify!($variant),)*
            }
        }

        const GOLDENS: &[Golden] = &[$(Golden {
            code: stringify!($variant),
            text: include_str!(concat!("cases/reasons/", stringify!($variant), ".txt")),
            names: &$names,
            scene: $scene,
        }),*];
    };
}

macro_rules! shared {
    ($scene:path) => {
        Scene::Shared(|cluster| $scene(cluster).boxed_local())
    };
}

goldens! {
    ReleaseRefused ["t0-web", "no changes on a Friday"] => shared!(shared::release_refused),
    LedgerRefused ["the books are closed", "hub"] => shared!(shared::ledger_refused),
    SlotReserved ["t0-web", "t1-web", "maxSkew"] => shared!(shared::slot_reserved),
    WindowFull ["t0-web", "Deployment t0-app", "its image web:2-broken cannot be pulled"] => shared!(shared::window_full),
    Soaking ["t0-web"] => shared!(shared::soaking),
    ReadinessUnknown ["t0-web", "statuses are frozen"] => shared!(shared::readiness_unknown),
    BrokenBefore ["t0-web", "Deployment t0-app", "its image"] => shared!(shared::broken_before),
    HubWindowFull ["t0-web", "Deployment t0-app", "its image", "hub"] => shared!(shared::hub_window_full),
    DomainFull ["t0-web", "plan \"pro\"", "its image"] => shared!(shared::domain_full),
    RolloutFailed ["t0-web", "Deployment t0-app", "its image", "maxFailures"] => shared!(shared::rollout_failed),
    GroupNotDone ["t0-web", "its image", "canaries"] => shared!(shared::group_not_done),
    AwaitingPromotion ["canaries", "rollout.order"] => shared!(shared::awaiting_promotion),
    NotRendered ["form \"web\"", "unclosed action"] => shared!(shared::not_rendered),
    Paused ["form \"web\""] => shared!(shared::paused),
    DeletionsHeld ["tenant-t0-web", "hub"] => shared!(shared::deletions_held),
    Starting ["t0-batch", "t1-batch"] => Scene::Alone,
    LiveContentUnknown ["t1-web", "webhook"] => Scene::Alone,
    NoForm ["\"web\""] => shared!(shared::no_form),
    NoLeader ["operator"] => Scene::Alone,
}

const _: fn(&Reason) -> &'static str = code;

fn golden(code: &str) -> Result<&'static Golden> {
    let found = GOLDENS.iter().find(|golden| golden.code == code);
    found.with_context(|| format!("no golden {code}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reason_reads_as_its_golden() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let scenes = GOLDENS.iter().filter_map(|golden| match golden.scene {
        Scene::Shared(scene) => Some((golden.code, scene(cluster))),
        Scene::Alone => None,
    });
    all(scenes.collect()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reasons_of_an_operator_that_comes_and_goes_read_as_their_goldens() -> Result<()> {
    let mut shown = alone::play().await?;
    shown.sort();
    let alone = GOLDENS.iter().filter(|g| matches!(g.scene, Scene::Alone));
    let mut wanted: Vec<&str> = alone.map(|golden| golden.code).collect();
    wanted.sort();
    ensure!(shown == wanted, "shown {shown:?}, of {wanted:?}");
    Ok(())
}

/// Read at night: which object, why, and what to do, each once.
#[test]
fn each_golden_names_the_objects_the_cause_and_the_next_step() -> Result<()> {
    for Golden {
        code, text, names, ..
    } in GOLDENS
    {
        let explained = text.split_once("$ lynqgate explain node ");
        let (_, explained) = explained.with_context(|| format!("{code}: no explain"))?;
        let line = |name: &str| {
            let mut lines = explained.lines();
            let found = lines.find_map(|line| line.strip_prefix(&format!("  {name:<10} ")));
            found.with_context(|| format!("{code}: no line {name:?} in\n{explained}"))
        };
        let (subject, within) = (explained.lines().nth(1).unwrap_or_default(), line("of")?);
        ensure!(
            subject.starts_with("lynqnode NAMESPACE/t") && within == "form web, hub tenants",
            "{code}: {subject}, {within}"
        );
        let (why, next) = (line("why")?, line("next")?);
        let cause = why.strip_prefix(&format!("{code}: "));
        let cause = cause.with_context(|| format!("{code}: {why}"))?;
        for name in *names {
            let named = cause.contains(name) || (*code == "Releasing" && subject.contains(name));
            ensure!(named, "{code}: {name:?} is not in {cause:?}");
        }
        ensure!(next.len() > 20, "{code}: the next step is {next:?}");
        ensure!(
            !cause.contains(next),
            "{code}: the next step stands there twice"
        );
        ensure!(
            text.matches(&format!("Next: {next}")).count() <= 1,
            "{code}: the form's condition says it twice"
        );
    }
    Ok(())
}

/// The names, the objects and the words of others follow the first colon of a cause. The rest must fit into a few lines of a terminal.
#[test]
fn each_golden_has_at_most_300_characters_besides_what_it_lists() -> Result<()> {
    for Golden { code, text, .. } in GOLDENS {
        for line in text.lines().filter_map(|line| line.strip_prefix("True ")) {
            let (_, message) = line.split_once(": ").context("a reason")?;
            let (cause, next) = message.split_once(NEXT).unwrap_or((message, ""));
            let own = cause.split_once(": ").map_or(cause, |(own, _)| own);
            let chars = own.chars().count() + next.chars().count();
            ensure!(chars <= 300, "{code}: {chars} characters: {own} ... {next}");
        }
    }
    Ok(())
}
