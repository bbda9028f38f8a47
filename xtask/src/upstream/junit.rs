//! What a report says of each spec. Pure.
//!
//! Ginkgo names a spec's state in the attribute `status`, and writes a spec that was not chosen like one that skipped itself,
//! but without a reason.

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// How a spec ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It holds.
    Passed,
    /// It does not; why, in short.
    Failed(String),
    /// It said itself that it cannot be tried here, and why.
    Skipped(String),
    /// It was stopped before its end, by a deadline.
    Interrupted,
    /// It was not run: not asked for, or the run ended before its turn.
    NotRun,
}

/// A spec of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Its full name, without the kind of node.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
}

/// What a report holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Its specs.
    pub cases: Vec<Case>,
    /// Failures outside of any spec: the preparation or the end of the whole.
    pub around: Vec<String>,
}

/// Reads a JUnit file as ginkgo writes it.
///
/// # Errors
/// If it is no XML.
pub fn read(text: &str) -> anyhow::Result<Report> {
    let document = roxmltree::Document::parse(text).context("the report is no XML")?;
    let mut report = Report::default();
    for case in document.descendants().filter(|node| node.has_tag_name("testcase")) {
        let full = case.attribute("name").unwrap_or_default();
        let outcome = outcome(case);
        match full.strip_prefix("[It] ") {
            Some(name) => report.cases.push(Case { name: name.to_owned(), outcome }),
            None => {
                if let Outcome::Failed(why) = outcome {
                    report.around.push(format!("{full}: {why}"));
                }
            }
        }
    }
    Ok(report)
}

fn outcome(case: roxmltree::Node) -> Outcome {
    let message = |tag: &str| {
        let node = case.children().find(|child| child.has_tag_name(tag))?;
        let text = node.attribute("message").filter(|m| !m.is_empty()).or(node.text()).unwrap_or_default();
        Some(gist(text))
    };
    match case.attribute("status").unwrap_or_default() {
        "passed" => Outcome::Passed,
        "pending" => Outcome::Skipped("pending upstream".to_owned()),
        "skipped" => match message("skipped").unwrap_or_default().strip_prefix("skipped - ") {
            Some(reason) => Outcome::Skipped(reason.to_owned()),
            None => Outcome::NotRun,
        },
        "interrupted" | "timedout" | "aborted" => Outcome::Interrupted,
        _ => Outcome::Failed(message("failure").or_else(|| message("error")).unwrap_or_default()),
    }
}

/// What says most of a failure: what a server answered, else its beginning. At most 200 characters, in one line.
fn gist(text: &str) -> String {
    let answer = text.lines().find_map(|line| line.split_once(" desc = ").map(|(_, answer)| answer));
    let text = answer.unwrap_or(text.trim().trim_start_matches("[FAILED]"));
    let words = text.split_whitespace().map(|word| if is_id(word) { "<id>" } else { word });
    words.collect::<Vec<_>>().join(" ").chars().take(200).collect()
}

/// True for what is another one in each run: ids of objects, addresses in memory.
fn is_id(word: &str) -> bool {
    let word = word.trim_matches([':', ',', '"', '>']);
    let hexadecimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    word.len() >= 32 && hexadecimal(word) || word.strip_prefix("0x").is_some_and(hexadecimal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_of_ginkgo_is_told_apart() {
        let case = |status: &str, inner: &str| {
            let text = format!(
                r#"<?xml version="1.0"?><testsuites><testsuite><testcase name="[It] a &lt;b&gt;" status="{status}">{inner}</testcase></testsuite></testsuites>"#
            );
            let report = read(&text).unwrap();
            assert_eq!(report.cases[0].name, "a <b>");
            report.cases[0].outcome.clone()
        };
        for (status, inner, expected) in [
            ("passed", "", Outcome::Passed),
            ("skipped", r#"<skipped message="skipped"/>"#, Outcome::NotRun),
            ("skipped", r#"<skipped message="skipped - no IPv6"/>"#, Outcome::Skipped("no IPv6".into())),
            ("pending", r#"<skipped message="pending"/>"#, Outcome::Skipped("pending upstream".into())),
            (
                "failed",
                "<failure message=\"[FAILED] Expected&#10;  1&#10;to equal &lt;*int | 0xc00>: 2\">at</failure>",
                Outcome::Failed("Expected 1 to equal <*int | <id> 2".into()),
            ),
            (
                "failed",
                "<failure message=\"Unexpected:&#10; rpc error: code = Unknown desc = 0123456789abcdef0123456789abcdef: no &lt;sh>&#10;more\"/>",
                Outcome::Failed("<id> no <sh>".into()),
            ),
            ("failed", "<failure message=\"\">the text</failure>", Outcome::Failed("the text".into())),
            ("panicked", r#"<error message="nil"/>"#, Outcome::Failed("nil".into())),
            ("timedout", r#"<failure message="slow"/>"#, Outcome::Interrupted),
            ("interrupted", r#"<error message="x"/>"#, Outcome::Interrupted),
        ] {
            assert_eq!(case(status, inner), expected, "{status} {inner}");
        }
    }

    #[test]
    fn what_fails_around_the_specs_is_no_spec() {
        let text = r#"<testsuites><testsuite>
            <testcase name="[SynchronizedBeforeSuite]" status="failed"><failure message="no nodes"/></testcase>
            <testcase name="[ReportAfterSuite]" status="passed"/></testsuite></testsuites>"#;
        let report = read(text).unwrap();
        assert!(report.cases.is_empty());
        assert_eq!(report.around, ["[SynchronizedBeforeSuite]: no nodes"]);
    }
}
