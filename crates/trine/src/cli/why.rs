//! `trine why`: which plane holds a Pod up. Exit code 0 if nothing does, 3 if something was found.

use std::process::ExitCode;

use trine_why::trace::{of_pod, read};
use trine_why::{Plane, gather, judge};

use super::args::WhyArgs;
use super::connect::connect;
use crate::layout::Layout;

/// Exit code of a found fault.
const FOUND: u8 = 3;

/// Runs the command.
///
/// # Errors
/// If the Pod cannot be read.
pub async fn run(args: &WhyArgs) -> anyhow::Result<ExitCode> {
    let client = connect(&args.target).await?;
    let name = match args.what.split_once('/') {
        Some(("pod" | "pods" | "po", name)) => name,
        None => args.what.as_str(),
        Some((kind, _)) => anyhow::bail!("`why` knows pod/NAME so far, not {kind}"),
    };
    let namespace = args.target.namespace.as_str();
    // Another cluster's Pods have no steps here.
    let steps = match &args.target.kubeconfig {
        Some(_) => Vec::new(),
        None => {
            let layout = Layout::new(&args.target.data_dir.data_dir)?;
            of_pod(&read(&layout.steps()).unwrap_or_default(), &format!("{namespace}/{name}"))
        }
    };
    let verdict = judge(&gather(&client, namespace, name, steps).await?);
    match args.output.as_str() {
        "json" => println!("{}", serde_json::to_string_pretty(&verdict)?),
        "text" => println!("{verdict}"),
        other => anyhow::bail!("unknown output {other:?}: text or json"),
    }
    Ok(if verdict.plane == Plane::Healthy { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
}
