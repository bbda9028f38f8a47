//! Prometheus' text form. Pure.

use std::fmt::Write as _;

/// What a scraper may expect of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Grows until the process starts anew.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// A text that is being written.
#[derive(Debug, Default)]
pub struct Text(String);

impl Text {
    /// A family: its head, and one line for each of `samples` (labels and value). Without samples there is no head.
    pub fn family<'a, L>(
        &mut self,
        name: &str,
        help: &str,
        kind: Kind,
        samples: impl IntoIterator<Item = (L, f64)>,
    ) where
        L: IntoIterator<Item = (&'a str, &'a str)>,
    {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            self.0.push_str(name);
            for (i, (key, text)) in labels.into_iter().enumerate() {
                let _ = write!(self.0, "{}{key}=\"{}\"", if i == 0 { '{' } else { ',' }, escape(text));
            }
            // The name of a family has no brace of its own, so one there opened the labels.
            if self.0.lines().next_back().is_some_and(|line| line.contains('{')) {
                self.0.push('}');
            }
            let _ = writeln!(self.0, " {value}");
        }
    }

    /// The text.
    #[must_use]
    pub fn finish(self) -> String {
        self.0
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_a_head_and_labels_are_quoted() {
        let mut text = Text::default();
        text.family("up", "Whether.", Kind::Gauge, [([], 1.0)]);
        text.family(
            "n",
            "N.",
            Kind::Counter,
            [(vec![("a", "x\"y"), ("b", "z")], 1.5), (vec![("a", "")], 2e9)],
        );
        text.family("none", "None.", Kind::Gauge, Vec::<([(&str, &str); 0], f64)>::new());
        assert_eq!(
            text.finish(),
            "# HELP up Whether.\n# TYPE up gauge\nup 1\n# HELP n N.\n# TYPE n counter\n\
             n{a=\"x\\\"y\",b=\"z\"} 1.5\nn{a=\"\"} 2000000000\n"
        );
    }
}
