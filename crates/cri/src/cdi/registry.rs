//! Files that say what devices are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// A file of one vendor and class of devices.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Specification {
    #[serde(rename = "cdiVersion")]
    pub version: String,
    /// `vendor.com/class`.
    pub kind: String,
    #[serde(default)]
    pub devices: Vec<Device>,
    #[serde(default)]
    pub container_edits: Edits,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Device {
    pub name: String,
    #[serde(default)]
    pub container_edits: Edits,
}

/// What is done to a container.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Edits {
    pub env: Vec<String>,
    pub device_nodes: Vec<DeviceNode>,
    pub mounts: Vec<Mount>,
    pub hooks: Vec<Hook>,
    pub net_devices: Vec<serde_json::Value>,
    pub intel_rdt: Option<serde_json::Value>,
    #[serde(rename = "additionalGids")]
    pub additional_gids: Vec<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DeviceNode {
    pub path: String,
    pub host_path: String,
    pub permissions: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Mount {
    pub host_path: String,
    pub container_path: String,
    pub options: Vec<String>,
    #[serde(rename = "type")]
    pub kind: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Hook {
    pub hook_name: String,
}

/// What is known of devices, by kind and name.
#[derive(Debug, Default)]
pub(super) struct Registry {
    devices: BTreeMap<String, BTreeMap<String, (usize, Edits)>>,
    specifications: Vec<Specification>,
    /// Names that two files of one folder have: they mean nothing.
    ambiguous: Vec<String>,
    /// Files that could not be read, and why.
    pub wrong: Vec<String>,
}

impl Registry {
    /// Reads the files of folders; later folders count more.
    pub fn read(folders: &[PathBuf]) -> Self {
        let mut all = Self::default();
        for folder in folders {
            let mut here: Vec<(PathBuf, Specification)> = Vec::new();
            for path in files(folder) {
                match read(&path) {
                    Ok(specification) => here.push((path, specification)),
                    Err(why) => all.wrong.push(format!("{}: {why}", path.display())),
                }
            }
            all.take(here.into_iter().map(|(_, specification)| specification));
        }
        all
    }

    /// Takes the files of one folder in.
    fn take(&mut self, folder: impl Iterator<Item = Specification>) {
        let mut seen: Vec<String> = Vec::new();
        for specification in folder {
            let number = self.specifications.len();
            for device in &specification.devices {
                let name = format!("{}={}", specification.kind, device.name);
                self.ambiguous.retain(|other| seen.contains(other) || *other != name);
                if seen.contains(&name) {
                    self.ambiguous.push(name.clone());
                }
                seen.push(name);
                let of_kind = self.devices.entry(specification.kind.clone()).or_default();
                of_kind.insert(device.name.clone(), (number, device.container_edits.clone()));
            }
            self.specifications.push(specification);
        }
    }

    /// What a device by its full name is: the number of its file, what that does for all its devices, and what this one needs.
    pub fn device(&self, name: &str) -> Option<(usize, &Edits, &Edits)> {
        let (kind, device) = name.split_once('=')?;
        if self.ambiguous.iter().any(|other| other == name) {
            return None;
        }
        let (number, edits) = self.devices.get(kind)?.get(device)?;
        Some((*number, &self.specifications.get(*number)?.container_edits, edits))
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let known = |path: &PathBuf| {
        path.extension().and_then(|e| e.to_str()).is_some_and(|e| ["json", "yaml", "yml"].contains(&e))
    };
    let mut files: Vec<PathBuf> = entries.filter(known).collect();
    files.sort();
    files
}

fn read(path: &Path) -> Result<Specification, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    parse(&text)
}

/// A file's text: YAML, of which JSON is a part.
pub(super) fn parse(text: &str) -> Result<Specification, String> {
    let specification: Specification = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    if !["0.", "1."].iter().any(|version| specification.version.starts_with(version)) {
        return Err(format!("version {} is not known", specification.version));
    }
    match specification.kind.split_once('/') {
        Some((vendor, class)) if !vendor.is_empty() && !class.is_empty() => Ok(specification),
        _ => Err(format!("{:?} is no kind of devices", specification.kind)),
    }
}

#[cfg(test)]
impl Registry {
    /// Of the files of folders, as texts.
    pub fn of(folders: &[&[&str]]) -> Self {
        let mut all = Self::default();
        for folder in folders {
            all.take(folder.iter().map(|text| parse(text).unwrap()));
        }
        all
    }
}
