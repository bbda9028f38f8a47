//! The same as an nftables table of one family. Pure.

use std::net::IpAddr;

use trine_kernel::nft::matches::{STATE_RELATED, address as field, behind, ct_bit, destination, source};
use trine_kernel::nft::{
    Batch, Chain as Table, ChainKind, CmpOp, CtDirection, CtKey, Element, Expr, Field, Hook, MetaKey, Reg,
    Rule, Set, SetFlags, Verdict, concat, octets,
};

use crate::plan::{Action, Chain, Content, From, Pass, To};
use crate::policy::{Direction, Proto};
use crate::ranges::bytes;

/// Addresses with themselves: a Pod always reaches itself.
const SELF: &str = "self";
/// Who begins is judged before who is reached. Both come behind the destination's translation and before the source's.
const EGRESS_PRIORITY: i32 = -10;
const INGRESS_PRIORITY: i32 = -9;

fn within(set: &str) -> Expr {
    Expr::InSet { set: set.to_owned(), key: Reg(0), absent: false }
}

fn map(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "isolated-ingress",
        Direction::Egress => "isolated-egress",
    }
}

/// Writes what every table has, in place of whatever is there under its name.
pub fn write_fixed(batch: &mut Batch, table: &str, v6: bool) {
    batch.replace_table(table);
    batch.add_set(table, &Set::new(SELF, &[field(v6), field(v6)]));
    for (direction, priority) in
        [(Direction::Egress, EGRESS_PRIORITY), (Direction::Ingress, INGRESS_PRIORITY)]
    {
        batch.add_set(table, &Set::vmap(map(direction), &[field(v6)]));
        let chain = direction.word();
        batch.add_chain(table, &Table::base(chain, ChainKind::Filter, Hook::Forward, priority));
        let own = match direction {
            Direction::Egress => source(v6, Reg(0)),
            Direction::Ingress => destination(v6, Reg(0)),
        };
        let accept = || Expr::Verdict(Verdict::Accept);
        let answer = [
            Expr::Ct { key: CtKey::Direction, direction: None, to: Reg(0) },
            Expr::Cmp(CmpOp::Eq, Reg(0), vec![CtDirection::Reply as u8]),
            accept(),
        ];
        let mut related = ct_bit(CtKey::State, STATE_RELATED, true);
        related.push(accept());
        let itself = [source(v6, Reg(0)), destination(v6, behind(v6, Reg(0))), within(SELF), accept()];
        let judge = [own, Expr::VerdictMap { map: map(direction).to_owned(), key: Reg(0) }];
        batch.add_rule(table, chain, &Rule::new(answer).comment("answers"));
        batch.add_rule(table, chain, &Rule::new(related).comment("errors of what was allowed"));
        batch.add_rule(table, chain, &Rule::new(itself).comment("a Pod to itself"));
        batch.add_rule(table, chain, &Rule::new(judge));
    }
}

fn is_proto(proto: Proto) -> [Expr; 2] {
    [Expr::Meta(MetaKey::L4Proto, Reg(0)), Expr::Cmp(CmpOp::Eq, Reg(0), vec![proto as u8])]
}

fn pass(direction: Direction, pass: &Pass, v6: bool) -> Rule {
    let mut exprs = Vec::new();
    if let From::Set(set) = &pass.from {
        exprs.push(match direction {
            Direction::Ingress => source(v6, Reg(0)),
            Direction::Egress => destination(v6, Reg(0)),
        });
        exprs.push(within(set));
    }
    match &pass.to {
        To::Any => {}
        To::All(proto) => exprs.extend(is_proto(*proto)),
        To::Numbers(proto, first, last) => {
            exprs.extend(is_proto(*proto));
            exprs.push(Expr::destination_port(Reg(0)));
            if first == last {
                exprs.push(Expr::Cmp(CmpOp::Eq, Reg(0), first.to_be_bytes().to_vec()));
            } else {
                exprs.push(Expr::Cmp(CmpOp::Ge, Reg(0), first.to_be_bytes().to_vec()));
                exprs.push(Expr::Cmp(CmpOp::Le, Reg(0), last.to_be_bytes().to_vec()));
            }
        }
        To::Set(set) => {
            exprs.extend([Expr::Meta(MetaKey::L4Proto, Reg(0)), Expr::destination_port(Reg(1)), within(set)]);
        }
        To::Named(proto, set) => {
            exprs.extend(is_proto(*proto));
            exprs.extend([destination(v6, Reg(0)), Expr::destination_port(behind(v6, Reg(0))), within(set)]);
        }
    }
    exprs.extend([Expr::Counter, Expr::Verdict(Verdict::Accept)]);
    Rule::new(exprs).comment(pass.comment.clone())
}

fn add_set(batch: &mut Batch, table: &str, name: &str, content: &Content, v6: bool) {
    let set = match content {
        Content::Pods(_) => Set::new(name, &[field(v6)]),
        Content::Named(_) => Set::new(name, &[field(v6), Field::Port]),
        Content::Ports(_) => Set::new(name, &[Field::Proto, Field::Port]),
        Content::Block(_) => {
            Set { flags: SetFlags { interval: true, ..SetFlags::default() }, ..Set::new(name, &[field(v6)]) }
        }
    };
    batch.add_set(table, &set);
    batch.add_elements(table, name, &elements(content, v6));
}

fn elements(content: &Content, v6: bool) -> Vec<Element> {
    match content {
        Content::Pods(members) => {
            let own = members.iter().filter(|member| member.0.is_ipv6() == v6);
            own.map(|member| Element::key(octets(member.0))).collect()
        }
        Content::Named(members) => {
            let own = members.iter().filter(|member| member.0.is_ipv6() == v6);
            own.map(|member| Element::key(concat(&[&octets(member.0), &member.1.to_be_bytes()]))).collect()
        }
        Content::Ports(ports) => {
            let key = |(proto, port): &(Proto, u16)| concat(&[&[*proto as u8], &port.to_be_bytes()]);
            ports.iter().map(|port| Element::key(key(port))).collect()
        }
        Content::Block(ranges) => {
            let end = if v6 { u128::MAX } else { u128::from(u32::MAX) };
            let range = |first: u128, last: u128| {
                Element::range(bytes(first, v6), (last < end).then(|| bytes(last + 1, v6)))
            };
            ranges.iter().flat_map(|r| range(r.first, r.last)).collect()
        }
    }
}

fn add_chain(batch: &mut Batch, table: &str, name: &str, chain: &Chain, v6: bool) {
    batch.add_chain(table, &Table::regular(name));
    match chain {
        Chain::Policy(direction, passes) => {
            passes.iter().for_each(|p| batch.add_rule(table, name, &pass(*direction, p, v6)));
        }
        Chain::Profile(policies) => {
            for policy in policies {
                batch.add_rule(table, name, &Rule::new([Expr::Verdict(Verdict::Jump(policy.clone()))]));
            }
            let refuse = Rule::new([Expr::Counter, Expr::Verdict(Verdict::Drop)]);
            batch.add_rule(table, name, &refuse.comment("no policy allows it"));
        }
    }
}

/// Writes changes in their order.
pub fn write_actions(batch: &mut Batch, table: &str, actions: &[Action], v6: bool) {
    let itself = |address: &IpAddr| Element::key(concat(&[&octets(*address), &octets(*address)]));
    let lead =
        |address: &IpAddr, chain: &str| Element::verdict(octets(*address), Verdict::Goto(chain.to_owned()));
    for action in actions {
        match action {
            Action::AddSet(name, content) => add_set(batch, table, name, content, v6),
            Action::RemoveMembers(name, content) => {
                batch.delete_elements(table, name, &elements(content, v6));
            }
            Action::AddMembers(name, content) => batch.add_elements(table, name, &elements(content, v6)),
            Action::AddChain(name, chain) => add_chain(batch, table, name, chain, v6),
            Action::Free(direction, address, chain) => {
                batch.delete_elements(table, map(*direction), &[lead(address, chain)]);
            }
            Action::Isolate(direction, address, chain) => {
                // It stays when the address is free: whoever has it next may reach itself, too.
                batch.add_elements(table, SELF, &[itself(address)]);
                batch.add_elements(table, map(*direction), &[lead(address, chain)]);
            }
            Action::RemoveChain(name) => {
                batch.flush_chain(table, name);
                batch.delete_chain(table, name);
            }
            Action::RemoveSet(name) => batch.delete_set(table, name),
        }
    }
}
