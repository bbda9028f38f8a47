//! The keeper's loop: waits for the daemon, for children and for their streams, and serves whichever is ready.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use trine_kernel::container::{Report, receive};

use super::connection::{Connection, Role as Line};
use super::frame::Kind;
use super::launcher::Launcher;
use super::log::Source;
use super::message::{ContainerState, Event, Phase, Reply};
use super::process::{exit_code, never_wait};
use super::task::{Role, Task, stamp};

/// A stream that the daemon does not read fills up to this many bytes; then a further process waits, and a joined
/// stream is cut.
const BACKLOG: usize = 1024 * 1024;
/// Orphans that were handed to the keeper are reaped at least so often.
const REAP: Duration = Duration::from_secs(30);
const CHUNK: usize = 64 * 1024;

/// What a ready descriptor belongs to.
#[derive(Debug, Clone, Copy)]
enum Ready {
    Listener,
    Connection(u64),
    Ended,
    Reports(u64),
    Output(u64, Source),
    Input(u64),
}

/// The keeper.
pub(super) struct Keeper {
    pub launcher: Box<dyn Launcher>,
    pub listener: UnixListener,
    /// The pid namespace that the containers share, if they do.
    pub shared_pid: Option<OwnedFd>,
    pub connections: BTreeMap<u64, Connection>,
    pub tasks: BTreeMap<u64, Task>,
    pub next: u64,
    pub shutdown: Option<(u64, u64)>,
}

impl Keeper {
    /// Serves until it is told to end and everything has ended.
    pub(super) fn run(mut self) -> std::io::Result<()> {
        loop {
            let (ready, timed) = self.wait()?;
            for ready in ready {
                self.serve(ready);
            }
            if timed {
                self.overdue();
            }
            self.reap();
            self.settle();
            if let Some((connection, number)) = self.shutdown
                && self.tasks.values().all(|task| task.told)
            {
                if let Some(connection) = self.connections.get_mut(&connection) {
                    connection.reply(number, Reply::Done);
                }
                return Ok(());
            }
        }
    }

    fn wait(&self) -> std::io::Result<(Vec<Ready>, bool)> {
        let mut what = vec![Ready::Listener];
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        let mut add = |ready, fd, flags| {
            what.push(ready);
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        };
        for (id, connection) in &self.connections {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, connection.backlog() > 0);
            flags.set(PollFlags::IN, self.takes_input(connection));
            add(Ready::Connection(*id), connection.stream.as_fd(), flags);
        }
        for (id, task) in &self.tasks {
            if task.exit.is_none() {
                add(Ready::Ended, task.child.pidfd.as_fd(), PollFlags::IN);
            }
            if task.reports_open {
                add(Ready::Reports(*id), task.child.reports.as_fd(), PollFlags::IN);
            }
            if self.takes_output(task) {
                for (source, fd) in [(Source::Stdout, &task.ends.stdout), (Source::Stderr, &task.ends.stderr)]
                {
                    if let Some(fd) = fd {
                        add(Ready::Output(*id, source), fd.as_fd(), PollFlags::IN);
                    }
                }
            }
            if let Some(fd) = &task.ends.stdin
                && !task.input.is_empty()
            {
                add(Ready::Input(*id), fd.as_fd(), PollFlags::OUT);
            }
        }
        let timeout = self.next_deadline().saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            // Rounded up, so that the deadline has passed when it wakes.
            tv_nsec: i64::from(timeout.subsec_millis()) * 1_000_000 + 999_999,
        };
        match poll(&mut fds, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => return Ok((Vec::new(), true)),
            result => result?,
        };
        let ready =
            what.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty()).map(|(what, _)| *what).collect();
        Ok((ready, true))
    }

    fn takes_input(&self, connection: &Connection) -> bool {
        match connection.role {
            Line::Control => true,
            Line::Exec(task) | Line::Attach(task, _) => {
                self.tasks.get(&task).is_none_or(|task| task.input.len() < BACKLOG)
            }
        }
    }

    /// A further process waits while its reader does not read; a container never does.
    fn takes_output(&self, task: &Task) -> bool {
        match task.role {
            Role::Container { .. } => true,
            Role::Exec { connection } => {
                self.connections.get(&connection).is_none_or(|c| c.backlog() < BACKLOG)
            }
        }
    }

    fn next_deadline(&self) -> Instant {
        let waiting = self.tasks.values().filter_map(|task| task.waiter.map(|w| w.deadline));
        let draining = self.tasks.values().filter(|task| !task.told).filter_map(|task| task.drain_until);
        waiting.chain(draining).min().unwrap_or_else(|| Instant::now() + REAP).min(Instant::now() + REAP)
    }

    fn serve(&mut self, ready: Ready) {
        match ready {
            Ready::Listener => self.accept(),
            Ready::Connection(id) => self.hear(id),
            // Reaped for all at once.
            Ready::Ended => {}
            Ready::Reports(id) => self.report(id),
            Ready::Output(id, source) => self.output(id, source),
            Ready::Input(id) => {
                if let Some(task) = self.tasks.get_mut(&id) {
                    task.feed();
                }
            }
        }
    }

    fn accept(&mut self) {
        if let Ok((stream, _)) = self.listener.accept()
            && stream.set_nonblocking(true).is_ok()
        {
            self.connections.insert(self.next, Connection::new(stream));
            self.next += 1;
        }
    }

    /// What a child says on its way.
    fn report(&mut self, id: u64) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        while task.reports_open {
            match receive(&task.child.reports) {
                None => return,
                Some(Report::Note(text)) => eprintln!("{} {}: {text}", stamp(), task.container),
                Some(Report::Console(terminal)) => {
                    let copy = terminal.try_clone().and_then(|a| Ok((a, terminal.try_clone()?)));
                    if let Ok((output, input)) = copy
                        && never_wait(&terminal).is_ok()
                    {
                        task.ends.stdout = Some(output);
                        task.ends.stdin = task.ends.stdin.take().or(Some(input));
                    }
                    task.terminal = Some(terminal);
                }
                Some(Report::Ready) => {
                    task.phase = Phase::Created;
                    if task.is_container() {
                        let reply = task.process.map_or(Reply::Done, Reply::Process);
                        answer(&mut self.connections, task, reply);
                    } else {
                        task.start();
                    }
                }
                Some(Report::Failed(text)) => {
                    task.error = Some(text.clone());
                    answer(&mut self.connections, task, Reply::Failed(text));
                }
                Some(Report::Closed) => {
                    task.reports_open = false;
                    if task.phase == Phase::Starting && task.error.is_none() {
                        task.running();
                        let reply = task.process.map_or(Reply::Done, Reply::Process);
                        answer(&mut self.connections, task, reply);
                    }
                }
            }
        }
    }

    fn output(&mut self, id: u64, source: Source) {
        let mut buffer = vec![0; CHUNK];
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let length = task.read(source, &mut buffer);
        if length == 0 {
            return;
        }
        let bytes = &buffer[..length];
        if let Some(log) = &mut task.log {
            log.write(source, bytes, &stamp());
        }
        let kind = if source == Source::Stdout { Kind::Stdout } else { Kind::Stderr };
        for connection in self.connections.values_mut() {
            match connection.role {
                Line::Exec(of) if of == id => connection.send(kind, bytes),
                Line::Attach(of, _) if of == id => {
                    connection.send(kind, bytes);
                    // A reader that does not keep up must not hold up the container.
                    connection.closed |= connection.backlog() > BACKLOG;
                }
                _ => {}
            }
        }
    }

    /// Steps that took too long.
    fn overdue(&mut self) {
        let now = Instant::now();
        for task in self.tasks.values_mut() {
            if task.waiter.is_some_and(|waiter| now >= waiter.deadline) {
                let step = if task.phase == Phase::SettingUp { "set-up" } else { "start" };
                let text = format!("its {step} did not end in time");
                task.error = Some(text.clone());
                task.kill();
                answer(&mut self.connections, task, Reply::Failed(text));
            }
        }
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            let found = self.tasks.iter().find(|(_, t)| t.child.pid == pid && t.exit.is_none());
            let Some(id) = found.map(|(id, _)| *id) else { continue };
            // Its last words are in the socket already.
            self.report(id);
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            task.ended(exit_code(status));
            if let Some(error) = task.exit.as_ref().and_then(|exit| exit.error.clone()) {
                answer(&mut self.connections, task, Reply::Failed(error));
            }
        }
    }

    /// Tells of tasks that are over, and drops what is closed.
    fn settle(&mut self) {
        let now = Instant::now();
        let mut over = Vec::new();
        for (id, task) in &mut self.tasks {
            if task.told || !task.drained(now) {
                continue;
            }
            task.told = true;
            task.ends.stdout = None;
            task.ends.stderr = None;
            let Some(exit) = &task.exit else { continue };
            if let Some(log) = &mut task.log {
                log.end(Source::Stdout, &stamp());
                log.end(Source::Stderr, &stamp());
            }
            if let Role::Container { folder, .. } = &task.role {
                if task.forgotten {
                    over.push(*id);
                } else {
                    record(folder, exit);
                }
                let event = Event::Exited { container: task.container.clone(), exit: exit.clone() };
                for connection in self.connections.values_mut().filter(|c| c.role == Line::Control) {
                    connection.event(&event);
                }
            } else {
                over.push(*id);
            }
            for connection in self.connections.values_mut() {
                if matches!(connection.role, Line::Exec(of) | Line::Attach(of, _) if of == *id) {
                    connection.send_json(Kind::Exit, exit);
                    connection.ending = true;
                    connection.flush();
                }
            }
        }
        for id in over {
            self.tasks.remove(&id);
        }
        self.drop_closed();
    }

    fn drop_closed(&mut self) {
        let closed: Vec<u64> = self.connections.iter().filter(|(_, c)| c.closed).map(|(id, _)| *id).collect();
        for id in closed {
            let Some(connection) = self.connections.remove(&id) else { continue };
            match connection.role {
                Line::Control => {}
                Line::Exec(task) => {
                    if let Some(task) = self.tasks.get(&task) {
                        task.kill();
                    }
                }
                Line::Attach(task, true) => {
                    if let Some(task) = self.tasks.get_mut(&task)
                        && matches!(task.role, Role::Container { stdin_once: true, .. })
                    {
                        task.input_ends = true;
                        task.feed();
                    }
                }
                Line::Attach(_, false) => {}
            }
        }
    }

    pub(super) fn states(&self) -> Vec<ContainerState> {
        let containers = self.tasks.values().filter(|task| task.is_container() && !task.forgotten);
        containers
            .map(|task| ContainerState {
                id: task.container.clone(),
                phase: task.phase,
                process: task.process,
                started_at: task.started_at,
                exit: task.exit.clone().filter(|_| task.told),
            })
            .collect()
    }
}

/// Answers whoever waits for a step of `task`.
fn answer(connections: &mut BTreeMap<u64, Connection>, task: &mut Task, reply: Reply) {
    if let Some(waiter) = task.waiter.take()
        && let Some(connection) = connections.get_mut(&waiter.connection)
    {
        connection.reply(waiter.number, reply);
    }
}

/// Writes down how a container ended, for a daemon that is not there now.
fn record(folder: &Path, exit: &super::message::Exit) {
    let result = serde_json::to_vec(exit).map_err(std::io::Error::from).and_then(|bytes| {
        let fresh = folder.join("exit.new");
        std::fs::write(&fresh, bytes)?;
        std::fs::rename(&fresh, folder.join("exit.json"))
    });
    if let Err(error) = result {
        eprintln!("{} cannot record an end in {}: {error}", stamp(), folder.display());
    }
}
