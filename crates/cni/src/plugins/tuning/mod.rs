//! `tuning`: settings of the container's link and namespace. It is chained behind the plugin that made the link.
//!
//! Keys: `sysctl` (below `net.` only; `IFNAME` stands for the link), `mac`, `promisc`, `mtu`, `txQLen`, `allmulti`, `dataDir`;
//! `runtimeConfig.mac`; all of them but the last two in `args.cni`, too. Where `/etc/cni/tuning/allowlist.conf` exists, each sysctl
//! must match one of its lines.
//!
//! What a link had before is kept in `dataDir` in the reference's form, and DEL gives it back.

mod kept;
mod wishes;

use trine_kernel::netlink::{Link, LinkChange, Mac, Route};
use trine_kernel::sysctl;
use trine_kernel::testing::failpoint;

use self::kept::Kept;
use self::wishes::Wishes;
use super::{Plugin, inside};
use crate::spec::{CniError, CniResult, Code, Request};

/// The plugin.
pub struct Tuning;

fn mac(text: &str) -> Result<Mac, CniError> {
    let msg = format!("invalid hardware address {text:?}");
    text.parse().map_err(|e| CniError::new(Code::InvalidConfig, msg).because(e))
}

/// Makes the changes to a link.
fn change(pod: &mut Route, link: &Link, wishes: &Wishes) -> Result<(), CniError> {
    let change = LinkChange {
        mac: wishes.mac.as_deref().map(mac).transpose()?,
        promiscuous: wishes.promisc.then_some(true),
        mtu: wishes.mtu,
        all_multicast: wishes.allmulti,
        transmit_queue: wishes.tx_queue,
        ..LinkChange::default()
    };
    Ok(pod.set_link(link, &change)?)
}

fn add(request: &Request, wishes: &Wishes, result: &mut CniResult) -> Result<(), CniError> {
    let (netns, mut pod) = inside::open(request)?;
    let ifname = &request.env.ifname;
    let link = pod
        .find_link(ifname)?
        .ok_or_else(|| CniError::new(Code::InvalidConfig, format!("the container has no link {ifname}")))?;
    netns.run(|| {
        for (key, value) in &wishes.sysctls {
            sysctl::write(key, value)?;
        }
        Ok::<_, CniError>(())
    })??;
    failpoint("tuning: sysctls");
    if wishes.of_link() {
        Kept::of(&link, wishes).write(request, &wishes.data_dir)?;
        failpoint("tuning: kept");
        change(&mut pod, &link, wishes).inspect_err(|_| {
            let _ = kept::give_back(request, &wishes.data_dir);
        })?;
    }
    for interface in result.interfaces.iter_mut().filter(|i| i.name == *ifname) {
        interface.mac = wishes.mac.clone().or(interface.mac.take());
        // Only where the result has it: that is one of 1.1.0.
        interface.mtu = interface.mtu.map(|mtu| wishes.mtu.unwrap_or(mtu));
    }
    Ok(())
}

/// The first difference of a link from what is wished.
fn difference(link: &Link, wishes: &Wishes) -> Result<Option<String>, CniError> {
    let wanted = wishes.mac.as_deref().map(mac).transpose()?;
    let differs = [
        (wanted.is_some() && link.mac != wanted, "hardware address"),
        (link.promiscuous != wishes.promisc, "promiscuous mode"),
        (wishes.mtu.is_some_and(|mtu| mtu != link.mtu), "MTU"),
        (wishes.allmulti.is_some_and(|on| on != link.all_multicast), "all-multicast mode"),
        (wishes.tx_queue.is_some_and(|n| n != link.transmit_queue), "transmit queue"),
    ];
    Ok(differs.iter().find(|(differs, _)| *differs).map(|(_, what)| (*what).to_owned()))
}

impl Plugin for Tuning {
    fn name(&self) -> &'static str {
        "tuning"
    }

    fn add(&self, request: &Request) -> Result<CniResult, CniError> {
        let wishes = Wishes::of(request)?;
        wishes.allowed()?;
        let mut result = request.need_prev_result()?.clone();
        add(request, &wishes, &mut result)?;
        Ok(result)
    }

    fn del(&self, request: &Request) -> Result<(), CniError> {
        kept::give_back(request, &wishes::data_dir(request))
    }

    fn check(&self, request: &Request) -> Result<(), CniError> {
        let wishes = Wishes::of(request)?;
        request.need_prev_result()?;
        let (netns, mut pod) = inside::open(request)?;
        let differs = |what: String| Err(CniError::new(Code::Internal, what));
        for (key, value) in &wishes.sysctls {
            let now = netns.run(|| sysctl::read(key))??;
            // The kernel has tabs between numbers.
            if now.split_whitespace().ne(value.split_whitespace()) {
                return differs(format!("sysctl {key} is {now}, not {value}"));
            }
        }
        let ifname = &request.env.ifname;
        let Some(link) = pod.find_link(ifname)? else { return differs(format!("link {ifname} is gone")) };
        match difference(&link, &wishes)? {
            Some(what) => differs(format!("the {what} of {ifname} is not as configured")),
            None => Ok(()),
        }
    }

    fn gc(&self, request: &Request) -> Result<(), CniError> {
        kept::forget_stale(request, &wishes::data_dir(request))
    }

    fn status(&self, request: &Request) -> Result<(), CniError> {
        Wishes::of(request)?.allowed()
    }
}
