//! `trine sim`: nodes without machines, for tests of scale. They register, give signs of life at a kubelet's rates and play the
//! life of the Pods that are bound to them; nothing runs. One process and one watch for all of them.
//!
//! - [`plan`] what they say and do
//! - [`nodes`] the nodes; [`pods`] the Pods on them; [`load`] Pods to be placed

pub mod load;
pub mod nodes;
pub mod plan;
pub mod pods;

use std::sync::Arc;
use std::time::Instant;

use crate::cli::args::SimArgs;
use crate::cli::connect::connect;
use crate::control;

/// Runs until SIGINT or SIGTERM. The Nodes stay; without signs of life they are NotReady soon.
///
/// # Errors
/// If the cluster cannot be reached, or refuses a node.
pub async fn run(args: SimArgs) -> anyhow::Result<()> {
    let client = connect(&args.target).await?;
    let shape = Arc::new(plan::Shape {
        prefix: args.prefix,
        zones: args.zones,
        cpus: args.cpus,
        memory: args.memory,
        pods: args.pods_per_node,
    });
    let since = Instant::now();
    let nodes = nodes::HollowNodes::new(client.clone(), Arc::clone(&shape), args.nodes);
    nodes.register().await?;
    println!("{} nodes are registered after {:.1} s", args.nodes, since.elapsed().as_secs_f64());
    let play = pods::HollowPods::new(client.clone(), shape, args.nodes).play();
    let load = async {
        if args.pods > 0 {
            let since = Instant::now();
            load::create(&client, &args.target.namespace, args.pods).await?;
            println!("{} Pods are created after {:.1} s", args.pods, since.elapsed().as_secs_f64());
        }
        std::future::pending::<anyhow::Result<()>>().await
    };
    tokio::select! {
        ended = control::ended() => Ok(ended?),
        () = nodes.live() => Ok(()),
        () = play => anyhow::bail!("the watch of Pods has ended"),
        ended = load => ended,
    }
}
