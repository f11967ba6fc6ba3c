//! The rotation protocol as a pure state machine: from what was seen, and the time, to what to do next.
//! It must not read a clock, call anything, log, or touch key material: authorities are identifiers here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;

use crate::lifetimes::{Lifetimes, Validity, earlier, later};
use crate::status::{ConfigurationRef, Reason};

/// An authority's identity: the SHA-256 of its certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CaId(pub(crate) [u8; 32]);

impl fmt::Display for CaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..6]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaId({self})")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CaFacts {
    pub(crate) id: CaId,
    pub(crate) validity: Validity,
}

impl CaFacts {
    fn unexpired(&self, now: Timestamp) -> bool {
        now < self.validity.not_after
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeafFacts {
    pub(crate) ca: CaId,
    pub(crate) validity: Validity,
}

/// The authorities that the Secret holds: certificates with keys for the shell, [`CaFacts`] for decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CaSet<C> {
    /// Signs the serving certificates.
    pub(crate) active: C,
    /// Already trusted, but does not sign yet.
    pub(crate) next: Option<C>,
    /// Does not sign any more, but is trusted until all replicas have noticed.
    pub(crate) retired: Option<C>,
}

impl<C> CaSet<C> {
    pub(crate) fn new(active: C) -> Self {
        Self {
            active,
            next: None,
            retired: None,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &C> {
        std::iter::once(&self.active)
            .chain(&self.next)
            .chain(&self.retired)
    }

    /// What `change` makes of the Secret's content. `fresh` issues a new authority.
    /// `None`: the change does not fit the content, which no step asks for.
    pub(crate) fn changed<E>(
        current: Option<Self>,
        change: Change,
        fresh: impl FnOnce() -> Result<C, E>,
    ) -> Result<Option<Self>, E> {
        Ok(match (change, current) {
            (Change::Issue, _) => Some(Self::new(fresh()?)),
            (_, None) => None,
            (Change::Restore, Some(set)) => Some(set),
            (Change::Introduce, Some(set)) => Some(Self {
                next: Some(fresh()?),
                ..set
            }),
            (Change::Promote, Some(set)) => set.next.map(|next| Self {
                active: next,
                next: None,
                retired: Some(set.active),
            }),
            (Change::DropRetired, Some(set)) => Some(Self {
                retired: None,
                ..set
            }),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SecretView {
    Unread,
    /// Does not exist, or has none of our entries.
    Absent,
    /// Holds something that cannot be used. It is never overwritten: it may be the only copy of a key.
    Bad(String),
    Good(CaSet<CaFacts>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ConfigurationView {
    Unread,
    Absent,
    /// The bundle of each webhook entry.
    Present(Vec<BTreeSet<CaId>>),
}

impl ConfigurationView {
    fn carries(&self, ca: CaId) -> bool {
        matches!(self, Self::Present(bundles) if bundles.iter().all(|bundle| bundle.contains(&ca)))
    }
}

/// One observation of the cluster.
///
/// The configurations must be read before the Secret. Together with the precondition on each configuration's resourceVersion,
/// this keeps a replica with an old view from removing a new authority from a bundle: the Secret, read later, has every authority
/// that was in a bundle when it was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Observed {
    pub(crate) secret: SecretView,
    pub(crate) configurations: BTreeMap<ConfigurationRef, ConfigurationView>,
    /// The certificate that this replica serves.
    pub(crate) leaf: Option<LeafFacts>,
}

/// What a replica remembers between two steps. Losing it costs one settle time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The last good content of the Secret.
    pub(crate) kept: Option<CaSet<CaFacts>>,
    /// Since when all configurations have had this `next` in every observation.
    pub(crate) settling: Option<(CaId, Timestamp)>,
}

/// A change of the Secret. Carried out by compare-and-swap on the version that it was decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    /// Start again with a new authority: none exists, or all have expired.
    Issue,
    /// Put back what this replica remembers: the Secret was deleted.
    Restore,
    /// Add the successor of `active`.
    Introduce,
    /// `next` becomes `active`, `active` becomes `retired`.
    Promote,
    /// Nothing that `retired` signed is valid any more.
    DropRetired,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Effect {
    /// From the kept set's `active`.
    MintLeaf(Validity),
    /// With exactly the authorities of the kept set.
    WriteBundle(ConfigurationRef),
    WriteSecret(Change),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) state: State,
    /// In the order in which they are to be carried out. None depends on another's success.
    pub(crate) effects: Vec<Effect>,
    pub(crate) reason: Reason,
}

/// One step of the protocol. Total: every observation has an answer, and repeating it without its effects
/// having been carried out gives the same answer.
pub(crate) fn step(
    state: &State,
    observed: &Observed,
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Step {
    let kept = match observed.secret {
        SecretView::Good(set) => Some(set),
        _ => state.kept,
    };
    let settling = settling(state.settling, observed, now);
    let mut effects = Vec::new();
    if let Some(set) = &kept {
        effects.extend(leaf_to_mint(set, observed.leaf, lifetimes, now).map(Effect::MintLeaf));
        effects.extend(bundles_to_write(set, observed).map(Effect::WriteBundle));
    }
    effects.extend(
        secret_change(kept, settling, &observed.secret, lifetimes, now).map(Effect::WriteSecret),
    );
    Step {
        state: State { kept, settling },
        effects,
        reason: reason(observed, now),
    }
}

/// Replaces a certificate only by a better one: signed by the active authority, or valid longer, or valid at all. This keeps a
/// certificate that ends with its authority from being issued again and again.
fn leaf_to_mint(
    set: &CaSet<CaFacts>,
    leaf: Option<LeafFacts>,
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Option<Validity> {
    if !set.active.unexpired(now) {
        return None;
    }
    let candidate = lifetimes.leaf_validity(set.active.validity, now);
    let Some(leaf) = leaf.filter(|leaf| leaf.ca == set.active.id) else {
        return Some(candidate);
    };
    let due = now >= earlier(leaf.validity.not_after, lifetimes.leaf / 3);
    let longer = candidate.not_after > leaf.validity.not_after;
    let not_yet_valid = now < leaf.validity.not_before;
    let sooner = candidate.not_before < leaf.validity.not_before;
    ((due && longer) || (not_yet_valid && sooner)).then_some(candidate)
}

/// With a good Secret a bundle is exactly its authorities. With a bad one the kept set may be out of date, so
/// that a bundle is touched only where webhook calls fail as it is.
fn bundles_to_write(
    set: &CaSet<CaFacts>,
    observed: &Observed,
) -> impl Iterator<Item = ConfigurationRef> {
    let wanted: BTreeSet<CaId> = set.iter().map(|ca| ca.id).collect();
    let active = set.active.id;
    observed
        .configurations
        .iter()
        .filter_map(move |(configuration, view)| {
            let ConfigurationView::Present(bundles) = view else {
                return None;
            };
            let wrong = |bundle: &BTreeSet<CaId>| match observed.secret {
                SecretView::Good(_) => *bundle != wanted,
                SecretView::Bad(_) => !bundle.contains(&active),
                SecretView::Unread | SecretView::Absent => false,
            };
            bundles.iter().any(wrong).then(|| configuration.clone())
        })
}

fn secret_change(
    kept: Option<CaSet<CaFacts>>,
    settling: Option<(CaId, Timestamp)>,
    secret: &SecretView,
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Option<Change> {
    match secret {
        SecretView::Unread | SecretView::Bad(_) => None,
        SecretView::Absent => {
            let usable = kept.is_some_and(|set| set.active.unexpired(now));
            Some(if usable {
                Change::Restore
            } else {
                Change::Issue
            })
        }
        SecretView::Good(set) => rotation(set, settling, lifetimes, now),
    }
}

fn rotation(
    set: &CaSet<CaFacts>,
    settling: Option<(CaId, Timestamp)>,
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Option<Change> {
    let next = set.next.filter(|next| next.unexpired(now));
    if !set.active.unexpired(now) {
        // All calls already fail, so the change cannot break any.
        return Some(if next.is_some() {
            Change::Promote
        } else {
            Change::Issue
        });
    }
    if let Some(retired) = set.retired
        && now >= later(retired.validity.not_after, lifetimes.clock_skew)
    {
        return Some(Change::DropRetired);
    }
    if next.is_none() {
        let due = now >= earlier(set.active.validity.not_after, lifetimes.ca / 3);
        return due.then_some(Change::Introduce);
    }
    let settled = settling.is_some_and(|(_, since)| now >= later(since, lifetimes.settle));
    // There is only one place for a retired authority: do not replace one that is still trusted.
    (settled && set.retired.is_none()).then_some(Change::Promote)
}

fn settling(
    before: Option<(CaId, Timestamp)>,
    observed: &Observed,
    now: Timestamp,
) -> Option<(CaId, Timestamp)> {
    let SecretView::Good(CaSet {
        next: Some(next), ..
    }) = observed.secret
    else {
        return None;
    };
    if !observed
        .configurations
        .values()
        .all(|view| view.carries(next.id))
    {
        return None;
    }
    // A clock that was set back must not leave a start in the future.
    before
        .filter(|(ca, since)| *ca == next.id && *since <= now)
        .or(Some((next.id, now)))
}

fn reason(observed: &Observed, now: Timestamp) -> Reason {
    let Some(leaf) = observed.leaf else {
        return match &observed.secret {
            SecretView::Unread => Reason::SecretUnread,
            SecretView::Bad(problem) => Reason::SecretUnusable(problem.clone()),
            SecretView::Absent | SecretView::Good(_) => Reason::NoCertificate,
        };
    };
    if now >= leaf.validity.not_after {
        return Reason::LeafExpired(leaf.validity.not_after);
    }
    if now < leaf.validity.not_before {
        return Reason::LeafNotYetValid(leaf.validity.not_before);
    }
    let unready = observed
        .configurations
        .iter()
        .find(|(_, view)| !view.carries(leaf.ca));
    match unready {
        None => Reason::Ready,
        Some((configuration, ConfigurationView::Unread)) => {
            Reason::ConfigurationUnread(configuration.clone())
        }
        Some((configuration, ConfigurationView::Absent)) => {
            Reason::ConfigurationMissing(configuration.clone())
        }
        Some((configuration, ConfigurationView::Present(_))) => {
            Reason::BundleLacksCa(configuration.clone())
        }
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
