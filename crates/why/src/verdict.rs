//! What `why` says.

use std::fmt;

use serde::Serialize;

/// Where the fault lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Plane {
    /// No node was found.
    Scheduling,
    /// The image cannot be had.
    Image,
    /// Sandbox or container cannot be made or started.
    Cri,
    /// The Pod gets no network.
    Cni,
    /// Its volume is not made, bound, attached or mounted.
    Csi,
    /// The planes did their part; the program did not.
    App,
    /// Nothing is wrong.
    Healthy,
}

impl fmt::Display for Plane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheduling => "scheduling",
            Self::Image => "image",
            Self::Cri => "CRI",
            Self::Cni => "CNI",
            Self::Csi => "CSI",
            Self::App => "app",
            Self::Healthy => "healthy",
        })
    }
}

/// The answer for one Pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Where the fault lies.
    pub plane: Plane,
    /// The contract's call or the step that does not get through.
    pub step: String,
    /// Why, in one line.
    pub cause: String,
    /// What says so: events, statuses, steps, as they were found.
    pub proof: Vec<String>,
    /// What to type next.
    pub next: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "plane:  {}", self.plane)?;
        writeln!(f, "step:   {}", self.step)?;
        writeln!(f, "cause:  {}", self.cause)?;
        for (i, proof) in self.proof.iter().enumerate() {
            writeln!(f, "{}  {proof}", if i == 0 { "proof:" } else { "      " })?;
        }
        write!(f, "next:   {}", self.next)
    }
}
