//! Who sits, who waits, and who is next. Pure: what arrives and leaves, and when, is told; who may begin is answered.
//!
//! A level has seats that it keeps and seats that it lends. What it does not keep lies in one pool for all levels; while
//! several want more than they keep, those come first that have less than is theirs. Within a level the queue is next that
//! has had least: its virtual time is moved on by what its requests take, at first by a guess, at their end by what they took.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::shares::Level;
use super::shuffle::hand;

/// How long a request is taken to last until it has. Upstream's guess.
const GUESS: f64 = 0.003;

/// What becomes of somebody who arrives.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Begins.
    Sits(Ticket),
    /// Waits under this number.
    Waits(u64),
    /// Is refused.
    Refused(Reason),
}

/// Why somebody is refused. Upstream's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// All queues that the flow may use are full.
    QueueFull,
    /// There is no seat, and nobody may wait.
    ConcurrencyLimit,
    /// No seat became free in time.
    TimeOut,
}

impl Reason {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::QueueFull => "queue-full",
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::TimeOut => "time-out",
        }
    }
}

/// Seats that somebody has, to be given back.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub level: String,
    queue: Option<usize>,
    pub width: u32,
}

struct Waiting<T> {
    number: u64,
    width: u32,
    who: T,
}

struct Queue<T> {
    waiting: VecDeque<Waiting<T>>,
    virtual_time: f64,
    /// Requests that sit.
    sitting: usize,
}

impl<T> Queue<T> {
    fn new() -> Self {
        Self { waiting: VecDeque::new(), virtual_time: 0.0, sitting: 0 }
    }
}

struct State<T> {
    level: Level,
    used: u32,
    queues: Vec<Queue<T>>,
    waiting: usize,
    virtual_time: f64,
    /// Where the look for the next queue begins among equals.
    turn: usize,
    /// Nobody may arrive any more.
    gone: bool,
}

impl<T> State<T> {
    fn new(level: Level) -> Self {
        let count = level.queues.map_or(0, |q| q.count);
        let queues = (0..count).map(|_| Queue::new()).collect();
        Self { level, used: 0, queues, waiting: 0, virtual_time: 0.0, turn: 0, gone: false }
    }

    /// Seats out of the pool.
    fn borrowed(&self, used: u32) -> u32 {
        used.saturating_sub(self.level.kept)
    }

    fn next(&self) -> Option<usize> {
        let count = self.queues.len();
        let waiting =
            (0..count).map(|i| (self.turn + i) % count).filter(|i| !self.queues[*i].waiting.is_empty());
        waiting.min_by(|a, b| self.queues[*a].virtual_time.total_cmp(&self.queues[*b].virtual_time))
    }
}

/// The seats of all levels. `T` stands for those who wait.
pub(super) struct Seats<T> {
    levels: BTreeMap<String, State<T>>,
    /// What all levels lend.
    pool: u32,
    last: u64,
}

impl<T> Default for Seats<T> {
    fn default() -> Self {
        Self { levels: BTreeMap::new(), pool: 0, last: 0 }
    }
}

impl<T> Seats<T> {
    /// The levels are these now. Gives those whose level is gone or waits no more, and who have to look for another.
    pub(super) fn set(&mut self, levels: Vec<Level>) -> Vec<T> {
        let mut homeless = Vec::new();
        let names: Vec<String> = levels.iter().map(|l| l.name.clone()).collect();
        self.pool = levels.iter().filter(|l| !l.exempt).map(|l| l.nominal - l.kept).sum();
        for level in levels {
            let state = self.levels.entry(level.name.clone()).or_insert_with(|| State::new(level.clone()));
            if level.queues.map(|q| q.count) != state.level.queues.map(|q| q.count) {
                let fresh = State::new(level.clone());
                let old = std::mem::replace(&mut state.queues, fresh.queues);
                state.waiting = 0;
                homeless.extend(old.into_iter().flat_map(|q| q.waiting).map(|w| w.who));
            }
            state.level = level;
            state.gone = false;
        }
        // Those who sit in a level that is gone go on; it is forgotten with the last of them.
        self.levels.retain(|name, state| {
            let there = names.contains(name);
            if !there {
                let queues = std::mem::take(&mut state.queues);
                homeless.extend(queues.into_iter().flat_map(|q| q.waiting).map(|w| w.who));
                state.waiting = 0;
                state.gone = true;
            }
            there || state.used > 0
        });
        homeless
    }

    fn lent(&self) -> u32 {
        self.levels.values().map(|s| s.borrowed(s.used)).sum()
    }

    /// Whether a level has room for so many more.
    fn room(&self, state: &State<T>, width: u32, lent: u32) -> bool {
        // Alone, even the widest may.
        if state.used == 0 && lent <= self.pool {
            return true;
        }
        let used = state.used.saturating_add(width);
        let more = state.borrowed(used) - state.borrowed(state.used);
        used <= state.level.most && (more == 0 || lent + more <= self.pool)
    }

    /// The widest that a request of a level may be. Source: apiserver: a part of its seats, so that it holds up nobody for long.
    pub(super) fn widest(&self, level: &str, most: u32) -> u32 {
        let nominal = self.levels.get(level).map_or(0, |s| s.level.nominal);
        ((f64::from(nominal) * 0.15).ceil() as u32).clamp(1, most)
    }

    /// Somebody arrives at a level; `who` is told when it may begin, unless it may at once.
    pub(super) fn arrive(&mut self, level: &str, flow: u64, width: u32, who: T) -> Arrival {
        let lent = self.lent();
        let Some(state) = self.levels.get(level).filter(|s| !s.gone) else {
            return Arrival::Refused(Reason::ConcurrencyLimit);
        };
        let room = self.room(state, width, lent);
        let ticket = |queue| Ticket { level: level.to_owned(), queue, width };
        let Some(state) = self.levels.get_mut(level) else {
            return Arrival::Refused(Reason::ConcurrencyLimit);
        };
        let Some(queues) = state.level.queues else {
            if !room {
                return Arrival::Refused(Reason::ConcurrencyLimit);
            }
            state.used += width;
            return Arrival::Sits(ticket(None));
        };
        let cards = hand(flow, queues.count, queues.hand);
        let load = |i: &usize| {
            let queue = &state.queues[*i];
            queue.waiting.iter().map(|w| w.width as usize).sum::<usize>() + queue.sitting
        };
        let Some(at) = cards.into_iter().min_by_key(load) else { return Arrival::Refused(Reason::QueueFull) };
        let idle = state.virtual_time;
        let queue = &mut state.queues[at];
        if queue.waiting.is_empty() && queue.sitting == 0 {
            // Who asked for nothing saves up nothing.
            queue.virtual_time = queue.virtual_time.max(idle);
        }
        if room && state.waiting == 0 {
            queue.sitting += 1;
            queue.virtual_time += GUESS * f64::from(width);
            state.used += width;
            return Arrival::Sits(ticket(Some(at)));
        }
        if queue.waiting.len() >= queues.length {
            return Arrival::Refused(Reason::QueueFull);
        }
        self.last += 1;
        queue.waiting.push_back(Waiting { number: self.last, width, who });
        state.waiting += 1;
        Arrival::Waits(self.last)
    }

    /// Somebody does not want to wait any more; `false` if it does not.
    pub(super) fn give_up(&mut self, level: &str, number: u64) -> bool {
        let Some(state) = self.levels.get_mut(level) else { return false };
        for queue in &mut state.queues {
            if let Some(at) = queue.waiting.iter().position(|w| w.number == number) {
                queue.waiting.remove(at);
                state.waiting -= 1;
                return true;
            }
        }
        false
    }

    /// Seats are given back after so long. Gives those who may begin now.
    pub(super) fn leave(&mut self, ticket: &Ticket, took: Duration) -> Vec<(T, Ticket)> {
        if let Some(state) = self.levels.get_mut(&ticket.level) {
            state.used = state.used.saturating_sub(ticket.width);
            if let Some(queue) = ticket.queue.and_then(|at| state.queues.get_mut(at)) {
                queue.sitting = queue.sitting.saturating_sub(1);
                queue.virtual_time += f64::from(ticket.width) * (took.as_secs_f64() - GUESS);
            }
            if state.gone && state.used == 0 {
                self.levels.remove(&ticket.level);
            }
        }
        self.dispatch()
    }

    /// Gives those who may begin now, as many as there is room for.
    pub(super) fn dispatch(&mut self) -> Vec<(T, Ticket)> {
        let mut begins = Vec::new();
        while let Some((name, at)) = self.next() {
            let Some(state) = self.levels.get_mut(&name) else { break };
            let Some(waiting) = state.queues[at].waiting.pop_front() else { break };
            let queue = &mut state.queues[at];
            state.virtual_time = state.virtual_time.max(queue.virtual_time);
            queue.virtual_time += GUESS * f64::from(waiting.width);
            queue.sitting += 1;
            state.waiting -= 1;
            state.used += waiting.width;
            state.turn = (at + 1) % state.queues.len();
            begins.push((waiting.who, Ticket { level: name, queue: Some(at), width: waiting.width }));
        }
        begins
    }

    /// The level and queue whose turn it is: of those with room the one that has least of what is its own.
    fn next(&self) -> Option<(String, usize)> {
        if self.levels.values().all(|s| s.waiting == 0) {
            return None;
        }
        let lent = self.lent();
        let candidates = self.levels.iter().filter(|(_, s)| s.waiting > 0).filter_map(|(name, state)| {
            let at = state.next()?;
            let width = state.queues[at].waiting.front()?.width;
            let share = f64::from(state.used) / f64::from(state.level.nominal.max(1));
            self.room(state, width, lent).then_some((share, name, at))
        });
        let first = candidates.min_by(|a, b| a.0.total_cmp(&b.0));
        first.map(|(_, name, at)| (name.clone(), at))
    }

    /// For each level: its name, its own seats, seats that are taken, requests that wait.
    pub(super) fn loads(&self) -> Vec<(String, u32, u32, usize)> {
        let load = |s: &State<T>| (s.level.name.clone(), s.level.nominal, s.used, s.waiting);
        self.levels.values().map(load).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::shares::Queues;
    use super::*;

    const NOW: Duration = Duration::from_millis(10);

    fn level(name: &str, nominal: u32, kept: u32, queues: Option<Queues>) -> Level {
        Level { name: name.to_owned(), uid: String::new(), exempt: false, nominal, kept, most: 1000, queues }
    }

    fn queues(count: usize, length: usize) -> Option<Queues> {
        Some(Queues { count, hand: 1, length })
    }

    fn seats(levels: Vec<Level>) -> Seats<&'static str> {
        let mut seats = Seats::default();
        assert!(seats.set(levels).is_empty());
        seats
    }

    fn sits(arrival: Arrival) -> Ticket {
        match arrival {
            Arrival::Sits(ticket) => ticket,
            other => panic!("{other:?}"),
        }
    }

    fn names(begins: &[(&'static str, Ticket)]) -> Vec<&'static str> {
        begins.iter().map(|(who, _)| *who).collect()
    }

    #[test]
    fn who_finds_no_seat_waits_or_is_refused() {
        let mut seats = seats(vec![level("q", 1, 1, queues(1, 1)), level("r", 1, 1, None)]);
        let first = sits(seats.arrive("q", 0, 1, "a"));
        assert!(matches!(seats.arrive("q", 0, 1, "b"), Arrival::Waits(_)));
        assert_eq!(seats.arrive("q", 0, 1, "c"), Arrival::Refused(Reason::QueueFull));
        let other = sits(seats.arrive("r", 0, 1, "d"));
        assert_eq!(seats.arrive("r", 0, 1, "e"), Arrival::Refused(Reason::ConcurrencyLimit));
        assert_eq!(names(&seats.leave(&first, NOW)), ["b"]);
        assert!(seats.leave(&other, NOW).is_empty());
        sits(seats.arrive("r", 0, 1, "e"));
    }

    #[test]
    fn a_flood_of_one_flow_does_not_hold_up_another() {
        let mut seats = seats(vec![level("q", 2, 2, queues(2, 1000))]);
        // Hashes 0 and 1 have queues 0 and 1.
        let mut sitting =
            vec![sits(seats.arrive("q", 0, 1, "flood")), sits(seats.arrive("q", 0, 1, "flood"))];
        for _ in 0..500 {
            assert!(matches!(seats.arrive("q", 0, 1, "flood"), Arrival::Waits(_)));
        }
        assert!(matches!(seats.arrive("q", 1, 1, "meek"), Arrival::Waits(_)));
        let begins = seats.leave(&sitting.remove(0), NOW);
        assert_eq!(names(&begins), ["meek"]);
        // From now on both flows get the same.
        for _ in 0..100 {
            seats.arrive("q", 1, 1, "meek");
        }
        let mut tickets: VecDeque<Ticket> =
            sitting.into_iter().chain(begins.into_iter().map(|(_, t)| t)).collect();
        let mut counts = BTreeMap::new();
        for _ in 0..100 {
            let ticket = tickets.pop_front().unwrap();
            for (who, ticket) in seats.leave(&ticket, NOW) {
                *counts.entry(who).or_insert(0) += 1;
                tickets.push_back(ticket);
            }
        }
        let meek = counts["meek"];
        assert!((45..=55).contains(&meek), "{counts:?}");
    }

    #[test]
    fn who_takes_long_gets_less() {
        let mut seats = seats(vec![level("q", 1, 1, queues(2, 1000))]);
        let mut ticket = sits(seats.arrive("q", 0, 1, "slow"));
        for _ in 0..200 {
            seats.arrive("q", 0, 1, "slow");
            seats.arrive("q", 1, 1, "quick");
        }
        let mut who = "slow";
        let mut counts = BTreeMap::new();
        for _ in 0..100 {
            let took = Duration::from_millis(if who == "slow" { 90 } else { 10 });
            let (next, its) = seats.leave(&ticket, took).remove(0);
            *counts.entry(next).or_insert(0) += 1;
            (who, ticket) = (next, its);
        }
        assert!((85..=95).contains(&counts["quick"]), "{counts:?}");
    }

    #[test]
    fn what_a_level_does_not_keep_others_borrow_and_it_comes_first_when_it_wants_it() {
        let own = level("own", 4, 1, queues(1, 100));
        let mut seats = seats(vec![own, level("greedy", 2, 2, queues(1, 100))]);
        let mut greedy: Vec<Ticket> = (0..5).map(|_| sits(seats.arrive("greedy", 0, 1, "g"))).collect();
        assert!(matches!(seats.arrive("greedy", 0, 1, "g"), Arrival::Waits(_)), "the pool has three");
        let kept = sits(seats.arrive("own", 0, 1, "o"));
        assert!(matches!(seats.arrive("own", 0, 1, "o"), Arrival::Waits(_)));
        let begins = seats.leave(&greedy.remove(0), NOW);
        assert_eq!(names(&begins), ["o"], "its own comes first");
        assert_eq!(names(&seats.leave(&kept, NOW)), ["g"], "one of the pool is free");
        assert!(matches!(seats.arrive("greedy", 0, 1, "g"), Arrival::Waits(_)));
        let none = Vec::<&str>::new();
        assert_eq!(names(&seats.leave(&begins[0].1, NOW)), none, "what a level keeps is lent to nobody");
    }

    #[test]
    fn the_widest_sits_alone_and_nobody_passes_it() {
        let mut seats = seats(vec![level("q", 2, 2, queues(2, 10))]);
        let wide = sits(seats.arrive("q", 0, 10, "wide"));
        let Arrival::Waits(number) = seats.arrive("q", 0, 10, "wide too") else { panic!() };
        assert!(matches!(seats.arrive("q", 0, 1, "small"), Arrival::Waits(_)));
        assert!(seats.give_up("q", number) && !seats.give_up("q", number));
        assert_eq!(names(&seats.leave(&wide, NOW)), ["small"]);
    }

    #[test]
    fn levels_change_under_those_who_sit() {
        let mut seats = seats(vec![level("a", 1, 1, queues(1, 10)), level("b", 1, 1, queues(1, 10))]);
        let (a, b) = (sits(seats.arrive("a", 0, 1, "a")), sits(seats.arrive("b", 0, 1, "b")));
        seats.arrive("a", 0, 1, "waits in a");
        seats.arrive("b", 0, 1, "waits in b");
        let homeless = seats.set(vec![level("b", 2, 2, queues(1, 10))]);
        assert_eq!(homeless, ["waits in a"]);
        assert_eq!(names(&seats.dispatch()), ["waits in b"], "it has a seat more");
        assert!(seats.leave(&a, NOW).is_empty() && seats.leave(&b, NOW).is_empty());
        assert_eq!(seats.arrive("a", 0, 1, "late"), Arrival::Refused(Reason::ConcurrencyLimit));
    }
}
