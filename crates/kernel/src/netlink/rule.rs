//! Rules: which table a packet's route is looked up in.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::addr::family;
use super::{Cidr, NetlinkError, Request, Route};

/// A rule for packets from a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceRule {
    /// Where packets come from.
    pub source: Cidr,
    /// The table that they are looked up in.
    pub table: u32,
    /// The lower, the earlier; the kernel's choice, before those that are there, if none.
    pub priority: Option<u32>,
}

impl SourceRule {
    fn message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = family(self.source.addr);
        message.header.src_len = self.source.len;
        message.header.action = RuleAction::ToTable;
        message.header.table = u8::try_from(self.table).unwrap_or(0);
        message.attributes.push(RuleAttribute::Source(self.source.addr));
        message.attributes.push(RuleAttribute::Table(self.table));
        message.attributes.extend(self.priority.map(RuleAttribute::Priority));
        message
    }

    fn words(&self) -> String {
        format!("from {} to table {}", self.source, self.table)
    }

    /// The request that adds it.
    #[must_use]
    pub fn add(&self) -> Request {
        let message = RouteNetlinkMessage::NewRule(self.message());
        Request::new("add rule", self.words(), NLM_F_CREATE | NLM_F_EXCL, message)
    }

    /// The request that removes it.
    #[must_use]
    pub fn del(&self) -> Request {
        Request::new("remove rule", self.words(), 0, RouteNetlinkMessage::DelRule(self.message()))
    }
}

/// A rule that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleInfo {
    /// The table that it leads to.
    pub table: u32,
    /// Where packets come from, if it says so.
    pub source: Option<Cidr>,
    /// Its priority.
    pub priority: u32,
}

impl Route {
    /// The rules of one family.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn rules(&mut self, v6: bool) -> Result<Vec<RuleInfo>, NetlinkError> {
        let mut message = RuleMessage::default();
        message.header.family = if v6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
        let message = RouteNetlinkMessage::GetRule(message);
        let answers = self.dump(&Request::new("list", "rules".to_owned(), 0, message))?;
        let rules = answers.iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRule(message) => Some(info(message)),
            _ => None,
        });
        Ok(rules.collect())
    }
}

fn info(message: &RuleMessage) -> RuleInfo {
    let mut info = RuleInfo { table: message.header.table.into(), source: None, priority: 0 };
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Source(addr) => {
                info.source = Some(Cidr { addr: *addr, len: message.header.src_len });
            }
            RuleAttribute::Table(table) => info.table = *table,
            RuleAttribute::Priority(priority) => info.priority = *priority,
            _ => {}
        }
    }
    info
}
