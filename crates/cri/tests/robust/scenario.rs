//! Each call that changes something: what it needs, how it is made, what holds afterwards, and how its traces go.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tonic::Status;
use trine_contracts::cri::*;
use trine_contracts::networks::attachments::ANNOTATION;

use crate::harness::{Node, script};
use crate::registry::Registry;

/// The uid of all Pods of these tests: they are attempts of one Pod, so that they share its group.
const UID: &str = "uid-of-all";

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    RunPodSandbox,
    StopPodSandbox,
    RemovePodSandbox,
    CreateContainer,
    StartContainer,
    StopContainer,
    RemoveContainer,
    UpdateContainerResources,
    ReopenContainerLog,
    ExecSync,
    PullImage,
    RemoveImage,
}

/// What a call is about.
pub struct Subject {
    pub pod_config: PodSandboxConfig,
    pub config: ContainerConfig,
    pub pod: String,
    pub id: String,
    pub image: String,
}

/// Set by a test whose Pods have a network beside the default one. Each such test is a process of its own.
pub static ON_TWO_NETWORKS: AtomicBool = AtomicBool::new(false);

/// An attempt of the Pod, on the network of its own or on the host's.
pub fn attempt(node: &Node, attempt: u32, own_network: bool) -> PodSandboxConfig {
    let mut config = node.pod("pod");
    config.metadata =
        config.metadata.map(|metadata| PodSandboxMetadata { uid: UID.into(), attempt, ..metadata });
    config.log_directory = node.logs().join(format!("attempt-{attempt}")).to_string_lossy().into_owned();
    if own_network {
        config.linux = None;
        let port = |host_port| PortMapping { container_port: 80, host_port, ..Default::default() };
        config.port_mappings = vec![port(12_000 + i32::try_from(attempt).unwrap())];
        if ON_TWO_NETWORKS.load(Ordering::Relaxed) {
            let ipam = json!({"type": "host-local", "subnet": "10.79.0.0/24",
                "dataDir": node.config.cni_state_dir.join("networks")});
            let other =
                json!({"cniVersion": "1.1.0", "name": "other", "plugins": [{"type": "ptp", "ipam": ipam}]});
            let networks =
                json!({"networks": [{"name": "default/other", "interface": "net1", "config": other}]});
            config.annotations.insert(ANNOTATION.to_owned(), networks.to_string());
        }
    }
    config
}

/// The same by the image's id, as a kubelet asks. A name takes half a second to read in a fresh process that is not optimised.
fn by_id(node: &Node, config: ContainerConfig) -> ContainerConfig {
    let image = Some(ImageSpec { image: node.image_id.clone(), ..Default::default() });
    ContainerConfig { image, ..config }
}

impl Call {
    /// Every call.
    pub const ALL: [Self; 12] = [
        Self::RunPodSandbox,
        Self::StopPodSandbox,
        Self::RemovePodSandbox,
        Self::CreateContainer,
        Self::StartContainer,
        Self::StopContainer,
        Self::RemoveContainer,
        Self::UpdateContainerResources,
        Self::ReopenContainerLog,
        Self::ExecSync,
        Self::PullImage,
        Self::RemoveImage,
    ];

    /// Pods with a network are slower to make: they are for the calls about Pods.
    fn about_pods(self) -> bool {
        matches!(self, Self::RunPodSandbox | Self::StopPodSandbox | Self::RemovePodSandbox)
    }

    fn about_images(self) -> bool {
        matches!(self, Self::PullImage | Self::RemoveImage)
    }

    /// True if what it makes is found in a list.
    pub fn makes(self) -> bool {
        matches!(self, Self::RunPodSandbox | Self::CreateContainer | Self::PullImage)
    }

    /// All that it needs.
    pub async fn prepare(self, node: &Node, registry: &Registry) -> Subject {
        let mut subject = Subject {
            pod_config: attempt(node, 0, self.about_pods()),
            config: by_id(
                node,
                script("main", "trap 'exit 3' TERM; while true; do echo tick; sleep 0.02; done"),
            ),
            pod: String::new(),
            id: String::new(),
            image: registry.image(),
        };
        if self == Self::RemoveImage {
            Self::PullImage.make(node, &subject).await.unwrap();
        }
        if self.about_images() || self == Self::RunPodSandbox {
            return subject;
        }
        subject.pod = node.run_pod(&subject.pod_config).await;
        if self != Self::CreateContainer {
            subject.id = node.create(&subject.pod, subject.config.clone()).await.unwrap();
        }
        if !matches!(self, Self::CreateContainer | Self::StartContainer) {
            node.start_container(&subject.id).await.unwrap();
            subject.ticks(node, 1).await;
        }
        if self == Self::ReopenContainerLog {
            let path = node.status(&subject.id).await.log_path;
            std::fs::rename(&path, format!("{path}.old")).unwrap();
        }
        subject
    }

    /// Makes it; what it makes comes back.
    pub async fn make(self, node: &Node, subject: &Subject) -> Result<String, Status> {
        let (mut client, mut images) = (node.client(), node.images());
        let (pod_sandbox_id, container_id) = (subject.pod.clone(), subject.id.clone());
        let image = Some(ImageSpec { image: subject.image.clone(), ..Default::default() });
        match self {
            Self::RunPodSandbox => {
                let config = Some(subject.pod_config.clone());
                let request = RunPodSandboxRequest { config, runtime_handler: String::new() };
                return Ok(client.run_pod_sandbox(request).await?.into_inner().pod_sandbox_id);
            }
            Self::CreateContainer => return node.create(&subject.pod, subject.config.clone()).await,
            Self::PullImage => {
                let request = PullImageRequest { image, ..Default::default() };
                return Ok(images.pull_image(request).await?.into_inner().image_ref);
            }
            Self::StopPodSandbox => {
                client.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id }).await.map(drop)
            }
            Self::RemovePodSandbox => {
                client.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id }).await.map(drop)
            }
            Self::StartContainer => node.start_container(&container_id).await,
            Self::StopContainer => {
                client.stop_container(StopContainerRequest { container_id, timeout: 30 }).await.map(drop)
            }
            Self::RemoveContainer => {
                client.remove_container(RemoveContainerRequest { container_id }).await.map(drop)
            }
            Self::UpdateContainerResources => {
                let linux = Some(LinuxContainerResources { cpu_shares: 77, ..Default::default() });
                let request = UpdateContainerResourcesRequest { container_id, linux, ..Default::default() };
                client.update_container_resources(request).await.map(drop)
            }
            Self::ReopenContainerLog => {
                client.reopen_container_log(ReopenContainerLogRequest { container_id }).await.map(drop)
            }
            Self::ExecSync => {
                let cmd = ["sh", "-c", "echo hi; exit 3"].map(str::to_owned).into();
                let answer = client.exec_sync(ExecSyncRequest { container_id, cmd, timeout: 30 }).await?;
                let answer = answer.into_inner();
                assert_eq!((answer.stdout.as_slice(), answer.exit_code), (&b"hi\n"[..], 3));
                Ok(())
            }
            Self::RemoveImage => images.remove_image(RemoveImageRequest { image }).await.map(drop),
        }
        .map(|()| String::new())
    }

    /// What it made, as the lists show it.
    pub async fn made(self, node: &Node, subject: &Subject) -> Option<String> {
        match self {
            Self::RunPodSandbox => {
                let listed = node.client().list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap();
                let mut items = listed.into_inner().items;
                items.retain(|item| item.metadata == subject.pod_config.metadata);
                assert!(items.len() < 2, "{items:?}");
                items.pop().map(|item| item.id)
            }
            Self::CreateContainer => {
                let filter = ContainerFilter { pod_sandbox_id: subject.pod.clone(), ..Default::default() };
                let request = ListContainersRequest { filter: Some(filter) };
                let listed = node.client().list_containers(request).await.unwrap().into_inner().containers;
                assert!(listed.len() < 2, "{listed:?}");
                listed.into_iter().next().map(|container| container.id)
            }
            Self::PullImage => {
                let image = Some(ImageSpec { image: subject.image.clone(), ..Default::default() });
                let request = ImageStatusRequest { image, verbose: false };
                node.images().image_status(request).await.unwrap().into_inner().image.map(|image| image.id)
            }
            _ => None,
        }
    }

    /// Checks that it has had its effect, once; `answer` is what it said.
    pub async fn holds(self, node: &Node, subject: &Subject, answer: &str) {
        match self {
            Self::RunPodSandbox => {
                let status = sandbox(node, answer).await.unwrap();
                assert_eq!(status.state(), PodSandboxState::SandboxReady);
                assert!(!status.network.unwrap().ip.is_empty());
                assert_eq!(self.made(node, subject).await.as_deref(), Some(answer));
            }
            Self::StopPodSandbox => {
                let status = sandbox(node, &subject.pod).await.unwrap();
                assert_eq!(status.state(), PodSandboxState::SandboxNotready);
                assert_eq!(node.status(&subject.id).await.state(), ContainerState::ContainerExited);
            }
            Self::RemovePodSandbox => assert!(sandbox(node, &subject.pod).await.is_none()),
            Self::CreateContainer => {
                assert_eq!(node.status(answer).await.state(), ContainerState::ContainerCreated);
                assert_eq!(self.made(node, subject).await.as_deref(), Some(answer));
                node.start_container(answer).await.unwrap();
            }
            Self::StartContainer => {
                let status = node.status(&subject.id).await;
                assert_eq!(status.state(), ContainerState::ContainerRunning);
                assert!(status.started_at > 0);
                subject.ticks(node, 2).await;
            }
            Self::StopContainer => {
                let status = node.status(&subject.id).await;
                assert_eq!((status.state(), status.exit_code), (ContainerState::ContainerExited, 3));
            }
            Self::RemoveContainer => {
                let request = ContainerStatusRequest { container_id: subject.id.clone(), verbose: false };
                let gone = node.client().container_status(request).await.unwrap_err();
                assert_eq!(gone.code(), tonic::Code::NotFound);
            }
            Self::UpdateContainerResources => {
                let resources = node.status(&subject.id).await.resources.unwrap().linux.unwrap();
                assert_eq!(resources.cpu_shares, 77);
            }
            Self::ReopenContainerLog => subject.ticks(node, 2).await,
            Self::ExecSync => {}
            Self::PullImage => assert_eq!(self.made(node, subject).await.as_deref(), Some(answer)),
            Self::RemoveImage => assert_eq!(Self::PullImage.made(node, subject).await, None),
        }
    }

    /// Removes all that it needed and made.
    pub async fn clean(self, node: &Node, subject: &Subject, answer: &str) {
        if self.about_images() {
            Self::RemoveImage.make(node, subject).await.unwrap();
            return;
        }
        let pod = if self == Self::RunPodSandbox { answer } else { &subject.pod };
        let (mut client, pod_sandbox_id) = (node.client(), pod.to_owned());
        client.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: pod.to_owned() }).await.unwrap();
        client.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id }).await.unwrap();
        let _ = std::fs::remove_dir_all(&subject.pod_config.log_directory);
    }
}

impl Subject {
    /// Waits until the container's log has so many lines, in the file that it is in now.
    async fn ticks(&self, node: &Node, count: usize) {
        let path = node.status(&self.id).await.log_path;
        for _ in 0..2000 {
            if std::fs::read_to_string(&path).unwrap_or_default().lines().count() >= count {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("{path} does not grow");
    }
}

/// The status of a sandbox, if there is one.
pub async fn sandbox(node: &Node, id: &str) -> Option<PodSandboxStatus> {
    let request = PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
    match node.client().pod_sandbox_status(request).await {
        Ok(answer) => answer.into_inner().status,
        Err(error) if error.code() == tonic::Code::NotFound => None,
        Err(error) => panic!("{error}"),
    }
}
