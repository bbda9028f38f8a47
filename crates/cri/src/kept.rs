//! A message of the contract in a record: written as hex of its wire form, read once.

use std::ops::Deref;
use std::sync::Arc;

use prost::Message;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What was asked for. Clones share it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kept<M>(Arc<M>);

impl<M> From<M> for Kept<M> {
    fn from(message: M) -> Self {
        Self(Arc::new(message))
    }
}

impl<M> Deref for Kept<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.0
    }
}

impl<M: Message> Serialize for Kept<M> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(self.0.encode_to_vec()))
    }
}

/// What cannot be read is as if nothing had been asked for: the record's other fields say what is to be cleaned up.
impl<'de, M: Message + Default> Deserialize<'de> for Kept<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let message = hex::decode(text).ok().and_then(|bytes| M::decode(bytes.as_slice()).ok());
        Ok(message.unwrap_or_default().into())
    }
}

#[cfg(test)]
mod tests {
    use trine_contracts::cri::ContainerConfig;

    use super::*;

    #[test]
    fn a_message_is_the_same_after_it_was_written_down_and_a_broken_one_is_none() {
        let config = ContainerConfig { log_path: "a/0.log".into(), ..Default::default() };
        let kept = Kept::from(config);
        let written = serde_json::to_string(&kept).unwrap();
        assert_eq!(written, format!("\"{}\"", hex::encode(kept.encode_to_vec())));
        assert_eq!(serde_json::from_str::<Kept<ContainerConfig>>(&written).unwrap(), kept);
        for broken in ["\"zz\"", "\"ff\"", "\"\""] {
            assert_eq!(
                serde_json::from_str::<Kept<ContainerConfig>>(broken).unwrap(),
                Kept::default(),
                "{broken}"
            );
        }
    }
}
