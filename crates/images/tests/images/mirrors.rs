//! Pulls by way of mirrors, as `hosts.toml` names them; the image keeps the name that it was asked for by.

use std::path::Path;

use trine_images::{Auth, Fault, ImageStore, Options, Registries};
use trine_kernel::testing::{program, root};

use crate::made::{Layer, Shop, causes};
use crate::serving::{Door, Serving, USER};

/// Nobody listens there.
const NOWHERE: &str = "http://127.0.0.1:1";
const NAME: &str = "registry.example/team/app:1";

fn ready(test: &str) -> bool {
    root(test) && program(test, "docker-registry")
}

fn layers() -> Vec<Vec<u8>> {
    vec![Layer::new().dir("d").file("d/a", "1").bytes(), Layer::new().file("b", "2").bytes()]
}

/// A shop that looks for its registries' settings.
fn shop() -> Shop {
    Shop::with(|dir| {
        let registries = Registries { hosts_dir: Some(dir.join("hosts")), ..Registries::default() };
        Options { registries, ..Options::default() }
    })
}

/// The shop, once `text` is what is said of `registry.example`.
fn store<'a>(shop: &'a Shop, text: &str) -> &'a ImageStore {
    let folder = shop.path("hosts/registry.example");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("hosts.toml"), text).unwrap();
    &shop.store
}

fn me() -> Option<Auth> {
    Some(Auth::Basic { username: USER.0.into(), password: USER.1.into() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_from_a_mirror_has_the_name_that_it_was_asked_for_by() {
    if !ready("an_image_from_a_mirror_has_the_name_that_it_was_asked_for_by") {
        return;
    }
    let (mirror, shop) = (Serving::start(Door::Open), shop());
    let (digest, _) = mirror.push("team/app", "1", &layers()).await;
    mirror.push("registry.example/team/app", "1", &layers()).await;
    for text in [
        format!("server = '{NOWHERE}'\n[host.'http://{}']", mirror.host),
        format!("server = '{}'", mirror.host),
        format!("server = 'http://{}/v2/registry.example'\noverride_path = true", mirror.host),
    ] {
        let store = store(&shop, &text);
        let image = store.pull(NAME, None).await.unwrap_or_else(|e| panic!("{text}: {}", causes(&e)));
        assert_eq!(image.repo_tags, [NAME], "{text}");
        assert_eq!(image.repo_digests, [format!("registry.example/team/app@{digest}")], "{text}");
        store.remove(&image.id).unwrap();
    }
    shop.assert_empty();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_mirror_does_not_have_comes_from_the_next_host() {
    if !ready("what_a_mirror_does_not_have_comes_from_the_next_host") {
        return;
    }
    let (origin, shop) = (Serving::start(Door::Open), shop());
    let (_, blobs) = origin.push("team/app", "1", &layers()).await;
    let (empty, part) = (Serving::start(Door::Open), Serving::start(Door::Open));
    empty.push("other/app", "1", &layers()).await;
    part.copy_from(&origin);
    std::fs::remove_file(part.blob_file(&blobs[1])).unwrap();
    for (case, mirror) in [
        ("absent", format!("http://{}", empty.host)),
        ("in part", format!("http://{}", part.host)),
        ("away", NOWHERE.to_owned()),
    ] {
        let store = store(&shop, &format!("server = 'http://{}'\n[host.'{mirror}']", origin.host));
        let image = store.pull(NAME, None).await.unwrap_or_else(|e| panic!("{case}: {}", causes(&e)));
        assert_eq!(image.layers.len(), 2, "{case}");
        store.remove(&image.id).unwrap();
    }
    let store = store(&shop, &format!("server = 'http://{}'\n[host.'{NOWHERE}']", empty.host));
    let error = store.pull(NAME, None).await.unwrap_err();
    let said = causes(&error);
    assert_eq!(error.fault(), Fault::NotFound, "{said}");
    for word in [NAME, "127.0.0.1:1: ", "Connection refused", &empty.host, "manifest unknown"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    shop.assert_empty();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mirror_is_asked_for_no_more_than_it_may() {
    if !ready("a_mirror_is_asked_for_no_more_than_it_may") {
        return;
    }
    let (mirror, shop) = (Serving::start(Door::Open), shop());
    let (digest, _) = mirror.push("team/app", "1", &layers()).await;
    let host = format!("[host.'http://{}']\ncapabilities = ['pull']", mirror.host);
    let store = store(&shop, &format!("server = '{NOWHERE}'\n{host}"));
    let error = store.pull(NAME, None).await.unwrap_err();
    assert!(!causes(&error).contains(&mirror.host), "{}", causes(&error));
    let image = store.pull(&format!("registry.example/team/app@{digest}"), None).await.unwrap();
    store.remove(&image.id).unwrap();
    shop.assert_empty();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mirror_gets_the_headers_that_are_its_own_and_no_ones_password() {
    if !ready("a_mirror_gets_the_headers_that_are_its_own_and_no_ones_password") {
        return;
    }
    let (locked, shop) = (Serving::start(Door::Password), shop());
    locked.push("team/app", "1", &layers()).await;
    let mirror = format!("server = '{NOWHERE}'\n[host.'http://{}']\n", locked.host);
    let error = store(&shop, &mirror).pull(NAME, me()).await.unwrap_err();
    assert!(causes(&error).contains("answers 401"), "{}", causes(&error));
    let header = format!("[host.'http://{}'.header]\nauthorization = 'Basic bWU6c2VjcmV0'\n", locked.host);
    let open = store(&shop, &format!("{mirror}{header}"));
    let image = open.pull(NAME, None).await.unwrap_or_else(|e| panic!("{}", causes(&e)));
    open.remove(&image.id).unwrap();
    // The registry itself, wherever it is, gets the password.
    let moved = store(&shop, &format!("server = 'http://{}'", locked.host));
    let image = moved.pull(NAME, me()).await.unwrap_or_else(|e| panic!("{}", causes(&e)));
    moved.remove(&image.id).unwrap();
    shop.assert_empty();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_private_authority_is_trusted_where_it_is_named() {
    if !ready("a_private_authority_is_trusted_where_it_is_named") {
        return;
    }
    let (open, shop) = (Serving::start(Door::Open), shop());
    open.push("team/app", "1", &layers()).await;
    let (certificate, key) = certificate(shop.dir.path());
    let mirror = Serving::start(Door::Tls(certificate.clone(), key));
    mirror.copy_from(&open);
    let server = format!("server = 'https://{}'\n", mirror.host);
    let error = store(&shop, &server).pull(NAME, None).await.unwrap_err();
    assert!(causes(&error).contains("certificate"), "{}", causes(&error));
    std::fs::copy(&certificate, shop.path("hosts/registry.example/ca.pem")).unwrap();
    for way in [
        "ca = 'ca.pem'".to_owned(),
        format!("ca = ['{}']", certificate.display()),
        "skip_verify = true".into(),
    ] {
        let store = store(&shop, &format!("{server}{way}\n"));
        let image = store.pull(NAME, None).await.unwrap_or_else(|e| panic!("{way}: {}", causes(&e)));
        store.remove(&image.id).unwrap();
    }
    let absent = store(&shop, &format!("{server}ca = 'no-such.pem'\n"));
    let error = absent.pull(NAME, None).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Invalid);
    assert!(causes(&error).contains("registry.example/no-such.pem"), "{}", causes(&error));
    shop.assert_empty();
}

/// A certificate of 127.0.0.1, and its key.
fn certificate(dir: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let own = rcgen::CertificateParams::new(vec!["127.0.0.1".into()]).unwrap().self_signed(&key).unwrap();
    let (certificate, file) = (dir.join("tls.pem"), dir.join("tls.key"));
    std::fs::write(&certificate, own.pem()).unwrap();
    std::fs::write(&file, key.serialize_pem()).unwrap();
    (certificate, file)
}
