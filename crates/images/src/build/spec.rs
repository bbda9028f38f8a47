//! What an image is to be made of, and the configuration that follows.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::settings;
use crate::error::ImageError;
use crate::image::{self, ConfigFile, ConfigSection, RootFsSection};
use crate::name::ImageName;

/// What to make an image from. Files belong to root unless said otherwise and have one fixed time.
#[derive(Debug, Clone, Default)]
pub struct BuildSpec {
    /// The image's name.
    pub reference: String,
    /// A folder whose content becomes the image's root, with the modes that are there; links are kept as links.
    pub tree: Option<PathBuf>,
    /// Files of this machine and where they go; links are followed.
    pub files: Vec<(PathBuf, String)>,
    /// Folders with their modes; those above a file are made with 0755 anyway.
    pub dirs: Vec<(String, u32)>,
    /// Small files by content: path, content, mode.
    pub texts: Vec<(String, String, u32)>,
    /// Owners and modes of paths in the image that have others than they would have. Each path must be in it.
    pub looks: BTreeMap<String, Look>,
    /// What is always run.
    pub entrypoint: Vec<String>,
    /// Its default arguments.
    pub cmd: Vec<String>,
    /// `KEY=value` lines.
    pub env: Vec<String>,
    /// Empty for root.
    pub user: String,
    /// Empty for `/`.
    pub working_dir: String,
    /// Empty for TERM.
    pub stop_signal: String,
    /// `80/tcp` and the like.
    pub exposed_ports: Vec<String>,
    /// Paths that want a volume.
    pub volumes: Vec<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// Owner and mode of a path in an image; what is left out stays as it would be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Look {
    /// The owner's number.
    pub uid: Option<u32>,
    /// The group's number.
    pub gid: Option<u32>,
    /// Permission bits with setuid, setgid and sticky; octal text in JSON (`"4755"`).
    #[serde(default, deserialize_with = "settings::octal")]
    pub mode: Option<u32>,
}

impl BuildSpec {
    /// An image of a folder. `settings` is the JSON of an OCI image's `config` section (`Env`, `Entrypoint`, `Cmd`, `User`,
    /// `WorkingDir`, `StopSignal`, `ExposedPorts`, `Volumes`, `Labels`), with `Paths` beside them: by path in the image its
    /// `uid`, `gid` and `mode`.
    ///
    /// # Errors
    /// [`ImageError::Content`] if the settings are not of that form, with the field.
    pub fn of_tree(reference: &str, tree: impl Into<PathBuf>, settings: &str) -> Result<Self, ImageError> {
        let spec = Self { reference: reference.to_owned(), tree: Some(tree.into()), ..Self::default() };
        settings::read(settings, spec).map_err(|why| ImageError::Content { image: reference.to_owned(), why })
    }

    /// The tag in full.
    pub(super) fn tag(&self) -> Result<String, ImageError> {
        ImageName::parse(&self.reference)?.tagged().ok_or_else(|| ImageError::Reference {
            reference: self.reference.clone(),
            why: "a new image is named by a tag, not by a digest".into(),
        })
    }

    /// The configuration file of an image with this one layer.
    pub(super) fn config_file(&self, diff_id: &str) -> Result<Vec<u8>, ImageError> {
        let some = |text: &String| (!text.is_empty()).then(|| text.clone());
        let list = |lines: &Vec<String>| (!lines.is_empty()).then(|| lines.clone());
        let keys = |names: &[String]| {
            (!names.is_empty())
                .then(|| names.iter().map(|name| (name.clone(), serde_json::json!({}))).collect())
        };
        let file = ConfigFile {
            architecture: image::architecture().to_owned(),
            os: "linux".into(),
            config: Some(ConfigSection {
                user: some(&self.user),
                env: list(&self.env),
                entrypoint: list(&self.entrypoint),
                cmd: list(&self.cmd),
                working_dir: some(&self.working_dir),
                stop_signal: some(&self.stop_signal),
                labels: (!self.labels.is_empty()).then(|| self.labels.clone()),
                exposed_ports: keys(&self.exposed_ports),
                volumes: keys(&self.volumes),
            }),
            rootfs: RootFsSection { kind: "layers".into(), diff_ids: vec![diff_id.to_owned()] },
        };
        serde_json::to_vec(&file)
            .map_err(|e| ImageError::io("describe", Path::new(&self.reference))(io::Error::from(e)))
    }
}
