//! What a client takes, from its Accept header: the encoding of answers and the shape of objects in them.

/// How an answer is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

/// What objects are reduced to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Objects as they are.
    Whole,
    /// `meta.k8s.io/v1` Table.
    Table,
    /// `meta.k8s.io/v1` PartialObjectMetadata, or a list of these.
    Metadata,
}

/// Media types in upstream's order, as the refusals name them.
pub const MEDIA_TYPES: [(&str, Encoding); 3] = [
    ("application/json", Encoding::Json),
    ("application/yaml", Encoding::Yaml),
    (trine_objects::protobuf::MEDIA_TYPE, Encoding::Protobuf),
];

/// One way to answer that the client takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// How the answer is encoded.
    pub encoding: Encoding,
    /// What objects are reduced to.
    pub shape: Shape,
}

/// What the client takes, best first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accept(Vec<Choice>);

impl Accept {
    /// Reads the header. Without one, JSON is taken. Parameters that nobody knows are passed over; clauses that ask for another
    /// media type or shape than is served are left out.
    #[must_use]
    pub fn parse(header: &str, watch: bool) -> Self {
        if header.trim().is_empty() {
            return Self(vec![Choice { encoding: Encoding::Json, shape: Shape::Whole }]);
        }
        let mut clauses: Vec<(f32, Choice)> =
            header.split(',').flat_map(|part| clause(part, watch)).collect();
        // Stable: equal ones stay in the client's order.
        clauses.sort_by(|a, b| b.0.total_cmp(&a.0));
        Self(clauses.into_iter().map(|(_, choice)| choice).collect())
    }

    /// The best; `None` if nothing that is served is taken.
    #[must_use]
    pub fn best(&self) -> Option<Choice> {
        self.0.first().copied()
    }

    /// Whether this shape is taken in any encoding.
    #[must_use]
    pub fn takes(&self, shape: Shape) -> bool {
        self.0.iter().any(|choice| choice.shape == shape)
    }

    /// Whether JSON of this shape would be taken too, for what has no other form.
    #[must_use]
    pub fn takes_json(&self, shape: Shape) -> bool {
        self.0.contains(&Choice { encoding: Encoding::Json, shape })
    }
}

/// The choices that a clause offers, with its weight.
fn clause(part: &str, watch: bool) -> Vec<(f32, Choice)> {
    let mut words = part.split(';').map(str::trim);
    let media = words.next().unwrap_or_default().to_ascii_lowercase();
    let (mut weight, mut kind, mut group, mut version) = (1.0, "", "", "");
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let value = value.trim().trim_matches('"');
        match key.trim() {
            "q" => weight = value.parse().unwrap_or(1.0),
            "as" => kind = value,
            "g" => group = value,
            "v" => version = value,
            "stream" if !value.is_empty() && value != "watch" => return Vec::new(),
            _ => {}
        }
    }
    let shape = match (kind, group, version) {
        ("", "", "") => Shape::Whole,
        ("Table", "meta.k8s.io", "v1" | "") => Shape::Table,
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1" | "") => Shape::Metadata,
        _ => return Vec::new(),
    };
    let all = media == "*/*" || media == "application/*";
    let served = |(name, encoding): &(&str, Encoding)| {
        // YAML cannot be cut into events, and tables have no numbered fields.
        let possible = match encoding {
            Encoding::Json => true,
            Encoding::Yaml => !watch,
            Encoding::Protobuf => shape != Shape::Table,
        };
        possible && (all || media == *name)
    };
    let found = MEDIA_TYPES.iter().filter(|m| weight > 0.0 && served(m));
    found.map(|(_, encoding)| (weight, Choice { encoding: *encoding, shape })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_that_is_served_is_chosen() {
        let rows = [
            ("", Some((Encoding::Json, Shape::Whole))),
            ("*/*", Some((Encoding::Json, Shape::Whole))),
            ("application/json, */*", Some((Encoding::Json, Shape::Whole))),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Some((Encoding::Protobuf, Shape::Whole)),
            ),
            (
                "application/vnd.kubernetes.protobuf;q=0.5, application/json",
                Some((Encoding::Json, Shape::Whole)),
            ),
            ("application/json;q=0, application/yaml ; charset=utf-8", Some((Encoding::Yaml, Shape::Whole))),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                Some((Encoding::Json, Shape::Table)),
            ),
            (
                "application/json;v=v1beta1;g=meta.k8s.io;as=Table, application/json",
                Some((Encoding::Json, Shape::Whole)),
            ),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Some((Encoding::Protobuf, Shape::Metadata)),
            ),
            (
                "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json;as=Table;g=meta.k8s.io;v=v1",
                Some((Encoding::Json, Shape::Table)),
            ),
            ("application/cbor, application/json", Some((Encoding::Json, Shape::Whole))),
            ("application/json;stream=watch", Some((Encoding::Json, Shape::Whole))),
            ("application/cbor", None),
            ("text/html", None),
            ("application/json;as=Widget;g=x.io;v=v1", None),
            ("application/json;stream=other", None),
            (";;;=,,", None),
        ];
        for (header, wanted) in rows {
            let best = Accept::parse(header, false).best();
            assert_eq!(best.map(|c| (c.encoding, c.shape)), wanted, "{header}");
        }
        assert_eq!(Accept::parse("application/yaml", true).best(), None);
    }

    #[test]
    fn json_is_remembered_for_what_has_no_other_form() {
        let both = Accept::parse("application/vnd.kubernetes.protobuf,application/json", false);
        assert!(both.takes_json(Shape::Whole) && !both.takes_json(Shape::Table));
        assert!(!Accept::parse("application/vnd.kubernetes.protobuf", false).takes_json(Shape::Whole));
    }
}
