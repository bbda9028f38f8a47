//! Which suites there are, and in which module each lies.

/// A suite of somebody else's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suite {
    /// `[Conformance]` of e2e.test: the whole cluster.
    Conformance,
    /// `[NodeConformance]` specs that go through the API.
    Node,
    /// "External Storage" of e2e.test over the built-in driver.
    Storage,
    /// `NetworkPolicy` of e2e.test.
    Netpol,
    /// `[DRA]` of e2e.test: devices by claims.
    Dra,
    /// `[Feature:IPv6DualStack]` of e2e.test: a cluster of both families.
    DualStack,
    /// The CRI, without Kubernetes.
    Critest,
    /// The CSI driver, without Kubernetes.
    CsiSanity,
    /// Every combination of policies that its author thought of.
    PolicyAssistant,
    /// The reference plugins as an oracle.
    Cni,
}

/// All suites, in the order of the table.
pub const ALL: [Suite; 10] = [
    Suite::Conformance,
    Suite::Node,
    Suite::Storage,
    Suite::Netpol,
    Suite::Dra,
    Suite::DualStack,
    Suite::Critest,
    Suite::CsiSanity,
    Suite::PolicyAssistant,
    Suite::Cni,
];

impl Suite {
    /// The word of the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Conformance => "conformance",
            Self::Node => "node",
            Self::Storage => "storage",
            Self::Netpol => "netpol",
            Self::Dra => "dra",
            Self::DualStack => "dual-stack",
            Self::Critest => "critest",
            Self::CsiSanity => "csi-sanity",
            Self::PolicyAssistant => "policy-assistant",
            Self::Cni => "cni",
        }
    }

    /// The suite of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|suite| suite.name() == name)
    }
}
