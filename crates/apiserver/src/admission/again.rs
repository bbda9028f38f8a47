//! Who is asked once more, because something changed after he was asked. Source: KEP-1872 of admission reinvocation.

use std::collections::HashSet;
use std::hash::Hash;

use serde_json::Value;

/// Who is asked once more.
#[derive(Debug)]
pub struct Again<Id> {
    /// Those who were asked and mind later changes.
    asked: HashSet<Id>,
    /// Those of them after whom something changed.
    again: HashSet<Id>,
    changed: bool,
    /// The object as the last round left it.
    left: Option<Value>,
}

impl<Id> Default for Again<Id> {
    fn default() -> Self {
        Self { asked: HashSet::new(), again: HashSet::new(), changed: false, left: None }
    }
}

impl<Id: Eq + Hash> Again<Id> {
    /// A round begins. What others changed since the last one counts as well.
    pub fn begin(&mut self, round: usize, object: Option<&Value>) {
        if round > 0 && object != self.left.as_ref() {
            self.again.extend(self.asked.drain());
        }
        self.changed = false;
    }

    /// A round ends.
    pub fn end(&mut self, object: Option<&Value>) {
        self.left = object.cloned();
    }

    /// Who is asked once more in this round.
    pub fn take(&mut self) -> HashSet<Id> {
        std::mem::take(&mut self.again)
    }

    /// Somebody was asked who minds later changes.
    pub fn asked(&mut self, id: Id) {
        self.asked.insert(id);
    }

    /// Somebody changed the object: who was asked before him is asked again.
    pub fn note_change(&mut self) {
        self.changed = true;
        self.again.extend(self.asked.drain());
    }

    /// Whether somebody changed the object in this round.
    #[must_use]
    pub fn changed(&self) -> bool {
        self.changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn who_was_asked_before_a_change_is_asked_again() {
        let mut again = Again::default();
        let object = json!({"a": 1});
        again.begin(0, None);
        again.asked("before");
        again.note_change();
        again.asked("after");
        again.end(Some(&object));
        assert!(again.changed());
        again.begin(1, Some(&object));
        assert_eq!(again.take(), HashSet::from(["before"]));
        // Others changed it meanwhile: nobody has seen that.
        again.begin(1, Some(&json!({"a": 2})));
        assert_eq!(again.take(), HashSet::from(["after"]));
    }
}
