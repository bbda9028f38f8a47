use super::*;
use crate::testing;

struct Pin(PathBuf);

impl Drop for Pin {
    fn drop(&mut self) {
        let _ = delete(&self.0);
    }
}

fn pin(dir: &tempfile::TempDir) -> Pin {
    Pin(dir.path().join("netns/a"))
}

#[test]
fn a_pinned_namespace_is_opened_entered_and_deleted_twice() {
    if !testing::root("a_pinned_namespace_is_opened_entered_and_deleted_twice") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let pin = pin(&dir);
    let made = Netns::create(&pin.0).unwrap();
    assert!(Netns::create(&pin.0).is_err(), "a pin is never overmounted");
    let again = Netns::open(&pin.0).unwrap();
    assert_eq!(made.id(), again.id());
    assert_ne!(made.id(), Netns::current().unwrap().id());
    let inside = again.run(|| Netns::current().unwrap().id()).unwrap();
    assert_eq!(inside, made.id());
    delete(&pin.0).unwrap();
    delete(&pin.0).unwrap();
    assert!(Netns::open(&pin.0).unwrap_err().is_absent());
}

#[test]
fn an_empty_file_left_by_a_crash_is_absent_and_is_taken_over() {
    if !testing::root("an_empty_file_left_by_a_crash_is_absent_and_is_taken_over") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let pin = pin(&dir);
    std::fs::create_dir_all(pin.0.parent().unwrap()).unwrap();
    std::fs::write(&pin.0, "").unwrap();
    assert!(Netns::open(&pin.0).unwrap_err().is_absent());
    Netns::create(&pin.0).unwrap();
}

#[test]
fn a_panic_inside_is_an_error() {
    let path = std::path::Path::new("x");
    let result = handle::one_shot::<()>(path, || panic!("boom"));
    assert!(result.unwrap_err().to_string().contains("boom"));
}
