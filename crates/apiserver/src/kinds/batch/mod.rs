//! Work that ends: [`Jobs`], and [`CronJobs`] that make them at times given by a [`schedule`].

mod cron_job;
mod job;
mod job_policy;
pub mod schedule;

pub use cron_job::CronJobs;
pub use job::Jobs;

#[cfg(test)]
mod tests;
