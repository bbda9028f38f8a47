//! What the devices of a claim must have alike, and what none of them may have like another.

use trine_typed::k8s_openapi::api::resource::v1::DeviceAttribute;

use super::inventory::asked;
use super::requests::Request;
use super::{Device, ResourceClaim};

/// A constraint of a claim, with the devices that it was told of.
#[derive(Debug)]
pub(super) struct Constraint<'a> {
    attribute: &'a str,
    /// For all requests if empty.
    requests: &'a [String],
    distinct: bool,
    values: Vec<&'a DeviceAttribute>,
}

/// The constraints of a claim.
///
/// # Errors
/// One is of a kind that nobody here knows.
pub(super) fn of<'a>(claim: &'a ResourceClaim, shown: &str) -> Result<Vec<Constraint<'a>>, String> {
    let constraints = asked(claim).and_then(|devices| devices.constraints.as_deref());
    let constraints = constraints.unwrap_or_default().iter().enumerate().map(|(at, constraint)| {
        let (attribute, distinct) = match (&constraint.match_attribute, &constraint.distinct_attribute) {
            (Some(attribute), _) => (attribute, false),
            (None, Some(attribute)) => (attribute, true),
            (None, None) => {
                return Err(format!(
                    "claim {shown}, constraint #{at}: empty constraint (unsupported constraint type?)"
                ));
            }
        };
        let requests = constraint.requests.as_deref().unwrap_or_default();
        Ok(Constraint { attribute, requests, distinct, values: Vec::new() })
    });
    constraints.collect()
}

impl<'a> Constraint<'a> {
    /// Takes a device in, if it may be.
    pub fn add(&mut self, request: &Request<'_>, driver: &str, device: &'a Device) -> bool {
        if !self.is_about(request) {
            return true;
        }
        let Some(value) = attribute_of(device, driver, self.attribute) else { return false };
        let same = |other: &&DeviceAttribute| plain(other).is_some() && plain(other) == plain(value);
        let may = if self.distinct {
            plain(value).is_some() && !self.values.iter().any(same)
        } else {
            self.values.first().is_none_or(same)
        };
        if may {
            self.values.push(value);
        }
        may
    }

    /// Forgets the device that was taken in last.
    pub fn remove(&mut self, request: &Request<'_>) {
        if self.is_about(request) {
            self.values.pop();
        }
    }

    fn is_about(&self, request: &Request<'_>) -> bool {
        self.requests.is_empty() || request.is_among(self.requests)
    }
}

/// An attribute by its full name; a driver may leave its own domain out.
fn attribute_of<'a>(device: &'a Device, driver: &str, name: &str) -> Option<&'a DeviceAttribute> {
    let attributes = device.attributes.as_ref()?;
    attributes.get(name).or_else(|| {
        let (domain, id) = name.split_once('/')?;
        attributes.get(id).filter(|_| domain == driver)
    })
}

/// A value of an attribute: one of a kind that can be compared.
#[derive(PartialEq, Eq)]
enum Plain<'a> {
    Text(&'a str),
    Int(i64),
    Bool(bool),
    Version(&'a str),
}

fn plain(attribute: &DeviceAttribute) -> Option<Plain<'_>> {
    None.or(attribute.string.as_deref().map(Plain::Text))
        .or(attribute.int.map(Plain::Int))
        .or(attribute.bool.map(Plain::Bool))
        .or(attribute.version.as_deref().map(Plain::Version))
}
