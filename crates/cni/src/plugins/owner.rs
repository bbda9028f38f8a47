//! Whose something in a table of the kernel is, in sixteen bytes.

use std::fs::File;

use sha2::{Digest, Sha256};
use trine_kernel::nft::{Data, Element, NftError};

use crate::spec::{AttachmentId, CniError, Code, Request};

/// Whose something is: the first half names the network, the second the attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner(pub [u8; 16]);

impl Owner {
    /// The owner that an attachment is.
    pub fn new(network: &str, id: &AttachmentId) -> Self {
        let (one, two) = (short(network), short(&format!("{}/{}", id.container_id, id.ifname)));
        Self(std::array::from_fn(|i| if i < 8 { one[i] } else { two[i - 8] }))
    }

    /// The owner that the attachment of a request is.
    pub fn of(request: &Request) -> Self {
        Self::new(&request.network, &request.attachment())
    }

    /// From a key or a value.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self(bytes.get(..16)?.try_into().ok()?))
    }

    /// True if the attachment is one of that network.
    pub fn is_of(&self, network: [u8; 8]) -> bool {
        self.0[..8] == network
    }
}

fn short(text: &str) -> [u8; 8] {
    let digest = Sha256::digest(text);
    std::array::from_fn(|i| digest[i])
}

/// What the owners of a network begin with.
pub fn network(name: &str) -> [u8; 8] {
    short(name)
}

/// Who goes by GC: owners of the request's network that are none of the valid attachments.
///
/// # Errors
/// Without a list of those.
pub fn stale(request: &Request) -> Result<impl Fn(&Owner) -> bool + use<>, CniError> {
    let valid = request.valid_attachments()?;
    let kept: Vec<Owner> = valid.iter().map(|id| Owner::new(&request.network, id)).collect();
    let network = network(&request.network);
    Ok(move |owner: &Owner| owner.is_of(network) && !kept.contains(owner))
}

/// What is locked: the network namespace that the tables are in, so that no file stays behind.
const NAMESPACE: &str = "/proc/thread-self/ns/net";

/// No table of a plugin is changed in the calling thread's namespace for as long as this lives.
pub fn lock_tables() -> Result<File, CniError> {
    File::open(NAMESPACE)
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|e| CniError::new(Code::Io, format!("cannot lock {NAMESPACE}")).because(e))
}

/// The name of a table that an instance has for `what`; others' have none.
pub fn table_name(instance: &str, what: &str) -> String {
    if instance.is_empty() { format!("trine-{what}") } else { format!("trine-{instance}-{what}") }
}

/// The value of an element.
pub fn value(element: &Element) -> Option<&[u8]> {
    match element.data.as_ref()? {
        Data::Value(bytes) => Some(bytes),
        Data::Verdict(_) => None,
    }
}

impl From<NftError> for CniError {
    fn from(error: NftError) -> Self {
        Self::new(Code::Internal, "the host's tables of packets could not be changed").because(error)
    }
}
