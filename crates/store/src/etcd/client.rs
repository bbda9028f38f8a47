//! The calls, each with a deadline.

use super::wire::{
    CompactionRequest, CompactionResponse, LeaseGrantRequest, LeaseGrantResponse, RangeRequest,
    RangeResponse, TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};
use crate::store::StoreError;
use std::sync::Arc;
use std::time::Duration;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// How long a call may take. Upstream's API server: 10 s.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long a connection may take.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// A silent connection is asked whether it lives.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_DEADLINE: Duration = Duration::from_secs(10);
/// Largest answer that is read: a page of the largest objects.
const LARGEST: usize = 256 << 20;

/// An etcd cluster. Clones share its connections.
#[derive(Clone)]
pub struct Client(Channel);

impl Client {
    /// Spreads calls over the endpoints and connects again by itself.
    pub fn new(endpoints: impl Iterator<Item = Endpoint>) -> Self {
        let endpoints = endpoints.map(|e| {
            e.connect_timeout(CONNECT_DEADLINE)
                .http2_keep_alive_interval(KEEPALIVE)
                .keep_alive_timeout(KEEPALIVE_DEADLINE)
                .keep_alive_while_idle(true)
                .tcp_nodelay(true)
        });
        Self(Channel::balance_list(endpoints))
    }

    async fn grpc(&self) -> Result<Grpc<Channel>, Status> {
        let mut grpc = Grpc::new(self.0.clone()).max_decoding_message_size(LARGEST);
        grpc.ready().await.map_err(|e| Status::unavailable(e.to_string()))?;
        Ok(grpc)
    }

    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: prost::Message + Default + 'static,
        A: prost::Message + Default + 'static,
    {
        let call = async {
            let codec: ProstCodec<Q, A> = ProstCodec::default();
            let path = PathAndQuery::from_static(path);
            Ok(self.grpc().await?.unary(Request::new(request), path, codec).await?.into_inner())
        };
        let late = || Status::deadline_exceeded(format!("no answer within {} s", DEADLINE.as_secs()));
        tokio::time::timeout(DEADLINE, call).await.unwrap_or_else(|_| Err(late()))
    }

    pub async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        self.call("/etcdserverpb.KV/Range", request).await
    }

    pub async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Status> {
        self.call("/etcdserverpb.KV/Txn", request).await
    }

    pub async fn compact(&self, request: CompactionRequest) -> Result<CompactionResponse, Status> {
        self.call("/etcdserverpb.KV/Compact", request).await
    }

    pub async fn grant(&self, request: LeaseGrantRequest) -> Result<LeaseGrantResponse, Status> {
        self.call("/etcdserverpb.Lease/LeaseGrant", request).await
    }

    /// Opens a stream of watch requests and answers.
    pub async fn watch(
        &self,
        requests: tokio_stream::wrappers::UnboundedReceiverStream<WatchRequest>,
    ) -> Result<Streaming<WatchResponse>, Status> {
        let open = async {
            let codec: ProstCodec<WatchRequest, WatchResponse> = ProstCodec::default();
            let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
            Ok(self.grpc().await?.streaming(Request::new(requests), path, codec).await?.into_inner())
        };
        let late = || Status::deadline_exceeded("no watch stream in time");
        tokio::time::timeout(DEADLINE, open).await.unwrap_or_else(|_| Err(late()))
    }
}

/// The store's error of a call.
pub fn failed(call: &'static str) -> impl FnOnce(Status) -> StoreError {
    move |status| StoreError::Engine { call, source: Arc::new(status) }
}

/// Whether etcd says that a revision is compacted.
pub fn compacted(status: &Status) -> bool {
    status.code() == Code::OutOfRange && status.message().contains("compacted")
}
