//! Further processes in a container, and joining its streams.

use std::time::Duration;

use trine_contracts::cri::ExecSyncResponse;
use trine_kernel::container::Owners;
use trine_kernel::testing::failpoint;

use super::record::State;
use crate::error::CriError;
use crate::keeper::{Kind, NewExec, Request, Stream, StreamEnd};
use crate::runtime::Runtime;

/// How long a further process's set-up may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// What ExecSync keeps of each stream, bytes (containerd's number; the rest is dropped).
const MAX_OUTPUT: usize = 16 * 1024 * 1024;

/// What is to be run.
#[derive(Debug, Clone)]
pub(crate) struct ExecOptions {
    pub container: String,
    pub command: Vec<String>,
    pub terminal: bool,
    pub stdin: bool,
}

impl Runtime {
    /// Runs a process in a container; dropping the stream kills it.
    ///
    /// # Errors
    /// [`CriError`]; if its program cannot be executed, with the words for it.
    pub(crate) async fn exec(&self, call: &'static str, options: ExecOptions) -> Result<Stream, CriError> {
        let container = self.container(&options.container)?;
        if options.command.is_empty() {
            return Err(CriError::invalid(call, "there is no command"));
        }
        self.must_run(call, &options.container)?;
        let spec = container.spec().map_err(CriError::io("read config.json in", &container.folder))?;
        let mut process = spec.process;
        process.args = options.command;
        process.terminal = options.terminal;
        if options.terminal && !process.env.iter().any(|line| line.starts_with("TERM=")) {
            process.env.push("TERM=xterm".to_owned());
        }
        let new = NewExec {
            container: container.id.clone(),
            process,
            seccomp: spec.linux.seccomp,
            owners: Owners { uids: spec.linux.uid_mappings, gids: spec.linux.gid_mappings },
            groups: self.group(&container.record().cgroup).folders().cloned().collect(),
            stdin: options.stdin,
            deadline: u64::try_from(DEADLINE.as_millis()).unwrap_or(u64::MAX),
        };
        let folder = self.sandbox(&container.sandbox)?.folder.clone();
        failpoint("Exec: begun");
        let opened = Stream::open(&folder, Request::Exec(Box::new(new)), DEADLINE).await;
        failpoint("Exec: runs");
        opened.map_err(|source| CriError::Keeper { call, object: container.id.clone(), source })
    }

    /// Joins a container's streams.
    ///
    /// # Errors
    /// [`CriError`].
    pub(crate) async fn attach_to(&self, id: &str, stdin: bool) -> Result<Stream, CriError> {
        const CALL: &str = "Attach";
        let container = self.container(id)?;
        self.must_run(CALL, id)?;
        let folder = self.sandbox(&container.sandbox)?.folder.clone();
        let request = Request::Attach { container: container.id.clone(), stdin };
        Stream::open(&folder, request, DEADLINE).await.map_err(|source| CriError::Keeper {
            call: CALL,
            object: container.id.clone(),
            source,
        })
    }

    /// Refuses what needs a running container if it does not run.
    pub(crate) fn must_run(&self, call: &'static str, id: &str) -> Result<(), CriError> {
        let container = self.container(id)?;
        match container.state() {
            State::Running => Ok(()),
            state => Err(CriError::State {
                call,
                object: container.id.clone(),
                why: format!("the container is not running but {state:?}"),
            }),
        }
    }

    /// Runs a process and waits for its end, at most `timeout` seconds (0: without limit); then it is killed.
    ///
    /// # Errors
    /// [`CriError::Timeout`], or why it could not be run.
    pub(crate) async fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        timeout: i64,
    ) -> Result<ExecSyncResponse, CriError> {
        const CALL: &str = "ExecSync";
        let options = ExecOptions { container: id.to_owned(), command, terminal: false, stdin: false };
        let run = async {
            let stream = self.exec(CALL, options).await?;
            collect(stream).await.map_err(|e| CriError::Internal { call: CALL, why: e.to_string() })
        };
        match u64::try_from(timeout).ok().filter(|s| *s > 0).map(Duration::from_secs) {
            None => run.await,
            // Dropping the stream kills the process.
            Some(after) => tokio::time::timeout(after, run).await.map_err(|_| CriError::Timeout {
                call: CALL,
                object: id.to_owned(),
                after,
            })?,
        }
    }
}

async fn collect(stream: Stream) -> std::io::Result<ExecSyncResponse> {
    let (mut reader, _writer) = stream.split();
    let mut response = ExecSyncResponse::default();
    loop {
        match reader.next().await? {
            None => return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof)),
            Some(StreamEnd::Bytes(kind, bytes)) => {
                let to = if kind == Kind::Stderr { &mut response.stderr } else { &mut response.stdout };
                let room = MAX_OUTPUT - to.len();
                to.extend(&bytes[..bytes.len().min(room)]);
            }
            Some(StreamEnd::Exit(exit)) => {
                failpoint("ExecSync: ended");
                response.exit_code = exit.code;
                return Ok(response);
            }
        }
    }
}
