//! A Secret that holds the token of a ServiceAccount goes when its account is gone. The API server fills it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use trine_typed::k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use trine_typed::kube::api::{DeleteParams, Preconditions};
use trine_typed::kube::{Api, ResourceExt};
use trine_typed::mirror::Mirror;

use crate::frame::{ControllerError, Cx, log};

const PERIOD: Duration = Duration::from_secs(300);
/// The type of such Secrets.
const TYPE: &str = "kubernetes.io/service-account-token";
/// The uid of the account that the token is for; there once it is filled.
const UID: &str = "kubernetes.io/service-account.uid";
/// The account.
const NAME: &str = "kubernetes.io/service-account.name";

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let changed = Arc::new(Notify::new());
    let secrets: Mirror<Secret> = cx.mirror(&changed);
    let accounts: Mirror<ServiceAccount> = cx.mirror(&changed);
    tokio::join!(secrets.ready(), accounts.ready());
    loop {
        for secret in secrets.all() {
            let namespace = secret.namespace().unwrap_or_default();
            let account = |name: &str| accounts.get(&namespace, name).and_then(|a| a.uid());
            if !is_orphan(secret.type_.as_deref(), secret.metadata.annotations.as_ref(), account) {
                continue;
            }
            let api: Api<Secret> = Api::namespaced(cx.client.clone(), &namespace);
            let same = Preconditions { uid: secret.uid(), resource_version: None };
            let params = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
            let done = api.delete(&secret.name_any(), &params).await;
            if let Err(error) = done.map_err(ControllerError::of("remove Secret", secret.name_any())) {
                log("service-account-token", &error);
            }
        }
        if !cx.turn(&changed, PERIOD).await {
            return;
        }
    }
}

/// Whether it was filled for an account that is gone or another by now. `account` gives the uid of one by its name.
fn is_orphan(
    kind: Option<&str>,
    annotations: Option<&BTreeMap<String, String>>,
    account: impl Fn(&str) -> Option<String>,
) -> bool {
    let said = |key: &str| annotations.and_then(|a| a.get(key)).map(String::as_str).unwrap_or_default();
    let (name, uid) = (said(NAME), said(UID));
    kind == Some(TYPE) && !uid.is_empty() && account(name).as_deref() != Some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_without_its_account_is_an_orphan() {
        let marks =
            |uid: &str| BTreeMap::from([(NAME.to_owned(), "a".to_owned()), (UID.to_owned(), uid.to_owned())]);
        let account = |name: &str| (name == "a").then(|| "1".to_owned());
        assert!(!is_orphan(Some(TYPE), Some(&marks("1")), account));
        assert!(is_orphan(Some(TYPE), Some(&marks("2")), account), "another account of that name");
        assert!(is_orphan(Some(TYPE), Some(&marks("1")), |_| None));
        assert!(!is_orphan(Some("Opaque"), Some(&marks("2")), account));
        assert!(!is_orphan(Some(TYPE), Some(&marks("")), account), "not filled yet");
    }
}
