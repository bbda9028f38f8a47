//! The exposition format: `# HELP`, `# TYPE`, then a line per value.

use std::fmt::Write as _;

/// Labels with their values, in the order in which they are shown.
pub type Labels = Vec<(&'static str, String)>;

/// A page under construction.
#[derive(Default)]
pub struct Page(String);

impl Page {
    /// Begins a family.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A value of the family.
    pub fn value(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"", if i == 0 { '{' } else { ',' });
            for c in text.chars() {
                match c {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// A family of one value without labels.
    pub fn single(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.value(name, &[], value);
    }

    /// The text.
    pub fn finish(self) -> String {
        self.0
    }
}

/// Labels as [`Page::value`] takes them.
pub fn borrowed(labels: &Labels) -> Vec<(&str, &str)> {
    labels.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_prometheus_reads_them() {
        let mut page = Page::default();
        page.single("up", "gauge", "It is.", 1.0);
        page.family("seen_total", "counter", "What was seen.");
        page.value("seen_total", &[("a", "x\"y\\z\n"), ("b", "")], 2.5);
        let wanted = "# HELP up It is.\n# TYPE up gauge\nup 1\n# HELP seen_total What was seen.\n# TYPE seen_total \
                      counter\nseen_total{a=\"x\\\"y\\\\z\\n\",b=\"\"} 2.5\n";
        assert_eq!(page.finish(), wanted);
    }
}
