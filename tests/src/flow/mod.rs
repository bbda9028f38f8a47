//! What people do with kubectl, written as text: each flow is a name, commands, and what they have to show.
//!
//! ```text
//! # a label is set and shown          the name; each flow has a namespace of its own
//! @ app.yaml                          a file, up to a line of one `@`; flows run in the folder where it lies
//! kind: ...
//! @
//! $ create -f app.yaml                kubectl with these words has to succeed
//! $1 get pod none                     it has to end with this code
//! < app.yaml                          its standard input
//! ? get sa default                    it is asked again until it shows what it has to
//! & get pods -w                       it goes on beside the next commands
//! .                                   waits until the last `&` has shown what it has to
//! = NAME   READY                      a line of its output, which has no other lines; blanks are one
//! ~ Running                           its output has this
//! ! Error                             and not this
//! e not found                         its standard error has this
//! : UID                               its output is kept: `${UID}` in what follows, `${NS}` and `${SERVER}` too
//! : PORT on 127.0.0.1:… now           what stands at the dots is kept
//! ```
//!
//! `…` stands for anything within a line. Words in front that set a variable (`KUBE_EDITOR=...`) are its environment.

mod parse;
mod run;

pub use parse::{Flow, parse};
pub use run::{Outcomes, run};
