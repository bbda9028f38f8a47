//! Tokens of ServiceAccounts for Pods' volumes: asked for once, kept, and asked for again before they end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use trine_typed::k8s_openapi::api::authentication::v1::{
    BoundObjectReference, TokenRequest, TokenRequestSpec,
};
use trine_typed::k8s_openapi::api::core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection, Volume};
use trine_typed::kube::api::PostParams;
use trine_typed::kube::{Api, Client};

use crate::error::{KubeletError, api};
use crate::pod::spec;

/// How long a token holds if the volume does not say, seconds (the API's default).
const DEFAULT_SECONDS: i64 = 3600;
/// A token is asked for again when it is older than this, however long it holds (upstream).
const OLDEST: SignedDuration = SignedDuration::from_hours(24);

/// Under which name a driver is told its tokens.
const TOLD: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// Which token: for whose ears, for how many seconds.
pub type Wish = (String, i64);

/// What a projection wishes for.
#[must_use]
pub fn wish(projection: &ServiceAccountTokenProjection) -> Wish {
    let audience = projection.audience.clone().unwrap_or_default();
    (audience, projection.expiration_seconds.unwrap_or(DEFAULT_SECONDS))
}

/// What a driver wishes for.
#[must_use]
pub fn wish_for(audience: &str, seconds: Option<i64>) -> Wish {
    (audience.to_owned(), seconds.unwrap_or(DEFAULT_SECONDS))
}

/// All tokens that a volume wishes for.
#[must_use]
pub fn wishes(volume: &Volume) -> BTreeSet<Wish> {
    let parts = volume.projected.iter().flat_map(|p| p.sources.iter().flatten());
    parts.filter_map(|s| s.service_account_token.as_ref()).map(wish).collect()
}

#[derive(Debug, Clone)]
struct Kept {
    text: String,
    from: Timestamp,
    until: Timestamp,
}

impl Kept {
    /// Four fifths of its time are over, or a day.
    fn is_old(&self, now: Timestamp) -> bool {
        let whole = self.until.duration_since(self.from);
        let age = now.duration_since(self.from);
        age > OLDEST || age > whole * 4 / 5
    }

    fn holds(&self, now: Timestamp) -> bool {
        now < self.until
    }
}

/// Tokens by the Pod's uid and the wish.
#[derive(Debug, Default)]
pub struct Tokens {
    kept: Mutex<BTreeMap<(String, Wish), Kept>>,
}

impl Tokens {
    /// The tokens that a volume of a Pod wishes for, fresh ones where those kept are old.
    ///
    /// # Errors
    /// [`KubeletError::Api`] if one cannot be had and none is kept that still holds.
    pub async fn read(
        &self,
        client: &Client,
        pod: &Pod,
        volume: &Volume,
    ) -> Result<BTreeMap<Wish, String>, KubeletError> {
        let mut found = BTreeMap::new();
        for wish in wishes(volume) {
            let text = self.one(client, pod, &wish).await?.text;
            found.insert(wish, text);
        }
        Ok(found)
    }

    /// What a driver is told: the tokens that it wishes for, by their audiences, as upstream writes them.
    ///
    /// # Errors
    /// As [`Tokens::read`].
    pub async fn for_driver(
        &self,
        client: &Client,
        pod: &Pod,
        wishes: &[Wish],
    ) -> Result<Option<(String, String)>, KubeletError> {
        if wishes.is_empty() {
            return Ok(None);
        }
        let mut all = serde_json::Map::new();
        for wish in wishes {
            let kept = self.one(client, pod, wish).await?;
            let token = json!({"token": kept.text, "expirationTimestamp": kept.until});
            all.insert(wish.0.clone(), token);
        }
        Ok(Some((TOLD.to_owned(), serde_json::Value::Object(all).to_string())))
    }

    async fn one(&self, client: &Client, pod: &Pod, wish: &Wish) -> Result<Kept, KubeletError> {
        let key = (spec::uid(pod).to_owned(), wish.clone());
        let now = Timestamp::now();
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let have = kept().get(&key).cloned();
        if let Some(have) = have.as_ref().filter(|k| !k.is_old(now)) {
            return Ok(have.clone());
        }
        match request(client, pod, wish, now).await {
            Ok(fresh) => {
                let mut kept = kept();
                kept.retain(|_, k| k.holds(now));
                kept.insert(key, fresh.clone());
                Ok(fresh)
            }
            Err(error) => match have.filter(|k| k.holds(now)) {
                Some(have) => {
                    tracing::warn!(pod = spec::key(pod), error = error.chain(), "a token is not renewed yet");
                    Ok(have)
                }
                None => Err(error),
            },
        }
    }
}

async fn request(client: &Client, pod: &Pod, wish: &Wish, now: Timestamp) -> Result<Kept, KubeletError> {
    let account = pod.spec.as_ref().and_then(|s| s.service_account_name.clone()).unwrap_or_default();
    let (audience, seconds) = wish;
    let asked = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: Some(audience.clone()).filter(|a| !a.is_empty()).map(|a| vec![a]),
            expiration_seconds: Some(*seconds),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(spec::name(pod).to_owned()),
                uid: Some(spec::uid(pod).to_owned()),
            }),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), spec::namespace(pod));
    let (what, params) = (format!("{}/{account}", spec::namespace(pod)), PostParams::default());
    let answer = accounts.create_token_request(&account, &params, &asked);
    let answer = api("create TokenRequest", &what, answer).await?;
    let status = answer.status.unwrap_or_default();
    match (status.token, status.expiration_timestamp) {
        (Some(text), Some(until)) => Ok(Kept { text, from: now, until: until.0 }),
        _ => Err(KubeletError::Invalid(format!("the answer to the TokenRequest for {what} has no token"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_after_four_fifths_of_its_time_or_a_day() {
        let at = |seconds: i64| Timestamp::from_second(seconds).unwrap();
        let kept = |until: i64| Kept { text: String::new(), from: at(0), until: at(until) };
        let hour = kept(3600);
        assert!(
            !hour.is_old(at(2880)) && hour.is_old(at(2881)) && hour.holds(at(3599)) && !hour.holds(at(3600))
        );
        let year = kept(365 * 86400);
        assert!(!year.is_old(at(86400)) && year.is_old(at(86401)));
    }
}
