//! Questions over real sockets, with a name server beside it that knows what lies outside.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio_util::sync::CancellationToken;

use crate::answer::Domain;
use crate::resolver::Resolver;
use crate::sockets::Sockets;
use crate::zone::{Key, Service};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A name server that says `192.0.2.1` for every name under `test.`, all of 60 addresses for `many.test.`, and that others are not there.
struct Outside {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

fn outside_says(question: &[u8], datagram: bool) -> Vec<u8> {
    let query = Message::from_vec(question).unwrap();
    let name = query.queries[0].name().clone();
    let text = name.to_ascii();
    let code = if text.ends_with("test.") { ResponseCode::NoError } else { ResponseCode::NXDomain };
    let mut reply = crate::reply::reply(&query, code);
    let many = text == "many.test.";
    if many && datagram {
        reply.metadata.truncation = true;
    } else if code == ResponseCode::NoError {
        let count = if many { 60 } else { 1 };
        let address = |i: u8| Record::from_rdata(name.clone(), 60, RData::A(A(Ipv4Addr::new(192, 0, 2, i))));
        reply.add_answers((1..=count).map(address));
    }
    reply.to_vec().unwrap()
}

async fn outside() -> Outside {
    let udp = UdpSocket::bind((HERE, 0)).await.unwrap();
    let address = udp.local_addr().unwrap();
    let tcp = TcpListener::bind(address).await.unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut buffer = [0u8; 4096];
        while let Ok((length, from)) = udp.recv_from(&mut buffer).await {
            count.fetch_add(1, Ordering::SeqCst);
            udp.send_to(&outside_says(&buffer[..length], true), from).await.unwrap();
        }
    });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = tcp.accept().await {
            let length = stream.read_u16().await.unwrap();
            let mut question = vec![0u8; length.into()];
            stream.read_exact(&mut question).await.unwrap();
            let answer = outside_says(&question, false);
            stream.write_u16(u16::try_from(answer.len()).unwrap()).await.unwrap();
            stream.write_all(&answer).await.unwrap();
        }
    });
    Outside { address, asked }
}

/// A server whose upstream is `outside`, with two Services.
async fn server(outside: Option<SocketAddr>, known: bool) -> (SocketAddr, CancellationToken) {
    let sockets = Sockets::bind(HERE, Some(0)).await.unwrap();
    let address = sockets.address;
    let domain = Domain::new("cluster.local").unwrap();
    let resolver = Arc::new(Resolver::to(domain, outside.into_iter().collect()));
    resolver.change(|zone| {
        zone.set_namespace("apps");
        for (name, spec) in [
            ("web", json!({"clusterIP": "10.96.0.7"})),
            ("out", json!({"type": "ExternalName", "externalName": "www.test"})),
            ("in", json!({"type": "ExternalName", "externalName": "web.apps.svc.cluster.local"})),
        ] {
            let object = serde_json::from_value(json!({"spec": spec})).unwrap();
            zone.set_service(&Key::new("apps", name), Service::from_api(&object));
        }
    });
    if known {
        resolver.whole();
    }
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move { sockets.serve(resolver, &stopped).await });
    (address, stop)
}

fn question(name: &str) -> Message {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    message
}

async fn over_udp(server: SocketAddr, bytes: &[u8]) -> Message {
    let socket = UdpSocket::bind((HERE, 0)).await.unwrap();
    socket.send_to(bytes, server).await.unwrap();
    let mut buffer = [0u8; 4096];
    let length = socket.recv(&mut buffer).await.unwrap();
    Message::from_vec(&buffer[..length]).unwrap()
}

fn shown(message: &Message) -> String {
    let records: Vec<String> =
        message.answers.iter().map(|r| format!("{} {} {}", r.name, r.record_type(), r.data)).collect();
    format!("{}: {}", message.metadata.response_code, records.join(", "))
}

#[tokio::test]
async fn the_clusters_names_and_all_others_are_answered_over_udp() {
    let outside = outside().await;
    let (server, _stop) = server(Some(outside.address), true).await;
    for (name, expected) in [
        ("web.apps.svc.cluster.local.", "No Error: web.apps.svc.cluster.local. A 10.96.0.7"),
        ("no.apps.svc.cluster.local.", "Non-Existent Domain: "),
        ("www.test.", "No Error: www.test. A 192.0.2.1"),
        ("www.else.", "Non-Existent Domain: "),
        (
            "out.apps.svc.cluster.local.",
            "No Error: out.apps.svc.cluster.local. CNAME www.test., www.test. A 192.0.2.1",
        ),
        (
            "in.apps.svc.cluster.local.",
            "No Error: in.apps.svc.cluster.local. CNAME web.apps.svc.cluster.local., web.apps.svc.cluster.local. A 10.96.0.7",
        ),
    ] {
        let asked = question(name);
        let answer = over_udp(server, &asked.to_vec().unwrap()).await;
        assert_eq!(shown(&answer), expected, "{name}");
        assert_eq!((answer.metadata.id, &answer.queries), (asked.metadata.id, &asked.queries), "{name}");
    }
    let before = outside.asked.load(Ordering::SeqCst);
    over_udp(server, &question("WWW.test.").to_vec().unwrap()).await;
    assert_eq!(outside.asked.load(Ordering::SeqCst), before, "it was remembered");
}

#[tokio::test]
async fn what_is_too_long_for_a_datagram_comes_over_tcp() {
    let outside = outside().await;
    let (server, _stop) = server(Some(outside.address), true).await;
    let bytes = question("many.test.").to_vec().unwrap();
    assert!(over_udp(server, &bytes).await.metadata.truncation);
    let mut stream = TcpStream::connect(server).await.unwrap();
    for _ in 0..2 {
        stream.write_u16(u16::try_from(bytes.len()).unwrap()).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        let mut answer = vec![0u8; stream.read_u16().await.unwrap().into()];
        stream.read_exact(&mut answer).await.unwrap();
        let answer = Message::from_vec(&answer).unwrap();
        assert_eq!((answer.answers.len(), answer.metadata.truncation), (60, false));
    }
}

#[tokio::test]
async fn before_all_is_known_and_where_nobody_answers_it_fails_at_once() {
    let (server, _stop) = server(None, false).await;
    for name in ["web.apps.svc.cluster.local.", "www.test."] {
        let answer = over_udp(server, &question(name).to_vec().unwrap()).await;
        assert_eq!(answer.metadata.response_code, ResponseCode::ServFail, "{name}");
    }
}

#[tokio::test]
async fn what_is_no_message_is_a_mistake_and_does_not_end_the_server() {
    let (server, _stop) = server(None, true).await;
    let mut broken = question("web.apps.svc.cluster.local.").to_vec().unwrap();
    broken.truncate(20);
    let answer = over_udp(server, &broken).await;
    assert_eq!(answer.metadata.response_code, ResponseCode::FormErr);
    assert_eq!(answer.metadata.id.to_be_bytes(), broken[..2]);
    let socket = UdpSocket::bind((HERE, 0)).await.unwrap();
    for junk in [&b""[..], b"x", &[0xff; 600], &[0x80; 12]] {
        socket.send_to(junk, server).await.unwrap();
    }
    let answer = over_udp(server, &question("web.apps.svc.cluster.local.").to_vec().unwrap()).await;
    assert_eq!(answer.metadata.response_code, ResponseCode::NoError);
}

#[test]
fn the_file_is_read_again_when_it_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("resolv.conf");
    let forwarder = crate::forward::Forwarder::new(path.clone(), "127.0.0.1:53".parse().unwrap());
    let servers = |path: &Path, text: &str, time: u64| {
        std::fs::write(path, text).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(time);
        std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        forwarder.servers().len()
    };
    assert_eq!(forwarder.servers().len(), 0, "no file, no servers");
    assert_eq!(servers(&path, "nameserver 192.0.2.1\n", 1), 1);
    assert_eq!(servers(&path, "nameserver 192.0.2.1\nnameserver 192.0.2.2\n", 2), 2);
}
