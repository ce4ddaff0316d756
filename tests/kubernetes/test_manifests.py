"""The manifests: valid in three versions of Kubernetes, as kubectl renders them, and in accord with
themselves and with the settings of tuttid."""

import copy
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import jsonschema
import kubernetes_validate
import yaml

import manifests

HERE = pathlib.Path(__file__).resolve().parent
# The first with sidecars by default, the one that made them stable, a new one.
VERSIONS = ("1.29", "1.33", "1.36")
PLACES = manifests.directories() + [manifests.ROOT / "daemonset" / "trainers.yaml"]
TABLE = (HERE.parents[1] / "daemon/base/settings.cc").read_text()
SETTINGS = set(re.findall(r'_row\(\s*\w+,\s*"(\w+)"', TABLE))
SIDECARS = [place for place in manifests.directories() if "daemonset" not in place.name]
OF_NODES = [place for place in manifests.directories() if "daemonset" in place.name]


def validate(one, version):
    if one["kind"] != "JobSet":
        kubernetes_validate.validate(one, version, strict=True)
        return
    jsonschema.Draft202012Validator(json.loads((HERE / "jobset.json").read_text())).validate(one)
    for part in one["spec"]["replicatedJobs"]:
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": part["name"]},
               "spec": part["template"]["spec"]}
        kubernetes_validate.validate(job, version, strict=True)


def one_of(objects, kind):
    found = [one for one in objects if one["kind"] == kind]
    assert len(found) == 1, f"{len(found)} of {kind}"
    return found[0]


def by_name(objects):
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def named(containers, name):
    return next(one for one in containers if one["name"] == name)


def values_of(container):
    return {one["name"]: one.get("value") for one in container["env"]}


def ports_to(rules, side, labels=None):
    """(protocol, first, last) that rules admit pods with these labels to; any peer without."""
    return {(one["protocol"], one["port"], one.get("endPort", one["port"]))
            for rule in rules
            if labels is None or any(
                "podSelector" in peer and
                peer["podSelector"]["matchLabels"].items() <= labels.items()
                for peer in rule.get(side, []))
            for one in rule["ports"]}


class ManifestTest(unittest.TestCase):
    def test_all_are_valid_in_three_versions(self):
        self.assertGreaterEqual(len(PLACES), 8)
        for place in PLACES:
            for version in VERSIONS:
                for one in manifests.render(place):
                    with self.subTest(place=place.name, version=version, kind=one["kind"]):
                        validate(one, version)

    def test_a_wrong_field_is_found_in_each_version(self):
        for place in PLACES:
            for one in manifests.render(place):
                wrong = copy.deepcopy(one)
                spec = (manifests.pod_of(wrong) or wrong).setdefault("spec", {})
                spec["restartPolicies"] = "Never"
                for version in VERSIONS:
                    with self.subTest(place=place.name, version=version, kind=one["kind"]):
                        with self.assertRaises(jsonschema.ValidationError):
                            validate(wrong, version)

    def test_they_are_what_kubectl_renders(self):
        if shutil.which("kubectl") is None:
            self.skipTest("kubectl is not there")
        for place in manifests.directories():
            with self.subTest(place=place.name):
                rendered = subprocess.run(["kubectl", "kustomize", place], check=True,
                                          capture_output=True, text=True)
                theirs = by_name(yaml.safe_load_all(rendered.stdout))
                self.assertEqual(by_name(manifests.render(place)), theirs)

    def test_the_overlay_of_the_page_names_the_images_of_each_layout(self):
        page = (HERE.parents[1] / "docs/kubernetes.md").read_text()
        overlay, = re.findall(r"```text mine/kustomization.yaml\n(.*?)```", page, re.DOTALL)
        for layout, namespace in (("base", "training"), ("jobset", "training"),
                                  ("daemonset", "tutti-system")):
            with self.subTest(layout=layout), tempfile.TemporaryDirectory() as folder:
                mine = pathlib.Path(folder) / "kustomization.yaml"
                mine.write_text(overlay.replace("../deploy/kubernetes/base",
                                                str(manifests.ROOT / layout))
                                .replace("namespace: training", f"namespace: {namespace}"))
                for one in manifests.render(mine.parent):
                    validate(one, VERSIONS[0])
                    for container in manifests.containers_of(one):
                        self.assertTrue(container["image"].startswith("registry.example.com/"))

    def test_variables_are_settings_of_tuttid(self):
        self.assertGreater(len(SETTINGS), 50)
        for place in PLACES:
            for one in manifests.render(place):
                for container in manifests.containers_of(one):
                    if container["name"] != "tuttid":
                        continue
                    for name in values_of(container):
                        if name.startswith("TUTTI_"):
                            self.assertIn(name.removeprefix("TUTTI_").lower(), SETTINGS, place)

    def test_variables_name_variables_before_them(self):
        for place in PLACES:
            for one in manifests.render(place):
                for container in manifests.containers_of(one):
                    known = set()
                    for variable in container["env"]:
                        used = set(re.findall(r"\$\((\w+)\)", variable.get("value", "")))
                        self.assertLessEqual(used, known, f"{place}: {variable}")
                        known.add(variable["name"])

    def test_pods_of_ipv6_have_the_same_probes(self):
        job = one_of(manifests.render(manifests.ROOT / "overlays" / "ipv6"), "Job")
        agent = named(manifests.containers_of(job), "tuttid")
        self.assertEqual(values_of(agent)["TUTTI_LISTEN"], "[$(POD_IP)]:7601")
        self.assertEqual(values_of(agent)["TUTTI_METRICS_LISTEN"], "[$(POD_IP)]:7602")
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            self.assertIn("httpGet", agent[probe])

    def test_the_agent_is_a_sidecar_without_a_gpu(self):
        for place in SIDECARS:
            for one in manifests.render(place):
                pod = manifests.pod_of(one)
                if pod is None:
                    continue
                agent = named(pod["spec"]["initContainers"], "tuttid")
                with self.subTest(place=place.name):
                    self.assertEqual(agent["restartPolicy"], "Always")
                    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                        self.assertIn(probe, agent)
                    self.assertNotIn("nvidia.com/gpu", json.dumps(agent["resources"]))
                    self.assertGreater(pod["spec"]["terminationGracePeriodSeconds"] * 1000,
                                       int(values_of(agent)["TUTTI_DRAIN_MS"]))

    def test_agents_can_do_no_more_than_they_need(self):
        for place in PLACES:
            for one in manifests.render(place):
                pod = manifests.pod_of(one)
                for container in manifests.containers_of(one):
                    context = {**pod["spec"].get("securityContext", {}),
                               **container["securityContext"]}
                    with self.subTest(place=place.name, container=container["name"]):
                        self.assertIs(context["allowPrivilegeEscalation"], False)
                        self.assertEqual(context["capabilities"]["drop"], ["ALL"])
                        self.assertEqual(context["seccompProfile"]["type"], "RuntimeDefault")
                        if container["name"] == "tuttid":
                            self.assertIs(context["readOnlyRootFilesystem"], True)
                        if one["kind"] != "DaemonSet":
                            self.assertIs(context["runAsNonRoot"], True)
                            self.assertNotEqual(context["runAsUser"], 0)
                            self.assertNotIn("add", context["capabilities"])

    def test_ranks_are_as_many_as_pods(self):
        for place in PLACES:
            for one in manifests.render(place):
                if one["kind"] not in ("Job", "JobSet"):
                    continue
                job = one["spec"]
                if one["kind"] == "JobSet":
                    job = job["replicatedJobs"][0]["template"]["spec"]
                trainer = named(manifests.containers_of(one), "trainer")
                with self.subTest(place=place.name):
                    self.assertEqual(job["completionMode"], "Indexed")
                    self.assertEqual(job["completions"], job["parallelism"])
                    ranks = values_of(trainer)["TUTTI_WORLD_SIZE"]
                    self.assertEqual(ranks, str(job["completions"]))

    def test_the_coordinator_is_a_name_that_the_pods_get(self):
        base = one_of(manifests.render(manifests.ROOT / "base"), "Job")
        agent = named(manifests.containers_of(base), "tuttid")
        name = f"{base['metadata']['name']}-0.{base['spec']['template']['spec']['subdomain']}:7601"
        self.assertEqual(values_of(agent)["TUTTI_COORDINATOR"], name)
        service = one_of(manifests.render(manifests.ROOT / "base"), "Service")
        self.assertEqual(service["metadata"]["name"], base["spec"]["template"]["spec"]["subdomain"])
        jobset = one_of(manifests.render(manifests.ROOT / "jobset"), "JobSet")
        agent = named(manifests.containers_of(jobset), "tuttid")
        part = jobset["spec"]["replicatedJobs"][0]["name"]
        subdomain = jobset["spec"]["network"]["subdomain"]
        name = f"{jobset['metadata']['name']}-{part}-0-0.{subdomain}:7601"
        self.assertEqual(values_of(agent)["TUTTI_COORDINATOR"], name)

    def test_network_policies_admit_the_ports_in_use(self):
        for place in manifests.directories():
            objects = manifests.render(place)
            policy = one_of(objects, "NetworkPolicy")["spec"]
            for one in objects:
                for container in manifests.containers_of(one):
                    used = values_of(container)
                    if "TUTTI_LISTEN" not in used:
                        continue
                    labels = manifests.pod_of(one)["metadata"]["labels"]
                    with self.subTest(place=place.name, kind=one["kind"]):
                        self.assertLessEqual(policy["podSelector"]["matchLabels"].items(),
                                             labels.items())
                        self.expect_admitted(policy, used, labels)

    def expect_admitted(self, policy, used, labels):
        control = int(used["TUTTI_LISTEN"].rsplit(":")[-1])
        among_agents = [("TCP", control, control)]
        if "TUTTI_DATA_PORTS" in used:
            among_agents.append(("TCP", *map(int, used["TUTTI_DATA_PORTS"].split("-"))))
        for port in among_agents:
            self.assertIn(port, ports_to(policy["ingress"], "from", labels))
        if used["TUTTI_METRICS_LISTEN"]:
            metrics = int(used["TUTTI_METRICS_LISTEN"].rsplit(":")[-1])
            self.assertIn(("TCP", metrics, metrics), ports_to(policy["ingress"], "from"))
        if "Egress" in policy["policyTypes"]:
            for port in among_agents:
                self.assertIn(port, ports_to(policy["egress"], "to", labels))
            # Also to name servers that are no pods, and so are in no namespace.
            anywhere = [rule for rule in policy["egress"] if "to" not in rule]
            for protocol in ("UDP", "TCP"):
                self.assertIn((protocol, 53, 53), ports_to(anywhere, "to"))

    def test_agents_prove_a_service_account_that_may_ask_for_certificates(self):
        objects = manifests.render(manifests.ROOT / "overlays" / "tls")
        job, account, role, binding = (one_of(objects, kind) for kind in (
            "Job", "ServiceAccount", "Role", "RoleBinding"))
        name = account["metadata"]["name"]
        self.assertEqual(manifests.pod_of(job)["spec"]["serviceAccountName"], name)
        self.assertEqual(binding["subjects"], [{"kind": "ServiceAccount", "name": name}])
        self.assertEqual(binding["roleRef"]["name"], role["metadata"]["name"])
        self.assertEqual(role["rules"], [{"apiGroups": ["cert-manager.io"], "verbs": ["create"],
                                          "resources": ["certificaterequests"]}])

    def test_agents_of_nodes_see_gpus_without_a_request(self):
        self.assertEqual(len(OF_NODES), 2)
        objects = manifests.render(manifests.ROOT / "overlays" / "daemonset-gpu")
        pod = manifests.pod_of(one_of(objects, "DaemonSet"))["spec"]
        self.assertEqual(pod["runtimeClassName"], "nvidia")
        self.assertIn({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                      pod["tolerations"])
        agent = named(pod["containers"], "tuttid")
        self.assertEqual(values_of(agent)["NVIDIA_VISIBLE_DEVICES"], "all")
        self.assertNotIn("nvidia.com/gpu", json.dumps(agent["resources"]))

    def test_containers_share_the_directory_of_the_socket_alone(self):
        for place in SIDECARS:
            for one in manifests.render(place):
                if manifests.pod_of(one) is None:
                    continue
                agent = named(manifests.containers_of(one), "tuttid")
                trainer = named(manifests.containers_of(one), "trainer")
                mounts = {mount["name"]: mount for mount in trainer["volumeMounts"]}
                shared = mounts.keys() & {mount["name"] for mount in agent["volumeMounts"]}
                self.assertEqual(shared, {"socket"})
                self.assertEqual(mounts["socket"]["mountPath"], "/run/tutti")
                self.assertIs(mounts["socket"]["readOnly"], True)


if __name__ == "__main__":
    unittest.main()
