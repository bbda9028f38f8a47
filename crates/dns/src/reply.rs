//! Answers as messages.

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::SOA;
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder};

use crate::answer::{Domain, TTL};

/// The most that is sent in one datagram, bytes: what passes every link in one piece (DNS flag day 2020).
const DATAGRAM: u16 = 1232;
/// What fits in a datagram when the client says nothing (RFC 1035, 4.2.1).
const PLAIN_DATAGRAM: u16 = 512;

/// Why a question is not looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// It is no question: whoever sent it gets no reply.
    Silence,
    /// It gets this code.
    Code(ResponseCode),
}

/// The one question of a message.
///
/// # Errors
/// [`Unanswered`] for what is no question that a name server of this kind answers.
pub fn question(message: &Message) -> Result<&Query, Unanswered> {
    if message.metadata.message_type == MessageType::Response {
        return Err(Unanswered::Silence);
    }
    if message.metadata.op_code != OpCode::Query {
        return Err(Unanswered::Code(ResponseCode::NotImp));
    }
    let [question] = message.queries.as_slice() else {
        return Err(Unanswered::Code(ResponseCode::FormErr));
    };
    if message.edns.as_ref().is_some_and(|edns| edns.version() > 0) {
        return Err(Unanswered::Code(ResponseCode::BADVERS));
    }
    if question.query_class() != DNSClass::IN
        || matches!(question.query_type(), RecordType::AXFR | RecordType::IXFR)
    {
        return Err(Unanswered::Code(ResponseCode::Refused));
    }
    Ok(question)
}

/// A reply to a message, without records.
#[must_use]
pub fn reply(to: &Message, code: ResponseCode) -> Message {
    let mut message = Message::error_msg(to.metadata.id, to.metadata.op_code, code);
    message.metadata.recursion_desired = to.metadata.recursion_desired;
    message.metadata.recursion_available = true;
    message.metadata.checking_disabled = to.metadata.checking_disabled;
    message.add_queries(to.queries.iter().cloned());
    message.edns = edns(to);
    message
}

/// What of EDNS a reply carries: nothing to who sent nothing.
fn edns(to: &Message) -> Option<Edns> {
    let asked = to.edns.as_ref()?;
    let mut edns = Edns::new();
    edns.set_max_payload(DATAGRAM).set_version(0).set_dnssec_ok(asked.flags().dnssec_ok);
    Some(edns)
}

/// A reply with the authority of the zone; with its SOA record where there is no answer, so that this may be kept.
#[must_use]
pub fn authoritative(to: &Message, code: ResponseCode, domain: &Domain, answers: Vec<Record>) -> Message {
    let mut message = reply(to, code);
    message.metadata.authoritative = true;
    if answers.is_empty() {
        message.add_authority(authority(domain));
    }
    message.insert_answers(answers);
    message
}

/// The zone's SOA record.
#[must_use]
pub fn authority(domain: &Domain) -> Record {
    let person = domain.name.prepend_label("hostmaster").unwrap_or_else(|_| domain.name.clone());
    let minimum = TTL;
    let data = SOA::new(domain.server(), person, 1, 7200, 1800, 86400, minimum);
    Record::from_rdata(domain.name.clone(), TTL, RData::SOA(data))
}

/// Turns the addresses among the answers round by `by` places, so that clients that take the first one share the load.
pub fn turn(answers: &mut [Record], by: usize) {
    let is_address = |record: &Record| matches!(record.record_type(), RecordType::A | RecordType::AAAA);
    let Some(first) = answers.iter().position(is_address) else { return };
    let count = answers[first..].iter().take_while(|record| is_address(record)).count();
    answers[first..first + count].rotate_left(by % count.max(1));
}

/// How long a reply over UDP may be, bytes.
#[must_use]
pub fn datagram(to: &Message) -> u16 {
    to.edns.as_ref().map_or(PLAIN_DATAGRAM, |edns| edns.max_payload().clamp(PLAIN_DATAGRAM, DATAGRAM))
}

/// The bytes of a message, at most `limit` of them: what does not fit is left out, and the message says so.
#[must_use]
pub fn encode(message: &Message, limit: u16) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    let mut encoder = BinEncoder::new(&mut bytes);
    encoder.set_max_size(limit);
    if message.emit(&mut encoder).is_ok() {
        return bytes;
    }
    let failed = Message::error_msg(message.metadata.id, message.metadata.op_code, ResponseCode::ServFail);
    failed.to_vec().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use hickory_proto::rr::Name;
    use hickory_proto::rr::rdata::A;

    use super::*;

    fn asked(edns: Option<u16>) -> Message {
        let mut message = Message::query();
        message.add_query(Query::query(Name::from_ascii("web.").unwrap(), RecordType::A));
        message.edns = edns.map(|size| {
            let mut edns = Edns::new();
            edns.set_max_payload(size);
            edns
        });
        message
    }

    fn addresses(count: u8) -> Vec<Record> {
        let name = Name::from_ascii("web.").unwrap();
        (0..count)
            .map(|i| Record::from_rdata(name.clone(), 5, RData::A(A(Ipv4Addr::new(10, 0, 0, i)))))
            .collect()
    }

    #[test]
    fn what_does_not_fit_a_datagram_is_cut_and_says_so() {
        let domain = Domain::new("cluster.local").unwrap();
        for (edns, count, truncated) in
            [(None, 10, false), (None, 60, true), (Some(4096), 60, false), (Some(4096), 200, true)]
        {
            let query = asked(edns);
            let reply = authoritative(&query, ResponseCode::NoError, &domain, addresses(count));
            let limit = datagram(&query);
            let bytes = encode(&reply, limit);
            assert!(bytes.len() <= usize::from(limit));
            let read = Message::from_vec(&bytes).unwrap();
            assert_eq!(read.metadata.truncation, truncated, "{edns:?} {count}");
            assert_eq!(read.answers.len() == usize::from(count), !truncated);
            assert_eq!(
                Message::from_vec(&encode(&reply, u16::MAX)).unwrap().answers.len(),
                usize::from(count)
            );
        }
    }

    #[test]
    fn addresses_take_turns_behind_the_alias() {
        let first = |by: usize| {
            let mut answers = addresses(3);
            turn(&mut answers, by);
            answers[0].data.clone()
        };
        assert_ne!(first(0), first(1));
        assert_eq!(first(0), first(3));
        turn(&mut [], 7);
    }

    #[test]
    fn what_is_no_question_is_refused_by_its_kind() {
        let code = |change: fn(&mut Message)| {
            let mut message = asked(Some(1232));
            change(&mut message);
            question(&message).err()
        };
        assert_eq!(code(|_| {}), None);
        assert_eq!(code(|m| m.metadata.message_type = MessageType::Response), Some(Unanswered::Silence));
        assert_eq!(
            code(|m| m.metadata.op_code = OpCode::Notify),
            Some(Unanswered::Code(ResponseCode::NotImp))
        );
        assert_eq!(code(|m| m.queries.clear()), Some(Unanswered::Code(ResponseCode::FormErr)));
        let transfer = code(|m| m.queries[0].query_type = RecordType::AXFR);
        assert_eq!(transfer, Some(Unanswered::Code(ResponseCode::Refused)));
    }
}
