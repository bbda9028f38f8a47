//! From the bytes of a question to the bytes of its answer.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Instant;

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::CNAME;
use hickory_proto::rr::{Name, RData, Record, RecordType};

use crate::answer::{Answer, Domain, TTL, answer};
use crate::cache::{Cache, Question};
use crate::forward::Forwarder;
use crate::reply::{self, Unanswered};
use crate::zone::Zone;

/// Aliases that are followed one after another within the cluster.
const ALIASES: usize = 8;
/// Bytes of a message before its question: enough to refuse it by its number.
const HEADER: usize = 12;

/// Answers questions.
pub struct Resolver {
    domain: Domain,
    zone: RwLock<Zone>,
    whole: AtomicBool,
    cache: Mutex<Cache>,
    forwarder: Forwarder,
    turn: AtomicUsize,
}

/// What was found without asking anybody.
pub enum Found {
    /// These bytes are the reply; none means silence.
    Reply(Option<Vec<u8>>),
    /// Others have to be asked.
    Ask(Box<Message>),
}

/// How long a reply may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// As the client says.
    Datagram,
    /// As long as the format allows.
    Stream,
}

impl Transport {
    fn limit(self, query: &Message) -> u16 {
        match self {
            Self::Datagram => reply::datagram(query),
            Self::Stream => u16::MAX,
        }
    }
}

impl Resolver {
    /// A resolver that knows nothing yet.
    pub fn new(domain: Domain, resolv_conf: PathBuf, own: SocketAddr) -> Self {
        Self::with(domain, Forwarder::new(resolv_conf, own))
    }

    /// A resolver that asks these.
    #[cfg(test)]
    pub fn to(domain: Domain, servers: Vec<SocketAddr>) -> Self {
        Self::with(domain, Forwarder::to(servers))
    }

    fn with(domain: Domain, forwarder: Forwarder) -> Self {
        Self {
            domain,
            zone: RwLock::default(),
            whole: AtomicBool::new(false),
            cache: Mutex::default(),
            forwarder,
            turn: AtomicUsize::new(0),
        }
    }

    /// Changes the zone.
    pub fn change(&self, change: impl FnOnce(&mut Zone)) {
        change(&mut self.zone.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// All lists have ended: what is not known is not there.
    pub fn whole(&self) {
        self.whole.store(true, Ordering::Relaxed);
    }

    /// The reply to a question that needs nobody else.
    pub fn find(&self, bytes: &[u8], transport: Transport) -> Found {
        let Ok(query) = Message::from_vec(bytes) else { return Found::Reply(unreadable(bytes)) };
        let question = match reply::question(&query) {
            Ok(question) => question,
            Err(Unanswered::Silence) => return Found::Reply(None),
            Err(Unanswered::Code(code)) => {
                return Found::Reply(Some(reply::encode(&reply::reply(&query, code), u16::MAX)));
            }
        };
        match self.local(&query, question.name(), question.query_type()) {
            Some(message) => Found::Reply(Some(reply::encode(&message, transport.limit(&query)))),
            None => Found::Ask(Box::new(query)),
        }
    }

    /// The reply to a question that others have to be asked about.
    pub async fn ask(&self, query: &Message, transport: Transport) -> Vec<u8> {
        let message = self.elsewhere(query).await;
        reply::encode(&message, transport.limit(query))
    }

    fn say(&self, name: &Name, kind: RecordType) -> Answer {
        answer(&self.zone.read().unwrap_or_else(PoisonError::into_inner), &self.domain, name, kind)
    }

    /// An answer out of the cluster alone.
    fn local(&self, query: &Message, name: &Name, kind: RecordType) -> Option<Message> {
        let known = self.whole.load(Ordering::Relaxed);
        if !known && self.domain.holds(name) {
            return Some(reply::reply(query, ResponseCode::ServFail));
        }
        let authoritative = |code, answers| Some(reply::authoritative(query, code, &self.domain, answers));
        match self.say(name, kind) {
            Answer::Records { mut answers, additionals } => {
                reply::turn(&mut answers, self.turn.fetch_add(1, Ordering::Relaxed));
                let mut message = authoritative(ResponseCode::NoError, answers)?;
                message.insert_additionals(additionals);
                Some(message)
            }
            Answer::NoData => authoritative(ResponseCode::NoError, Vec::new()),
            Answer::NoName => authoritative(ResponseCode::NXDomain, Vec::new()),
            Answer::Alias(_) | Answer::Elsewhere => None,
        }
    }

    /// An answer for which others are asked: another name, or one behind an alias.
    async fn elsewhere(&self, query: &Message) -> Message {
        let Some(question) = query.queries.first() else {
            return reply::reply(query, ResponseCode::FormErr);
        };
        let (mut name, kind) = (question.name().clone(), question.query_type());
        let mut aliases = Vec::new();
        for _ in 0..ALIASES {
            let (code, answers) = match self.say(&name, kind) {
                Answer::Alias(target) => {
                    let data = RData::CNAME(CNAME(target.clone()));
                    aliases.push(Record::from_rdata(std::mem::replace(&mut name, target), TTL, data));
                    if kind != RecordType::CNAME {
                        continue;
                    }
                    (ResponseCode::NoError, Vec::new())
                }
                Answer::Elsewhere => return self.with_aliases(query, name, aliases).await,
                Answer::Records { answers, .. } => (ResponseCode::NoError, answers),
                Answer::NoData => (ResponseCode::NoError, Vec::new()),
                Answer::NoName => (ResponseCode::NXDomain, Vec::new()),
            };
            aliases.extend(answers);
            return reply::authoritative(query, code, &self.domain, aliases);
        }
        reply::reply(query, ResponseCode::ServFail)
    }

    /// What others say about `name`, behind the aliases that led to it.
    async fn with_aliases(&self, query: &Message, name: Name, aliases: Vec<Record>) -> Message {
        let mut asked = query.clone();
        asked.metadata.recursion_desired = true;
        asked.additionals.clear();
        asked.signature = None;
        for question in &mut asked.queries {
            question.set_name(name.clone());
        }
        let answered = self.remembered(&asked).await;
        let mut message = match answered {
            Some(answer) => {
                let mut message = reply::reply(query, answer.metadata.response_code);
                message.metadata.truncation = answer.metadata.truncation;
                message.answers = answer.answers;
                message.authorities = answer.authorities;
                message.additionals = answer.additionals;
                message
            }
            // An alias is an answer even if nobody knows what is behind it.
            None if aliases.is_empty() => reply::reply(query, ResponseCode::ServFail),
            None => reply::reply(query, ResponseCode::NoError),
        };
        message.metadata.authoritative = !aliases.is_empty();
        message.answers.splice(0..0, aliases);
        message
    }

    async fn remembered(&self, asked: &Message) -> Option<Message> {
        let question = Question::of(asked)?;
        let cache = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = cache().get(&question, Instant::now());
        if kept.is_some() {
            return kept;
        }
        let answer = self.forwarder.ask(asked).await?;
        cache().put(question, &answer, Instant::now());
        Some(answer)
    }
}

/// What is said to bytes that are no message: their sender may have a number in them, and a mistake to mend.
fn unreadable(bytes: &[u8]) -> Option<Vec<u8>> {
    let header = bytes.get(..HEADER)?;
    let is_reply = header[2] & 0x80 != 0;
    let id = u16::from_be_bytes([header[0], header[1]]);
    (!is_reply).then(|| Message::error_msg(id, OpCode::Query, ResponseCode::FormErr).to_vec().ok()).flatten()
}
