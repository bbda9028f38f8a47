//! How much a Pod asks for as a whole, from its containers.

use crate::quantity::{self, Quantity};
use serde_json::Value;
use std::collections::BTreeMap;

/// Amounts by resource.
pub type Amounts = BTreeMap<String, Quantity>;

/// Which amounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// What is set aside.
    Requests,
    /// What may not be exceeded.
    Limits,
}

impl Kind {
    /// Its field.
    #[must_use]
    pub fn field(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Limits => "limits",
        }
    }
}

/// The amounts of one container (or of anything with `resources`).
#[must_use]
pub fn of_container(container: &Value, kind: Kind) -> Amounts {
    let amounts = container["resources"][kind.field()].as_object();
    let amounts = amounts.into_iter().flatten();
    amounts.filter_map(|(name, v)| Some((name.clone(), quantity::from_value(v).ok()?))).collect()
}

fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = to.get(name).map_or(*amount, |have| *have + *amount);
        to.insert(name.clone(), sum);
    }
}

fn raise(to: &mut Amounts, other: Amounts) {
    for (name, amount) in other {
        if to.get(&name).is_none_or(|have| *have < amount) {
            to.insert(name, amount);
        }
    }
}

/// The amounts of a Pod: containers and sidecars together, or what starting up needs at most if that is more; what is said for
/// the Pod as a whole instead of those; and its overhead.
#[must_use]
pub fn of_pod(pod: &Value, kind: Kind) -> Amounts {
    let spec = &pod["spec"];
    let list = |key: &str| spec[key].as_array().map_or(&[] as &[Value], Vec::as_slice);
    let mut total = Amounts::new();
    for container in list("containers") {
        add(&mut total, &of_container(container, kind));
    }
    let (mut sidecars, mut starting) = (Amounts::new(), Amounts::new());
    for container in list("initContainers") {
        let own = of_container(container, kind);
        if container["restartPolicy"] == "Always" {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            raise(&mut starting, sidecars.clone());
        } else {
            let mut together = sidecars.clone();
            add(&mut together, &own);
            raise(&mut starting, together);
        }
    }
    raise(&mut total, starting);
    for (name, amount) in of_container(spec, kind) {
        total.insert(name, amount);
    }
    let overhead = spec["overhead"].as_object().into_iter().flatten();
    for (name, value) in overhead {
        if let Ok(amount) = quantity::from_value(value)
            && (kind == Kind::Requests || total.contains_key(name))
        {
            add(&mut total, &Amounts::from([(name.clone(), amount)]));
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_needs_its_containers_or_its_start() {
        let with = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = |cpu: &str| json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        for (containers, init, more, wanted) in [
            (vec![with("1"), with("500m")], vec![], json!({}), "1500m"),
            (vec![with("1")], vec![with("3"), with("2")], json!({}), "3"),
            (vec![with("1")], vec![sidecar("1"), with("3")], json!({}), "4"),
            (vec![with("1")], vec![with("1"), sidecar("1")], json!({}), "2"),
            (vec![with("1")], vec![], json!({"overhead": {"cpu": "1"}}), "2"),
            (vec![with("1")], vec![], json!({"resources": {"requests": {"cpu": "5"}}}), "5"),
        ] {
            let mut spec = more;
            spec["containers"] = json!(containers);
            spec["initContainers"] = json!(init);
            let total = of_pod(&json!({"spec": spec}), Kind::Requests);
            assert_eq!(total["cpu"], wanted.parse().unwrap(), "{spec}");
        }
    }
}
