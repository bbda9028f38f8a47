//! `trine logs`.

use futures::{AsyncBufReadExt, TryStreamExt};
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::kube::Api;
use trine_typed::kube::api::LogParams;

use super::args::LogsArgs;
use super::connect::connect;

/// Runs the command.
///
/// # Errors
/// What the server says.
pub async fn run(args: LogsArgs) -> anyhow::Result<()> {
    let client = connect(&args.target).await?;
    let pods: Api<Pod> = Api::namespaced(client, &args.target.namespace);
    let params = LogParams {
        container: args.container,
        follow: args.follow,
        previous: args.previous,
        tail_lines: args.tail,
        timestamps: args.timestamps,
        ..LogParams::default()
    };
    let name = args.pod.strip_prefix("pod/").unwrap_or(&args.pod);
    let mut lines = pods.log_stream(name, &params).await?.lines();
    while let Some(line) = lines.try_next().await? {
        println!("{line}");
    }
    Ok(())
}
