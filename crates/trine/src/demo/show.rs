//! What the demo prints: each step of each plane as it ends, and the story's own lines between them.

use std::io::{IsTerminal, Write};
use std::sync::mpsc;
use std::time::Instant;

use trine_why::trace::{Step, gantt, of_pod, read};

use crate::layout::Layout;

/// Prints from one thread, so that lines never mix.
pub struct Show {
    to: mpsc::Sender<Line>,
    thread: Option<std::thread::JoinHandle<()>>,
}

enum Line {
    Step(Box<Step>),
    Text(String),
}

impl Show {
    /// Starts printing the steps that come in through `steps`.
    pub fn start(steps: mpsc::Receiver<Step>) -> Self {
        let (to, lines) = mpsc::channel();
        let from_steps = to.clone();
        std::thread::spawn(move || {
            while let Ok(step) = steps.recv() {
                if from_steps.send(Line::Step(Box::new(step))).is_err() {
                    return;
                }
            }
        });
        let colour = std::io::stdout().is_terminal();
        let thread = std::thread::spawn(move || {
            let mut out = std::io::stdout();
            while let Ok(line) = lines.recv() {
                let text = match line {
                    Line::Step(step) => step_line(&step, colour),
                    Line::Text(text) if text == END => return,
                    Line::Text(text) => text,
                };
                let _ = writeln!(out, "{text}");
            }
        });
        Self { to, thread: Some(thread) }
    }

    /// A line of the story.
    pub fn say(&self, text: &str) {
        let _ = self.to.send(Line::Text(format!("── {text}")));
    }

    /// A line of the story with the time since `since`.
    pub fn done(&self, text: &str, since: Instant) {
        self.say(&format!("{text} ({:.1?})", since.elapsed()));
    }

    /// Something did not hold.
    pub fn fail(&self, text: &str) {
        let _ = self.to.send(Line::Text(format!("✗✗ {text}")));
    }

    /// The timelines of Pods.
    pub fn trace(&self, layout: &Layout, pods: &[&str], width: usize) -> anyhow::Result<()> {
        let steps = read(&layout.steps())?;
        for pod in pods {
            let text = gantt(&of_pod(&steps, &format!("default/{pod}")), width);
            let _ = self.to.send(Line::Text(format!("── the way of Pod {pod}\n{text}")));
        }
        Ok(())
    }
}

const END: &str = "\0";

impl Drop for Show {
    fn drop(&mut self) {
        let _ = self.to.send(Line::Text(END.to_owned()));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "durations are far below 2^52 µs")]
fn step_line(step: &Step, colour: bool) -> String {
    let about = [&step.pod, &step.container, &step.claim, &step.volume, &step.sandbox, &step.detail];
    let about = about.into_iter().flatten().next().cloned().unwrap_or_default();
    let about: String = about.chars().take(48).collect();
    let took = step.duration_us as f64 / 1000.0;
    let line = format!("   {:<11} {:<24} {took:>8.1} ms  {about}", step.plane, step.name);
    match &step.error {
        Some(error) if colour => format!("\x1b[31m{line}  {error}\x1b[0m"),
        Some(error) => format!("{line}  failed: {error}"),
        None if colour => format!("\x1b[2m{line}\x1b[0m"),
        None => line,
    }
}
