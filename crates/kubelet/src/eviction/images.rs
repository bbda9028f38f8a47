//! Room that comes from images that nothing uses. It is tried before any Pod has to leave.

use std::collections::BTreeSet;
use std::sync::Arc;

use trine_contracts::cri;
use trine_typed::k8s_openapi::api::core::v1::Pod;

use crate::error::KubeletError;
use crate::runtime::Runtime;

/// Removes every image that no container has and no Pod mounts. Gives how many went.
///
/// # Errors
/// [`KubeletError::Cri`] if the runtime does not say what there is.
pub async fn remove_unused(runtime: &Runtime, pods: &[Arc<Pod>]) -> Result<usize, KubeletError> {
    let mut mounted = BTreeSet::new();
    for name in mounted_images(pods) {
        let spec = cri::ImageSpec { image: name, ..Default::default() };
        mounted.extend(runtime.image(spec).await?.map(|image| image.id));
    }
    let images = runtime.images().await?;
    let containers = runtime.containers(None).await?;
    let mut removed = 0;
    for id in unused(&images, &containers, &mounted) {
        match runtime.remove_image(id).await {
            Ok(()) => removed += 1,
            Err(error) => tracing::warn!(image = id, error = error.chain(), "an unused image stays"),
        }
    }
    Ok(removed)
}

/// Images that are Pods' volumes.
fn mounted_images(pods: &[Arc<Pod>]) -> BTreeSet<String> {
    let volumes = pods.iter().flat_map(|pod| pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()));
    volumes.filter_map(|volume| volume.image.as_ref()?.reference.clone()).collect()
}

fn unused<'a>(
    images: &'a [cri::Image],
    containers: &[cri::Container],
    mounted: &BTreeSet<String>,
) -> Vec<&'a str> {
    let named = |c: &cri::Container| {
        let asked = c.image.clone().unwrap_or_default();
        [c.image_id.clone(), c.image_ref.clone(), asked.image, asked.user_specified_image]
    };
    let used: BTreeSet<String> = containers.iter().flat_map(named).collect();
    let has = |image: &cri::Image| {
        let names = image.repo_tags.iter().chain(&image.repo_digests).chain([&image.id]);
        names.into_iter().any(|name| used.contains(name) || mounted.contains(name))
    };
    images.iter().filter(|image| !image.pinned && !has(image)).map(|image| image.id.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_goes_if_nothing_has_it_by_any_name() {
        let image = |id: &str, tag: &str, pinned| cri::Image {
            id: id.into(),
            repo_tags: vec![tag.into()],
            repo_digests: vec![format!("{tag}@{id}")],
            pinned,
            ..Default::default()
        };
        let images = [
            image("sha256:1", "by-id", false),
            image("sha256:2", "by-tag", false),
            image("sha256:3", "by-digest", false),
            image("sha256:4", "pinned", true),
            image("sha256:5", "mounted", false),
            image("sha256:6", "unused", false),
        ];
        let container = |id: &str, image: &str| cri::Container {
            image_id: id.into(),
            image: Some(cri::ImageSpec { image: image.into(), ..Default::default() }),
            ..Default::default()
        };
        let containers = [
            container("sha256:1", ""),
            container("", "by-tag"),
            cri::Container { image_ref: "by-digest@sha256:3".into(), ..Default::default() },
        ];
        let mounted = ["sha256:5".to_owned()].into();
        assert_eq!(unused(&images, &containers, &mounted), ["sha256:6"]);
    }
}
