//! Objects between the version in which they are stored and the one that was asked for, where a webhook may have to say how.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use trine_store::Object;
use trine_store::cache::Decoded;

use crate::catalog::Served;
use crate::registry::{Registry, text};
use crate::status::ApiError;
use crate::verbs::update::parse;

impl Served {
    /// A stored object as this resource shows it.
    ///
    /// # Errors
    /// [`ApiError::Failed`] if a webhook does not convert it.
    pub async fn show(&self, registry: &Registry, object: &mut Value) -> Result<(), ApiError> {
        if let Some(converter) = self.converter()
            && self.is_other_version(object)
        {
            let given = vec![std::mem::take(object)];
            let converted = converter.convert(registry, given, &self.api_version()).await?;
            *object = converted.into_iter().next().unwrap_or_default();
        }
        self.from_stored(object);
        Ok(())
    }

    /// What was written, as far as a webhook has to convert it.
    ///
    /// # Errors
    /// [`ApiError::Failed`] if it does not.
    pub async fn show_written(&self, registry: &Registry, object: &mut Value) -> Result<(), ApiError> {
        if self.converter().is_none() { Ok(()) } else { self.show(registry, object).await }
    }

    /// An object of this resource as it is stored.
    ///
    /// # Errors
    /// [`ApiError::Failed`] if a webhook does not convert it.
    pub async fn store(self: &Arc<Self>, registry: &Registry, object: &mut Value) -> Result<(), ApiError> {
        if self.converter().is_some() && self.is_converted() {
            return self.stored().show(registry, object).await;
        }
        self.to_stored(object);
        Ok(())
    }

    /// Whether a custom object was stored in another version, as before its definition chose a new one.
    #[must_use]
    pub fn is_other_version(&self, object: &Value) -> bool {
        let version = text(&object["apiVersion"]);
        self.custom().is_some() && !version.is_empty() && version != self.api_version()
    }

    /// Stored objects as this resource shows them, as far as a webhook has to convert them; all in one call.
    ///
    /// # Errors
    /// [`ApiError::Failed`] if it does not.
    pub async fn show_all(
        &self,
        registry: &Registry,
        objects: Vec<Arc<Object>>,
    ) -> Result<Vec<Arc<Object>>, ApiError> {
        let Some(converter) = self.converter() else { return Ok(objects) };
        let own = format!("{{\"apiVersion\":{}", Value::from(self.api_version()));
        if objects.iter().all(|o| o.json().starts_with(own.as_bytes())) {
            return Ok(objects);
        }
        let values = objects.iter().map(|o| parse(o.json())).collect::<Result<Vec<_>, _>>()?;
        let converted = converter.convert(registry, values, &self.api_version()).await?;
        let with = |(object, value): (Arc<Object>, Value)| {
            let decoded = Decoded { json: Bytes::from(value.to_string()), ..object.decoded.clone() };
            Arc::new(Object { key: Arc::clone(&object.key), revision: object.revision, decoded })
        };
        Ok(objects.into_iter().zip(converted).map(with).collect())
    }

    /// The same of one object.
    ///
    /// # Errors
    /// [`ApiError::Failed`] if it is not converted.
    pub async fn show_one(&self, registry: &Registry, object: Arc<Object>) -> Result<Arc<Object>, ApiError> {
        if self.converter().is_none() {
            return Ok(object);
        }
        let shown = self.show_all(registry, vec![Arc::clone(&object)]).await?;
        Ok(shown.into_iter().next().unwrap_or(object))
    }
}
