//! What is true: all objects as they are stored, what of their past the rules need, and what was broken.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;

use crate::rules;

/// For how long a controller may act on what is no longer true: the longest freeze, and what requests take on top.
pub const BEHIND: Duration = Duration::from_secs(60);
/// Lines of the story that are kept.
const STORY: usize = 400;

/// A number that changes, and what it was not long ago.
#[derive(Debug, Default)]
pub struct Recent {
    since: VecDeque<(Instant, i64)>,
}

impl Recent {
    /// It is this now.
    pub fn is(&mut self, now: Instant, number: i64) {
        while self.since.get(1).is_some_and(|(since, _)| *since + BEHIND < now) {
            self.since.pop_front();
        }
        if self.since.back().is_none_or(|(_, last)| *last != number) {
            self.since.push_back((now, number));
        }
    }

    /// The most that it has been since a controller may have looked.
    pub fn most(&self, now: Instant) -> Option<i64> {
        let ended = |i: usize| self.since.get(i + 1).is_some_and(|(since, _)| *since + BEHIND < now);
        self.since.iter().enumerate().filter(|(i, _)| !ended(*i)).map(|(_, (_, number))| *number).max()
    }
}

/// How Pods of a Job ended while their end was to be counted.
#[derive(Debug, Default)]
pub struct Ends {
    /// UIDs of those that succeeded, with their index.
    pub succeeded: BTreeMap<String, Option<i64>>,
    /// UIDs of those that failed or were to go.
    pub failed: BTreeMap<String, Option<i64>>,
    /// Of these, those that succeeded on their way out: they count once, as what the controller saw first.
    pub either: BTreeMap<String, Option<i64>>,
}

/// What is true.
pub struct Truth {
    /// Objects by their key in the store, `/group/resource/namespace/name`.
    pub objects: BTreeMap<String, Arc<Value>>,
    /// Numbers that limit something: by the UID of what is limited, and by what.
    pub limits: HashMap<(String, &'static str), Recent>,
    /// When a Pod was last ready, by namespace and name.
    pub ready: HashMap<String, Instant>,
    /// How Pods ended, by the UID of their Job.
    pub ends: HashMap<String, Ends>,
    /// While nothing but evictions and faults of the network disturbs: how many healthy Pods each budget must keep.
    pub floors: Option<BTreeMap<String, i64>>,
    /// Rules that were broken.
    pub broken: Vec<String>,
    /// What happened last.
    pub story: VecDeque<String>,
    /// How many writes there were.
    pub writes: u64,
    /// A number that follows from all writes to what concerns the rules.
    pub digest: u64,
    begin: Instant,
    aloud: bool,
}

impl Truth {
    /// Nothing yet.
    pub fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            limits: HashMap::new(),
            ready: HashMap::new(),
            ends: HashMap::new(),
            floors: None,
            broken: Vec::new(),
            story: VecDeque::new(),
            writes: 0,
            digest: 0xcbf2_9ce4_8422_2325,
            begin: Instant::now(),
            aloud: std::env::var_os("TRINE_STORY").is_some(),
        }
    }

    /// Notes what happens.
    pub fn tell(&mut self, line: String) {
        let line = format!("{:9.3} {line}", self.begin.elapsed().as_secs_f64());
        if self.aloud {
            eprintln!("{line}");
        }
        if self.story.len() == STORY {
            self.story.pop_front();
        }
        self.story.push_back(line);
    }

    /// A rule is broken.
    pub fn broke(&mut self, what: String) {
        self.tell(format!("BROKEN {what}"));
        self.broken.push(what);
    }

    /// The store was written to.
    pub fn written(&mut self, revision: u64, key: &str, value: Option<&Bytes>) {
        self.writes += 1;
        if !rules::concerns(key) {
            return;
        }
        for byte in key.bytes().chain(value.into_iter().flat_map(|v| v.iter().copied())) {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let new = value.and_then(|value| serde_json::from_slice::<Value>(value).ok()).map(|mut object| {
            object["metadata"]["resourceVersion"] = revision.to_string().into();
            Arc::new(object)
        });
        let old = match &new {
            Some(new) => self.objects.insert(key.to_owned(), Arc::clone(new)),
            None => self.objects.remove(key),
        };
        self.tell(format!("{key} {}", new.as_deref().map_or("gone".to_owned(), shown)));
        rules::judge(self, key, old.as_deref(), new.as_deref());
    }

    /// The objects of a resource, `/apps/replicasets/`.
    pub fn all(&self, prefix: &str) -> impl Iterator<Item = &Arc<Value>> {
        let until = prefix.to_owned();
        self.objects
            .range(prefix.to_owned()..)
            .take_while(move |(key, _)| key.starts_with(&until))
            .map(|(_, o)| o)
    }

    /// An object.
    pub fn get(&self, key: &str) -> Option<&Arc<Value>> {
        self.objects.get(key)
    }

    /// The Pods whose controller has this UID.
    pub fn pods_of(&self, uid: &str) -> Vec<Arc<Value>> {
        self.all("/core/pods/").filter(|pod| owner(pod).is_some_and(|o| o["uid"] == *uid)).cloned().collect()
    }
}

/// The controller of an object.
pub fn owner(object: &Value) -> Option<&Value> {
    object["metadata"]["ownerReferences"].as_array()?.iter().find(|o| o["controller"] == true)
}

/// The text of a field; empty if there is none.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The name of an object.
pub fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

/// The UID of an object.
pub fn uid(object: &Value) -> &str {
    text(&object["metadata"]["uid"])
}

/// Whether an object is on its way out.
pub fn is_going(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Whether a Pod has ended.
pub fn is_over(pod: &Value) -> bool {
    matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed")
}

/// Whether a Pod counts: it has not ended and is not on its way out.
pub fn is_active(pod: &Value) -> bool {
    !is_over(pod) && !is_going(pod)
}

/// Whether a Pod is ready.
pub fn is_ready(pod: &Value) -> bool {
    trine_objects::conditions::is_true(pod, "Ready")
}

fn shown(object: &Value) -> String {
    let mut words = vec![text(&object["metadata"]["resourceVersion"]).to_owned()];
    if is_going(object) {
        words.push("going".to_owned());
    }
    for key in ["replicas", "parallelism", "completions", "suspend", "paused", "nodeName"] {
        let value = &object["spec"][key];
        if !value.is_null() {
            words.push(format!("{key}={value}"));
        }
    }
    if let Some(pod) = object["status"]["phase"].as_str() {
        words.push(format!("{pod}{}", if is_ready(object) { " ready" } else { "" }));
    } else if object["status"].is_object() {
        let mut status = object["status"].clone();
        if let Some(conditions) = status["conditions"].as_array() {
            let all = conditions.iter().map(|c| format!("{}={}", text(&c["type"]), text(&c["status"])));
            status["conditions"] = all.collect::<Vec<_>>().join(",").into();
        }
        words.push(status.to_string());
    }
    words.join(" ")
}
