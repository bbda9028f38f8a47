//! Asks the cluster for a certificate: a CertificateSigningRequest that its controllers approve and sign.

use std::time::Duration;

use anyhow::Context;
use trine_typed::k8s_openapi::ByteString;
use trine_typed::k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec,
};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use trine_typed::kube::api::PostParams;
use trine_typed::kube::{Api, Client};

use crate::node::Pair;

/// How long the cluster may take (upstream: 15 min; a person may have to approve).
const DEADLINE: Duration = Duration::from_secs(900);
const POLL: Duration = Duration::from_millis(50);
/// The longest pause between two looks.
const SLOW_POLL: Duration = Duration::from_secs(5);

/// What a node's certificate is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// To be the node to the API server.
    Client,
    /// To serve under these names and addresses.
    Serving(Vec<String>),
}

impl Purpose {
    fn signer(&self) -> &'static str {
        match self {
            Self::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::Serving(_) => "kubernetes.io/kubelet-serving",
        }
    }

    fn usages(&self) -> [&'static str; 2] {
        ["digital signature", if *self == Self::Client { "client auth" } else { "server auth" }]
    }

    fn names(&self) -> &[String] {
        match self {
            Self::Client => &[],
            Self::Serving(names) => names,
        }
    }
}

/// The request in PEM (PKCS #10), and its key.
fn written(node: &str, purpose: &Purpose) -> anyhow::Result<Pair> {
    let key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::new(purpose.names())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(rcgen::DnType::CommonName, format!("system:node:{node}"));
    Ok((params.serialize_request(&key)?.pem()?, key.serialize_pem()))
}

/// A certificate for the node `node` and its key, both PEM.
///
/// # Errors
/// What the API server says, or that the request was denied, or is not decided in time.
pub async fn certificate(client: &Client, node: &str, purpose: &Purpose) -> anyhow::Result<Pair> {
    let (request, key) = written(node, purpose)?;
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let object = CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some("csr-".to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.into_bytes()),
            signer_name: purpose.signer().to_owned(),
            usages: Some(purpose.usages().map(str::to_owned).to_vec()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let made = api.create(&PostParams::default(), &object).await.context("cannot ask for a certificate")?;
    let name = made.metadata.name.context("the request has no name")?;
    let waited = tokio::time::timeout(DEADLINE, answer(&api, &name)).await;
    let cert = waited.with_context(|| format!("request {name} is not decided after {DEADLINE:?}"))??;
    Ok((cert, key))
}

async fn answer(api: &Api<CertificateSigningRequest>, name: &str) -> anyhow::Result<String> {
    let mut pause = POLL;
    loop {
        let status = api.get(name).await.context("cannot look at the request")?.status.unwrap_or_default();
        if let Some(ByteString(pem)) = status.certificate.filter(|c| !c.0.is_empty()) {
            return String::from_utf8(pem).context("the certificate");
        }
        let conditions = status.conditions.unwrap_or_default();
        if let Some(no) = conditions.iter().find(|c| ["Denied", "Failed"].contains(&c.type_.as_str())) {
            anyhow::bail!("request {name} is {}: {}", no.type_, no.message.as_deref().unwrap_or_default());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 5 / 4).min(SLOW_POLL);
    }
}
