//! What holds whatever is written.

use super::*;

/// Values by a generator of its own, so that a failure comes again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn word(&mut self) -> Value {
        ["a", "b", "c", "d"][self.roll(4)].into()
    }

    fn spec(&mut self) -> Value {
        let mut spec = Map::new();
        if self.roll(2) == 0 {
            spec.insert("text".into(), self.word());
        }
        if self.roll(2) == 0 {
            spec.insert("labels".into(), json!({self.word().as_str().unwrap(): self.word()}));
        }
        if self.roll(2) == 0 {
            let mut set: Vec<Value> = Vec::new();
            for _ in 0..=self.roll(3) {
                let word = self.word();
                if !set.contains(&word) {
                    set.push(word);
                }
            }
            spec.insert("set".into(), set.into());
        }
        if self.roll(2) == 0 {
            let mut items = BTreeMap::new();
            for _ in 0..=self.roll(3) {
                let name = self.word();
                let item = match self.roll(3) {
                    0 => json!({"name": name}),
                    1 => json!({"name": name, "value": self.word()}),
                    _ => json!({"name": name, "tags": [self.word()]}),
                };
                items.insert(name.to_string(), item);
            }
            spec.insert("items".into(), items.into_values().collect());
        }
        if self.roll(3) == 0 {
            spec.insert("plain".into(), json!([self.word()]));
        }
        // What is empty is no value of its own: applied where nothing is left, it comes and goes, as upstream.
        if spec.is_empty() {
            spec.insert("text".into(), self.word());
        }
        json!({"spec": spec})
    }
}

/// Whether all that is in `part` is in `whole`; of lists, each item somewhere.
fn holds(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(w), Value::Object(p)) => p.iter().all(|(k, v)| w.get(k).is_some_and(|w| holds(w, v))),
        (Value::Array(w), Value::Array(p)) => p.iter().all(|v| w.iter().any(|w| holds(w, v))),
        (whole, part) => whole == part,
    }
}

#[test]
fn whatever_is_written_what_is_applied_is_there_and_owned() {
    let table: Table = serde_saphyr::from_str(include_str!("lists.yaml")).unwrap();
    let mut schema = table.schema.clone();
    schema["properties"]["spec"]["properties"]["labels"] =
        json!({"type": "object", "additionalProperties": {"type": "string"}});
    let structural = Structural::root(&schema);
    let kind = Kind {
        api_version: "example.com/v1".to_owned(),
        kind: "Sample".to_owned(),
        schema: (&structural).into(),
    };
    let write = |who: &str, how: usize, with: Value| Write {
        apply: (how == 0).then(|| who.to_owned()),
        update: (how == 1).then(|| who.to_owned()),
        patch: (how == 2).then(|| who.to_owned()),
        force: true,
        through: String::new(),
        version: None,
        with,
        gives: None,
        owns: None,
        fails: None,
        noop: false,
    };
    let mut dice = Dice(1);
    for story_number in 0..200 {
        let mut story = Story { kind: &kind, live: Value::Null, clock: 0 };
        for step in 0..8 {
            let (who, how) =
                (["x", "y", "z"][dice.roll(3)], if step == 0 { dice.roll(2) } else { dice.roll(4) % 3 });
            let with = dice.spec();
            story.run(&write(who, how, with.clone())).unwrap();
            let at = format!("story {story_number}, step {step}, {who} {how} {with}: {}", story.live);
            let managers = Managers::decode(&story.live["metadata"]["managedFields"]).unwrap();
            assert_eq!(managers.encode(), story.live["metadata"]["managedFields"], "{at}");
            let has = fields_of(kind.schema, &story.live);
            for (id, owned) in managers.iter().filter(|(id, _)| id.operation == Operation::Apply) {
                let gone = owned.fields.clone().difference(&with_named(kind.schema, has.clone()));
                assert!(gone.is_empty(), "{id} owns what is not there: {gone:?}\n{at}");
            }
            if how == 0 {
                assert!(holds(&story.live, &with), "{at}");
                let id = ManagerId::new(who, Operation::Apply, "", "");
                let wanted = fields_of(kind.schema, &with);
                assert_eq!(managers.get(&id).map_or(Set::EMPTY, |o| o.fields.clone()), wanted, "{at}");
                let before = story.live.clone();
                story.run(&write(who, how, with)).unwrap();
                assert_eq!(story.live, before, "{at}");
            }
        }
    }
}

/// Words that mean something in a Pod and in `managedFields`.
const WORDS: [&str; 26] = [
    "metadata",
    "spec",
    "status",
    "containers",
    "ports",
    "name",
    "containerPort",
    "protocol",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "uid",
    "managedFields",
    "fieldsV1",
    "f:spec",
    "k:{\"name\":\"name\"}",
    "v:1",
    ".",
    "conditions",
    "type",
    "resources",
    "limits",
    "nodeSelector",
    "tolerations",
    "imagePullSecrets",
];

impl Dice {
    fn anything(&mut self, depth: usize) -> Value {
        let word = |dice: &mut Self| WORDS[dice.roll(WORDS.len())].to_owned();
        match self.roll(if depth == 0 { 5 } else { 12 }) {
            0 => Value::Null,
            1 => (self.roll(2) == 0).into(),
            2 => self.roll(90).into(),
            3 => json!(0.5),
            4 => word(self).into(),
            5..=7 => (0..self.roll(4)).map(|_| self.anything(depth - 1)).collect(),
            _ => Value::Object((0..self.roll(6)).map(|_| (word(self), self.anything(depth - 1))).collect()),
        }
    }

    fn pod(&mut self) -> Value {
        let mut pod =
            json!({"metadata": self.anything(4), "spec": self.anything(6), "status": self.anything(4)});
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        if self.roll(4) > 0 {
            let name = json!({"name": "x", "uid": "1", "managedFields": self.anything(6), "labels": self.anything(2)});
            pod["metadata"] = name;
        }
        pod
    }
}

#[test]
fn nothing_that_is_sent_makes_it_fall_over() {
    let versions = OneVersion { api_version: "v1", schema: of("", "v1", "Pod").unwrap().into() };
    let filter = Filter::Without(Set::of_fields(&[&["status"]]));
    let manager = FieldManager {
        versions: &versions,
        api_version: "v1",
        kind: "Pod",
        subresource: "",
        filter: &filter,
        now: "2026-01-01T00:00:00Z",
    };
    let mut dice = Dice(7);
    let mut applied = 0;
    for _ in 0..1000 {
        let (live, config) = (dice.pod(), dice.pod());
        for schema in [SchemaRef::ANY, versions.schema] {
            let _ = (
                validate(schema, &config, true),
                diff(schema, &live, &config),
                merge(schema, &live, &config),
            );
            let fields = fields_of(schema, &config);
            let _ = (
                remove(schema, &live, &fields),
                migrated(schema, fields.clone()),
                with_named(schema, fields),
            );
        }
        let mut new = config.clone();
        manager.update(&live, &mut new, "u");
        manager.update(&Value::Null, &mut new, "u");
        applied += usize::from(manager.apply(&live, &config, "a", true).is_ok());
        let mut bare =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": config["spec"]});
        manager.update(&Value::Null, &mut bare, "u");
        applied += usize::from(manager.apply(&json!({"metadata": {}}), &bare, "a", true).is_ok());
    }
    assert!(applied > 0, "nothing came as far as to be applied");
}
