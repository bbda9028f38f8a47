//! `/livez`, `/readyz` and `/healthz`: which part of the server is well.

use std::time::Duration;

use http::StatusCode;

use crate::registry::Registry;

/// How long the store may take to say its revision, and the cache to show it.
const PATIENCE: Duration = Duration::from_secs(3);

/// A part of the server and what ails it.
pub struct Check {
    /// Its name in the path and in the report.
    pub name: &'static str,
    /// Why it is not well.
    pub problem: Option<String>,
}

/// Looks at what an endpoint is about: `livez` asks whether a restart would help, `readyz` whether to send requests here.
pub async fn checks(registry: &Registry, endpoint: &str, stopping: bool) -> Vec<Check> {
    let check = |name, problem| Check { name, problem };
    let followed = registry.cache().alive();
    let cache = (!followed).then(|| "the store's changes are not followed any more".to_owned());
    let mut checks = vec![check("ping", None), check("cache", cache)];
    if endpoint == "livez" {
        return checks;
    }
    let newest = match tokio::time::timeout(PATIENCE, registry.newest()).await {
        Ok(newest) => newest.map_err(|error| error.to_string()),
        Err(_) => Err("the store does not answer".to_owned()),
    };
    let lag = match &newest {
        Ok(newest) if registry.cache().shown(*newest, PATIENCE).await => None,
        Ok(newest) => Some(format!(
            "the cache shows revision {}, the store is at {newest}",
            registry.cache().revision()
        )),
        Err(_) => Some("the store's revision is not known".to_owned()),
    };
    checks.push(check("store", newest.err()));
    checks.push(check("store-lag", lag));
    if endpoint == "readyz" {
        checks.push(check("shutdown", stopping.then(|| "the server stops".to_owned())));
    }
    checks
}

/// The answer: code and text. `only` names one check, `excluded` those that do not count.
pub fn report(
    endpoint: &str,
    checks: &[Check],
    only: Option<&str>,
    excluded: &[&str],
    verbose: bool,
) -> Option<(StatusCode, String)> {
    let mut lines = String::new();
    let mut well = true;
    let mut found = false;
    for check in checks.iter().filter(|c| only.is_none_or(|name| name == c.name)) {
        found = true;
        let name = check.name;
        if excluded.contains(&name) {
            lines += &format!("[+]{name} excluded: ok\n");
            continue;
        }
        match &check.problem {
            None => lines += &format!("[+]{name} ok\n"),
            Some(problem) => {
                well = false;
                lines += &format!("[-]{name} failed: {problem}\n");
            }
        }
    }
    if !found && only.is_some() {
        return None;
    }
    for name in excluded.iter().filter(|name| !checks.iter().any(|c| c.name == **name)) {
        lines += &format!("warn: some health checks cannot be excluded: no matches for {name:?}\n");
    }
    Some(match (well, verbose) {
        (true, false) => (StatusCode::OK, "ok".to_owned()),
        (true, true) => (StatusCode::OK, format!("{lines}{endpoint} check passed\n")),
        (false, _) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{endpoint} check failed\n")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_what_ails() {
        let ill = || Some("it is tired".to_owned());
        let checks = [Check { name: "ping", problem: None }, Check { name: "store", problem: ill() }];
        let text = |only, excluded: &[&str], verbose| {
            report("readyz", &checks, only, excluded, verbose).map(|(code, text)| (code.as_u16(), text))
        };
        let failed = "[+]ping ok\n[-]store failed: it is tired\nreadyz check failed\n".to_owned();
        assert_eq!(text(None, &[], false), Some((500, failed)));
        assert_eq!(text(None, &["store"], false), Some((200, "ok".to_owned())));
        let passed = "[+]ping ok\n[+]store excluded: ok\nreadyz check passed\n".to_owned();
        assert_eq!(text(None, &["store"], true), Some((200, passed)));
        assert_eq!(text(Some("ping"), &[], false), Some((200, "ok".to_owned())));
        assert_eq!(text(Some("nothing"), &[], false), None);
    }
}
