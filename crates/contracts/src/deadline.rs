//! The deadline that a caller sends along, as gRPC has it.
//!
//! tonic keeps it, too, but says CANCELLED when it has passed. Whoever reads that before its own clock rings takes the call
//! for one that it gave up itself; upstream's clients want DEADLINE_EXCEEDED.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};
use tonic::Status;
use tower::{Layer, Service};

/// Digits of the header at most. Source: gRPC over HTTP/2, "Timeout".
const DIGITS: usize = 8;

/// Ends calls at their caller's deadline with DEADLINE_EXCEEDED.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deadlines;

impl<S> Layer<S> for Deadlines {
    type Service = Kept<S>;

    fn layer(&self, inner: S) -> Kept<S> {
        Kept { inner }
    }
}

/// A service whose calls end at their deadline.
#[derive(Debug, Clone)]
pub struct Kept<S> {
    inner: S,
}

impl<S, In, Out> Service<Request<In>> for Kept<S>
where
    S: Service<Request<In>, Response = Response<Out>>,
    Out: Default,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Call<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<In>) -> Call<S::Future> {
        // Before the call, so that it is not later than tonic's own, which asks here first when it rings.
        let rings = lasts(request.headers()).map(tokio::time::sleep);
        Call { inner: self.inner.call(request), rings }
    }
}

pin_project! {
    /// A call on its way.
    pub struct Call<F> {
        #[pin]
        inner: F,
        #[pin]
        rings: Option<Sleep>,
    }
}

impl<F, Out, E> Future for Call<F>
where
    F: Future<Output = Result<Response<Out>, E>>,
    Out: Default,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        if let ready @ Poll::Ready(_) = this.inner.poll(context) {
            return ready;
        }
        let Some(rings) = this.rings.as_pin_mut() else { return Poll::Pending };
        let deadline = rings.deadline();
        if rings.poll(context).is_pending() && Instant::now() < deadline {
            return Poll::Pending;
        }
        Poll::Ready(Ok(Status::deadline_exceeded("context deadline exceeded").into_http()))
    }
}

/// How long a call may take, if its caller says so.
fn lasts(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if number.is_empty() || number.len() > DIGITS || !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use tower::ServiceExt;

    fn headers(text: &'static str) -> HeaderMap {
        [("grpc-timeout".parse().unwrap(), HeaderValue::from_static(text))].into_iter().collect()
    }

    #[test]
    fn deadlines_are_read_as_grpc_writes_them() {
        for (text, lasts_ms) in [
            ("1H", Some(3_600_000)),
            ("2M", Some(120_000)),
            ("3S", Some(3000)),
            ("99999999m", Some(99_999_999)),
            ("5000u", Some(5)),
            ("7000000n", Some(7)),
            ("100000000m", None),
            ("S", None),
            ("-1S", None),
            ("5x", None),
            ("", None),
        ] {
            assert_eq!(lasts(&headers(text)), lasts_ms.map(Duration::from_millis), "{text}");
        }
        assert_eq!(lasts(&HeaderMap::new()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_at_its_deadline_by_the_contracts_code_and_not_before() {
        let answers_after = |pause: u64| {
            Deadlines.layer(tower::service_fn(move |_: Request<()>| async move {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                Ok::<_, std::convert::Infallible>(Response::new(String::from("done")))
            }))
        };
        for (pause, late) in [(99, false), (101, true)] {
            let mut request = Request::new(());
            *request.headers_mut() = headers("100m");
            let answer = answers_after(pause).oneshot(request).await.unwrap();
            let code = answer.headers().get("grpc-status").map(|code| code.to_str().unwrap().to_owned());
            assert_eq!(code, late.then(|| "4".to_owned()), "{pause} ms");
        }
    }
}
