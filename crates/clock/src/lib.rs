//! What time is it? Whoever decides by the time of day asks here, so that a test can say what it is: hours that pass in a
//! moment, clocks that jump. How long something takes is asked of `tokio::time`, which tests pause.

use std::cell::RefCell;

use jiff::Timestamp;

type Clock = Box<dyn Fn() -> Timestamp>;

thread_local! {
    static SET: RefCell<Option<Clock>> = const { RefCell::new(None) };
}

/// The time of day: the system's, unless [`set`] says otherwise on this thread.
#[must_use]
pub fn now() -> Timestamp {
    SET.with_borrow(|set| set.as_ref().map_or_else(Timestamp::now, |clock| clock()))
}

/// From now on this thread's time of day is what `clock` says, until what is returned is dropped. For tests.
pub fn set(clock: impl Fn() -> Timestamp + 'static) -> Set {
    SET.set(Some(Box::new(clock)));
    Set { _this_thread: std::marker::PhantomData }
}

/// Gives this thread the system's time back when it is dropped.
#[must_use]
#[derive(Debug)]
pub struct Set {
    _this_thread: std::marker::PhantomData<*const ()>,
}

impl Drop for Set {
    fn drop(&mut self) {
        SET.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_says_what_time_it_is_on_its_thread_alone() {
        let then = Timestamp::from_second(1_000_000).unwrap();
        let set = set(move || then);
        assert_eq!(now(), then);
        assert_ne!(std::thread::spawn(now).join().unwrap(), then);
        drop(set);
        assert_ne!(now(), then);
    }
}
