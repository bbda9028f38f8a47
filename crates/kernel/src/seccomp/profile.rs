//! The `seccomp` section of the OCI runtime specification (1.2), in its JSON form.

use serde::{Deserialize, Serialize};

/// A profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seccomp {
    /// What becomes of a call that no rule names.
    pub default_action: Action,
    /// The error of the default action, if that is an error; EPERM if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_errno_ret: Option<u32>,
    /// Further ways to make calls that the rules are for (`SCMP_ARCH_X86`), beside this machine's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub architectures: Vec<String>,
    /// `SECCOMP_FILTER_FLAG_LOG` and the like. Absent: no mitigation against speculative store bypass is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flags: Option<Vec<String>>,
    /// The rules.
    #[serde(default)]
    pub syscalls: Vec<Rule>,
}

/// What becomes of some calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// The calls' names; one that this machine does not have is passed over.
    pub names: Vec<String>,
    /// What becomes of them.
    pub action: Action,
    /// The error, if the action is one; EPERM if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno_ret: Option<u32>,
    /// All of these must hold of the arguments; of several for one argument, one must.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Argument>,
}

/// A condition on an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Argument {
    /// Which argument, from 0 to 5.
    pub index: u32,
    /// What it is compared with; the mask of a masked comparison.
    pub value: u64,
    /// What must be left under the mask.
    #[serde(default)]
    pub value_two: u64,
    /// How.
    pub op: Operator,
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// It is made.
    #[serde(rename = "SCMP_ACT_ALLOW")]
    Allow,
    /// It fails.
    #[serde(rename = "SCMP_ACT_ERRNO")]
    Errno,
    /// The thread is killed.
    #[serde(rename = "SCMP_ACT_KILL", alias = "SCMP_ACT_KILL_THREAD")]
    KillThread,
    /// The process is killed.
    #[serde(rename = "SCMP_ACT_KILL_PROCESS")]
    KillProcess,
    /// The thread gets SIGSYS.
    #[serde(rename = "SCMP_ACT_TRAP")]
    Trap,
    /// A tracer is asked; without one it fails.
    #[serde(rename = "SCMP_ACT_TRACE")]
    Trace,
    /// It is made and logged.
    #[serde(rename = "SCMP_ACT_LOG")]
    Log,
    /// Another process is asked. Not supported.
    #[serde(rename = "SCMP_ACT_NOTIFY")]
    Notify,
}

/// How an argument is compared with a value, both unsigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operator {
    /// Not equal.
    #[serde(rename = "SCMP_CMP_NE")]
    NotEqual,
    /// Less.
    #[serde(rename = "SCMP_CMP_LT")]
    Less,
    /// Less or equal.
    #[serde(rename = "SCMP_CMP_LE")]
    LessOrEqual,
    /// Equal.
    #[serde(rename = "SCMP_CMP_EQ")]
    Equal,
    /// Greater or equal.
    #[serde(rename = "SCMP_CMP_GE")]
    GreaterOrEqual,
    /// Greater.
    #[serde(rename = "SCMP_CMP_GT")]
    Greater,
    /// Equal to the second value under the mask of the first.
    #[serde(rename = "SCMP_CMP_MASKED_EQ")]
    MaskedEqual,
}
