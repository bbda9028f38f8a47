//! Line 6: bad input gives a clear event or error that names plane, call and cause; nothing leaks, and other Pods are
//! unharmed. Each is judged by `trine why` too.

mod archives;
mod manifests;
mod network;
mod pods;

use trine_tests::{Cluster, until};

/// What a bad Pod is expected to lead to.
struct Expected<'a> {
    /// The Pod, and its claim if it has one.
    pod: &'a str,
    /// Words of one event about it.
    event: &'a [&'a str],
    /// Plane of the verdict.
    plane: &'a str,
    /// Words of the verdict.
    cause: &'a [&'a str],
}

impl Expected<'_> {
    fn check(&self, cluster: &Cluster) {
        let event = until(&format!("an event about {}", self.pod), || {
            let events = cluster.events(self.pod);
            let found = events.lines().find(|line| self.event.iter().all(|word| line.contains(word)));
            found.map(str::to_owned).ok_or(events.clone())
        });
        let verdict = until(&format!("a verdict on {}", self.pod), || {
            let outcome = cluster.trine(&["why", &format!("pod/{}", self.pod)]);
            let text = outcome.out;
            let right = text.contains(&format!("plane:  {}", self.plane))
                && self.cause.iter().all(|word| text.contains(word));
            if right { Ok(text) } else { Err(format!("{text}{}", outcome.err)) }
        });
        println!("{}: {event}\n{verdict}", self.pod);
    }
}

/// A Pod that must not be harmed: the same container before and after.
struct Bystander {
    container: serde_json::Value,
}

impl Bystander {
    fn start(cluster: &Cluster) -> Self {
        let _ = cluster.apply(&simple("bystander", "[/bin/busybox, sleep, '100000']")).expect_ok();
        let pod = cluster.wait_running("bystander");
        Self { container: pod["status"]["containerStatuses"][0]["containerID"].clone() }
    }

    fn check(&self, cluster: &Cluster) {
        let status = cluster.get("pod/bystander")["status"]["containerStatuses"][0].clone();
        assert_eq!(status["containerID"], self.container);
        assert_eq!(status["restartCount"], 0);
        assert_eq!(status["ready"], true);
    }
}

fn simple(name: &str, command: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  \
         containers: [{{name: main, image: 'trine.local/busybox:1', command: {command}}}]\n"
    )
}

/// True if the test may go on.
fn possible(test: &str) -> bool {
    trine_kernel::testing::root(test) && trine_kernel::testing::program(test, "busybox")
}
