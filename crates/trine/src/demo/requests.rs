//! HTTP/1.1 to the app, each request on a connection of its own, so that each meets the Service anew.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long one request may take.
const DEADLINE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);

/// Requests `/` until each of `pods` has answered; gives the number of requests.
pub async fn from_each(address: &str, pods: &[&str], deadline: Duration) -> anyhow::Result<usize> {
    let since = Instant::now();
    let mut missing: BTreeSet<&str> = pods.iter().copied().collect();
    let mut count = 0;
    let mut last = String::new();
    while since.elapsed() < deadline {
        count += 1;
        match get(address, "/").await {
            Ok(text) => {
                missing.retain(|pod| !text.contains(pod));
                if missing.is_empty() {
                    return Ok(count);
                }
                last = text;
            }
            Err(error) => {
                last = format!("{error:#}");
                tokio::time::sleep(POLL).await;
            }
        }
    }
    anyhow::bail!("no answer from {missing:?} at http://{address} after {count} requests; the last: {last}")
}

/// GETs a path.
pub async fn get(address: &str, path: &str) -> anyhow::Result<String> {
    request(address, &format!("GET {path} HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")).await
}

/// PUTs a text.
pub async fn put(address: &str, path: &str, body: &str) -> anyhow::Result<String> {
    let length = body.len();
    let head =
        format!("PUT {path} HTTP/1.1\r\nHost: web\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    request(address, &(head + body)).await
}

async fn request(address: &str, text: &str) -> anyhow::Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(text.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = tokio::time::timeout(DEADLINE, exchange)
        .await
        .with_context(|| format!("http://{address} did not answer within {DEADLINE:?}"))?
        .with_context(|| format!("http://{address}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer is not HTTP")?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    anyhow::ensure!(status == "200", "http://{address} answered {status}: {body}");
    Ok(body.to_owned())
}
