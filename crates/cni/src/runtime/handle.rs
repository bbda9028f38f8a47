//! The asynchronous face. An operation runs to its end on a thread that may block, also if nobody waits for it any
//! more, and holds its turn until then.

use std::sync::Arc;

use tracing::Span;

use super::engine::{Attached, Attachment, Engine, NetworkStatus, RuntimeOptions};
use super::order::Order;
use crate::spec::{AttachmentId, CniError, Code};

/// Attaches sandboxes to the network of a configuration folder. Clones share everything.
#[derive(Debug, Clone)]
pub struct Runtime {
    engine: Arc<Engine>,
    order: Arc<Order>,
}

/// The span of an operation on an attachment.
fn step(call: &'static str, attachment: &Attachment) -> Span {
    let pod = attachment
        .arg("K8S_POD_NAMESPACE")
        .zip(attachment.arg("K8S_POD_NAME"))
        .map(|(namespace, name)| format!("{namespace}/{name}"));
    let uid = attachment.arg("K8S_POD_UID");
    let sandbox = attachment.container_id.as_str();
    macro_rules! span {
        ($name:literal) => {
            tracing::info_span!(
                target: "trine::step", $name, plane = "cni", sandbox, pod, pod_uid = uid,
                detail = tracing::field::Empty, error = tracing::field::Empty
            )
        };
    }
    match call {
        "ADD" => span!("ADD"),
        "DEL" => span!("DEL"),
        _ => span!("CHECK"),
    }
}

impl Runtime {
    /// A runtime with `options`. Nothing is read or made yet.
    #[must_use]
    pub fn new(options: RuntimeOptions) -> Self {
        Self { engine: Arc::new(Engine::new(options)), order: Arc::default() }
    }

    /// Would ADD work? Says which network it would use, and which files cannot be used.
    ///
    /// # Errors
    /// Why not: no valid configuration, a plugin that is missing or says so.
    pub async fn status(&self) -> Result<NetworkStatus, CniError> {
        let span = tracing::debug_span!("STATUS", plane = "cni", error = tracing::field::Empty);
        self.blocking(span, (), Engine::status).await
    }

    /// Would ADD of this attachment work?
    ///
    /// # Errors
    /// Why not.
    pub async fn status_of(&self, attachment: &Attachment) -> Result<(), CniError> {
        let span = tracing::debug_span!("STATUS", plane = "cni", error = tracing::field::Empty);
        let attachment = attachment.clone();
        self.blocking(span, (), move |engine| engine.status_of(&attachment)).await
    }

    /// Attaches a sandbox: its loopback, then the network.
    ///
    /// # Errors
    /// The plugin's code and words. DEL has been called already, but calling it again does no harm.
    pub async fn add(&self, attachment: &Attachment) -> Result<Attached, CniError> {
        let span = step("ADD", attachment);
        let turn = self.order.container(&attachment.container_id).await?;
        let attachment = attachment.clone();
        self.blocking(span.clone(), turn, move |engine| {
            let attached = engine.add(&attachment)?;
            let ips: Vec<_> = attached.ips.iter().map(|(ip, _)| ip.to_string()).collect();
            span.record("detail", format!("{} {}", attached.network, ips.join(" ")));
            Ok(attached)
        })
        .await
    }

    /// Detaches a sandbox; never attached, half attached, already detached and without a namespace are all fine.
    ///
    /// # Errors
    /// All errors of all plugins. It may be called again.
    pub async fn del(&self, attachment: &Attachment) -> Result<(), CniError> {
        let turn = self.order.container(&attachment.container_id).await?;
        let span = step("DEL", attachment);
        let attachment = attachment.clone();
        self.blocking(span, turn, move |engine| engine.del(&attachment)).await
    }

    /// Checks that an attachment is as it was made.
    ///
    /// # Errors
    /// What is not.
    pub async fn check(&self, attachment: &Attachment) -> Result<(), CniError> {
        let turn = self.order.container(&attachment.container_id).await?;
        let span = step("CHECK", attachment);
        let attachment = attachment.clone();
        self.blocking(span, turn, move |engine| engine.check(&attachment)).await
    }

    /// Detaches whatever is not in `valid`, alone. An empty list means everything.
    ///
    /// # Errors
    /// All errors of all plugins; it goes on after each.
    pub async fn gc(&self, valid: &[AttachmentId]) -> Result<(), CniError> {
        let turn = self.order.alone().await?;
        let span = tracing::info_span!(
            target: "trine::step", "GC", plane = "cni", detail = valid.len(), error = tracing::field::Empty
        );
        let valid = valid.to_vec();
        self.blocking(span, turn, move |engine| engine.gc(&valid)).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        span: Span,
        turn: impl Send + 'static,
        work: impl FnOnce(&Engine) -> Result<T, CniError> + Send + 'static,
    ) -> Result<T, CniError> {
        let engine = Arc::clone(&self.engine);
        let inner = span.clone();
        let joined = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            inner.in_scope(|| work(&engine))
        })
        .await;
        let result = joined
            .unwrap_or_else(|e| Err(CniError::new(Code::Internal, "the operation was cut off").because(e)));
        if let Err(error) = &result {
            span.record("error", error.chain());
        }
        result
    }
}
