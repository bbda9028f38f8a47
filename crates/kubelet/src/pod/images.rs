//! Images: by pull policy, with upstream's events.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use tracing::field::Empty;
use trine_contracts::cri;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::{Container, Pod, Secret};
use trine_typed::kube::Api;

use super::{Context, spec};
use crate::container::security::ImageUser;
use crate::error::{KubeletError, api};
use crate::step::traced;

/// An image that the runtime has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// What containers are made from.
    pub reference: String,
    /// Who it runs as.
    pub user: ImageUser,
}

/// Why a container has no image.
#[derive(Debug)]
pub struct ImageFailure {
    /// Waiting reason.
    pub reason: &'static str,
    /// In words.
    pub message: String,
    /// The image that could not be pulled, if that is why: its back-off counts.
    pub pull: Option<String>,
}

/// An image that is asked for.
struct Asked<'a> {
    name: &'a str,
    policy: &'a str,
    /// The container that needs it.
    container: &'a str,
}

/// `name` with `:latest` if it has neither tag nor digest.
#[must_use]
pub fn with_tag(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    if name.contains('@') || last.contains(':') { name.to_owned() } else { format!("{name}:latest") }
}

/// The policy, with the API server's default.
#[must_use]
pub fn policy(container: &Container) -> &str {
    let own = container.image_pull_policy.as_deref().filter(|p| !p.is_empty());
    own.unwrap_or_else(|| usual_policy(container.image.as_deref().unwrap_or_default()))
}

fn usual_policy(image: &str) -> &'static str {
    if with_tag(image).ends_with(":latest") { "Always" } else { "IfNotPresent" }
}

/// The image of a container, pulled if need be.
///
/// # Errors
/// [`ImageFailure`].
pub async fn ensure(
    ctx: &Context,
    pod: &Pod,
    container: &Container,
    sandbox: &cri::PodSandboxConfig,
) -> Result<Image, ImageFailure> {
    let name = container.image.as_deref().unwrap_or_default();
    let asked = Asked { name, policy: policy(container), container: &container.name };
    get(ctx, pod, &asked, sandbox).await
}

/// The images that a container mounts as volumes, by the volumes' names, pulled if need be.
///
/// # Errors
/// [`ImageFailure`].
pub async fn ensure_volumes(
    ctx: &Context,
    pod: &Pod,
    container: &Container,
    sandbox: &cri::PodSandboxConfig,
) -> Result<BTreeMap<String, cri::ImageSpec>, ImageFailure> {
    let mut all = BTreeMap::new();
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let Some(image) = &volume.image else { continue };
        if !container.volume_mounts.iter().flatten().any(|mount| mount.name == volume.name) {
            continue;
        }
        let name = image.reference.as_deref().unwrap_or_default();
        let policy = image.pull_policy.as_deref().filter(|policy| !policy.is_empty());
        let asked =
            Asked { name, policy: policy.unwrap_or_else(|| usual_policy(name)), container: &container.name };
        let found = get(ctx, pod, &asked, sandbox).await?;
        let spec = cri::ImageSpec {
            image: found.reference,
            user_specified_image: name.to_owned(),
            ..Default::default()
        };
        all.insert(volume.name.clone(), spec);
    }
    Ok(all)
}

async fn get(
    ctx: &Context,
    pod: &Pod,
    asked: &Asked<'_>,
    sandbox: &cri::PodSandboxConfig,
) -> Result<Image, ImageFailure> {
    let Asked { name, policy, container } = *asked;
    let image =
        cri::ImageSpec { image: with_tag(name), user_specified_image: name.to_owned(), ..Default::default() };
    let failure =
        |reason, message, pull: bool| ImageFailure { reason, message, pull: pull.then(|| name.to_owned()) };
    if name.trim() != name || name.is_empty() {
        let message = format!("Failed to apply default image tag {name:?}: couldn't parse image name");
        ctx.events.container(pod, container, Level::Warning, "InspectFailed", message.clone());
        return Err(failure("InvalidImageName", message, false));
    }
    let known = ctx.runtime.image(image.clone()).await.map_err(|e| {
        let message = format!("Failed to inspect image {name:?}: {}", cause(&e));
        ctx.events.container(pod, container, Level::Warning, "InspectFailed", message.clone());
        failure("ImageInspectError", message, false)
    })?;
    match (known, policy) {
        (Some(found), "IfNotPresent" | "Never") => {
            let message = format!("Container image {name:?} already present on machine");
            ctx.events.container(pod, container, Level::Normal, "Pulled", message);
            return Ok(of(&found));
        }
        (None, "Never") => {
            let message = format!("Container image {name:?} is not present with pull policy of Never");
            ctx.events.container(pod, container, Level::Warning, "ErrImageNeverPull", message.clone());
            return Err(failure("ErrImageNeverPull", message, false));
        }
        _ => {}
    }
    match pull(ctx, pod, container, name, image, sandbox).await {
        Ok(image) => Ok(image),
        Err(error) => {
            let message = cause(&error);
            let text = format!("Failed to pull image {name:?}: {message}");
            ctx.events.container(pod, container, Level::Warning, "Failed", text);
            ctx.events.container(pod, container, Level::Warning, "Failed", "Error: ErrImagePull");
            Err(failure("ErrImagePull", message, true))
        }
    }
}

/// The runtime's own words: the Pod's reader knows which call it was from the reason.
fn cause(error: &KubeletError) -> String {
    match error {
        KubeletError::Cri { source, .. } => source.to_string(),
        other => other.chain(),
    }
}

async fn pull(
    ctx: &Context,
    pod: &Pod,
    container: &str,
    name: &str,
    image: cri::ImageSpec,
    sandbox: &cri::PodSandboxConfig,
) -> Result<Image, KubeletError> {
    ctx.events.container(pod, container, Level::Normal, "Pulling", format!("Pulling image {name:?}"));
    let started = Instant::now();
    let auth = credentials(ctx, pod, name).await;
    let key = spec::key(pod);
    let span = tracing::info_span!(target: "trine::step", "PullImage", plane = "kubelet", pod = %key,
        pod_uid = spec::uid(pod), container, detail = name, error = Empty);
    let reference = traced(span, ctx.runtime.pull(image.clone(), auth, sandbox.clone())).await?;
    let found = ctx.runtime.image(image).await?;
    let size = found.as_ref().map(|i| i.size).unwrap_or_default();
    let took = round(started.elapsed());
    let text = format!(
        "Successfully pulled image {name:?} in {took} ({took} including waiting). Image size: {size} bytes."
    );
    ctx.events.container(pod, container, Level::Normal, "Pulled", text);
    Ok(found.map_or(Image { reference, user: ImageUser::default() }, |i| of(&i)))
}

fn of(image: &cri::Image) -> Image {
    let uid = image.uid.as_ref().map(|u| u.value);
    Image { reference: image.id.clone(), user: ImageUser { uid, name: image.username.clone() } }
}

/// As Go prints durations, to the millisecond.
fn round(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis < 1000 { format!("{millis}ms") } else { format!("{}.{:03}s", millis / 1000, millis % 1000) }
}

/// The registry of an image.
fn registry(image: &str) -> &str {
    match image.split_once('/') {
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => first,
        _ => "docker.io",
    }
}

/// What the Pod's pull secrets say of the image's registry. A secret that cannot be read is left out: the pull
/// may be allowed without it.
async fn credentials(ctx: &Context, pod: &Pod, image: &str) -> Option<cri::AuthConfig> {
    let secrets: Api<Secret> = Api::namespaced(ctx.client.clone(), spec::namespace(pod));
    for reference in pod.spec.iter().flat_map(|s| s.image_pull_secrets.iter().flatten()) {
        let found = api("get Secret", &reference.name, secrets.get_opt(&reference.name)).await;
        let Ok(Some(secret)) = found else {
            let text = format!("Unable to retrieve image pull secret {}; it is left out", reference.name);
            ctx.events.pod(pod, Level::Warning, "FailedToRetrieveImagePullSecret", text);
            continue;
        };
        let data = secret.data.unwrap_or_default();
        if let Some(auth) = data.get(".dockerconfigjson").and_then(|d| from_docker_config(&d.0, image)) {
            return Some(auth);
        }
    }
    None
}

fn from_docker_config(json: &[u8], image: &str) -> Option<cri::AuthConfig> {
    let config: serde_json::Value = serde_json::from_slice(json).ok()?;
    let registry = registry(image);
    let matches = |server: &str| {
        let host = server.trim_start_matches("https://").trim_start_matches("http://");
        let host = host.split('/').next().unwrap_or(host);
        host == registry || (registry == "docker.io" && host == "index.docker.io")
    };
    let (server, auth) = config["auths"].as_object()?.iter().find(|(server, _)| matches(server))?;
    let text = |key: &str| auth[key].as_str().unwrap_or_default().to_owned();
    Some(cri::AuthConfig {
        username: text("username"),
        password: text("password"),
        auth: text("auth"),
        server_address: server.clone(),
        identity_token: text("identitytoken"),
        registry_token: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_policies_and_registries() {
        assert_eq!(with_tag("nginx"), "nginx:latest");
        assert_eq!(with_tag("host:5000/nginx"), "host:5000/nginx:latest");
        assert_eq!(with_tag("nginx:1"), "nginx:1");
        assert_eq!(with_tag("nginx@sha256:0"), "nginx@sha256:0");
        let container = |image: &str| Container { image: Some(image.into()), ..Default::default() };
        assert_eq!(policy(&container("a")), "Always");
        assert_eq!(policy(&container("a:1")), "IfNotPresent");
        assert_eq!(registry("nginx"), "docker.io");
        assert_eq!(registry("library/nginx"), "docker.io");
        assert_eq!(registry("localhost:5000/x"), "localhost:5000");
        let config = br#"{"auths": {"https://localhost:5000/v2/": {"auth": "dTpw"}}}"#;
        assert_eq!(from_docker_config(config, "localhost:5000/x").unwrap().auth, "dTpw");
        assert!(from_docker_config(config, "nginx").is_none());
    }
}
