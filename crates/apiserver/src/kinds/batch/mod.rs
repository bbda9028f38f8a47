//! Work that ends: [`Jobs`], and [`CronJobs`] that make them in time.

mod cron_job;
mod job;
mod job_policy;

pub use cron_job::CronJobs;
pub use job::Jobs;

#[cfg(test)]
mod tests;
