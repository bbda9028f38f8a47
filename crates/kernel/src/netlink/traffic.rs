//! Traffic control: token buckets, and frames that are led to another link before they are taken in.

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use super::{NetlinkError, Request, Route};

/// `TCA_OPTIONS`, with the mark of nested attributes.
const OPTIONS: u16 = 2 | NESTED;
const NESTED: u16 = 1 << 15;
/// `TC_H_ROOT`
const ROOT: TcHandle = TcHandle { major: 0xffff, minor: 0xffff };
/// `TC_H_INGRESS`
const INGRESS: TcHandle = TcHandle { major: 0xffff, minor: 0xfff1 };
/// The handle of the queue of what comes in: always this.
const INCOMING: TcHandle = TcHandle { major: 0xffff, minor: 0 };
/// Ticks of the kernel's packet scheduler per microsecond (`/proc/net/psched`: 64 ns a tick).
const TICKS_PER_MICROSECOND: f64 = 15.625;

/// A token bucket: frames leave at `rate`, after `burst` at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    /// Bytes a second.
    pub rate: u64,
    /// Bytes at once.
    pub burst: u32,
    /// Bytes that wait at most.
    pub limit: u32,
}

/// A token bucket as the kernel has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueInfo {
    /// Bytes a second.
    pub rate: u64,
    /// The burst, in ticks.
    pub buffer: u32,
    /// Bytes that wait at most.
    pub limit: u32,
}

impl TokenBucket {
    /// The burst in ticks: how long it takes at the rate.
    #[must_use]
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time of at most an hour, in microseconds"
    )]
    pub fn ticks(&self) -> u32 {
        let micros = (f64::from(self.burst) * 1e6 / self.rate.max(1) as f64).floor();
        (micros.min(f64::from(u32::MAX)) * TICKS_PER_MICROSECOND).min(f64::from(u32::MAX)) as u32
    }

    /// The request that has what leaves by the link `device` (an index) pass it.
    #[must_use]
    pub fn add(&self, device: u32) -> Request {
        // `struct tc_tbf_qopt`: two `struct tc_ratespec`, the limit, the buffer, the peak's buffer.
        let slow = u32::try_from(self.rate).unwrap_or(u32::MAX);
        let mut parms = vec![0, 1, 0, 0, 0, 0, 0, 0];
        parms.extend_from_slice(&slow.to_ne_bytes());
        parms.extend_from_slice(&[0; 12]);
        parms.extend_from_slice(&self.limit.to_ne_bytes());
        parms.extend_from_slice(&self.ticks().to_ne_bytes());
        parms.extend_from_slice(&[0; 4]);
        let mut options = attribute(TBF_PARMS, &parms);
        if u64::from(slow) < self.rate {
            options.extend(attribute(TBF_RATE64, &self.rate.to_ne_bytes()));
        }
        let object = format!("token bucket on link {device}");
        let mut message = message(device, TcHandle { major: 1, minor: 0 }, ROOT, "tbf");
        message.attributes.push(TcAttribute::Other(DefaultNla::new(OPTIONS, options)));
        let message = RouteNetlinkMessage::NewQueueDiscipline(message);
        Request::new("add", object, NLM_F_CREATE | NLM_F_EXCL, message)
    }
}

const TBF_PARMS: u16 = 1;
const TBF_RATE64: u16 = 4;
const U32_CLASSID: u16 = 1;
const U32_SEL: u16 = 5;
const U32_ACT: u16 = 7;
const ACT_KIND: u16 = 1;
const ACT_OPTIONS: u16 = 2;
const MIRRED_PARMS: u16 = 2;
/// `TC_ACT_STOLEN`
const STOLEN: u32 = 4;
/// `TCA_EGRESS_REDIR`
const REDIRECT: u32 = 1;

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn message(device: u32, handle: TcHandle, parent: TcHandle, kind: &str) -> TcMessage {
    let mut message = TcMessage::with_index(device.cast_signed());
    message.header.handle = handle;
    message.header.parent = parent;
    message.attributes.push(TcAttribute::Kind(kind.to_owned()));
    message
}

impl Request {
    /// Lets filters see what comes in by the link `device` (an index).
    #[must_use]
    pub fn add_incoming(device: u32) -> Self {
        let message = message(device, INCOMING, INGRESS, "ingress");
        let object = format!("queue of what comes in by link {device}");
        let message = RouteNetlinkMessage::NewQueueDiscipline(message);
        Self::new("add", object, NLM_F_CREATE | NLM_F_EXCL, message)
    }

    /// Leads all that comes in by the link `device` out by the link `to` instead (indices); behind [`Request::add_incoming`].
    #[must_use]
    pub fn redirect_incoming(device: u32, to: u32) -> Self {
        // `struct tc_mirred`: index, capab, action, refcnt, bindcnt, eaction, ifindex.
        let parms: Vec<u8> =
            [0, 0, STOLEN, 0, 0, REDIRECT, to].iter().flat_map(|n: &u32| n.to_ne_bytes()).collect();
        let mut action = attribute(ACT_KIND, b"mirred\0");
        action.extend(attribute(ACT_OPTIONS | NESTED, &attribute(MIRRED_PARMS, &parms)));
        // `struct tc_u32_sel` with one key that everything matches; TC_U32_TERMINAL.
        let mut selector = vec![1, 0, 1, 0];
        selector.extend_from_slice(&[0; 12]);
        selector.extend_from_slice(&[0; 16]);
        let mut options = attribute(U32_CLASSID, &0x0001_0001_u32.to_ne_bytes());
        options.extend(attribute(U32_SEL, &selector));
        options.extend(attribute(U32_ACT | NESTED, &attribute(1 | NESTED, &action)));
        let mut message = message(device, TcHandle::UNSPEC, INCOMING, "u32");
        // Priority 1 and ETH_P_ALL, in network order.
        message.header.info = (1 << 16) | u32::from(3u16.to_be());
        message.attributes.push(TcAttribute::Other(DefaultNla::new(OPTIONS, options)));
        let object = format!("filter from link {device} to link {to}");
        let message = RouteNetlinkMessage::NewTrafficFilter(message);
        Self::new("add", object, NLM_F_CREATE | NLM_F_EXCL, message)
    }
}

impl Route {
    /// The token bucket that what leaves by the link `device` (an index) passes, if there is one.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn token_bucket(&mut self, device: u32) -> Result<Option<QueueInfo>, NetlinkError> {
        let all = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(device.cast_signed()));
        let answers = self.dump(&Request::new("list", format!("queues of link {device}"), 0, all))?;
        Ok(answers.iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewQueueDiscipline(message)
                if message.header.index == device.cast_signed() =>
            {
                bucket(message)
            }
            _ => None,
        }))
    }
}

fn bucket(message: &TcMessage) -> Option<QueueInfo> {
    use netlink_packet_core::Nla;
    let is_tbf = message.attributes.iter().any(|a| matches!(a, TcAttribute::Kind(kind) if kind == "tbf"));
    if !is_tbf {
        return None;
    }
    let options = message.attributes.iter().find_map(|a| match a {
        TcAttribute::Options(options) => options.first(),
        _ => None,
    })?;
    let mut bytes = vec![0; options.value_len()];
    options.emit_value(&mut bytes);
    let find = |wanted: u16| {
        let mut rest = bytes.as_slice();
        while rest.len() >= 4 {
            let length = usize::from(u16::from_ne_bytes([rest[0], rest[1]]));
            let value = rest.get(4..length)?;
            if u16::from_ne_bytes([rest[2], rest[3]]) & !NESTED == wanted {
                return Some(value);
            }
            rest = rest.get(length.next_multiple_of(4)..)?;
        }
        None
    };
    let parms = find(TBF_PARMS)?;
    let number = |at: usize| Some(u32::from_ne_bytes(parms.get(at..at + 4)?.try_into().ok()?));
    let wide = find(TBF_RATE64).and_then(|value| Some(u64::from_ne_bytes(value.get(..8)?.try_into().ok()?)));
    Some(QueueInfo {
        rate: wide.filter(|rate| *rate > 0).unwrap_or(number(8)?.into()),
        limit: number(24)?,
        buffer: number(28)?,
    })
}
