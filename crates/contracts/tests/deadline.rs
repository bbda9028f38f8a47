//! What a caller reads whose own clock is slower than the server's: a client without a deadline of its own sends one.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use http::Request;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tonic::transport::Server;
use tonic::{Response, Status};
use trine_contracts::deadline::Deadlines;
use trine_contracts::registration::registration_server::{Registration, RegistrationServer};
use trine_contracts::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use trine_contracts::socket::listen;

struct Slow;

#[tonic::async_trait]
impl Registration for Slow {
    async fn get_info(&self, _: tonic::Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        std::future::pending().await
    }

    async fn notify_registration_status(
        &self,
        _: tonic::Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_late_call_is_answered_deadline_exceeded_whichever_clock_rings_first() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("slow.sock");
    let incoming = listen(&socket).await.unwrap();
    let server = Server::builder().layer(Deadlines).add_service(RegistrationServer::new(Slow));
    let served = tokio::spawn(server.serve_with_incoming(incoming));
    let stream = TokioIo::new(UnixStream::connect(&socket).await.unwrap());
    let (client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let calls = (0..200).map(|n| {
        let mut client = client.clone();
        tokio::spawn(async move {
            let request = Request::post("http://localhost/pluginregistration.Registration/GetInfo")
                .header("content-type", "application/grpc")
                .header("grpc-timeout", format!("{}u", 20_000 + n * 37))
                .body(Full::new(Bytes::from_static(&[0; 5])))
                .unwrap();
            let answer = tokio::time::timeout(Duration::from_secs(10), client.send_request(request)).await;
            answer.unwrap().unwrap().headers()["grpc-status"].to_str().unwrap().to_owned()
        })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap(), "4");
    }
    served.abort();
}
