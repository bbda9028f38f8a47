//! What is said of an image.

/// One image, or several that differ in nothing but their names.
#[derive(Debug)]
pub struct Recipe {
    /// The name of its archive.
    pub name: &'static str,
    /// The names that suites have it by.
    pub references: &'static [&'static str],
    /// True if they are one image, false if each has an id of its own (by a label), as upstream's versions have.
    pub alike: bool,
    /// What its root is made of, in this order.
    pub parts: &'static [Part],
    /// Its settings: the JSON that `trine image build --config` takes.
    pub config: &'static str,
    /// How it shows that it is what it should be.
    pub proof: Proof,
}

/// What a container of an image is asked.
#[derive(Debug)]
pub struct Proof {
    /// What it runs; the image's own if empty.
    pub command: &'static [&'static str],
    /// Its arguments; the image's own if empty.
    pub args: &'static [&'static str],
    /// Commands in it, and what each has to say among other things.
    pub asked: &'static [(&'static [&'static str], &'static str)],
}

/// A proof in a container that does nothing meanwhile.
#[must_use]
pub const fn idle(asked: &'static [(&'static [&'static str], &'static str)]) -> Proof {
    Proof { command: &["sleep", "1000"], args: &[], asked }
}

/// A proof of the image's own command.
#[must_use]
pub const fn own(asked: &'static [(&'static [&'static str], &'static str)]) -> Proof {
    Proof { command: &[], args: &[], asked }
}

/// Something in an image's root.
#[derive(Debug)]
pub enum Part {
    /// Another recipe's parts.
    Of(&'static str),
    /// The folders that every root has, users and groups.
    Base,
    /// Those of busybox's commands that are not there already, so it goes last.
    Busybox,
    /// The same, by the build whose shell looks for each of them on the PATH, as upstream's does. It needs a C library.
    SharedBusybox,
    /// Debian's packages with what they depend on.
    Packages(&'static [&'static str]),
    /// A program of `tests/upstream/images/go.mod`: package, place.
    Go(&'static str, &'static str),
    /// A program of another module of the repository: the module's folder, package, place.
    GoOf(&'static str, &'static str, &'static str),
    /// A file of the module k8s.io/kubernetes: path there, place.
    Kubernetes(&'static str, &'static str),
    /// A text: place, content, mode.
    Text(&'static str, &'static str, u32),
    /// A link: place, target.
    Link(&'static str, &'static str),
    /// A folder: place, mode.
    Folder(&'static str, u32),
    /// Files of a registry that holds one image: folder, recipe, name and tag there.
    Registry(&'static str, &'static str, &'static str, &'static str),
}
