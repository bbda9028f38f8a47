//! The table of types, parsed from the committed text at first use.

use std::collections::HashMap;
use std::sync::LazyLock;

/// A type with fields.
#[derive(Debug)]
pub struct Type {
    short: &'static str,
    /// Its fields, ordered by name.
    pub fields: Vec<Field>,
    /// The kinds that have this type.
    pub kinds: Vec<Kind>,
    /// Whether server-side apply takes a value of it as a whole.
    pub atomic: bool,
    wire: Vec<u16>,
}

/// Group, version and kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kind {
    /// API group; the core group is the empty string.
    pub group: &'static str,
    /// Version within the group.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
}

/// A field of a type.
#[derive(Debug)]
pub struct Field {
    /// Its JSON name.
    pub name: &'static str,
    /// What it holds.
    pub ty: Ty,
    /// Where it lies in protobuf; `None` for `apiVersion` and `kind` of whole objects, which travel in the envelope.
    pub place: Option<Place>,
    /// Whether the published definitions require it.
    pub required: bool,
    /// How server-side apply sees a list; `None` where nothing is said.
    pub list: ListMark,
    /// Whether server-side apply takes a map as a whole.
    pub atomic_map: bool,
    /// Whether server-side apply looks into an object whose type it else takes as a whole.
    pub granular_map: bool,
    /// Strategic merge: lists are merged instead of replaced.
    pub merge: bool,
    /// Strategic merge: fields that the patch does not name are dropped from an item.
    pub retain_keys: bool,
    /// Strategic merge: the key of list items; empty for lists of plain values.
    pub merge_key: &'static str,
}

/// Where a field lies in protobuf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    numbers: [u16; MAX_DEPTH],
    depth: u8,
    /// Whether absence differs from the zero value.
    pub optional: bool,
    /// Whether JSON has the zero value too, instead of leaving the field out.
    pub shows_zero: bool,
    /// Whether a list (of a map: each) is a message of its own that has the items as its field 1.
    pub wrapped: bool,
}

/// The most messages that a field lies in within one type.
const MAX_DEPTH: usize = 3;

impl Place {
    /// Field numbers, from those of the embedded messages that it lies in to its own.
    pub fn path(&self) -> &[u16] {
        &self.numbers[..usize::from(self.depth)]
    }
}

/// How server-side apply sees a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListMark {
    /// Nothing is said.
    None,
    /// One value.
    Atomic,
    /// A set of plain values.
    Set,
    /// Items told apart by these fields.
    Map(Vec<&'static str>),
}

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ty {
    /// Text.
    String,
    /// True or false.
    Bool,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A floating-point number.
    Double,
    /// Bytes in base64.
    Bytes,
    /// A time in RFC 3339.
    Time,
    /// The same with microseconds.
    MicroTime,
    /// A quantity: text or a number.
    Quantity,
    /// An integer or text.
    IntOrString,
    /// Any object.
    Object,
    /// Anything.
    Any,
    /// A value of a type with fields.
    Ref(TypeId),
    /// The same, or something simpler.
    RefOr(TypeId, Simpler),
    /// A list.
    List(Box<Ty>),
    /// An object with free keys.
    Map(Box<Ty>),
}

/// What may stand for a value of a type with fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Simpler {
    /// A list of values of the type.
    List,
    /// True or false.
    Bool,
    /// A list of strings.
    Strings,
}

/// The place of a type in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TypeId(u32);

impl TypeId {
    /// The type.
    pub fn get(self) -> &'static Type {
        &TABLE.types[self.0 as usize]
    }
}

impl Type {
    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.binary_search_by(|f| f.name.cmp(name)).ok().map(|i| &self.fields[i])
    }

    /// Whether it is the type that the table calls `short`, as `core.v1.PodSpec`.
    pub fn is(&self, short: &str) -> bool {
        self.short == short
    }

    /// Indices into `fields` of those with a place on the wire, in the order of their places.
    pub fn wire(&self) -> &[u16] {
        &self.wire
    }

    /// The fields whose places begin with `path`: one field whose place it is, or those of an embedded message, in order.
    pub fn at(&self, path: &[u16]) -> impl ExactSizeIterator<Item = &Field> {
        let numbers = |i: &u16| self.fields[usize::from(*i)].place.as_ref().map_or(&[][..], Place::path);
        let begin = self.wire.partition_point(|i| numbers(i) < path);
        let count = self.wire[begin..].iter().take_while(|i| numbers(i).starts_with(path)).count();
        self.wire[begin..begin + count].iter().map(|i| &self.fields[usize::from(*i)])
    }

    /// The full name of the definition.
    pub fn name(&self) -> String {
        if let Some(full) = self.short.strip_prefix('!') {
            full.to_owned()
        } else if let Some(rest) = self.short.strip_prefix('~') {
            format!("io.k8s.apimachinery.pkg.apis.{rest}")
        } else {
            format!("io.k8s.api.{}", self.short)
        }
    }
}

impl Type {
    fn order_wire(&mut self) {
        let path = |i: &u16| self.fields[usize::from(*i)].place.as_ref().map_or(&[][..], Place::path);
        let mut wire: Vec<u16> = (0..self.fields.len() as u16).filter(|i| !path(i).is_empty()).collect();
        wire.sort_by_key(path);
        self.wire = wire;
    }
}

type KindKey = (&'static str, &'static str, &'static str);

struct Table {
    types: Vec<Type>,
    by_name: HashMap<&'static str, TypeId>,
    by_kind: HashMap<KindKey, TypeId>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| parse(source()));

/// The type of a kind.
pub fn of(group: &str, version: &str, kind: &str) -> Option<&'static Type> {
    TABLE.by_kind.get(&(group, version, kind)).map(|id| id.get())
}

/// The type of a definition, by its name without the common prefix: `core.v1.Pod`, `~meta.v1.ObjectMeta`.
pub fn named(short: &str) -> Option<&'static Type> {
    TABLE.by_name.get(short).map(|id| id.get())
}

/// The text that the table is made of: whoever derives something from the table can tell by it whether that is still fresh.
pub fn source() -> &'static str {
    include_str!("descriptors.txt")
}

/// All types.
pub fn types() -> &'static [Type] {
    &TABLE.types
}

fn parse(text: &'static str) -> Table {
    let heads = text.lines().filter_map(|l| l.strip_prefix('='));
    let by_name: HashMap<&'static str, TypeId> = heads
        .enumerate()
        .map(|(i, head)| (head.split(' ').next().unwrap_or_default(), TypeId(i as u32)))
        .collect();
    let mut types: Vec<Type> = Vec::with_capacity(by_name.len());
    for line in text.lines() {
        if let Some(head) = line.strip_prefix('=') {
            types.push(parse_head(head));
        } else if !line.starts_with('#')
            && let Some(last) = types.last_mut()
        {
            last.fields.push(parse_field(line, &by_name));
        }
    }
    types.iter_mut().for_each(Type::order_wire);
    let mut by_kind = HashMap::new();
    for (i, ty) in types.iter().enumerate() {
        for k in &ty.kinds {
            by_kind.insert((k.group, k.version, k.kind), TypeId(i as u32));
        }
    }
    Table { types, by_name, by_kind }
}

fn parse_head(head: &'static str) -> Type {
    let mut words = head.split(' ');
    let short = words.next().unwrap_or_default();
    let (mut kinds, mut atomic) = (Vec::new(), false);
    for word in words {
        let mut parts = word.splitn(3, '/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(group), Some(version), Some(kind)) => kinds.push(Kind { group, version, kind }),
            _ => atomic = true,
        }
    }
    Type { short, fields: Vec::new(), kinds, atomic, wire: Vec::new() }
}

fn parse_field(line: &'static str, by_name: &HashMap<&'static str, TypeId>) -> Field {
    let mut words = line.split(' ');
    let name = words.next().unwrap_or_default();
    let ty = parse_type(words.next().unwrap_or_default(), by_name);
    let mut field = Field {
        name,
        ty,
        place: None,
        required: false,
        list: ListMark::None,
        atomic_map: false,
        granular_map: false,
        merge: false,
        retain_keys: false,
        merge_key: "",
    };
    for word in words {
        if let Some(place) = word.strip_prefix('#') {
            field.place = parse_place(place);
            continue;
        }
        let (mark, rest) = word.split_once(':').unwrap_or((word, ""));
        let (first, second) = rest.split_once(':').unwrap_or((rest, ""));
        match (mark, first) {
            ("!", _) => field.required = true,
            ("L", "atomic") => field.list = ListMark::Atomic,
            ("L", "set") => field.list = ListMark::Set,
            ("L", _) => field.list = ListMark::Map(second.split(',').collect()),
            ("M", "atomic") => field.atomic_map = true,
            ("M", _) => field.granular_map = true,
            ("P", strategies) => {
                field.merge = strategies.split(',').any(|s| s == "merge");
                field.retain_keys = strategies.split(',').any(|s| s == "retainKeys");
                field.merge_key = second;
            }
            _ => {}
        }
    }
    field
}

fn parse_place(text: &str) -> Option<Place> {
    let flags = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let mut place = Place {
        numbers: [0; MAX_DEPTH],
        depth: 0,
        optional: flags.contains('?'),
        shows_zero: flags.contains('z'),
        wrapped: flags.contains('w'),
    };
    for number in text[..text.len() - flags.len()].split('.') {
        *place.numbers.get_mut(usize::from(place.depth))? = number.parse().ok()?;
        place.depth += 1;
    }
    Some(place)
}

fn parse_type(code: &'static str, by_name: &HashMap<&'static str, TypeId>) -> Ty {
    let rest = code.get(1..).unwrap_or_default();
    let reference = |name: &str| by_name.get(name).copied();
    let or =
        |simpler| rest.strip_prefix('&').and_then(reference).map_or(Ty::Any, |id| Ty::RefOr(id, simpler));
    match code.as_bytes().first() {
        Some(b's') => Ty::String,
        Some(b'b') => Ty::Bool,
        Some(b'i') => Ty::Int32,
        Some(b'l') => Ty::Int64,
        Some(b'd') => Ty::Double,
        Some(b'y') => Ty::Bytes,
        Some(b't') => Ty::Time,
        Some(b'u') => Ty::MicroTime,
        Some(b'q') => Ty::Quantity,
        Some(b'x') => Ty::IntOrString,
        Some(b'o') => Ty::Object,
        Some(b'[') => Ty::List(Box::new(parse_type(rest, by_name))),
        Some(b'{') => Ty::Map(Box::new(parse_type(rest, by_name))),
        Some(b'A') => or(Simpler::List),
        Some(b'B') => or(Simpler::Bool),
        Some(b'S') => or(Simpler::Strings),
        Some(b'&') => reference(rest).map_or(Ty::Any, Ty::Ref),
        _ => Ty::Any,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_served_kind_has_a_type() {
        for r in crate::resources::resources() {
            assert!(of(&r.group, &r.version, &r.kind).is_some(), "{}", r.qualified());
        }
    }

    #[test]
    fn every_group_that_is_served_is_there() {
        let listed = "/v1 admissionregistration.k8s.io/v1 apiextensions.k8s.io/v1 apiregistration.k8s.io/v1 apps/v1 \
            authentication.k8s.io/v1 authorization.k8s.io/v1 autoscaling/v1 autoscaling/v2 batch/v1 certificates.k8s.io/v1 \
            coordination.k8s.io/v1 discovery.k8s.io/v1 events.k8s.io/v1 flowcontrol.apiserver.k8s.io/v1 meta.k8s.io/v1 \
            networking.k8s.io/v1 node.k8s.io/v1 policy/v1 rbac.authorization.k8s.io/v1 resource.k8s.io/v1 \
            resource.k8s.io/v1beta1 resource.k8s.io/v1beta2 scheduling.k8s.io/v1 storage.k8s.io/v1 storagemigration.k8s.io/v1";
        let kinds = types().iter().flat_map(|t| &t.kinds);
        let groups: std::collections::BTreeSet<String> =
            kinds.map(|k| format!("{}/{}", k.group, k.version)).collect();
        assert_eq!(groups.into_iter().collect::<Vec<_>>().join(" "), listed);
        for (group, kind) in [
            ("resource.k8s.io", "DeviceTaintRule"),
            ("certificates.k8s.io", "ClusterTrustBundle"),
            ("certificates.k8s.io", "PodCertificateRequestList"),
            ("authentication.k8s.io", "TokenRequest"),
            ("policy", "Eviction"),
            ("autoscaling", "Scale"),
            ("", "DeleteOptions"),
            ("", "Status"),
            ("", "WatchEvent"),
            ("meta.k8s.io", "PartialObjectMetadataList"),
        ] {
            assert!(of(group, "v1", kind).is_some(), "{group} {kind}");
        }
    }

    #[test]
    fn the_marks_of_a_pod_are_read() {
        let spec = named("core.v1.PodSpec").unwrap();
        assert_eq!(spec.name(), "io.k8s.api.core.v1.PodSpec");
        let containers = spec.field("containers").unwrap();
        assert!(containers.required && containers.merge && !containers.retain_keys);
        assert_eq!((containers.merge_key, &containers.list), ("name", &ListMark::Map(vec!["name"])));
        assert!(spec.field("volumes").unwrap().retain_keys);
        assert!(spec.field("nodeSelector").unwrap().atomic_map);
        assert_eq!(spec.field("tolerations").unwrap().list, ListMark::Atomic);
        assert_eq!(spec.field("nothing").map(|f| f.name), None);
    }

    #[test]
    fn every_field_but_those_of_the_envelope_has_its_own_place_on_the_wire() {
        for ty in types() {
            let without: Vec<&str> = ty.fields.iter().filter(|f| f.place.is_none()).map(|f| f.name).collect();
            assert!(without.is_empty() || without == ["apiVersion", "kind"], "{}: {without:?}", ty.name());
            assert_eq!(ty.wire().len() + without.len(), ty.fields.len());
            let field = |i: &u16| &ty.fields[usize::from(*i)];
            let paths: Vec<&[u16]> =
                ty.wire().iter().map(|i| field(i).place.as_ref().unwrap().path()).collect();
            assert!(paths.windows(2).all(|w| w[0] < w[1] && !w[1].starts_with(w[0])), "{}", ty.name());
        }
    }

    #[test]
    fn embedded_messages_are_found_by_their_number() {
        let names = |name: &str, path: &[u16]| -> Vec<&str> {
            named(name).unwrap().at(path).map(|f| f.name).collect()
        };
        assert_eq!(names("core.v1.Volume", &[1]), ["name"]);
        assert_eq!(names("core.v1.Volume", &[2])[..2], ["hostPath", "emptyDir"]);
        let rules = "admissionregistration.v1.NamedRuleWithOperations";
        assert_eq!(names(rules, &[2, 2]), ["apiGroups", "apiVersions", "resources", "scope"]);
        assert_eq!(names(rules, &[3]), [""; 0]);
        assert!(named("~meta.v1.APIResource").unwrap().field("verbs").unwrap().place.unwrap().wrapped);
    }

    /// What `trine up` spends on the table. The bound is far above the figures of a debug build, for a loaded machine.
    #[test]
    fn the_table_is_parsed_in_no_time() {
        let begin = std::time::Instant::now();
        let table = parse(source());
        let spent = begin.elapsed();
        let bytes: usize =
            table.types.iter().map(|t| size_of::<Type>() + t.fields.len() * size_of::<Field>()).sum();
        println!("{} types, {bytes} bytes, parsed in {spent:?}", table.types.len());
        assert!(spent < std::time::Duration::from_millis(200), "{spent:?}");
        assert!(bytes < 600_000, "{bytes}");
    }

    #[test]
    fn every_line_is_understood() {
        let lines = include_str!("descriptors.txt").lines().filter(|l| !l.starts_with(['#', '='])).count();
        assert_eq!(types().iter().map(|t| t.fields.len()).sum::<usize>(), lines);
        for ty in types() {
            assert!(ty.fields.is_sorted_by_key(|f| f.name), "{}", ty.name());
        }
    }
}
