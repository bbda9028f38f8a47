//! PostgreSQL, its volume, and its backup.

use trine_tests::until;

use super::Stage;

fn sql(stage: &Stage, statement: &str) -> String {
    let command =
        format!("PGPASSWORD=\"$POSTGRES_PASSWORD\" psql -h localhost -U postgres -Atc '{statement}'");
    stage.said(&["exec", "db-0", "--", "sh", "-c", &command]).trim().to_owned()
}

#[test]
#[ignore = "takes minutes; `cargo xtask manifests` makes its image and runs it"]
fn a_database_keeps_its_data_and_is_backed_up() {
    let Some(stage) = Stage::set("a_database_keeps_its_data_and_is_backed_up") else { return };
    stage.import("postgres");
    stage.apply("database/database.yaml", &[]);
    until("db-0 is there", || {
        let pod = stage.kubectl(&["get", "pod", "db-0"]);
        if pod.ok { Ok(()) } else { Err(pod.err) }
    });
    stage.wait("pod/db-0", "Ready");
    assert_eq!(sql(&stage, "create table t as select generate_series(1, 1000) i"), "SELECT 1000");

    let _ = stage.said(&["delete", "pod", "db-0"]);
    stage.wait("pod/db-0", "Ready");
    assert_eq!(sql(&stage, "select count(*) from t"), "1000", "the data has survived");

    // Once by hand, and once by the clock.
    let _ = stage.said(&["create", "job", "--from=cronjob/db-backup", "now"]);
    stage.wait("job/now", "Complete");
    let lines: u32 = stage.said(&["logs", "job/now"]).trim().parse().unwrap();
    assert!(lines > 1000, "{lines} lines were dumped");
    let last = ["get", "cronjob", "db-backup", "-o", "jsonpath={.status.lastSuccessfulTime}"];
    for _ in 0..2 {
        let before = stage.said(&last);
        for _ in 0..75 {
            if stage.said(&last) != before {
                break;
            }
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
    }
    assert_ne!(stage.said(&last), "", "the clock has started one that succeeded");

    // The backup is on a volume of its own, which another Pod can read.
    let _ = stage.said(&["delete", "cronjob", "db-backup"]);
    stage.apply("database/restore.yaml", &[]);
    stage.wait("job/restore", "Complete");
    assert_eq!(sql(&stage, "select count(*) from restored.t"), "1000");
    let _ = stage.said(&["delete", "statefulset", "db"]);
    let _ = stage.said(&["delete", "pvc", "--all"]);
}
