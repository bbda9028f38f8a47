//! The bytes between daemon and keeper: length (u32, little endian, of what follows), kind (u8), payload.

/// Largest payload, bytes. Output goes in smaller pieces; a container's specification may be long.
const MAX_PAYLOAD: usize = 16 * 1024 * 1024;
const HEADER: usize = 5;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A request, a reply or an event, as JSON.
    Message = 0,
    /// Bytes for a process; none of them ends its input.
    Stdin = 1,
    /// Bytes of a process.
    Stdout = 2,
    /// The same, of its error stream.
    Stderr = 3,
    /// A terminal's new size, as JSON.
    Resize = 4,
    /// How the process ended, as JSON; the last frame.
    Exit = 5,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        [Self::Message, Self::Stdin, Self::Stdout, Self::Stderr, Self::Resize, Self::Exit]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// Appends a frame to `out`.
pub(super) fn put(out: &mut Vec<u8>, kind: Kind, payload: &[u8]) {
    let length = u32::try_from(payload.len() + 1).unwrap_or(u32::MAX);
    out.extend(length.to_le_bytes());
    out.push(kind as u8);
    out.extend(payload);
}

/// The bytes are no frames.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// Takes the first whole frame out of `input`, if it holds one.
pub(super) fn take(input: &mut Vec<u8>) -> Result<Option<(Kind, Vec<u8>)>, Broken> {
    let Some(header) = input.first_chunk::<HEADER>() else { return Ok(None) };
    let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
    let kind = Kind::of(header[4]).ok_or(Broken)?;
    if length == 0 || length > MAX_PAYLOAD + 1 {
        return Err(Broken);
    }
    if input.len() < length + 4 {
        return Ok(None);
    }
    let payload = input[HEADER..length + 4].to_vec();
    input.drain(..length + 4);
    Ok(Some((kind, payload)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_any_cut_of_the_stream() {
        let mut wire = Vec::new();
        put(&mut wire, Kind::Stdout, b"abc");
        put(&mut wire, Kind::Stdin, b"");
        let (mut input, mut frames) = (Vec::new(), Vec::new());
        for byte in wire {
            input.push(byte);
            while let Some(frame) = take(&mut input).unwrap() {
                frames.push(frame);
            }
        }
        assert_eq!(frames, [(Kind::Stdout, b"abc".to_vec()), (Kind::Stdin, Vec::new())]);
    }

    #[test]
    fn garbage_is_refused_before_it_is_waited_for() {
        assert_eq!(take(&mut vec![255, 255, 255, 255, 0]), Err(Broken));
        assert_eq!(take(&mut vec![1, 0, 0, 0, 77]), Err(Broken));
        assert_eq!(take(&mut vec![0, 0, 0, 0, 0]), Err(Broken));
    }
}
