//! Every label, annotation, finalizer, field manager and lease name that appears on the wire, once.
//!
//! Those that Lynq also has are its, byte for byte, so that a cluster can be taken over.

/// API group of the three kinds.
pub const GROUP: &str = "operator.lynq.sh";
/// The one served and stored version.
pub const VERSION: &str = "v1";

/// Field manager of every write but those below (Lynq's own, so takeover meets no conflict).
pub const FIELD_MANAGER: &str = "lynq-operator";
/// Field manager of statuses, with the ledger in a hub's (merge patches).
pub const STATUS_MANAGER: &str = "lynq-operator-status";
/// Field manager of the partition loop's steps. The operator's other writes leave the partition alone.
pub const PARTITION_MANAGER: &str = "lynqgate-partition";
/// Field manager of `lynqgate drain`: a person's request, and not a write of the operator.
pub const DRAIN_MANAGER: &str = "lynqgate-drain";
/// Field manager of the commands with which a person steers a rollout.
pub const CLI_MANAGER: &str = "lynqgate-cli";
/// Label of a ClusterRole whose rules the operator gets, for the objects of tenants.
pub const AGGREGATE_TO_TENANTS: &str = "rbac.lynq.sh/aggregate-to-tenants";
/// Name of the operator's Deployment and of its service account, as the manifests install them.
pub const OPERATOR: &str = "lynq-controller-manager";
/// Leader election lease; of the first shard, where the work is divided.
pub const LEADER_LEASE: &str = "f2130106.lynq.sh";
/// Annotation of a lease: how many shards its holder divides the work into.
pub const SHARDS: &str = "lynq.sh/shards";
/// Annotation of a lease: the replica that asks its holder to hand the shard over.
pub const WANTED_BY: &str = "lynq.sh/wanted-by";
/// Selects the operator's Deployment and its pods.
pub const OPERATOR_SELECTOR: &str = "control-plane=controller-manager";
/// The Secret with the webhook certificate authority.
pub const CERTIFICATE_SECRET: &str = "lynq-webhook-ca";
/// Field manager of that Secret, and of the bundles in the webhook configurations.
pub const CERTIFICATE_MANAGER: &str = "lynqgate-ca-bundle";
/// The webhooks, and their configurations.
pub const MUTATING_WEBHOOK: &str = "mlynqnode.kb.io";
pub const VALIDATING_WEBHOOK: &str = "vlynqnode.kb.io";
pub const MUTATING_CONFIGURATION: &str = "lynq-mutating-webhook-configuration";
pub const VALIDATING_CONFIGURATION: &str = "lynq-validating-webhook-configuration";
/// Kubernetes' own label of each namespace: its name, which nobody can change there.
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// The ValidatingAdmissionPolicy beside the webhooks.
pub const FENCE: &str = "lynqgate-fence";
/// The generateName of the LynqNode that the operator tries to write at its start, in a dry run.
pub const WRITE_PROBE: &str = "lynqgate-write-probe-";
/// The generateName of the LynqNode that `lynqgate check` tries to write, in a dry run, to see whether the webhooks answer.
pub const GATE_PROBE: &str = "lynqgate-gate-probe-";
/// The webhooks of StatefulSets: those that a LynqNode manages, and those that ask for the gate by their label. An objectSelector
/// cannot say "or".
pub const MANAGED_STATEFUL_SETS: &str = "managed.statefulset.lynq.sh";
pub const OTHER_STATEFUL_SETS: &str = "statefulset.lynq.sh";
pub const MUTATE_STATEFUL_SET_PATH: &str = "/mutate-apps-v1-statefulset";
pub const VALIDATE_STATEFUL_SET_PATH: &str = "/validate-apps-v1-statefulset";
/// Webhook paths of LynqNode admission.
pub const MUTATE_NODE_PATH: &str = "/mutate-operator-lynq-sh-v1-lynqnode";
pub const VALIDATE_NODE_PATH: &str = "/validate-operator-lynq-sh-v1-lynqnode";

/// The webhooks of forms and hubs, and the paths of those that Lynq had besides.
pub const FORM_WEBHOOK: &str = "vlynqform.kb.io";
pub const HUB_WEBHOOK: &str = "vlynqhub.kb.io";
pub const VALIDATE_FORM_PATH: &str = "/validate-operator-lynq-sh-v1-lynqform";
pub const VALIDATE_HUB_PATH: &str = "/validate-operator-lynq-sh-v1-lynqhub";
pub const MUTATE_FORM_PATH: &str = "/mutate-operator-lynq-sh-v1-lynqform";
pub const MUTATE_HUB_PATH: &str = "/mutate-operator-lynq-sh-v1-lynqhub";

/// Finalizers.
pub const HUB_FINALIZER: &str = "lynq.sh/hub-finalizer";
pub const NODE_FINALIZER: &str = "lynqnode.operator.lynq.sh/finalizer";

/// On a LynqNode: the hub and the row it belongs to.
pub const LABEL_HUB: &str = "lynq.sh/hub";
pub const LABEL_UID: &str = "lynq.sh/uid";
/// Annotations that Lynq writes on its nodes: its row, which tells what the node's templates made, until it is taken over.
pub const HOST_OR_URL: &str = "lynq.sh/hostOrUrl";
pub const ACTIVATE: &str = "lynq.sh/activate";
pub const EXTRA: &str = "lynq.sh/extra";
pub const LYNQS_ROW: [&str; 4] = [HOST_OR_URL, ACTIVATE, EXTRA, "lynq.sh/rollout-update-start"];
/// Of every label and annotation of ours, and of Lynq's.
pub const PREFIX: &str = "lynq.sh/";
/// On a child: what made it, and (where an owner reference is impossible) whose it is.
pub const LABEL_MANAGED: &str = "lynq.sh/managed";
pub const LABEL_NODE: &str = "lynq.sh/node";
pub const LABEL_NODE_NAMESPACE: &str = "lynq.sh/node-namespace";
pub const LABEL_ORPHANED: &str = "lynq.sh/orphaned";

/// Gate state on a LynqNode; owned by the mutating webhook (see `decide::gate`).
pub const DESIRED_HASH: &str = "lynq.sh/desired-hash";
pub const LIVE_HASH: &str = "lynq.sh/live-hash";
pub const START_TIME: &str = "lynq.sh/rollout-update-start-time";
pub const HELD_SINCE: &str = "lynq.sh/held-since";
pub const HELD_BY: &str = "lynq.sh/held-by";
/// Markers by which the operator asks the gate to let content go live.
pub const RELEASE: &str = "lynq.sh/release";
pub const UNGATED: &str = "lynq.sh/ungated";
/// On a LynqNode: every change of it goes live at once while this is `"true"`; on a LynqForm or LynqHub: of all of its
/// nodes.
pub const FORCE_ROLLOUT: &str = "lynq.sh/force-rollout";

/// On a LynqForm: a point in time; what failed before it no longer halts the rollout.
pub const RESUME: &str = "lynq.sh/resume";
/// On a LynqForm: the generation, a slash and the group of `rollout.order` after whose pause the rollout may go on.
pub const PROMOTE: &str = "lynq.sh/promote";
/// On a LynqForm, written by the operator with `rollout.onFailure: Revert`: the revision that it took back last, a slash, and the
/// revision that it set the form back to. It takes no revision back twice in a row.
pub const REVERTED: &str = "lynq.sh/reverted-revision";
/// On a ControllerRevision of a form: the uid of the form.
pub const LABEL_FORM_UID: &str = "lynq.sh/form-uid";
/// On a ControllerRevision of a form: when a rollout of it was complete last (RFC 3339).
pub const COMPLETED_AT: &str = "lynq.sh/completed-at";
/// On a LynqForm: `"true"` lets it be stored although it does not render for rows for which it did; of their nodes the
/// resources that do not render stay as they are, and what depends on them is skipped.
pub const ALLOW_RENDER_ERRORS: &str = "lynq.sh/allow-render-errors";
/// On a LynqNode: the version at which it was found to be written past the gate, and sent through it once more.
pub const GATED_AGAIN: &str = "lynq.sh/gated-again";
/// On a LynqNode, written by the hub: the number of the `rollout.order` group that its row is in.
pub const GROUP_OF_ROW: &str = "lynq.sh/rollout-group";
/// On a LynqNode, written by the hub: its row's value of each variable that `rollout.domains` names, as a JSON object.
pub const DOMAINS_OF_ROW: &str = "lynq.sh/rollout-domains";

/// On a LynqNode, written by the hub together with its content.
pub const TEMPLATE_GENERATION: &str = "lynq.sh/template-generation";
pub const HUB_ID: &str = "lynq.sh/hubId";
/// Hash of the content that was rendered, a slash, and a hash of the rest.
pub const RENDERED_HASH: &str = "lynq.sh/rendered-hash";
pub const ROW_HASH: &str = "lynq.sh/row-hash";
/// When the hub first saw this row: what `now` means in its templates.
pub const FIRST_SEEN: &str = "lynq.sh/first-seen";

/// On a LynqNode whose content is not what its hub rendered, written by the gate: who wrote that content, and when. They say so and
/// decide nothing.
pub const EDITED_BY: &str = "lynq.sh/edited-by";
pub const EDITED_AT: &str = "lynq.sh/edited-at";
/// On such a LynqNode: `"true"` has the hub render it from its row again. The gate takes it off with that write.
pub const DISCARD_EDIT: &str = "lynq.sh/discard-edit";

/// On a LynqHub: how many deletions, or creations, of one sync the user has agreed to. On a LynqForm: of how many tenants a change
/// may delete what holds data.
pub const CONFIRM_DELETIONS: &str = "lynq.sh/confirm-deletions";
pub const CONFIRM_CREATIONS: &str = "lynq.sh/confirm-creations";
/// On a LynqHub: how many nodes may go with it when it is deleted. No sync takes it off.
pub const CONFIRM_HUB_DELETION: &str = "lynq.sh/confirm-hub-deletion";

/// On a child object.
pub const DELETION_POLICY: &str = "lynq.sh/deletion-policy";
pub const CREATED_ONCE: &str = "lynq.sh/created-once";
/// The readyProbe of its resource, as JSON.
pub const READY_PROBE: &str = "lynq.sh/ready-probe";
pub const APPLIED_HASH: &str = "lynq.sh/applied-hash";
pub const ORPHANED_AT: &str = "lynq.sh/orphaned-at";
pub const ORPHANED_REASON: &str = "lynq.sh/orphaned-reason";
/// The node that left the object behind, as namespace/name.
pub const ORPHANED_FROM: &str = "lynq.sh/orphaned-from";
/// The values of the last one.
pub const REMOVED_FROM_TEMPLATE: &str = "RemovedFromTemplate";
pub const NODE_DELETED: &str = "LynqNodeDeleted";

/// On a StatefulSet: `"true"` has lynqgate move its partition, `"false"` has it leave the partition alone. The webhook adds it
/// to what a LynqNode manages.
pub const PARTITION_GATE: &str = "lynq.sh/partition-gate";
/// On such a StatefulSet: who raised its partition. It waits until that user lowers the partition again.
pub const PARTITION_PAUSED: &str = "lynq.sh/partition-paused-by";
/// On such a StatefulSet: how long lynqgate waits between two steps, such as `5m`.
pub const PARTITION_STEP_INTERVAL: &str = "lynq.sh/partition-step-interval";
/// On such a StatefulSet: which object must be ready before each step, and how to see that, as JSON.
pub const PARTITION_PROBE: &str = "lynq.sh/partition-probe";
/// On such a StatefulSet, written by lynqgate: why its partition has not moved for a while.
pub const PARTITION_WAITS: &str = "lynq.sh/partition-waits";
/// On a Kubernetes node: that it is to be in maintenance, for so many seconds; how far that is; and the details, for people. The
/// first two are those of the published protocol.
pub const MAINTENANCE: &str = "lifecycle.metal3.io/maintenance";
pub const MAINTENANCE_STATUS: &str = "lifecycle.metal3.io/maintenance-status";
pub const MAINTENANCE_PROGRESS: &str = "lynq.sh/maintenance-progress";
/// Beside them: the holder of the Lease who wrote the status. Others leave a status of the present holder alone.
pub const MAINTENANCE_HOLDER: &str = "lynq.sh/maintenance-holder";
/// On the Lease of such a Kubernetes node: it was schedulable before, and will be again.
pub const WAS_SCHEDULABLE: &str = "lynq.sh/was-schedulable";
/// The LynqNodes whose pods were evicted in that maintenance.
pub const MAINTENANCE_TENANTS: &str = "lynq.sh/evicted-tenants";
/// `holderIdentity` of those Leases, where no flag says otherwise.
pub const DEFAULT_HOLDER: &str = "machine-remediation";
/// The ValidatingAdmissionPolicy of the first annotation.
pub const MAINTENANCE_POLICY: &str = "lynqgate-node-maintenance";

/// The values that `lynq.sh/*` booleans take.
pub const TRUE: &str = "true";
