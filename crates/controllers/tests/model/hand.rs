//! Requests of users, kubelets and the scheduler, on whose way nothing goes wrong.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use trine_apiserver::http::serve::InProcess;

/// What is refused: the code, and what was said.
pub type Refused = (u16, String);

/// A way to the API server for everything.
#[derive(Clone)]
pub struct Hand {
    server: InProcess,
}

impl Hand {
    /// By this way.
    pub fn new(server: InProcess) -> Self {
        Self { server }
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        form: &str,
        body: Option<&Value>,
    ) -> Result<Value, Refused> {
        let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", form)
            .header("accept", "application/json")
            .body(Full::new(bytes))
            .unwrap();
        let Ok(answer) = tower::Service::call(&mut self.server.clone(), request).await;
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if code < 300 {
            Ok(value)
        } else {
            Err((code, value["message"].as_str().unwrap_or_default().to_owned()))
        }
    }

    /// Makes something.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, Refused> {
        self.send("POST", path, "application/json", Some(body)).await
    }

    /// Changes something by a merge patch.
    pub async fn merge(&self, path: &str, body: &Value) -> Result<Value, Refused> {
        self.send("PATCH", path, "application/merge-patch+json", Some(body)).await
    }

    /// Changes something by a strategic patch.
    pub async fn strategic(&self, path: &str, body: &Value) -> Result<Value, Refused> {
        self.send("PATCH", path, "application/strategic-merge-patch+json", Some(body)).await
    }

    /// Removes something.
    pub async fn delete(&self, path: &str, options: &Value) -> Result<Value, Refused> {
        self.send("DELETE", path, "application/json", Some(options)).await
    }
}
