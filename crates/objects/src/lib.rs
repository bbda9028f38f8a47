//! What is a Kubernetes object?
