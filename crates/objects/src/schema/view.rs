//! One view of a schema for everything that walks objects, whether it comes from the table or from a custom resource.

use super::structural::{JsonType, Structural, StructuralList, Values};
use super::{Field, ListMark, Simpler, Ty, Type, TypeId, named};
use serde_json::Value;
use std::sync::LazyLock;

/// What is known of one place in an object. Cheap to copy; nothing is built to look at it.
#[derive(Debug, Clone, Copy)]
pub struct SchemaRef<'a>(Source<'a>);

#[derive(Debug, Clone, Copy)]
enum Source<'a> {
    Any,
    Type(&'static Type),
    Field(&'static Field),
    Value(&'static Ty),
    Structural(&'a Structural),
}

/// What may stand at a place.
#[derive(Debug, Clone, Copy)]
pub enum Shape<'a> {
    /// Anything: nothing is known below either.
    Any,
    /// A plain value.
    Scalar(Scalar),
    /// A list.
    List(ListRef<'a>),
    /// An object.
    Object(ObjectRef<'a>),
}

/// A plain value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// Text.
    String,
    /// True or false.
    Bool,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// Any number.
    Double,
    /// Bytes in base64.
    Bytes,
    /// A time in RFC 3339.
    Time,
    /// A quantity: text or a number.
    Quantity,
    /// An integer or text.
    IntOrString,
}

/// A list.
#[derive(Debug, Clone, Copy)]
pub struct ListRef<'a> {
    /// What its items are.
    pub items: SchemaRef<'a>,
    /// How its items are told apart.
    pub kind: ListKind<'a>,
}

/// How the items of a list are told apart.
#[derive(Debug, Clone, Copy)]
pub enum ListKind<'a> {
    /// Not at all: the list is one value.
    Atomic,
    /// By themselves.
    Set,
    /// By some of their fields.
    Map(Keys<'a>),
}

/// The names of the fields that tell items apart.
#[derive(Debug, Clone, Copy)]
pub enum Keys<'a> {
    /// Of a built-in type.
    Static(&'static [&'static str]),
    /// The key of a strategic merge, where that is all that is said.
    One(&'static str),
    /// Of a custom resource.
    Owned(&'a [String]),
}

/// An object.
#[derive(Debug, Clone, Copy)]
pub struct ObjectRef<'a> {
    source: ObjectSource<'a>,
    /// Whether server-side apply takes it as one value.
    pub atomic: bool,
}

#[derive(Debug, Clone, Copy)]
enum ObjectSource<'a> {
    Type(&'static Type),
    Values(&'static Ty),
    Free,
    Structural(&'a Structural),
}

static STRING: Ty = Ty::String;
static METADATA: LazyLock<Option<&'static Type>> = LazyLock::new(|| named("~meta.v1.ObjectMeta"));

/// Objects that typed programs hold by value, so that the field is there with every object around it, if only empty.
/// Source: the types of `k8s.io/api` 1.37; lists and maps that are required are held so, too.
const ALWAYS_THERE: [&str; 14] = [
    "daemonEndpoints",
    "jobTemplate",
    "kubeletEndpoint",
    "lastState",
    "loadBalancer",
    "metadata",
    "nodeInfo",
    "resources",
    "spec",
    "state",
    "status",
    "strategy",
    "template",
    "updateStrategy",
];

/// Defaults of fields by which list items are told apart, as the published definitions give them.
const KEY_DEFAULTS: [(&str, &str, &str); 3] = [
    ("core.v1.ContainerPort", "protocol", "TCP"),
    ("core.v1.ServicePort", "protocol", "TCP"),
    ("core.v1.LocalObjectReference", "name", ""),
];

impl From<&'static Type> for SchemaRef<'static> {
    fn from(ty: &'static Type) -> Self {
        Self(Source::Type(ty))
    }
}

impl<'a> From<&'a Structural> for SchemaRef<'a> {
    fn from(schema: &'a Structural) -> Self {
        Self(Source::Structural(schema))
    }
}

impl<'a> SchemaRef<'a> {
    /// Nothing is known.
    pub const ANY: Self = Self(Source::Any);

    /// What may stand here.
    #[must_use]
    pub fn shape(self) -> Shape<'a> {
        match self.0 {
            Source::Any => Shape::Any,
            Source::Type(ty) => {
                Shape::Object(ObjectRef { source: ObjectSource::Type(ty), atomic: ty.atomic })
            }
            Source::Value(ty) => of_type(ty),
            Source::Field(field) => of_field(field),
            Source::Structural(schema) => of_structural(schema),
        }
    }

    /// What may stand here, given what does: a type that may also be something simpler is told by its value.
    #[must_use]
    pub fn shape_for(self, value: &Value) -> Shape<'a> {
        let Some((id, simpler)) = self.either() else { return self.shape() };
        let items = match (simpler, value) {
            (Simpler::Bool, Value::Bool(_)) => return Shape::Scalar(Scalar::Bool),
            (Simpler::List, Value::Array(_)) => id.get().into(),
            (Simpler::Strings, Value::Array(_)) => SchemaRef(Source::Value(&STRING)),
            _ => return SchemaRef::from(id.get()).shape(),
        };
        Shape::List(ListRef { items, kind: ListKind::Atomic })
    }

    /// The type that may stand here, where something simpler may, too.
    #[must_use]
    pub fn either(self) -> Option<(TypeId, Simpler)> {
        let ty = match self.0 {
            Source::Value(ty) => ty,
            Source::Field(field) => &field.ty,
            _ => return None,
        };
        if let Ty::RefOr(id, simpler) = ty { Some((*id, *simpler)) } else { None }
    }

    /// Whether null is a value of its own here, not the absence of one.
    #[must_use]
    pub fn nullable(self) -> bool {
        matches!(self.0, Source::Any) || matches!(self.0, Source::Structural(s) if s.nullable)
    }

    /// Whether the field is seen as there, empty, where the object around it is there: typed programs cannot leave it out.
    #[must_use]
    pub fn always_there(self) -> bool {
        let Source::Field(field) = self.0 else { return false };
        match field.ty {
            Ty::Ref(_) => ALWAYS_THERE.contains(&field.name),
            Ty::List(_) | Ty::Map(_) => field.required,
            _ => false,
        }
    }

    /// The default that the schema itself gives.
    #[must_use]
    pub fn default(self) -> Option<&'a Value> {
        match self.0 {
            Source::Structural(schema) => schema.default.as_ref(),
            _ => None,
        }
    }
}

fn of_type(ty: &'static Ty) -> Shape<'static> {
    let scalar = match ty {
        Ty::Any | Ty::RefOr(..) => return Shape::Any,
        Ty::Object => return Shape::Object(ObjectRef::FREE),
        Ty::Ref(id) => return SchemaRef::from(id.get()).shape(),
        Ty::List(item) => {
            return Shape::List(ListRef { items: SchemaRef(Source::Value(item)), kind: ListKind::Atomic });
        }
        Ty::Map(item) => {
            return Shape::Object(ObjectRef { source: ObjectSource::Values(item), atomic: false });
        }
        Ty::String => Scalar::String,
        Ty::Bool => Scalar::Bool,
        Ty::Int32 => Scalar::Int32,
        Ty::Int64 => Scalar::Int64,
        Ty::Double => Scalar::Double,
        Ty::Bytes => Scalar::Bytes,
        Ty::Time | Ty::MicroTime => Scalar::Time,
        Ty::Quantity => Scalar::Quantity,
        Ty::IntOrString => Scalar::IntOrString,
    };
    Shape::Scalar(scalar)
}

fn of_field(field: &'static Field) -> Shape<'static> {
    match of_type(&field.ty) {
        Shape::List(list) => {
            let kind = match &field.list {
                ListMark::Set => ListKind::Set,
                ListMark::Map(keys) => ListKind::Map(Keys::Static(keys)),
                ListMark::Atomic => ListKind::Atomic,
                // Where nothing is said, the strategic merge counts.
                ListMark::None if field.merge && field.merge_key.is_empty() => ListKind::Set,
                ListMark::None if field.merge => ListKind::Map(Keys::One(field.merge_key)),
                ListMark::None => ListKind::Atomic,
            };
            Shape::List(ListRef { kind, ..list })
        }
        Shape::Object(object) => {
            let atomic = field.atomic_map || object.atomic && !field.granular_map;
            Shape::Object(ObjectRef { atomic, ..object })
        }
        other => other,
    }
}

fn of_structural(schema: &Structural) -> Shape<'_> {
    let scalar = match schema.kind {
        _ if schema.int_or_string => Scalar::IntOrString,
        JsonType::Unsaid if schema.properties.is_empty() && schema.values == Values::None => {
            return Shape::Any;
        }
        JsonType::Object | JsonType::Unsaid => {
            let source = ObjectSource::Structural(schema);
            return Shape::Object(ObjectRef { source, atomic: schema.atomic_map });
        }
        JsonType::Array => {
            let items = schema.items.as_deref().map_or(SchemaRef::ANY, SchemaRef::from);
            let kind = match &schema.list {
                StructuralList::Atomic => ListKind::Atomic,
                StructuralList::Set => ListKind::Set,
                StructuralList::Map(keys) => ListKind::Map(Keys::Owned(keys)),
            };
            return Shape::List(ListRef { items, kind });
        }
        JsonType::String => Scalar::String,
        JsonType::Boolean => Scalar::Bool,
        JsonType::Integer if schema.rules.get("format").is_some_and(|f| f == "int32") => Scalar::Int32,
        JsonType::Integer => Scalar::Int64,
        JsonType::Number => Scalar::Double,
    };
    Shape::Scalar(scalar)
}

impl<'a> Keys<'a> {
    /// The names, in the order in which the schema gives them.
    pub fn iter(self) -> impl Iterator<Item = &'a str> {
        let (fixed, one, owned): (&[&str], Option<&str>, &[String]) = match self {
            Self::Static(names) => (names, None, &[]),
            Self::One(name) => (&[], Some(name), &[]),
            Self::Owned(names) => (&[], None, names),
        };
        fixed.iter().copied().chain(one).chain(owned.iter().map(String::as_str))
    }
}

impl<'a> ObjectRef<'a> {
    /// An object of which nothing is known.
    pub const FREE: Self = Self { source: ObjectSource::Free, atomic: false };

    /// The field of this name, if the schema names it.
    #[must_use]
    pub fn property(self, name: &str) -> Option<SchemaRef<'a>> {
        match self.source {
            ObjectSource::Type(ty) => ty.field(name).map(|f| SchemaRef(Source::Field(f))),
            ObjectSource::Values(_) | ObjectSource::Free => None,
            ObjectSource::Structural(schema) => {
                if schema.resource && name == "metadata" {
                    return Some(METADATA.map_or(SchemaRef::ANY, SchemaRef::from));
                }
                match schema.properties.get(name) {
                    Some(property) => Some(property.into()),
                    None if schema.resource && (name == "apiVersion" || name == "kind") => {
                        Some(SchemaRef(Source::Value(&STRING)))
                    }
                    None => None,
                }
            }
        }
    }

    /// What lies under keys that the schema does not name, where such keys are its own.
    #[must_use]
    pub fn values(self) -> Option<SchemaRef<'a>> {
        match self.source {
            ObjectSource::Type(_) => None,
            ObjectSource::Values(ty) => Some(SchemaRef(Source::Value(ty))),
            ObjectSource::Free => Some(SchemaRef::ANY),
            ObjectSource::Structural(schema) => match &schema.values {
                Values::Of(values) => Some((&**values).into()),
                Values::Any => Some(SchemaRef::ANY),
                Values::None if schema.preserve_unknown => Some(SchemaRef::ANY),
                Values::None => None,
            },
        }
    }

    /// What lies under a key; `None` if there can be no such key, and pruning drops it.
    #[must_use]
    pub fn below(self, name: &str) -> Option<SchemaRef<'a>> {
        self.property(name).or_else(|| self.values())
    }

    /// The same as server-side apply sees it: also below a node that preserves unknown fields, and in an object of which
    /// no field is named, anything may stand.
    #[must_use]
    pub fn known(self, name: &str) -> Option<SchemaRef<'a>> {
        self.below(name).or_else(|| match self.source {
            ObjectSource::Type(ty) => ty.fields.is_empty().then_some(SchemaRef::ANY),
            ObjectSource::Structural(schema) => {
                (schema.within_preserved || schema.properties.is_empty()).then_some(SchemaRef::ANY)
            }
            ObjectSource::Values(_) | ObjectSource::Free => None,
        })
    }

    /// What counts for a list item that leaves open a field by which it is told apart.
    #[must_use]
    pub fn key_default(self, name: &str) -> Option<Value> {
        match self.source {
            ObjectSource::Type(ty) => {
                let given = KEY_DEFAULTS.iter().find(|(t, field, _)| ty.is(t) && *field == name);
                given.map(|(_, _, value)| Value::from(*value))
            }
            _ => self.property(name)?.default().cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::of;
    use super::*;
    use serde_json::json;

    fn walk<'a>(mut at: SchemaRef<'a>, path: &str) -> Option<SchemaRef<'a>> {
        for step in path.split('.').filter(|s| !s.is_empty()) {
            at = match (at.shape(), step) {
                (Shape::List(list), "[]") => list.items,
                (Shape::Object(object), name) => object.known(name)?,
                (Shape::Any, _) => SchemaRef::ANY,
                _ => return None,
            };
        }
        Some(at)
    }

    fn describe(at: Option<SchemaRef>) -> String {
        match at.map(SchemaRef::shape) {
            None => "none".to_owned(),
            Some(Shape::Any) => "any".to_owned(),
            Some(Shape::Scalar(scalar)) => format!("{scalar:?}"),
            Some(Shape::Object(object)) => if object.atomic { "atomic object" } else { "object" }.to_owned(),
            Some(Shape::List(list)) => match list.kind {
                ListKind::Atomic => "atomic list".to_owned(),
                ListKind::Set => "set".to_owned(),
                ListKind::Map(keys) => format!("map by {}", keys.iter().collect::<Vec<_>>().join(",")),
            },
        }
    }

    #[test]
    fn built_in_types_are_seen_with_their_marks() {
        let pod = SchemaRef::from(of("", "v1", "Pod").unwrap());
        for (path, wanted) in [
            ("", "object"),
            ("spec.containers", "map by name"),
            ("spec.containers.[].ports", "map by containerPort,protocol"),
            ("spec.containers.[].ports.[].protocol", "String"),
            ("spec.containers.[].command", "atomic list"),
            ("spec.nodeSelector", "atomic object"),
            ("spec.nodeSelector.anything", "String"),
            ("spec.tolerations", "atomic list"),
            ("metadata.labels", "object"),
            ("metadata.finalizers", "set"),
            ("metadata.ownerReferences", "map by uid"),
            ("metadata.managedFields.[].fieldsV1", "object"),
            ("metadata.managedFields.[].fieldsV1.f:x.f:y", "any"),
            ("spec.overhead.cpu", "Quantity"),
            ("spec.nothing", "none"),
        ] {
            assert_eq!(describe(walk(pod, path)), wanted, "{path}");
        }
        let volume = SchemaRef::from(of("", "v1", "PersistentVolume").unwrap());
        assert_eq!(describe(walk(volume, "spec.claimRef")), "object");
        let event = SchemaRef::from(of("", "v1", "Event").unwrap());
        assert_eq!(describe(walk(event, "involvedObject")), "atomic object");
    }

    #[test]
    fn custom_resources_are_seen_alike() {
        let schema = Structural::root(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "sets": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"],
                "items": {"type": "object", "properties": {"k": {"type": "integer"}, "p": {"type": "string", "default": "TCP"}}}},
            "plain": {"type": "array", "items": {"type": "object"}},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
            "port": {"x-kubernetes-int-or-string": true}, "free": {"type": "object"},
            "kept": {"x-kubernetes-preserve-unknown-fields": true, "type": "object", "properties": {"in": {"type": "object",
                "properties": {"x": {"type": "number"}}}}},
            "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}}}),
        );
        let root = SchemaRef::from(&schema);
        for (path, wanted) in [
            ("apiVersion", "String"),
            ("metadata.finalizers", "set"),
            ("spec.sets", "set"),
            ("spec.items", "map by k,p"),
            ("spec.items.[].k", "Int64"),
            ("spec.plain", "atomic list"),
            ("spec.whole", "atomic object"),
            ("spec.whole.x", "String"),
            ("spec.port", "IntOrString"),
            ("spec.free.x.y", "any"),
            ("spec.kept.other", "any"),
            ("spec.kept.in.x", "Double"),
            ("spec.kept.in.other", "any"),
            ("spec.pod.metadata.labels.x", "String"),
            ("spec.pod.spec", "any"),
            ("spec.nothing", "none"),
            ("status", "none"),
        ] {
            assert_eq!(describe(walk(root, path)), wanted, "{path}");
        }
        let Some(Shape::Object(item)) = walk(root, "spec.items.[]").map(SchemaRef::shape) else { panic!() };
        assert_eq!((item.key_default("p"), item.key_default("k")), (Some("TCP".into()), None));
        // What apply knows of, pruning may still drop.
        let Some(Shape::Object(inner)) = walk(root, "spec.kept.in").map(SchemaRef::shape) else { panic!() };
        assert!(inner.known("other").is_some() && inner.below("other").is_none());
    }
}
