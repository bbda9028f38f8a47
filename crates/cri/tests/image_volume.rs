//! Images that a container mounts to read them.

#![allow(clippy::unwrap_used)]

mod harness;

use harness::{IMAGE, Node, container};
use tonic::Code;
use trine_contracts::cri::*;

fn volume(image: &str, part: &str) -> Mount {
    Mount {
        container_path: "/volume".into(),
        readonly: true,
        image: Some(ImageSpec { image: image.into(), ..Default::default() }),
        image_sub_path: part.into(),
        ..Default::default()
    }
}

fn with(name: &str, mount: Mount) -> ContainerConfig {
    ContainerConfig { mounts: vec![mount], ..container(name, &[]) }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_mounted_to_be_read_and_goes_with_its_container() {
    let test = "an_image_is_mounted_to_be_read_and_goes_with_its_container";
    let Some(mut node) = Node::start(test).await else { return };
    let pod = node.run_pod(&node.pod("images")).await;
    let id = node.run(&pod, with("whole", volume(IMAGE, ""))).await;
    assert_eq!(
        node.stdout(&id, "cat /volume/etc/group | head -n 1; /volume/bin/echo ran").await,
        "root:x:0:\nran"
    );
    let denied = node.exec(&id, "touch /volume/new").await;
    assert!(String::from_utf8_lossy(&denied.stderr).contains("Read-only"), "{denied:?}");
    let status = node.status(&id).await;
    let shown = status.mounts[0].image.as_ref().unwrap();
    assert_eq!((shown.image.as_str(), shown.image_ref.as_str()), (IMAGE, status.image_id.as_str()));

    let part = node.run(&pod, with("part", volume(IMAGE, "etc"))).await;
    assert_eq!(node.stdout(&part, "ls /volume").await, "group\npasswd");

    node.end_daemon().await;
    node.serve().await;
    assert_eq!(node.stdout(&id, "/volume/bin/echo still").await, "still", "the next daemon leaves it alone");
    let roots = || std::fs::read_dir(node.config.images_dir.join("snapshots")).unwrap().count();
    assert_eq!(roots(), 4);
    for container_id in [id, part] {
        node.client().remove_container(RemoveContainerRequest { container_id }).await.unwrap();
    }
    assert_eq!(roots(), 0);
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_cannot_be_mounted_is_refused_and_leaves_nothing() {
    let test = "an_image_that_cannot_be_mounted_is_refused_and_leaves_nothing";
    let Some(node) = Node::start(test).await else { return };
    let pod = node.run_pod(&node.pod("refused")).await;
    for (name, mount, code, words) in [
        ("writable", Mount { readonly: false, ..volume(IMAGE, "") }, Code::InvalidArgument, "read-only"),
        ("absent", volume("localhost/none:1", ""), Code::NotFound, "localhost/none:1"),
        ("no-part", volume(IMAGE, "no/such"), Code::InvalidArgument, "no/such"),
        ("two", Mount { host_path: "/tmp".into(), ..volume(IMAGE, "") }, Code::InvalidArgument, "host"),
    ] {
        let error = node.create(&pod, with(name, mount)).await.unwrap_err();
        assert_eq!(error.code(), code, "{name}: {error:?}");
        assert!(error.message().contains(words), "{name}: {error:?}");
    }
    assert_eq!(std::fs::read_dir(node.config.images_dir.join("snapshots")).unwrap().count(), 0);
    node.finish().await;
}
