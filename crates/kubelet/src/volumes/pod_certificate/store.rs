//! The certificates of all Pods of this node. They are asked for again after a restart, as upstream does.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use trine_typed::k8s_openapi::ByteString;
use trine_typed::k8s_openapi::api::certificates::v1::{PodCertificateRequest, PodCertificateRequestSpec};
use trine_typed::k8s_openapi::api::core::v1::{Node, Pod, PodCertificateProjection, ServiceAccount, Volume};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use trine_typed::kube::api::PostParams;
use trine_typed::kube::{Api, Client};

use super::key;
use super::plan::{self, Asked, Issued, State, Step};
use crate::error::{KubeletError, api};
use crate::pod::spec;

/// Renewals are put off by up to this, so that those of many Pods do not come at once (upstream).
const JITTER: SignedDuration = SignedDuration::from_mins(5);

/// Of which Pod (uid), which volume, and which of its sources.
type Place = (String, String, usize);

/// The certificates of a volume by the place of the source that asks for them.
pub type Found = BTreeMap<usize, Issued>;

/// The certificates of all Pods.
#[derive(Debug, Default)]
pub struct Certificates {
    states: Mutex<BTreeMap<Place, State>>,
}

impl Certificates {
    fn states(&self) -> MutexGuard<'_, BTreeMap<Place, State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the keys of the Pod `uid`.
    pub fn forget(&self, uid: &str) {
        self.states().retain(|(of, _, _), _| of != uid);
    }

    /// The certificates of `volume`; asks for those that are missing or old.
    ///
    /// # Errors
    /// [`KubeletError::NotYet`] until all were issued, [`KubeletError::Invalid`] if one was refused,
    /// [`KubeletError::Api`].
    pub async fn read(
        &self,
        client: &Client,
        node: &str,
        pod: &Pod,
        volume: &Volume,
    ) -> Result<Found, KubeletError> {
        let mut found = Found::new();
        let sources = volume.projected.iter().flat_map(|p| p.sources.iter().flatten());
        let mut missing = None;
        for (index, source) in sources.enumerate() {
            let Some(projection) = &source.pod_certificate else { continue };
            let place = (spec::uid(pod).to_owned(), volume.name.clone(), index);
            let state = self.states().get(&place).cloned().unwrap_or_default();
            let state = advance(client, node, pod, projection, state).await?;
            match plan::held(&state) {
                Ok(issued) => drop(found.insert(index, issued.clone())),
                // The other ones are asked for meanwhile.
                Err(error) => missing = missing.or(Some(error)),
            }
            self.states().insert(place, state);
        }
        missing.map_or(Ok(found), Err)
    }
}

async fn advance(
    client: &Client,
    node: &str,
    pod: &Pod,
    projection: &PodCertificateProjection,
    state: State,
) -> Result<State, KubeletError> {
    let now = Timestamp::now();
    match plan::step(&state, now) {
        Step::Rest => Ok(state),
        Step::Ask => match ask(client, node, pod, projection).await {
            Ok(asked) => Ok(plan::asked(state, asked)),
            // The old one still serves.
            Err(error) if matches!(state, State::Held(..)) => {
                tracing::warn!(
                    pod = spec::key(pod),
                    error = error.chain(),
                    "a certificate is not renewed yet"
                );
                Ok(state)
            }
            Err(error) => Err(error),
        },
        Step::Look(name) => {
            let requests: Api<PodCertificateRequest> = Api::namespaced(client.clone(), spec::namespace(pod));
            let what = format!("{}/{name}", spec::namespace(pod));
            let found = api("get PodCertificateRequest", &what, requests.get_opt(&name)).await;
            let found = match found {
                Ok(found) => found,
                // The authoriser learns of a new request a moment after it was made.
                Err(error) if error.api_code() == Some(403) => None,
                Err(error) => return Err(error),
            };
            Ok(plan::looked(state, found.as_ref(), now, jitter(now)))
        }
    }
}

/// Not the same for all, without a source of chance: the nanoseconds of now.
fn jitter(now: Timestamp) -> SignedDuration {
    SignedDuration::from_nanos(
        now.as_nanosecond().rem_euclid(JITTER.as_nanos()).try_into().unwrap_or_default(),
    )
}

async fn ask(
    client: &Client,
    node: &str,
    pod: &Pod,
    projection: &PodCertificateProjection,
) -> Result<Asked, KubeletError> {
    let namespace = spec::namespace(pod);
    let account_name = pod.spec.as_ref().and_then(|s| s.service_account_name.clone()).unwrap_or_default();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let what = format!("{namespace}/{account_name}");
    let account = api("get ServiceAccount", &what, accounts.get(&account_name)).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let node_object = api("get Node", node, nodes.get(node)).await?;
    let kind = projection.key_type.clone();
    let made = tokio::task::spawn_blocking(move || key::make(&kind)).await;
    let made = made.map_err(|error| KubeletError::Invalid(format!("making a key failed: {error}")))??;
    let request = PodCertificateRequest {
        metadata: ObjectMeta {
            namespace: Some(namespace.to_owned()),
            generate_name: Some("req-".to_owned()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                name: spec::name(pod).to_owned(),
                uid: spec::uid(pod).to_owned(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: PodCertificateRequestSpec {
            signer_name: projection.signer_name.clone(),
            pod_name: spec::name(pod).to_owned(),
            pod_uid: spec::uid(pod).to_owned(),
            service_account_name: account_name,
            service_account_uid: account.metadata.uid.unwrap_or_default(),
            node_name: node.to_owned(),
            node_uid: node_object.metadata.uid.unwrap_or_default(),
            max_expiration_seconds: projection.max_expiration_seconds,
            stub_pkc_s10_request: ByteString(made.request),
            unverified_user_annotations: projection.user_annotations.clone(),
        },
        status: None,
    };
    let requests: Api<PodCertificateRequest> = Api::namespaced(client.clone(), namespace);
    let params = PostParams::default();
    let created = requests.create(&params, &request);
    let created = api("create PodCertificateRequest", &spec::key(pod), created).await?;
    let name = created.metadata.name.unwrap_or_default();
    Ok(Asked { name, key: made.pem, since: Timestamp::now() })
}
