//! The table of what was measured, with the machine, the day and the goals.

use std::fmt::Write as _;

use crate::Size;

/// One figure.
#[derive(Debug, Clone)]
pub struct Row {
    what: String,
    measured: f64,
    unit: &'static str,
    /// The goal, and whether more is better.
    goal: Option<(f64, bool)>,
}

impl Row {
    /// A figure without a goal.
    pub fn figure(what: &str, measured: f64, unit: &'static str) -> Self {
        Self { what: what.to_owned(), measured, unit, goal: None }
    }

    /// A figure that is held against a goal.
    pub fn goal(what: &str, measured: f64, unit: &'static str, goal: f64, more: bool) -> Self {
        Self { what: what.to_owned(), measured, unit, goal: Some((goal, more)) }
    }

    fn line(&self) -> String {
        let unit = self.unit;
        let goal = self.goal.map(|(goal, more)| {
            let met = if more { self.measured >= goal } else { self.measured <= goal };
            format!("{goal} {unit}: {}", if met { "met" } else { "missed" })
        });
        let digits = if self.measured < 10.0 { 2 } else { usize::from(self.measured < 100.0) };
        format!("| {} | {:.digits$} {unit} | {} |", self.what, self.measured, goal.unwrap_or_default())
    }
}

/// The page.
pub fn page(size: &Size, rows: &[Row]) -> String {
    let mut page = format!(
        "# How fast Pods get their nodes\n\nWritten by `cargo xtask bench sched`, never by hand: a server alone with {} hollow nodes \
         (`trine sim`), which give signs of life and\nplay their Pods' lives as kubelets do, and the client, all on the same cores. \
         \"Bound\" is from the first to the last of Pods that\nwere all there when their scheduler (`trine scheduler`) started. {}\n\n\
         | what | measured | goal |\n|---|---|---|\n",
        size.nodes,
        machine(),
    );
    for row in rows {
        let _ = writeln!(page, "{}", row.line());
    }
    page
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let day = trine_typed::k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    let build =
        if trine_tests::program().display().to_string().contains("/release/") { "release" } else { "debug" };
    let others = read("/proc/loadavg");
    let load = others.split(' ').next().unwrap_or_default();
    format!(
        "{day}, {cores} cores, Linux {}, {build} build, load average {load} at the end.",
        read("/proc/sys/kernel/osrelease")
    )
}
