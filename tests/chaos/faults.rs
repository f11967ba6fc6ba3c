//! The faults, each from its beginning to its end. Whether anything survives them is not judged here.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use crate::clock::Clock;
use crate::cluster::programs::Component;
use crate::dice::Dice;
use crate::etcd;
use crate::intruders;
use crate::proxy::rules::{Action, Rule};
use crate::stage::{Replica, Stage, soon};
use crate::widgets;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Killed,
    BothKilled,
    Frozen,
    ApiserverKilled,
    EtcdFrozen,
    EtcdKilled,
    Gone,
    Silent,
    Lag,
    Refused,
    ReplyLost,
    Cut,
    Delayed,
    Compacted,
    Full,
    WebhooksDown,
    ConfigurationsDeleted,
    OtherWebhook,
    SecondWriter,
    KindGone,
    RestartStorm,
    TwoLeaders,
    ClockJump,
    LedgerLost,
}

/// The longest that a request is held back.
const DELAY_MAX: Duration = Duration::from_secs(14);

/// The resources that an operator watches and the release loop believes.
const WATCHED: [&str; 5] = ["lynqnodes", "lynqhubs", "lynqforms", "deployments", "*"];

const WRITES: &[&str] = &["create", "update", "patch", "delete"];

pub async fn strike(stage: &Arc<Stage>, fault: Fault, dice: &mut Dice) -> Result<()> {
    let _under_way = stage.begin(fault.name());
    match fault {
        Fault::Killed => stage.leader().await.kill(),
        Fault::BothKilled => stage.replicas.iter().try_for_each(Replica::kill),
        Fault::Frozen => freeze(stage.leader().await, dice).await,
        Fault::ApiserverKilled => stage.cluster.restart(Component::Apiserver).await,
        Fault::EtcdKilled => stage.cluster.restart(Component::Etcd).await,
        Fault::EtcdFrozen => {
            let etcd = stage.cluster.component(Component::Etcd);
            etcd.freeze()?;
            // After 34 s the API server gives requests up with 504.
            sleep(dice.seconds(5, 40)).await;
            etcd.thaw()
        }
        Fault::Gone => {
            let rule = Rule::new(Action::Gone).verbs(&["watch"]);
            for replica in &stage.replicas {
                replica.proxy.set_rules(vec![rule.clone().times(8)]);
                replica.proxy.cut_watches();
            }
            heal_after(stage, dice.seconds(2, 5)).await
        }
        Fault::Silent => {
            let resource = dice.one_of(&WATCHED);
            stage
                .replicas
                .iter()
                .for_each(|r| r.proxy.silence(resource));
            heal_after(stage, dice.seconds(4, 15)).await
        }
        Fault::Lag => {
            for replica in &stage.replicas {
                let (resource, lag) = (dice.one_of(&WATCHED), dice.seconds(1, 12));
                replica.proxy.lag(resource, lag);
            }
            heal_after(stage, dice.seconds(8, 20)).await
        }
        Fault::Refused => {
            let code = *dice.one_of(&[409, 429, 500, 503, 504]);
            let retry_after = (code == 429).then_some(1);
            let chance = *dice.one_of(&[20, 50, 100]);
            rules(
                stage,
                Rule::new(Action::Status(code, retry_after)).chance(chance),
            );
            heal_after(stage, dice.seconds(3, 8)).await
        }
        Fault::ReplyLost => {
            let rule = Rule::new(Action::LoseReply).verbs(WRITES);
            rules(stage, rule.chance(*dice.one_of(&[20, 50])));
            heal_after(stage, dice.seconds(5, 10)).await
        }
        Fault::Cut => {
            let rule = Rule::new(Action::CutAfter(dice.below(4000)));
            rules(stage, rule.chance(30));
            heal_after(stage, dice.seconds(3, 8)).await
        }
        Fault::Delayed => {
            // Longer than an operator waits for an answer, too.
            let rule = Rule::new(Action::Delay(dice.seconds(1, DELAY_MAX.as_secs()))).verbs(WRITES);
            rules(stage, rule.chance(*dice.one_of(&[10, 40])));
            heal_after(stage, dice.seconds(5, 15)).await
        }
        // Watches that are taken up again ask for a past that is gone.
        Fault::Compacted => {
            etcd::compact(&stage.cluster).await?;
            stage.cluster.restart(Component::Apiserver).await
        }
        Fault::Full => {
            etcd::set_full(&stage.cluster, true).await?;
            sleep(dice.seconds(3, 8)).await;
            etcd::set_full(&stage.cluster, false).await
        }
        Fault::WebhooksDown => {
            stage.webhooks.set_up(false);
            sleep(dice.seconds(3, 10)).await;
            stage.webhooks.set_up(true);
            Ok(())
        }
        Fault::ConfigurationsDeleted => {
            let time = dice.seconds(2, 8);
            intruders::without_webhooks(&stage.cluster, dice, time).await
        }
        Fault::OtherWebhook => intruders::admit_too(stage, dice.seconds(5, 12)).await,
        Fault::SecondWriter => {
            let time = dice.seconds(4, 10);
            intruders::write_too(stage, dice, time).await
        }
        Fault::KindGone => {
            widgets::set_kind(&stage.cluster, false).await?;
            sleep(dice.seconds(2, 8)).await;
            widgets::set_kind(&stage.cluster, true).await
        }
        Fault::RestartStorm => {
            for _ in 0..8 {
                dice.one_of(&stage.replicas).kill()?;
                sleep(dice.seconds(1, 3)).await;
            }
            Ok(())
        }
        Fault::ClockJump => {
            let clock = &dice.one_of(&stage.replicas).clock;
            clock.set(*dice.one_of(&[-3600, -60, 60, 3600]))?;
            sleep(dice.seconds(5, 15)).await;
            clock.set(0)
        }
        Fault::LedgerLost => {
            // A release on its way goes through, slot or no slot: docs/decisions/0014.
            sleep(DELAY_MAX).await;
            soon("lose the ledger", stage.fleet.lose_ledger()).await
        }
        Fault::TwoLeaders => {
            stage.replicas[1].proxy.set_rules(intruders::two_leaders());
            heal_after(stage, dice.seconds(10, 20)).await
        }
    }
}

impl Fault {
    /// Without libfaketime there is nothing that moves a clock.
    pub fn can_be_played(self) -> bool {
        self != Fault::ClockJump || Clock::can_be_set()
    }

    pub fn name(self) -> &'static str {
        match self {
            Fault::Killed => "operator killed",
            Fault::BothKilled => "both operators killed",
            Fault::Frozen => "operator frozen",
            Fault::ApiserverKilled => "API server killed",
            Fault::EtcdFrozen => "etcd frozen",
            Fault::EtcdKilled => "etcd killed",
            Fault::Gone => "410",
            Fault::Silent => "silent watches",
            Fault::Lag => "lagging caches",
            Fault::Refused => "refusals",
            Fault::ReplyLost => "lost replies",
            Fault::Cut => "cut answers",
            Fault::Delayed => "late requests",
            Fault::Compacted => "compaction",
            Fault::Full => "etcd full",
            Fault::WebhooksDown => "webhooks down",
            Fault::ConfigurationsDeleted => "no webhook configuration",
            Fault::OtherWebhook => "another webhook",
            Fault::SecondWriter => "second writer",
            Fault::KindGone => "a child's kind gone",
            Fault::RestartStorm => "restart storm",
            Fault::TwoLeaders => "two leaders",
            Fault::ClockJump => "clock jump",
            Fault::LedgerLost => "ledger lost",
        }
    }
}

/// For both operators.
fn rules(stage: &Stage, rule: Rule) {
    let set = |replica: &Replica| replica.proxy.set_rules(vec![rule.clone()]);
    stage.replicas.iter().for_each(set);
}

async fn heal_after(stage: &Stage, time: Duration) -> Result<()> {
    sleep(time).await;
    stage.replicas.iter().for_each(|r| r.proxy.heal());
    Ok(())
}

/// Long enough for its lease to run out and the other replica to lead.
async fn freeze(replica: &Replica, dice: &mut Dice) -> Result<()> {
    replica.struck.store(true, Ordering::SeqCst);
    let frozen = replica.operator.process.freeze();
    if frozen.is_ok() {
        sleep(dice.seconds(17, 25)).await;
        replica.operator.process.thaw()?;
    }
    replica.struck.store(false, Ordering::SeqCst);
    Ok(())
}

impl Replica {
    /// The supervisor starts it again.
    pub fn kill(&self) -> Result<()> {
        self.operator.process.kill()
    }
}
