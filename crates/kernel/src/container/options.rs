//! mount(8) options, split into what they mean.

use rustix::mount::MountAttrFlags;

/// Who sees later mounts below a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Propagation {
    Private,
    Slave,
    Shared,
}

/// Options of one mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Options {
    /// A file or folder of the host, with what is mounted below it or without.
    pub bind: Option<Bind>,
    /// Flags of this mount.
    pub attributes: MountAttrFlags,
    /// Flags of this mount and all below.
    pub recursive: MountAttrFlags,
    pub propagation: Option<Propagation>,
    /// For the file system: key, and value if it has one.
    pub data: Vec<(String, Option<String>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bind {
    Single,
    Recursive,
}

impl Options {
    /// Whether it is a bind to which what is mounted at its source later comes.
    pub fn hears_of_others(&self) -> bool {
        self.bind.is_some() && matches!(self.propagation, Some(Propagation::Slave | Propagation::Shared))
    }
}

pub(super) fn parse(options: &[String]) -> Options {
    let mut parsed = Options {
        bind: None,
        attributes: MountAttrFlags::empty(),
        recursive: MountAttrFlags::empty(),
        propagation: None,
        data: Vec::new(),
    };
    for option in options.iter().flat_map(|o| o.split(',')).filter(|o| !o.is_empty()) {
        match option {
            "defaults" | "rw" | "suid" | "dev" | "exec" | "async" => {}
            "bind" => parsed.bind = Some(Bind::Single),
            "rbind" => parsed.bind = Some(Bind::Recursive),
            "ro" => parsed.attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY,
            "rro" => parsed.recursive |= MountAttrFlags::MOUNT_ATTR_RDONLY,
            "nosuid" => parsed.attributes |= MountAttrFlags::MOUNT_ATTR_NOSUID,
            "nodev" => parsed.attributes |= MountAttrFlags::MOUNT_ATTR_NODEV,
            "noexec" => parsed.attributes |= MountAttrFlags::MOUNT_ATTR_NOEXEC,
            "noatime" => parsed.attributes |= MountAttrFlags::MOUNT_ATTR_NOATIME,
            "strictatime" => parsed.attributes |= MountAttrFlags::MOUNT_ATTR_STRICTATIME,
            "nodiratime" => parsed.attributes |= MountAttrFlags::MOUNT_ATTR_NODIRATIME,
            "relatime" => {}
            "private" | "rprivate" => parsed.propagation = Some(Propagation::Private),
            "slave" | "rslave" => parsed.propagation = Some(Propagation::Slave),
            "shared" | "rshared" => parsed.propagation = Some(Propagation::Shared),
            other => parsed.data.push(match other.split_once('=') {
                Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
                None => (other.to_owned(), None),
            }),
        }
    }
    parsed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_split_into_flags_propagation_and_data() {
        let text: Vec<String> =
            ["rbind", "ro,nosuid", "rslave", "mode=755", "newinstance", "rw"].map(str::to_owned).into();
        let options = parse(&text);
        assert_eq!(options.bind, Some(Bind::Recursive));
        assert_eq!(options.attributes, MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID);
        assert_eq!(options.propagation, Some(Propagation::Slave));
        assert_eq!(
            options.data,
            vec![("mode".to_owned(), Some("755".to_owned())), ("newinstance".to_owned(), None)]
        );
    }
}
