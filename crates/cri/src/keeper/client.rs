//! The daemon's end: calls with answers, events, and streams.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

use super::frame::{Broken, Kind, put, take};
use super::message::{Envelope, Event, Exit, FromKeeper, Reply, Request, Size};

/// Beyond its own deadlines, a keeper may take so long to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a keeper could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// It could not be started.
    #[error("the keeper of {folder} cannot start: {why}")]
    Start {
        /// The sandbox's folder.
        folder: PathBuf,
        /// Its own words.
        why: String,
    },
    /// It is gone, or its socket is.
    #[error("the keeper of {folder} does not answer")]
    Gone {
        /// The sandbox's folder.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It did not answer in time.
    #[error("the keeper of {folder} did not answer in {} s", after.as_secs())]
    Timeout {
        /// The sandbox's folder.
        folder: PathBuf,
        /// How long was waited.
        after: Duration,
    },
    /// It could not do it.
    #[error("{0}")]
    Failed(String),
    /// It knows no such container.
    #[error("the keeper knows no such container")]
    Unknown,
}

type Waiting = Arc<Mutex<Option<BTreeMap<u64, oneshot::Sender<Reply>>>>>;

/// A connection for calls and events. Clones share it.
#[derive(Debug, Clone)]
pub struct Client {
    folder: Arc<PathBuf>,
    calls: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Waiting,
    number: Arc<AtomicU64>,
}

impl Client {
    /// Connects to the keeper of the sandbox in `folder`. Events come until the connection is lost; then the
    /// receiver ends.
    ///
    /// # Errors
    /// [`KeeperError::Gone`].
    pub async fn connect(folder: &Path) -> Result<(Self, mpsc::UnboundedReceiver<Event>), KeeperError> {
        let stream = dial(folder).await?;
        let (mut reader, mut writer) = tokio::io::split(stream);
        let (calls, mut to_send) = mpsc::unbounded_channel::<Vec<u8>>();
        let (events_out, events) = mpsc::unbounded_channel();
        let waiting: Waiting = Arc::new(Mutex::new(Some(BTreeMap::new())));
        tokio::spawn(async move {
            while let Some(bytes) = to_send.recv().await {
                if writer.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        });
        let shared = Arc::clone(&waiting);
        tokio::spawn(async move {
            let mut input = Vec::new();
            while let Ok(Some((Kind::Message, payload))) = next(&mut reader, &mut input).await {
                match serde_json::from_slice::<Envelope<FromKeeper>>(&payload) {
                    Ok(Envelope { number, body: FromKeeper::Reply(reply) }) => {
                        let waiter = lock(&shared).as_mut().and_then(|waiting| waiting.remove(&number));
                        if let Some(waiter) = waiter {
                            let _ = waiter.send(reply);
                        }
                    }
                    Ok(Envelope { body: FromKeeper::Event(event), .. }) => {
                        let _ = events_out.send(event);
                    }
                    Err(error) => tracing::warn!(%error, "a keeper's message is not understood"),
                }
            }
            // Whoever waits learns that nothing will come.
            *lock(&shared) = None;
        });
        let number = Arc::new(AtomicU64::new(1));
        Ok((Self { folder: Arc::new(folder.to_owned()), calls, waiting, number }, events))
    }

    /// Makes a call; `deadline` is what the keeper itself may take.
    ///
    /// # Errors
    /// [`KeeperError`]; a reply that says no is an error too.
    pub async fn call(&self, request: Request, deadline: Duration) -> Result<Reply, KeeperError> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        match lock(&self.waiting).as_mut() {
            Some(waiting) => waiting.insert(number, sender),
            None => return Err(self.gone()),
        };
        self.calls.send(encode(number, request)?).map_err(|_| self.gone())?;
        let after = deadline + PATIENCE;
        match tokio::time::timeout(after, receiver).await {
            Ok(Ok(reply)) => checked(reply),
            Ok(Err(_)) => Err(self.gone()),
            Err(_) => {
                lock(&self.waiting).as_mut().map(|waiting| waiting.remove(&number));
                Err(KeeperError::Timeout { folder: self.folder.to_path_buf(), after })
            }
        }
    }

    fn gone(&self) -> KeeperError {
        let source = io::Error::from(io::ErrorKind::ConnectionReset);
        KeeperError::Gone { folder: self.folder.to_path_buf(), source }
    }
}

/// What comes out of a stream.
#[derive(Debug)]
pub enum StreamEnd {
    /// Bytes of the process.
    Bytes(Kind, Vec<u8>),
    /// The process has ended, and this is all.
    Exit(Exit),
}

/// The stream of a process: dropping it ends a further process, and leaves a container alone.
#[derive(Debug)]
pub struct Stream {
    reader: ReadHalf<UnixStream>,
    writer: WriteHalf<UnixStream>,
    input: Vec<u8>,
}

impl Stream {
    /// Opens a stream by `request` (`Exec` or `Attach`); `deadline` is what the keeper itself may take.
    ///
    /// # Errors
    /// [`KeeperError`].
    pub async fn open(folder: &Path, request: Request, deadline: Duration) -> Result<Self, KeeperError> {
        let (reader, writer) = tokio::io::split(dial(folder).await?);
        let mut stream = Self { reader, writer, input: Vec::new() };
        let gone = |source| KeeperError::Gone { folder: folder.to_owned(), source };
        stream.writer.write_all(&encode(0, request)?).await.map_err(gone)?;
        let after = deadline + PATIENCE;
        let reply = tokio::time::timeout(after, stream.reply())
            .await
            .map_err(|_| KeeperError::Timeout { folder: folder.to_owned(), after })?
            .map_err(gone)?;
        checked(reply).map(|_| stream)
    }

    async fn reply(&mut self) -> io::Result<Reply> {
        loop {
            let Some((Kind::Message, payload)) = next(&mut self.reader, &mut self.input).await? else {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            };
            match serde_json::from_slice::<Envelope<FromKeeper>>(&payload)?.body {
                FromKeeper::Reply(reply) => return Ok(reply),
                // Until it has heard what the connection is for, the keeper tells it what it tells the daemon.
                FromKeeper::Event(_) => {}
            }
        }
    }

    /// Its two directions.
    #[must_use]
    pub fn split(self) -> (StreamReader, StreamWriter) {
        (StreamReader { reader: self.reader, input: self.input }, StreamWriter { writer: self.writer })
    }
}

/// What comes out of a process.
#[derive(Debug)]
pub struct StreamReader {
    reader: ReadHalf<UnixStream>,
    input: Vec<u8>,
}

impl StreamReader {
    /// The next piece; none if the keeper is gone.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn next(&mut self) -> io::Result<Option<StreamEnd>> {
        loop {
            match next(&mut self.reader, &mut self.input).await? {
                None => return Ok(None),
                Some((kind @ (Kind::Stdout | Kind::Stderr), bytes)) => {
                    return Ok(Some(StreamEnd::Bytes(kind, bytes)));
                }
                Some((Kind::Exit, json)) => {
                    return Ok(Some(StreamEnd::Exit(serde_json::from_slice(&json)?)));
                }
                Some(_) => {}
            }
        }
    }
}

/// What goes into a process.
#[derive(Debug)]
pub struct StreamWriter {
    writer: WriteHalf<UnixStream>,
}

impl StreamWriter {
    /// Sends input.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn stdin(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() { Ok(()) } else { self.send(Kind::Stdin, bytes).await }
    }

    /// Ends the input.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn end_stdin(&mut self) -> io::Result<()> {
        self.send(Kind::Stdin, &[]).await
    }

    /// Changes the terminal's size.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn resize(&mut self, size: Size) -> io::Result<()> {
        self.send(Kind::Resize, &serde_json::to_vec(&size)?).await
    }

    async fn send(&mut self, kind: Kind, payload: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(payload.len() + 8);
        put(&mut bytes, kind, payload);
        self.writer.write_all(&bytes).await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn checked(reply: Reply) -> Result<Reply, KeeperError> {
    match reply {
        Reply::Failed(why) => Err(KeeperError::Failed(why)),
        Reply::Unknown => Err(KeeperError::Unknown),
        reply => Ok(reply),
    }
}

fn encode(number: u64, request: Request) -> Result<Vec<u8>, KeeperError> {
    let json = serde_json::to_vec(&Envelope { number, body: request })
        .map_err(|e| KeeperError::Failed(format!("a call cannot be encoded: {e}")))?;
    let mut bytes = Vec::with_capacity(json.len() + 8);
    put(&mut bytes, Kind::Message, &json);
    Ok(bytes)
}

async fn dial(folder: &Path) -> Result<UnixStream, KeeperError> {
    let gone = |source| KeeperError::Gone { folder: folder.to_owned(), source };
    let open = std::fs::File::open(folder).map_err(gone)?;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&open);
    // Through the descriptor, because a socket's address has room for 107 bytes only.
    UnixStream::connect(format!("/proc/self/fd/{fd}/keeper.sock")).await.map_err(gone)
}

async fn next(reader: &mut ReadHalf<UnixStream>, input: &mut Vec<u8>) -> io::Result<Option<(Kind, Vec<u8>)>> {
    loop {
        match take(input) {
            Ok(Some(frame)) => return Ok(Some(frame)),
            Ok(None) => {}
            Err(Broken) => return Err(io::Error::from(io::ErrorKind::InvalidData)),
        }
        if reader.read_buf(input).await? == 0 {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::message::Event;
    use tokio::net::UnixListener;

    #[tokio::test]
    async fn an_event_before_the_answer_is_not_the_answer() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("keeper.sock")).unwrap();
        let keeper = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let event = Event::Exited { container: "other".to_owned(), exit: Exit::default() };
            let mut bytes = Vec::new();
            for body in [FromKeeper::Event(event), FromKeeper::Reply(Reply::Done)] {
                put(&mut bytes, Kind::Message, &serde_json::to_vec(&Envelope { number: 0, body }).unwrap());
            }
            put(&mut bytes, Kind::Stdout, b"hello");
            stream.write_all(&bytes).await.unwrap();
            stream
        });
        let request = Request::Attach { container: "c".to_owned(), stdin: false };
        let opened = Stream::open(folder.path(), request, Duration::from_secs(5)).await.unwrap();
        let (mut reader, _writer) = opened.split();
        assert!(
            matches!(reader.next().await.unwrap(), Some(StreamEnd::Bytes(Kind::Stdout, b)) if b == b"hello")
        );
        drop(keeper.await);
    }
}
