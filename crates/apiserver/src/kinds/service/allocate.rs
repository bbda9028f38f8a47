//! Giving Services their addresses and ports.

use super::families;
use super::pool::{Addresses, PoolError, Ports};
use crate::kinds::fields::{default, items, items_mut, set, take, text};
use crate::kinds::{Cause, Cx, Invalid};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Something that a Service holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// A cluster IP.
    Address(IpAddr),
    /// A port on every node.
    Port(u16),
}

/// The pools of a server; rebuilt from the stored Services at start.
#[derive(Debug)]
pub struct Allocators {
    /// One of each family, the primary one first.
    addresses: Vec<Mutex<Addresses>>,
    ports: Mutex<Ports>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic leaves a pool whole: each change is one insertion or removal.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Allocators {
    /// Pools for a range of Service addresses, or one of each family with a comma between them; `None` if the text is no usable one.
    pub fn new(service_cidr: &str) -> Option<Self> {
        let pools: Option<Vec<_>> = service_cidr.split(',').map(Addresses::new).collect();
        let pools = pools.filter(|pools| match pools.as_slice() {
            [_] => true,
            [one, other] => one.family() != other.family(),
            _ => false,
        })?;
        Some(Self { addresses: pools.into_iter().map(Mutex::new).collect(), ports: Mutex::default() })
    }

    /// The address of the `kubernetes` Service.
    pub fn first(&self) -> IpAddr {
        lock(&self.addresses[0]).first()
    }

    /// The ranges, CIDRs.
    pub fn ranges(&self) -> Vec<String> {
        self.addresses.iter().map(|pool| lock(pool).range().to_owned()).collect()
    }

    /// The families, the primary one first.
    fn families(&self) -> Vec<&'static str> {
        self.addresses.iter().map(|pool| lock(pool).family()).collect()
    }

    /// The pool of a family.
    fn pool(&self, family: &str) -> Option<MutexGuard<'_, Addresses>> {
        self.addresses.iter().map(lock).find(|pool| pool.family() == family)
    }

    /// Marks what stored Services hold. What is held twice or out of range is left to its holder.
    pub fn adopt<'s>(&self, services: impl IntoIterator<Item = &'s Value>) {
        for held in services.into_iter().flat_map(holdings) {
            match held {
                Held::Address(address) => {
                    drop(self.pool(families::of(address)).map(|mut pool| pool.take(address)));
                }
                Held::Port(port) => drop(lock(&self.ports).take(port)),
            }
        }
    }

    /// Gives back.
    pub fn release(&self, held: &[Held]) {
        for one in held {
            match one {
                Held::Address(address) => {
                    self.pool(families::of(*address)).iter_mut().for_each(|pool| pool.release(*address));
                }
                Held::Port(port) => lock(&self.ports).release(*port),
            }
        }
    }
}

/// What a Service holds.
pub fn holdings(service: &Value) -> Vec<Held> {
    let spec = &service["spec"];
    let listed = items(spec, "clusterIPs").iter().filter_map(Value::as_str);
    let mut addresses: Vec<IpAddr> =
        listed.chain([text(spec, "clusterIP")]).filter_map(|a| a.parse().ok()).collect();
    addresses.dedup();
    let mut ports: Vec<u16> =
        items(spec, "ports").iter().filter_map(|p| port_number(&p["nodePort"])).collect();
    ports.extend(port_number(&spec["healthCheckNodePort"]));
    ports.sort_unstable();
    ports.dedup();
    addresses.into_iter().map(Held::Address).chain(ports.into_iter().map(Held::Port)).collect()
}

fn port_number(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0)
}

/// Gives a Service what it asks for and does not hold yet, and notes what it no longer holds.
pub fn allocate(service: &mut Value, old: Option<&Value>, cx: &mut Cx) -> Result<(), Invalid> {
    let held = old.map(holdings).unwrap_or_default();
    address(service, old, &held, cx)?;
    node_ports(service, &held, cx)?;
    let kept = holdings(service);
    cx.freed.extend(held.iter().filter(|h| !kept.contains(h)));
    Ok(())
}

fn address(service: &mut Value, old: Option<&Value>, held: &[Held], cx: &mut Cx) -> Result<(), Invalid> {
    let reserved =
        service["metadata"]["name"] == "kubernetes" && service["metadata"]["namespace"] == "default";
    let spec = &mut service["spec"];
    if text(spec, "type") == "ExternalName" {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            take(spec, field);
        }
        return Ok(());
    }
    if items(spec, "clusterIPs").is_empty() && !text(spec, "clusterIP").is_empty() {
        let only = json!([spec["clusterIP"]]);
        set(spec, "clusterIPs", only);
    }
    families::decide(spec, old.map(|old| &old["spec"]), &cx.allocators.families()).map_err(Invalid)?;
    let wanted: Vec<String> =
        items(spec, "ipFamilies").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let mut given: Vec<String> =
        items(spec, "clusterIPs").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if given.first().is_none_or(|first| first != "None") {
        given.resize(given.len().max(wanted.len()), String::new());
        for (address, family) in given.iter_mut().zip(&wanted) {
            one_address(address, family, reserved, held, cx)?;
        }
    }
    default(spec, "clusterIP", given.first().cloned().unwrap_or_default());
    set(spec, "clusterIPs", given);
    Ok(())
}

/// Takes the address that is asked for, or any if none is, unless the Service holds it already.
fn one_address(
    address: &mut String,
    family: &str,
    reserved: bool,
    held: &[Held],
    cx: &mut Cx,
) -> Result<(), Invalid> {
    let refused = |address: &str, error: &PoolError| {
        let detail = format!("failed to allocate IP {address}: {error}");
        Invalid::from(Cause::invalid("spec.clusterIPs", json!([address]), &detail))
    };
    let Some(mut pool) = cx.allocators.pool(family) else { return Ok(()) };
    if address.is_empty() {
        let any = pool.any().map_err(|e| refused("", &e))?;
        cx.taken.push(Held::Address(any));
        *address = any.to_string();
    } else if let Ok(asked) = address.parse::<IpAddr>() {
        // Validation says what is wrong with any other.
        let exempt = held.contains(&Held::Address(asked)) || (reserved && asked == pool.first());
        if !exempt {
            pool.take(asked).map_err(|e| refused(address, &e))?;
            cx.taken.push(Held::Address(asked));
        }
    }
    Ok(())
}

fn node_ports(service: &mut Value, held: &[Held], cx: &mut Cx) -> Result<(), Invalid> {
    let spec = &mut service["spec"];
    let wanted = match text(spec, "type") {
        "NodePort" => true,
        "LoadBalancer" => spec["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    };
    let mut pool = lock(&cx.allocators.ports);
    // One number serves several protocols of the same Service.
    let mut own: HashMap<u16, Vec<String>> = HashMap::new();
    for (i, port) in items_mut(spec, "ports").enumerate() {
        let protocol = text(port, "protocol").to_owned();
        if let Some(number) = port_number(&port["nodePort"]) {
            let protocols = own.entry(number).or_default();
            let free_to_use = match protocols.as_slice() {
                [] => held.contains(&Held::Port(number)),
                used => !used.contains(&protocol),
            };
            if !free_to_use {
                pool.take(number).map_err(|e| {
                    Invalid::from(Cause::invalid(format!("spec.ports[{i}].nodePort"), number, &e.to_string()))
                })?;
                cx.taken.push(Held::Port(number));
            }
            protocols.push(protocol);
        } else if wanted {
            let number = pool.any().map_err(|e| {
                let detail = format!("failed to allocate a nodePort: {e}");
                Invalid::from(Cause::invalid(format!("spec.ports[{i}].nodePort"), 0, &detail))
            })?;
            cx.taken.push(Held::Port(number));
            own.entry(number).or_default().push(protocol);
            set(port, "nodePort", number);
        }
    }
    Ok(())
}
