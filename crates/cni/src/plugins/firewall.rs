//! `firewall`: who may reach a container's bridge. It is chained behind the plugin that made the link.
//!
//! ```text
//! forward ── from one bridge of ours to another, or to itself if it is isolated ─▶ dropped
//! ```
//! Keys: `ingressPolicy` (`open`, `same-bridge`, `isolated`), `instance` (part of the table's name). `backend`, `iptablesAdminChainName` and
//! `firewalldZone` are taken and mean nothing: nftables does it, no program is run.
//!
//! The reference also lets a container's packets through where the host's own chain drops what it does not know. In nftables
//! nobody's accept overrules another table's drop, so ours cannot; STATUS says so where a chain of the host's would drop them.
//! The bridges' entries go with the last container that asked for them; the reference leaves them.

use serde::Deserialize;
use trine_kernel::nft::{
    Batch, Chain, ChainKind, Element, Expr, Family, Field, Hook, MetaKey, Nft, Reg, Rule, Set, Verdict,
    concat,
};

use super::Plugin;
use super::owner::{self, Owner};
use crate::spec::{CniError, CniResult, Code, Request, Version};

/// The plugin.
pub struct Firewall;

/// Bridges with a policy.
const BRIDGES: &str = "bridges";
/// Bridges, twice each, whose ports may reach each other.
const SAME: &str = "same";
/// Owners and their bridges, with the policy.
const OWNERS: &str = "owners";
/// Before the filters of others.
const PRIORITY: i32 = -1;
/// Length of a link's name in the kernel, bytes.
const NAME: usize = 16;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    instance: String,
    ingress_policy: String,
}

/// Who may reach a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    Open,
    SameBridge,
    Isolated,
}

impl Config {
    fn of(request: &Request) -> Result<(Self, Policy), CniError> {
        if request.version < Version::V0_4_0 {
            let msg = format!("firewall does not speak version {}", request.version);
            return Err(CniError::new(Code::IncompatibleVersion, msg));
        }
        let config: Self = request.config()?;
        let policy = match config.ingress_policy.as_str() {
            "" | "open" => Policy::Open,
            "same-bridge" => Policy::SameBridge,
            "isolated" => Policy::Isolated,
            other => {
                let msg = format!("unknown ingress policy: {other:?}");
                return Err(CniError::new(Code::InvalidConfig, msg));
            }
        };
        Ok((config, policy))
    }

    fn table(&self) -> String {
        owner::table_name(&self.instance, "firewall")
    }
}

fn name(bridge: &str) -> Vec<u8> {
    let mut bytes = bridge.as_bytes().to_vec();
    bytes.resize(NAME, 0);
    bytes
}

/// One container's wish about a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wish {
    owner: Owner,
    bridge: Vec<u8>,
    isolated: bool,
}

impl Wish {
    fn key(&self) -> Vec<u8> {
        concat(&[&self.owner.0, &self.bridge, &u32::from(self.isolated).to_ne_bytes()])
    }

    fn read(element: &Element) -> Option<Self> {
        let key = &element.key;
        Some(Self {
            owner: Owner::read(key)?,
            bridge: key.get(16..32)?.to_vec(),
            isolated: *key.get(32..36)? != [0; 4],
        })
    }
}

/// The table for `wishes`, whole. There are as many elements as containers with a policy, so it is written anew each time.
fn write(batch: &mut Batch, table: &str, wishes: &[Wish]) {
    batch.replace_table(table);
    if wishes.is_empty() {
        batch.delete_table(table);
        return;
    }
    batch.add_set(table, &Set::new(BRIDGES, &[Field::Ifname]));
    batch.add_set(table, &Set::new(SAME, &[Field::Ifname, Field::Ifname]));
    batch.add_set(table, &Set::new(OWNERS, &[Field::Ipv6, Field::Ifname, Field::Mark]));
    batch.add_chain(table, &Chain::base("forward", ChainKind::Filter, Hook::Forward, PRIORITY));
    let key = |set: &str, reg| Expr::InSet { set: set.to_owned(), key: Reg(reg), absent: false };
    let names = || [Expr::Meta(MetaKey::IifName, Reg(0)), Expr::Meta(MetaKey::OifName, Reg(4))];
    let within = names().into_iter().chain([key(SAME, 0), Expr::Verdict(Verdict::Accept)]);
    let between = names().into_iter().chain([
        key(BRIDGES, 0),
        key(BRIDGES, 4),
        Expr::Counter,
        Expr::Verdict(Verdict::Drop),
    ]);
    batch.add_rule(table, "forward", &Rule::new(within));
    batch.add_rule(table, "forward", &Rule::new(between).comment("from one bridge to another"));
    let mut bridges: Vec<&Vec<u8>> = wishes.iter().map(|wish| &wish.bridge).collect();
    bridges.sort();
    bridges.dedup();
    // One container's wish to be isolated counts for its bridge.
    let isolated = |bridge: &Vec<u8>| wishes.iter().any(|wish| wish.bridge == *bridge && wish.isolated);
    let same: Vec<Element> =
        bridges.iter().filter(|b| !isolated(b)).map(|b| Element::key(concat(&[b, b]))).collect();
    let bridges: Vec<Element> = bridges.into_iter().map(|b| Element::key(b.clone())).collect();
    batch.add_elements(table, BRIDGES, &bridges);
    batch.add_elements(table, SAME, &same);
    batch.add_elements(table, OWNERS, &wishes.iter().map(|w| Element::key(w.key())).collect::<Vec<_>>());
}

/// Changes the wishes in the table; nothing is written if nothing changes.
fn change(table: &str, change: impl FnOnce(&mut Vec<Wish>)) -> Result<(), CniError> {
    let _lock = owner::lock_tables()?;
    let mut nft = Nft::open()?;
    let before = wishes(&mut nft, table)?;
    let mut after = before.clone();
    change(&mut after);
    if before == after {
        return Ok(());
    }
    let mut batch = Batch::new(Family::Inet);
    write(&mut batch, table, &after);
    Ok(nft.commit(batch)?)
}

fn wishes(nft: &mut Nft, table: &str) -> Result<Vec<Wish>, CniError> {
    if !nft.tables(Family::Inet)?.iter().any(|name| name == table) {
        return Ok(Vec::new());
    }
    Ok(nft.elements(Family::Inet, table, OWNERS)?.iter().filter_map(Wish::read).collect())
}

/// The bridge of a result: its first link.
fn bridge(request: &Request, result: &CniResult) -> Result<Vec<u8>, CniError> {
    let first = result.interfaces.first().map(|interface| interface.name.as_str()).unwrap_or_default();
    if first.is_empty() || first.len() >= NAME {
        let policy = request.config.get("ingressPolicy").cloned().unwrap_or_default();
        let msg = format!("interface needs to be set for ingress policy {policy}: chain it behind a bridge");
        return Err(CniError::new(Code::InvalidConfig, msg));
    }
    Ok(name(first))
}

/// The chain of the host's that drops what it does not know, if there is one.
fn dropping(nft: &mut Nft) -> Result<Option<String>, CniError> {
    for family in [Family::Ip, Family::Inet, Family::Ip6] {
        for table in nft.tables(family)? {
            let chains = nft.chains(family, &table)?;
            let drops = |chain: &&trine_kernel::nft::ChainInfo| {
                chain.drops && chain.base.as_ref().is_some_and(|(_, hook, _)| *hook == Hook::Forward as u32)
            };
            if let Some(chain) = chains.iter().find(drops) {
                return Ok(Some(format!("chain {} of table {table}", chain.name)));
            }
        }
    }
    Ok(None)
}

impl Plugin for Firewall {
    fn name(&self) -> &'static str {
        "firewall"
    }

    fn add(&self, request: &Request) -> Result<CniResult, CniError> {
        let (config, policy) = Config::of(request)?;
        let result = request.need_prev_result()?;
        if policy != Policy::Open {
            let wish = Wish {
                owner: Owner::of(request),
                bridge: bridge(request, result)?,
                isolated: policy == Policy::Isolated,
            };
            change(&config.table(), |wishes| {
                wishes.retain(|other| (other.owner, &other.bridge) != (wish.owner, &wish.bridge));
                wishes.push(wish);
            })?;
        }
        Ok(result.clone())
    }

    fn del(&self, request: &Request) -> Result<(), CniError> {
        let own = Owner::of(request);
        let config: Config = request.config()?;
        change(&config.table(), |wishes| wishes.retain(|wish| wish.owner != own))
    }

    fn check(&self, request: &Request) -> Result<(), CniError> {
        let (config, policy) = Config::of(request)?;
        let result = request.need_prev_result()?;
        if policy == Policy::Open {
            return Ok(());
        }
        let wanted = Wish {
            owner: Owner::of(request),
            bridge: bridge(request, result)?,
            isolated: policy == Policy::Isolated,
        };
        if wishes(&mut Nft::open()?, &config.table())?.contains(&wanted) {
            return Ok(());
        }
        Err(CniError::new(Code::Internal, "the bridge's policy is not in force"))
    }

    fn gc(&self, request: &Request) -> Result<(), CniError> {
        let config: Config = request.config()?;
        let stale = owner::stale(request)?;
        change(&config.table(), |wishes| wishes.retain(|wish| !stale(&wish.owner)))
    }

    fn status(&self, request: &Request) -> Result<(), CniError> {
        Config::of(request)?;
        match dropping(&mut Nft::open()?)? {
            None => Ok(()),
            Some(chain) => {
                let msg = format!(
                    "{chain} drops what is forwarded, unless it has a rule of its own for containers"
                );
                Err(CniError::new(Code::LimitedConnectivity, msg))
            }
        }
    }
}
