//! The service on its socket.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use trine_contracts::cri::image_service_server::ImageServiceServer;
use trine_contracts::cri::runtime_service_server::RuntimeServiceServer;
use trine_contracts::deadline::Deadlines;
use trine_contracts::socket::{MAX_MESSAGE, listen};

use crate::config::Config;
use crate::error::CriError;
use crate::groups;
use crate::runtime::Runtime;
use crate::service::{Images, Service};
use crate::streaming;

/// Serves the CRI on `config.socket` until `stop`. Pods that ran before are taken over first; they go on running
/// after it.
///
/// # Errors
/// [`CriError`] if it cannot start: a folder, the image store, the socket.
pub async fn serve(config: Config, stop: CancellationToken) -> Result<(), CriError> {
    let hierarchies = groups::prepare(&config)?;
    let runtime = Runtime::open(config, hierarchies)?;
    let _ended = runtime.inner.ended.clone().drop_guard();
    let nursery = Arc::clone(&runtime.inner.nursery);
    let warming = Arc::clone(&nursery);
    tokio::task::spawn_blocking(move || warming.warm_up());
    runtime.recover().await;
    streaming::serve(runtime.clone(), stop.clone()).await?;
    let socket = runtime.config().socket.clone();
    let incoming = listen(&socket).await.map_err(CriError::io("listen on", &socket))?;
    let server = Server::builder()
        .layer(Deadlines)
        .add_service(
            RuntimeServiceServer::new(Service(runtime.clone()))
                .max_decoding_message_size(MAX_MESSAGE)
                .max_encoding_message_size(MAX_MESSAGE),
        )
        .add_service(
            ImageServiceServer::new(Images(runtime))
                .max_decoding_message_size(MAX_MESSAGE)
                .max_encoding_message_size(MAX_MESSAGE),
        )
        // Not the graceful end: an event stream would keep it open for ever.
        .serve_with_incoming(incoming);
    let ended = tokio::select! {
        () = stop.cancelled() => {
            let _ = std::fs::remove_file(&socket);
            Ok(())
        }
        ended = server => ended.map_err(|e| CriError::Internal { call: "serve", why: crate::error::chain(&e) }),
    };
    let _ = tokio::task::spawn_blocking(move || nursery.close()).await;
    ended
}
