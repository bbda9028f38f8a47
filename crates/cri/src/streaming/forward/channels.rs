//! A WebSocket with two channels for each port, in the order in which they were asked for: the bytes of the one connection
//! (channel 2n), and what went wrong with it (2n + 1). The first message of each channel is the port.

use std::collections::BTreeMap;

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::super::channel::message;
use super::super::server::IDLE;
use super::{Pod, connect};

/// Protocols that are served.
pub const PROTOCOLS: [&str; 2] = ["v4.channel.k8s.io", "portforward.k8s.io"];
/// Ports of one session: channels are numbered by a byte.
pub const MOST: usize = 127;
/// Messages that wait, to the client and to each connection.
const WAITING: usize = 16;

/// Serves one client until it goes, or all connections have ended.
pub async fn session(socket: WebSocket, pod: Pod, ports: Vec<u16>) {
    let (mut to_client, mut from_client) = socket.split();
    let (out, mut outgoing) = mpsc::channel::<Vec<u8>>(WAITING);
    let mut inward = BTreeMap::new();
    let mut tasks = tokio::task::JoinSet::new();
    for (number, port) in (0u8..).step_by(2).zip(ports) {
        let (sender, bytes) = mpsc::channel(WAITING);
        inward.insert(number, sender);
        tasks.spawn(forward(pod.clone(), number, port, out.clone(), bytes));
    }
    drop(out);
    let reading = async {
        while let Ok(Some(Ok(received))) = tokio::time::timeout(IDLE, from_client.next()).await {
            match received {
                Message::Binary(bytes) => {
                    if let Some((number, bytes)) = bytes.split_first()
                        && let Some(sender) = inward.get(number)
                        && sender.send(bytes.to_vec()).await.is_err()
                    {
                        inward.remove(number);
                    }
                }
                Message::Close(_) => return,
                _ => {}
            }
        }
    };
    let writing = async {
        while let Some(bytes) = outgoing.recv().await {
            if to_client.send(Message::Binary(bytes.into())).await.is_err() {
                return;
            }
        }
        let normal = CloseFrame { code: close_code::NORMAL, reason: "".into() };
        let _ = to_client.send(Message::Close(Some(normal))).await;
    };
    tokio::select! {
        () = reading => {}
        () = writing => {}
    }
}

async fn forward(
    pod: Pod,
    number: u8,
    port: u16,
    out: mpsc::Sender<Vec<u8>>,
    mut bytes: mpsc::Receiver<Vec<u8>>,
) {
    for channel in [number, number + 1] {
        let _ = out.send(message(channel, &port.to_le_bytes())).await;
    }
    let sandbox = pod.sandbox.clone();
    let socket = match connect(pod, port).await {
        Ok(socket) => socket,
        Err(why) => {
            let why = format!("error forwarding port {port} to pod {sandbox}: {why}");
            let _ = out.send(message(number + 1, why.as_bytes())).await;
            return;
        }
    };
    let (mut from_pod, mut to_pod) = socket.into_split();
    let inward = async {
        while let Some(piece) = bytes.recv().await {
            if to_pod.write_all(&piece).await.is_err() {
                return;
            }
        }
    };
    let outward = async {
        let mut buffer = vec![0; 32 * 1024];
        while let Ok(read @ 1..) = from_pod.read(&mut buffer).await {
            if out.send(message(number, &buffer[..read])).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = inward => {}
        () = outward => {}
    }
}
