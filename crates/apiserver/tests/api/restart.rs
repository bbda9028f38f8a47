//! What is left after a stop and after a kill.

use crate::server::*;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[tokio::test]
async fn objects_revisions_and_the_past_survive_a_restart() {
    let api = Api::start().await;
    let ca = api.server.ca_pem().to_owned();
    let first = api.make(CONFIG_MAPS, config_map("a", "1")).await;
    api.make(CONFIG_MAPS, config_map("b", "1")).await;
    let service = api
        .make(
            "/api/v1/namespaces/default/services",
            json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}}),
        )
        .await;
    let api = api.restart().await;
    assert_eq!(api.server.ca_pem(), ca);
    assert_eq!(api.get(&format!("{CONFIG_MAPS}/a")).await, first);
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", revision(&first))).await;
    assert_eq!(watch.seen().await, ("ADDED".to_owned(), "b".to_owned()));
    let taken = json!({"metadata": {"name": "t"}, "spec": {"clusterIP": service["spec"]["clusterIP"], "ports": [{"port": 1}]}});
    assert_eq!(api.call("POST", "/api/v1/namespaces/default/services", taken).await.0, 422);
}

/// The child of the next test: writes, and says so after each answer, until it is killed.
#[tokio::test]
#[ignore = "run by another test"]
async fn child_that_writes_until_it_is_killed() {
    let Ok(dir) = std::env::var("TRINE_TEST_DIR") else { return };
    let dir = tempfile::TempDir::with_prefix_in("x", dir).unwrap();
    let parent = dir.path().parent().unwrap().to_owned();
    let api = Api { server: start_in(&parent).await, dir };
    for i in 0.. {
        api.make(CONFIG_MAPS, config_map(&format!("m{i}"), "1")).await;
        println!("wrote {i}");
    }
}

#[tokio::test]
async fn a_kill_loses_no_write_that_was_answered() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "restart::child_that_writes_until_it_is_killed", "--nocapture"])
            .env("TRINE_TEST_DIR", dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let wanted = 20 + round * 7;
        let mut last = None;
        for line in lines.by_ref().map_while(Result::ok) {
            if let Some(number) = line.strip_prefix("wrote ").and_then(|n| n.parse::<usize>().ok()) {
                last = Some(number);
                if number >= wanted {
                    break;
                }
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What was printed between the last line read and the kill was answered too.
        let printed =
            lines.map_while(Result::ok).filter_map(|l| l.strip_prefix("wrote ").and_then(|n| n.parse().ok()));
        let last = printed.last().or(last).expect("the child wrote");
        let api = Api { server: start_in(dir.path()).await, dir: tempfile::tempdir().unwrap() };
        let there = api.get(CONFIG_MAPS).await["items"].as_array().unwrap().len();
        assert!(there > last, "{there} objects, but {last} was answered");
        api.call("DELETE", CONFIG_MAPS, serde_json::Value::Null).await;
        api.server.stop().await;
    }
}

/// Prints figures; run with `--nocapture`. The goal, 150 ms, is for a release build on an idle machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_answers_soon_after_its_start() {
    let begin = Instant::now();
    let api = Api::start().await;
    api.get("/readyz").await;
    let fresh = begin.elapsed();
    let begin = Instant::now();
    let api = api.restart().await;
    api.get("/readyz").await;
    let again = begin.elapsed();
    println!("first start {fresh:?}, second {again:?}");
    assert!(fresh < Duration::from_secs(5) && again < Duration::from_secs(5));
}
