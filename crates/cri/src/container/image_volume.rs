//! Images that are mounted into a container to be read: each has a root of its own beside the container's, and goes with it.

use std::path::Path;

use trine_contracts::cri::{ContainerConfig, Mount};
use trine_images::{ImageStore, RootOptions};
use trine_kernel::subpath;

use crate::error::{CriError, chain};

/// The name of the root of a container's image volume, by its place among the mounts.
fn name(container: &str, index: usize) -> String {
    format!("{container}-volume-{index}")
}

/// The container that the root `snapshot` belongs to, be it its own or that of an image in it.
#[must_use]
pub(crate) fn owner(snapshot: &str) -> &str {
    snapshot.split_once("-volume-").map_or(snapshot, |(container, _)| container)
}

fn is_one(mount: &Mount) -> bool {
    mount.image.as_ref().is_some_and(|image| !image.image.is_empty())
}

/// The names of the roots of all image volumes of a container.
pub(crate) fn names(container: &str, config: &ContainerConfig) -> Vec<String> {
    let mounts = config.mounts.iter().enumerate().filter(|(_, mount)| is_one(mount));
    mounts.map(|(index, _)| name(container, index)).collect()
}

/// What is wrong with a mount of an image, if something is.
fn fault(mount: &Mount) -> Option<&'static str> {
    if !mount.host_path.is_empty() {
        Some("an image and a path of the host cannot both be mounted")
    } else if !mount.readonly {
        Some("an image can only be mounted read-only")
    } else {
        None
    }
}

/// Makes the roots of the image volumes that `config` asks for, and puts where they are into it. Their owners are those of the user
/// namespace pinned at `users`, if there is one. What is made of them stays on an
/// error, and goes with the container.
///
/// # Errors
/// [`CriError`] naming the mount.
pub(super) fn mount(
    call: &'static str,
    images: &ImageStore,
    container: &str,
    users: Option<&Path>,
    config: &mut ContainerConfig,
) -> Result<(), CriError> {
    for (index, mount) in config.mounts.iter_mut().enumerate().filter(|(_, mount)| is_one(mount)) {
        let at = &mount.container_path;
        if let Some(why) = fault(mount) {
            return Err(CriError::invalid(call, format!("{at}: {why}")));
        }
        let failed = |source| CriError::Image { call, source: Box::new(source) };
        let reference = mount.image.as_ref().map_or("", |image| image.image.as_str());
        let image = images
            .status(reference)
            .map_err(failed)?
            .ok_or_else(|| CriError::NotFound { kind: "image", id: reference.to_owned() })?;
        let options = RootOptions { for_mounts: false, users };
        let root = images.prepare_with(&name(container, index), &image, options).map_err(failed)?.path;
        let part = Path::new(&mount.image_sub_path);
        let path = if part.as_os_str().is_empty() {
            root
        } else {
            let wrong = |e| CriError::invalid(call, format!("{at}: image {reference}: {}", chain(&e)));
            subpath::within(&root, part).map_err(wrong)?
        };
        mount.host_path = path.to_string_lossy().into_owned();
        // Its root is made so that it needs none.
        mount.uid_mappings.clear();
        mount.gid_mappings.clear();
    }
    Ok(())
}

/// Notes in `config` which images its volumes are of, for its status.
pub(super) fn note(images: &ImageStore, config: &mut ContainerConfig) {
    for image in config.mounts.iter_mut().filter_map(|mount| mount.image.as_mut()) {
        if let Ok(Some(found)) = images.status(&image.image) {
            image.image_ref = found.id;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_contracts::cri::ImageSpec;

    fn volume(image: &str) -> Mount {
        let image = ImageSpec { image: image.to_owned(), ..Default::default() };
        Mount { container_path: "/v".into(), readonly: true, image: Some(image), ..Default::default() }
    }

    #[test]
    fn a_root_is_known_by_its_container() {
        let config = ContainerConfig {
            mounts: vec![volume("a"), Mount::default(), volume(""), volume("b")],
            ..Default::default()
        };
        let names = names("c1", &config);
        assert_eq!(names, ["c1-volume-0", "c1-volume-3"]);
        assert!(names.iter().all(|name| owner(name) == "c1"));
        assert_eq!(owner("c1"), "c1");
    }

    #[test]
    fn an_image_is_mounted_alone_and_to_be_read() {
        assert_eq!(fault(&volume("a")), None);
        assert!(fault(&Mount { readonly: false, ..volume("a") }).unwrap().contains("read-only"));
        assert!(fault(&Mount { host_path: "/h".into(), ..volume("a") }).is_some());
    }
}
