//! A keeper as a program of its own, for the tests of this crate; in the product it is `trine keeper`.

use std::process::ExitCode;

fn main() -> ExitCode {
    trine_cri::keeper::main(std::env::args_os().skip(2))
}
