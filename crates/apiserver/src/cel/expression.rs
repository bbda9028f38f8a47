//! A compiled expression.

use kube_cel::cel::parser::Expression as Ast;

use super::rewrite::rewrite;
use super::stack::{parse, reading};

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
        let ast = reading(|| rewrite(parse(text)?, known));
        Ok(Self { text: text.to_owned(), ast: ast.map_err(|why| format!("compilation failed: {why}"))? })
    }
}
