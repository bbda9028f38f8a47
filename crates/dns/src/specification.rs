//! The Kubernetes DNS specification 1.1 as a table, and what CoreDNS does where it is silent: questions and what is answered,
//! in the order in which the specification has them.

use hickory_proto::rr::{Name, Record, RecordType};
use serde_json::{Value, json};

use crate::answer::{Answer, Domain, answer};
use crate::zone::{Key, Service, Slice, Zone};

fn service(zone: &mut Zone, name: &str, spec: Value) {
    let object = json!({"metadata": {"name": name, "namespace": "apps"}, "spec": spec});
    let object = serde_json::from_value(object).unwrap();
    zone.set_service(&Key::new("apps", name), Service::from_api(&object));
}

fn slice(zone: &mut Zone, name: &str, of: &str, ports: Value, endpoints: Value) {
    let object = json!({
        "metadata": {"name": name, "namespace": "apps", "labels": {"kubernetes.io/service-name": of}},
        "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
    });
    let object = serde_json::from_value(object).unwrap();
    zone.set_slice(&Key::new("apps", name), Slice::from_api(&object));
}

fn cluster() -> Zone {
    let mut zone = Zone::default();
    zone.set_namespace("apps");
    zone.set_namespace("empty");
    let web = json!([
        {"name": "http", "protocol": "TCP", "port": 80},
        {"name": "dns", "protocol": "UDP", "port": 53},
    ]);
    let http = json!([{"name": "http", "protocol": "TCP", "port": 8080}]);
    service(
        &mut zone,
        "web",
        json!({"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7", "fd00::7"], "ports": web}),
    );
    slice(&mut zone, "web-1", "web", http.clone(), json!([{"addresses": ["10.244.0.7"], "hostname": "w0"}]));
    service(&mut zone, "old", json!({"clusterIP": "10.96.0.8", "ports": [{"port": 80}]}));
    service(&mut zone, "pending", json!({"ports": [{"port": 80}]}));
    service(&mut zone, "db", json!({"clusterIP": "None", "ports": [{"name": "http", "port": 80}]}));
    slice(
        &mut zone,
        "db-1",
        "db",
        http.clone(),
        json!([
            {"addresses": ["10.244.0.1"], "hostname": "db-0", "conditions": {"ready": true}},
            {"addresses": ["10.244.0.2"], "hostname": "DB-1"},
            {"addresses": ["10.244.0.3"], "hostname": "db-1"},
            {"addresses": ["10.244.0.4"]},
            {"addresses": ["10.244.0.5"], "conditions": {"ready": false}},
        ]),
    );
    slice(&mut zone, "db-2", "db", http, json!([{"addresses": ["fd00::1"], "hostname": "db-6"}]));
    service(&mut zone, "bare", json!({"clusterIP": "None"}));
    slice(&mut zone, "bare-1", "bare", Value::Null, json!([{"addresses": ["10.244.0.9"]}]));
    service(&mut zone, "none", json!({"clusterIP": "None"}));
    slice(
        &mut zone,
        "none-1",
        "none",
        Value::Null,
        json!([{"addresses": ["10.244.0.10"], "conditions": {"ready": false}}]),
    );
    service(&mut zone, "out", json!({"type": "ExternalName", "externalName": "www.example.com"}));
    slice(&mut zone, "lost-1", "lost", Value::Null, json!([{"addresses": ["10.244.0.11"]}]));
    zone
}

fn shown(records: &[Record]) -> String {
    let mut all: Vec<String> = records.iter().map(|r| format!("{} {}", r.record_type(), r.data)).collect();
    all.sort();
    all.join(", ")
}

fn ask(zone: &Zone, question: &str) -> String {
    let (kind, name) = question.split_once(' ').unwrap();
    let name = Name::from_ascii(format!("{name}.")).unwrap();
    let kind: RecordType = kind.parse().unwrap();
    match answer(zone, &Domain::new("cluster.local").unwrap(), &name, kind) {
        Answer::Records { answers, .. } => {
            assert!(
                answers.iter().all(|record| record.name == name),
                "answers are about the name that was asked"
            );
            shown(&answers)
        }
        Answer::Alias(target) => format!("alias {target}"),
        Answer::NoData => "no data".to_owned(),
        Answer::NoName => "no name".to_owned(),
        Answer::Elsewhere => "elsewhere".to_owned(),
    }
}

/// Question and answer, one a line, with `->` between them.
const TABLE: &str = "
    TXT dns-version.cluster.local -> TXT 1.1.0
    A dns-version.cluster.local -> no data

    A web.apps.svc.cluster.local -> A 10.96.0.7
    A WEB.Apps.svc.Cluster.Local -> A 10.96.0.7
    AAAA web.apps.svc.cluster.local -> AAAA fd00::7
    AAAA old.apps.svc.cluster.local -> no data
    MX web.apps.svc.cluster.local -> no data
    TXT web.apps.svc.cluster.local -> no data
    SRV _http._tcp.web.apps.svc.cluster.local -> SRV 0 100 80 web.apps.svc.cluster.local.
    SRV _dns._udp.web.apps.svc.cluster.local -> SRV 0 100 53 web.apps.svc.cluster.local.
    SRV _http._udp.web.apps.svc.cluster.local -> no name
    SRV http._tcp.web.apps.svc.cluster.local -> no name
    SRV web.apps.svc.cluster.local -> SRV 0 50 53 web.apps.svc.cluster.local., SRV 0 50 80 web.apps.svc.cluster.local.
    SRV old.apps.svc.cluster.local -> no data
    A w0.web.apps.svc.cluster.local -> A 10.244.0.7
    A x.w0.web.apps.svc.cluster.local -> no name
    PTR 7.0.96.10.in-addr.arpa -> PTR web.apps.svc.cluster.local.
    PTR 7.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa -> PTR web.apps.svc.cluster.local.
    A 7.0.96.10.in-addr.arpa -> no data
    A pending.apps.svc.cluster.local -> no name

    A db.apps.svc.cluster.local -> A 10.244.0.1, A 10.244.0.2, A 10.244.0.3, A 10.244.0.4
    AAAA db.apps.svc.cluster.local -> AAAA fd00::1
    A db-0.db.apps.svc.cluster.local -> A 10.244.0.1
    A db-1.db.apps.svc.cluster.local -> A 10.244.0.2, A 10.244.0.3
    A 10-244-0-4.db.apps.svc.cluster.local -> A 10.244.0.4
    A 10-244-0-5.db.apps.svc.cluster.local -> no name
    AAAA db-0.db.apps.svc.cluster.local -> no data
    SRV _http._tcp.db-0.db.apps.svc.cluster.local -> no name
    SRV db-0.db.apps.svc.cluster.local -> SRV 0 100 8080 db-0.db.apps.svc.cluster.local.
    SRV _metrics._tcp.db.apps.svc.cluster.local -> no name
    PTR 1.0.244.10.in-addr.arpa -> PTR db-0.db.apps.svc.cluster.local.
    PTR 4.0.244.10.in-addr.arpa -> PTR 10-244-0-4.db.apps.svc.cluster.local.
    PTR 7.0.244.10.in-addr.arpa -> PTR w0.web.apps.svc.cluster.local.
    PTR 5.0.244.10.in-addr.arpa -> elsewhere
    PTR 11.0.244.10.in-addr.arpa -> elsewhere
    A bare.apps.svc.cluster.local -> A 10.244.0.9
    SRV bare.apps.svc.cluster.local -> no data
    SRV _http._tcp.bare.apps.svc.cluster.local -> no name
    A none.apps.svc.cluster.local -> no name

    A out.apps.svc.cluster.local -> alias www.example.com.
    CNAME out.apps.svc.cluster.local -> alias www.example.com.
    SRV out.apps.svc.cluster.local -> no data
    A x.out.apps.svc.cluster.local -> no name

    A 10-1-2-3.apps.pod.cluster.local -> A 10.1.2.3
    AAAA 10-1-2-3.apps.pod.cluster.local -> no data
    AAAA fd00--9.apps.pod.cluster.local -> AAAA fd00::9
    A web.apps.pod.cluster.local -> no name
    A 10-1-2-3.nowhere.pod.cluster.local -> no name

    A cluster.local -> no data
    NS cluster.local -> NS ns.dns.cluster.local.
    A svc.cluster.local -> no data
    A pod.cluster.local -> no data
    A apps.svc.cluster.local -> no data
    A empty.svc.cluster.local -> no data
    A apps.pod.cluster.local -> no data
    A nowhere.svc.cluster.local -> no name
    A web.empty.svc.cluster.local -> no name
    A nothing.apps.svc.cluster.local -> no name
    A lost.apps.svc.cluster.local -> no name
    A x.cluster.local -> no name
    A web.apps.cluster.local -> no name
    A *.apps.svc.cluster.local -> no name

    A cluster.local.example.com -> elsewhere
    A notcluster.local -> elsewhere
    A local -> elsewhere
    PTR 8.8.8.8.in-addr.arpa -> elsewhere
    PTR 244.10.in-addr.arpa -> elsewhere
";

#[test]
fn names_mean_what_the_specification_says() {
    let zone = cluster();
    let mut wrong = Vec::new();
    for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (question, expected) = line.split_once(" -> ").unwrap();
        let got = ask(&zone, question);
        if got != expected {
            wrong.push(format!("{question}\n  expected {expected}\n  got      {got}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_headless_port_is_one_record_an_endpoint_with_its_address_beside_it() {
    let name = Name::from_ascii("_http._tcp.db.apps.svc.cluster.local.").unwrap();
    let domain = Domain::new("cluster.local").unwrap();
    let Answer::Records { answers, additionals } = answer(&cluster(), &domain, &name, RecordType::SRV) else {
        panic!("no records");
    };
    let of = |label: &str| format!("SRV 0 25 8080 {label}.db.apps.svc.cluster.local.");
    assert_eq!(shown(&answers), [of("10-244-0-4"), of("db-0"), of("db-1"), of("db-6")].join(", "));
    assert_eq!(additionals.len(), 5, "{}", shown(&additionals));
}

#[test]
fn what_changes_changes_the_answers() {
    let mut zone = cluster();
    service(&mut zone, "out", json!({"clusterIP": "10.96.0.9", "ports": [{"port": 80}]}));
    assert_eq!(ask(&zone, "A out.apps.svc.cluster.local"), "A 10.96.0.9");
    assert_eq!(ask(&zone, "PTR 9.0.96.10.in-addr.arpa"), "PTR out.apps.svc.cluster.local.");
    zone.set_service(&Key::new("apps", "out"), None);
    assert_eq!(ask(&zone, "A out.apps.svc.cluster.local"), "no name");
    assert_eq!(ask(&zone, "PTR 9.0.96.10.in-addr.arpa"), "elsewhere");
    zone.forget_namespace("apps");
    assert_eq!(ask(&zone, "A web.apps.svc.cluster.local"), "no name");
}
