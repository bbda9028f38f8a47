//! What a collector of OpenTelemetry gets of a Pod's start: one trace under the Pod's UID over all planes, and the requests of a
//! client whose trace is sampled.

use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use tonic::{Request, Response, Status};
use trine_tests::{Cluster, until};

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: told}
spec:
  containers:
  - {name: main, image: "trine.local/busybox:1", command: [/bin/busybox, sleep, "1000"]}
"#;
/// A client's own trace and span. Source: the example of W3C Trace Context.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

/// Keeps what it is sent, with the name of the service that sent it.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(String, Span)>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut kept = self.0.lock().unwrap();
        for of_service in request.into_inner().resource_spans {
            let resource = of_service.resource.unwrap_or_default();
            let service = resource.attributes.iter().find(|a| a.key == "service.name");
            let service = format!("{:?}", service.and_then(|a| a.value.clone()));
            let spans = of_service.scope_spans.into_iter().flat_map(|scope| scope.spans);
            kept.extend(spans.map(|span| (service.clone(), span)));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Spans of a trace: plane and call, and the parent's id.
    fn of(&self, trace: &str) -> Vec<(String, String)> {
        let kept = self.0.lock().unwrap();
        let of_trace = kept.iter().filter(|(_, span)| hex(&span.trace_id) == trace);
        of_trace.map(|(_, span)| (span.name.clone(), hex(&span.parent_span_id))).collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_collector_gets_a_pods_steps_as_one_trace_and_sampled_requests() {
    const TEST: &str = "a_collector_gets_a_pods_steps_as_one_trace_and_sampled_requests";
    if !trine_kernel::testing::root(TEST) || !trine_kernel::testing::program(TEST, "busybox") {
        return;
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let collector = Collector::default();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let service = TraceServiceServer::new(collector.clone());
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    runtime.spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));

    let cluster = Cluster::prepared();
    cluster.start_with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint), ("OTEL_SERVICE_NAME", "under-test")]);
    cluster.build_busybox();
    let _ = cluster.apply(POD).expect_ok();
    let pod = cluster.wait_running("told");
    let trace = pod["metadata"]["uid"].as_str().unwrap().replace('-', "");
    let wanted = [
        "api create",
        "scheduler schedule",
        "kubelet RunPodSandbox",
        "cri RunPodSandbox",
        "cni ADD",
        "kubelet CreateContainer",
        "cri StartContainer",
    ];
    let spans = until("the Pod's steps are told", || {
        let spans = collector.of(&trace);
        let missing: Vec<_> = wanted.iter().filter(|w| !spans.iter().any(|(name, _)| name == *w)).collect();
        if missing.is_empty() { Ok(spans) } else { Err(format!("{missing:?} are missing among {spans:?}")) }
    });
    let parent = |name: &str| spans.iter().find(|(known, _)| known == name).unwrap().1.clone();
    assert_ne!(parent("cni ADD"), "", "it stands within the runtime's call");

    let ask = |flags: &str, path: &str| {
        let header = format!("00-{TRACE}-{SPAN}-{flags}");
        let request = http::Request::get(path).header("traceparent", header).body(Vec::new()).unwrap();
        let kubeconfig = cluster.dir().join("kubeconfig");
        runtime.block_on(async {
            let client = trine_typed::client::from_kubeconfig(&kubeconfig).await.unwrap();
            client.request_text(request).await.unwrap()
        });
    };
    ask("00", "/api/v1/namespaces");
    ask("01", "/api/v1/namespaces/default/pods?limit=5");
    let told = until("the request is told", || {
        let told = collector.of(TRACE);
        if told.is_empty() { Err("nothing yet".to_owned()) } else { Ok(told) }
    });
    assert_eq!(told, [("LIST /api/v1/namespaces/default/pods".to_owned(), SPAN.to_owned())]);
    let services = collector.0.lock().unwrap().iter().map(|(service, _)| service.clone()).next();
    assert!(services.unwrap().contains("under-test"));
}
