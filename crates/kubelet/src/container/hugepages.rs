//! Huge pages: which sizes the machine has, and what a container may have of each.

use std::collections::BTreeSet;
use std::path::Path;

use trine_contracts::cri::HugepageLimit;
use trine_typed::k8s_openapi::api::core::v1::{Container, Pod};

use super::quantity;
use crate::pod::spec;

/// How resources of this kind begin.
pub const PREFIX: &str = "hugepages-";

/// Pages of one size that the machine has set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HugePages {
    /// Size of a page, KiB.
    pub size: u64,
    /// How many there are.
    pub pages: u64,
}

/// Unit by unit, the size as the largest that divides it.
fn unit(kib: u64, units: [&str; 3]) -> String {
    let [small, middle, large] = units;
    match kib {
        _ if kib >= 1 << 20 && kib.is_multiple_of(1 << 20) => format!("{}{large}", kib >> 20),
        _ if kib >= 1 << 10 && kib.is_multiple_of(1 << 10) => format!("{}{middle}", kib >> 10),
        _ => format!("{kib}{small}"),
    }
}

impl HugePages {
    /// The resource: `hugepages-2Mi`.
    #[must_use]
    pub fn resource(&self) -> String {
        format!("{PREFIX}{}", self.size())
    }

    /// The size as a quantity: `2Mi`.
    #[must_use]
    pub fn size(&self) -> String {
        unit(self.size, ["Ki", "Mi", "Gi"])
    }

    /// The size as groups' files spell it: `2MB`.
    #[must_use]
    pub fn file_size(&self) -> String {
        unit(self.size, ["KB", "MB", "GB"])
    }

    /// All of them, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.size * 1024 * self.pages
    }
}

/// Those of this machine, by size; `folder` is usually `/sys/kernel/mm/hugepages`.
#[must_use]
pub fn of_machine(folder: &Path) -> Vec<HugePages> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let one = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let size = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let pages = std::fs::read_to_string(entry.path().join("nr_hugepages")).ok()?;
        Some(HugePages { size, pages: pages.trim().parse().ok()? })
    };
    let mut all: Vec<HugePages> = entries.filter_map(one).collect();
    all.sort_by_key(|pages| pages.size);
    all
}

/// What a container may have of each size: what its limits say, and nothing else.
#[must_use]
pub fn limits(container: &Container, machine: &[HugePages]) -> Vec<HugepageLimit> {
    let limits = container.resources.as_ref().and_then(|r| r.limits.as_ref());
    let said = |pages: &HugePages| {
        let bytes = limits.and_then(|l| quantity::value(&l.get(&pages.resource())?.0));
        bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or_default()
    };
    machine.iter().map(|pages| HugepageLimit { page_size: pages.file_size(), limit: said(pages) }).collect()
}

/// Size of the pages of an emptyDir, bytes, if its `medium` is huge pages: the one that it names, or the one that the Pod's
/// containers ask for.
///
/// # Errors
/// Why there is no such size, as upstream says it.
pub fn of_medium(pod: &Pod, volume: &str, medium: &str) -> Result<Option<u64>, String> {
    let Some(rest) = medium.strip_prefix("HugePages") else { return Ok(None) };
    let requests = spec::all(pod).filter_map(|c| c.resources.as_ref()?.requests.as_ref());
    let asked: BTreeSet<i64> = requests
        .flat_map(|r| r.keys())
        .filter_map(|name| quantity::value(name.strip_prefix(PREFIX)?))
        .collect();
    let size = match rest.strip_prefix('-') {
        Some(size) => quantity::value(size).filter(|size| asked.contains(size)).ok_or_else(|| {
            format!("medium {medium:?} of volume {volume:?}: no container asks for huge pages of this size")
        })?,
        None => match asked.iter().collect::<Vec<_>>()[..] {
            [size] => *size,
            [] => {
                return Err(format!(
                    "medium {medium:?} of volume {volume:?}: no container asks for huge pages"
                ));
            }
            _ => {
                return Err(format!(
                    "medium {medium:?} can't be used if container requests multiple huge page sizes"
                ));
            }
        },
    };
    Ok(u64::try_from(size).ok())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn sizes_are_named_as_kubernetes_and_as_the_kernel_does() {
        for (size, resource, file) in [
            (64, "hugepages-64Ki", "64KB"),
            (2048, "hugepages-2Mi", "2MB"),
            (1 << 20, "hugepages-1Gi", "1GB"),
            (16 << 20, "hugepages-16Gi", "16GB"),
        ] {
            let pages = HugePages { size, pages: 3 };
            assert_eq!((pages.resource().as_str(), pages.file_size().as_str()), (resource, file));
            assert_eq!(pages.bytes(), 3 * size * 1024);
        }
    }

    #[test]
    fn a_container_has_of_each_size_what_it_says_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        for (size, pages) in [("hugepages-1048576kB", "0\n"), ("hugepages-2048kB", "5\n")] {
            std::fs::create_dir(dir.path().join(size)).unwrap();
            std::fs::write(dir.path().join(size).join("nr_hugepages"), pages).unwrap();
        }
        let machine = of_machine(dir.path());
        assert_eq!(machine, [HugePages { size: 2048, pages: 5 }, HugePages { size: 1 << 20, pages: 0 }]);
        let container: Container = serde_json::from_value(serde_json::json!({"name": "c",
            "resources": {"limits": {"hugepages-2Mi": "4Mi", "memory": "1Gi"}}}))
        .unwrap();
        let limits: Vec<(String, u64)> =
            limits(&container, &machine).into_iter().map(|l| (l.page_size, l.limit)).collect();
        assert_eq!(limits, [("2MB".to_owned(), 4 << 20), ("1GB".to_owned(), 0)]);
        assert_eq!(of_machine(Path::new("/none")), []);
    }

    #[test]
    fn an_empty_dir_has_pages_of_the_size_that_is_asked_for() {
        let pod = |sizes: &[&str]| -> Pod {
            let requests: BTreeMap<String, &str> =
                sizes.iter().map(|s| (format!("hugepages-{s}"), "4Mi")).collect();
            serde_json::from_value(serde_json::json!({"spec": {"containers": [
                {"name": "c", "resources": {"requests": requests}}, {"name": "d"}]}}))
            .unwrap()
        };
        for (medium, sizes, expected) in [
            ("", vec!["2Mi"], Ok(None)),
            ("Memory", vec![], Ok(None)),
            ("HugePages", vec!["2Mi"], Ok(Some(2 << 20))),
            ("HugePages-1Gi", vec!["1Gi", "2Mi"], Ok(Some(1 << 30))),
            ("HugePages", vec![], Err("no container asks")),
            ("HugePages", vec!["1Gi", "2Mi"], Err("multiple huge page sizes")),
            ("HugePages-1Gi", vec!["2Mi"], Err("no container asks")),
        ] {
            match (of_medium(&pod(&sizes), "v", medium), expected) {
                (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{medium} {sizes:?}"),
                (Err(got), Err(part)) => assert!(got.contains(part), "{got}"),
                (got, _) => panic!("{medium} {sizes:?}: {got:?}"),
            }
        }
    }
}
