//! `ImageService`, by the image store.

use std::pin::Pin;

use futures::Stream;
use tonic::{Request, Response, Status, async_trait};
use trine_contracts::cri::image_service_server::ImageService;
use trine_contracts::cri::*;
use trine_images::{Auth, ImageError};

use super::Images;
use crate::error::CriError;
use crate::runtime::now;

type Answer<T> = Result<Response<T>, Status>;

fn failed(call: &'static str) -> impl FnOnce(ImageError) -> CriError {
    move |source| CriError::Image { call, source: Box::new(source) }
}

fn reference(image: Option<&ImageSpec>) -> &str {
    image.map_or("", |image| image.image.as_str())
}

impl Images {
    fn list(&self, filter: Option<ImageFilter>) -> Result<Vec<Image>, CriError> {
        let wanted = filter.and_then(|filter| filter.image).map(|image| image.image).unwrap_or_default();
        let found = if wanted.is_empty() {
            self.0.inner.images.list().map_err(failed("ListImages"))?
        } else {
            self.0.inner.images.status(&wanted).map_err(failed("ListImages"))?.into_iter().collect()
        };
        Ok(found.into_iter().map(shown).collect())
    }
}

/// An image as the contract shows it.
fn shown(image: trine_images::Image) -> Image {
    let user = image.config.user.split(':').next().unwrap_or_default();
    let uid = user.parse().ok().map(|value| Int64Value { value });
    Image {
        id: image.id.clone(),
        repo_tags: image.repo_tags,
        repo_digests: image.repo_digests,
        size: image.size,
        username: if uid.is_none() { user.to_owned() } else { String::new() },
        uid,
        spec: Some(ImageSpec { image: image.id, ..ImageSpec::default() }),
        pinned: false,
    }
}

fn auth(config: AuthConfig) -> Option<Auth> {
    let AuthConfig { username, password, auth, identity_token, registry_token, .. } = config;
    if !registry_token.is_empty() {
        Some(Auth::Token(registry_token))
    } else if !auth.is_empty() {
        Auth::from_base64(&auth)
    } else if !username.is_empty() {
        let password = if password.is_empty() { identity_token } else { password };
        Some(Auth::Basic { username, password })
    } else {
        None
    }
}

#[async_trait]
impl ImageService for Images {
    type StreamImagesStream = Pin<Box<dyn Stream<Item = Result<StreamImagesResponse, Status>> + Send>>;

    async fn list_images(&self, request: Request<ListImagesRequest>) -> Answer<ListImagesResponse> {
        Ok(Response::new(ListImagesResponse { images: self.list(request.into_inner().filter)? }))
    }

    async fn stream_images(&self, request: Request<StreamImagesRequest>) -> Answer<Self::StreamImagesStream> {
        let images = self.list(request.into_inner().filter)?;
        Ok(Response::new(Box::pin(futures::stream::iter([Ok(StreamImagesResponse { images })]))))
    }

    async fn image_status(&self, request: Request<ImageStatusRequest>) -> Answer<ImageStatusResponse> {
        let request = request.into_inner();
        let found =
            self.0.inner.images.status(reference(request.image.as_ref())).map_err(failed("ImageStatus"))?;
        Ok(Response::new(ImageStatusResponse { image: found.map(shown), info: Default::default() }))
    }

    async fn pull_image(&self, request: Request<PullImageRequest>) -> Answer<PullImageResponse> {
        let request = request.into_inner();
        let reference = reference(request.image.as_ref());
        let credentials = request.auth.and_then(auth);
        let image = self.0.inner.images.pull(reference, credentials).await.map_err(failed("PullImage"))?;
        Ok(Response::new(PullImageResponse { image_ref: image.id }))
    }

    async fn remove_image(&self, request: Request<RemoveImageRequest>) -> Answer<RemoveImageResponse> {
        let images = self.0.inner.images.clone();
        let wanted = reference(request.into_inner().image.as_ref()).to_owned();
        let removed = tokio::task::spawn_blocking(move || {
            // Whatever name it is called by, the contract removes the image with all of them.
            match images.status(&wanted)? {
                Some(image) => images.remove(&image.id),
                None => Ok(()),
            }
        });
        removed.await.map_err(CriError::joined("RemoveImage"))?.map_err(failed("RemoveImage"))?;
        Ok(Response::new(RemoveImageResponse {}))
    }

    async fn image_fs_info(&self, _: Request<ImageFsInfoRequest>) -> Answer<ImageFsInfoResponse> {
        let usage = self.0.inner.images.usage().map_err(failed("ImageFsInfo"))?;
        let filesystem = FilesystemUsage {
            timestamp: now(),
            fs_id: Some(FilesystemIdentifier {
                mountpoint: self.0.config().images_dir.to_string_lossy().into_owned(),
            }),
            used_bytes: Some(UInt64Value { value: usage.bytes }),
            inodes_used: Some(UInt64Value { value: usage.inodes }),
        };
        Ok(Response::new(ImageFsInfoResponse {
            image_filesystems: vec![filesystem.clone()],
            container_filesystems: vec![filesystem],
        }))
    }
}
