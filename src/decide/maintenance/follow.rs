//! How `lynqgate drain` interprets a Kubernetes node that it follows. It must not wait.

use crate::decide::maintenance::drain::Stage;
use crate::decide::maintenance::node::{KubernetesNode, Request, Status};

/// What the user waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Drained,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    Going,
    Done,
    /// The request is gone: the maintenance was ended, or its window is over.
    Withdrawn,
}

pub fn follow(node: &KubernetesNode, wanted: Wanted) -> Followed {
    let asks = node.request != Request::None;
    let drained = node.progress.as_deref().and_then(Stage::of) == Some(Stage::Drained);
    match wanted {
        Wanted::Drained if !asks => Followed::Withdrawn,
        Wanted::Drained if node.says(Status::Active) && drained => Followed::Done,
        // A new request.
        Wanted::Ended if asks => Followed::Withdrawn,
        Wanted::Ended if node.says(Status::Ended) || node.status.is_none() => Followed::Done,
        Wanted::Drained | Wanted::Ended => Followed::Going,
    }
}

/// The line that the user sees.
pub fn line(node: &KubernetesNode) -> Option<String> {
    let status = node.status.as_deref()?;
    Some(match node.progress.as_deref() {
        Some(progress) => format!("{status}: {progress}"),
        None => status.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_an_end_or_none() {
        for (asks, status, progress, of_drain, of_end) in [
            (true, "", "", Followed::Going, Followed::Withdrawn),
            (
                true,
                "waiting",
                "other holds the Lease",
                Followed::Going,
                Followed::Withdrawn,
            ),
            (
                true,
                "ended",
                "of the last one",
                Followed::Going,
                Followed::Withdrawn,
            ),
            (
                true,
                "active",
                "cordoned",
                Followed::Going,
                Followed::Withdrawn,
            ),
            (
                true,
                "active",
                "blocked: 1 pod left",
                Followed::Going,
                Followed::Withdrawn,
            ),
            (
                true,
                "active",
                "drained: not evicted: 1 pod",
                Followed::Done,
                Followed::Withdrawn,
            ),
            (
                true,
                "active",
                "drained",
                Followed::Done,
                Followed::Withdrawn,
            ),
            (
                false,
                "active",
                "drained",
                Followed::Withdrawn,
                Followed::Going,
            ),
            (false, "waiting", "", Followed::Withdrawn, Followed::Going),
            (false, "ended", "", Followed::Withdrawn, Followed::Done),
            (false, "", "", Followed::Withdrawn, Followed::Done),
        ] {
            let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let node = KubernetesNode {
                request: if asks {
                    Request::Window(5)
                } else {
                    Request::None
                },
                status: text(status),
                progress: text(progress),
                ..KubernetesNode::default()
            };
            let found = (follow(&node, Wanted::Drained), follow(&node, Wanted::Ended));
            assert_eq!(found, (of_drain, of_end), "{asks} {status} {progress}");
        }
    }
}
