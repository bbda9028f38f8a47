//! Capabilities that somebody asked for and that have to come true: what no plugin takes fails before ADD, and what no plugin
//! followed fails after it, so that nobody believes to have an address that the link has not.

use std::net::IpAddr;

use serde_json::{Map, Value};

use crate::spec::{CniError, CniResult, Code, NetworkList};

/// Refuses wishes that nothing will show of, if no plugin of the network takes them.
///
/// # Errors
/// [`Code::InvalidConfig`].
pub fn taken(wishes: &Map<String, Value>, network: &NetworkList) -> Result<(), CniError> {
    // Addresses are also asked for by the arguments, which every plugin sees; whether they came true is seen afterwards.
    let shows = |key: &str| ["ips", "mac"].contains(&key);
    match wishes.keys().find(|key| !shows(key) && !network.takes(key)) {
        Some(key) => Err(CniError::new(
            Code::InvalidConfig,
            format!("no plugin has the capability {key:?} that is asked for"),
        )
        .in_network("ADD", &network.name)),
        None => Ok(()),
    }
}

/// Fails if the result has not the addresses that were wished for.
///
/// # Errors
/// [`Code::InvalidConfig`].
pub fn fulfilled(
    wishes: &Map<String, Value>,
    ifname: &str,
    network: &NetworkList,
    result: &CniResult,
) -> Result<(), CniError> {
    let failed =
        |what: String| Err(CniError::new(Code::InvalidConfig, what).in_network("ADD", &network.name));
    let wished = wishes.get("ips").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    for text in wished {
        let address = text.split('/').next().and_then(|address| address.parse::<IpAddr>().ok());
        if !result.container_ips().iter().any(|(ip, _)| Some(*ip) == address) {
            return failed(format!("no plugin gave the address {text} that is asked for"));
        }
    }
    let Some(mac) = wishes.get("mac").and_then(Value::as_str) else { return Ok(()) };
    let link = result.interfaces.iter().find(|i| i.name == ifname && i.sandbox.is_some());
    // Old results do not say which address a link has.
    match link.and_then(|link| link.mac.as_deref()).filter(|mac| !mac.is_empty()) {
        Some(has) if !has.eq_ignore_ascii_case(mac) => {
            failed(format!("no plugin gave the hardware address {mac} that is asked for, it is {has}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn network(capabilities: Value) -> NetworkList {
        let text = json!({"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "a"},
            {"type": "b", "capabilities": capabilities}]});
        NetworkList::parse(text.to_string().as_bytes()).unwrap()
    }

    fn wishes(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn what_nothing_shows_of_needs_a_plugin_that_takes_it() {
        let all = wishes(json!({"ips": [], "mac": "x", "portMappings": []}));
        assert!(taken(&all, &network(json!({"portMappings": true}))).is_ok());
        let why = taken(&all, &network(json!({"portMappings": false}))).unwrap_err().to_string();
        assert!(why.contains("no plugin has the capability \"portMappings\""), "{why}");
    }

    #[test]
    fn addresses_that_nobody_gave_are_missed() {
        let result = CniResult::from_json(&json!({"cniVersion": "1.0.0",
            "interfaces": [{"name": "h", "mac": "02:00:00:00:00:09"},
                {"name": "net1", "mac": "02:00:00:00:00:aa", "sandbox": "/n"}],
            "ips": [{"address": "10.0.0.5/24", "interface": 1}, {"address": "10.0.0.1/24", "interface": 0}]}))
        .unwrap();
        for (wish, missed) in [
            (json!({"ips": ["10.0.0.5"], "mac": "02:00:00:00:00:AA"}), None),
            (json!({"ips": ["10.0.0.5/24"]}), None),
            (json!({"ips": ["10.0.0.6/24"]}), Some("the address 10.0.0.6/24")),
            (json!({"ips": ["10.0.0.1"]}), Some("the address 10.0.0.1")),
            (json!({"mac": "02:00:00:00:00:09"}), Some("the hardware address")),
            (json!({"other": 1}), None),
        ] {
            let got = fulfilled(&wishes(wish.clone()), "net1", &network(json!({})), &result);
            match (got, missed) {
                (Ok(()), None) => {}
                (Err(e), Some(part)) => assert!(e.to_string().contains(part), "{e}"),
                (got, _) => panic!("{wish}: {got:?}"),
            }
        }
    }
}
