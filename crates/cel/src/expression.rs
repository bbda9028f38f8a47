//! A compiled expression.

use kube_cel::cel::parser::Expression as Ast;

use crate::rewrite::rewrite;
use crate::stack::{parse, reading};

/// What an expression is about: the names that are always there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum About {
    /// A request: `object`, `oldObject`, `request`, `namespaceObject`.
    #[default]
    Request,
    /// A device: `device`.
    Device,
}

/// The names that an expression may use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'a> {
    /// What it is about.
    pub about: About,
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
    pub(crate) ast: Ast,
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
