//! What other name servers answered, for as long as they allow it.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{RData, RecordType};

/// The most answers that are kept; the oldest go first. CoreDNS keeps 9,984 of each kind.
const MOST: usize = 10_000;
/// The longest that an answer is kept, as the usual configuration of CoreDNS has it.
const LONGEST: Duration = Duration::from_secs(30);
/// The shortest.
const SHORTEST: Duration = Duration::from_secs(5);

/// A question, without the case of its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// In lower case.
    pub name: String,
    /// Of which records.
    pub kind: RecordType,
    /// Whether signatures are wanted, and whether unchecked answers are.
    pub flags: (bool, bool),
}

impl Question {
    /// The question of a message that has one.
    #[must_use]
    pub fn of(message: &Message) -> Option<Self> {
        let query = message.queries.first()?;
        let signed = message.edns.as_ref().is_some_and(|edns| edns.flags().dnssec_ok);
        Some(Self {
            name: query.name().to_ascii().to_lowercase(),
            kind: query.query_type(),
            flags: (signed, message.metadata.checking_disabled),
        })
    }
}

struct Kept {
    message: Message,
    since: Instant,
    until: Instant,
}

/// The answers.
#[derive(Default)]
pub struct Cache {
    kept: HashMap<Question, Kept>,
    /// In the order in which they came; some may be replaced already.
    order: VecDeque<(Question, Instant)>,
}

impl Cache {
    /// What was answered, with what is left of its time.
    #[must_use]
    pub fn get(&self, question: &Question, now: Instant) -> Option<Message> {
        let kept = self.kept.get(question).filter(|kept| now < kept.until)?;
        let mut message = kept.message.clone();
        let passed = u32::try_from(now.duration_since(kept.since).as_secs()).unwrap_or(u32::MAX);
        for records in [&mut message.answers, &mut message.authorities, &mut message.additionals] {
            for record in records {
                record.ttl = record.ttl.saturating_sub(passed);
            }
        }
        Some(message)
    }

    /// Keeps an answer, if it may be kept.
    pub fn put(&mut self, question: Question, message: &Message, now: Instant) {
        let Some(time) = lifetime(message) else { return };
        self.order.push_back((question.clone(), now));
        self.kept.insert(question, Kept { message: message.clone(), since: now, until: now + time });
        while self.order.len() > MOST {
            let Some((oldest, since)) = self.order.pop_front() else { return };
            if self.kept.get(&oldest).is_some_and(|kept| kept.since == since) {
                self.kept.remove(&oldest);
            }
        }
    }
}

/// How long an answer may be kept: as its records say, or the SOA record if there are none (RFC 2308).
fn lifetime(message: &Message) -> Option<Duration> {
    let code = message.metadata.response_code;
    if message.metadata.truncation || !matches!(code, ResponseCode::NoError | ResponseCode::NXDomain) {
        return None;
    }
    let seconds = match message.answers.iter().map(|record| record.ttl).min() {
        Some(shortest) => shortest,
        None => message.authorities.iter().find_map(|record| match &record.data {
            RData::SOA(soa) => Some(record.ttl.min(soa.minimum)),
            _ => None,
        })?,
    };
    Some(Duration::from_secs(seconds.into()).clamp(SHORTEST, LONGEST))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use hickory_proto::op::{OpCode, Query};
    use hickory_proto::rr::rdata::{A, SOA};
    use hickory_proto::rr::{Name, Record};

    use super::*;

    fn answered(name: &str, ttl: Option<u32>) -> Message {
        let name = Name::from_ascii(name).unwrap();
        let mut message = Message::response(1, OpCode::Query);
        message.add_query(Query::query(name.clone(), RecordType::A));
        if let Some(ttl) = ttl {
            message.add_answer(Record::from_rdata(name, ttl, RData::A(A(Ipv4Addr::LOCALHOST))));
        }
        message
    }

    fn question(name: &str) -> Question {
        Question::of(&answered(name, None)).unwrap()
    }

    #[test]
    fn an_answer_is_kept_for_its_time_and_ages() {
        let (mut cache, begin) = (Cache::default(), Instant::now());
        cache.put(question("a.test."), &answered("a.test.", Some(20)), begin);
        let at = |cache: &Cache, seconds: u64| {
            let now = begin + Duration::from_secs(seconds);
            cache.get(&question("A.Test."), now).map(|message| message.answers[0].ttl)
        };
        assert_eq!((at(&cache, 0), at(&cache, 7), at(&cache, 20)), (Some(20), Some(13), None));
        cache.put(question("a.test."), &answered("a.test.", Some(3600)), begin);
        assert_eq!((at(&cache, 29), at(&cache, 30)), (Some(3571), None));
    }

    #[test]
    fn that_a_name_is_not_there_is_kept_by_its_authority_and_failures_never() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        let mut missing = answered("a.test.", None);
        missing.metadata.response_code = ResponseCode::NXDomain;
        cache.put(question("a.test."), &missing, now);
        assert_eq!(cache.get(&question("a.test."), now), None, "nobody says for how long");
        let (zone, data) = (Name::from_ascii("test.").unwrap(), |name: &Name| {
            SOA::new(name.clone(), name.clone(), 1, 1, 1, 1, 8)
        });
        missing.add_authority(Record::from_rdata(zone.clone(), 3600, RData::SOA(data(&zone))));
        cache.put(question("a.test."), &missing, now);
        assert!(cache.get(&question("a.test."), now + Duration::from_secs(7)).is_some());
        assert!(cache.get(&question("a.test."), now + Duration::from_secs(8)).is_none());
        let mut failed = answered("b.test.", Some(60));
        failed.metadata.response_code = ResponseCode::ServFail;
        cache.put(question("b.test."), &failed, now);
        assert_eq!(cache.get(&question("b.test."), now), None);
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        for i in 0..=MOST {
            let name = format!("n{i}.test.");
            cache.put(question(&name), &answered(&name, Some(30)), now);
        }
        assert_eq!(cache.kept.len(), MOST);
        assert!(
            cache.get(&question("n0.test."), now).is_none()
                && cache.get(&question("n1.test."), now).is_some()
        );
    }
}
