//! What a request says beside the object that it writes.

use crate::kinds::{Cause, Invalid};
use crate::request::{FieldValidation, Query};
use crate::status::ApiError;

/// The longest name of a field manager, characters. Source: apimachinery `FieldManagerMaxLength`.
const MANAGER_MAX: usize = 128;

/// What is done with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteVerb {
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH that is no apply.
    Patch,
    /// Server-side apply.
    Apply,
}

/// How an object is to be written.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// The client's name, under which it owns what it writes; empty if it has none.
    pub manager: String,
    /// Nothing is written.
    pub dry_run: bool,
    /// What is done about unknown fields.
    pub validation: FieldValidation,
    /// An apply takes what others own.
    pub force: bool,
}

impl WriteOptions {
    /// A write of the server itself.
    #[must_use]
    pub fn of_server() -> Self {
        let manager = "trine".to_owned();
        Self { manager, dry_run: false, validation: FieldValidation::Ignore, force: false }
    }

    /// Reads `fieldManager` (else the user agent up to its first slash), `dryRun`, `fieldValidation` and `force`.
    ///
    /// # Errors
    /// [`ApiError::Invalid`] for a name that cannot be one, an apply without a name, and force without an apply;
    /// [`ApiError::BadRequest`] for other words.
    pub fn parse(query: &Query, user_agent: &str, verb: WriteVerb) -> Result<Self, ApiError> {
        let given = query.get("fieldManager").unwrap_or_default();
        let causes = causes(query, given, verb);
        if !causes.is_empty() {
            let kind = match verb {
                WriteVerb::Create => "CreateOptions",
                WriteVerb::Update => "UpdateOptions",
                WriteVerb::Patch | WriteVerb::Apply => "PatchOptions",
            };
            return Err(ApiError::Invalid {
                kind: kind.to_owned(),
                group: "meta.k8s.io".to_owned(),
                name: String::new(),
                causes: Invalid(causes),
            });
        }
        let agent = || user_agent.split('/').next().unwrap_or_default();
        let printable = |text: &str| text.chars().filter(|c| printable(*c)).take(MANAGER_MAX).collect();
        Ok(Self {
            manager: if given.is_empty() { printable(agent()) } else { given.to_owned() },
            dry_run: query.dry_run()?,
            validation: FieldValidation::parse(query)?,
            force: query.flag("force"),
        })
    }
}

fn causes(query: &Query, manager: &str, verb: WriteVerb) -> Vec<Cause> {
    let mut causes = Vec::new();
    if verb == WriteVerb::Apply && manager.is_empty() {
        causes.push(Cause::required("fieldManager", "is required for apply patch"));
    }
    if verb == WriteVerb::Patch && query.get("force").is_some() {
        causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
    }
    if manager.chars().count() > MANAGER_MAX {
        causes.push(Cause::too_long("fieldManager", MANAGER_MAX));
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| !printable(*c)) {
        let why = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        causes.push(Cause::invalid("fieldManager", manager, &why));
    }
    causes
}

fn printable(c: char) -> bool {
    c == ' ' || !c.is_control() && !c.is_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_named_by_itself_or_by_its_program() {
        let parse = |query: &str, agent: &str, verb| WriteOptions::parse(&Query::parse(query), agent, verb);
        let name = |query: &str, agent: &str| parse(query, agent, WriteVerb::Patch).unwrap().manager;
        assert_eq!(name("fieldManager=me", "kubectl/v1.37 (linux)"), "me");
        assert_eq!(name("", "kubectl/v1.37 (linux)"), "kubectl");
        assert_eq!(name("", "curl"), "curl");
        assert_eq!(name("", ""), "");
        assert_eq!(name("", &"x".repeat(300)).len(), 128);
        let error = parse("", "kubectl/1", WriteVerb::Apply).unwrap_err().to_string();
        assert_eq!(
            error,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
        );
        let error = parse("force=true", "kubectl/1", WriteVerb::Patch).unwrap_err().to_string();
        assert_eq!(
            error,
            "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"
        );
        assert!(parse("fieldManager=a%0Ab", "", WriteVerb::Update).is_err());
        assert!(parse(&format!("fieldManager={}", "x".repeat(129)), "", WriteVerb::Create).is_err());
        assert!(parse("fieldManager=a&force=true", "", WriteVerb::Apply).unwrap().force);
    }
}
