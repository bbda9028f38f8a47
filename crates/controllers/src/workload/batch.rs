//! Many writes, cautiously: one, then two, then four, and so on; a batch with a failure is the last. What all fails for the
//! same reason, a quota for instance, fails a few times instead of hundreds.

use futures::future::join_all;

/// How many were written, and the first failure.
#[derive(Debug)]
pub struct Written<E> {
    /// Successful writes.
    pub count: usize,
    /// Why there are not more.
    pub failure: Option<E>,
}

/// Writes the items 0 to `count`.
pub async fn slow_start<E, Fut>(count: usize, write: impl Fn(usize) -> Fut) -> Written<E>
where
    Fut: Future<Output = Result<(), E>>,
{
    let (mut begun, mut size, mut written) = (0, 1, Written { count: 0, failure: None });
    while begun < count && written.failure.is_none() {
        let batch = begun..count.min(begun + size);
        begun = batch.end;
        for result in join_all(batch.map(&write)).await {
            match result {
                Ok(()) => written.count += 1,
                Err(error) => written.failure = written.failure.or(Some(error)),
            }
        }
        size *= 2;
    }
    written
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    async fn tried(count: usize, fails: impl Fn(usize) -> bool) -> (usize, usize, Option<usize>) {
        let tried = Mutex::new(0);
        let written = slow_start(count, |n| {
            *tried.lock().unwrap() += 1;
            let result = if fails(n) { Err(n) } else { Ok(()) };
            async move { result }
        })
        .await;
        let tried = *tried.lock().unwrap();
        (tried, written.count, written.failure)
    }

    #[tokio::test]
    async fn a_batch_with_a_failure_is_the_last() {
        assert_eq!(tried(0, |_| false).await, (0, 0, None));
        assert_eq!(tried(100, |_| false).await, (100, 100, None));
        assert_eq!(tried(100, |_| true).await, (1, 0, Some(0)));
        assert_eq!(tried(100, |n| n == 4).await, (7, 6, Some(4)), "1 + 2 + 4 tried");
    }
}
