//! Links that pass nothing yet: what a network plugin and the engine of policies have agreed on. The plugin holds a new Pod's link
//! before it is of use, the engine lets it go when the Pod's policies are in force. Nothing is held where no engine has made
//! the table. The host reaches a held Pod as it reaches any: probes are not judged.

use std::io;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use super::batch::Batch;
use super::error::NftError;
use super::expr::{Expr, MetaKey, Reg, Rule, Verdict};
use super::object::{Chain, ChainKind, Element, Family, Field, Hook, Set};
use super::socket::Nft;

const SET: &str = "links";
const CHAIN: &str = "forward";
/// Before whoever judges what is forwarded.
const PRIORITY: i32 = -20;
/// Bytes of an interface's name with its end.
const NAME: usize = 16;

/// A link that passes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The host's end.
    pub link: String,
    /// The uid of the Pod behind it, as the kubelet has it.
    pub pod_uid: String,
    /// The Pod's addresses.
    pub addresses: Vec<IpAddr>,
}

/// The table of an instance.
#[must_use]
pub fn table_name(instance: &str) -> String {
    format!("trine-{instance}-held")
}

fn key(link: &str) -> Vec<u8> {
    let mut key = link.as_bytes().to_vec();
    key.resize(NAME, 0);
    key
}

impl Held {
    fn element(&self) -> Element {
        let words = std::iter::once(self.pod_uid.clone()).chain(self.addresses.iter().map(IpAddr::to_string));
        Element { comment: Some(words.collect::<Vec<_>>().join(" ")), ..Element::key(key(&self.link)) }
    }

    fn read(element: &Element) -> Self {
        let link = element.key.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut words = element.comment.as_deref().unwrap_or_default().split(' ');
        Self {
            link: String::from_utf8_lossy(link).into_owned(),
            pod_uid: words.next().unwrap_or_default().to_owned(),
            addresses: words.filter_map(|word| word.parse().ok()).collect(),
        }
    }
}

/// Holds a link from now on. False if there is no engine that would let it go.
///
/// # Errors
/// [`NftError`].
pub fn hold(instance: &str, held: &Held) -> Result<bool, NftError> {
    let (table, mut nft) = (table_name(instance), Nft::open()?);
    // A batch that fails waits for an RCU grace period, 13 ms of each Pod's start.
    if !nft.tables(Family::Inet)?.contains(&table) {
        return Ok(false);
    }
    let mut batch = Batch::new(Family::Inet);
    batch.add_elements(&table, SET, &[held.element()]);
    match nft.commit(batch) {
        Ok(()) => Ok(true),
        Err(error) if error.is_absent() => Ok(false),
        Err(error) => Err(error),
    }
}

impl Nft {
    /// Makes the table that links are held in; what is held in it already stays so.
    ///
    /// # Errors
    /// [`NftError`].
    pub fn prepare_held(&mut self, instance: &str) -> Result<(), NftError> {
        let table = table_name(instance);
        let mut batch = Batch::new(Family::Inet);
        batch.add_table(&table);
        batch.add_set(&table, &Set::new(SET, &[Field::Ifname]));
        batch.add_chain(&table, &Chain::base(CHAIN, ChainKind::Filter, Hook::Forward, PRIORITY));
        batch.flush_chain(&table, CHAIN);
        for name in [MetaKey::IifName, MetaKey::OifName] {
            let held = Expr::InSet { set: SET.to_owned(), key: Reg(0), absent: false };
            let rule =
                Rule::new([Expr::Meta(name, Reg(0)), held, Expr::Counter, Expr::Verdict(Verdict::Drop)]);
            batch.add_rule(&table, CHAIN, &rule.comment("a Pod whose policies are not in force yet"));
        }
        self.commit(batch)
    }

    /// The links that are held; none if there is no table.
    ///
    /// # Errors
    /// [`NftError`].
    pub fn held(&mut self, instance: &str) -> Result<Vec<Held>, NftError> {
        match self.elements(Family::Inet, &table_name(instance), SET) {
            Ok(elements) => Ok(elements.iter().map(Held::read).collect()),
            Err(error) if error.is_absent() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Lets a link go. One that is not held is success.
    ///
    /// # Errors
    /// [`NftError`].
    pub fn let_go(&mut self, instance: &str, link: &str) -> Result<(), NftError> {
        let mut batch = Batch::new(Family::Inet);
        batch.delete_elements(&table_name(instance), SET, &[Element::key(key(link))]);
        match self.commit(batch) {
            Err(error) if !error.is_absent() => Err(error),
            _ => Ok(()),
        }
    }
}

fn bell(instance: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("trine/{instance}/held"))
}

/// Tells the engine that something is held; in the calling thread's network namespace. One that does not listen looks by itself.
pub fn ring(instance: &str) {
    let rung = UnixDatagram::unbound().and_then(|socket| {
        socket.set_nonblocking(true)?;
        socket.send_to_addr(&[1], &bell(instance)?)
    });
    if let Err(error) = rung {
        tracing::debug!(%error, "nobody waits for held links");
    }
}

/// What [`ring`] is heard by, without blocking.
///
/// # Errors
/// If another process listens already.
pub fn listen(instance: &str) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::bind_addr(&bell(instance)?)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
