//! Which VLANs a port of a bridge has. Pure.

use std::collections::BTreeSet;

use serde::Deserialize;
use trine_kernel::netlink::{PortVlans, Request as Change};

use super::config::Config;
use crate::spec::{CniError, Code};

/// The highest id of a VLAN.
pub const LAST: i64 = 4094;
/// The VLAN that the kernel gives every port.
const DEFAULT: u16 = 1;

/// An entry of `vlanTrunk`.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub struct Trunk {
    #[serde(rename = "minID")]
    min: Option<i64>,
    #[serde(rename = "maxID")]
    max: Option<i64>,
    id: Option<i64>,
}

/// The ids of a trunk.
///
/// # Errors
/// [`Code::InvalidConfig`].
pub fn trunk(entries: &[Trunk]) -> Result<BTreeSet<u16>, CniError> {
    let invalid = |msg: &str| CniError::new(Code::InvalidConfig, msg);
    let id = |value: i64, what: &str| {
        let id = u16::try_from(value).ok().filter(|_| (1..=LAST).contains(&value));
        id.ok_or_else(|| invalid(&format!("incorrect trunk {what} parameter")))
    };
    let mut ids = BTreeSet::new();
    for entry in entries {
        match (entry.min, entry.max) {
            (Some(min), Some(max)) => {
                let (min, max) = (id(min, "minID")?, id(max, "maxID")?);
                if max < min {
                    return Err(invalid("minID is greater than maxID in trunk parameter"));
                }
                ids.extend(min..=max);
            }
            (None, None) => {}
            (None, _) => {
                return Err(invalid("minID and maxID should be configured simultaneously, minID is missing"));
            }
            (_, None) => {
                return Err(invalid("minID and maxID should be configured simultaneously, maxID is missing"));
            }
        }
        if let Some(value) = entry.id {
            ids.insert(id(value, "id")?);
        }
    }
    Ok(ids)
}

/// Ids that follow each other, as ranges.
fn ranges(ids: &BTreeSet<u16>) -> Vec<PortVlans> {
    let mut ranges: Vec<PortVlans> = Vec::new();
    for id in ids {
        match ranges.last_mut() {
            Some(range) if range.last + 1 == *id => range.last = *id,
            _ => ranges.push(PortVlans { first: *id, last: *id, native: false }),
        }
    }
    ranges
}

/// What a port of these VLANs has to be told.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// VLANs that go; absent is success.
    pub gone: Option<PortVlans>,
    /// VLANs that come.
    pub come: Vec<PortVlans>,
}

/// The plan for a port.
///
/// # Errors
/// [`Code::InvalidConfig`].
pub fn plan(config: &Config) -> Result<Plan, CniError> {
    let ids = trunk(config.vlan_trunk.as_deref().unwrap_or_default())?;
    let vlan = u16::try_from(config.vlan).unwrap_or_default();
    let native = |id| PortVlans { first: id, last: id, native: true };
    let alone = PortVlans { first: DEFAULT, last: DEFAULT, native: false };
    let gone = Some(alone).filter(|_| (vlan != 0 || !ids.is_empty()) && !config.preserve_default_vlan);
    let mut come: Vec<PortVlans> = Some(vlan).filter(|id| *id != 0).map(native).into_iter().collect();
    come.extend(ranges(&ids));
    // A trunk without a VLAN of its own has the first one for frames without.
    if vlan == 0 && !ids.is_empty() {
        come.push(native(DEFAULT));
    }
    Ok(Plan { gone, come })
}

impl Plan {
    /// The requests for the port `link` (an index), in order.
    pub fn requests(&self, link: u32) -> Vec<Change> {
        let gone = self.gone.map(|vlans| Change::del_port_vlans(link, vlans, false).or_absent());
        let come = self.come.iter().map(|vlans| Change::add_port_vlans(link, *vlans, false));
        gone.into_iter().chain(come).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn planned(config: Value) -> Result<(bool, Vec<String>), CniError> {
        let plan = plan(&serde_json::from_value(config).unwrap())?;
        let text = |v: &PortVlans| {
            let native = if v.native { " native" } else { "" };
            if v.first == v.last {
                format!("{}{native}", v.first)
            } else {
                format!("{}-{}{native}", v.first, v.last)
            }
        };
        Ok((plan.gone.is_some(), plan.come.iter().map(text).collect()))
    }

    #[test]
    fn a_port_has_its_vlan_and_those_of_its_trunk() {
        for (config, gone, come) in [
            (json!({}), false, vec![]),
            (json!({"vlan": 100}), true, vec!["100 native"]),
            (json!({"vlan": 100, "preserveDefaultVlan": true}), false, vec!["100 native"]),
            (
                json!({"vlanTrunk": [{"minID": 5, "maxID": 7}, {"id": 8}, {"id": 10}]}),
                true,
                vec!["5-8", "10", "1 native"],
            ),
            (json!({"vlan": 3, "vlanTrunk": [{"id": 9}]}), true, vec!["3 native", "9"]),
            (json!({"vlanTrunk": []}), false, vec![]),
        ] {
            let come: Vec<String> = come.into_iter().map(str::to_owned).collect();
            assert_eq!(planned(config.clone()).unwrap(), (gone, come), "{config}");
        }
    }

    #[test]
    fn trunks_that_are_none_are_refused() {
        for (trunk, words) in [
            (json!({"minID": 0, "maxID": 7}), "minID"),
            (json!({"minID": 1, "maxID": 4095}), "maxID"),
            (json!({"minID": 9, "maxID": 7}), "greater"),
            (json!({"minID": 9}), "maxID is missing"),
            (json!({"maxID": 9}), "minID is missing"),
            (json!({"id": 0}), "trunk id"),
        ] {
            let error = planned(json!({"vlanTrunk": [trunk]})).unwrap_err();
            assert!(error.msg.contains(words), "{trunk}: {}", error.msg);
        }
    }

    #[test]
    fn requests_take_the_default_vlan_away_before_others_come() {
        let plan = plan(
            &serde_json::from_value(json!({"vlan": 7, "vlanTrunk": [{"minID": 20, "maxID": 30}]})).unwrap(),
        );
        let said: Vec<String> = plan.unwrap().requests(4).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "take VLANs from link 4 (1 to 1)",
                "add VLANs to link 4 (7 to 7)",
                "add VLANs to link 4 (20 to 30)"
            ]
        );
    }
}
