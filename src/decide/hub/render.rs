//! Renders a form for one row: the hub renders each text once. The result is resolved content; a row's values are never parsed as
//! templates.

mod hints;
pub mod namespaces;
mod syntax;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::api::form::{FormSpec, TemplateEngine};
use crate::api::resource::Resource;
use crate::decide::hub::rows::Row;
use crate::decide::node::graph::{Graph, GraphError, Vertex};
use crate::decide::readiness::Probe;
use crate::decide::shared::content;
use crate::decide::shared::fields::{at, text_at};
use crate::decide::shared::path::Path;
use crate::decide::template::{
    Engine, Inputs, LIMITS, Rendered, Template, facts, public, row_budget,
};
use hints::hinted;
use tree::Tree;

/// A form with parsed templates, to be rendered for thousands of rows.
pub struct CompiledForm {
    hash: Arc<str>,
    /// Each resource with the name of its array.
    resources: Vec<(&'static str, CompiledResource)>,
    /// The groups of the order that go by the row: number and condition.
    groups: Vec<(usize, Template)>,
    /// The variables that define the rollout's domains.
    domains: Vec<String>,
    allowed_namespaces: Vec<String>,
    /// The operator's own namespace, where it is known.
    own_namespace: String,
}

struct CompiledResource {
    /// Hash of everything from which the resource is rendered, except the row.
    source: String,
    /// Everything except the templates.
    fixed: Resource,
    name: Template,
    namespace: Template,
    labels: BTreeMap<String, Template>,
    annotations: BTreeMap<String, Template>,
    spec: Tree,
    /// A template, and so a row, says what its name is.
    name_is_chosen: bool,
    /// A template, and so a row, determines the namespace.
    namespace_is_chosen: bool,
    /// The pattern of the namespace's template.
    namespace_pattern: Option<String>,
}

/// Why a form cannot be rendered for any row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// Worded as in Lynq.
    #[error("template validation failed: invalid {field} in resource '{id}': {message}")]
    Template {
        id: String,
        field: String,
        message: String,
    },
    #[error("rollout.order: invalid when of group {group:?}: {message}")]
    Order { group: String, message: String },
    #[error("rollout.order: two groups have the name {0:?}; give each its own")]
    SameGroup(String),
    /// Worded as in Lynq.
    #[error("{0}")]
    Graph(String),
    /// Worded as in Lynq.
    #[error(
        "ignoreFields validation failed: invalid ignoreFields in resource '{id}': invalid JSONPath {path:?}: {why}"
    )]
    IgnoreField {
        id: String,
        path: String,
        why: String,
    },
    #[error("invalid readyProbe in resource '{id}': {why}")]
    ReadyProbe { id: String, why: String },
    #[error(
        "resource '{id}' is nested too deeply: spec may have {} levels, itself included",
        content::DEPTH_MAX
    )]
    TooDeep { id: String },
    #[error("resource '{id}' has no {field}; every manifest needs one")]
    Incomplete { id: String, field: &'static str },
}

/// A form's resources with rendered templates, each one or its error, in the form's order.
pub struct Filled(Vec<Result<Resource, String>>);

/// The inputs of a rendering for one row.
#[derive(Clone, Copy)]
pub struct RowInputs<'a> {
    pub hub: &'a str,
    pub form: &'a str,
    pub row: &'a Row,
    /// The result of the function `now`.
    pub first_seen: Timestamp,
    pub seed: [u8; 32],
}

impl CompiledForm {
    pub fn parse(form: &str, spec: &FormSpec) -> Result<Self, FormError> {
        let engine = match spec.template_engine {
            TemplateEngine::Go => Engine::Go,
            TemplateEngine::Jinja => Engine::Jinja,
        };
        let vertices: Vec<Vertex> = spec.content.iter().map(vertex).collect();
        Graph::new(&vertices).map_err(|error| match error {
            GraphError::DuplicateIds { .. } | GraphError::EmptyId => {
                FormError::Graph(error.to_string())
            }
            GraphError::MissingDependency { .. } | GraphError::Cycle { .. } => {
                FormError::Graph(format!("dependency validation failed: {error}"))
            }
        })?;
        let mut resources = vec![];
        for (array, list) in spec.content.arrays() {
            for resource in list {
                resources.push((array, CompiledResource::parse(engine, form, resource)?));
            }
        }
        let order = spec.rollout.iter().flat_map(|rollout| &rollout.order);
        let mut groups = vec![];
        for (number, group) in order.clone().enumerate() {
            if order
                .clone()
                .take(number)
                .any(|other| other.name == group.name)
            {
                return Err(FormError::SameGroup(group.name.clone()));
            }
            let Some(when) = &group.when else { continue };
            let parsed = Template::parse(engine, form, when).map_err(|error| FormError::Order {
                group: group.name.clone(),
                message: format!("failed to parse template: {error}"),
            });
            groups.push((number, parsed?));
        }
        let order: Vec<_> = order.map(|group| group.when.as_ref()).collect();
        let domains: Vec<String> = spec.domain_variables().map(str::to_owned).collect();
        let allowed_namespaces = spec.allowed_namespaces.clone();
        let of_all = json!([
            spec.template_engine,
            spec.content,
            order,
            domains,
            allowed_namespaces
        ]);
        Ok(CompiledForm {
            hash: content::hash_value(&of_all).into(),
            allowed_namespaces,
            own_namespace: String::new(),
            resources,
            groups,
            domains,
        })
    }

    /// The same form, whose templates must not select the operator's own namespace.
    pub fn sparing(self, own_namespace: &str) -> Self {
        CompiledForm {
            own_namespace: own_namespace.to_owned(),
            ..self
        }
    }

    /// Changes exactly when the form would render differently.
    pub fn hash(&self) -> &Arc<str> {
        &self.hash
    }

    /// Renders the templates of all resources for a row.
    pub fn fill(&self, inputs: &RowInputs) -> Filled {
        self.fill_all(inputs, |_| None)
    }

    /// As `fill`, for a row that another form has already rendered: reuses the resources that both forms have, but not their
    /// errors, because the other form's templates together may have exhausted the row's budget.
    pub fn fill_like(
        &self,
        inputs: &RowInputs,
        (other, filled): (&CompiledForm, &Filled),
    ) -> Filled {
        let all = || other.resources.iter().zip(&filled.0);
        self.fill_all(inputs, |source| {
            let same = all().find(|((_, resource), _)| resource.source == source);
            same.and_then(|(_, filled)| filled.clone().ok())
        })
    }

    fn fill_all(&self, inputs: &RowInputs, known: impl Fn(&str) -> Option<Resource>) -> Filled {
        let variables = variables(inputs);
        let of_row = Inputs::new(&variables, None, LIMITS).within(&row_budget());
        let fill = |(_, resource): &(_, CompiledResource)| {
            known(&resource.source).map(Ok).unwrap_or_else(|| {
                let id = &resource.fixed.id;
                let facts = facts::of(inputs.first_seen, inputs.seed, &inputs.row.uid, id);
                resource.render(&of_row.clone().with_facts(facts))
            })
        };
        Filled(self.resources.iter().map(fill).collect())
    }

    /// The resource arrays, and the ids and errors of resources that did not render. The content keeps those without a manifest,
    /// so that they do not count as deleted.
    pub fn render(&self, inputs: &RowInputs) -> (Value, Vec<(String, String)>) {
        self.finish(inputs, self.fill(inputs))
    }

    /// The second half of [`render`](Self::render): checks that each resource may have the name and namespace from its templates.
    pub fn finish(&self, inputs: &RowInputs, filled: Filled) -> (Value, Vec<(String, String)>) {
        let Filled(rendered) = filled;
        let (mut arrays, mut errors) = (Map::new(), vec![]);
        let created = namespaces::created(rendered.iter().flatten());
        let allowed = namespaces::Allowed {
            listed: &self.allowed_namespaces,
            own: &self.own_namespace,
        };
        let mut objects = BTreeSet::new();
        let reached = self
            .resources
            .iter()
            .zip(rendered)
            .map(|((_, resource), rendered)| {
                let shown = |value: &str| resource.shown(inputs, value);
                rendered
                    .and_then(|rendered| match resource.name_is_chosen {
                        true => allowed.create(rendered, shown),
                        false => Ok(rendered),
                    })
                    .and_then(|rendered| match resource.namespace_is_chosen {
                        true => {
                            let pattern = resource.namespace_pattern.as_deref();
                            allowed.reach(rendered, pattern, &created, shown)
                        }
                        false => Ok(rendered),
                    })
                    .and_then(|rendered| complete(rendered, &mut objects, shown))
            });
        let reached: Vec<Result<Resource, String>> = reached.collect();
        let waits = |resource: &Resource| !resource.namespace_from.is_empty();
        let is_circular = reached.iter().flatten().any(waits) && self.is_circular(&reached);
        for ((array, resource), rendered) in self.resources.iter().zip(reached) {
            let rendered = rendered
                .and_then(|rendered| match rendered.namespace_from.is_empty() {
                    false if is_circular => Err(CREATED_TOO_LATE.to_owned()),
                    _ => Ok(rendered),
                })
                .unwrap_or_else(|error| {
                    let error = hinted(error, &variables(inputs));
                    errors.push((resource.fixed.id.clone(), error.clone()));
                    resource.unrendered(error)
                });
            let list = arrays.entry(array.to_string()).or_insert_with(|| json!([]));
            list.as_array_mut()
                .expect("it was made one")
                .push(as_json(rendered));
        }
        (Value::Object(arrays), errors)
    }

    /// The part of a rendered text that every reader may see.
    pub fn shown(&self, id: &str, inputs: &RowInputs, value: &str) -> String {
        let mut all = self.resources.iter().map(|(_, resource)| resource);
        let resource = all.find(|resource| resource.fixed.id == id);
        resource.map_or_else(String::new, |resource| resource.shown(inputs, value))
    }

    /// Checks dependencies that follow from the rendered namespaces. `parse` has checked the form's own.
    fn is_circular(&self, rendered: &[Result<Resource, String>]) -> bool {
        let all = self.resources.iter().zip(rendered);
        let all = all.map(|((_, compiled), rendered)| rendered.as_ref().unwrap_or(&compiled.fixed));
        let vertices: Vec<Vertex> = all.map(vertex).collect();
        Graph::new(&vertices).is_err()
    }
}

/// Moves the manifest, which is the largest part, instead of copying it.
fn as_json(mut resource: Resource) -> Value {
    let manifest = std::mem::take(&mut resource.spec);
    let mut json = json!(resource);
    json["spec"] = manifest;
    json
}

fn vertex(resource: &Resource) -> Vertex<'_> {
    Vertex {
        id: &resource.id,
        depend_ids: &resource.depend_ids,
        namespace_from: &resource.namespace_from,
        skip_on_dependency_failure: resource.skip_on_dependency_failure,
        wait_for_ready: resource.wait_for_ready,
    }
}

const CREATED_TOO_LATE: &str = "targetNamespace: the resource that creates this namespace depends on others in it; take that out \
                                of dependIds, or list the namespace in allowedNamespaces";

impl CompiledForm {
    /// The first group of the order whose condition the row meets. Also returns a condition that is neither true nor false for
    /// the row, which counts as false.
    pub fn group(&self, inputs: &RowInputs) -> Result<(Option<usize>, Option<String>), String> {
        if self.groups.is_empty() {
            return Ok((None, None));
        }
        let variables = variables(inputs);
        let row = Inputs::new(&variables, None, LIMITS);
        let mut odd = None;
        for (number, when) in &self.groups {
            let path = format!("order[{number}].when");
            let said = when.render_publicly(&row, &path);
            let said = said.map_err(|error| hinted(error, &variables))?;
            match said.into_text().trim() {
                "true" => return Ok((Some(*number), odd)),
                "false" | "" => {}
                _ => odd = odd.or(Some(path)),
            }
        }
        Ok((None, odd))
    }

    /// The row's value of each variable that defines the rollout's domains.
    pub fn domains(&self, inputs: &RowInputs) -> Result<BTreeMap<String, String>, String> {
        if self.domains.is_empty() {
            return Ok(BTreeMap::new());
        }
        let variables = variables(inputs);
        let value = |name: &String| match variables.get(name) {
            Some(value) => Ok((name.clone(), value.clone())),
            None => {
                let error = format!("rollout.domains: the row has no {name}");
                Err(hinted(error, &variables))
            }
        };
        self.domains.iter().map(value).collect()
    }
}

/// Renders one text as Lynq does when it applies a resource; an error contains only words that every reader may see. Lynq's
/// results of `now` and random functions are lost.
pub fn text_as_lynq(inputs: &RowInputs, field: &str, text: &str) -> Result<String, String> {
    let row = Inputs::new(&variables(inputs), None, LIMITS);
    let template = Template::parse(Engine::Go, inputs.form, text);
    let template = template.map_err(|error| error.to_string())?;
    let rendered = template.render_publicly(&row, field);
    rendered.map(Rendered::into_text)
}

/// The variables that Lynq has when it renders manifests: `hostOrUrl` defaults to the uid, and a row can override all except the
/// names of the hub and the form.
fn variables(inputs: &RowInputs) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::from([("uid".to_owned(), inputs.row.uid.clone())]);
    let of_row = inputs.row.variables.iter();
    variables.extend(of_row.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let url = variables
        .entry("hostOrUrl".to_owned())
        .or_insert_with(|| inputs.row.uid.clone())
        .clone();
    variables
        .entry("host".to_owned())
        .or_insert_with(|| host_of(&url));
    variables.insert("hubId".to_owned(), inputs.hub.to_owned());
    variables.insert("templateRef".to_owned(), inputs.form.to_owned());
    variables
}

/// Lynq's `toHost`, by the function table itself.
fn host_of(url: &str) -> String {
    let variables = BTreeMap::from([("url".to_owned(), url.to_owned())]);
    let inputs = Inputs::new(&variables, None, LIMITS);
    static HOST: LazyLock<Template> = LazyLock::new(|| {
        let template = Template::parse(Engine::Go, "host", "{{ .url | toHost }}");
        template.expect("a template that parses")
    });
    let rendered = HOST.render(&inputs, "host");
    rendered.map(Rendered::into_text).unwrap_or_default()
}

/// Whether the text may be a template in either engine: Go's markers also start Jinja templates.
pub fn is_template(text: &str) -> bool {
    Engine::Jinja.has_template(text)
}

/// Checks without the API server that the object has a kind and a name, and that no other resource has the same object.
fn complete(
    resource: Resource,
    objects: &mut BTreeSet<[String; 4]>,
    shown: impl Fn(&str) -> String,
) -> Result<Resource, String> {
    let text = |place: &str| text_at(&resource.spec, place).to_owned();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    for (field, value) in [("spec.apiVersion", &api_version), ("spec.kind", &kind)] {
        if value.is_empty() {
            return Err(format!("{field}: it is empty for this row"));
        }
    }
    let or = |rendered: &str, place: &str| match rendered {
        "" => text(place),
        rendered => rendered.to_owned(),
    };
    let name = or(&resource.name_template, "/metadata/name");
    if name.is_empty() {
        let found = at(&resource.spec, "/metadata/name");
        let why = match found.filter(|name| !name.is_null() && !name.is_string()) {
            Some(_) => {
                "spec.metadata.name: it is no text for this row; end its template with toString"
            }
            None => "nameTemplate: the name is empty for this row",
        };
        return Err(why.to_owned());
    }
    let named = at(&resource.spec, "/metadata/namespace");
    let named = named.filter(|_| resource.target_namespace.is_empty());
    if named.is_some_and(|named| !named.is_null() && !named.is_string()) {
        return Err(
            "spec.metadata.namespace: it is no text for this row; end its template with toString"
                .to_owned(),
        );
    }
    let namespace = namespaces::of(&resource);
    let group = api_version
        .rsplit_once('/')
        .map_or(String::new(), |(group, _)| group.to_owned());
    if let Some((field, value, rule)) = syntax::broken(&resource, (&group, &kind, &name)) {
        return Err(format!("{field}: {:?} {rule}", shown(&value)));
    }
    match objects.insert([group, kind.clone(), namespace, name.clone()]) {
        true => Ok(resource),
        false => Err(format!(
            "nameTemplate: an earlier resource is {kind} {} too; give one of them another name",
            shown(&name)
        )),
    }
}

impl CompiledResource {
    fn parse(engine: Engine, form: &str, resource: &Resource) -> Result<Self, FormError> {
        let parse = |field: &str, text: &str| {
            Template::parse(engine, form, text).map_err(|error| FormError::Template {
                id: resource.id.clone(),
                field: field.to_owned(),
                message: format!("failed to parse template: {error}"),
            })
        };
        let all = |field: &str, texts: &BTreeMap<String, String>| {
            let parsed = texts
                .iter()
                .map(|(key, text)| Ok((key.clone(), parse(&format!("{field}[{key}]"), text)?)));
            parsed.collect::<Result<BTreeMap<_, _>, FormError>>()
        };
        let fixed = Resource {
            name_template: String::new(),
            target_namespace: String::new(),
            labels_template: BTreeMap::new(),
            annotations_template: BTreeMap::new(),
            spec: Value::Null,
            ..resource.clone()
        };
        let text = |place: &str| text_at(&resource.spec, place);
        let kind = text("/kind");
        let name = match resource.name_template.as_str() {
            "" => text("/metadata/name"),
            template => template,
        };
        for (field, value) in [
            ("spec.apiVersion", text("/apiVersion")),
            ("spec.kind", kind),
            ("nameTemplate or spec.metadata.name", name),
        ] {
            if value.is_empty() {
                let id = resource.id.clone();
                return Err(FormError::Incomplete { id, field });
            }
        }
        if content::is_deeper(&resource.spec, content::DEPTH_MAX) {
            let id = resource.id.clone();
            return Err(FormError::TooDeep { id });
        }
        for path in &resource.ignore_fields {
            Path::of_others(path).map_err(|why| FormError::IgnoreField {
                id: resource.id.clone(),
                path: path.clone(),
                why,
            })?;
        }
        if let Some(probe) = &resource.ready_probe {
            Probe::parse(probe).map_err(|why| FormError::ReadyProbe {
                id: resource.id.clone(),
                why,
            })?;
        }
        let chosen = match resource.target_namespace.as_str() {
            "" => text("/metadata/namespace"),
            template => template,
        };
        let source = match engine {
            Engine::Go => json!(["go", resource]),
            Engine::Jinja => json!(["jinja", resource]),
        };
        Ok(CompiledResource {
            source: content::hash_value(&source),
            fixed,
            name_is_chosen: is_template(name),
            namespace_is_chosen: is_template(chosen),
            namespace_pattern: namespaces::pattern(chosen),
            name: parse("NameTemplate", &resource.name_template)?,
            namespace: parse("TargetNamespace", &resource.target_namespace)?,
            labels: all("LabelsTemplate", &resource.labels_template)?,
            annotations: all("AnnotationsTemplate", &resource.annotations_template)?,
            spec: Tree::of_manifest(&resource.spec, kind, &parse)?,
        })
    }

    fn render(&self, inputs: &Inputs) -> Result<Resource, String> {
        let text = |template: &Template, path: &str| -> Result<String, String> {
            let rendered = template.render_publicly(inputs, path)?;
            Ok(rendered.into_text())
        };
        let all = |templates: &BTreeMap<String, Template>, field: &str| {
            let rendered = templates.iter().map(|(key, template)| {
                Ok((key.clone(), text(template, &format!("{field}[{key}]"))?))
            });
            rendered.collect::<Result<BTreeMap<_, _>, String>>()
        };
        Ok(Resource {
            name_template: text(&self.name, "nameTemplate")?,
            target_namespace: text(&self.namespace, "targetNamespace")?,
            labels_template: all(&self.labels, "labelsTemplate")?,
            annotations_template: all(&self.annotations, "annotationsTemplate")?,
            spec: self.spec.render(inputs)?,
            ..self.fixed.clone()
        })
    }

    fn shown(&self, inputs: &RowInputs, value: &str) -> String {
        let mut known = vec![inputs.row.uid.as_str(), inputs.hub, inputs.form];
        known.extend(self.said());
        public::shown(value, &known)
    }

    /// The form's own texts in fields whose value may be rejected.
    fn said(&self) -> impl Iterator<Item = &str> {
        let templates = [&self.name, &self.namespace].into_iter();
        let templates = templates.chain(self.labels.values()).map(Template::text);
        let keys = self.labels.keys().chain(self.annotations.keys());
        let keys = keys.map(String::as_str);
        templates.chain(keys).chain(self.spec.said())
    }

    fn unrendered(&self, error: String) -> Resource {
        Resource {
            render_error: error,
            spec: json!({}),
            ..self.fixed.clone()
        }
    }
}
