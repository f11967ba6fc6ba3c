//! The kinds of objects that commands are about, as users type them.

use crate::decide::child::ObjectKey;
use crate::decide::partition;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Subject {
    #[value(alias = "lynqhub", alias = "lhub")]
    Hub,
    #[value(alias = "lynqform", alias = "lform")]
    Form,
    #[value(alias = "lynqnode", alias = "lnode")]
    Node,
    #[value(name = "statefulset", alias = "sts")]
    StatefulSet,
}

impl Subject {
    pub fn kind(self) -> &'static str {
        match self {
            Subject::Hub => "LynqHub",
            Subject::Form => "LynqForm",
            Subject::Node => "LynqNode",
            Subject::StatefulSet => "StatefulSet",
        }
    }

    pub fn key(self, namespace: &str, name: &str) -> ObjectKey {
        match self {
            Subject::StatefulSet => partition::key(namespace, name),
            _ => ObjectKey::own(self.kind(), namespace, name),
        }
    }
}
