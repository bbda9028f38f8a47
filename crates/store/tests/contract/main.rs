//! The contract of a store, held by each backend: one table of cases, run over all of them.
//!
//! - `cases` the cases
//! - `backends` the stores they run over
//! - `shared` what only a store that others write to must do

#![allow(clippy::unwrap_used, missing_docs)]

mod backends;
mod cases;
mod shared;

macro_rules! contract {
    ($($case:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let backend = crate::backends::Embedded::make();
                crate::cases::$case(backend.store.clone()).await;
            })*
        }

        mod etcd {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let name = concat!("etcd::", stringify!($case));
                let Some(backend) = crate::backends::Etcd::start(name) else { return };
                crate::cases::$case(backend.store().await).await;
            })*
        }
    };
}

contract!(
    writes_succeed_only_at_the_expected_revision,
    of_many_who_change_a_key_each_wins_in_turn,
    a_feed_gives_the_kept_past_and_then_the_present,
    a_feed_tells_every_change_once_and_in_order,
    what_is_compacted_cannot_be_told,
    a_snapshot_shows_the_keys_of_a_prefix,
    a_key_with_a_time_to_live_is_deleted_by_itself,
    a_shown_revision_is_read_back,
);
