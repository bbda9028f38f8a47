//! What drivers were asked to make ready, in `dra_manager.json` of the kubelet's folder: it is written before they are asked, so that
//! whatever becomes of the kubelet, what was made ready is taken back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::KubeletError;
use crate::volumes::metadata::write_whole;

const FILE: &str = "dra_manager.json";

/// A device that was made ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// The pool that it is from, and its name there; records of older kubelets have neither.
    #[serde(default)]
    pub pool: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// The requests of the claim that it is for; all if none is named.
    pub requests: Vec<String>,
    /// What the runtime is told.
    pub cdi_devices: Vec<String>,
}

/// A claim with its devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Where it is.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The UIDs of the Pods that use it here.
    pub pods: BTreeSet<String>,
    /// What each of its drivers made ready; of those that have not yet said so, nothing.
    pub drivers: BTreeMap<String, Option<Vec<Device>>>,
}

impl Claim {
    /// Whether all drivers have made it ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.drivers.values().all(Option::is_some)
    }

    /// What the runtime is told for a request, or for all.
    #[must_use]
    pub fn cdi_devices(&self, request: Option<&str>) -> Vec<String> {
        self.devices(request).flat_map(|(_, device)| device.cdi_devices.iter().cloned()).collect()
    }

    /// The devices for a request, or for all, with their drivers.
    pub fn devices<'a>(&'a self, request: Option<&'a str>) -> impl Iterator<Item = (&'a str, &'a Device)> {
        let base = |name: &str| name.split('/').next().unwrap_or_default().to_owned();
        let request = request.filter(|request| !request.is_empty());
        let of_request = move |(_, device): &(&str, &Device)| {
            let all = request.is_none() || device.requests.is_empty();
            all || device.requests.iter().any(|name| request.map(base) == Some(base(name)))
        };
        let ready = |(driver, devices): (&'a String, &'a Option<Vec<Device>>)| {
            devices.iter().flatten().map(move |device| (driver.as_str(), device))
        };
        self.drivers.iter().flat_map(ready).filter(of_request)
    }
}

/// All claims that are in use, by UID.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The claims.
    pub claims: BTreeMap<String, Claim>,
}

impl Record {
    /// What is written down; nothing if nothing is.
    ///
    /// # Errors
    /// [`KubeletError::Io`], [`KubeletError::Invalid`] if it cannot be read.
    pub fn read(root: &Path) -> Result<Self, KubeletError> {
        let path = file(root);
        match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)
                .map_err(|error| KubeletError::Invalid(format!("{}: {error}", path.display()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(KubeletError::io("read", &path)(error)),
        }
    }

    /// Writes it down.
    ///
    /// # Errors
    /// [`KubeletError::Io`].
    pub fn write(&self, root: &Path) -> Result<(), KubeletError> {
        let text = serde_json::to_vec(self).map_err(|error| KubeletError::Invalid(error.to_string()))?;
        write_whole(&file(root), &text)
    }

    /// The claims that a Pod uses.
    pub fn of_pod<'a>(&'a self, pod: &'a str) -> impl Iterator<Item = &'a Claim> {
        self.claims.values().filter(move |claim| claim.pods.contains(pod))
    }
}

fn file(root: &Path) -> PathBuf {
    root.join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_gets_the_devices_of_its_request_or_all() {
        let device = |requests: &[&str], id: &str| Device {
            pool: "p".to_owned(),
            name: id.to_owned(),
            requests: requests.iter().map(|r| (*r).to_owned()).collect(),
            cdi_devices: vec![id.to_owned()],
        };
        let drivers = BTreeMap::from([
            ("a".to_owned(), Some(vec![device(&["r"], "a=0"), device(&["s/big"], "a=1")])),
            ("b".to_owned(), Some(vec![device(&[], "b=0")])),
        ]);
        let mut claim = Claim {
            namespace: "d".into(),
            name: "c".into(),
            uid: "1".into(),
            pods: BTreeSet::new(),
            drivers,
        };
        assert_eq!(claim.cdi_devices(None), ["a=0", "a=1", "b=0"]);
        assert_eq!(claim.cdi_devices(Some("r")), ["a=0", "b=0"]);
        assert_eq!(claim.cdi_devices(Some("s")), ["a=1", "b=0"]);
        assert!(claim.is_ready());
        claim.drivers.insert("c".to_owned(), None);
        assert!(!claim.is_ready());
    }

    #[test]
    fn what_is_written_down_is_read_again() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(root.path()).unwrap(), Record::default());
        let claim = Claim {
            namespace: "d".into(),
            name: "c".into(),
            uid: "1".into(),
            pods: ["p".to_owned()].into(),
            drivers: BTreeMap::from([("a".to_owned(), None)]),
        };
        let record = Record { claims: BTreeMap::from([("1".to_owned(), claim)]) };
        record.write(root.path()).unwrap();
        assert_eq!(Record::read(root.path()).unwrap(), record);
        assert_eq!(record.of_pod("p").count(), 1);
        assert_eq!(record.of_pod("q").count(), 0);
    }
}
