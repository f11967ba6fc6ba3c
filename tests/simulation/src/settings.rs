//! What a seed stands for.

use std::collections::BTreeSet;

use lynqgate_plants::Plant;

use crate::planted::needs;
use crate::random::Random;

macro_rules! faults {
    ($($name:ident: $what:literal,)*) => {
        /// A class of what may go wrong, or of what people do meanwhile. A seed has some of them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault { $($name,)* }

        impl Fault {
            pub const ALL: &[Fault] = &[$(Fault::$name,)*];

            pub fn what(self) -> &'static str {
                match self { $(Fault::$name => $what,)* }
            }
        }
    };
}

faults! {
    Crash: "processes are killed anywhere, and start with empty memory",
    LateRequest: "a request arrives late, also after its sender's end",
    LostReply: "a write happens, and its sender sees an error, or nothing",
    Unreachable: "a request does not arrive",
    SlowReply: "a reply is read later than events that came after it",
    TwoLeaders: "both processes believe that they lead",
    Freeze: "a process stands still anywhere, and goes on",
    LostWatch: "a watch is silent until it breaks, or its version is gone",
    Lag: "a watch is late",
    StaleList: "a list is older than what was there",
    Clock: "the processes' clocks differ by up to 30 s, and jump",
    WebhookDown: "the webhook does not answer, and writes fail",
    Reinvocation: "another webhook changes the object, and the gate is asked again",
    OtherWriters: "others write the hub's and the nodes' metadata",
    Edits: "several edits of a form in a short time, reverts among them",
    BadEdits: "content that is never ready, slow, or flaps",
    HandEdits: "nodes are edited by hand, reverted, written without `released`, tampered with",
    Force: "nodes are forced",
    ForceAll: "a whole form or the hub is forced, and no longer",
    Order: "canaries first, no order, other canaries, and a pause after them",
    Policy: "maxSkew up, down, 0, percentages; paused; minReadySeconds; creation; onFailure",
    HubWindow: "the hub's own maxSkew",
    LostLedger: "the hub's status is lost, and the ledger with it",
    Rows: "rows come and go",
    Forms: "forms are deleted and made again",
    NoPolling: "rows are read only when the hub or a form changes",
    Database: "queries fail, and tables are empty for a while",
    Takeover: "nodes and workloads that Lynq left, content that gets past the gate, workloads that others change",
    Refusals: "the API server refuses the writes of a kind for a while",
    StatefulSets: "teams edit, pause, force and scale StatefulSets of their own, and their pods die",
    Maintenance: "people take Kubernetes nodes into maintenance, and budgets refuse evictions",
    Reviews: "people ask the webhooks of forms and hubs first, also about what they had better not write",
    Pages: "a list comes in small pages, and its continue token expires",
    Shards: "the work is divided into shards, and the processes hand them over",
    Reverts: "a change never becomes ready, lynqgate sets the form back, and people edit it at that moment",
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub seed: u64,
    /// Rows, and forms: a node for each pair.
    pub rows: usize,
    pub forms: usize,
    /// Moments with faults, before everything heals.
    pub steps: u64,
    /// Into how many shards the operators divide the work.
    pub shards: usize,
    pub faults: BTreeSet<Fault>,
    pub mutant: Option<Plant>,
}

impl Settings {
    /// Each class of faults is there or not. Teams of StatefulSets are seldom there: they need many requests.
    pub fn of(seed: u64) -> Self {
        let mut random = Random::stream(seed, 0);
        // Streams of their own, so that a class more shifts no other.
        let mut apart = Random::stream(seed, 5);
        let mut pages = Random::stream(seed, 6);
        let mut reverts = Random::stream(seed, 9);
        let forms = 1 + usize::from(random.permille(300));
        let rows = (30 + random.below(4)).div_ceil(forms);
        let faults: BTreeSet<Fault> = Fault::ALL
            .iter()
            .copied()
            .filter(|fault| match fault {
                Fault::Refusals => apart.permille(300),
                Fault::StatefulSets => apart.permille(150),
                Fault::Maintenance | Fault::Reviews => apart.permille(150),
                Fault::Shards => apart.permille(200),
                Fault::Pages => pages.permille(300),
                Fault::Reverts => reverts.permille(250),
                _ => random.permille(500),
            })
            .collect();
        let steps = 200 + random.below(450) as u64;
        Settings {
            seed,
            rows,
            forms,
            steps,
            // The hub is in the last of 2 and of 3: that one is asked for first.
            shards: match faults.contains(&Fault::Shards) {
                true => 2 + random.below(2),
                false => 1,
            },
            faults,
            mutant: None,
        }
    }

    /// The same with a bug, and with the faults that it takes to show.
    pub fn planted(seed: u64, mutant: Option<Plant>) -> Self {
        let mut settings = Settings::of(seed);
        settings.faults.extend(mutant.map_or(&[][..], needs));
        Settings { mutant, ..settings }
    }
}
