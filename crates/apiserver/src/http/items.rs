//! A long list on its way: the items' own bytes, in pieces, with the length known before.
//!
//! A list of 10,000 Pods is 30 MB. Made whole it would stand in memory twice before its first byte left; in pieces one is
//! encrypted while the next is read by the client.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use trine_store::Object;

/// How much is sent at once, bytes. So much is taken from memory that was used before; from 128 KiB on the allocator asks the
/// system, which clears every page.
const PIECE: usize = 64 * 1024;
const END: &[u8] = b"]}";

/// The body of a list whose items are sent as they are stored.
#[derive(Debug)]
pub struct Items {
    /// What goes before the next item: the head of the list, then nothing.
    before: Vec<u8>,
    objects: std::vec::IntoIter<Arc<Object>>,
    left: u64,
}

impl Items {
    /// A list that begins with `head`, up to and with the opening bracket.
    #[must_use]
    pub fn new(head: Vec<u8>, objects: Vec<Arc<Object>>) -> Self {
        let items: usize = objects.iter().map(|o| o.json().len()).sum();
        let commas = objects.len().saturating_sub(1);
        let left = (head.len() + items + commas + END.len()) as u64;
        let mut before = head;
        if objects.is_empty() {
            before.extend_from_slice(END);
        }
        Self { before, objects: objects.into_iter(), left }
    }

    /// The next piece; empty at the end.
    fn piece(&mut self) -> Bytes {
        let mut piece = std::mem::take(&mut self.before);
        let (mut count, mut size) = (0, piece.len());
        while size < PIECE
            && let Some(object) = self.objects.as_slice().get(count)
        {
            count += 1;
            size += object.json().len() + END.len();
        }
        piece.reserve_exact(size - piece.len());
        for _ in 0..count {
            let Some(object) = self.objects.next() else { break };
            piece.extend_from_slice(object.json());
            piece.extend_from_slice(if self.objects.len() == 0 { END } else { b"," });
        }
        piece.into()
    }
}

impl Body for Items {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let piece = self.piece();
        self.left = self.left.saturating_sub(piece.len() as u64);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use trine_store::cache::Decoded;

    fn objects(count: usize, size: usize) -> Vec<Arc<Object>> {
        let object = |n: usize| {
            let json = Bytes::from(format!("{{\"n\":{n},\"text\":\"{}\"}}", "x".repeat(size)));
            let decoded = Decoded { json, ..Decoded::default() };
            Arc::new(Object { key: format!("/core/x/{n}").into(), revision: 1, decoded })
        };
        (0..count).map(object).collect()
    }

    #[tokio::test]
    async fn the_pieces_are_one_document_of_the_length_that_was_told() {
        for (count, size) in [(0, 0), (1, 3), (2, 200_000), (1000, 700)] {
            let mut body = Items::new(b"{\"items\":[".to_vec(), objects(count, size));
            let told = body.size_hint().exact().unwrap();
            let mut all = Vec::new();
            while let Some(frame) = body.frame().await {
                let piece = frame.unwrap().into_data().unwrap();
                assert!(piece.len() < PIECE + size + 100, "{}", piece.len());
                all.extend_from_slice(&piece);
            }
            assert!(body.is_end_stream());
            assert_eq!(told, all.len() as u64, "{count} of {size}");
            let read: serde_json::Value = serde_json::from_slice(&all).unwrap();
            assert_eq!(read["items"].as_array().unwrap().len(), count);
        }
    }
}
