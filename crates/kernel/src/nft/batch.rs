//! A transaction: operations that are applied together or not at all.

use super::attr::{Head, Writer};
use super::expr::Rule;
use super::object::{Chain, Element, Family, SET_NAME, SET_TABLE, Set};

/// `NFNL_SUBSYS_NFTABLES`
pub(super) const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;

const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_CREATE: u16 = 0x400;
const NLM_F_APPEND: u16 = 0x800;

pub(super) const NEW_TABLE: u16 = 0;
const DEL_TABLE: u16 = 2;
pub(super) const NEW_CHAIN: u16 = 3;
const DEL_CHAIN: u16 = 5;
const NEW_RULE: u16 = 6;
const DEL_RULE: u16 = 8;
pub(super) const NEW_SET: u16 = 9;
const DEL_SET: u16 = 11;
pub(super) const NEW_ELEMENT: u16 = 12;
const DEL_ELEMENT: u16 = 14;

/// The elements of one message; an attribute's length has sixteen bits.
const CHUNK_BYTES: usize = 60_000;

/// Operations on the tables of one family, in order.
#[derive(Debug)]
pub struct Batch {
    family: Family,
    out: Writer,
    /// What each message is, for errors; the index is the message's sequence number less one.
    operations: Vec<String>,
    /// Where the last message starts.
    last: usize,
    sets: u32,
}

impl Batch {
    /// An empty transaction.
    #[must_use]
    pub fn new(family: Family) -> Self {
        let mut out = Writer::default();
        out.message(edge(BATCH_BEGIN, 0), |_| {});
        Self { family, out, operations: Vec::new(), last: 0, sets: 0 }
    }

    /// True if there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Bytes so far.
    #[must_use]
    pub fn size(&self) -> usize {
        self.out.len()
    }

    fn push(&mut self, kind: u16, flags: u16, operation: String, body: impl FnOnce(&mut Writer)) {
        self.operations.push(operation);
        self.last = self.out.len();
        let head = Head {
            kind: (SUBSYSTEM << 8) | kind,
            flags: NLM_F_REQUEST | flags,
            sequence: u32::try_from(self.operations.len()).unwrap_or(u32::MAX),
            family: self.family as u8,
            resource: 0,
        };
        self.out.message(head, body);
    }

    /// Makes a table; one that is there already stays.
    pub fn add_table(&mut self, table: &str) {
        self.push(NEW_TABLE, NLM_F_CREATE, format!("add table {table}"), |out| {
            out.text(1, table);
            out.u32(2, 0);
        });
    }

    /// Removes a table with all that is in it; an error if it is absent.
    pub fn delete_table(&mut self, table: &str) {
        self.push(DEL_TABLE, 0, format!("delete table {table}"), |out| out.text(1, table));
    }

    /// Leaves an empty table, whether it was there or not.
    pub fn replace_table(&mut self, table: &str) {
        self.add_table(table);
        self.delete_table(table);
        self.add_table(table);
    }

    /// Makes a chain; one that is there already stays.
    pub fn add_chain(&mut self, table: &str, chain: &Chain) {
        let operation = format!("add chain {table} {}", chain.name);
        self.push(NEW_CHAIN, NLM_F_CREATE, operation, |out| chain.write(table, out));
    }

    /// Removes a chain; an error if it is absent or still led to.
    pub fn delete_chain(&mut self, table: &str, chain: &str) {
        self.push(DEL_CHAIN, 0, format!("delete chain {table} {chain}"), |out| {
            out.text(1, table);
            out.text(3, chain);
        });
    }

    /// Removes all rules of a chain.
    pub fn flush_chain(&mut self, table: &str, chain: &str) {
        self.push(DEL_RULE, 0, format!("flush chain {table} {chain}"), |out| {
            out.text(1, table);
            out.text(2, chain);
        });
    }

    /// Adds a rule at a chain's end.
    pub fn add_rule(&mut self, table: &str, chain: &str, rule: &Rule) {
        let operation = match &rule.comment {
            Some(comment) => format!("add rule {table} {chain} ({comment})"),
            None => format!("add rule {table} {chain}"),
        };
        self.push(NEW_RULE, NLM_F_CREATE | NLM_F_APPEND, operation, |out| rule.write(table, chain, out));
    }

    /// Makes a set or map; one that is there already stays.
    pub fn add_set(&mut self, table: &str, set: &Set) {
        self.sets += 1;
        let id = self.sets;
        let operation = format!("add set {table} {}", set.name);
        self.push(NEW_SET, NLM_F_CREATE, operation, |out| set.write(table, id, out));
    }

    /// Removes a set; an error if it is absent or in use.
    pub fn delete_set(&mut self, table: &str, set: &str) {
        self.push(DEL_SET, 0, format!("delete set {table} {set}"), |out| {
            out.text(SET_TABLE, table);
            out.text(SET_NAME, set);
        });
    }

    /// Adds elements, as many messages as they need. A key that leads elsewhere already is an error.
    pub fn add_elements(&mut self, table: &str, set: &str, elements: &[Element]) {
        self.elements(NEW_ELEMENT, NLM_F_CREATE, "add elements to", table, set, elements);
    }

    /// Removes elements; an absent key is an error.
    pub fn delete_elements(&mut self, table: &str, set: &str, elements: &[Element]) {
        self.elements(DEL_ELEMENT, 0, "delete elements from", table, set, elements);
    }

    fn elements(&mut self, kind: u16, flags: u16, verb: &str, table: &str, set: &str, elements: &[Element]) {
        let mut rest = elements;
        while !rest.is_empty() {
            let mut written = 0;
            self.push(kind, flags, format!("{verb} {table} {set}"), |out| {
                out.text(1, table);
                out.text(2, set);
                out.nest(3, |out| {
                    let start = out.len();
                    for element in rest {
                        element.write(out);
                        written += 1;
                        if out.len() - start > CHUNK_BYTES {
                            break;
                        }
                    }
                });
            });
            rest = &rest[written..];
        }
    }

    /// Closes the transaction: the bytes to send and the number of the message that is answered on success.
    pub(super) fn finish(&mut self) -> (&[u8], u32) {
        self.out.add_flags(self.last, NLM_F_ACK);
        let last = u32::try_from(self.operations.len()).unwrap_or(u32::MAX);
        self.out.message(edge(BATCH_END, last.saturating_add(1)), |_| {});
        (self.out.bytes(), last)
    }

    /// What the message with this number was to do.
    pub(super) fn operation(&self, sequence: u32) -> String {
        let index = usize::try_from(sequence).unwrap_or(0).wrapping_sub(1);
        self.operations.get(index).cloned().unwrap_or_else(|| "the transaction".to_owned())
    }
}

fn edge(kind: u16, sequence: u32) -> Head {
    Head { kind, flags: NLM_F_REQUEST, sequence, family: 0, resource: SUBSYSTEM }
}
