//! The whole store as one file, for a backup: `trine snapshot save`.

use std::io::{self, BufWriter, Write};

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::registry::Registry;

/// Bytes of one piece of the answer.
const PIECE: usize = 64 << 10;
/// Pieces that wait for a slow client.
const PIECES: usize = 4;

/// The file, in pieces as the client takes them; its checksum is at its end.
pub async fn answer(registry: &Registry) -> Response {
    let snapshot = match registry.everything().await {
        Ok(snapshot) => snapshot,
        Err(error) => return error.into_response(),
    };
    let (sender, pieces) = mpsc::channel(PIECES);
    tokio::task::spawn_blocking(move || {
        let mut out = BufWriter::with_capacity(PIECE, Pieces(sender));
        let written = trine_store::backup::encode(&snapshot, &mut out).and_then(|()| out.flush());
        if let Err(error) = written {
            tracing::debug!(%error, "a snapshot was not taken to its end");
        }
    });
    let mut response = Response::new(Body::from_stream(ReceiverStream::new(pieces)));
    let media = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(CONTENT_TYPE, media);
    response
}

struct Pieces(mpsc::Sender<io::Result<Bytes>>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
