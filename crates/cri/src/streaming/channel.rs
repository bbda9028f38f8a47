//! The channel protocols: what each message means, and how a session ends. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::keeper::{Exit, Size};

/// Protocols that are served, the best one first.
pub const PROTOCOLS: [&str; 5] = [
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
];

/// What a protocol's name says of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocol {
    /// They are text: a digit for the channel, the rest in base64.
    pub text: bool,
    /// The last word is a Status, from version 4 on; before, it was an error's text, or nothing.
    pub status: bool,
}

impl Protocol {
    /// By its name; a client that names none speaks the first one that there was.
    pub fn of(name: &str) -> Self {
        Self { text: name.contains("base64."), status: name.starts_with('v') }
    }

    /// What a message of the client means.
    pub fn understand(self, message: &[u8]) -> FromClient {
        if !self.text {
            return understand(message);
        }
        let Some((digit, rest)) = message.split_first() else { return FromClient::Nothing };
        match STANDARD.decode(rest) {
            Ok(bytes) => understand(&self::message(digit.wrapping_sub(b'0'), &bytes)),
            Err(_) => FromClient::Nothing,
        }
    }

    /// The text of a message with `bytes` of `channel`, if messages are text.
    pub fn text(self, channel: u8, bytes: &[u8]) -> Option<String> {
        self.text.then(|| format!("{channel}{}", STANDARD.encode(bytes)))
    }

    /// The last word about a session that ended so; none if there is nothing to say.
    pub fn last_word(self, status: &Value) -> Option<String> {
        last_word(status, self.status)
    }
}

/// The last word of a session that ended so: the Status itself, or what it complains of.
pub fn last_word(status: &Value, whole: bool) -> Option<String> {
    if whole {
        return Some(status.to_string());
    }
    (status["status"] != "Success").then(|| status["message"].as_str().unwrap_or_default().to_owned())
}

pub const STDOUT: u8 = 1;
pub const STDERR: u8 = 2;
pub const ERROR: u8 = 3;

/// A message of the client.
#[derive(Debug, PartialEq, Eq)]
pub enum FromClient {
    /// Bytes for the process.
    Stdin(Vec<u8>),
    /// No more input comes (version 5).
    EndOfStdin,
    /// The terminal's size.
    Resize(Size),
    /// Nothing that matters here.
    Nothing,
}

/// What a message means: the first byte names the channel.
pub fn understand(message: &[u8]) -> FromClient {
    match message.split_first() {
        Some((0, bytes)) if !bytes.is_empty() => FromClient::Stdin(bytes.to_vec()),
        Some((4, bytes)) => serde_json::from_slice(bytes).map_or(FromClient::Nothing, FromClient::Resize),
        Some((255, [0])) => FromClient::EndOfStdin,
        _ => FromClient::Nothing,
    }
}

/// The message with `bytes` of `channel`.
pub fn message(channel: u8, bytes: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(bytes.len() + 1);
    message.push(channel);
    message.extend(bytes);
    message
}

/// The last word: how the process ended, as a Kubernetes Status.
pub fn status(exit: &Exit) -> Value {
    match &exit.error {
        Some(error) => failure(error),
        None if exit.code == 0 => json!({"metadata": {}, "status": "Success"}),
        None => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("command terminated with non-zero exit code: exit code {}", exit.code),
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": exit.code.to_string()}]},
        }),
    }
}

/// The last word when there was no process, or it was lost.
pub fn failure(why: &str) -> Value {
    json!({
        "metadata": {}, "status": "Failure", "message": why, "reason": "InternalError",
        "details": {"causes": [{"message": why}]}, "code": 500,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_understood_by_their_channel() {
        for (bytes, meaning) in [
            (&b"\0abc"[..], FromClient::Stdin(b"abc".to_vec())),
            (b"\0", FromClient::Nothing),
            (b"\xff\0", FromClient::EndOfStdin),
            (b"\xff\x01", FromClient::Nothing),
            (b"\x04{\"Width\":80,\"Height\":24}", FromClient::Resize(Size { columns: 80, rows: 24 })),
            (b"\x04{", FromClient::Nothing),
            (b"", FromClient::Nothing),
        ] {
            assert_eq!(understand(bytes), meaning, "{bytes:?}");
        }
    }

    #[test]
    fn older_protocols_are_spoken_as_they_were() {
        let names = PROTOCOLS.map(|name| (Protocol::of(name).text, Protocol::of(name).status));
        assert_eq!(names, [(false, true), (false, true), (true, true), (false, false), (true, false)]);
        assert_eq!(Protocol::of(""), Protocol::of("channel.k8s.io"));
        let text = Protocol::of("base64.channel.k8s.io");
        assert_eq!(text.text(1, b"hello").as_deref(), Some("1aGVsbG8="));
        assert_eq!(text.understand(b"0aGVsbG8="), FromClient::Stdin(b"hello".to_vec()));
        assert_eq!(text.understand(b"0?"), FromClient::Nothing);
        let (good, bad) = (status(&Exit::default()), status(&Exit { code: 3, ..Exit::default() }));
        assert_eq!(text.last_word(&good), None);
        assert!(text.last_word(&bad).unwrap().ends_with("exit code 3"));
        assert!(Protocol::of("v4.channel.k8s.io").last_word(&good).unwrap().contains("Success"));
    }

    #[test]
    fn an_exit_code_is_told_where_clients_look_for_it() {
        let told = status(&Exit { code: 3, ..Exit::default() });
        assert_eq!(told["reason"], "NonZeroExitCode");
        assert_eq!(told["details"]["causes"][0]["message"], "3");
        assert_eq!(status(&Exit::default())["status"], "Success");
    }
}
