//! What a claim asks for, in one form for requests and for the alternatives within one.

use std::collections::BTreeMap;
use std::sync::Arc;

use trine_typed::k8s_openapi::api::resource::v1::{
    CapacityRequirements, DeviceSelector, DeviceToleration, ExactDeviceRequest,
};
use trine_typed::k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::inventory::{Compiled, Inventory, asked};
use super::{DeviceClass, MOST_DEVICES, ResourceClaim};

/// How many devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    /// So many.
    Exactly(usize),
    /// All that fit.
    All,
}

/// A selector, and where it stands.
#[derive(Debug)]
pub(super) struct Selector {
    pub compiled: Compiled,
    /// `class NAME`, or `claim NAMESPACE/NAME`.
    pub of: String,
    /// Its number there.
    pub at: usize,
}

/// A request, or an alternative of one.
#[derive(Debug)]
pub(super) struct Request<'a> {
    /// Its number among all of the Pod's.
    pub number: usize,
    /// The name of the request.
    pub base: &'a str,
    /// The name of the alternative, if it is one.
    pub sub: Option<&'a str>,
    pub class: &'a Arc<DeviceClass>,
    pub count: Count,
    pub admin: bool,
    pub selectors: Vec<Selector>,
    pub tolerations: Option<&'a Vec<DeviceToleration>>,
    pub capacity: Option<&'a BTreeMap<String, Quantity>>,
}

impl Request<'_> {
    /// As results and constraints name it.
    pub fn name(&self) -> String {
        match self.sub {
            Some(sub) => format!("{}/{sub}", self.base),
            None => self.base.to_owned(),
        }
    }

    /// Its own name.
    pub fn own(&self) -> &str {
        self.sub.unwrap_or(self.base)
    }

    /// Whether one of these names is its name, or its request's.
    pub fn is_among(&self, names: &[String]) -> bool {
        names.iter().any(|name| {
            name == self.base
                || self.sub.is_some_and(|sub| {
                    name.strip_prefix(self.base).and_then(|rest| rest.strip_prefix('/')) == Some(sub)
                })
        })
    }
}

/// A request with what would do; several only where the claim lists alternatives.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub options: Vec<Request<'a>>,
    /// Whether these are alternatives.
    pub list: bool,
}

/// What a claim asks for, counted on from `number`.
///
/// # Errors
/// It cannot be: a class is missing, or something is asked for that nobody here knows.
pub(super) fn of<'a>(
    claim: &'a ResourceClaim,
    shown: &str,
    inventory: &'a Inventory,
    number: &mut usize,
) -> Result<Vec<Asked<'a>>, String> {
    let requests = asked(claim).and_then(|devices| devices.requests.as_deref());
    let mut all = Vec::new();
    let mut least = 0_usize;
    for request in requests.unwrap_or_default() {
        let list = request.first_available.as_deref().unwrap_or_default();
        let mut options = Vec::new();
        if let Some(exactly) = &request.exactly {
            options.push(self::request(shown, &request.name, None, exactly, inventory, number)?);
        }
        for sub in list {
            let plain = ExactView {
                class: &sub.device_class_name,
                mode: sub.allocation_mode.as_deref(),
                count: sub.count,
                admin: false,
                selectors: sub.selectors.as_deref().unwrap_or_default(),
                tolerations: sub.tolerations.as_ref(),
                capacity: sub.capacity.as_ref(),
                derived: sub.derived_attributes.is_some(),
            };
            options.push(one(shown, &request.name, Some(&sub.name), &plain, inventory, number)?);
        }
        if options.is_empty() {
            return Err(format!("claim {shown}, request {}: unknown request type", request.name));
        }
        let count = |option: &Request<'_>| match option.count {
            Count::Exactly(count) => count,
            Count::All => 0,
        };
        let fewest = options.iter().map(count).min().unwrap_or_default();
        if fewest > MOST_DEVICES.saturating_sub(least) {
            return Err(format!(
                "claim {shown}, request {}: adding {fewest} devices exceeds the claim limit of {MOST_DEVICES}, \
                 with {least} already accounted for",
                request.name
            ));
        }
        least += fewest;
        all.push(Asked { options, list: !list.is_empty() });
    }
    Ok(all)
}

/// What requests and alternatives have alike.
struct ExactView<'a> {
    class: &'a str,
    mode: Option<&'a str>,
    count: Option<i64>,
    admin: bool,
    selectors: &'a [DeviceSelector],
    tolerations: Option<&'a Vec<DeviceToleration>>,
    capacity: Option<&'a CapacityRequirements>,
    derived: bool,
}

fn request<'a>(
    shown: &str,
    base: &'a str,
    sub: Option<&'a str>,
    exactly: &'a ExactDeviceRequest,
    inventory: &'a Inventory,
    number: &mut usize,
) -> Result<Request<'a>, String> {
    let plain = ExactView {
        class: &exactly.device_class_name,
        mode: exactly.allocation_mode.as_deref(),
        count: exactly.count,
        admin: exactly.admin_access == Some(true),
        selectors: exactly.selectors.as_deref().unwrap_or_default(),
        tolerations: exactly.tolerations.as_ref(),
        capacity: exactly.capacity.as_ref(),
        derived: exactly.derived_attributes.is_some(),
    };
    one(shown, base, sub, &plain, inventory, number)
}

fn one<'a>(
    shown: &str,
    base: &'a str,
    sub: Option<&'a str>,
    plain: &ExactView<'a>,
    inventory: &'a Inventory,
    number: &mut usize,
) -> Result<Request<'a>, String> {
    let wrong = |why: String| format!("claim {shown}, request {}: {why}", sub.unwrap_or(base));
    if plain.derived {
        return Err(wrong(
            "cannot handle request with derived attributes, the feature is disabled".to_owned(),
        ));
    }
    let class = inventory.classes.get(plain.class);
    let class = class.ok_or_else(|| {
        let name = plain.class;
        wrong(format!(
            "could not retrieve device class {name}: deviceclass.resource.k8s.io \"{name}\" not found"
        ))
    })?;
    let count = match plain.mode.unwrap_or("ExactCount") {
        "ExactCount" => {
            let count = plain.count.filter(|count| *count != 0).unwrap_or(1);
            Count::Exactly(usize::try_from(count).unwrap_or(usize::MAX))
        }
        "All" => Count::All,
        other => return Err(wrong(format!("unsupported count mode {other}"))),
    };
    let of_class = class.spec.as_ref().and_then(|spec| spec.selectors.as_deref()).unwrap_or_default();
    let class_name = plain.class;
    let mut selectors = Vec::new();
    for (selector, of, at) in of_class
        .iter()
        .enumerate()
        .map(|(at, selector)| (selector, format!("class {class_name}"), at))
        .chain(plain.selectors.iter().enumerate().map(|(at, s)| (s, format!("claim {shown}"), at)))
    {
        let Some(cel) = &selector.cel else {
            let why = format!("selector #{at}: CEL expression empty (unsupported selector type?)");
            return Err(wrong(why));
        };
        selectors.push(Selector { compiled: inventory.compiled(&cel.expression), of, at });
    }
    let number = {
        *number += 1;
        *number - 1
    };
    Ok(Request {
        number,
        base,
        sub,
        class,
        count,
        admin: plain.admin,
        selectors,
        tolerations: plain.tolerations,
        capacity: plain.capacity.and_then(|capacity| capacity.requests.as_ref()),
    })
}
