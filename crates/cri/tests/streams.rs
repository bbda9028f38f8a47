//! Exec and attach over WebSocket, as a client of Kubernetes speaks it.

#![allow(clippy::unwrap_used)]

mod harness;

use futures::{SinkExt, StreamExt};
use harness::{Node, container, script};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use trine_contracts::cri::*;

type Socket = tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

async fn dial(url: &str) -> Socket {
    let mut request = url.replace("http://", "ws://").into_client_request().unwrap();
    request.headers_mut().insert("Sec-WebSocket-Protocol", "v5.channel.k8s.io".parse().unwrap());
    let (socket, response) = tokio_tungstenite::connect_async(request).await.unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], "v5.channel.k8s.io");
    socket
}

async fn say(socket: &mut Socket, channel: u8, bytes: &[u8]) {
    let message = [&[channel], bytes].concat();
    socket.send(Message::Binary(message.into())).await.unwrap();
}

/// What came on stdout and stderr, and the last word.
async fn hear(mut socket: Socket) -> (String, String, serde_json::Value) {
    let (mut out, mut err, mut last) = (Vec::new(), Vec::new(), serde_json::Value::Null);
    while let Some(Ok(message)) = socket.next().await {
        let Message::Binary(bytes) = message else { continue };
        match bytes.split_first().unwrap() {
            (1, rest) => out.extend(rest),
            (2, rest) => err.extend(rest),
            (3, rest) => last = serde_json::from_slice(rest).unwrap(),
            other => panic!("{other:?}"),
        }
    }
    (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), last)
}

async fn exec(node: &Node, id: &str, command: &str, tty: bool) -> Socket {
    let request = ExecRequest {
        container_id: id.into(),
        cmd: ["sh", "-c", command].map(str::to_owned).to_vec(),
        tty,
        stdin: true,
        stdout: true,
        stderr: !tty,
    };
    dial(&node.client().exec(request).await.unwrap().into_inner().url).await
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_carries_streams_the_end_of_input_and_the_exit_code() {
    let Some(node) = Node::start("exec_carries_streams_the_end_of_input_and_the_exit_code").await else {
        return;
    };
    let pod = node.run_pod(&node.pod("stream")).await;
    let id = node.run(&pod, container("main", &[])).await;
    let mut socket = exec(&node, &id, "cat; echo oops >&2; exit 3", false).await;
    say(&mut socket, 0, b"hello ").await;
    say(&mut socket, 0, b"there").await;
    say(&mut socket, 255, &[0]).await;
    let (out, err, last) = hear(socket).await;
    assert_eq!((out.as_str(), err.as_str()), ("hello there", "oops\n"));
    assert_eq!(last["details"]["causes"][0]["message"], "3");
    let big = exec(&node, &id, "head -c 4000000 /dev/zero | tr '\\0' x", false).await;
    let (out, _, last) = hear(big).await;
    assert_eq!((out.len(), last["status"].as_str()), (4_000_000, Some("Success")));
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_has_a_size_and_a_token_is_good_once() {
    let Some(node) = Node::start("a_terminal_has_a_size_and_a_token_is_good_once").await else { return };
    let pod = node.run_pod(&node.pod("tty")).await;
    let id = node.run(&pod, container("main", &[])).await;
    let mut socket = exec(&node, &id, "read x; stty size; test -t 0 && echo tty; exit 0", true).await;
    say(&mut socket, 4, br#"{"Width":91,"Height":17}"#).await;
    say(&mut socket, 0, b"\n").await;
    let (out, _, last) = hear(socket).await;
    assert!(out.contains("17 91") && out.contains("tty"), "{out:?}");
    assert_eq!(last["status"], "Success");
    let request =
        ExecRequest { container_id: id, cmd: vec!["true".into()], stdout: true, ..Default::default() };
    let url = node.client().exec(request).await.unwrap().into_inner().url;
    hear(dial(&url).await).await;
    let mut again = url.replace("http://", "ws://").into_client_request().unwrap();
    again.headers_mut().insert("Sec-WebSocket-Protocol", "v5.channel.k8s.io".parse().unwrap());
    assert!(tokio_tungstenite::connect_async(again).await.is_err());
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attach_joins_the_streams_of_a_running_container() {
    let Some(node) = Node::start("attach_joins_the_streams_of_a_running_container").await else { return };
    let pod = node.run_pod(&node.pod("attach")).await;
    let config = ContainerConfig {
        stdin: true,
        stdin_once: true,
        ..script("main", "while read x; do echo got $x; done; exit 4")
    };
    let id = node.run(&pod, config).await;
    let request =
        AttachRequest { container_id: id.clone(), stdin: true, stdout: true, stderr: true, tty: false };
    let mut socket = dial(&node.client().attach(request).await.unwrap().into_inner().url).await;
    say(&mut socket, 0, b"one\n").await;
    say(&mut socket, 255, &[0]).await;
    let (out, _, last) = hear(socket).await;
    assert_eq!(out, "got one\n");
    assert_eq!(last["details"]["causes"][0]["message"], "4");
    assert_eq!(node.ended(&id).await.exit_code, 4);
    assert_eq!(node.log(&id).await, ["stdout F got one"]);
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_with_a_terminal_logs_what_it_shows() {
    let Some(node) = Node::start("a_container_with_a_terminal_logs_what_it_shows").await else { return };
    let pod = node.run_pod(&node.pod("console")).await;
    let config = ContainerConfig { tty: true, ..script("main", "test -t 1 && echo shown > /dev/console") };
    let id = node.run(&pod, config).await;
    assert_eq!(node.ended(&id).await.exit_code, 0);
    assert_eq!(node.log(&id).await, ["stdout F shown"]);
    node.finish().await;
}
