//! `/containerLogs/{namespace}/{pod}/{container}`.

use std::collections::HashMap;
use std::io;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use trine_typed::k8s_openapi::api::core::v1::Pod;

use super::log_line::Options;
use super::log_reader::Reader;
use super::server::Server;
use crate::pod::spec;
use crate::runtime::{ContainerView, RunState, Runtime};

/// Chunks that wait for a slow reader.
const CHUNKS: usize = 16;

/// Reads the query.
///
/// # Errors
/// The name of the parameter that makes no sense.
pub fn options(query: &HashMap<String, String>, now: Timestamp) -> Result<Options, String> {
    let flag = |name: &str| matches!(query.get(name).map(String::as_str), Some("true" | "1"));
    let number = |name: &str| match query.get(name).filter(|v| !v.is_empty()) {
        Some(text) => text.parse::<usize>().map(Some).map_err(|_| name.to_owned()),
        None => Ok(None),
    };
    let since = match (number("sinceSeconds")?, query.get("sinceTime").filter(|v| !v.is_empty())) {
        (Some(seconds), _) => {
            let seconds = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
            Some(now.checked_sub(seconds).map_err(|_| "sinceSeconds".to_owned())?)
        }
        (None, Some(text)) => Some(text.parse().map_err(|_| "sinceTime".to_owned())?),
        (None, None) => None,
    };
    let stream = query.get("stream").map(|s| s.to_lowercase()).filter(|s| s == "stdout" || s == "stderr");
    Ok(Options {
        follow: flag("follow"),
        previous: flag("previous"),
        tail: number("tailLines")?,
        since,
        timestamps: flag("timestamps"),
        limit: number("limitBytes")?,
        stream,
    })
}

/// The log, as it comes.
pub async fn logs(
    State(server): State<Server>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let refuse = |status: StatusCode, text: String| (status, text).into_response();
    let options = match options(&query, Timestamp::now()) {
        Ok(options) => options,
        Err(name) => return refuse(StatusCode::BAD_REQUEST, format!("invalid value of {name}")),
    };
    let Some(found) = server.pods.get(&namespace, &pod) else {
        return refuse(StatusCode::NOT_FOUND, format!("pod {pod:?} does not exist on this node"));
    };
    if spec::find(&found, &container).is_none() {
        let text = format!("container {container:?} not found in pod {pod:?}");
        return refuse(StatusCode::BAD_REQUEST, text);
    }
    let view = match view(&server.runtime, &found, &container, options.previous).await {
        Ok(view) => view,
        Err((status, text)) => return refuse(status, text),
    };
    let reader = match Reader::open(std::path::Path::new(&view.log_path), options) {
        Ok(reader) => reader,
        // Started, but nothing written yet: an empty log.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Body::empty().into_response(),
        Err(e) => return refuse(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot read the log: {e}")),
    };
    let (sender, receiver) = mpsc::channel(CHUNKS);
    let (runtime, id) = (server.runtime.clone(), view.id.clone());
    tokio::spawn(async move {
        let ended = || async {
            match runtime.container_status(&id).await {
                Ok(Some(status)) => crate::runtime::observed::run_state(status.state) != RunState::Running,
                Ok(None) => true,
                Err(_) => false,
            }
        };
        reader.send(sender, ended).await;
    });
    let headers = [(http::header::CONTENT_TYPE, "text/plain")];
    (headers, Body::from_stream(ReceiverStream::new(receiver))).into_response()
}

async fn view(
    runtime: &Runtime,
    pod: &Pod,
    container: &str,
    previous: bool,
) -> Result<ContainerView, (StatusCode, String)> {
    let observed = runtime
        .observe(spec::uid(pod))
        .await
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.chain()))?;
    let name = spec::name(pod);
    let latest = observed.latest(container).filter(|v| v.state != RunState::Created);
    // While the newest one waits for its start, its predecessor is the latest that has a log.
    let current = latest.or_else(|| observed.previous(container));
    let wanted = if previous {
        observed.containers.iter().filter(|c| c.name == container && c.state == RunState::Exited).find(|c| {
            let newest = observed.latest(container).map(|l| l.id.as_str());
            newest != Some(c.id.as_str()) || waits_for_restart(pod, container)
        })
    } else {
        current
    };
    wanted.cloned().ok_or_else(|| {
        let text = if previous {
            format!("previous terminated container {container:?} in pod {name:?} not found")
        } else {
            let reason = waiting_reason(pod, container).unwrap_or_else(|| "ContainerCreating".to_owned());
            format!("container {container:?} in pod {name:?} is waiting to start: {reason}")
        };
        (StatusCode::BAD_REQUEST, text)
    })
}

fn waits_for_restart(pod: &Pod, container: &str) -> bool {
    waiting_reason(pod, container).is_some()
}

fn waiting_reason(pod: &Pod, container: &str) -> Option<String> {
    let status = pod.status.as_ref()?;
    let lists = [status.container_statuses.as_ref(), status.init_container_statuses.as_ref()];
    let found = lists.into_iter().flatten().flatten().find(|c| c.name == container)?;
    found.state.as_ref()?.waiting.as_ref()?.reason.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_is_read_or_refused_by_name() {
        let query = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<HashMap<_, _>>()
        };
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let got = options(
            &query(&[
                ("follow", "true"),
                ("tailLines", "3"),
                ("sinceSeconds", "60"),
                ("timestamps", "1"),
                ("limitBytes", "9"),
            ]),
            now,
        )
        .unwrap();
        assert!(got.follow && got.timestamps && !got.previous);
        assert_eq!((got.tail, got.limit), (Some(3), Some(9)));
        assert_eq!(got.since, Some("2026-01-01T00:00:00Z".parse().unwrap()));
        assert_eq!(options(&query(&[("tailLines", "x")]), now).unwrap_err(), "tailLines");
        assert_eq!(options(&query(&[("sinceTime", "x")]), now).unwrap_err(), "sinceTime");
    }
}
