//! Lists: pages, moments, and what they cannot show any more.

use crate::server::*;
use serde_json::Value;

fn names(list: &Value) -> Vec<String> {
    list["items"].as_array().unwrap().iter().map(|i| text(&i["metadata"]["name"])).collect()
}

async fn five() -> (Api, Vec<u64>) {
    let api = Api::start().await;
    let mut revisions = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        revisions.push(revision(&api.make(CONFIG_MAPS, labelled(name, name)).await));
    }
    (api, revisions)
}

/// All pages from the first on.
async fn pages(api: &Api, query: &str) -> Vec<Value> {
    let mut pages = vec![api.get(&format!("{CONFIG_MAPS}?{query}")).await];
    loop {
        let token = text(&pages.last().unwrap()["metadata"]["continue"]);
        if token.is_empty() {
            return pages;
        }
        pages.push(api.get(&format!("{CONFIG_MAPS}?{query}&continue={token}")).await);
    }
}

#[tokio::test]
async fn pages_show_one_moment_and_say_how_much_is_left() {
    let (api, _) = five().await;
    let first = api.get(&format!("{CONFIG_MAPS}?limit=2")).await;
    assert_eq!(
        (names(&first), &first["metadata"]["remainingItemCount"]),
        (vec!["a".into(), "b".into()], &3.into())
    );
    let token = text(&first["metadata"]["continue"]);
    api.call("DELETE", &format!("{CONFIG_MAPS}/c"), Value::Null).await;
    api.make(CONFIG_MAPS, config_map("bb", "")).await;
    let second = api.get(&format!("{CONFIG_MAPS}?limit=2&continue={token}")).await;
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert_eq!(second["metadata"]["remainingItemCount"], 1);
    // A token works more than once, and without a limit.
    let rest = api.get(&format!("{CONFIG_MAPS}?continue={token}")).await;
    assert_eq!((names(&rest).len(), rest["metadata"].get("continue")), (3, None));
}

#[tokio::test]
async fn a_page_is_full_of_what_is_wanted_and_counts_nothing_with_a_selector() {
    let (api, _) = five().await;
    let found = pages(&api, "limit=2&labelSelector=app!%3Db").await;
    assert_eq!(found.iter().map(|p| names(p).len()).collect::<Vec<_>>(), [2, 2]);
    assert!(found.iter().all(|p| p["metadata"].get("remainingItemCount").is_none()));
    let exact = pages(&api, "limit=5").await;
    assert_eq!((exact.len(), exact[0]["metadata"].get("remainingItemCount")), (1, None));
}

#[tokio::test]
async fn a_list_is_as_of_the_revision_that_it_names() {
    let (api, revisions) = five().await;
    let at = revisions[2];
    let rows = [
        (format!("resourceVersion={at}&resourceVersionMatch=Exact"), 3, Some(at)),
        (format!("resourceVersion={at}&limit=10"), 3, Some(at)),
        (format!("resourceVersion={at}&resourceVersionMatch=NotOlderThan"), 5, None),
        (format!("resourceVersion={at}&resourceVersionMatch=NotOlderThan&limit=10"), 5, None),
        (format!("resourceVersion={at}"), 5, None),
        ("resourceVersion=0".to_owned(), 5, None),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan".to_owned(), 5, None),
    ];
    for (query, count, exactly) in rows {
        let list = api.get(&format!("{CONFIG_MAPS}?{query}")).await;
        assert_eq!(names(&list).len(), count, "{query}");
        let shown = revision(&list);
        assert!(exactly.map_or(shown >= revisions[4], |r| r == shown), "{query}: {shown}");
    }
}

#[tokio::test]
async fn a_revision_to_come_is_waited_for_and_then_too_large() {
    let (api, revisions) = five().await;
    let path = format!("{CONFIG_MAPS}?resourceVersion={}", revisions[4] + 1);
    let (listed, _) = tokio::join!(api.get(&path), api.make(CONFIG_MAPS, config_map("f", "")));
    assert_eq!(names(&listed).len(), 6);
    let (code, refused) =
        api.call("GET", &format!("{CONFIG_MAPS}?resourceVersion=999999"), Value::Null).await;
    assert_eq!((code, &refused["reason"]), (504, &"Timeout".into()));
    assert_eq!(refused["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(refused["details"]["causes"][0]["message"], "Too large resource version");
    assert_eq!(refused["details"]["retryAfterSeconds"], 1);
    let message = text(&refused["message"]);
    assert!(message.starts_with("Timeout: Too large resource version: 999999, current: "), "{message}");
}

#[tokio::test]
async fn a_page_of_a_forgotten_moment_offers_to_go_on_at_another() {
    let (api, _) = five().await;
    let first = api.get(&format!("{CONFIG_MAPS}?limit=2")).await;
    let token = text(&first["metadata"]["continue"]);
    for round in 0..70 {
        // Many at once, so that they share commits.
        let calls = (0..60).map(|i| {
            let (api, body) = (&api, config_map(&format!("e{i}"), &round.to_string()));
            async move {
                if api.call("PUT", &format!("{CONFIG_MAPS}/e{i}"), body.clone()).await.0 == 404 {
                    api.make(CONFIG_MAPS, body).await;
                }
            }
        });
        futures::future::join_all(calls).await;
    }
    api.call("DELETE", &format!("{CONFIG_MAPS}/d"), Value::Null).await;
    let next = format!("{CONFIG_MAPS}?limit=2&continue={token}");
    let (code, gone) = api.call("GET", &next, Value::Null).await;
    assert_eq!((code, &gone["reason"]), (410, &"Expired".into()), "{gone}");
    assert!(text(&gone["message"]).contains("results in an inconsistent list"), "{gone}");
    let token = text(&gone["metadata"]["continue"]);
    let now = api.get(&format!("{CONFIG_MAPS}?limit=2&continue={token}")).await;
    assert_eq!(names(&now), ["c", "e"]);
    assert!(revision(&now) > revision(&first));
    // From here on the pages show that other moment.
    let token = text(&now["metadata"]["continue"]);
    let last = api.get(&format!("{CONFIG_MAPS}?limit=100&continue={token}")).await;
    assert_eq!((names(&last).len(), revision(&last)), (60, revision(&now)));
}

#[tokio::test]
async fn combinations_that_mean_nothing_are_refused() {
    let (api, _) = five().await;
    let rows = [
        ("resourceVersionMatch=Exact", 422),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422),
        ("sendInitialEvents=true", 422),
        ("watch=1&sendInitialEvents=true", 422),
        ("watch=1&resourceVersionMatch=NotOlderThan", 422),
        ("watch=1&resourceVersion=x", 400),
        ("limit=many", 400),
        ("continue=x", 400),
    ];
    for (query, wanted) in rows {
        let (code, refused) = api.call("GET", &format!("{CONFIG_MAPS}?{query}"), Value::Null).await;
        assert_eq!((code, &refused["kind"]), (wanted, &"Status".into()), "{query}: {refused}");
    }
}
