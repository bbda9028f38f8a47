//! Frames of SPDY/3.1, those that port-forward uses.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::headers::{Deflater, Headers, Inflater};

/// Longest control frame, bytes.
const LONGEST_CONTROL: usize = 16 * 1024;
/// Data is read in pieces of at most this, bytes, however long its frame is.
const PIECE: usize = 32 * 1024;
/// Flag of a frame: its sender says no more on the stream.
const LAST: u8 = 1;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;

/// Why a stream is reset: it was not taken (`REFUSED_STREAM`).
pub const REFUSED: u32 = 3;

/// What the other side says.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// A new stream.
    Open { stream: u32, headers: Headers },
    /// Bytes of a stream; the last ones, maybe.
    Data { stream: u32, bytes: Vec<u8>, last: bool },
    /// The stream is given up.
    Reset { stream: u32 },
    /// To be sent back.
    Ping { id: u32 },
    /// No more streams come.
    GoAway,
    /// Nothing that matters here.
    Nothing,
}

/// Data of which not all was read.
struct Rest {
    stream: u32,
    left: usize,
    last: bool,
}

/// Reads frames.
pub struct FrameReader<R> {
    from: R,
    inflater: Inflater,
    rest: Option<Rest>,
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("SPDY: {why}"))
}

fn word(bytes: &[u8], at: usize) -> io::Result<u32> {
    let four = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
    four.map(u32::from_be_bytes).ok_or_else(|| bad("a frame is too short"))
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub fn new(from: R) -> Self {
        Self { from, inflater: Inflater::new(), rest: None }
    }

    /// The next frame; `None` at the end of the connection.
    ///
    /// # Errors
    /// If it is none that may come.
    pub async fn next(&mut self) -> io::Result<Option<Frame>> {
        if let Some(rest) = self.rest.take() {
            return self.data(rest).await.map(Some);
        }
        let mut head = [0; 8];
        match self.from.read_exact(&mut head).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            done => done?,
        };
        let [a, b, c, d, flags, x, y, z] = head;
        let length = usize::try_from(u32::from_be_bytes([0, x, y, z])).map_err(|_| bad("a length"))?;
        let last = flags & LAST != 0;
        if a & 0x80 == 0 {
            let stream = u32::from_be_bytes([a, b, c, d]);
            return self.data(Rest { stream, left: length, last }).await.map(Some);
        }
        if [a, b] != [0x80, 3] {
            return Err(bad("the version is not 3"));
        }
        if length > LONGEST_CONTROL {
            return Err(bad("a control frame is too long"));
        }
        let mut body = vec![0; length];
        self.from.read_exact(&mut body).await?;
        self.control(u16::from_be_bytes([c, d]), &body).map(Some)
    }

    async fn data(&mut self, rest: Rest) -> io::Result<Frame> {
        let mut bytes = vec![0; rest.left.min(PIECE)];
        self.from.read_exact(&mut bytes).await?;
        let left = rest.left - bytes.len();
        if left > 0 {
            self.rest = Some(Rest { left, ..rest });
        }
        Ok(Frame::Data { stream: rest.stream, bytes, last: rest.last && left == 0 })
    }

    fn control(&mut self, kind: u16, body: &[u8]) -> io::Result<Frame> {
        let mut block = |at: usize| self.inflater.read(body.get(at..).unwrap_or_default());
        Ok(match kind {
            SYN_STREAM => Frame::Open { stream: word(body, 0)? & 0x7fff_ffff, headers: block(10)? },
            // Each block has to be read: the next ones refer to it.
            SYN_REPLY | HEADERS => {
                block(4)?;
                Frame::Nothing
            }
            RST_STREAM => Frame::Reset { stream: word(body, 0)? & 0x7fff_ffff },
            PING => Frame::Ping { id: word(body, 0)? },
            GOAWAY => Frame::GoAway,
            _ => Frame::Nothing,
        })
    }
}

/// Makes frames. The header blocks must go out in the order in which they were made.
pub struct FrameMaker(Deflater);

impl FrameMaker {
    /// # Errors
    /// If there is no compressor.
    pub fn new() -> io::Result<Self> {
        Deflater::new().map(Self)
    }

    /// Takes a stream.
    ///
    /// # Errors
    /// What the compressor says.
    pub fn reply(&mut self, stream: u32) -> io::Result<Vec<u8>> {
        let block = self.0.write(&[])?;
        Ok(control(SYN_REPLY, &[&stream.to_be_bytes()[..], &block].concat()))
    }
}

#[cfg(test)]
impl FrameMaker {
    /// Asks for a stream, as clients do.
    pub fn open(&mut self, stream: u32, headers: &[(&str, &str)]) -> Vec<u8> {
        let block = self.0.write(headers).unwrap();
        control(SYN_STREAM, &[&stream.to_be_bytes()[..], &[0; 6], &block].concat())
    }
}

/// Bytes of a stream; no bytes with `last` end it. `bytes` have to fit in one frame, as pieces of the network do.
pub fn data(stream: u32, bytes: &[u8], last: bool) -> Vec<u8> {
    let [_, x, y, z] = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes();
    let [a, b, c, d] = stream.to_be_bytes();
    [&[a, b, c, d, u8::from(last), x, y, z], bytes].concat()
}

/// Gives a stream up.
pub fn reset(stream: u32, why: u32) -> Vec<u8> {
    control(RST_STREAM, &[stream.to_be_bytes(), why.to_be_bytes()].concat())
}

/// Answers a ping.
pub fn ping(id: u32) -> Vec<u8> {
    control(PING, &id.to_be_bytes())
}

fn control(kind: u16, body: &[u8]) -> Vec<u8> {
    let [c, d] = kind.to_be_bytes();
    let [_, x, y, z] = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0x80, 3, c, d, 0, x, y, z], body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8]) -> io::Result<Vec<Frame>> {
        let mut reader = FrameReader::new(bytes);
        let mut frames = Vec::new();
        while let Some(frame) = reader.next().await? {
            frames.push(frame);
        }
        Ok(frames)
    }

    #[tokio::test]
    async fn frames_are_read_as_they_were_written() {
        let mut maker = FrameMaker::new().unwrap();
        let bytes = [
            maker.reply(1).unwrap(),
            data(1, b"abc", false),
            ping(7),
            maker.reply(3).unwrap(),
            data(3, b"", true),
            reset(3, REFUSED),
        ];
        let frames = read(&bytes.concat()).await.unwrap();
        let wanted = [
            Frame::Nothing,
            Frame::Data { stream: 1, bytes: b"abc".to_vec(), last: false },
            Frame::Ping { id: 7 },
            Frame::Nothing,
            Frame::Data { stream: 3, bytes: vec![], last: true },
            Frame::Reset { stream: 3 },
        ];
        assert_eq!(frames, wanted);
    }

    #[tokio::test]
    async fn long_data_comes_in_pieces() {
        let frames = read(&data(5, &vec![9; PIECE + 1], true)).await.unwrap();
        let sizes: Vec<(usize, bool)> = frames
            .iter()
            .map(|f| match f {
                Frame::Data { stream: 5, bytes, last } => (bytes.len(), *last),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(sizes, [(PIECE, false), (1, true)]);
    }

    #[tokio::test]
    async fn what_is_no_frame_ends_the_connection() {
        for bytes in [
            &b"\x80\x02\x00\x01\x00\x00\x00\x00"[..],
            b"\x80\x03\x00\x01\x00\xff\xff\xff",
            b"\x80\x03\x00\x03\x00\x00\x00\x01a",
            b"\x80\x03\x00\x01\x00\x00\x00\x0a0123456789",
        ] {
            assert!(read(bytes).await.is_err(), "{bytes:?}");
        }
    }
}
