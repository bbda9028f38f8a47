//! What daemon and keeper say to each other.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use trine_kernel::container::oci::{Process, Spec};
use trine_kernel::container::{Groups, Owners};
use trine_kernel::proc::ProcessId;
use trine_kernel::seccomp::profile::Seccomp;

/// A call of the daemon.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// What containers are there?
    List,
    /// Set a container up, to the point where it waits for its start.
    Create(Box<NewContainer>),
    /// Start one that was created.
    Start {
        /// Which.
        container: String,
    },
    /// Send a signal to a container's first process.
    Kill {
        /// Which.
        container: String,
        /// The signal's number.
        signal: i32,
        /// Not if the kernel would drop it, because the process has no handler yet: [`Reply::Deaf`] then.
        #[serde(default)]
        if_heard: bool,
    },
    /// Kill a container if it runs, and forget it, at the latest when it has ended.
    Forget {
        /// Which.
        container: String,
    },
    /// Open the log file anew.
    Reopen {
        /// Whose.
        container: String,
    },
    /// Run a further process in a container; the connection becomes its stream.
    Exec(Box<NewExec>),
    /// Join a container's streams; the connection becomes that.
    Attach {
        /// Whose.
        container: String,
        /// True if input will be sent.
        stdin: bool,
    },
    /// Kill everything and end.
    Shutdown,
}

/// A container to be made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewContainer {
    /// Its id.
    pub id: String,
    /// What it is.
    pub spec: Spec,
    /// The groups it joins.
    pub groups: Vec<Groups>,
    /// Files that count kills for want of memory.
    pub oom_files: Vec<PathBuf>,
    /// Born in the pid namespace that the Pod's containers share.
    pub share_pid: bool,
    /// Born in the pid namespace of this container.
    pub target: Option<String>,
    /// Its folder, in which its end is recorded.
    pub folder: PathBuf,
    /// Its log file; none to keep no log.
    pub log: Option<PathBuf>,
    /// It has an input that can be attached to.
    pub stdin: bool,
    /// The input ends with the first attached session.
    pub stdin_once: bool,
    /// How long its set-up may take, ms.
    pub deadline: u64,
}

/// A further process of a container.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewExec {
    /// The container.
    pub container: String,
    /// What to run.
    pub process: Process,
    /// Which system calls it may make; all if none.
    pub seccomp: Option<Seccomp>,
    /// The container's own users, if they are not the host's.
    #[serde(default)]
    pub owners: Owners,
    /// The groups it joins.
    pub groups: Vec<Groups>,
    /// It has an input.
    pub stdin: bool,
    /// How long its set-up may take, ms.
    pub deadline: u64,
}

/// The answer to a call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// It is not done: the process would not hear the signal yet.
    Deaf,
    /// It is done, and this is the process.
    Process(ProcessId),
    /// The containers.
    Containers(Vec<ContainerState>),
    /// It could not be done, and why.
    Failed(String),
    /// There is no such container.
    Unknown,
}

/// Something that happened.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Event {
    /// A container has ended.
    Exited {
        /// Which.
        container: String,
        /// How.
        exit: Exit,
    },
}

/// How far a container is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// It is being set up.
    SettingUp,
    /// It waits for its start.
    Created,
    /// Its program is being executed.
    Starting,
    /// Its program runs.
    Running,
    /// It has ended.
    Exited,
}

/// A container as the keeper knows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ContainerState {
    /// Which.
    pub id: String,
    /// How far it is.
    pub phase: Phase,
    /// Its first process.
    pub process: Option<ProcessId>,
    /// When its program began, ns since 1970; 0 if it has not.
    pub started_at: i64,
    /// How it ended, if it has.
    pub exit: Option<Exit>,
}

/// How a process ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code; 128 and the signal's number if killed.
    pub code: i32,
    /// The kernel killed something of it for want of memory.
    pub oom: bool,
    /// Its program could not be started, and why.
    pub error: Option<String>,
    /// When its program began, ns since 1970; 0 if it never did.
    pub started_at: i64,
    /// When it ended, ns since 1970.
    pub finished_at: i64,
}

/// A terminal's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Columns.
    #[serde(rename = "Width")]
    pub columns: u16,
    /// Rows.
    #[serde(rename = "Height")]
    pub rows: u16,
}

/// A message on the wire: a call or its answer with a number, or an event with none.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Envelope<T> {
    pub number: u64,
    pub body: T,
}

/// What the keeper sends.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromKeeper {
    Reply(Reply),
    Event(Event),
}
