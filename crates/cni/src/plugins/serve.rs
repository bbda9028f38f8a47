//! From a request to one of our plugins.

use serde_json::{Value, json};
use trine_kernel::netlink::NetlinkError;
use trine_kernel::netns::NetnsError;
use trine_kernel::sysctl::SysctlError;

use super::bandwidth::Bandwidth;
use super::bridge::Bridge;
use super::firewall::Firewall;
use super::host_device::HostDevice;
use super::host_local::HostLocal;
use super::loopback::Loopback;
use super::macvlan::Macvlan;
use super::portmap::Portmap;
use super::ptp::Ptp;
use super::routed::Routed;
use super::sbr::Sbr;
use super::static_addresses::Static;
use super::tap::Tap;
use super::tuning::Tuning;
use super::vlan::Vlan;
use super::vrf::Vrf;
use crate::spec::{ALL_VERSIONS, CniError, CniResult, Code, Command, Env, Request, Version};

/// A plugin. The runtime calls ADD once, then CHECK at any time, then DEL as often as it likes; GC and STATUS are
/// about the whole network.
pub trait Plugin: Sync {
    /// Its type.
    fn name(&self) -> &'static str;
    /// Attaches. A failed ADD leaves nothing behind.
    ///
    /// # Errors
    /// Why not.
    fn add(&self, request: &Request) -> Result<CniResult, CniError>;
    /// Detaches; absent is success, and the namespace may be gone.
    ///
    /// # Errors
    /// What is left.
    fn del(&self, request: &Request) -> Result<(), CniError>;
    /// Compares with the final result.
    ///
    /// # Errors
    /// The first difference.
    fn check(&self, request: &Request) -> Result<(), CniError>;
    /// Removes what belongs to none of the valid attachments.
    ///
    /// # Errors
    /// What is left.
    fn gc(&self, request: &Request) -> Result<(), CniError>;
    /// Would ADD work?
    ///
    /// # Errors
    /// Why not.
    fn status(&self, request: &Request) -> Result<(), CniError>;
}

/// All built-in plugins.
pub(super) static ALL: [&dyn Plugin; 16] = [
    &Loopback,
    &Routed,
    &Bridge,
    &Ptp,
    &Macvlan,
    &Vlan,
    &HostDevice,
    &Tap,
    &HostLocal,
    &Static,
    &Portmap,
    &Bandwidth,
    &Firewall,
    &Tuning,
    &Sbr,
    &Vrf,
];

/// The built-in plugin `kind`.
pub fn find(kind: &str) -> Option<&'static dyn Plugin> {
    ALL.into_iter().find(|plugin| plugin.name() == kind)
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// A runtime or a plugin in this process.
    InProcess,
    /// This process is the plugin, and ends with the answer.
    Program,
}

/// Answers one request.
///
/// # Errors
/// The contract's code and words.
pub fn serve(
    plugin: &dyn Plugin,
    env: &Env,
    config: Value,
    caller: Caller,
) -> Result<Option<Value>, CniError> {
    let command = env.command()?;
    if command == Command::Version {
        let supported: Vec<_> = ALL_VERSIONS.iter().map(|version| version.text()).collect();
        return Ok(Some(json!({"cniVersion": Version::NEWEST.text(), "supportedVersions": supported})));
    }
    let mut request = Request::new(env, config)?;
    request.in_daemon = caller == Caller::InProcess;
    let request = request;
    let needs = |has: bool| {
        if has {
            return Ok(());
        }
        let msg = format!("config version {} does not allow {}", request.version, command.text());
        Err(CniError::new(Code::IncompatibleVersion, msg))
    };
    match command {
        Command::Add => plugin.add(&request).map(|result| Some(result.to_json(request.version))),
        Command::Del => plugin.del(&request).map(|()| None),
        Command::Check => {
            needs(request.version.has_check())?;
            plugin.check(&request).map(|()| None)
        }
        Command::Gc => {
            needs(request.version.has_gc())?;
            // Nobody said who is to stay (`cnitool gc` does not): then nobody is to go.
            if !request.names_attachments() {
                return Ok(None);
            }
            plugin.gc(&request).map(|()| None)
        }
        Command::Status => {
            needs(request.version.has_gc())?;
            plugin.status(&request).map(|()| None)
        }
        Command::Version => Ok(None),
    }
}

/// The kernel was built without what is asked for (`errno.h`).
const EOPNOTSUPP: i32 = 95;

impl From<NetlinkError> for CniError {
    fn from(error: NetlinkError) -> Self {
        if error.errno() == Some(EOPNOTSUPP) {
            return Self::new(Code::NotAvailable, "the kernel has no such thing").because(error);
        }
        Self::new(Code::Internal, "a link, address or route could not be set up").because(error)
    }
}

impl From<NetnsError> for CniError {
    fn from(error: NetnsError) -> Self {
        let code = if error.is_absent() { Code::UnknownContainer } else { Code::InvalidNetns };
        Self::new(code, "the container's network namespace cannot be used").because(error)
    }
}

impl From<SysctlError> for CniError {
    fn from(error: SysctlError) -> Self {
        Self::new(Code::Internal, "a kernel setting could not be made").because(error)
    }
}
