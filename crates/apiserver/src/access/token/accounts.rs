//! Issues and reads tokens of ServiceAccounts. A token holds as long as what it is bound to: the account, a Pod, a Secret, a
//! node.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::claims::{Bound, Claims, LEGACY_ISSUER, LegacyClaims, Reference};
use super::jwt;
use super::keys::Key;
use crate::kinds::Objects;
use crate::registry::text;
use crate::user::{CREDENTIAL, User, account_name};

/// How long something that is being deleted is still believed in, and how far clocks may differ; seconds.
const LEEWAY: i64 = 60;
/// Verified tokens that are remembered, so that their signature is not computed with each request.
const REMEMBERED: usize = 4096;

/// Why a token is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is not one of ours.
    #[error(transparent)]
    Jwt(#[from] jwt::JwtError),
    /// Somebody else made it.
    #[error("not issued by this cluster")]
    Issuer,
    /// It is for other ears.
    #[error("token audiences {have:?} is invalid for the target audiences {wanted:?}")]
    Audience {
        /// Whose it is for.
        have: Vec<String>,
        /// Whose it should be for.
        wanted: Vec<String>,
    },
    /// It is too old.
    #[error("service account token has expired")]
    Expired,
    /// Its time has not come.
    #[error("service account token is not valid yet")]
    NotYet,
    /// The account or what it is bound to is gone or another.
    #[error("{0}")]
    Unbound(String),
}

/// Who a token stands for, and for whose ears it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Believed {
    /// The user.
    pub user: User,
    /// Those of the wanted audiences that the token is for.
    pub audiences: Vec<String>,
}

/// Issues and reads tokens.
pub struct Tokens {
    key: Key,
    issuer: String,
    audiences: Vec<String>,
    verified: Mutex<HashMap<[u8; 32], Claims>>,
}

/// Which sort of token it is, as its claims say.
#[derive(Deserialize)]
struct Issuer {
    #[serde(default)]
    iss: String,
}

impl Tokens {
    /// Tokens are made by `issuer`, and are for its ears unless asked for otherwise.
    #[must_use]
    pub fn new(key: Key, issuer: &str) -> Self {
        let audiences = vec![issuer.to_owned()];
        Self { key, issuer: issuer.to_owned(), audiences, verified: Mutex::default() }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Who makes them, a URL.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The API server's own ears.
    #[must_use]
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Makes a token for `bound`, from `now` for `seconds`.
    ///
    /// # Errors
    /// If it cannot be signed.
    pub fn issue(
        &self,
        bound: Bound,
        audiences: &[String],
        now: i64,
        seconds: i64,
    ) -> Result<String, TokenError> {
        let claims = Claims {
            aud: audiences.to_vec(),
            exp: now + seconds,
            iat: now,
            iss: self.issuer.clone(),
            jti: uuid::Uuid::new_v4().to_string(),
            sub: account_name(&bound.namespace, &bound.serviceaccount.name),
            nbf: now,
            bound,
        };
        Ok(jwt::sign(&claims, &self.key)?)
    }

    /// Makes a token that is kept in a Secret and holds as long as that.
    ///
    /// # Errors
    /// If it cannot be signed.
    pub fn issue_legacy(
        &self,
        namespace: &str,
        account: &Reference,
        secret: &str,
    ) -> Result<String, TokenError> {
        let claims = LegacyClaims {
            iss: LEGACY_ISSUER.to_owned(),
            namespace: namespace.to_owned(),
            secret: secret.to_owned(),
            account: account.name.clone(),
            uid: account.uid.clone(),
            sub: account_name(namespace, &account.name),
        };
        Ok(jwt::sign(&claims, &self.key)?)
    }

    /// Who shows this token, if it is for one of the `wanted` ears (the API server's own if there are none).
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn believe(
        &self,
        objects: &dyn Objects,
        token: &str,
        wanted: &[String],
        now: i64,
    ) -> Result<Believed, TokenError> {
        let wanted = if wanted.is_empty() { &self.audiences } else { wanted };
        match jwt::peek::<Issuer>(token)?.iss.as_str() {
            LEGACY_ISSUER => self.believe_legacy(objects, token, wanted, now),
            issuer if issuer == self.issuer => self.believe_bound(objects, token, wanted, now),
            _ => Err(TokenError::Issuer),
        }
    }

    fn believe_bound(
        &self,
        objects: &dyn Objects,
        token: &str,
        wanted: &[String],
        now: i64,
    ) -> Result<Believed, TokenError> {
        let claims = self.claims(token)?;
        if claims.exp + LEEWAY <= now {
            return Err(TokenError::Expired);
        }
        if claims.nbf - LEEWAY > now {
            return Err(TokenError::NotYet);
        }
        let audiences: Vec<String> = wanted.iter().filter(|a| claims.aud.contains(a)).cloned().collect();
        if audiences.is_empty() {
            return Err(TokenError::Audience { have: claims.aud, wanted: wanted.to_vec() });
        }
        let user = live(objects, &claims, now)?;
        Ok(Believed { user, audiences })
    }

    /// The claims, whose signature was or is right.
    fn claims(&self, token: &str) -> Result<Claims, TokenError> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        let verified = || self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(claims) = verified().get(&hash) {
            return Ok(claims.clone());
        }
        let claims: Claims = jwt::verify(token, &self.key)?;
        let mut verified = verified();
        if verified.len() >= REMEMBERED {
            verified.clear();
        }
        verified.insert(hash, claims.clone());
        Ok(claims)
    }

    fn believe_legacy(
        &self,
        objects: &dyn Objects,
        token: &str,
        wanted: &[String],
        now: i64,
    ) -> Result<Believed, TokenError> {
        let claims: LegacyClaims = jwt::verify(token, &self.key)?;
        // Such a token names no ears: it is for the API server's.
        let audiences: Vec<String> = wanted.iter().filter(|a| self.audiences.contains(a)).cloned().collect();
        if audiences.is_empty() {
            return Err(TokenError::Audience { have: self.audiences.clone(), wanted: wanted.to_vec() });
        }
        let gone = || TokenError::Unbound("Token has been invalidated".to_owned());
        let secret = objects.get("", "secrets", &claims.namespace, &claims.secret).ok_or_else(gone)?;
        if deleted(&secret, now) || secret["data"]["token"] != STANDARD.encode(token) {
            return Err(gone());
        }
        let account = Reference { name: claims.account, uid: claims.uid };
        same(objects, "serviceaccounts", &claims.namespace, &account, now)?;
        Ok(Believed { user: User::account(&claims.namespace, &account.name, &account.uid), audiences })
    }
}

/// The user, if everything that the token is bound to still lives.
fn live(objects: &dyn Objects, claims: &Claims, now: i64) -> Result<User, TokenError> {
    let bound = &claims.bound;
    let (namespace, account) = (bound.namespace.as_str(), &bound.serviceaccount);
    same(objects, "serviceaccounts", namespace, account, now)?;
    let mut user = User::account(namespace, &account.name, &account.uid);
    let mut extra = |key: &str, value: &str| {
        if !value.is_empty() {
            let key = format!("authentication.kubernetes.io/{key}");
            user.extra.insert(key, vec![value.to_owned()]);
        }
    };
    if let Some(secret) = &bound.secret {
        same(objects, "secrets", namespace, secret, now)?;
    }
    if let Some(pod) = &bound.pod {
        same(objects, "pods", namespace, pod, now)?;
        extra("pod-name", &pod.name);
        extra("pod-uid", &pod.uid);
    }
    if let Some(node) = &bound.node {
        if bound.pod.is_none() {
            same(objects, "nodes", "", node, now)?;
        }
        extra("node-name", &node.name);
        extra("node-uid", &node.uid);
    }
    user.extra.insert(CREDENTIAL.to_owned(), vec![format!("JTI={}", claims.jti)]);
    Ok(user)
}

/// Refuses unless the object is there, is the same, and is not long being deleted.
fn same(
    objects: &dyn Objects,
    plural: &str,
    namespace: &str,
    bound: &Reference,
    now: i64,
) -> Result<(), TokenError> {
    let account = plural == "serviceaccounts";
    let Some(object) = objects.get("", plural, namespace, &bound.name) else {
        return Err(TokenError::Unbound(if account {
            format!("serviceaccounts {:?} not found", bound.name)
        } else {
            "service account token has been invalidated".to_owned()
        }));
    };
    let have = text(&object["metadata"]["uid"]);
    if have != bound.uid {
        let (what, claim) = match plural {
            "serviceaccounts" => ("service account", ""),
            "secrets" => ("secret", "service account secret ref "),
            "pods" => ("pod", "service account pod ref "),
            _ => ("node", "service account node ref "),
        };
        let claim = format!("{claim}claim ({})", bound.uid);
        return Err(TokenError::Unbound(format!("{what} UID ({have}) does not match {claim}")));
    }
    if deleted(&object, now) {
        return Err(TokenError::Unbound(if account {
            format!("service account {namespace}/{} has been deleted", bound.name)
        } else {
            "service account token has been invalidated".to_owned()
        }));
    }
    Ok(())
}

fn deleted(object: &Value, now: i64) -> bool {
    let at = object["metadata"]["deletionTimestamp"].as_str().and_then(trine_objects::time::parse);
    at.is_some_and(|at| at < now - LEEWAY)
}

/// A user as `UserInfo`.
#[must_use]
pub fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}
