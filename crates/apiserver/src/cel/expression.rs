//! A compiled expression.

use kube_cel::cel::parser::{Expression as Ast, ParseErrors, Parser};

use super::rewrite::rewrite;

/// The names that an expression may use beside those that are always there.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'a> {
    /// Whether there are `params`.
    pub params: bool,
    /// Whether there is an `authorizer`.
    pub authorizer: bool,
    /// What may follow `variables.`.
    pub variables: &'a [String],
    /// Whether it may write down objects and patches.
    pub objects: bool,
}

/// The longest expression, bytes. Upstream's parser takes more; this one's time grows with the square of the length.
const LONGEST: usize = 8 << 10;
/// What the parser may need of the stack for one of that length, bytes. It is reserved, and only what is touched is used.
const PARSER_STACK: usize = 256 << 20;

/// A compiled expression.
#[derive(Debug)]
pub struct Expression {
    /// As it was written.
    pub text: String,
    pub(super) ast: Ast,
}

impl Expression {
    /// Compiles an expression.
    ///
    /// # Errors
    /// `compilation failed: ...`, as upstream begins it.
    pub fn compile(text: &str, known: &Known<'_>) -> Result<Self, String> {
        let failed = |why: String| format!("compilation failed: {why}");
        if text.len() > LONGEST {
            return Err(failed(format!("the expression has more than {LONGEST} bytes")));
        }
        // Both call themselves for each level of the expression, which whoever wrote it chooses.
        let ast = stacker::grow(PARSER_STACK, || rewrite(parse(text).map_err(|e| e.to_string())?, known));
        Ok(Self { text: text.to_owned(), ast: ast.map_err(failed)? })
    }
}

fn parse(text: &str) -> Result<Ast, ParseErrors> {
    Parser::new().enable_optional_syntax(true).parse(text.trim())
}
