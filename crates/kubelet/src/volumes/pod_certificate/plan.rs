//! Where a certificate of a Pod stands. Pure.
//!
//! ```text
//! Nothing ── Asked ── Held ⇄ Held, with a newer one asked for
//!                └──────┴── Refused: it stays so
//! ```

use jiff::{SignedDuration, Timestamp};
use trine_objects::pem;
use trine_typed::k8s_openapi::api::certificates::v1::PodCertificateRequest;

use crate::error::KubeletError;

/// After this a request that cannot be found is taken as deleted, and another one is made (upstream).
pub const ABANDONED: SignedDuration = SignedDuration::from_mins(10);

/// A request that waits for its signer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Name of the PodCertificateRequest.
    pub name: String,
    /// The private key, PEM.
    pub key: String,
    /// When it was made.
    pub since: Timestamp,
}

/// A certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The private key, PEM.
    pub key: String,
    /// The certificate and those between it and its authority, PEM.
    pub chain: String,
    /// When to ask for the next one.
    pub renew_at: Timestamp,
}

/// Where one stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum State {
    /// Not asked for.
    #[default]
    Nothing,
    /// Asked for.
    Asked(Asked),
    /// There; perhaps with a newer one asked for.
    Held(Issued, Option<Asked>),
    /// The signer refused, for good.
    Refused(String),
}

/// What is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make a key and ask.
    Ask,
    /// See what the signer said to the request of this name.
    Look(String),
    /// Nothing.
    Rest,
}

/// What is due at `now`.
#[must_use]
pub fn step(state: &State, now: Timestamp) -> Step {
    match state {
        State::Nothing => Step::Ask,
        State::Asked(asked) | State::Held(_, Some(asked)) => Step::Look(asked.name.clone()),
        State::Held(issued, None) if now >= issued.renew_at => Step::Ask,
        State::Held(_, None) | State::Refused(_) => Step::Rest,
    }
}

/// After a request was made.
#[must_use]
pub fn asked(state: State, asked: Asked) -> State {
    match state {
        State::Held(issued, _) => State::Held(issued, Some(asked)),
        _ => State::Asked(asked),
    }
}

/// After a look at the request; `None` if it was not found. `jitter` spreads the renewals of many.
#[must_use]
pub fn looked(
    state: State,
    found: Option<&PodCertificateRequest>,
    now: Timestamp,
    jitter: SignedDuration,
) -> State {
    let (old, asked) = match state {
        State::Asked(asked) => (None, asked),
        State::Held(issued, Some(asked)) => (Some(issued), asked),
        other => return other,
    };
    let still = |asked: Option<Asked>| match (old.clone(), asked) {
        (Some(issued), asked) => State::Held(issued, asked),
        (None, Some(asked)) => State::Asked(asked),
        (None, None) => State::Nothing,
    };
    let Some(request) = found else {
        let gone = now.duration_since(asked.since) > ABANDONED;
        return still((!gone).then_some(asked));
    };
    let name = format!("{}/{}", request.metadata.namespace.as_deref().unwrap_or_default(), asked.name);
    let status = request.status.clone().unwrap_or_default();
    for condition in status.conditions.iter().flatten() {
        match condition.type_.as_str() {
            "Issued" => {
                let chain = clean(status.certificate_chain.as_deref().unwrap_or_default());
                let renew_at = status.begin_refresh_at.map_or(now, |at| at.0);
                let renew_at = renew_at.checked_add(jitter).unwrap_or(renew_at);
                return State::Held(Issued { key: asked.key, chain, renew_at }, None);
            }
            "Denied" | "Failed" => {
                let kind = condition.type_.to_lowercase();
                let (reason, message) = (&condition.reason, &condition.message);
                return State::Refused(format!(
                    "PodCertificateRequest {name} was permanently {kind}: reason={reason:?} message={message:?}"
                ));
            }
            _ => {}
        }
    }
    still(Some(asked))
}

/// The certificates alone, without comments and headers.
fn clean(chain: &str) -> String {
    let blocks = x509_parser::pem::Pem::iter_from_buffer(chain.as_bytes()).flatten();
    blocks.map(|block| pem::encode("CERTIFICATE", &block.contents)).collect()
}

/// What a volume gets to see.
///
/// # Errors
/// [`KubeletError::NotYet`] before the signer has answered, [`KubeletError::Invalid`] after it refused.
pub fn held(state: &State) -> Result<&Issued, KubeletError> {
    match state {
        State::Held(issued, _) => Ok(issued),
        State::Refused(why) => Err(KubeletError::Invalid(why.clone())),
        State::Nothing => Err(KubeletError::NotYet("credential bundle is not issued yet".to_owned())),
        State::Asked(asked) => Err(KubeletError::NotYet(format!(
            "credential bundle is not issued yet: PodCertificateRequest {} waits for its signer",
            asked.name
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn first(name: &str, second: i64) -> Asked {
        Asked { name: name.to_owned(), key: format!("key of {name}"), since: at(second) }
    }

    fn issued(of: &str, renew_at: i64) -> Issued {
        let chain = pem::encode("CERTIFICATE", of.as_bytes());
        Issued { key: format!("key of {of}"), chain, renew_at: at(renew_at) }
    }

    fn answer(kind: &str, of: &str) -> PodCertificateRequest {
        let chain = format!("words\n{}\nmore words\n", pem::encode("CERTIFICATE", of.as_bytes()));
        serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": of},
            "spec": {"signerName": "a/b", "podName": "p", "podUID": "u", "serviceAccountName": "s",
                "serviceAccountUID": "su", "nodeName": "n", "nodeUID": "nu", "stubPKCS10Request": ""},
            "status": {"certificateChain": chain, "beginRefreshAt": "1970-01-01T00:16:40Z",
                "conditions": [{"type": kind, "status": "True", "reason": "R", "message": "M",
                    "lastTransitionTime": "1970-01-01T00:00:00Z"}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_certificate_is_asked_for_awaited_and_renewed() {
        use State::{Asked, Held, Nothing, Refused};
        let rows = [
            ("new", Nothing, 0, Step::Ask),
            ("asked", Asked(first("r1", 0)), 5, Step::Look("r1".into())),
            ("held", Held(issued("r1", 100), None), 99, Step::Rest),
            ("old", Held(issued("r1", 100), None), 100, Step::Ask),
            ("renewed", Held(issued("r1", 100), Some(first("r2", 100))), 101, Step::Look("r2".into())),
            ("refused", Refused("no".into()), 1000, Step::Rest),
        ];
        for (name, state, now, expected) in rows {
            assert_eq!(step(&state, at(now)), expected, "{name}");
        }
    }

    #[test]
    fn what_the_signer_says_is_followed() {
        let jitter = SignedDuration::from_secs(7);
        let look =
            |state, found: Option<PodCertificateRequest>, now| looked(state, found.as_ref(), at(now), jitter);
        let wait = || State::Asked(first("r1", 0));
        let renew = || State::Held(issued("r0", 100), Some(first("r1", 100)));
        assert_eq!(look(wait(), Some(answer("Issued", "r1")), 5), State::Held(issued("r1", 1007), None));
        assert_eq!(look(renew(), Some(answer("Issued", "r1")), 105), State::Held(issued("r1", 1007), None));
        assert_eq!(look(wait(), Some(answer("Other", "r1")), 5), wait());
        assert_eq!(look(wait(), None, 600), wait(), "perhaps not there yet");
        assert_eq!(look(wait(), None, 601), State::Nothing, "deleted");
        assert_eq!(look(renew(), None, 701), State::Held(issued("r0", 100), None));
        let denied = look(renew(), Some(answer("Denied", "r1")), 105);
        assert_eq!(
            held(&denied).unwrap_err().to_string(),
            "PodCertificateRequest ns/r1 was permanently denied: reason=\"R\" message=\"M\""
        );
        assert!(matches!(held(&wait()), Err(KubeletError::NotYet(_))));
        assert_eq!(held(&renew()).unwrap().key, "key of r0", "the old one serves until the new one is there");
    }
}
