//! How long the calls of a Pod's life take on the host's network, printed; `--nocapture` shows it.

#![allow(clippy::unwrap_used)]

mod harness;

use harness::Node;

#[tokio::test(flavor = "multi_thread")]
async fn the_calls_of_a_pods_life_are_measured() {
    let Some(node) = Node::start("the_calls_of_a_pods_life_are_measured").await else { return };
    node.measure(|config| config).await;
    node.finish().await;
}
