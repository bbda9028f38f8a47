//! Exec and attach over SPDY: a stream for each of the standard streams, one for the size of the terminal, and one for how it
//! ended. Older clients and `crictl` speak it.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use http::HeaderMap;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use super::channel::{failure, last_word, status};
use super::server::{FAREWELL, IDLE, Wanted, open};
use super::spdy::connection::{VERSION, write};
use super::spdy::frame::{self, Frame, FrameMaker, FrameReader};
use super::tokens::Session;
use crate::error::chain;
use crate::keeper::{Kind, Size, StreamEnd, StreamReader, StreamWriter};
use crate::runtime::Runtime;

/// Protocols that are served, the best one first. Version 4 tells the end as a Status.
pub const PROTOCOLS: [&str; 4] = [FOURTH, "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];
const FOURTH: &str = "v4.channel.k8s.io";
/// How long the client may take to make its streams (upstream's number).
const CREATION: Duration = Duration::from_secs(30);
/// Frames that wait for the client.
const OUTGOING: usize = 64;

/// The first protocol of the client's that is served.
pub fn choose(headers: &HeaderMap) -> Option<&'static str> {
    let offered = headers.get_all(VERSION).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(','));
    offered.map(str::trim).find_map(|offer| PROTOCOLS.into_iter().find(|ours| *ours == offer))
}

/// Names of the streams that a client makes for a session.
fn names(session: &Session, wanted: Wanted) -> Vec<&'static str> {
    let terminal =
        matches!(session, Session::Exec { terminal: true, .. } | Session::Attach { terminal: true, .. });
    let all = [
        ("error", true),
        ("stdin", wanted.stdin),
        ("stdout", wanted.stdout),
        ("stderr", wanted.stderr),
        ("resize", terminal),
    ];
    all.into_iter().filter(|(_, wanted)| *wanted).map(|(name, _)| name).collect()
}

/// The streams of a client, by name.
type Streams = BTreeMap<String, u32>;

/// Serves one client.
///
/// # Errors
/// If it does not make its streams, or is gone before that.
pub async fn session(
    connection: impl AsyncRead + AsyncWrite + Send + 'static,
    runtime: Runtime,
    session: Session,
    version: &'static str,
) -> io::Result<()> {
    let (from, to) = tokio::io::split(connection);
    let mut reader = FrameReader::new(Box::pin(from));
    let (out, outgoing) = mpsc::channel(OUTGOING);
    let writer = tokio::spawn(write(Box::pin(to), outgoing));
    let wanted = Wanted::of(&session);
    // Before version 3 no size was told.
    let resized = [FOURTH, PROTOCOLS[1]].contains(&version);
    let names: Vec<&str> =
        names(&session, wanted).into_iter().filter(|n| *n != "resize" || resized).collect();
    let streams = tokio::time::timeout(CREATION, gather(&mut reader, &out, &names)).await??;
    let mut input = None;
    let end = match open(&runtime, session).await {
        Ok(stream) => {
            let (from_process, to_process) = stream.split();
            let mut feeding = tokio::spawn(feed(reader, to_process, streams.clone(), out.clone()));
            let end = tokio::select! {
                end = show(from_process, &streams, &out) => end,
                _ = &mut feeding => return Ok(()),
            };
            input = Some(feeding);
            end
        }
        Err(error) => failure(&chain(&error)),
    };
    say_last(&end, version, &streams, &out).await;
    // Who closes while something comes in loses what goes out: the client closes first.
    if let Some(mut feeding) = input
        && tokio::time::timeout(FAREWELL, &mut feeding).await.is_err()
    {
        feeding.abort();
    }
    drop(out);
    let _ = tokio::time::timeout(FAREWELL, writer).await;
    Ok(())
}

/// What a stream may be. One who asks for a terminal and for standard error makes that instead of the terminal's sizes: upstream counts
/// streams only.
const KNOWN: [&str; 5] = ["error", "stdin", "stdout", "stderr", "resize"];

/// Waits until the client has made all of its streams.
async fn gather(
    reader: &mut FrameReader<impl AsyncRead + Unpin>,
    out: &mpsc::Sender<Vec<u8>>,
    names: &[&str],
) -> io::Result<Streams> {
    let mut maker = FrameMaker::new()?;
    let mut streams = Streams::new();
    while streams.len() < names.len() {
        let answer = match reader.next().await? {
            Some(Frame::Open { stream, headers }) => {
                let name = headers.into_iter().find(|(n, _)| n == "streamtype").map(|(_, v)| v);
                match name.filter(|n| KNOWN.contains(&n.as_str()) && !streams.contains_key(n)) {
                    Some(name) => {
                        streams.insert(name, stream);
                        maker.reply(stream)?
                    }
                    None => frame::reset(stream, frame::REFUSED),
                }
            }
            Some(Frame::Ping { id }) => frame::ping(id),
            Some(Frame::GoAway) | None => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(_) => continue,
        };
        out.send(answer).await.map_err(|_| io::ErrorKind::BrokenPipe)?;
    }
    Ok(streams)
}

/// Brings what the client sends to the process; ends with the client. The writer is kept so long: dropping it would end the
/// process before its last words are out.
async fn feed(
    mut reader: FrameReader<impl AsyncRead + Unpin>,
    mut writer: StreamWriter,
    streams: Streams,
    out: mpsc::Sender<Vec<u8>>,
) {
    let of = |name: &str| streams.get(name).copied();
    let (stdin, resize) = (of("stdin"), of("resize"));
    let mut sizes = Vec::new();
    while let Ok(Ok(Some(next))) = tokio::time::timeout(IDLE, reader.next()).await {
        match next {
            Frame::Data { stream, bytes, last } if Some(stream) == stdin => {
                // A process that has ended takes no more; its client is yet to hear so.
                let _ = writer.stdin(&bytes).await;
                if last {
                    let _ = writer.end_stdin().await;
                }
            }
            Frame::Data { stream, bytes, .. } if Some(stream) == resize => {
                sizes.extend(bytes);
                for size in take_sizes(&mut sizes) {
                    let _ = writer.resize(size).await;
                }
            }
            Frame::Ping { id } => drop(out.send(frame::ping(id)).await),
            Frame::GoAway => return,
            _ => {}
        }
    }
}

/// Takes the sizes that have come whole, each on a line.
fn take_sizes(bytes: &mut Vec<u8>) -> Vec<Size> {
    /// No size is told with more.
    const LONGEST: usize = 1024;
    let Some(end) = bytes.iter().rposition(|b| *b == b'\n') else {
        bytes.truncate(LONGEST);
        return Vec::new();
    };
    let whole: Vec<u8> = bytes.drain(..=end).collect();
    whole.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// Brings what the process says to the client; gives how it ended.
async fn show(mut process: StreamReader, streams: &Streams, out: &mpsc::Sender<Vec<u8>>) -> Value {
    loop {
        match process.next().await {
            Ok(Some(StreamEnd::Bytes(kind, bytes))) => {
                let name = if kind == Kind::Stderr { "stderr" } else { "stdout" };
                if let Some(stream) = streams.get(name) {
                    let _ = out.send(frame::data(*stream, &bytes, false)).await;
                }
            }
            Ok(Some(StreamEnd::Exit(exit))) => return status(&exit),
            Ok(None) | Err(_) => return failure("the container's keeper is gone"),
        }
    }
}

/// Ends the streams, the one that tells how it was first.
async fn say_last(end: &Value, version: &str, streams: &Streams, out: &mpsc::Sender<Vec<u8>>) {
    let text = last_word(end, version == FOURTH).unwrap_or_default();
    for (name, text) in [("stdout", ""), ("stderr", ""), ("error", text.as_str())] {
        if let Some(stream) = streams.get(name) {
            let _ = out.send(frame::data(*stream, text.as_bytes(), true)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_first_choice_that_is_served_is_spoken() {
        let chosen = |offers: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for offer in offers {
                headers.append(VERSION, http::HeaderValue::from_static(offer));
            }
            choose(&headers)
        };
        assert_eq!(chosen(&["v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io"]), Some(FOURTH));
        assert_eq!(chosen(&["v2.channel.k8s.io, channel.k8s.io"]), Some("v2.channel.k8s.io"));
        assert_eq!((chosen(&["v9"]), chosen(&[])), (None, None));
    }

    #[test]
    fn sizes_are_taken_when_they_are_whole() {
        let mut bytes = b"{\"Width\":80,\"Height\":24}\n{\"Width\":9".to_vec();
        assert_eq!(take_sizes(&mut bytes), [Size { columns: 80, rows: 24 }]);
        bytes.extend(b"0,\"Height\":30}\nnonsense\n");
        assert_eq!(take_sizes(&mut bytes), [Size { columns: 90, rows: 30 }]);
        assert!(bytes.is_empty());
    }

    #[test]
    fn a_client_makes_a_stream_for_all_that_it_wants() {
        let exec = |terminal, stdin| Session::Exec {
            container: String::new(),
            command: Vec::new(),
            terminal,
            stdin,
            stdout: true,
            stderr: !terminal,
        };
        let of = |session: &Session| names(session, Wanted::of(session));
        assert_eq!(of(&exec(false, false)), ["error", "stdout", "stderr"]);
        assert_eq!(of(&exec(true, true)), ["error", "stdin", "stdout", "resize"]);
    }

    #[tokio::test]
    async fn a_client_may_make_standard_errors_stream_in_place_of_sizes_and_none_that_is_no_stream() {
        let mut maker = FrameMaker::new().unwrap();
        let opened = [(1, "error"), (3, "colours"), (5, "stdout"), (7, "stderr")]
            .map(|(stream, name)| maker.open(stream, &[("streamtype", name)]))
            .concat();
        let (out, mut answers) = mpsc::channel(8);
        let mut reader = FrameReader::new(&opened[..]);
        let streams = gather(&mut reader, &out, &["error", "stdout", "resize"]).await.unwrap();
        assert_eq!(streams, Streams::from([("error".into(), 1), ("stdout".into(), 5), ("stderr".into(), 7)]));
        let mut answered = Vec::new();
        while let Ok(answer) = answers.try_recv() {
            answered.push(answer);
        }
        assert_eq!(answered.len(), 4);
        assert_eq!(answered[1], frame::reset(3, frame::REFUSED));
    }
}
