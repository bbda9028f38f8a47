//! The channel protocols: what each message means, and how a session ends. Pure.

use serde_json::{Value, json};

use crate::keeper::{Exit, Size};

/// Protocols that are served, the best one first.
pub const PROTOCOLS: [&str; 3] = ["v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io"];

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
    fn an_exit_code_is_told_where_clients_look_for_it() {
        let told = status(&Exit { code: 3, ..Exit::default() });
        assert_eq!(told["reason"], "NonZeroExitCode");
        assert_eq!(told["details"]["causes"][0]["message"], "3");
        assert_eq!(status(&Exit::default())["status"], "Success");
    }
}
