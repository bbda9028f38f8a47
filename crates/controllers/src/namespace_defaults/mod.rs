//! Every namespace has a ServiceAccount `default` and a ConfigMap `kube-root-ca.crt`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use trine_typed::k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use trine_typed::kube::api::PostParams;
use trine_typed::kube::{Api, ResourceExt};
use trine_typed::mirror::Mirror;

use crate::frame::{ControllerError, Cx, log};

const ROOT_CA: &str = "kube-root-ca.crt";
const PERIOD: Duration = Duration::from_secs(300);

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let changed = Arc::new(Notify::new());
    let namespaces: Mirror<Namespace> = cx.mirror(&changed);
    let accounts: Mirror<ServiceAccount> = cx.mirror(&changed);
    let config_maps: Mirror<ConfigMap> = cx.mirror(&changed);
    tokio::join!(namespaces.ready(), accounts.ready(), config_maps.ready());
    loop {
        for namespace in namespaces.all() {
            if namespace.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let name = namespace.name_any();
            let have = config_maps.get(&name, ROOT_CA);
            let right = have.as_ref().and_then(|c| c.data.as_ref()?.get("ca.crt")) == Some(&cx.config.ca_pem);
            if !right && let Err(error) = make_root_ca(&cx, &name, have.is_some()).await {
                log("namespace-defaults", &error);
            }
            // The account last: Pods wait for it, and then find the authority, which they mount.
            if accounts.get(&name, "default").is_none()
                && let Err(error) = make_account(&cx, &name).await
            {
                log("namespace-defaults", &error);
            }
        }
        if !cx.turn(&changed, PERIOD).await {
            return;
        }
    }
}

async fn make_account(cx: &Cx, namespace: &str) -> Result<(), ControllerError> {
    let api: Api<ServiceAccount> = Api::namespaced(cx.client.clone(), namespace);
    let mut account = ServiceAccount::default();
    account.metadata.name = Some("default".to_owned());
    let done = api.create(&PostParams::default(), &account).await;
    done.map(drop).map_err(ControllerError::of("create ServiceAccount", format!("{namespace}/default")))
}

async fn make_root_ca(cx: &Cx, namespace: &str, exists: bool) -> Result<(), ControllerError> {
    let api: Api<ConfigMap> = Api::namespaced(cx.client_of("root-ca-cert-publisher"), namespace);
    let data = [("ca.crt".to_owned(), cx.config.ca_pem.clone())];
    let error = ControllerError::of("write ConfigMap", format!("{namespace}/{ROOT_CA}"));
    let mut config_map = ConfigMap { data: Some(data.into()), ..ConfigMap::default() };
    config_map.metadata.name = Some(ROOT_CA.to_owned());
    if exists {
        return api.replace(ROOT_CA, &PostParams::default(), &config_map).await.map(drop).map_err(error);
    }
    api.create(&PostParams::default(), &config_map).await.map(drop).map_err(error)
}
