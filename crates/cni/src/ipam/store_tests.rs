//! What the store makes of what others left in it.

use super::*;
use crate::ipam::range::RangeConfig;

fn id(container: &str) -> AttachmentId {
    AttachmentId { container_id: container.to_owned(), ifname: "eth0".to_owned() }
}

fn ip(n: u8) -> IpAddr {
    IpAddr::from([10, 1, 0, n])
}

const NONE: [IpAddr; 0] = [];

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(folder.path("")).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join("n").join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn open(&self) -> Store {
        Store::open(self.0.path(), "n").unwrap()
    }
}

#[test]
fn a_folder_of_the_references_is_taken_over_with_its_oldest_form() {
    let folder = Folder::new();
    folder.write("10.1.0.2", "one\r\neth0");
    folder.write("10.1.0.3", "one\r\neth1");
    folder.write("10.1.0.4", "old");
    folder.write("last_reserved_ip.0", "10.1.0.4");
    folder.write("lock", "");
    let store = folder.open();
    assert_eq!(store.of(&id("one")).unwrap(), [ip(2)]);
    assert_eq!(store.of(&id("old")).unwrap(), [ip(4)], "it does not say for which link it is");
    assert_eq!(store.last(0), Some(ip(4)));
    assert!(!store.reserve(&id("two"), ip(3)).unwrap());
    store.release(&id("old")).unwrap();
    store.release(&id("one")).unwrap();
    assert_eq!(store.taken().unwrap(), BTreeSet::from([ip(3)]));
    drop(store);
    // The reference goes on in it.
    folder.write("10.1.0.9", "three\r\neth0");
    std::fs::remove_file(folder.path("10.1.0.3")).unwrap();
    let store = folder.open();
    assert_eq!(store.of(&id("three")).unwrap(), [ip(9)]);
    assert_eq!(store.of(&AttachmentId { ifname: "eth1".to_owned(), ..id("one") }).unwrap(), NONE);
}

#[test]
fn another_boots_addresses_are_given_back_and_this_ones_are_not() {
    let folder = Folder::new();
    assert!(folder.open().reserve(&id("one"), ip(2)).unwrap());
    assert_eq!(folder.open().taken().unwrap(), BTreeSet::from([ip(2)]));
    folder.write(BOOT, "another boot\n0.0\n");
    let store = folder.open();
    assert_eq!(store.taken().unwrap(), BTreeSet::new());
    assert_eq!(store.of(&id("one")).unwrap(), NONE);
}

#[test]
fn what_is_cut_short_or_odd_gives_no_address_twice_and_loses_none() {
    for (name, cut) in [("the name of the container", "on"), ("all of it", ""), ("the link's", "one\r\net")] {
        let folder = Folder::new();
        let store = folder.open();
        assert!(store.reserve(&id("one"), ip(2)).unwrap());
        drop(store);
        folder.write("10.1.0.2", cut);
        let store = folder.open();
        assert!(!store.reserve(&id("two"), ip(2)).unwrap(), "{name}");
        store.keep_only(&[id("one")]).unwrap();
        assert!(!store.is_free(ip(2)), "{name}: it lives");
        store.keep_only(&[id("two")]).unwrap();
        assert!(store.is_free(ip(2)), "{name}");
    }
    for odd in ["", "odd", "10.1.0.300\n10.1.0.2\n\u{0}"] {
        let folder = Folder::new();
        drop(folder.open());
        let index = folder.open().index(&id("one"));
        std::fs::write(&index, odd).unwrap();
        folder.write("10.1.0.2", "one\r\neth0");
        std::fs::write(folder.path(".trine-bits.0"), "cut").unwrap();
        let store = folder.open();
        assert_eq!(store.of(&id("one")).unwrap(), [ip(2)], "{odd:?}");
        store.release(&id("one")).unwrap();
        assert!(store.is_free(ip(2)));
    }
    let folder = Folder::new();
    std::fs::write(folder.path("10.1.0.2"), [0xff, 0xfe, b'\n']).unwrap();
    folder.open().keep_only(&[]).unwrap();
    assert!(folder.open().is_free(ip(2)), "whatever it says");
}

#[test]
fn bits_follow_reservations_and_are_counted_anew_when_others_were_there() {
    let config = RangeConfig {
        subnet: "10.1.0.0/28".parse().unwrap(),
        range_start: None,
        range_end: None,
        gateway: None,
    };
    let set = RangeSet::all(&[vec![config]]).unwrap().remove(0);
    let folder = Folder::new();
    let store = folder.open();
    assert!(store.bits(0, &set).is_none());
    let mut bits = store.count_anew(0, &set).unwrap().unwrap();
    let place = bits.free_behind(None).unwrap();
    assert_eq!(bits.addr(place), Some(ip(2)));
    assert!(store.reserve(&id("one"), ip(2)).unwrap());
    store.mark_taken(0, &mut bits, place).unwrap();
    assert_eq!(store.bits(0, &set).unwrap().count(&set), (1, 13));
    store.release(&id("one")).unwrap();
    assert_eq!(store.bits(0, &set).unwrap().count(&set), (0, 13));
    drop(store);
    folder.write("10.1.0.7", "three\r\neth0");
    let store = folder.open();
    assert!(store.bits(0, &set).is_none(), "somebody was there");
}

#[test]
fn long_names_are_kept_too() {
    let folder = Folder::new();
    let long = id(&"c".repeat(300));
    assert!(folder.open().reserve(&long, ip(2)).unwrap());
    assert_eq!(folder.open().of(&long).unwrap(), [ip(2)]);
    folder.open().release(&long).unwrap();
    assert!(folder.open().is_free(ip(2)));
}
