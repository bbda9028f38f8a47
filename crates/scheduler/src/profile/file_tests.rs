use super::*;
use crate::plugins::allocation::Strategy;
use crate::profile::Plugin;
use crate::profile::plugins::Point;

const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

fn of(text: &str) -> Result<Config, ConfigurationError> {
    read(&format!("{HEAD}{text}"))
}

#[test]
fn a_file_that_says_nothing_is_the_default_profile() {
    assert_eq!(of("").unwrap(), Config::default());
    let accepted = "parallelism: 16\nclientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf}\n\
        leaderElection: {leaderElect: false, leaseDuration: 15s}\nenableProfiling: true\n";
    assert_eq!(of(accepted).unwrap(), Config::default());
}

#[test]
fn profiles_differ_in_plugins_weights_and_args() {
    let config = of("\
percentageOfNodesToScore: 30
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 60
leaderElection: {leaderElect: true}
profiles:
  - schedulerName: default-scheduler
  - schedulerName: packer
    percentageOfNodesToScore: 100
    plugins:
      score:
        disabled: [{name: NodeResourcesBalancedAllocation}]
        enabled: [{name: NodeResourcesFit, weight: 10}]
      postFilter: {disabled: [{name: DefaultPreemption}]}
    pluginConfig:
      - name: NodeResourcesFit
        args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 3}]}}
")
    .unwrap();
    let backoff = Backoff { first: Duration::from_secs(2), last: Duration::from_secs(60) };
    assert_eq!((config.backoff, config.elects), (backoff, true));
    let [plain, packer] = config.profiles.as_slice() else { panic!("{:?}", config.profiles) };
    assert_eq!(*plain, Profile { percentage_of_nodes_to_score: 30, ..Profile::default() });
    assert_eq!((packer.name.as_str(), packer.percentage_of_nodes_to_score), ("packer", 100));
    assert_eq!(packer.args.strategy, Strategy::MostAllocated);
    assert_eq!(packer.chosen.weight(Plugin::NodeResourcesFit), Some(10));
    assert_eq!(packer.chosen.weight(Plugin::NodeResourcesBalancedAllocation), None);
    assert!(!packer.chosen.has(Plugin::DefaultPreemption, Point::PostFilter));
    assert_eq!(config.profile("packer"), Some(packer));
    assert_eq!(config.profile("nobody"), None);
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let error = of("\
percentageOfNodesToScore: 101
podInitialBackoffSeconds: 0
podMaxBackoffSeconds: -1
extenders: [{urlPrefix: http://127.0.0.1}]
profiles:
  - plugins: {filter: {enabled: [{name: Nobody}]}}
  - pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: 101}}]
")
    .unwrap_err();
    let expected = [
        "scheduler configuration: podInitialBackoffSeconds: Invalid value: 0: must be greater than 0",
        "podMaxBackoffSeconds: Invalid value: -1: must be greater than or equal to PodInitialBackoffSeconds",
        "extenders: Forbidden: there are none here",
        "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
        "profiles[0].plugins.filter[0]: there is no plugin \"Nobody\"",
        "profiles[1].schedulerName: Duplicate value: \"default-scheduler\"",
        "profiles[1].pluginConfig[0].args.hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]",
    ];
    assert_eq!(error.to_string(), expected.join("; "));
}

#[test]
fn what_is_something_else_is_not_read() {
    assert!(matches!(read("["), Err(ConfigurationError::Text { .. })));
    assert!(matches!(of("surprise: 1\n"), Err(ConfigurationError::Field(_))));
    let other = read("apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n");
    let said = "scheduler configuration: it is KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1beta3, not \
        KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1";
    assert_eq!(other.unwrap_err().to_string(), said);
}

#[test]
fn a_rest_doubles_up_to_the_longest() {
    let seconds =
        |first, last| Backoff { first: Duration::from_secs(first), last: Duration::from_secs(last) };
    let rests = |backoff: Backoff| (0..6).map(|n| backoff.after(n).as_secs()).collect::<Vec<_>>();
    assert_eq!(rests(Backoff::default()), [1, 2, 4, 8, 10, 10]);
    assert_eq!(rests(seconds(5, 100)), [5, 10, 20, 40, 80, 100]);
}
