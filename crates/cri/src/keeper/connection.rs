//! One connection of the daemon, as the poll loop sees it.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use serde::Serialize;

use super::frame::{Broken, Kind, put, take};
use super::message::{Envelope, Event, FromKeeper, Reply};

/// What one read takes, bytes.
const CHUNK: usize = 64 * 1024;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Calls and events.
    Control,
    /// The stream of this task: its own process, which dies with the connection.
    Exec(u64),
    /// The streams of this task, joined; with input or without.
    Attach(u64, bool),
}

#[derive(Debug)]
pub(super) struct Connection {
    pub stream: UnixStream,
    pub role: Role,
    pub closed: bool,
    /// Closes when all is sent.
    pub ending: bool,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Connection {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            role: Role::Control,
            closed: false,
            ending: false,
            input: Vec::new(),
            output: Vec::new(),
        }
    }

    /// Bytes that wait to be sent.
    pub(super) fn backlog(&self) -> usize {
        self.output.len()
    }

    /// Reads what is there; frames come from [`Self::next`].
    pub(super) fn fill(&mut self) {
        let mut chunk = vec![0; CHUNK];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.closed = true,
            Ok(n) => self.input.extend(&chunk[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.closed = true,
        }
    }

    pub(super) fn next(&mut self) -> Option<(Kind, Vec<u8>)> {
        match take(&mut self.input) {
            Ok(frame) => frame,
            Err(Broken) => {
                self.closed = true;
                None
            }
        }
    }

    pub(super) fn send(&mut self, kind: Kind, payload: &[u8]) {
        put(&mut self.output, kind, payload);
        self.flush();
    }

    pub(super) fn send_json(&mut self, kind: Kind, body: &impl Serialize) {
        if let Ok(bytes) = serde_json::to_vec(body) {
            self.send(kind, &bytes);
        }
    }

    pub(super) fn reply(&mut self, number: u64, reply: Reply) {
        self.send_json(Kind::Message, &Envelope { number, body: FromKeeper::Reply(reply) });
    }

    pub(super) fn event(&mut self, event: &Event) {
        self.send_json(Kind::Message, &Envelope { number: 0, body: FromKeeper::Event(event.clone()) });
    }

    /// Sends what the other side takes now.
    pub(super) fn flush(&mut self) {
        while !self.output.is_empty() && !self.closed {
            match self.stream.write(&self.output) {
                Ok(0) => self.closed = true,
                Ok(n) => {
                    self.output.drain(..n);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.closed = true,
            }
        }
        if self.ending && self.output.is_empty() {
            self.closed = true;
        }
    }
}
