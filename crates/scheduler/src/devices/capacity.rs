//! Parts of a device's capacity (KEP-5075): how much a request comes to by the device's policy, and whether there is as much.

use std::collections::BTreeMap;

use trine_objects::quantity::Quantity;
use trine_typed::k8s_openapi::api::resource::v1::{CapacityRequestPolicyRange, DeviceCapacity};
use trine_typed::k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use super::in_use::Amounts;

/// The capacity of a device by name.
type Capacity = BTreeMap<String, DeviceCapacity>;

/// What a request comes to on a device; nothing if the device has none of it or does not give away such amounts.
///
/// # Errors
/// `capacity "NAME": ...`: what is written there is no amount.
pub(super) fn consumed(
    wanted: Option<&BTreeMap<String, Text>>,
    capacity: Option<&Capacity>,
) -> Result<Option<Amounts>, String> {
    let none = Capacity::new();
    let capacity = capacity.unwrap_or(&none);
    if wanted.into_iter().flatten().any(|(name, _)| !capacity.contains_key(name)) {
        return Ok(None);
    }
    let mut amounts = Amounts::new();
    for (name, has) in capacity {
        let wanted = wanted.and_then(|wanted| wanted.get(name));
        let amount = amount(wanted, has).map_err(|why| format!("capacity \"{name}\": {why}"))?;
        if amount.is_negative() {
            return Err(format!("capacity \"{name}\": capacity value is negative"));
        }
        amounts.insert(name.clone(), amount);
    }
    for (name, has) in capacity {
        if let Some(amount) = amounts.get(name)
            && !is_given(*amount, has)?
        {
            return Ok(None);
        }
    }
    Ok(Some(amounts))
}

/// Whether a device has as much beside what others have of it.
pub(super) fn fits(amounts: &Amounts, others: &[Option<&Amounts>], capacity: Option<&Capacity>) -> bool {
    amounts.iter().all(|(name, amount)| {
        let of_others = others.iter().flatten().filter_map(|amounts| amounts.get(name));
        let sum = of_others.map(Quantity::nano).sum::<i128>() + amount.nano();
        let has = capacity.and_then(|capacity| capacity.get(name)).map(|has| quantity(&has.value));
        has.is_some_and(|has| has.is_ok_and(|has| sum <= has.nano()))
    })
}

fn quantity(text: &Text) -> Result<Quantity, String> {
    text.0.parse::<Quantity>().map_err(|error| error.to_string())
}

/// What is consumed: by default all, or what the policy says; otherwise what is asked for, rounded up as the policy says.
fn amount(wanted: Option<&Text>, has: &DeviceCapacity) -> Result<Quantity, String> {
    let policy = has.request_policy.as_ref();
    let Some(wanted) = wanted else {
        return quantity(policy.and_then(|policy| policy.default.as_ref()).unwrap_or(&has.value));
    };
    let wanted = quantity(wanted)?;
    let Some(policy) = policy else { return Ok(wanted) };
    if let Some(range) = &policy.valid_range {
        return rounded(wanted, range);
    }
    for valid in policy.valid_values.iter().flatten() {
        let valid = quantity(valid)?;
        if wanted <= valid {
            return Ok(valid);
        }
    }
    Ok(wanted)
}

/// Up to the least, or to the next step from it.
fn rounded(wanted: Quantity, range: &CapacityRequestPolicyRange) -> Result<Quantity, String> {
    let least = quantity(&range.min)?;
    if wanted < least {
        return Ok(least);
    }
    let Some(step) = range.step.as_ref().map(quantity).transpose()? else { return Ok(wanted) };
    if step.nano() <= 0 {
        return Ok(wanted);
    }
    let above = wanted.nano() - least.nano();
    let steps = above / step.nano() + i128::from(above % step.nano() != 0);
    Ok(step.with_nano(least.nano() + steps * step.nano()))
}

/// Whether a device gives such an amount away.
fn is_given(amount: Quantity, has: &DeviceCapacity) -> Result<bool, String> {
    let Some(policy) = &has.request_policy else { return Ok(true) };
    if policy.default.as_ref().map(quantity).transpose()? == Some(amount) {
        return Ok(true);
    }
    if let Some(range) = &policy.valid_range {
        let most = range.max.as_ref().map(quantity).transpose()?;
        if most.is_some_and(|most| amount > most) {
            return Ok(false);
        }
        let (least, step) = (quantity(&range.min)?, range.step.as_ref().map(quantity).transpose()?);
        let off = |step: Quantity| step.nano() > 0 && (amount.nano() - least.nano()) % step.nano() != 0;
        return Ok(!step.is_some_and(off));
    }
    let Some(valid) = policy.valid_values.as_ref().filter(|valid| !valid.is_empty()) else { return Ok(true) };
    for valid in valid {
        if quantity(valid)? == amount {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What a request for so much of `memory` comes to.
    fn of(wanted: Option<&str>, policy: Value) -> Option<String> {
        let capacity = json!({"memory": {"value": "10Gi", "requestPolicy": policy}});
        let capacity: Capacity = serde_json::from_value(capacity).unwrap();
        let wanted = wanted.map(|wanted| BTreeMap::from([("memory".to_owned(), Text(wanted.to_owned()))]));
        let amounts = consumed(wanted.as_ref(), Some(&capacity)).unwrap()?;
        Some(amounts["memory"].to_string())
    }

    #[test]
    fn an_amount_is_rounded_up_as_the_policy_says_and_refused_if_there_is_none_such() {
        let range = json!({"default": "1Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "2Gi"}});
        let values = json!({"default": "2Gi", "validValues": ["2Gi", "4Gi"]});
        let fraction = json!({"validRange": {"min": "500m", "step": "250m"}});
        let rows = [
            ("all, without a policy", None, Value::Null, Some("10Gi")),
            ("as it is, without a policy", Some("3Gi"), Value::Null, Some("3Gi")),
            ("the default", None, range.clone(), Some("1Gi")),
            ("at least", Some("1Mi"), range.clone(), Some("1Gi")),
            ("the next step", Some("2Gi"), range.clone(), Some("3Gi")),
            ("too much", Some("9Gi"), range, None),
            ("the next value", Some("3Gi"), values.clone(), Some("4Gi")),
            ("no such value", Some("5Gi"), values, None),
            ("steps of fractions", Some("600m"), fraction, Some("750m")),
        ];
        for (name, wanted, policy, expected) in rows {
            assert_eq!(of(wanted, policy).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn what_others_have_is_counted() {
        let capacity: Capacity = serde_json::from_value(json!({"memory": {"value": "10Gi"}})).unwrap();
        let amounts = |text: &str| Amounts::from([("memory".to_owned(), text.parse::<Quantity>().unwrap())]);
        let (four, six, seven) = (amounts("4Gi"), amounts("6Gi"), amounts("7Gi"));
        assert!(fits(&four, &[Some(&six), None], Some(&capacity)));
        assert!(!fits(&four, &[Some(&seven)], Some(&capacity)));
        assert_eq!(
            consumed(Some(&BTreeMap::from([("cores".to_owned(), Text("1".to_owned()))])), Some(&capacity)),
            Ok(None)
        );
    }
}
