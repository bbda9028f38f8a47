//! What each request passes: it gets seats, waits for them, or is refused.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::config::{Class, Config, GROUP, SOURCES};
use super::counts::AllCounts;
use super::seats::{Arrival, Reason, Seats, Ticket};
use super::shares::Level;
use super::width::{MOST, width};
use crate::access::attributes::Attributes;
use crate::access::follow::Follower;
use crate::metrics::Page;
use crate::registry::Registry;
use crate::user::User;

/// How long a request waits for a seat. Upstream: a quarter of the longest request.
const PATIENCE: Duration = Duration::from_secs(15);
/// When somebody refused may ask again, seconds.
const RETRY_AFTER: u32 = 1;
const SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Somebody who waits.
struct Waiter {
    class: Class,
    since: Instant,
    told: oneshot::Sender<Pass>,
}

/// Seats and counts.
#[derive(Default)]
pub(super) struct Shared {
    seats: Mutex<Seats<Waiter>>,
    pub counts: AllCounts,
}

impl Shared {
    fn seats(&self) -> MutexGuard<'_, Seats<Waiter>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The levels are these now. Who has lost its place asks again.
    pub(super) fn set(self: &Arc<Self>, levels: Vec<Level>) {
        let (homeless, begins) = {
            let mut seats = self.seats();
            (seats.set(levels), seats.dispatch())
        };
        drop(homeless);
        self.tell(begins);
    }

    fn leave(self: &Arc<Self>, ticket: &Ticket, took: Duration) {
        let begins = self.seats().leave(ticket, took);
        self.tell(begins);
    }

    fn tell(self: &Arc<Self>, begins: Vec<(Waiter, Ticket)>) {
        for (waiter, ticket) in begins {
            let pass = Pass::new(self, waiter.class, Some(ticket), waiter.since);
            // Who does not listen any more gives its seats back at once.
            drop(waiter.told.send(pass));
        }
    }
}

/// The seats of a request, given back when it is dropped.
pub struct Pass {
    shared: Arc<Shared>,
    class: Class,
    ticket: Option<Ticket>,
    since: Instant,
}

impl Pass {
    fn new(shared: &Arc<Shared>, class: Class, ticket: Option<Ticket>, arrived: Instant) -> Self {
        let since = Instant::now();
        class.schema.counts.begins(ticket.as_ref().map_or(1, |t| t.width), since - arrived);
        Self { shared: Arc::clone(shared), class, ticket, since }
    }

    /// Says in an answer how the request was sorted.
    pub fn mark(&self, headers: &mut HeaderMap) {
        mark(&self.class, headers);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let took = self.since.elapsed();
        self.class.schema.counts.ends(self.ticket.as_ref().map_or(1, |t| t.width), took);
        if let Some(ticket) = &self.ticket {
            self.shared.leave(ticket, took);
        }
    }
}

fn mark(class: &Class, headers: &mut HeaderMap) {
    for (name, uid) in [(SCHEMA_UID, &class.schema.uid), (LEVEL_UID, &class.level.uid)] {
        if let Ok(uid) = HeaderValue::from_str(uid) {
            headers.insert(name, uid);
        }
    }
}

/// A request for which there is no seat.
#[derive(Debug)]
pub struct Refused {
    class: Class,
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let text = "Too many requests, please try again later.\n";
        let mut response = (StatusCode::TOO_MANY_REQUESTS, text).into_response();
        response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER.into());
        mark(&self.class, response.headers_mut());
        response
    }
}

/// Takes back its place in a queue when the request is given up.
struct Waiting<'a> {
    shared: &'a Shared,
    class: &'a Class,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.seats().give_up(&self.class.level.name, self.number);
        self.class.schema.counts.waits(-1);
    }
}

/// Gives requests their seats.
pub struct Protection {
    registry: Arc<Registry>,
    /// Requests that come to an end by themselves.
    working: TaskTracker,
    config: Follower<Config>,
    shared: Arc<Shared>,
}

impl Protection {
    /// Follows FlowSchemas and PriorityLevelConfigurations.
    #[must_use]
    pub fn start(registry: Arc<Registry>) -> Self {
        let shared = Arc::new(Shared::default());
        let sources = SOURCES.map(|plural| {
            let scope = format!("/{GROUP}/{plural}/");
            let prefix = registry.cache().prefix(&scope);
            (scope, prefix)
        });
        let config = Follower::start(sources.into(), Config::new(Arc::clone(&shared)));
        Self { registry, working: TaskTracker::new(), config, shared }
    }

    /// Holds up [`Self::drained`] until it is dropped.
    pub fn working(&self) -> TaskTrackerToken {
        self.working.token()
    }

    /// Returns when no request is answered any more that comes to an end by itself.
    pub async fn drained(&self) {
        self.working.close();
        self.working.wait().await;
    }

    /// Lets a request in when there is a seat for it; `None` if no schema takes it, and nothing holds it up.
    ///
    /// # Errors
    /// [`Refused`] if there is none, and none becomes free in time.
    pub async fn enter(
        &self,
        user: &User,
        wanted: &Attributes,
        query: &str,
    ) -> Result<Option<Pass>, Refused> {
        let arrived = Instant::now();
        loop {
            let Some(class) = self.config.with(|config| config.classify(user, wanted)) else {
                return Ok(None);
            };
            if class.level.exempt {
                return Ok(Some(Pass::new(&self.shared, class, None, arrived)));
            }
            let level = class.level.name.as_str();
            let width = width(&self.registry, wanted, query, || self.shared.seats().widest(level, MOST));
            let (told, hears) = oneshot::channel();
            let waiter = Waiter { class: class.clone(), since: arrived, told };
            let arrival = self.shared.seats().arrive(level, class.flow, width, waiter);
            let reason = match arrival {
                Arrival::Sits(ticket) => {
                    return Ok(Some(Pass::new(&self.shared, class, Some(ticket), arrived)));
                }
                Arrival::Refused(reason) => reason,
                Arrival::Waits(number) => {
                    class.schema.counts.waits(1);
                    let waiting = Waiting { shared: &self.shared, class: &class, number };
                    let heard = tokio::time::timeout(PATIENCE.saturating_sub(arrived.elapsed()), hears).await;
                    drop(waiting);
                    match heard {
                        Ok(Ok(pass)) => return Ok(Some(pass)),
                        // Its level has changed.
                        Ok(Err(_)) => continue,
                        Err(_) => Reason::TimeOut,
                    }
                }
            };
            class.schema.counts.refuses(reason);
            return Err(Refused { class });
        }
    }

    /// Writes what is counted.
    pub fn show(&self, page: &mut Page) {
        let loads = self.shared.seats().loads();
        self.shared.counts.show(page, &loads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::follow::Derive;
    use crate::flow_defaults;
    use crate::registry::text;
    use trine_store::Object;
    use trine_store::cache::Decoded;

    #[test]
    fn a_request_is_sorted_and_seated_in_microseconds() {
        let shared = Arc::new(Shared::default());
        let mut config = Config::new(Arc::clone(&shared));
        for (source, objects) in [flow_defaults::schemas(), flow_defaults::levels()].iter().enumerate() {
            for object in objects {
                let decoded = Decoded { json: object.to_string().into(), ..Decoded::default() };
                let stored = Object { key: "k".into(), revision: 1, decoded };
                config.put(source, text(&object["metadata"]["name"]), &stored);
            }
        }
        let user = User::new("system:serviceaccount:default:a", &["system:serviceaccounts"]);
        let wanted = Attributes::of("get", "", "pods", "default", "p");
        let count = 20_000;
        let begun = Instant::now();
        for _ in 0..count {
            let class = config.classify(&user, &wanted).unwrap();
            let waiter = Waiter { class: class.clone(), since: begun, told: oneshot::channel().0 };
            let arrival = shared.seats().arrive(&class.level.name, class.flow, 1, waiter);
            let Arrival::Sits(ticket) = arrival else { panic!("{arrival:?}") };
            drop(Pass::new(&shared, class, Some(ticket), begun));
        }
        let each = begun.elapsed() / count;
        println!("{each:?} each");
        // Of a build without optimisation on a busy machine.
        assert!(each < Duration::from_micros(500), "{each:?}");
        assert!(shared.seats().loads().iter().all(|(_, _, used, waiting)| (*used, *waiting) == (0, 0)));
    }
}
