//! Certificates that are asked for: approves what nodes may have, signs what is approved, removes what is old.
//!
//! - [`request`] what a request asks for
//! - [`plan`] the decisions
//! - [`sign`] the certificate

pub mod plan;
pub mod request;
pub mod sign;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use trine_typed::k8s_openapi::ByteString;
use trine_typed::k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use trine_typed::k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition,
};
use trine_typed::k8s_openapi::api::core::v1::Node;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trine_typed::kube::api::{DeleteParams, PostParams};
use trine_typed::kube::{Api, ResourceExt};
use trine_typed::mirror::Mirror;

use crate::frame::{ControllerError, Cx, log};
use plan::{Step, Why};
use sign::Signer;

const PERIOD: Duration = Duration::from_secs(60);
/// The name in the log.
const NAME: &str = "certificates";

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let changed = Arc::new(Notify::new());
    let requests: Mirror<CertificateSigningRequest> = cx.mirror(&changed);
    let nodes: Mirror<Node> = cx.mirror(&changed);
    tokio::join!(requests.ready(), nodes.ready());
    let signer = cx.config.signer.as_ref().map(|s| Signer::new(&cx.config.ca_pem, &s.key_pem));
    let signer = match signer.transpose() {
        Ok(signer) => signer,
        Err(why) => {
            tracing::error!(why, "the authority cannot sign; requests are approved and not signed");
            None
        }
    };
    loop {
        let addresses: BTreeMap<String, Vec<String>> =
            nodes.all().iter().map(|n| (n.name_any(), addresses(n))).collect();
        for request in requests.all() {
            let step = plan::step(&request, &addresses, trine_clock::now());
            if let Err(error) = take(&cx, signer.as_ref(), &request, step).await {
                log(NAME, &error);
            }
        }
        if !cx.turn(&changed, PERIOD).await {
            return;
        }
    }
}

/// Names and addresses of a node.
fn addresses(node: &Node) -> Vec<String> {
    let list = node.status.as_ref().and_then(|s| s.addresses.as_ref());
    let mut all: Vec<String> = list.into_iter().flatten().map(|a| a.address.clone()).collect();
    // Kubelets on this machine are also reached by loopback.
    all.extend([node.name_any(), "127.0.0.1".to_owned()]);
    all
}

async fn take(
    cx: &Cx,
    signer: Option<&Signer>,
    request: &CertificateSigningRequest,
    step: Step,
) -> Result<(), ControllerError> {
    let api: Api<CertificateSigningRequest> = Api::all(cx.client.clone());
    let name = request.name_any();
    match step {
        Step::Wait => Ok(()),
        Step::Remove => {
            let done = api.delete(&name, &DeleteParams::default()).await;
            done.map(drop).map_err(ControllerError::of("remove CertificateSigningRequest", name))
        }
        Step::Approve(why) => {
            if !allowed(cx, request, why).await? {
                return Ok(());
            }
            let approved = said(request, "Approved", "AutoApproved", why.message());
            let done = api.replace_subresource("approval", &name, &PostParams::default(), &approved).await;
            done.map(drop).map_err(ControllerError::of("approve CertificateSigningRequest", name))
        }
        Step::Sign => {
            let Some(signer) = signer else { return Ok(()) };
            let written = match signer.sign(request, trine_clock::now()) {
                Ok(pem) => {
                    let mut issued = request.clone();
                    issued.status.get_or_insert_default().certificate = Some(ByteString(pem.into_bytes()));
                    issued
                }
                Err(why) => said(request, "Failed", "SignerValidationFailure", &why),
            };
            let done = api.replace_status(&name, &PostParams::default(), &written).await;
            done.map(drop).map_err(ControllerError::of("sign CertificateSigningRequest", name))
        }
    }
}

/// The request with one more condition.
fn said(
    request: &CertificateSigningRequest,
    kind: &str,
    reason: &str,
    message: &str,
) -> CertificateSigningRequest {
    let mut request = request.clone();
    let now = Some(Time(trine_clock::now()));
    let condition = CertificateSigningRequestCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_update_time: now.clone(),
        last_transition_time: now,
    };
    request.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
    request
}

/// Whether who asks may have such a certificate without a person's look at it.
async fn allowed(cx: &Cx, request: &CertificateSigningRequest, why: Why) -> Result<bool, ControllerError> {
    let Some(subresource) = why.subresource() else { return Ok(true) };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: request.spec.username.clone(),
            uid: request.spec.uid.clone(),
            groups: request.spec.groups.clone(),
            extra: request.spec.extra.clone(),
            resource_attributes: Some(ResourceAttributes {
                group: Some("certificates.k8s.io".to_owned()),
                resource: Some("certificatesigningrequests".to_owned()),
                subresource: Some(subresource.to_owned()),
                verb: Some("create".to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(cx.client.clone());
    let done = api.create(&PostParams::default(), &review).await;
    let done = done.map_err(ControllerError::of("create SubjectAccessReview", request.name_any()))?;
    Ok(done.status.is_some_and(|s| s.allowed))
}
