//! Which store the API server has: `--store redb`, or `--store etcd=URL,...` with the files that its TLS needs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use trine_store::Store;
use trine_store::etcd::{EtcdStore, Settings};
use trine_store::redb::{Limits, RedbStore};

use crate::layout::Layout;

/// Words about the store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct StoreArgs {
    /// redb (in the data dir), or etcd=URL,... (3.5 or newer; several servers may share one)
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// The authority of etcd's certificates, PEM
    #[arg(long, value_name = "FILE")]
    pub etcd_cafile: Option<PathBuf>,
    /// The certificate shown to etcd, PEM
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile")]
    pub etcd_certfile: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    pub etcd_keyfile: Option<PathBuf>,
    /// Put before all keys in etcd [default: /trine]
    #[arg(long, value_name = "PREFIX")]
    pub etcd_prefix: Option<String>,
}

impl StoreArgs {
    /// Opens the store.
    ///
    /// # Errors
    /// If the words mean nothing, or the store cannot be opened or does not answer.
    pub async fn open(&self, layout: &Layout) -> anyhow::Result<Arc<dyn Store>> {
        let Some(settings) = self.etcd()? else {
            let store = RedbStore::open(&layout.store(), Limits::default())
                .with_context(|| format!("cannot open the store {}", layout.store().display()))?;
            return Ok(Arc::new(store));
        };
        let urls = settings.endpoints.join(",");
        let store =
            EtcdStore::connect(settings).await.with_context(|| format!("cannot use etcd at {urls}"))?;
        Ok(Arc::new(store))
    }

    /// Whether the data is in the data dir.
    #[must_use]
    pub fn embedded(&self) -> bool {
        self.store.as_deref().is_none_or(|s| s == "redb")
    }

    fn etcd(&self) -> anyhow::Result<Option<Settings>> {
        if self.embedded() {
            return Ok(None);
        }
        let words = self.store.as_deref().unwrap_or_default();
        let urls = words.strip_prefix("etcd=").filter(|u| !u.is_empty());
        let urls = urls.with_context(|| format!("--store {words:?} is neither redb nor etcd=URL,..."))?;
        let read =
            |path: &PathBuf| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        let mut settings = Settings::new(urls);
        settings.ca_pem = self.etcd_cafile.as_ref().map(read).transpose()?;
        if let (Some(certificate), Some(key)) = (&self.etcd_certfile, &self.etcd_keyfile) {
            settings.identity_pem = Some((read(certificate)?, read(key)?));
        }
        if let Some(prefix) = &self.etcd_prefix {
            settings.prefix = format!("/{}", prefix.trim_matches('/'));
        }
        Ok(Some(settings))
    }

    /// The same words, for another process.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        let absolute =
            |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone()).into_os_string();
        let pairs = [
            ("--store", self.store.as_ref().map(OsString::from)),
            ("--etcd-cafile", self.etcd_cafile.as_ref().map(absolute)),
            ("--etcd-certfile", self.etcd_certfile.as_ref().map(absolute)),
            ("--etcd-keyfile", self.etcd_keyfile.as_ref().map(absolute)),
            ("--etcd-prefix", self.etcd_prefix.as_ref().map(OsString::from)),
        ];
        pairs.into_iter().filter_map(|(word, value)| Some([word.into(), value?])).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_name_a_store() {
        let args = |store: &str| StoreArgs { store: Some(store.to_owned()), ..StoreArgs::default() };
        assert!(StoreArgs::default().embedded() && args("redb").embedded());
        let etcd = StoreArgs { etcd_prefix: Some("a/".to_owned()), ..args("etcd=http://a:1,http://b:2") };
        let settings = etcd.etcd().unwrap().unwrap();
        assert_eq!((settings.endpoints.len(), settings.prefix.as_str()), (2, "/a"));
        assert_eq!(etcd.words(), ["--store", "etcd=http://a:1,http://b:2", "--etcd-prefix", "a/"]);
        for wrong in ["etcd=", "sqlite", "etcd"] {
            assert!(args(wrong).etcd().is_err(), "{wrong}");
        }
    }
}
