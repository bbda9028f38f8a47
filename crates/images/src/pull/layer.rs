//! Fetches and unpacks one layer at once: what comes in goes straight to its files, hashed on the way.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;
use tracing::Instrument;

use super::error::RegistryError;
use super::registry::Registry;
use crate::content::Digest;
use crate::error::ImageError;
use crate::step;
use crate::store::Inner;
use crate::unpack::{Expect, NewLayer};

/// Pieces that may wait between the network and the disk.
const PIECES: usize = 16;

/// One layer of a pull.
pub(crate) struct Wanted {
    pub image: String,
    pub host: String,
    pub chain: Digest,
    pub diff_id: Digest,
    pub blob: Digest,
    /// Bytes as promised by the manifest; 0 if it does not say.
    pub size: u64,
}

/// Fetches and unpacks `wanted`.
pub(crate) async fn fetch(
    inner: Arc<Inner>,
    registry: Arc<Registry>,
    wanted: Wanted,
) -> Result<(Digest, NewLayer), ImageError> {
    let span = tracing::info_span!(
        target: "trine::step", "unpack", plane = "image", detail = wanted.blob.as_str(), error = tracing::field::Empty
    );
    let run = fetch_quietly(inner, &registry, wanted).instrument(span.clone());
    step::outcome(&span, run.await)
}

async fn fetch_quietly(
    inner: Arc<Inner>,
    registry: &Registry,
    wanted: Wanted,
) -> Result<(Digest, NewLayer), ImageError> {
    let (sender, receiver) = mpsc::channel(PIECES);
    let purpose = format!("layer {} of {}", wanted.blob, wanted.image);
    let expect = Expect { blob: Some(wanted.blob.clone()), diff_id: Some(wanted.diff_id.clone()) };
    let unpack = tokio::task::spawn_blocking(move || {
        NewLayer::unpack(
            &inner.session,
            &purpose,
            Pieces { receiver, current: Bytes::new(), ended: false },
            &expect,
        )
    });
    let (pumped, unpacked) = tokio::join!(pump(registry, &wanted, sender), unpack);
    pumped.map_err(|source| ImageError::Pull {
        image: wanted.image.clone(),
        registry: wanted.host.clone(),
        source,
    })?;
    let panicked =
        |_| ImageError::Content { image: wanted.image.clone(), why: "unpacking a layer panicked".into() };
    let layer = unpacked.map_err(panicked)??.map_err(|source| ImageError::Layer {
        image: wanted.image.clone(),
        layer: wanted.blob.to_string(),
        source,
    })?;
    Ok((wanted.chain, layer))
}

/// A piece of the layer, or its end.
enum Piece {
    Bytes(Bytes),
    End,
}

async fn pump(
    registry: &Registry,
    wanted: &Wanted,
    sender: mpsc::Sender<Piece>,
) -> Result<(), RegistryError> {
    let mut body = registry.blob(wanted.blob.as_str()).await?;
    let mut received = 0u64;
    while let Some(bytes) = body.next().await? {
        received += bytes.len() as u64;
        if wanted.size > 0 && received > wanted.size {
            let why =
                format!("the layer is larger than the {} bytes that its manifest promises", wanted.size);
            return Err(RegistryError::Protocol { url: wanted.blob.to_string(), why });
        }
        if sender.send(Piece::Bytes(bytes)).await.is_err() {
            // The unpacker gave up and says why itself.
            return Ok(());
        }
    }
    let _ = sender.send(Piece::End).await;
    Ok(())
}

/// The unpacker's end. A sender that is gone without an end means that the pull was given up.
struct Pieces {
    receiver: mpsc::Receiver<Piece>,
    current: Bytes,
    ended: bool,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            if self.ended {
                return Ok(0);
            }
            match self.receiver.blocking_recv() {
                Some(Piece::Bytes(bytes)) => self.current = bytes,
                Some(Piece::End) => self.ended = true,
                None => {
                    return Err(io::Error::new(
                        io::ErrorKind::ConnectionAborted,
                        "the transfer was given up",
                    ));
                }
            }
        }
        let n = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..n]);
        Ok(n)
    }
}
