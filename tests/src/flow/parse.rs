//! From text to flows.

/// What somebody does, and what it has to show.
#[derive(Debug, Default)]
pub struct Flow {
    /// Its name.
    pub name: String,
    /// File names and their text.
    pub files: Vec<(String, String)>,
    /// Its commands in order.
    pub steps: Vec<Step>,
}

/// How a command is run.
#[derive(Debug, PartialEq, Eq)]
pub enum How {
    /// To its end, with this exit code.
    Once(i32),
    /// Until it shows what it has to.
    Repeated,
    /// Beside what follows.
    Beside,
    /// The one that runs beside is looked at again.
    Again,
}

/// One command.
#[derive(Debug)]
pub struct Step {
    /// How it is run.
    pub how: How,
    /// The command as written.
    pub text: String,
    /// Name of the file that is its standard input.
    pub input: Option<String>,
    /// What it has to show.
    pub shows: Vec<Shown>,
    /// The name under which its output is kept.
    pub kept: Option<String>,
}

/// What a command has to show.
#[derive(Debug)]
pub enum Shown {
    /// A line of its output; all of these are all of its lines.
    Line(String),
    /// A part of its output.
    Part(String),
    /// No part of its output.
    Not(String),
    /// A part of its standard error.
    Error(String),
}

/// Reads flows.
///
/// # Panics
/// At a line that means nothing.
#[must_use]
pub fn parse(text: &str) -> Vec<Flow> {
    let mut flows: Vec<Flow> = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let (mark, rest) = line.split_once(' ').unwrap_or((line, ""));
        if mark == "#" {
            flows.push(Flow { name: rest.to_owned(), ..Flow::default() });
            continue;
        }
        if mark.is_empty() {
            continue;
        }
        let flow = flows.last_mut().unwrap_or_else(|| panic!("line {}: no flow yet", number + 1));
        if mark == "@" {
            let body = lines.by_ref().map(|(_, l)| l).take_while(|l| *l != "@");
            let body: String = body.flat_map(|l| [l, "\n"]).collect();
            flow.files.push((rest.to_owned(), body));
            continue;
        }
        let how = match mark {
            "?" => Some(How::Repeated),
            "&" => Some(How::Beside),
            "." => Some(How::Again),
            _ => mark.strip_prefix('$').map(|code| How::Once(code.parse().unwrap_or(0))),
        };
        if let Some(how) = how {
            let step = Step { how, text: rest.to_owned(), input: None, shows: Vec::new(), kept: None };
            flow.steps.push(step);
            continue;
        }
        let step = flow.steps.last_mut().unwrap_or_else(|| panic!("line {}: no command yet", number + 1));
        let rest = rest.to_owned();
        match mark {
            "<" => step.input = Some(rest),
            ":" => step.kept = Some(rest),
            "=" => step.shows.push(Shown::Line(rest)),
            "~" => step.shows.push(Shown::Part(rest)),
            "!" => step.shows.push(Shown::Not(rest)),
            "e" => step.shows.push(Shown::Error(rest)),
            _ => panic!("line {}: {line:?} means nothing", number + 1),
        }
    }
    flows
}

/// The words of a command as a shell takes them apart: quotes of both kinds hold a word together.
#[must_use]
pub fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote, mut begun) = (String::new(), None, false);
    for c in text.chars() {
        match quote {
            Some(q) if c == q => quote = None,
            Some(_) => word.push(c),
            None if c == '\'' || c == '"' => (quote, begun) = (Some(c), true),
            None if c == ' ' => {
                if begun || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            None => word.push(c),
        }
    }
    if begun || !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_has_files_commands_and_what_they_show() {
        let flows =
            parse("# one\n@ a.yaml\nx: 1\n\n@\n$1 get a\n< a.yaml\n= A B\ne no\n? get b\n\n# two\n$ version");
        assert_eq!(flows.len(), 2);
        assert_eq!(flows[0].files, [("a.yaml".to_owned(), "x: 1\n\n".to_owned())]);
        let [first, second] = flows[0].steps.as_slice() else { panic!("{flows:?}") };
        assert_eq!(
            (&first.how, first.input.as_deref(), first.shows.len()),
            (&How::Once(1), Some("a.yaml"), 2)
        );
        assert_eq!(second.how, How::Repeated);
    }

    #[test]
    fn quotes_hold_a_word_together() {
        assert_eq!(words("a  'b \"c\"' --d='e f' ''"), ["a", "b \"c\"", "--d=e f", ""]);
    }
}
