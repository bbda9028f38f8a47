//! Takes the compression off a layer or an archive, whichever it is by its first bytes.

use std::io::{self, BufRead, BufReader, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const BZIP2: [u8; 3] = *b"BZh";
const XZ: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];

/// The start of a frame that decoders skip: sixteen values differ in the lowest bits.
fn is_skippable(start: &[u8]) -> bool {
    start.len() >= 4 && start[0] & 0xf0 == 0x50 && start[1..4] == [0x2a, 0x4d, 0x18]
}

/// `source` without its compression.
pub(crate) fn decoder<R: Read + 'static>(mut source: R) -> io::Result<Box<dyn Read>> {
    let mut start = Vec::new();
    source.by_ref().take(XZ.len() as u64).read_to_end(&mut start)?;
    let known = |magic: &[u8]| start.starts_with(magic);
    let refused = |name: &str| {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("{name} compression is not supported")))
    };
    let (gzip, zstd) = (known(&GZIP), known(&ZSTD) || is_skippable(&start));
    if known(&BZIP2) {
        return refused("bzip2");
    }
    if known(&XZ) {
        return refused("xz");
    }
    let whole = BufReader::with_capacity(128 << 10, io::Cursor::new(start).chain(source));
    Ok(if gzip {
        Box::new(flate2::bufread::MultiGzDecoder::new(whole))
    } else if zstd {
        Box::new(Zstd { source: whole, decoder: FrameDecoder::new(), in_frame: false })
    } else {
        Box::new(whole)
    })
}

/// All frames of a zstd stream, one after the other.
struct Zstd<R: BufRead> {
    source: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() {
            if !self.in_frame {
                if self.source.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                self.in_frame = self.begin_frame()?;
                continue;
            }
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if self.decoder.is_finished() {
                self.in_frame = false;
                continue;
            }
            self.decoder
                .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                .map_err(io::Error::other)?;
        }
        Ok(0)
    }
}

impl<R: BufRead> Zstd<R> {
    /// True if a frame with content began; one without was skipped.
    fn begin_frame(&mut self) -> io::Result<bool> {
        match self.decoder.init(&mut self.source) {
            Ok(()) => Ok(true),
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length, ..
            })) => {
                let length = u64::from(length);
                match io::copy(&mut self.source.by_ref().take(length), &mut io::sink())? == length {
                    true => Ok(false),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                }
            }
            Err(e) => Err(io::Error::other(e)),
        }
    }
}
