//! The order in which modules are loaded. Pure.

use std::collections::BTreeMap;

/// Which files must be loaded before which, from the text of `modules.dep`: `a.ko: b.ko c.ko` says that `a` needs `b` and `c`.
#[derive(Debug)]
pub struct Dependencies<'a>(BTreeMap<String, (&'a str, Vec<&'a str>)>);

impl<'a> Dependencies<'a> {
    /// Reads the text of `modules.dep`.
    #[must_use]
    pub fn read(text: &'a str) -> Self {
        let entries = text.lines().filter_map(|line| line.split_once(':'));
        let entry =
            |(file, needs): (&'a str, &'a str)| (name(file), (file, needs.split_whitespace().collect()));
        Self(entries.map(entry).collect())
    }

    /// The files to load for `wanted`, each after those that it needs, none twice. What is no module is built into the kernel and
    /// left out.
    #[must_use]
    pub fn order(&self, wanted: &[&str]) -> Vec<&'a str> {
        let mut order = Vec::new();
        for module in wanted {
            self.add(&name(module), &mut order);
        }
        order
    }

    fn add(&self, module: &str, order: &mut Vec<&'a str>) {
        let Some((file, needs)) = self.0.get(module) else { return };
        if order.contains(file) {
            return;
        }
        // The file names all that is needed, directly or not, in no useful order; each line of its own says what it needs.
        for need in needs {
            self.add(&name(need), order);
        }
        order.push(file);
    }
}

/// A module's name for its file: without folders and ending, and with `_` for `-`, which are the same to the kernel.
#[must_use]
pub fn name(file: &str) -> String {
    let base = file.rsplit('/').next().unwrap_or(file);
    base.split(".ko").next().unwrap_or(base).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
kernel/drivers/virtio/virtio_pci.ko: kernel/drivers/virtio/virtio-pci-modern-dev.ko kernel/drivers/virtio/virtio.ko kernel/drivers/virtio/virtio_ring.ko
kernel/drivers/virtio/virtio-pci-modern-dev.ko:
kernel/drivers/virtio/virtio.ko: kernel/drivers/virtio/virtio_ring.ko
kernel/drivers/virtio/virtio_ring.ko:
kernel/net/9p/9pnet.ko.xz:
";

    #[test]
    fn what_a_module_needs_comes_before_it_and_nothing_comes_twice() {
        let order = Dependencies::read(TEXT).order(&["virtio_pci", "virtio", "9pnet", "built_in"]);
        let names: Vec<String> = order.iter().map(|file| name(file)).collect();
        assert_eq!(names, ["virtio_pci_modern_dev", "virtio_ring", "virtio", "virtio_pci", "9pnet"]);
    }
}
