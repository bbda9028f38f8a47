//! A program that has the runtime in it, called again by it as something else.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use crate::keeper;

/// Is a network plugin if the program was called by one's name, a keeper if its first word is that; nothing if it was called as
/// itself. To be called first, before there is any thread: a plugin is one short program, a keeper forks containers.
pub fn called_otherwise(words: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut words = words.into_iter();
    let program = words.next().unwrap_or_default();
    if let Some(plugin) = Path::new(&program).file_name().and_then(|name| name.to_str())
        && trine_cni::built_in().contains(&plugin)
    {
        return Some(trine_cni::plugin_main(plugin));
    }
    words.next().is_some_and(|word| word == "keeper").then(|| keeper::main(words))
}
