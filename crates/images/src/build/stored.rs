//! A made image in the store: its layer is unpacked while it is written.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use super::layer;
use super::spec::BuildSpec;
use crate::error::ImageError;
use crate::image::{self, Image};
use crate::step;
use crate::store::{ImageStore, Inner, NewImage};
use crate::unpack::{Expect, NewLayer};

impl ImageStore {
    /// Makes an image of one layer. It blocks.
    ///
    /// # Errors
    /// [`ImageError::Reference`], [`ImageError::Io`] naming the file, [`ImageError::Layer`], [`ImageError::Content`].
    pub fn build(&self, spec: &BuildSpec) -> Result<Image, ImageError> {
        let span = tracing::info_span!(
            target: "trine::step", "build", plane = "image", detail = spec.reference.as_str(),
            error = tracing::field::Empty
        );
        let _entered = span.enter();
        step::outcome(&span, self.inner.build(spec))
    }
}

impl Inner {
    fn build(&self, spec: &BuildSpec) -> Result<Image, ImageError> {
        let tag = spec.tag()?;
        let entries = layer::entries(spec)?;
        let (reader, writer) =
            io::pipe().map_err(ImageError::io("make a pipe for", Path::new(&spec.reference)))?;
        let (written, unpacked) = std::thread::scope(|scope| {
            let writer = scope.spawn(move || layer::write(&entries, writer));
            let purpose = format!("layer of {tag}");
            let unpacked = NewLayer::unpack(&self.session, &purpose, reader, &Expect::default());
            (writer.join(), unpacked)
        });
        // A file that cannot be read is the cause, not the archive that ends early because of it.
        match written {
            Ok(Err(e @ ImageError::Io { .. })) if !is_broken_pipe(&e) => return Err(e),
            Err(_) => {
                let why = "the writer of its layer panicked".to_owned();
                return Err(ImageError::Content { image: tag, why });
            }
            _ => {}
        }
        let layer = unpacked?.map_err(|source| ImageError::Layer {
            image: tag.clone(),
            layer: "built".into(),
            source,
        })?;
        let diff_id = layer.unpacked.diff_id.clone();
        let config_file = spec.config_file(diff_id.as_str())?;
        let content = |why| ImageError::Content { image: tag.clone(), why };
        let parsed = image::parse(&config_file).map_err(content)?;
        let new = NewImage {
            config_file,
            parsed,
            tags: BTreeSet::from([tag.clone()]),
            digests: BTreeSet::new(),
            manifests: vec![],
            new_layers: vec![(diff_id, layer)],
        };
        self.commit(&tag, new)
    }
}

fn is_broken_pipe(e: &ImageError) -> bool {
    matches!(e, ImageError::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
}
