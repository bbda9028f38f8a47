//! `trine server`: the control plane alone. Nodes join it with a token.

use std::time::Instant;

use tokio_util::sync::CancellationToken;

use crate::cli::node_args::ServerArgs;
use crate::control::{Control, Start, ended};
use crate::daemon;
use crate::families;
use crate::identity::Identity;
use crate::layout::Layout;
use crate::planes::Planes;
use crate::settings::Settings;

/// Runs the control plane until SIGINT or SIGTERM.
///
/// # Errors
/// If the data dir is in use, or the API server cannot start. The other planes are supervised.
pub async fn run(args: &ServerArgs) -> anyhow::Result<()> {
    let layout = Layout::new(&args.data_dir.data_dir)?;
    let since = Instant::now();
    let _lock = daemon::claim(&layout)?;
    let (mut identity, _reservations) = Identity::claim(&layout)?;
    identity.set_network(&layout, &args.network)?;
    let advertise = args.advertise.map_or_else(families::machine_ip, Ok)?;
    let stop = CancellationToken::new();
    let planes = Planes::new(layout.run().join("planes.json"), stop.clone());
    let start = Start { layout: &layout, advertise, api: &args.api, store: &args.store };
    let control = Control::start(start, &mut identity, &planes).await?;
    control.publish(&Settings::of(&identity)?).await?;
    daemon::record(&layout, true)?;
    let root = layout.root().display();
    eprintln!("API server {} after {:.2?}", control.url(), since.elapsed());
    eprintln!("kubeconfig: {}", layout.kubeconfig().display());
    eprintln!(
        "a node joins with: trine agent --server {} --token \"$(trine token create --data-dir {root})\"",
        control.url()
    );
    ended().await?;
    control.stop(&stop).await;
    let _ = std::fs::remove_file(layout.pid_file());
    Ok(())
}
