"""What people do with the Python client, each step checked. Arguments: a kubeconfig, the name of a running Pod."""

import sys
import threading

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException
from kubernetes.stream import portforward, stream


def refused(code, call):
    """The refusal of a call, which has to have a code."""
    try:
        call()
    except ApiException as error:
        assert error.status == code, error
        return error
    raise AssertionError(f"not refused with {code}")


def typed(core):
    """Typed objects: create, read, list by pages, change, replace by revision, delete."""
    for name in ("a", "b", "c"):
        body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"py": "yes"}), data={"n": "1"})
        made = core.create_namespaced_config_map("default", body)
        assert made.metadata.uid and made.metadata.creation_timestamp.tzinfo is not None, made
    taken = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="a"))
    error = refused(409, lambda: core.create_namespaced_config_map("default", taken))
    assert '"reason":"AlreadyExists"' in error.body, error.body
    page = core.list_namespaced_config_map("default", label_selector="py=yes", limit=2)
    assert [m.metadata.name for m in page.items] == ["a", "b"], page
    rest = core.list_namespaced_config_map("default", label_selector="py=yes", limit=2, _continue=page.metadata._continue)
    assert [m.metadata.name for m in rest.items] == ["c"], rest
    # Its own choice for a dictionary is a merge patch... of strategic kind.
    patched = core.patch_namespaced_config_map("a", "default", {"data": {"m": "2"}})
    assert patched.data == {"n": "1", "m": "2"}, patched
    steps = [{"op": "remove", "path": "/data/n"}]
    patched = core.patch_namespaced_config_map("a", "default", steps)
    assert patched.data == {"m": "2"}, patched
    stale = core.read_namespaced_config_map("a", "default")
    fresh = core.read_namespaced_config_map("a", "default")
    fresh.data = {"k": "v"}
    core.replace_namespaced_config_map("a", "default", fresh)
    refused(409, lambda: core.replace_namespaced_config_map("a", "default", stale))
    invalid = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="Not Valid"))
    error = refused(422, lambda: core.create_namespaced_config_map("default", invalid))
    assert "metadata.name" in error.body, error.body
    core.delete_namespaced_config_map("b", "default")
    refused(404, lambda: core.read_namespaced_config_map("b", "default"))
    core.delete_collection_namespaced_config_map("default", label_selector="py=yes")
    assert not core.list_namespaced_config_map("default", label_selector="py=yes").items


def watched(core):
    """A watch tells of all changes in order, and ends in time."""
    begin = core.list_namespaced_secret("default").metadata.resource_version
    ready = threading.Event()

    def work():
        ready.wait()
        secret = client.V1Secret(metadata=client.V1ObjectMeta(name="s"), string_data={"k": "v"})
        core.create_namespaced_secret("default", secret)
        core.patch_namespaced_secret("s", "default", {"metadata": {"labels": {"l": "1"}}})
        core.delete_namespaced_secret("s", "default")

    worker = threading.Thread(target=work)
    worker.start()
    seen = []
    events = watch.Watch()
    ready.set()
    for event in events.stream(core.list_namespaced_secret, "default", resource_version=begin, timeout_seconds=20):
        seen.append((event["type"], event["object"].metadata.name, event["object"].data))
        if len(seen) == 3:
            events.stop()
    worker.join()
    data = {"k": "dg=="}
    assert seen == [("ADDED", "s", data), ("MODIFIED", "s", data), ("DELETED", "s", data)], seen
    ended = watch.Watch().stream(core.list_namespaced_secret, "default", resource_version=begin, timeout_seconds=1)
    assert len(list(ended)) >= 3


def dynamically(api):
    """Kinds found at run time; server-side apply, a conflict, force."""
    found = dynamic.DynamicClient(api)
    deployments = found.resources.get(api_version="apps/v1", kind="Deployment")
    template = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "main", "image": "example/a:1"}]}}
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "d"}}, "template": template},
    }
    applied = deployments.server_side_apply(body=body, namespace="default", field_manager="py")
    assert applied.spec.replicas == 2 and applied.spec.strategy.type == "RollingUpdate", applied
    body["spec"]["replicas"] = 3
    try:
        deployments.server_side_apply(body=body, namespace="default", field_manager="other")
        raise AssertionError("no conflict")
    except dynamic.exceptions.ConflictError as error:
        assert "FieldManagerConflict" in str(error.body) and ".spec.replicas" in str(error.body), error.body
    applied = deployments.server_side_apply(body=body, namespace="default", field_manager="other", force_conflicts=True)
    assert applied.spec.replicas == 3, applied
    # The Deployment's controller may have written by now, too.
    managers = {m.manager: m.operation for m in applied.metadata.managedFields if m.manager != "trine"}
    assert managers == {"py": "Apply", "other": "Apply"}, managers
    scaled = deployments.scale.patch(
        name="d", namespace="default", body={"spec": {"replicas": 5}}, content_type="application/merge-patch+json"
    )
    assert scaled.kind == "Scale" and scaled.spec.replicas == 5, scaled
    names = [d.metadata.name for d in deployments.get(namespace="default").items]
    assert names == ["d"], names
    deployments.delete(name="d", namespace="default")
    try:
        found.resources.get(api_version="none/v1", kind="None")
        raise AssertionError("found what is not there")
    except dynamic.exceptions.ResourceNotFoundError:
        pass


def in_a_pod(core, pod):
    """A command in a Pod, its output, input and end."""
    command = ["/bin/sh", "-c", "echo out; echo err >&2; read line; echo got $line; exit 3"]
    call = core.connect_get_namespaced_pod_exec
    shell = stream(
        call, pod, "default", command=command, stdin=True, stdout=True, stderr=True, tty=False, _preload_content=False
    )
    shell.write_stdin("a line\n")
    shell.run_forever(timeout=20)
    assert shell.read_stdout() == "out\ngot a line\n", "stdout"
    assert shell.read_stderr() == "err\n", "stderr"
    assert shell.returncode == 3, shell.returncode
    whole = stream(call, pod, "default", command=["/bin/busybox", "echo", "whole"], stdout=True, stderr=True)
    assert whole == "whole\n", whole


def through_a_port(core, pod):
    """A connection to a port of a Pod, and one to a port where nobody listens."""
    forward = portforward(core.connect_get_namespaced_pod_portforward, pod, "default", ports="8080,8081")
    served = forward.socket(8080)
    served.settimeout(20)
    served.sendall(b"GET /index.html HTTP/1.0\r\n\r\n")
    answer = b""
    while piece := served.recv(4096):
        answer += piece
    assert b" 200 " in answer.split(b"\r\n")[0] and answer.endswith(b"\r\n\r\nserved\n"), answer
    silent = forward.socket(8081)
    silent.settimeout(20)
    assert silent.recv(1) == b"", "nobody listens there"
    assert "connection refused" in forward.error(8081).lower(), forward.error(8081)


def main():
    config.load_kube_config(sys.argv[1])
    api = client.ApiClient()
    core = client.CoreV1Api(api)
    assert client.VersionApi(api).get_code().git_version.startswith("v1.37."), "version"
    typed(core)
    watched(core)
    dynamically(api)
    in_a_pod(core, sys.argv[2])
    through_a_port(core, sys.argv[2])
    print("all holds")


main()
