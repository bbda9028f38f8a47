//! The way of the controllers to the API server, on which things go wrong.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyDataStream, BodyExt, Full, StreamBody};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};
use trine_apiserver::http::serve::InProcess;
use trine_typed::kube::client::Body;

use crate::dice::Dice;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Request = http::Request<Body>;
type Answer = UnsyncBoxBody<Bytes, BoxError>;
type Response = http::Response<Answer>;

/// How often what goes wrong.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rates {
    /// The server refuses for the moment (429, 500, 503), and does nothing.
    pub refused: f64,
    /// The request does not arrive.
    pub dropped: f64,
    /// It is done, and the answer is lost.
    pub lost: f64,
    /// It is done, and the server says that it took too long (504).
    pub late: f64,
    /// A change is refused because somebody else was faster (409).
    pub conflict: f64,
    /// A piece of a watch does not come, and the watch breaks.
    pub cut: f64,
    /// A watch is told that it is too far behind (410).
    pub expired: f64,
    /// The longest time that a request takes, each way.
    pub latency: Duration,
}

/// What goes wrong at present.
pub struct Faults {
    dice: Dice,
    state: Mutex<State>,
}

struct State {
    rates: Rates,
    /// Until when watches of a resource tell nothing.
    frozen: HashMap<String, Instant>,
    /// Whose requests are heard.
    alive: u32,
}

enum Fate {
    Done,
    Refused(u16),
    Dropped,
    Lost,
    Late,
}

impl Faults {
    /// None yet.
    pub fn new(dice: Dice) -> Self {
        let state = State { rates: Rates::default(), frozen: HashMap::new(), alive: 0 };
        Self { dice, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on things go wrong so often.
    pub fn set(&self, rates: Rates) {
        self.state().rates = rates;
    }

    /// Watches of a resource tell nothing for a time.
    pub fn freeze(&self, resource: &str, time: Duration) {
        self.state().frozen.insert(resource.to_owned(), Instant::now() + time);
    }

    /// All watches tell what they have.
    pub fn thaw(&self) {
        self.state().frozen.clear();
    }

    /// Only requests of this life of the controllers are heard from now on: the others are dead.
    pub fn live(&self, life: u32) {
        self.state().alive = life;
    }

    fn is_alive(&self, life: u32) -> bool {
        self.state().alive == life
    }

    fn fate(&self, request: &http::request::Parts) -> (Fate, Duration, Duration) {
        let rates = self.state().rates;
        let dice = &self.dice;
        let (before, after) = (dice.time(rates.latency), dice.time(rates.latency));
        let changes = request.method == http::Method::PUT || request.method == http::Method::PATCH;
        let fate = if dice.chance(rates.refused) {
            Fate::Refused(*dice.pick(&[429, 500, 503]).unwrap_or(&503))
        } else if dice.chance(rates.dropped) {
            Fate::Dropped
        } else if dice.chance(rates.lost) {
            Fate::Lost
        } else if dice.chance(rates.late) {
            Fate::Late
        } else if changes && dice.chance(rates.conflict) {
            Fate::Refused(409)
        } else {
            Fate::Done
        };
        (fate, before, after)
    }
}

/// The way of one user in one life of the controllers.
#[derive(Clone)]
pub struct Way {
    /// The server.
    pub server: InProcess,
    /// What goes wrong.
    pub faults: Arc<Faults>,
    /// In which life.
    pub life: u32,
}

impl tower::Service<Request> for Way {
    type Response = Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let way = self.clone();
        Box::pin(async move { way.carry(request).await })
    }
}

impl Way {
    async fn carry(mut self, request: Request) -> Result<Response, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        if parts.uri.path().contains("/events") && parts.method != http::Method::GET {
            // What is told is no part of the model.
            return Ok(http::Response::builder().status(201).body(whole(body))?);
        }
        let resource = resource(parts.uri.path()).to_owned();
        let watches = parts.uri.query().is_some_and(|query| query.contains("watch=true"));
        let (fate, before, after) = self.faults.fate(&parts);
        sleep(before).await;
        if !self.faults.is_alive(self.life) || matches!(fate, Fate::Dropped) {
            return Err("the request was lost".into());
        }
        if let Fate::Refused(code) = fate {
            return refusal(code);
        }
        let answer =
            tower::Service::call(&mut self.server, http::Request::from_parts(parts, Full::new(body)));
        let Ok(answer) = answer.await;
        sleep(after).await;
        match fate {
            _ if !self.faults.is_alive(self.life) => Err("the answer was lost".into()),
            Fate::Lost => Err("the answer was lost".into()),
            Fate::Late => refusal(504),
            _ if watches => Ok(answer.map(|body| self.watched(resource, body))),
            _ => Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync())),
        }
    }

    /// A watch that may be late, or break.
    fn watched<B>(self, resource: String, body: B) -> Answer
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let pieces = stream::unfold(Some((self, BodyDataStream::new(body))), move |state| {
            let resource = resource.clone();
            async move {
                let (way, mut body) = state?;
                let piece = body.next().await?.map_err(Into::into);
                way.hold_up(&resource).await;
                if !way.faults.is_alive(way.life) {
                    return Some((Err("the watch was lost".into()), None));
                }
                let rates = way.faults.state().rates;
                if way.faults.dice.chance(rates.cut) {
                    return Some((Err("the watch was lost".into()), None));
                }
                if way.faults.dice.chance(rates.expired) {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "message": "too old resource version", "reason": "Expired", "code": 410});
                    let line = format!("{}\n", json!({"type": "ERROR", "object": status}));
                    return Some((Ok(Bytes::from(line)), None));
                }
                Some((piece, Some((way, body))))
            }
        });
        StreamBody::new(pieces.map(|piece: Result<Bytes, BoxError>| piece.map(Frame::data))).boxed_unsync()
    }

    /// Waits a little, and until the resource is not frozen.
    async fn hold_up(&self, resource: &str) {
        let (latency, until) = {
            let state = self.faults.state();
            (state.rates.latency, state.frozen.get(resource).copied())
        };
        sleep(self.faults.dice.time(latency)).await;
        if let Some(until) = until {
            sleep_until(until).await;
        }
    }
}

fn whole(bytes: Bytes) -> Answer {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// What the server says when it does not, or not in time, do what it was asked.
fn refusal(code: u16) -> Result<Response, BoxError> {
    let reason = match code {
        409 => "Conflict",
        429 => "TooManyRequests",
        500 => "InternalError",
        504 => "Timeout",
        _ => "ServiceUnavailable",
    };
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "made to fail", "reason": reason, "code": code});
    let answer = http::Response::builder().status(code).header("content-type", "application/json");
    Ok(answer.body(whole(status.to_string().into()))?)
}

/// The plural name in a path.
fn resource(path: &str) -> &str {
    let mut parts = path.trim_start_matches('/').split('/');
    let group = if parts.next() == Some("api") { 1 } else { 2 };
    let mut rest = parts.skip(group);
    match rest.next() {
        Some("namespaces") => rest.nth(1).unwrap_or("namespaces"),
        other => other.unwrap_or_default(),
    }
}
