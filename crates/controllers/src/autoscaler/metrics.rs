//! What was measured, asked from the APIs that other servers serve: `metrics.k8s.io`, `custom.metrics.k8s.io` and
//! `external.metrics.k8s.io`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use trine_objects::quantity;
use trine_typed::k8s_openapi::jiff::{SignedDuration, Timestamp};
use trine_typed::kube::{Client, Error};

use super::replicas::Sample;
use crate::workload::pods::said;

/// The window of a measurement that does not say it. Upstream: 1 min.
const WINDOW: Duration = Duration::from_secs(60);

/// Where measurements are asked.
pub(super) struct Metrics {
    pub client: Client,
}

impl Metrics {
    async fn get(&self, path: &str) -> Result<Value, Error> {
        let request = http_request(path)?;
        self.client.request(request).await
    }

    /// A resource of the Pods that are selected, or of one of their containers.
    ///
    /// # Errors
    /// Why it is not known, in upstream's words.
    pub async fn resource(
        &self,
        namespace: &str,
        selector: &str,
        resource: &str,
        container: Option<&str>,
    ) -> Result<BTreeMap<String, Sample>, String> {
        let path = format!(
            "/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods?labelSelector={}",
            encoded(selector)
        );
        let unable = |why: String| format!("unable to get metrics for resource {resource}: {why}");
        let found = self.get(&path).await.map_err(|error| {
            let why = match &error {
                Error::Api(status) if status.code == 404 => {
                    "the server could not find the requested resource (get pods.metrics.k8s.io)".to_owned()
                }
                error => said(error),
            };
            unable(format!("unable to fetch metrics from resource metrics API: {why}"))
        })?;
        let samples = of_pods(&found, resource, container).map_err(&unable)?;
        if samples.is_empty() {
            return Err(unable("no metrics returned from resource metrics API".to_owned()));
        }
        Ok(samples)
    }

    /// A metric of the Pods that are selected.
    ///
    /// # Errors
    /// Why it is not known.
    pub async fn pods(
        &self,
        namespace: &str,
        selector: &str,
        metric: &str,
        metric_selector: &str,
    ) -> Result<BTreeMap<String, Sample>, String> {
        let path = format!(
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/pods/*/{}?labelSelector={}&metricLabelSelector={}",
            encoded(metric),
            encoded(selector),
            encoded(metric_selector)
        );
        let found = self.get(&path).await.map_err(|error| {
            format!(
                "unable to get metric {metric}: unable to fetch metrics from custom metrics API: {}",
                said(&error)
            )
        })?;
        let samples = values(&found).filter_map(|(object, sample)| Some((object?, sample))).collect();
        Ok(samples)
    }

    /// A metric of one object, thousandths.
    ///
    /// # Errors
    /// Why it is not known.
    pub async fn object(
        &self,
        namespace: &str,
        (resource, name): (&str, &str),
        metric: &str,
        metric_selector: &str,
    ) -> Result<i64, String> {
        let object = format!("{}/{}", encoded(resource), encoded(name));
        let object = match resource {
            "namespaces" => format!("namespaces/{}/metrics", encoded(name)),
            _ => format!("namespaces/{namespace}/{object}"),
        };
        let path = format!(
            "/apis/custom.metrics.k8s.io/v1beta2/{object}/{}?metricLabelSelector={}",
            encoded(metric),
            encoded(metric_selector)
        );
        let unable =
            |why: &str| format!("unable to get metric {metric} on {resource} {namespace}/{name}: {why}");
        let found = self.get(&path).await.map_err(|error| {
            unable(&format!("unable to fetch metrics from custom metrics API: {}", said(&error)))
        })?;
        let first = values(&found).next();
        first.map(|(_, sample)| sample.milli).ok_or_else(|| unable("no metrics returned"))
    }

    /// The sum of a metric of the outside world, thousandths.
    ///
    /// # Errors
    /// Why it is not known.
    pub async fn external(&self, namespace: &str, metric: &str, selector: &str) -> Result<i64, String> {
        let path = format!(
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{}?labelSelector={}",
            encoded(metric),
            encoded(selector)
        );
        let unable = |why: &str| format!("unable to get external metric {namespace}/{metric}: {why}");
        let found = self.get(&path).await.map_err(|error| {
            unable(&format!("unable to fetch metrics from external metrics API: {}", said(&error)))
        })?;
        let all: Vec<i64> = values(&found).map(|(_, sample)| sample.milli).collect();
        if all.is_empty() {
            return Err(unable("no metrics returned from external metrics API"));
        }
        Ok(all.into_iter().fold(0, i64::saturating_add))
    }
}

fn http_request(path: &str) -> Result<http::Request<Vec<u8>>, Error> {
    http::Request::get(path).body(Vec::new()).map_err(Error::HttpError)
}

/// As it may stand in a path or a query.
fn encoded(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

fn milli(value: &Value) -> Option<i64> {
    i64::try_from(quantity::from_value(value).ok()?.milli()).ok()
}

fn taken(value: &Value) -> (Timestamp, Duration) {
    let at = value["timestamp"].as_str().and_then(|t| t.parse().ok()).unwrap_or(Timestamp::UNIX_EPOCH);
    let window = value["window"].as_str().and_then(|w| w.parse::<SignedDuration>().ok());
    let seconds = value["windowSeconds"].as_u64().map(Duration::from_secs);
    (at, window.and_then(|w| Duration::try_from(w).ok()).or(seconds).unwrap_or(WINDOW))
}

/// The samples of a `PodMetricsList`. A Pod of which a container is missing is left out.
fn of_pods(
    list: &Value,
    resource: &str,
    container: Option<&str>,
) -> Result<BTreeMap<String, Sample>, String> {
    let mut samples = BTreeMap::new();
    for pod in list["items"].as_array().into_iter().flatten() {
        let (at, window) = taken(pod);
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let containers = pod["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let usage = |c: &Value| milli(&c["usage"][resource]);
        let sum = match container {
            Some(wanted) => {
                let one = containers.iter().find(|c| c["name"] == wanted);
                Some(one.and_then(usage).ok_or_else(|| {
                    let pod = format!("{}/{name}", pod["metadata"]["namespace"].as_str().unwrap_or_default());
                    format!("container {wanted} not present in metrics for pod {pod}")
                })?)
            }
            None => containers.iter().map(usage).sum(),
        };
        if let Some(milli) = sum.filter(|_| !containers.is_empty()) {
            samples.insert(name.to_owned(), Sample { milli, at, window });
        }
    }
    Ok(samples)
}

/// The values of a `MetricValueList` or an `ExternalMetricValueList`, with the names of their objects if they have any.
fn values(list: &Value) -> impl Iterator<Item = (Option<String>, Sample)> {
    list["items"].as_array().into_iter().flatten().filter_map(|item| {
        let (at, window) = taken(item);
        let name = item["describedObject"]["name"].as_str().map(str::to_owned);
        Some((name, Sample { milli: milli(&item["value"])?, at, window }))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_usage_of_a_pod_is_that_of_its_containers() {
        let container = |name: &str, cpu: &str| json!({"name": name, "usage": {"cpu": cpu, "memory": "1Ki"}});
        let list = json!({"items": [
            {"metadata": {"name": "a"}, "timestamp": "2026-01-01T00:00:00Z", "window": "15s", "containers": [container("x", "100m"), container("y", "2")]},
            {"metadata": {"name": "b"}, "containers": [{"name": "x", "usage": {}}]}]});
        let found = of_pods(&list, "cpu", None).unwrap();
        let expected = Sample {
            milli: 2100,
            at: "2026-01-01T00:00:00Z".parse().unwrap(),
            window: Duration::from_secs(15),
        };
        assert_eq!(found, BTreeMap::from([("a".to_owned(), expected)]));
        assert_eq!(
            of_pods(&list, "memory", Some("y")).unwrap_err(),
            "container y not present in metrics for pod /b"
        );
    }

    #[test]
    fn what_stands_in_a_query_is_encoded() {
        assert_eq!(encoded("app in (a,b),c!=d"), "app%20in%20%28a%2Cb%29%2Cc%21%3Dd");
    }
}
