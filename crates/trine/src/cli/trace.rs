//! `trine trace`: the recorded steps of a Pod.

use trine_why::trace::{gantt, of_pod, read};

use super::args::TraceArgs;
use crate::layout::Layout;
use crate::nodes;

/// Columns of the bars.
const WIDTH: usize = 50;

/// Runs the command.
///
/// # Errors
/// If nothing was recorded for the Pod.
pub fn run(args: &TraceArgs) -> anyhow::Result<()> {
    let layout = Layout::new(&args.target.data_dir.data_dir)?;
    let name = args.what.strip_prefix("pod/").unwrap_or(&args.what);
    let pod = format!("{}/{name}", args.target.namespace);
    let mut steps = read(&layout.steps())?;
    // What a further node of this machine did is in its own file.
    for dir in nodes::folders(&layout) {
        steps.extend(read(&Layout::seen_as(&dir, layout.root())?.steps())?);
    }
    steps.sort_by_key(|step| step.start_us);
    let steps = of_pod(&steps, &pod);
    anyhow::ensure!(!steps.is_empty(), "no steps of pod {pod} are recorded in {}", layout.steps().display());
    match args.output.as_str() {
        "text" => print!("{}", gantt(&steps, WIDTH)),
        "json" => println!("{}", serde_json::to_string_pretty(&steps)?),
        other => anyhow::bail!("unknown output {other:?}: text or json"),
    }
    Ok(())
}
