//! Header blocks: pairs of texts, deflated with a dictionary, in one stream for all blocks of a connection and direction.

use std::io;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// Longest block, inflated, bytes. Port-forward's have three short pairs.
const LONGEST: usize = 16 * 1024;

/// Words of the dictionary, each behind its length (SPDY Protocol Draft 3, section 2.6.10.1).
const WORDS: [&str; 65] = [
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
];
/// What follows them.
const TAIL: [&str; 7] = [
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 ",
    "Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 ",
    "Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service ",
    "UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, ",
    "Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+",
    "xml,text/plain,text/javascript,publicprivatemax-",
    "age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.",
];

fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in WORDS {
        text(&mut bytes, word);
    }
    TAIL.iter().for_each(|part| bytes.extend(part.as_bytes()));
    bytes
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend(text.as_bytes());
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("SPDY headers: {why}"))
}

/// Names (lower case) and values.
pub type Headers = Vec<(String, String)>;

/// Reads the blocks of one direction, in their order.
pub struct Inflater(Decompress);

impl Inflater {
    pub fn new() -> Self {
        Self(Decompress::new(true))
    }

    /// # Errors
    /// If the block is none, or inflates to too much.
    pub fn read(&mut self, block: &[u8]) -> io::Result<Headers> {
        let mut plain = Vec::with_capacity(LONGEST);
        let mut rest = block;
        loop {
            let before = self.0.total_in();
            let done = self.0.decompress_vec(rest, &mut plain, FlushDecompress::Sync);
            let taken =
                usize::try_from(self.0.total_in() - before).map_err(|_| bad("a block of that size"))?;
            rest = rest.get(taken..).unwrap_or_default();
            match done {
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0.set_dictionary(&dictionary()).map_err(|e| bad(&e.to_string()))?;
                }
                Err(error) => return Err(bad(&error.to_string())),
                Ok(Status::StreamEnd) => return Err(bad("the stream of blocks has ended")),
                Ok(_) if plain.len() == LONGEST => return Err(bad("a block is too long")),
                Ok(_) if rest.is_empty() => return pairs(&plain),
                Ok(_) if taken == 0 => return Err(bad("a block cannot be inflated")),
                Ok(_) => {}
            }
        }
    }
}

fn pairs(plain: &[u8]) -> io::Result<Headers> {
    let mut rest = plain;
    let count = number(&mut rest)?;
    let mut headers = Vec::new();
    for _ in 0..count {
        let name = piece(&mut rest)?.to_ascii_lowercase();
        headers.push((name, piece(&mut rest)?));
    }
    Ok(headers)
}

fn number(rest: &mut &[u8]) -> io::Result<usize> {
    let (head, tail) = rest.split_first_chunk::<4>().ok_or_else(|| bad("a block ends early"))?;
    *rest = tail;
    usize::try_from(u32::from_be_bytes(*head)).map_err(|_| bad("a length"))
}

fn piece(rest: &mut &[u8]) -> io::Result<String> {
    let length = number(rest)?;
    let (head, tail) = rest.split_at_checked(length).ok_or_else(|| bad("a block ends early"))?;
    *rest = tail;
    String::from_utf8(head.to_vec()).map_err(|_| bad("no UTF-8"))
}

/// Writes the blocks of one direction, in their order.
pub struct Deflater(Compress);

impl Deflater {
    /// # Errors
    /// If the dictionary is not taken.
    pub fn new() -> io::Result<Self> {
        let mut compress = Compress::new(Compression::fast(), true);
        compress.set_dictionary(&dictionary()).map_err(|e| bad(&e.to_string()))?;
        Ok(Self(compress))
    }

    /// # Errors
    /// What the compressor says.
    pub fn write(&mut self, headers: &[(&str, &str)]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        plain.extend(u32::try_from(headers.len()).unwrap_or(u32::MAX).to_be_bytes());
        for (name, value) in headers {
            text(&mut plain, name);
            text(&mut plain, value);
        }
        // More than deflate can add: a stored block's header, and the mark of a flush.
        let mut block = Vec::with_capacity(plain.len() + 128);
        self.0.compress_vec(&plain, &mut block, FlushCompress::Sync).map_err(|e| bad(&e.to_string()))?;
        Ok(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Headers {
        let one = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        text.split(' ').filter_map(|p| p.split_once('=')).map(one).collect()
    }

    #[test]
    fn the_dictionary_is_the_drafts() {
        // Its Adler-32, which each stream of blocks begins with.
        let (mut a, mut b) = (1u32, 0u32);
        for byte in dictionary() {
            a = (a + u32::from(byte)) % 65521;
            b = (b + a) % 65521;
        }
        assert_eq!(b << 16 | a, 0xe3c6_a7c2);
    }

    #[test]
    fn blocks_that_zlib_made_are_read_in_their_order() {
        let mut inflater = Inflater::new();
        let first = "78bbe3c6a7c202253a703a2b294a4dcc851625aca9a0808614cb45e01c6061606100a4398b20d198094ade8c0600000000ffff";
        let second = "c2aa19540e2512d60b000000ffff";
        let read = inflater.read(&hex::decode(first).unwrap()).unwrap();
        assert_eq!(read, of("streamtype=error port=8080 requestid=0"));
        let read = inflater.read(&hex::decode(second).unwrap()).unwrap();
        assert_eq!(read, of("streamtype=data port=8080 requestid=0"));
        assert!(inflater.read(b"nonsense").is_err());
    }

    #[test]
    fn what_is_written_is_read() {
        let (mut deflater, mut inflater) = (Deflater::new().unwrap(), Inflater::new());
        for headers in [vec![], vec![("a", "b"), ("content-type", "x")], vec![]] {
            let block = deflater.write(&headers).unwrap();
            let read = inflater.read(&block).unwrap();
            assert_eq!(read.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect::<Vec<_>>(), headers);
        }
    }

    #[test]
    fn a_block_that_inflates_to_too_much_is_refused() {
        let long = "x".repeat(LONGEST);
        let block = Deflater::new().unwrap().write(&[("a", &long)]).unwrap();
        assert!(Inflater::new().read(&block).unwrap_err().to_string().contains("too long"));
    }
}
