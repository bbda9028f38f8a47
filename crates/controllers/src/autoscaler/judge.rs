//! What each metric of an autoscaler asks for.

use std::collections::BTreeMap;
use std::sync::Arc;

use trine_objects::quantity::Quantity;
use trine_objects::resources;
use trine_typed::k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, ExternalMetricStatus, HorizontalPodAutoscaler, MetricIdentifier,
    MetricSpec, MetricStatus, MetricTarget, MetricValueStatus, ObjectMetricStatus, PodsMetricStatus,
    ResourceMetricStatus,
};
use trine_typed::k8s_openapi::api::core::v1::{Container, Pod};
use trine_typed::k8s_openapi::apimachinery::pkg::api::resource;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::core::GroupVersionKind;
use trine_typed::kube::{self, Client, ResourceExt};

use super::metrics::Metrics;
use super::replicas::{Proposal, Question, Target, Tolerance, of_pods, of_share, of_value};
use crate::workload::pods::said;
use crate::workload::selecting::selector;

/// Within which share of the target nothing is done. Upstream: 0.1.
const TOLERANCE: f64 = 0.1;

/// Who judges.
pub(super) struct Judge<'a> {
    pub client: &'a Client,
    pub metrics: &'a Metrics,
    pub autoscaler: &'a HorizontalPodAutoscaler,
    /// The selector of the target's Pods.
    pub selector: &'a str,
    pub pods: &'a [Arc<Pod>],
    /// How many are wanted now.
    pub current: i32,
    /// How many are there.
    pub actual: i32,
    pub now: Timestamp,
}

/// A metric that cannot be had.
pub(super) struct Failure {
    pub reason: &'static str,
    pub why: String,
}

/// What all metrics together ask for.
pub(super) struct Judged {
    /// The most that one asks for, and its name; none if none can be had.
    pub asked: Option<(i32, String)>,
    pub failures: Vec<Failure>,
    pub statuses: Vec<MetricStatus>,
}

/// What one metric asks for, its name, and what is said of it.
type Answer = (Proposal, String, MetricStatus);

impl Judge<'_> {
    pub async fn all(&self) -> Judged {
        let mut judged = Judged { asked: None, failures: Vec::new(), statuses: Vec::new() };
        for spec in self.autoscaler.spec.metrics.iter().flatten() {
            match self.one(spec).await {
                Ok((proposal, name, status)) => {
                    judged.statuses.push(status);
                    if judged.asked.as_ref().is_none_or(|(most, _)| proposal.replicas > *most) {
                        judged.asked = Some((proposal.replicas, name));
                    }
                }
                Err(failure) => {
                    // A place is kept for it.
                    judged.statuses.push(MetricStatus::default());
                    judged.failures.push(failure);
                }
            }
        }
        judged
    }

    async fn one(&self, spec: &MetricSpec) -> Result<Answer, Failure> {
        let failed =
            |reason: &'static str, what: String| move |why| Failure { reason, why: format!("{what}: {why}") };
        match spec.type_.as_str() {
            "Resource" => {
                let what = spec.resource.as_ref().map(|r| r.name.clone()).unwrap_or_default();
                let failed =
                    failed("FailedGetResourceMetric", format!("failed to get {what} resource metric value"));
                self.resource(spec).await.map_err(failed)
            }
            "ContainerResource" => {
                let what = spec.container_resource.as_ref().map(|r| r.container.clone()).unwrap_or_default();
                let what = format!("failed to get {what} container metric value");
                self.container(spec).await.map_err(failed("FailedGetContainerResourceMetric", what))
            }
            "Pods" => {
                let what = "failed to get pods metric value".to_owned();
                self.of_pods(spec).await.map_err(failed("FailedGetPodsMetric", what))
            }
            "Object" => {
                let what = "failed to get object metric value".to_owned();
                self.object(spec).await.map_err(failed("FailedGetObjectMetric", what))
            }
            "External" => {
                let what = spec.external.as_ref().map(|e| e.metric.name.clone()).unwrap_or_default();
                let what = format!("failed to get {what} external metric value");
                self.external(spec).await.map_err(failed("FailedGetExternalMetric", what))
            }
            other => {
                let why = format!("unknown metric source type \"{other}\"");
                Err(Failure { reason: "InvalidMetricSourceType", why })
            }
        }
    }

    fn namespace(&self) -> String {
        self.autoscaler.namespace().unwrap_or_default()
    }

    fn question<'b>(&'b self, requests: &'b BTreeMap<String, i64>, is_cpu: bool) -> Question<'b> {
        let behavior = self.autoscaler.spec.behavior.as_ref();
        let of = |tolerance: Option<&resource::Quantity>| {
            let said = tolerance.and_then(|t| t.0.parse::<Quantity>().ok());
            // A share as 0.05 is far above what a float cannot tell.
            #[allow(clippy::cast_precision_loss)]
            said.map_or(TOLERANCE, |quantity| quantity.nano() as f64 / 1e9)
        };
        let tolerance = Tolerance {
            up: of(behavior.and_then(|b| b.scale_up.as_ref()?.tolerance.as_ref())),
            down: of(behavior.and_then(|b| b.scale_down.as_ref()?.tolerance.as_ref())),
        };
        Question { pods: self.pods, requests, is_cpu, current: self.current, tolerance, now: self.now }
    }

    async fn resource(&self, spec: &MetricSpec) -> Result<Answer, String> {
        let source = spec.resource.as_ref().ok_or("no resource is named")?;
        let (proposal, current) = self.usage(&source.name, None, &source.target).await?;
        let name = match source.target.average_utilization {
            Some(_) => format!("{} resource utilization (percentage of request)", source.name),
            None => format!("{} resource", source.name),
        };
        let resource = Some(ResourceMetricStatus { current, name: source.name.clone() });
        Ok((proposal, name, MetricStatus { type_: spec.type_.clone(), resource, ..Default::default() }))
    }

    async fn container(&self, spec: &MetricSpec) -> Result<Answer, String> {
        let source = spec.container_resource.as_ref().ok_or("no container is named")?;
        let (proposal, current) = self.usage(&source.name, Some(&source.container), &source.target).await?;
        let name = match source.target.average_utilization {
            Some(_) => format!("{} container resource utilization (percentage of request)", source.name),
            None => format!("{} resource", source.name),
        };
        let (container, resource) = (source.container.clone(), source.name.clone());
        let status = ContainerResourceMetricStatus { container, current, name: resource };
        let status = MetricStatus {
            type_: spec.type_.clone(),
            container_resource: Some(status),
            ..Default::default()
        };
        Ok((proposal, name, status))
    }

    /// The usage of a resource, of whole Pods or of one container of each.
    async fn usage(
        &self,
        resource: &str,
        container: Option<&str>,
        target: &MetricTarget,
    ) -> Result<(Proposal, MetricValueStatus), String> {
        let (what, goal) = match (&target.average_value, target.average_utilization) {
            (Some(value), _) => ("usage", Target::Average(milli(value)?)),
            (None, Some(percent)) => ("utilization", Target::Utilization(percent)),
            (None, None) => {
                return Err("invalid resource metric source: neither an average utilization target nor an average value (usage) \
                            target was set"
                    .to_owned());
            }
        };
        let unable = |why: String| format!("failed to get {resource} {what}: {why}");
        let samples = self.metrics.resource(&self.namespace(), self.selector, resource, container).await;
        let samples = samples.map_err(unable)?;
        let requests = match goal {
            Target::Utilization(_) => requests(self.pods, resource, container).map_err(unable)?,
            Target::Average(_) => BTreeMap::new(),
        };
        let question = self.question(&requests, resource == "cpu");
        let proposal = of_pods(&question, samples, goal).map_err(unable)?;
        let value = quantity_of(proposal.milli, resource == "memory");
        let average_value = Some(resource::Quantity(value));
        let current =
            MetricValueStatus { average_utilization: proposal.utilization, average_value, value: None };
        Ok((proposal, current))
    }

    async fn of_pods(&self, spec: &MetricSpec) -> Result<Answer, String> {
        let source = spec.pods.as_ref().ok_or("no metric is named")?;
        let goal = source.target.average_value.as_ref().ok_or("no average value is set")?;
        let (namespace, metric) = (self.namespace(), &source.metric);
        let samples =
            self.metrics.pods(&namespace, self.selector, &metric.name, &selector_of(metric)).await?;
        let requests = BTreeMap::new();
        let proposal = of_pods(&self.question(&requests, false), samples, Target::Average(milli(goal)?))?;
        let pods = Some(PodsMetricStatus { current: average(proposal.milli), metric: metric.clone() });
        let name = format!("pods metric {}", metric.name);
        Ok((proposal, name, MetricStatus { type_: spec.type_.clone(), pods, ..Default::default() }))
    }

    async fn object(&self, spec: &MetricSpec) -> Result<Answer, String> {
        let source = spec.object.as_ref().ok_or("no object is named")?;
        let (object, metric) = (&source.described_object, &source.metric);
        let resource = self.plural(object.api_version.as_deref().unwrap_or("v1"), &object.kind).await?;
        let named = (resource.as_str(), object.name.as_str());
        let selector = selector_of(metric);
        let value = self.metrics.object(&self.namespace(), named, &metric.name, &selector).await?;
        let (proposal, current) = self.whole(value, &source.target)?;
        let status = ObjectMetricStatus { current, described_object: object.clone(), metric: metric.clone() };
        let name = match source.target.type_.as_str() {
            "Value" => format!("{} metric {}", object.kind, metric.name),
            _ => format!("object metric {}", metric.name),
        };
        let status = MetricStatus { type_: spec.type_.clone(), object: Some(status), ..Default::default() };
        Ok((proposal, name, status))
    }

    async fn external(&self, spec: &MetricSpec) -> Result<Answer, String> {
        let source = spec.external.as_ref().ok_or("no metric is named")?;
        let metric = &source.metric;
        let value = self.metrics.external(&self.namespace(), &metric.name, &selector_of(metric)).await?;
        let (proposal, current) = self.whole(value, &source.target)?;
        let external = Some(ExternalMetricStatus { current, metric: metric.clone() });
        let name = format!("external metric {}({})", metric.name, selector_of(metric));
        Ok((proposal, name, MetricStatus { type_: spec.type_.clone(), external, ..Default::default() }))
    }

    /// What a value that is not of Pods asks for, as a whole or for each Pod.
    fn whole(&self, value: i64, target: &MetricTarget) -> Result<(Proposal, MetricValueStatus), String> {
        let requests = BTreeMap::new();
        let question = self.question(&requests, false);
        if let Some(goal) = &target.average_value {
            let proposal = of_share(&question, value, milli(goal)?, self.actual);
            return Ok((proposal, average(proposal.milli)));
        }
        let goal =
            target.value.as_ref().ok_or("neither a value target nor an average value target was set")?;
        let proposal = of_value(&question, value, milli(goal)?)?;
        let value = Some(resource::Quantity(quantity_of(proposal.milli, false)));
        Ok((proposal, MetricValueStatus { value, ..Default::default() }))
    }

    /// The resource of a kind, with its group.
    async fn plural(&self, version: &str, kind: &str) -> Result<String, String> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let plural = match resources::by_kind(group, version, kind) {
            Some(resource) => resource.plural.to_string(),
            None => {
                let kind = GroupVersionKind::gvk(group, version, kind);
                let found = kube::discovery::pinned_kind(self.client, &kind).await;
                found.map_err(|error| said(&error))?.0.plural
            }
        };
        Ok(if group.is_empty() { plural } else { format!("{plural}.{group}") })
    }
}

fn milli(quantity: &resource::Quantity) -> Result<i64, String> {
    let parsed = quantity.0.parse::<Quantity>().map_err(|_| format!("{} is no quantity", quantity.0))?;
    i64::try_from(parsed.milli()).map_err(|_| format!("{} is too much", quantity.0))
}

fn average(milli: i64) -> MetricValueStatus {
    let average_value = Some(resource::Quantity(quantity_of(milli, false)));
    MetricValueStatus { average_value, ..Default::default() }
}

/// Thousandths as people write them; bytes in whole.
fn quantity_of(milli: i64, bytes: bool) -> String {
    if bytes {
        Quantity::from_bytes(u64::try_from(milli / 1000).unwrap_or_default()).to_string()
    } else {
        Quantity::from_milli(i128::from(milli)).to_string()
    }
}

/// The selector of a metric as a query.
fn selector_of(metric: &MetricIdentifier) -> String {
    metric.selector.as_ref().and_then(selector).map(|s| s.to_string()).unwrap_or_default()
}

/// What each Pod requests of a resource, or one container of each, thousandths.
fn requests(
    pods: &[Arc<Pod>],
    resource: &str,
    container: Option<&str>,
) -> Result<BTreeMap<String, i64>, String> {
    pods.iter().map(|pod| Ok((pod.name_any(), request(pod, resource, container)?))).collect()
}

fn request(pod: &Pod, resource: &str, container: Option<&str>) -> Result<i64, String> {
    let Some(spec) = &pod.spec else { return Ok(0) };
    let name = pod.name_any();
    let of_pod = spec.resources.as_ref().and_then(|r| r.requests.as_ref());
    if let Some(of_pod) = of_pod.filter(|r| container.is_none() && !r.is_empty()) {
        let missing = || format!("missing pod-level request for {resource} in Pod {name}");
        return milli(of_pod.get(resource).ok_or_else(missing)?);
    }
    let sidecar = |c: &&Container| c.restart_policy.as_deref() == Some("Always");
    let sidecars = spec.init_containers.iter().flatten().filter(sidecar);
    let all =
        spec.containers.iter().chain(sidecars).filter(|c| container.is_none_or(|wanted| wanted == c.name));
    let one = |c: &Container| {
        let requested = c.resources.as_ref().and_then(|r| r.requests.as_ref()?.get(resource));
        let missing = || format!("missing request for {resource} in container {} of Pod {name}", c.name);
        milli(requested.ok_or_else(missing)?)
    };
    let found: Vec<i64> = all.map(one).collect::<Result<_, _>>()?;
    match container {
        Some(wanted) if found.is_empty() => Err(format!("container {wanted} not found in Pod {name}")),
        _ => Ok(found.into_iter().sum()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pod_requests_what_its_containers_and_sidecars_do() {
        let container = |name: &str, cpu: Option<&str>| json!({"name": name, "resources": {"requests": {"cpu": cpu.unwrap_or("0"), "memory": "1Ki"}}});
        let with = |containers: Value, init: Value| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": containers, "initContainers": init}})).unwrap()
        };
        let mut sidecar = container("s", Some("50m"));
        sidecar["restartPolicy"] = "Always".into();
        let pod = with(
            json!([container("a", Some("100m")), container("b", Some("1"))]),
            json!([container("i", Some("9")), sidecar]),
        );
        assert_eq!(request(&pod, "cpu", None), Ok(1150));
        assert_eq!(request(&pod, "cpu", Some("b")), Ok(1000));
        assert_eq!(request(&pod, "cpu", Some("z")).unwrap_err(), "container z not found in Pod p");
        let none = with(json!([{"name": "a"}]), Value::Null);
        assert_eq!(
            request(&none, "cpu", None).unwrap_err(),
            "missing request for cpu in container a of Pod p"
        );
    }

    #[test]
    fn values_are_written_as_people_do() {
        assert_eq!([quantity_of(150, false), quantity_of(2000, false)], ["150m", "2"]);
        assert_eq!(quantity_of(2 * 1024 * 1024 * 1000, true), "2Mi");
        assert_eq!(milli(&resource::Quantity("1.5".into())), Ok(1500));
    }
}
