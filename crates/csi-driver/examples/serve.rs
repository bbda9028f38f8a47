//! The driver alone, for a conformance suite to drive: `serve FOLDER` listens on `FOLDER/csi.sock` until it is
//! interrupted, and lets go of everything then.

use std::path::PathBuf;

use tokio_util::sync::CancellationToken;
use trine_csi_driver::{Config, PoolKind, serve, teardown};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("usage: serve FOLDER")?);
    let pool_dir = folder.join("pool");
    let config = Config {
        socket: folder.join("csi.sock"),
        registration_dir: None,
        pool_dir: pool_dir.clone(),
        pool: PoolKind::Auto,
        node_id: "node-1".to_owned(),
        max_volumes: 16,
        pool_bytes: None,
    };
    let stop = CancellationToken::new();
    let on_signal = stop.clone();
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        on_signal.cancel();
    });
    serve(config, stop).await?;
    tokio::task::spawn_blocking(move || teardown(&pool_dir)).await??;
    Ok(())
}
