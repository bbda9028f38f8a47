//! The token with which a node joins: a bootstrap token of Kubernetes, and the hash of the key of the cluster's authority, by
//! which the node knows that it talks to no other: `ID.SECRET@sha256:HASH`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;
use trine_typed::k8s_openapi::api::core::v1::Secret;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use trine_typed::k8s_openapi::jiff::{SignedDuration, Timestamp};
use trine_typed::kube::api::{DeleteParams, PostParams};
use trine_typed::kube::{self, Api, Client};

use super::pin::Pin;

/// Letters of both parts.
const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
const ID: usize = 6;
const SECRET: usize = 16;

/// A token. Not shown in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    id: String,
    secret: String,
    /// Whose cluster it is; without it the authority must be known otherwise.
    pub pin: Option<Pin>,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.id)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bearer())?;
        self.pin.as_ref().map_or(Ok(()), |pin| write!(f, "@{pin}"))
    }
}

impl FromStr for Token {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let text = text.trim();
        let (bearer, pin) = match text.split_once('@') {
            Some((bearer, pin)) => (bearer, Some(pin.parse()?)),
            None => (text, None),
        };
        let plain = |part: &str, len| {
            part.len() == len && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        };
        let parts = bearer.split_once('.').filter(|(id, secret)| plain(id, ID) && plain(secret, SECRET));
        let (id, secret) =
            parts.context("a token is ID.SECRET@sha256:HASH, as `trine token create` prints it")?;
        Ok(Self { id: id.to_owned(), secret: secret.to_owned(), pin })
    }
}

impl Token {
    /// A new token of the cluster with the authority `ca_pem`. It holds once it is published.
    ///
    /// # Errors
    /// If there are no random numbers, or the authority is no certificate.
    pub fn random(ca_pem: &str) -> anyhow::Result<Self> {
        Ok(Self { id: letters(ID)?, secret: letters(SECRET)?, pin: Some(Pin::of(ca_pem)?) })
    }

    /// What is shown to the API server.
    #[must_use]
    pub fn bearer(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }

    fn object(&self) -> String {
        format!("bootstrap-token-{}", self.id)
    }

    /// Makes it hold: for `ttl`, or until it is removed.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn publish(&self, admin: &Client, ttl: Option<Duration>, what_for: &str) -> anyhow::Result<()> {
        let until = |ttl: Duration| -> anyhow::Result<String> {
            let until = Timestamp::now() + SignedDuration::try_from(ttl)?;
            Ok(until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
        };
        let mut data: BTreeMap<String, String> = [
            ("token-id", self.id.as_str()),
            ("token-secret", &self.secret),
            ("usage-bootstrap-authentication", "true"),
            ("description", what_for),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        if let Some(ttl) = ttl {
            data.insert("expiration".to_owned(), until(ttl)?);
        }
        let secret = Secret {
            metadata: ObjectMeta { name: Some(self.object()), ..ObjectMeta::default() },
            type_: Some("bootstrap.kubernetes.io/token".to_owned()),
            string_data: Some(data),
            ..Secret::default()
        };
        let secrets: Api<Secret> = Api::namespaced(admin.clone(), "kube-system");
        secrets.create(&PostParams::default(), &secret).await.context("cannot publish the token")?;
        Ok(())
    }

    /// Makes it hold no more. Absent is success.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn revoke(&self, admin: &Client) -> anyhow::Result<()> {
        let secrets: Api<Secret> = Api::namespaced(admin.clone(), "kube-system");
        match secrets.delete(&self.object(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(drop).context("cannot remove the token"),
        }
    }
}

/// Letters from random bytes, none likelier than another.
fn letters(count: usize) -> anyhow::Result<String> {
    let mut text = String::new();
    while text.len() < count {
        let mut byte = [0u8];
        getrandom::fill(&mut byte).map_err(|e| anyhow::anyhow!("no random numbers: {e}"))?;
        // 252 is the greatest multiple of 36 in a byte.
        if byte[0] < 252 {
            text.push(char::from(LETTERS[usize::from(byte[0]) % LETTERS.len()]));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_is_written() {
        let key = rcgen::KeyPair::generate().unwrap();
        let ca = rcgen::CertificateParams::default().self_signed(&key).unwrap().pem();
        let token = Token::random(&ca).unwrap();
        assert_eq!(token.to_string().parse::<Token>().unwrap(), token);
        assert_eq!(format!("{token} \n").parse::<Token>().unwrap(), token);
        assert_ne!(Token::random(&ca).unwrap().bearer(), token.bearer());
        assert!(!format!("{token:?}").contains(&token.secret));
        let bare: Token = "abcdef.0123456789abcdef".parse().unwrap();
        assert_eq!((bare.pin, bare.id.as_str()), (None, "abcdef"));
        for wrong in [
            "",
            "abcdef",
            "abcdef.short",
            "ABCDEF.0123456789abcdef",
            "abcdef.0123456789abcdef@",
            "abcdef.0123456789abcdef@sha256:00",
            "abcdef.0123456789abcdef@md5:00",
        ] {
            assert!(wrong.parse::<Token>().is_err(), "{wrong}");
        }
    }
}
