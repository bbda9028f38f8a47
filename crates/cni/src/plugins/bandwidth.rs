//! `bandwidth`: how fast a container's frames go. It is chained behind a plugin that made a veth.
//!
//! ```text
//! to the container:    host ─▶ token bucket on the host's end ─▶ veth
//! from the container:  veth ─▶ redirected as it comes in ─▶ bwp....... (ifb) ─▶ token bucket ─▶ host
//! ```
//! Keys: `ingressRate`, `ingressBurst`, `egressRate`, `egressBurst` (bits a second, bits), or `runtimeConfig.bandwidth` with the same.
//! The bucket on the veth goes with it; the ifb is named after the attachment and marked for GC.

use serde::Deserialize;
use trine_kernel::netlink::{Link, NewKind, NewLink, QueueInfo, Request as Change, Route, TokenBucket};
use trine_kernel::testing::failpoint;

use super::{Plugin, inside, links};
use crate::spec::{CniError, CniResult, Code, Request, Version};

/// The plugin.
pub struct Bandwidth;

/// The ifbs begin with it.
const PREFIX: &str = "bwp";
/// How long a frame may wait in a bucket, in milliseconds; the reference's.
const LATENCY_MS: u64 = 25;
/// A burst of as many bytes cannot be told to the kernel.
const BURST_END: u64 = 1 << 32;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    #[serde(flatten)]
    own: Option<Limits>,
    runtime_config: Runtime,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Runtime {
    bandwidth: Option<Limits>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Limits {
    ingress_rate: u64,
    ingress_burst: u64,
    egress_rate: u64,
    egress_burst: u64,
}

/// The bucket of a rate and a burst in bits; none if both are 0.
fn bucket(rate: u64, burst: u64) -> Result<Option<TokenBucket>, CniError> {
    let invalid = |msg: &str| Err(CniError::new(Code::InvalidConfig, msg));
    match (rate, burst) {
        (0, 0) => return Ok(None),
        (_, 0) => return invalid("if rate is set, burst must also be set"),
        (0, _) => return invalid("if burst is set, rate must also be set"),
        _ if burst / 8 >= BURST_END - 1 => return invalid("burst cannot be more than 4GB"),
        _ if rate < 8 => return invalid("a rate of less than a byte a second"),
        _ => {}
    }
    let (rate, burst) = (rate / 8, u32::try_from(burst / 8).unwrap_or(u32::MAX));
    let waiting = u128::from(rate) * u128::from(LATENCY_MS) / 1000;
    let limit = u32::try_from(waiting).unwrap_or(u32::MAX).saturating_add(burst);
    Ok(Some(TokenBucket { rate, burst, limit }))
}

/// To and from the container.
struct Buckets {
    to: Option<TokenBucket>,
    from: Option<TokenBucket>,
}

impl Buckets {
    fn of(request: &Request) -> Result<Self, CniError> {
        if request.version < Version::V0_3_0 {
            let msg = format!("bandwidth does not speak version {}", request.version);
            return Err(CniError::new(Code::IncompatibleVersion, msg));
        }
        let config: Config = request.config()?;
        let own = config.own.filter(|own| *own != Limits::default());
        let limits = own.or(config.runtime_config.bandwidth).unwrap_or_default();
        Ok(Self {
            to: bucket(limits.ingress_rate, limits.ingress_burst)?,
            from: bucket(limits.egress_rate, limits.egress_burst)?,
        })
    }

    fn none(&self) -> bool {
        self.to.is_none() && self.from.is_none()
    }
}

/// The host's end of the container's veth.
fn host_end(request: &Request, host: &mut Route) -> Result<Link, CniError> {
    let (_, mut pod) = inside::open(request)?;
    let ifname = &request.env.ifname;
    let none = |what: String| CniError::new(Code::InvalidConfig, what);
    let own = pod.find_link(ifname)?.ok_or_else(|| none(format!("the container has no link {ifname}")))?;
    let peer = own.peer.filter(|_| own.kind.as_deref() == Some("veth"));
    let peer = peer.ok_or_else(|| none(format!("container interface {ifname} has no veth peer")))?;
    // That index may be another link's, if the other end is not in this namespace.
    host.find_link(peer)?
        .filter(|link| link.kind.as_deref() == Some("veth") && link.peer == Some(own.index))
        .ok_or_else(|| none(format!("veth peer with index {peer} is not in host ns")))
}

fn queue(request: &Request) -> Result<String, CniError> {
    links::host_name(PREFIX, &request.network, &request.attachment())
}

/// Leads what comes from the container through a bucket.
fn slow_down(request: &Request, host: &mut Route, end: &Link, bucket: TokenBucket) -> Result<Link, CniError> {
    let name = queue(request)?;
    let new = NewLink {
        name: &name,
        kind: NewKind::Ifb,
        parent: None,
        netns: None,
        mac: None,
        mtu: Some(end.mtu),
        up: true,
    };
    links::make_marked(host, new.request(), &name, &request.network, &request.attachment())?;
    failpoint("bandwidth: ifb");
    let ifb = host.link(&name)?;
    let changes = [
        bucket.add(ifb.index),
        Change::add_incoming(end.index),
        Change::redirect_incoming(end.index, ifb.index),
    ];
    for change in changes {
        host.run(&[change])?;
    }
    Ok(ifb)
}

fn holds(there: Option<QueueInfo>, wanted: TokenBucket) -> bool {
    let wanted = QueueInfo { rate: wanted.rate, buffer: wanted.ticks(), limit: wanted.limit };
    there == Some(wanted)
}

impl Plugin for Bandwidth {
    fn name(&self) -> &'static str {
        "bandwidth"
    }

    fn add(&self, request: &Request) -> Result<CniResult, CniError> {
        let buckets = Buckets::of(request)?;
        let Some(result) = &request.prev_result else {
            return Err(CniError::new(Code::InvalidConfig, "must be called as chained plugin"));
        };
        let mut result = result.clone();
        if buckets.none() {
            return Ok(result);
        }
        let mut host = Route::open()?;
        let end = host_end(request, &mut host)?;
        if let Some(bucket) = buckets.to {
            host.run(&[bucket.add(end.index)])?;
            failpoint("bandwidth: bucket");
        }
        if let Some(bucket) = buckets.from {
            let ifb = slow_down(request, &mut host, &end, bucket).inspect_err(|_| {
                let _ = queue(request).map(|name| host.del_link(&name));
            })?;
            result.interfaces.push(inside::host_interface(&ifb));
        }
        Ok(result)
    }

    fn del(&self, request: &Request) -> Result<(), CniError> {
        Ok(Route::open()?.del_link(&queue(request)?)?)
    }

    fn check(&self, request: &Request) -> Result<(), CniError> {
        let buckets = Buckets::of(request)?;
        request.need_prev_result()?;
        let differs = |what: &str| Err(CniError::new(Code::Internal, what));
        if buckets.none() {
            return Ok(());
        }
        let mut host = Route::open()?;
        let end = host_end(request, &mut host)?;
        if let Some(wanted) = buckets.to
            && !holds(host.token_bucket(end.index)?, wanted)
        {
            return differs("what goes to the container is not slowed down as configured");
        }
        if let Some(wanted) = buckets.from {
            let Some(ifb) = host.find_link(&queue(request)?)? else { return differs("the ifb is gone") };
            if !holds(host.token_bucket(ifb.index)?, wanted) {
                return differs("what comes from the container is not slowed down as configured");
            }
        }
        Ok(())
    }

    fn gc(&self, request: &Request) -> Result<(), CniError> {
        links::remove_unmarked(request, PREFIX)
    }

    fn status(&self, request: &Request) -> Result<(), CniError> {
        Buckets::of(request).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_bursts_come_together_and_in_bytes() {
        assert_eq!(bucket(0, 0).unwrap(), None);
        let expected = TokenBucket { rate: 1_000_000, burst: 20_000, limit: 45_000 };
        assert_eq!(bucket(8_000_000, 160_000).unwrap(), Some(expected));
        for (rate, burst) in [(8000, 0), (0, 8000), (8000, BURST_END * 8), (7, 8000)] {
            assert_eq!(bucket(rate, burst).unwrap_err().code, Code::InvalidConfig, "{rate} {burst}");
        }
        // Faster than 32 bits can say, in bytes a second.
        assert_eq!(bucket(100_000_000_000, 8_000_000).unwrap().unwrap().rate, 12_500_000_000);
    }
}
