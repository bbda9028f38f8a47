//! `host-device`: a device of the host's becomes the container's, and the host's again.
//!
//! Keys: one of `device`, `hwaddr`, `kernelpath`, `pciBusID`, or `runtimeConfig.deviceID` (PCI or auxiliary bus); `ipam`.
//! The device's alias is its name on the host for as long as it is away, as the reference has it. A device that came back by itself
//! (its container was gone before DEL) is found by that alias: GC and the next ADD give it its name again.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use trine_kernel::netlink::{Link, LinkChange, Mac, Route};
use trine_kernel::netns::Netns;
use trine_kernel::testing::failpoint;

use super::delegate::Ipam;
use super::{Plugin, inside};
use crate::invoke::Prefer;
use crate::spec::{CniError, CniResult, Code, Command, Interface, Request};

const PCI: &str = "/sys/bus/pci/devices";
const AUXILIARY: &str = "/sys/bus/auxiliary/devices";
/// Drivers whose devices are programs' and no links.
const USER_DRIVERS: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];

/// The plugin.
pub struct HostDevice;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    device: String,
    hwaddr: String,
    kernelpath: String,
    #[serde(rename = "pciBusID")]
    pci_bus_id: String,
    #[serde(rename = "runtimeConfig")]
    runtime_config: RuntimeConfig,
    #[serde(skip)]
    auxiliary: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RuntimeConfig {
    #[serde(rename = "deviceID")]
    device_id: String,
}

fn invalid(msg: impl Into<String>) -> CniError {
    CniError::new(Code::InvalidConfig, msg)
}

/// A name in a bus's folder: no way out of it.
fn on_bus(bus: &str, id: &str) -> Option<PathBuf> {
    (!id.contains('/') && id != "." && id != "..").then(|| Path::new(bus).join(id))
}

impl Config {
    fn of(request: &Request) -> Result<Self, CniError> {
        let mut config: Self = request.config()?;
        let id = config.runtime_config.device_id.clone();
        if !id.is_empty() {
            if on_bus(PCI, &id).is_some_and(|path| path.exists()) {
                config.pci_bus_id = id;
            } else if on_bus(AUXILIARY, &id).is_some_and(|path| path.exists()) {
                config.pci_bus_id.clear();
                config.auxiliary = id;
            } else {
                return Err(invalid(format!("device {id} of the runtime's is not found")));
            }
        }
        let given =
            [&config.device, &config.hwaddr, &config.kernelpath, &config.pci_bus_id, &config.auxiliary];
        if given.iter().all(|key| key.is_empty()) {
            return Err(invalid("specify either \"device\", \"hwaddr\", \"kernelpath\" or \"pciBusID\""));
        }
        Ok(config)
    }

    /// The device is a program's: there is no link to move.
    fn is_programs(&self) -> Result<bool, CniError> {
        if self.pci_bus_id.is_empty() {
            return Ok(false);
        }
        let path = on_bus(PCI, &self.pci_bus_id).ok_or_else(|| invalid("pciBusID holds a path"))?;
        let driver = std::fs::canonicalize(path.join("driver"))
            .map_err(|e| invalid(format!("device {} has no driver", self.pci_bus_id)).because(e))?;
        Ok(driver.file_name().is_some_and(|name| USER_DRIVERS.iter().any(|d| name == *d)))
    }

    fn find(&self, host: &mut Route) -> Result<Link, CniError> {
        let missing = |what: &str| invalid(format!("failed to find host device: {what}"));
        if !self.device.is_empty() {
            if let Some(link) = host.find_link(&self.device)? {
                return Ok(link);
            }
            return come_back(host, &self.device)?.ok_or_else(|| missing(&self.device));
        }
        if !self.hwaddr.is_empty() {
            let mac: Mac = self.hwaddr.parse().map_err(|e| invalid("hwaddr is none").because(e))?;
            let links = host.links()?;
            return links.into_iter().find(|l| l.mac == Some(mac)).ok_or_else(|| missing(&self.hwaddr));
        }
        let folder = self.folder()?;
        let entries =
            std::fs::read_dir(&folder).map_err(|e| missing(&folder.display().to_string()).because(e))?;
        let mut names: Vec<String> =
            entries.filter_map(Result::ok).filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        let name = names.first().ok_or_else(|| missing(&folder.display().to_string()))?;
        Ok(host.link(name)?)
    }

    /// Where the kernel names a device's links.
    fn folder(&self) -> Result<PathBuf, CniError> {
        if !self.kernelpath.is_empty() {
            let path = Path::new(&self.kernelpath);
            let inside = path.starts_with("/sys/devices/") && !self.kernelpath.contains("..");
            if !inside {
                return Err(invalid(format!(
                    "kernel device path {:?} must be absolute and begin with /sys/devices/",
                    self.kernelpath
                )));
            }
            return Ok(path.join("net"));
        }
        let (bus, id) =
            if self.auxiliary.is_empty() { (PCI, &self.pci_bus_id) } else { (AUXILIARY, &self.auxiliary) };
        let device = on_bus(bus, id).ok_or_else(|| invalid("the device's id holds a path"))?;
        let net = device.join("net");
        if net.exists() {
            return Ok(net);
        }
        // A virtual device hangs below its bus's own.
        let below = std::fs::read_dir(&device).into_iter().flatten().filter_map(Result::ok);
        below
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("virtio"))
            .map(|entry| entry.path().join("net"))
            .find(|path| path.exists())
            .ok_or_else(|| invalid(format!("device {id} has no network links")))
    }
}

/// Gives a device whose alias says `name` that name again, if there is one.
fn come_back(host: &mut Route, name: &str) -> Result<Option<Link>, CniError> {
    let Some(link) = host.links()?.into_iter().find(|link| link.alias.as_deref() == Some(name)) else {
        return Ok(None);
    };
    tracing::info!(device = name, link = link.name, "a device that came back by itself has its name again");
    let change = LinkChange { up: Some(false), name: Some(name), alias: Some(""), ..LinkChange::default() };
    host.set_link(&link, &change)?;
    Ok(Some(host.link(name)?))
}

/// Moves a device of the host's into the container, under its name there. The kernel moves first and names then: if that fails, the
/// device is fetched back.
fn move_in(
    request: &Request,
    netns: &Netns,
    host: &mut Route,
    pod: &mut Route,
    link: &Link,
) -> Result<Link, CniError> {
    let ifname = &request.env.ifname;
    if pod.find_link(ifname)?.is_some() {
        let msg = format!("the container has a link {ifname} already");
        return Err(CniError::new(Code::InvalidEnvironment, msg));
    }
    host.set_link(link, &LinkChange { alias: Some(&link.name), ..LinkChange::default() })?;
    failpoint("device: marked");
    let change = LinkChange { netns: Some(netns.as_fd()), name: Some(ifname), ..LinkChange::default() };
    let moved = host.set_link(link, &change).and_then(|()| {
        failpoint("device: moved");
        pod.set_link(ifname, &LinkChange { up: Some(true), ..LinkChange::default() })?;
        pod.link(ifname)
    });
    moved.map_err(|e| {
        let ours = |other: &&Link| other.alias.as_ref() == Some(&link.name) && other.mac == link.mac;
        if let Some(away) = pod.links().ok().as_deref().and_then(|all| all.iter().find(ours)) {
            let _ = move_out(pod, away);
        }
        let back = LinkChange { up: Some(link.up), alias: Some(""), ..LinkChange::default() };
        let _ = host.set_link(&link.name, &back);
        e.into()
    })
}

/// Gives the container's link back to the calling thread's namespace, down, under the name that its alias says.
fn move_out(pod: &mut Route, link: &Link) -> Result<(), CniError> {
    let Some(name) = &link.alias else {
        let msg = format!("link {} does not say its name on the host", link.name);
        return Err(CniError::new(Code::Internal, msg));
    };
    let mut host = Route::open()?;
    if host.find_link(name)?.is_some() {
        let msg = format!("the host has another link {name}: {} stays in the container", link.name);
        return Err(CniError::new(Code::Internal, msg));
    }
    let here = Netns::current()?;
    let change =
        LinkChange { up: Some(false), netns: Some(here.as_fd()), name: Some(name), ..LinkChange::default() };
    pod.set_link(link, &change)?;
    failpoint("device: back");
    Ok(host.set_link(name, &LinkChange { alias: Some(""), ..LinkChange::default() })?)
}

impl Plugin for HostDevice {
    fn name(&self) -> &'static str {
        "host-device"
    }

    fn add(&self, request: &Request) -> Result<CniResult, CniError> {
        let config = Config::of(request)?;
        if config.is_programs()? {
            let given =
                Ipam::of(request, Prefer::Program).map_or_else(|| Ok(CniResult::default()), |i| i.add());
            return given.map(|mut given| {
                given.ips.iter_mut().for_each(|ip| ip.interface = Some(0));
                given.interfaces = vec![Interface {
                    name: request.env.ifname.clone(),
                    sandbox: Some(request.env.netns.clone()),
                    ..Interface::default()
                }];
                given.dns = request.dns().unwrap_or(given.dns);
                given
            });
        }
        let mut host = Route::open()?;
        inside::attach(
            request,
            |netns, pod| {
                let link = config.find(&mut host)?;
                move_in(request, netns, &mut host, pod, &link)
            },
            |_, pod, link| {
                let link = pod.link(link)?;
                move_out(pod, &link)
            },
        )
    }

    fn del(&self, request: &Request) -> Result<(), CniError> {
        // Whatever the configuration says now: what has come with an alias goes back by it.
        let link = inside::open_if_there(request).and_then(|there| match there {
            Some((_, mut pod)) => match pod.find_link(&request.env.ifname)? {
                Some(link) if link.alias.is_some() => move_out(&mut pod, &link),
                _ => Ok(()),
            },
            None => Ok(()),
        });
        let ipam = Ipam::of(request, Prefer::Program).map_or(Ok(()), |ipam| ipam.del());
        CniError::all(link.err().into_iter().chain(ipam.err()).collect())
    }

    fn check(&self, request: &Request) -> Result<(), CniError> {
        if Config::of(request)?.is_programs()? {
            request.need_prev_result()?;
            return Ok(());
        }
        inside::check(request, None).map(drop)
    }

    fn gc(&self, request: &Request) -> Result<(), CniError> {
        let config = Config::of(request)?;
        let mut host = Route::open()?;
        if !config.device.is_empty() && host.find_link(&config.device)?.is_none() {
            come_back(&mut host, &config.device)?;
        }
        inside::ask_ipam(request, Command::Gc)
    }

    fn status(&self, request: &Request) -> Result<(), CniError> {
        // The device may be some container's at this moment: that is no reason to call the network not available.
        Config::of(request)?;
        inside::ask_ipam(request, Command::Status)
    }
}
