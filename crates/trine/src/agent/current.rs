//! A client whose certificate or token is exchanged under it: each request goes out with the newest one. Until there is a
//! first one requests wait.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio::sync::watch;
use trine_typed::kube::Client;
use trine_typed::kube::client::Body;

/// The client that always uses the newest of those that `newest` gives.
#[must_use]
pub fn client(newest: watch::Receiver<Option<Client>>) -> Client {
    Client::new(Current { newest }, "default")
}

#[derive(Clone)]
struct Current {
    newest: watch::Receiver<Option<Client>>,
}

/// Why a request was not sent.
#[derive(Debug, thiserror::Error)]
#[error("nobody provides this client any more")]
struct Orphaned;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl tower::Service<Request<Body>> for Current {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut newest = self.newest.clone();
        Box::pin(async move {
            let client = newest.wait_for(Option::is_some).await.ok().and_then(|client| client.clone());
            Ok(client.ok_or(Orphaned)?.send(request).await?)
        })
    }
}
