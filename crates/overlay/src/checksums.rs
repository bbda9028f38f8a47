//! Who computes the checksums of what goes through a tunnel. Linux leaves them to the link that the datagrams go out by, and some
//! hardware, or its driver, computes those of packets within datagrams wrongly or not at all: then every connection through the
//! tunnel waits for an answer that never comes. So a new tunnel is tried both ways, and if answers come only when the tunnel computes
//! them itself, it does from then on. What is wrong for translated packets alone is not seen by that; there is a switch.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use trine_kernel::offload::{OffloadError, leave_sent_checksums, sent_checksums};

/// The port that is knocked at: a refusal is an answer, too.
const PORT: u16 = 10250;
/// How long an answer may take: the kernel asks again after a second.
const PATIENCE: Duration = Duration::from_millis(900);
/// How many other ends are asked.
const ENDS: usize = 3;

/// Who is to compute them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checksums {
    /// Whoever turns out to be able to.
    #[default]
    Auto,
    /// The hardware.
    Offload,
    /// The tunnel.
    Software,
}

/// A text that is no [`Checksums`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is none of auto, offload, software")]
pub struct ChecksumsError(pub String);

impl std::str::FromStr for Checksums {
    type Err = ChecksumsError;

    fn from_str(text: &str) -> Result<Self, ChecksumsError> {
        match text {
            "auto" => Ok(Self::Auto),
            "offload" => Ok(Self::Offload),
            "software" => Ok(Self::Software),
            other => Err(ChecksumsError(other.to_owned())),
        }
    }
}

impl std::fmt::Display for Checksums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Offload => "offload",
            Self::Software => "software",
        })
    }
}

/// What a trial of a tunnel has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Answers come with checksums left to the hardware.
    Good,
    /// Answers come only with checksums that the tunnel computes.
    Bad,
    /// Nobody answers, whoever computes them.
    Unknown,
}

/// Tries a tunnel; `answered` says whether answers come with checksums left to the hardware (true) or not. A single silence proves
/// nothing, so it takes two with an answer between them.
///
/// # Errors
/// What `answered` gives.
pub fn judge<E>(mut answered: impl FnMut(bool) -> Result<bool, E>) -> Result<Verdict, E> {
    if answered(true)? {
        return Ok(Verdict::Good);
    }
    if !answered(false)? {
        return Ok(Verdict::Unknown);
    }
    Ok(if answered(true)? { Verdict::Good } else { Verdict::Bad })
}

/// Tries the tunnel `name` with some of its other `ends`, in the calling thread's network namespace, and leaves it as it works.
/// One that computes them itself already was found to need it.
///
/// # Errors
/// [`OffloadError`].
pub fn trial(name: &str, ends: &[IpAddr]) -> Result<Verdict, OffloadError> {
    if !sent_checksums(name)? {
        return Ok(Verdict::Bad);
    }
    let verdict = judge(|left| {
        leave_sent_checksums(name, left)?;
        Ok(ends.iter().take(ENDS).any(|end| answers(*end)))
    })?;
    leave_sent_checksums(name, verdict != Verdict::Bad)?;
    Ok(verdict)
}

fn answers(end: IpAddr) -> bool {
    match TcpStream::connect_timeout(&SocketAddr::new(end, PORT), PATIENCE) {
        Ok(_) => true,
        Err(e) => e.kind() == ErrorKind::ConnectionRefused,
    }
}

/// Has the tunnel `name` do as told; true if it did otherwise.
///
/// # Errors
/// [`OffloadError`].
pub fn ensure(name: &str, told: Checksums) -> Result<bool, OffloadError> {
    let left = match told {
        Checksums::Auto => return Ok(false),
        Checksums::Offload => true,
        Checksums::Software => false,
    };
    if sent_checksums(name)? == left {
        return Ok(false);
    }
    leave_sent_checksums(name, left).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_is_only_found_wanting_between_two_silences() {
        let rows: [(&[bool], Verdict); 5] = [
            (&[true], Verdict::Good),
            (&[false, false], Verdict::Unknown),
            (&[false, true, true], Verdict::Good),
            (&[false, true, false], Verdict::Bad),
            (&[true, false, false], Verdict::Good),
        ];
        for (answers, expected) in rows {
            let mut answers = answers.iter();
            let mut asked = Vec::new();
            let verdict = judge(|left| {
                asked.push(left);
                answers.next().copied().ok_or("asked too often")
            });
            assert_eq!(verdict, Ok(expected), "{asked:?}");
            assert_eq!(asked, [true, false, true][..asked.len()]);
        }
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        for told in [Checksums::Auto, Checksums::Offload, Checksums::Software] {
            assert_eq!(told.to_string().parse(), Ok(told));
        }
        assert!("on".parse::<Checksums>().is_err());
    }
}
