//! A registry with one image of one layer, in this process.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use sha2::{Digest, Sha256};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// It serves as long as the test's runtime does.
pub struct Registry {
    address: SocketAddr,
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// A layer with one file.
fn layer() -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(5);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    archive.append_data(&mut header, "file", &b"hello"[..]).unwrap();
    archive.into_inner().unwrap()
}

impl Registry {
    pub async fn start() -> Self {
        let layer = layer();
        let config = json!({
            "architecture": "amd64", "os": "linux", "config": {"Cmd": ["/file"]},
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        });
        let config = config.to_string().into_bytes();
        let described = |kind: &str, bytes: &[u8]| json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest(bytes), "size": bytes.len()});
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": described("config.v1+json", &config),
            "layers": [described("layer.v1.tar", &layer)],
        });
        let manifest = manifest.to_string().into_bytes();
        let blobs = [layer, config, manifest.clone()].map(|bytes| (digest(&bytes), bytes));
        let mut all: HashMap<String, Vec<u8>> = HashMap::from(blobs);
        all.insert("1".to_owned(), manifest);
        let routes = Router::new()
            .route("/v2/", get(|| async { "{}" }))
            .route("/v2/app/{kind}/{name}", get(serve))
            .with_state(Arc::new(all));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { address }
    }

    /// The image's name.
    pub fn image(&self) -> String {
        format!("{}/app:1", self.address)
    }
}

async fn serve(
    State(all): State<Arc<HashMap<String, Vec<u8>>>>,
    Path((kind, name)): Path<(String, String)>,
) -> Response {
    let Some(bytes) = all.get(&name).cloned() else { return StatusCode::NOT_FOUND.into_response() };
    let media = if kind == "manifests" { MANIFEST } else { "application/octet-stream" };
    ([(header::CONTENT_TYPE, media)], bytes).into_response()
}
