//! What a link had before it was tuned: `<dataDir>/<container>_<link>.json`, in the reference's form. Ours says the network besides,
//! so that GC of one network leaves another's alone.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trine_kernel::netlink::{Link, LinkChange};
use trine_kernel::testing::failpoint;

use super::mac;
use super::wishes::Wishes;
use crate::plugins::inside;
use crate::spec::{CniError, Code, Request};

/// What a link had.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kept {
    #[serde(skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    promisc: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allmulti: Option<bool>,
    #[serde(rename = "txQLen", skip_serializing_if = "Option::is_none")]
    tx_queue: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attachment: Option<crate::spec::AttachmentId>,
}

fn file(request: &Request, dir: &Path) -> PathBuf {
    dir.join(format!("{}_{}.json", request.env.container_id, request.env.ifname))
}

fn failed(call: &str, path: &Path) -> impl FnOnce(io::Error) -> CniError {
    let msg = format!("tuning: cannot {call} {}", path.display());
    move |e| CniError::new(Code::Io, msg).because(e)
}

impl Kept {
    /// What `wishes` would change.
    pub fn of(link: &Link, wishes: &Wishes) -> Self {
        Self {
            mac: wishes.mac.as_ref().and(link.mac).map(|mac| mac.to_string()),
            promisc: wishes.promisc.then_some(link.promiscuous),
            mtu: wishes.mtu.map(|_| link.mtu),
            allmulti: wishes.allmulti.map(|_| link.all_multicast),
            tx_queue: wishes.tx_queue.map(|_| link.transmit_queue),
            network: None,
            attachment: None,
        }
    }

    /// Keeps it. What is kept already stays: it is older.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub fn write(mut self, request: &Request, dir: &Path) -> Result<(), CniError> {
        self.network = Some(request.network.clone());
        self.attachment = Some(request.attachment());
        let path = file(request, dir);
        if path.exists() {
            return Ok(());
        }
        std::fs::create_dir_all(dir).map_err(failed("create", dir))?;
        let text = serde_json::to_vec_pretty(&self)
            .map_err(|e| CniError::new(Code::Internal, "what a link had cannot be written").because(e))?;
        trine_kernel::replace(&path, &path.with_extension("new"), &text).map_err(failed("write", &path))
    }
}

/// Gives a link back what it had, and forgets it. Absent is success; what cannot be read is nothing.
///
/// # Errors
/// What could not be set, or [`Code::Io`].
pub fn give_back(request: &Request, dir: &Path) -> Result<(), CniError> {
    let path = file(request, dir);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(failed("read", &path)(e)),
    };
    if let Ok(kept) = serde_json::from_slice::<Kept>(&text)
        && let Some((_, mut pod)) = inside::open_if_there(request)?
        && let Some(link) = pod.find_link(&request.env.ifname)?
    {
        let change = LinkChange {
            mac: kept.mac.as_deref().map(mac).transpose().unwrap_or_default(),
            promiscuous: kept.promisc,
            mtu: kept.mtu,
            all_multicast: kept.allmulti,
            transmit_queue: kept.tx_queue,
            ..LinkChange::default()
        };
        pod.set_link(&link, &change)?;
        failpoint("tuning: given back");
    }
    remove(&path)
}

fn remove(path: &Path) -> Result<(), CniError> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(e)),
        _ => Ok(()),
    }
}

/// Forgets what the request's network keeps for attachments that are not valid. Their links are gone.
///
/// # Errors
/// What is left.
pub fn forget_stale(request: &Request, dir: &Path) -> Result<(), CniError> {
    let valid = request.valid_attachments()?;
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(failed("list", dir)(e)),
    };
    let mut errors = Vec::new();
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        let kept = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Kept>(&text).ok());
        let Some(Kept { network: Some(network), attachment: Some(id), .. }) = kept else { continue };
        if network == request.network && !valid.contains(&id) {
            errors.extend(remove(&path).err());
        }
    }
    CniError::all(errors)
}
