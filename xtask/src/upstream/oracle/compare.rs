//! What must be the same on both sides. Pure.

use serde_json::{Map, Value, json};

/// What a plugin answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its exit code was 0.
    pub success: bool,
    /// Its standard output.
    pub json: Value,
}

/// What `ip` says about the machine and the Pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// The machine.
    pub host: Value,
    /// The Pod.
    pub pod: Value,
}

/// An answer and its traces, without what is another one each time: names of the machine's links, MACs, paths, numbers.
pub fn normal(answer: &Answer, seen: &Seen) -> Value {
    let json = if answer.success {
        without_chance(&answer.json)
    } else {
        // The words of an error are each one's own; that it is one, and its code where the specification sets it, is not.
        let code = answer.json["code"].as_u64().filter(|code| *code < 100);
        json!({"code": code})
    };
    json!({
        "success": answer.success,
        "answer": json,
        "machine": space(&seen.host),
        "Pod": space(&seen.pod),
    })
}

fn without_chance(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let field = |(key, value): (&String, &Value)| {
                let kept = match (key.as_str(), value.as_str()) {
                    ("mac", Some(text)) if !text.is_empty() => json!("MAC"),
                    ("name", Some(text)) => json!(link_name(text)),
                    ("sandbox", Some(text)) if !text.is_empty() => json!("POD"),
                    // The reference does not say it, which 1.1.0 leaves open.
                    ("mtu", None) if map.contains_key("mac") => Value::Null,
                    _ => without_chance(value),
                };
                (key.clone(), kept)
            };
            // What is empty may be left out.
            let empty =
                |value: &Value| value.is_null() || value == "" || *value == json!([]) || *value == json!({});
            Value::Object(map.iter().map(field).filter(|(_, value)| !empty(value)).collect())
        }
        Value::Array(list) => Value::Array(list.iter().map(without_chance).collect()),
        other => other.clone(),
    }
}

fn link_name(name: &str) -> &str {
    match name {
        name if name.starts_with("veth") => "VETH",
        name if name.starts_with("bwp") => "BWP",
        name => name,
    }
}

/// Links with their kinds, addresses and flags, and routes, of one namespace.
fn space(seen: &Value) -> Value {
    let list = |key: &str| seen[key].as_array().cloned().unwrap_or_default();
    let mut links: Vec<Value> =
        list("links").iter().filter(|link| link["ifname"].is_string()).map(link).collect();
    let own = |route: &&Value| route["table"] != "local";
    let mut routes: Vec<Value> = list("routes").iter().filter(own).map(route).collect();
    links.sort_by_key(Value::to_string);
    routes.sort_by_key(Value::to_string);
    let mut rules: Vec<Value> =
        list("rules").iter().map(|rule| picked(rule, &["src", "srclen", "table"])).collect();
    let mut queues: Vec<Value> =
        list("queues").iter().filter(|queue| queue["kind"] != "noqueue").map(queue).collect();
    rules.sort_by_key(Value::to_string);
    queues.sort_by_key(Value::to_string);
    json!({"links": links, "routes": routes, "rules": rules, "queues": queues})
}

fn queue(queue: &Value) -> Value {
    let mut kept = picked(queue, &["kind", "root", "options"]);
    kept["dev"] = json!(link_name(queue["dev"].as_str().unwrap_or_default()));
    kept
}

fn link(link: &Value) -> Value {
    // An address that the kernel gives by itself comes a moment later on one side than on the other.
    let own = |address: &&Value| address["scope"] != "link";
    let addresses = link["addr_info"].as_array().into_iter().flatten().filter(own);
    let addresses: Vec<Value> =
        addresses.map(|a| picked(a, &["local", "prefixlen", "broadcast", "scope"])).collect();
    let up = link["flags"].as_array().is_some_and(|flags| flags.contains(&json!("UP")));
    let port = &link["linkinfo"]["info_slave_data"];
    json!({
        "name": link_name(link["ifname"].as_str().unwrap_or_default()),
        "kind": link["linkinfo"]["info_kind"],
        "mtu": link["mtu"],
        "up": up,
        "addresses": addresses,
        "bridge": link["master"],
        "hairpin": port["hairpin"],
        "promiscuous": link["promiscuity"],
        "isolated": port["isolated"],
        // The reference's veths and ifbs have none, ours the kernel's usual one.
        "queue": link["txqlen"].as_u64().filter(|frames| ![32, 1000].contains(frames)),
        "all multicasts": link["allmulti"],
        "mode": link["linkinfo"]["info_data"]["mode"],
    })
}

fn route(route: &Value) -> Value {
    let mut kept = picked(route, &["type", "dst", "gateway", "scope", "prefsrc", "metric", "table"]);
    kept["dev"] = json!(link_name(route["dev"].as_str().unwrap_or_default()));
    kept
}

fn picked(value: &Value, keys: &[&str]) -> Value {
    let pick = |key: &&str| Some(((*key).to_owned(), value.get(*key)?.clone()));
    Value::Object(keys.iter().filter_map(pick).collect::<Map<String, Value>>())
}

/// The first place where Trine's side is another than the reference's.
pub fn difference(ours: &Value, reference: &Value) -> Option<String> {
    at("", ours, reference)
}

fn at(path: &str, ours: &Value, reference: &Value) -> Option<String> {
    match (ours, reference) {
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.dedup();
            let none = Value::Null;
            let get = |map: &'_ Map<String, Value>, key: &str| map.get(key).cloned().unwrap_or(none.clone());
            keys.iter().find_map(|key| at(&format!("{path}/{key}"), &get(a, key), &get(b, key)))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(i, (a, b))| at(&format!("{path}/{i}"), a, b))
        }
        (a, b) if a == b => None,
        (a, b) => Some(format!("{path} is {a}, the reference's {b}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        let host = json!({"links": [{}, {"ifname": "veth12", "flags": ["UP"], "mtu": 1500, "master": "br7",
            "addr_info": [{"local": "fe80::1", "scope": "link"}]}], "routes": [{"dst": "10.0.0.0/8", "flags": []}]});
        Seen { host, pod: json!({"links": [], "routes": []}) }
    }

    #[test]
    fn what_chance_decides_and_what_is_empty_is_no_difference() {
        let answer = |mac: &str, name: &str, dns: Value| Answer {
            success: true,
            json: json!({"interfaces": [{"name": name, "mac": mac, "sandbox": "/run/netns/x"}], "dns": dns}),
        };
        let mut other = seen();
        other.host["links"][1]["ifname"] = json!("veth99");
        other.host["links"][1]["addr_info"] = json!([]);
        let a = normal(&answer("02:00:00:00:00:01", "veth12", json!({})), &seen());
        let b = normal(&answer("02:00:00:00:00:02", "veth99", Value::Null), &other);
        assert_eq!(difference(&a, &b), None);
    }

    #[test]
    fn a_difference_is_named_by_its_place() {
        let answer = Answer { success: true, json: json!({"ips": [{"address": "10.0.0.2/24"}]}) };
        let a = normal(&answer, &seen());
        for (edit, place) in [
            (
                (|v: &mut Value| v["answer"]["ips"][0]["address"] = json!("10.0.0.3/24")) as fn(&mut Value),
                "/answer/ips/0/address",
            ),
            (|v| v["machine"]["links"][0]["mtu"] = json!(1400), "/machine/links/0/mtu"),
            (|v| v["machine"]["routes"] = json!([]), "/machine/routes"),
            (|v| v["success"] = json!(false), "/success"),
        ] {
            let mut b = a.clone();
            edit(&mut b);
            assert!(difference(&a, &b).unwrap().starts_with(place), "{place}");
        }
    }

    #[test]
    fn errors_are_compared_by_the_specifications_codes_alone() {
        let error = |code: u32, words: &str| {
            normal(&Answer { success: false, json: json!({"code": code, "msg": words}) }, &seen())
        };
        assert_eq!(difference(&error(999, "a"), &error(100, "b")), None);
        assert!(difference(&error(7, "a"), &error(4, "a")).is_some());
    }
}
