//! Pulls from a real registry.

use std::time::{Duration, Instant};

use serde_json::json;
use trine_images::{Auth, Fault, ImageStore, Options};
use trine_kernel::testing::{program, root};

use crate::made::{Layer, Shop, causes, names};
use crate::serving::{Door, INDEX, Serving, USER};

fn ready(test: &str) -> bool {
    root(test) && program(test, "docker-registry")
}

fn layers() -> Vec<Vec<u8>> {
    let noise: String = (0..200_000u32)
        .map(|n| char::from(b'a' + (n.wrapping_mul(2_654_435_761) >> 27) as u8 % 26))
        .collect();
    vec![
        Layer::new().dir("d").file("d/a", "1").file("d/b", &noise).bytes(),
        Layer::new().file("d/.wh.a", "").file("d/c", &noise).bytes(),
        Layer::new().file("top", "3").bytes(),
    ]
}

fn me() -> Option<Auth> {
    Some(Auth::Basic { username: USER.0.into(), password: USER.1.into() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_is_pulled_by_tag_and_by_digest() {
    if !ready("an_image_is_pulled_by_tag_and_by_digest") {
        return;
    }
    let (registry, shop) = (Serving::start(Door::Open), Shop::new());
    let (digest, _) = registry.push("team/app", "1", &layers()).await;
    let tag = format!("{}/team/app:1", registry.host);
    let by_digest = format!("{}/team/app@{digest}", registry.host);

    let image = shop.store.pull(&by_digest, None).await.unwrap();
    assert_eq!((image.repo_tags.len(), &image.repo_digests), (0, &vec![by_digest.clone()]));
    assert_eq!(shop.store.status(&by_digest).unwrap(), Some(image.clone()));
    let tagged = shop.store.pull(&tag, None).await.unwrap();
    assert_eq!(tagged.id, image.id);
    assert_eq!(tagged.repo_tags, std::slice::from_ref(&tag));
    assert_eq!(shop.store.list().unwrap(), std::slice::from_ref(&tagged));
    assert_eq!(tagged.config.user, "1000");
    let merged = shop.root("c", &tagged).path;
    assert_eq!(names(&merged), ["d", "top"]);
    assert_eq!(names(&merged.join("d")), ["b", "c"]);
    assert_eq!(std::fs::metadata(merged.join("d/c")).unwrap().len(), 200_000);

    shop.store.remove_snapshot("c").unwrap();
    shop.store.remove(&tag).unwrap();
    shop.assert_empty();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_pull_the_same_at_once_all_get_it() {
    if !ready("many_who_pull_the_same_at_once_all_get_it") {
        return;
    }
    let (registry, shop) = (Serving::start(Door::Open), Shop::new());
    registry.push("app", "1", &layers()).await;
    let tag = format!("{}/app:1", registry.host);
    let pulls = (0..20).map(|_| shop.store.pull(&tag, None));
    let images = futures::future::join_all(pulls).await;
    let first = images[0].as_ref().unwrap();
    assert!(images.iter().all(|image| image.as_ref().unwrap() == first));
    // One that is given up takes nothing from the others, and leaves nothing.
    let given_up = tokio::time::timeout(Duration::from_millis(1), shop.store.pull(&tag, me())).await;
    drop(given_up);
    assert_eq!(shop.store.list().unwrap().len(), 1);
    shop.store.remove(&tag).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    let sessions = shop.path("images/sessions");
    let busy = || names(&sessions.join(&names(&sessions)[0])).len() > 2;
    while busy() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    shop.assert_empty();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_manifest_for_this_machine_is_taken_from_a_list() {
    if !ready("the_manifest_for_this_machine_is_taken_from_a_list") {
        return;
    }
    let (registry, shop) = (Serving::start(Door::Open), Shop::new());
    let (mine, _) = registry.push("app", "mine", &layers()).await;
    let (other, _) = registry.push("app", "other", &layers()[..1]).await;
    let arch = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let entry = |digest: &str, arch: &str| {
        let size = std::fs::metadata(registry.blob_file(digest)).unwrap().len();
        json!({"mediaType": crate::serving::MANIFEST, "digest": digest, "size": size,
               "platform": {"os": "linux", "architecture": arch}})
    };
    let list = |entries: Vec<serde_json::Value>| {
        json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string().into_bytes()
    };
    let both = list(vec![entry(&other, "s390x"), entry(&mine, arch)]);
    let digest = registry.push_manifest("app", "both", INDEX, &both).await;
    registry.push_manifest("app", "foreign", INDEX, &list(vec![entry(&other, "s390x")])).await;

    let image = shop.store.pull(&format!("{}/app:both", registry.host), None).await.unwrap();
    assert_eq!(image.layers.len(), 3);
    assert_eq!(
        image.repo_digests,
        [format!("{}/app@{digest}", registry.host)],
        "the list's digest names the image"
    );
    let error = shop.store.pull(&format!("{}/app:foreign", registry.host), None).await.unwrap_err();
    assert!(causes(&error).contains("only for linux/s390x"), "{}", causes(&error));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_is_said_in_the_registrys_words() {
    if !ready("what_is_not_there_is_said_in_the_registrys_words") {
        return;
    }
    let (registry, shop) = (Serving::start(Door::Open), Shop::new());
    registry.push("app", "1", &layers()).await;
    let absent = format!("sha256:{}", "a".repeat(64));
    for name in ["app:2".to_owned(), "none:1".to_owned(), format!("app@{absent}")] {
        let name = format!("{}/{name}", registry.host);
        let error = shop.store.pull(&name, None).await.unwrap_err();
        let said = causes(&error);
        assert_eq!(error.fault(), Fault::NotFound, "{said}");
        assert!(
            said.contains(&name) && said.contains(&registry.host) && said.contains("manifest unknown"),
            "{said}"
        );
    }
    shop.assert_empty();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_that_is_away_or_silent_is_said_to_be() {
    let test = "a_registry_that_is_away_or_silent_is_said_to_be";
    if !root(test) {
        return;
    }
    let shop = Shop::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap();
    let options = Options { progress_timeout: Duration::from_millis(300), ..Options::default() };
    let store = ImageStore::open(shop.path("images"), options).unwrap();
    let error = store.pull(&format!("{silent}/app:1"), None).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Timeout);
    assert!(causes(&error).contains("no progress"), "{}", causes(&error));
    drop(listener);
    let error = store.pull(&format!("{silent}/app:1"), None).await.unwrap_err();
    let said = causes(&error);
    assert_eq!(error.fault(), Fault::Unavailable);
    assert!(said.contains("Connection refused") && said.contains(&silent.to_string()), "{said}");
    drop(store);
    shop.assert_empty();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blob_that_was_changed_or_cut_is_refused_and_leaves_nothing() {
    if !ready("a_blob_that_was_changed_or_cut_is_refused_and_leaves_nothing") {
        return;
    }
    let (registry, shop) = (Serving::start(Door::Open), Shop::new());
    let (_, blobs) = registry.push("app", "1", &layers()).await;
    let file = registry.blob_file(&blobs[0]);
    let good = std::fs::read(&file).unwrap();
    let mut changed = good.clone();
    let last = changed.len() - 20;
    changed[last] ^= 0x55;
    for (case, bytes) in [("changed", changed), ("cut", good[..good.len() / 2].to_vec()), ("empty", vec![])] {
        std::fs::write(&file, bytes).unwrap();
        let error = shop.store.pull(&format!("{}/app:1", registry.host), None).await.unwrap_err();
        let said = causes(&error);
        assert!(said.contains(&blobs[0]), "{case}: {said}");
        let deadline = Instant::now() + Duration::from_secs(10);
        let sessions = shop.path("images/sessions");
        let busy = || names(&sessions.join(&names(&sessions)[0])).len() > 2;
        while busy() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        shop.assert_empty();
    }
    std::fs::write(&file, good).unwrap();
    shop.store.pull(&format!("{}/app:1", registry.host), None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_opens_a_registry_and_a_wrong_one_does_not() {
    if !ready("a_password_opens_a_registry_and_a_wrong_one_does_not") {
        return;
    }
    let (registry, shop) = (Serving::start(Door::Password), Shop::new());
    registry.push("app", "1", &layers()).await;
    let name = format!("{}/app:1", registry.host);
    let wrong = Auth::Basic { username: USER.0.into(), password: "wrong".into() };
    for auth in [None, Some(wrong)] {
        let error = shop.store.pull(&name, auth).await.unwrap_err();
        assert_eq!(error.fault(), Fault::Unauthorized, "{}", causes(&error));
        assert!(causes(&error).contains("unauthorized"), "{}", causes(&error));
    }
    shop.store.pull(&name, me()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_fetched_where_the_registry_says() {
    if !ready("a_token_is_fetched_where_the_registry_says") {
        return;
    }
    let (open, shop) = (Serving::start(Door::Open), Shop::new());
    open.push("app", "1", &layers()).await;
    // The same data behind a door with tokens.
    let registry = Serving::start(Door::Token);
    registry.copy_from(&open);
    let name = format!("{}/app:1", registry.host);
    let wrong = Auth::Basic { username: USER.0.into(), password: "wrong".into() };
    let error = shop.store.pull(&name, Some(wrong)).await.unwrap_err();
    assert!(causes(&error).contains("wrong password"), "{}", causes(&error));
    let error = shop.store.pull(&name, None).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Unauthorized, "{}", causes(&error));
    let image = shop.store.pull(&name, me()).await.unwrap();
    assert_eq!(image.layers.len(), 3);
}
