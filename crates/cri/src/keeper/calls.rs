//! The daemon's calls, as the keeper carries them out.

use std::time::{Duration, Instant};

use trine_kernel::container::Stdio;
use trine_kernel::proc::{SIGKILL, is_heard, namespace};

use super::connection::Role as Line;
use super::frame::Kind;
use super::log::Log;
use super::looping::Keeper;
use super::message::{Envelope, NewContainer, NewExec, Phase, Reply, Request, Size};
use super::process::{Ends, pipes};
use super::task::{Role, Task, Waiter, oom_count};

impl Keeper {
    /// Reads a connection and does what it says.
    pub(super) fn hear(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.flush();
        connection.fill();
        while let Some((kind, payload)) =
            self.connections.get_mut(&id).and_then(super::connection::Connection::next)
        {
            match kind {
                Kind::Message => match serde_json::from_slice::<Envelope<Request>>(&payload) {
                    Ok(call) => self.call(id, call.number, call.body),
                    Err(error) => {
                        eprintln!("a call that is not understood: {error}");
                        if let Some(connection) = self.connections.get_mut(&id) {
                            connection.closed = true;
                        }
                    }
                },
                Kind::Stdin => self.input(id, &payload),
                Kind::Resize => self.resize(id, &payload),
                Kind::Stdout | Kind::Stderr | Kind::Exit => {}
            }
        }
    }

    fn input(&mut self, id: u64, bytes: &[u8]) {
        let of = match self.connections.get(&id).map(|c| c.role) {
            Some(Line::Exec(task) | Line::Attach(task, true)) => task,
            _ => return,
        };
        let Some(task) = self.tasks.get_mut(&of) else { return };
        let ends = bytes.is_empty()
            && matches!(task.role, Role::Exec { .. } | Role::Container { stdin_once: true, .. });
        task.input.extend(bytes);
        task.input_ends |= ends;
        task.feed();
    }

    fn resize(&mut self, id: u64, payload: &[u8]) {
        if let Some(Line::Exec(of) | Line::Attach(of, _)) = self.connections.get(&id).map(|c| c.role)
            && let Some(task) = self.tasks.get(&of)
            && let Ok(size) = serde_json::from_slice::<Size>(payload)
        {
            task.resize(size);
        }
    }

    fn call(&mut self, connection: u64, number: u64, request: Request) {
        let waiter = |deadline: u64| Waiter {
            connection,
            number,
            deadline: Instant::now() + Duration::from_millis(deadline),
        };
        let reply = match request {
            // What is made now would keep it from ending.
            Request::Create(_) | Request::Exec(_) | Request::Start { .. } if self.shutdown.is_some() => {
                Some(Reply::Failed("the sandbox is being stopped".to_owned()))
            }
            Request::List => Some(Reply::Containers(self.states())),
            Request::Create(new) => self.create(*new, waiter),
            Request::Start { container } => self.start(&container, waiter(START_DEADLINE)),
            Request::Kill { container, signal, if_heard } => Some(self.kill(&container, signal, if_heard)),
            Request::Forget { container } => Some(self.forget(&container)),
            Request::Reopen { container } => Some(self.reopen(&container)),
            Request::Exec(new) => self.exec(*new, waiter),
            Request::Attach { container, stdin } => Some(self.attach(connection, &container, stdin)),
            Request::Shutdown => {
                for task in self.tasks.values() {
                    task.kill();
                }
                self.shutdown = Some((connection, number));
                None
            }
        };
        if let Some(reply) = reply
            && let Some(connection) = self.connections.get_mut(&connection)
        {
            connection.reply(number, reply);
        }
    }

    fn find(&self, container: &str) -> Option<u64> {
        self.tasks.iter().find(|(_, t)| t.is_container() && t.container == container).map(|(id, _)| *id)
    }

    fn create(&mut self, new: NewContainer, waiter: impl Fn(u64) -> Waiter) -> Option<Reply> {
        if self.find(&new.id).is_some() {
            return Some(Reply::Failed("it is there already".to_owned()));
        }
        match self.try_create(&new, waiter(new.deadline)) {
            Ok(task) => {
                self.tasks.insert(self.next, task);
                self.next += 1;
                None
            }
            Err(why) => Some(Reply::Failed(why)),
        }
    }

    fn try_create(&self, new: &NewContainer, waiter: Waiter) -> Result<Task, String> {
        let log = match &new.log {
            None => None,
            Some(path) => {
                Some(Log::open(path).map_err(|e| format!("open the log file {}: {e}", path.display()))?)
            }
        };
        let (stdio, ends) = self.streams(new.spec.process.terminal, new.stdin)?;
        let target = match &new.target {
            None => None,
            Some(target) => {
                let task = self.find(target).and_then(|id| self.tasks.get(&id));
                let task = task.filter(|task| task.exit.is_none());
                let task = task.ok_or_else(|| format!("the target container {target} does not run"))?;
                let fd = namespace::pid_namespace(task.child.pid);
                Some(fd.map_err(|e| format!("open the pid namespace of {target}: {e}"))?)
            }
        };
        let shared = self.shared_pid.as_ref().filter(|_| new.share_pid);
        let child = self
            .launcher
            .create(&new.spec, &new.groups, target.as_ref().or(shared), &stdio)
            .map_err(|e| format!("fork: {e}"))?;
        let role = Role::Container {
            folder: new.folder.clone(),
            oom_files: new.oom_files.clone(),
            oom_before: oom_count(&new.oom_files),
            stdin_once: new.stdin_once,
        };
        let mut task = Task::new(new.id.clone(), role, child, ends, waiter);
        task.log = log;
        Ok(task)
    }

    fn streams(&self, terminal: bool, stdin: bool) -> Result<(Stdio, Ends), String> {
        if terminal {
            return Ok((Stdio::default(), Ends::default()));
        }
        pipes(stdin).map_err(|e| format!("make pipes: {e}"))
    }

    fn start(&mut self, container: &str, waiter: Waiter) -> Option<Reply> {
        let Some(task) = self.find(container).and_then(|id| self.tasks.get_mut(&id)) else {
            return Some(Reply::Unknown);
        };
        match task.phase {
            Phase::Created => {
                task.waiter = Some(waiter);
                task.start();
                None
            }
            Phase::Running => Some(Reply::Done),
            phase => Some(Reply::Failed(format!("it cannot be started: {phase:?}"))),
        }
    }

    fn kill(&mut self, container: &str, signal: i32, if_heard: bool) -> Reply {
        let Some(task) = self.find(container).and_then(|id| self.tasks.get(&id)) else {
            return Reply::Unknown;
        };
        // A child that still waits for its start would take a signal that it may ask for later.
        let signal = if task.phase == Phase::Running { signal } else { SIGKILL };
        if if_heard && !is_heard(task.child.pid, signal) {
            return Reply::Deaf;
        }
        match task.signal(signal) {
            Ok(()) => Reply::Done,
            Err(error) => Reply::Failed(format!("signal {signal}: {error}")),
        }
    }

    fn forget(&mut self, container: &str) -> Reply {
        let Some(id) = self.find(container) else { return Reply::Done };
        let Some(task) = self.tasks.get_mut(&id) else { return Reply::Done };
        if !task.told {
            task.forgotten = true;
            task.kill();
            return Reply::Failed("it still runs".to_owned());
        }
        self.tasks.remove(&id);
        Reply::Done
    }

    fn reopen(&mut self, container: &str) -> Reply {
        let task = self.find(container).and_then(|id| self.tasks.get_mut(&id));
        match task.and_then(|task| task.log.as_mut()) {
            None => Reply::Unknown,
            Some(log) => log.reopen().map_or_else(|e| Reply::Failed(e.to_string()), |()| Reply::Done),
        }
    }

    fn exec(&mut self, new: NewExec, waiter: impl Fn(u64) -> Waiter) -> Option<Reply> {
        let waiter = waiter(new.deadline);
        match self.try_exec(&new, waiter) {
            Ok(task) => {
                let id = self.next;
                self.next += 1;
                self.tasks.insert(id, task);
                if let Some(connection) = self.connections.get_mut(&waiter.connection) {
                    connection.role = Line::Exec(id);
                }
                None
            }
            Err(reply) => Some(reply),
        }
    }

    fn try_exec(&self, new: &NewExec, waiter: Waiter) -> Result<Task, Reply> {
        let init = self.find(&new.container).and_then(|id| self.tasks.get(&id)).ok_or(Reply::Unknown)?;
        if init.phase != Phase::Running {
            return Err(Reply::Failed("the container does not run".to_owned()));
        }
        let (stdio, mut ends) = self.streams(new.process.terminal, new.stdin).map_err(Reply::Failed)?;
        let child = self
            .launcher
            .join(
                (init.child.pid, &init.child.pidfd),
                &new.process,
                (new.seccomp.as_ref(), &new.owners),
                &new.groups,
                &stdio,
            )
            .map_err(|e| Reply::Failed(format!("fork: {e}")))?;
        if !new.stdin {
            ends.stdin = None;
        }
        let role = Role::Exec { connection: waiter.connection };
        Ok(Task::new(new.container.clone(), role, child, ends, waiter))
    }

    fn attach(&mut self, connection: u64, container: &str, stdin: bool) -> Reply {
        let Some(id) = self.find(container) else { return Reply::Unknown };
        if self.tasks.get(&id).is_none_or(|task| task.phase != Phase::Running) {
            return Reply::Failed("the container does not run".to_owned());
        }
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.role = Line::Attach(id, stdin);
        }
        Reply::Done
    }
}

/// How long executing a program may take, ms.
const START_DEADLINE: u64 = 30_000;
