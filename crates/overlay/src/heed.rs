//! Which of the kernel's news is a reason to look. On a busy node links and routes of Pods come and go all the time. Pure.

use trine_kernel::netlink::{Cidr, Event};

use crate::entries::is_ours;
use crate::vtep;

/// What is looked after.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watched {
    /// The instance.
    pub instance: String,
    /// Links (indexes) whose changes matter.
    pub devices: Vec<u32>,
    /// Those of them that are tunnels, with their names.
    pub tunnels: Vec<(u32, String)>,
    /// Ranges that ways lead to.
    pub ranges: Vec<Cidr>,
}

impl Watched {
    /// The index of the tunnel of that name.
    #[must_use]
    pub fn tunnel(&self, name: &str) -> Option<u32> {
        self.tunnels.iter().find(|(_, other)| other == name).map(|(index, _)| *index)
    }

    /// True if it may concern a way of ours.
    #[must_use]
    pub fn concerns(&self, event: &Event) -> bool {
        match event {
            Event::Link { device, name } | Event::LinkGone { device, name } => {
                self.devices.contains(device) || vtep::names(&self.instance).contains(name)
            }
            // A node's address may come to any link.
            Event::Address { link_local, .. } => !link_local,
            Event::Neighbour { device, .. } => self.tunnels.iter().any(|(index, _)| index == device),
            // Somebody's route in the place of ours.
            Event::Route(route) => self.ranges.contains(&route.dst) && !is_ours(route, &self.instance),
            Event::RouteGone(route) => is_ours(route, &self.instance),
            Event::Missed => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entries::priority;
    use crate::testing::cidr;
    use trine_kernel::netlink::RouteEntry;

    #[test]
    fn pods_that_come_and_go_are_no_news_and_what_ways_stand_on_is() {
        let watched = Watched {
            instance: "00aabb".to_owned(),
            devices: vec![2, 7],
            tunnels: vec![(7, "tr00aabbvx4".to_owned())],
            ranges: vec![cidr("10.244.3.0/24")],
        };
        let link = |device, name: &str| Event::Link { device, name: name.to_owned() };
        let gone = |device, name: &str| Event::LinkGone { device, name: name.to_owned() };
        let route = |dst: &str| RouteEntry::to(cidr(dst));
        let ours = RouteEntry { priority: Some(priority("00aabb")), ..route("10.244.3.0/24") };
        let rows = [
            (link(9, "tr00aabb0123456"), false),
            (gone(9, "tr00aabb0123456"), false),
            (Event::Address { device: 9, link_local: true }, false),
            (Event::Neighbour { device: 2, gone: true }, false),
            (Event::Route(route("10.244.0.9/32")), false),
            (Event::RouteGone(route("10.244.0.9/32")), false),
            (Event::Route(ours.clone()), false),
            (link(2, "eth0"), true),
            (gone(2, "eth0"), true),
            (link(9, "tr00aabbvx6"), true),
            (gone(7, "tr00aabbvx4"), true),
            (Event::Address { device: 9, link_local: false }, true),
            (Event::Neighbour { device: 7, gone: true }, true),
            (Event::Route(RouteEntry { protocol: 3, ..route("10.244.3.0/24") }), true),
            (Event::RouteGone(ours), true),
            (Event::Missed, true),
        ];
        for (event, concerns) in rows {
            assert_eq!(watched.concerns(&event), concerns, "{event:?}");
        }
    }
}
