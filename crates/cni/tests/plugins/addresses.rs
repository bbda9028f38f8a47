//! The address store as a plugin uses it.

use std::time::Instant;

use serde_json::{Value, json};
use trine_cni::spec::Env;
use trine_kernel::testing;

use crate::world::World;

/// Addresses in use: enough to show a cost that grows with them. `cargo xtask bench cni` has 60,000.
const MANY: u32 = 20_000;

fn env(command: &str, container: &str) -> Env {
    Env {
        command: command.to_owned(),
        container_id: container.to_owned(),
        netns: "/nosuch".to_owned(),
        ifname: "eth0".to_owned(),
        ..Env::default()
    }
}

fn address(answer: &Value) -> String {
    answer["ips"][0]["address"].as_str().unwrap().to_owned()
}

/// The middle of the times of some ADDs and DELs, in microseconds.
fn times(world: &World, config: &Value) -> (u128, u128) {
    let (mut add, mut del) = (Vec::new(), Vec::new());
    for n in 0..41 {
        let begin = Instant::now();
        world.call_as(&env("ADD", &format!("timed{n}")), config).unwrap();
        add.push(begin.elapsed().as_micros());
        let begin = Instant::now();
        world.call_as(&env("DEL", &format!("timed{n}")), config).unwrap();
        del.push(begin.elapsed().as_micros());
    }
    add.sort_unstable();
    del.sort_unstable();
    (add[20], del[20])
}

#[test]
fn a_large_folder_of_the_references_is_taken_over_and_costs_no_more_than_an_empty_one() {
    let Some(world) =
        World::new("a_large_folder_of_the_references_is_taken_over_and_costs_no_more_than_an_empty_one")
    else {
        return;
    };
    let ipam = json!({"type": "host-local", "dataDir": world.data(), "subnet": "10.64.0.0/16"});
    let config = json!({"type": "host-local", "ipam": ipam});
    let few = times(&world, &config);
    let dir = world.data().join("net");
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::create_dir_all(&dir).unwrap();
    let addr = |n: u32| std::net::Ipv4Addr::from_bits(u32::from_be_bytes([10, 64, 0, 0]) + n + 2);
    for n in 0..MANY {
        std::fs::write(dir.join(addr(n).to_string()), format!("c{n}\r\neth0")).unwrap();
    }
    // What it gave last is in the middle of what is taken: the next ten thousand are taken, too.
    std::fs::write(dir.join("last_reserved_ip.0"), addr(MANY / 2).to_string()).unwrap();
    let begin = Instant::now();
    let first = world.call_as(&env("ADD", "first"), &config).unwrap();
    println!("taken over in {:?}", begin.elapsed());
    assert_eq!(address(&first), format!("{}/16", addr(MANY)));
    let twice = world.call_as(&env("ADD", "c777"), &config).unwrap_err();
    assert!(twice.to_string().contains("duplicate"), "{twice}");
    let many = times(&world, &config);
    println!("ADD, DEL in microseconds: {few:?} with none in use, {many:?} with {MANY}");
    if testing::time_counts() {
        let flat = |few: u128, many: u128| many < few * 3 + 1000;
        assert!(flat(few.0, many.0) && flat(few.1, many.1), "{few:?} {many:?}");
    }
    world.call_as(&env("DEL", "c777"), &config).unwrap();
    assert!(!dir.join(addr(777).to_string()).exists());
}

#[test]
fn a_used_up_range_says_how_many_and_gives_what_comes_back() {
    let Some(world) = World::new("a_used_up_range_says_how_many_and_gives_what_comes_back") else { return };
    let ipam = json!({"type": "host-local", "dataDir": world.data(),
        "ranges": [[{"subnet": "10.1.0.0/29"}, {"subnet": "10.2.0.0/30"}]]});
    let config = json!({"type": "host-local", "ipam": ipam});
    let add = |container: &str| world.call_as(&env("ADD", container), &config);
    for n in 0..6 {
        add(&format!("c{n}")).unwrap();
    }
    let error = add("more").unwrap_err();
    assert!(error.to_string().contains("(6 of 6 in use)"), "{error}");
    world.call_as(&env("DEL", "c3"), &config).unwrap();
    // By hand, which nobody was told of.
    std::fs::remove_file(world.data().join("net/10.1.0.2")).unwrap();
    let mut back =
        [address(&add("more").unwrap()), address(&add("and more").unwrap_or_else(|_| add("m").unwrap()))];
    back.sort();
    assert_eq!(back, ["10.1.0.2/29", "10.1.0.5/29"]);
    assert!(add("most").is_err());
}

#[test]
fn many_at_once_never_have_the_same_address() {
    let Some(world) = World::new("many_at_once_never_have_the_same_address") else { return };
    let ipam = json!({"type": "host-local", "dataDir": world.data(), "subnet": "10.1.0.0/23"});
    let config = json!({"type": "host-local", "ipam": ipam});
    let given: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|t| {
                let (world, config) = (&world, &config);
                scope.spawn(move || {
                    let mut own = Vec::new();
                    for n in 0..20 {
                        let container = format!("c{t}.{n}");
                        own.push(address(&world.call_as(&env("ADD", &container), config).unwrap()));
                        if n % 3 == 0 {
                            own.pop();
                            world.call_as(&env("DEL", &container), config).unwrap();
                        }
                    }
                    own
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut different = given.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), given.len());
    assert_eq!(world.reservations().len(), given.len());
}
