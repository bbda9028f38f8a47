//! The image store from outside: archives, layers and roots on a real file system, a real registry, several processes.

mod files;
mod foreign;
mod hostile;
mod made;
mod processes;
mod registry;
mod roots;
mod serving;
