//! A timeline as text: one line a step, its plane, name, duration and a bar.

use std::fmt::Write;

use super::Step;

/// Draws `steps` (in order of start) with bars of `width` columns. Times are since the first step.
#[must_use]
pub fn gantt(steps: &[Step], width: usize) -> String {
    let Some(first) = steps.iter().map(|s| s.start_us).min() else { return "no steps recorded\n".to_owned() };
    let last = steps.iter().map(Step::end_us).max().unwrap_or(first);
    let total = (last - first).max(1);
    let label = |s: &Step| {
        let about = s.detail.as_ref().or(s.container.as_ref()).or(s.claim.as_ref()).or(s.volume.as_ref());
        about.map_or_else(|| s.name.clone(), |a| format!("{} {}", s.name, shorten(a, 24)))
    };
    let longest = steps.iter().map(|s| label(s).chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for step in steps {
        let column =
            |us: u64| usize::try_from((us - first) * width as u64 / total).unwrap_or(width).min(width);
        let from = column(step.start_us).min(width - 1);
        let until = column(step.end_us()).max(from + 1);
        let mark = if step.error.is_some() { '×' } else { '█' };
        let bar: String = (0..width).map(|i| if (from..until).contains(&i) { mark } else { '·' }).collect();
        let start = milliseconds(step.start_us - first);
        let took = milliseconds(step.duration_us);
        let name = label(step);
        let _ = write!(text, "{:<11} {name:<longest$} {start:>9} {took:>9} {bar}", step.plane);
        let _ = match &step.error {
            Some(error) => writeln!(text, " {error}"),
            None => writeln!(text),
        };
    }
    let _ = writeln!(text, "{} steps in {}", steps.len(), milliseconds(total));
    text
}

fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

#[expect(clippy::cast_precision_loss, reason = "durations are far below 2^52 µs")]
fn milliseconds(us: u64) -> String {
    format!("{:.1} ms", us as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_stand_where_their_steps_were() {
        let step = |name: &str, start, duration| Step {
            name: name.to_owned(),
            plane: "cri".to_owned(),
            start_us: start,
            duration_us: duration,
            pod: None,
            pod_uid: None,
            sandbox: None,
            container: None,
            volume: None,
            claim: None,
            detail: None,
            error: None,
        };
        let text = gantt(&[step("a", 1_000, 50_000), step("bb", 51_000, 50_000)], 10);
        assert_eq!(
            text,
            "cri         a     0.0 ms   50.0 ms █████·····\n\
             cri         bb   50.0 ms   50.0 ms ·····█████\n2 steps in 100.0 ms\n"
        );
    }
}
