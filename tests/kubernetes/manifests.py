"""Renders the directories of deploy/kubernetes as kustomize does, as far as they use it: resources,
namespace, images and strategic merge patches. Whatever else a kustomization.yaml has is an
error."""

import pathlib

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
KNOWN = {"apiVersion", "kind", "resources", "namespace", "images", "patches"}
# What identifies an element of a list, by the list's name; other lists are replaced.
MERGE_KEYS = {"containers": "name", "initContainers": "name", "env": "name", "volumes": "name",
              "volumeMounts": "mountPath", "ports": "containerPort"}
CLUSTER_WIDE = {"Namespace"}


def directories():
    return sorted(path.parent for path in ROOT.rglob("kustomization.yaml"))


def load(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def render(path):
    """The objects of a directory with a kustomization.yaml, or of a file."""
    if path.is_file():
        return load(path)
    rules = load(path / "kustomization.yaml")[0]
    if unknown := set(rules) - KNOWN:
        raise ValueError(f"{path}: {sorted(unknown)} are not known here")
    objects = [one for resource in rules["resources"]
               for one in render((path / resource).resolve())]
    for patch in rules.get("patches", []):
        for change in load(path / patch["path"]):
            _patch(objects, change)
    for one in objects:
        for container in containers_of(one):
            _name_image(container, rules.get("images", []))
        if "namespace" in rules:
            _place(one, rules["namespace"])
    return objects


def _patch(objects, change):
    kind, name = change["kind"], change["metadata"]["name"]
    target = [one for one in objects
              if one["kind"] == kind and one["metadata"]["name"] == name]
    if len(target) != 1:
        raise ValueError(f"a patch of {kind} {name} finds {len(target)} objects")
    _merge(target[0], change)


def _merge(into, change):
    for key, value in change.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        elif isinstance(value, list) and key in MERGE_KEYS and key in into:
            into[key] = _merge_list(into[key], value, MERGE_KEYS[key])
        else:
            into[key] = value


def _merge_list(into, changes, key):
    """Changed and new elements come first, as in kustomize."""
    old = {one[key]: one for one in into}
    merged = []
    for change in changes:
        one = old.pop(change[key], {})
        _merge(one, change)
        merged.append(one)
    return merged + [one for one in into if one[key] in old]


def pod_of(one):
    """The pod that an object makes, or None."""
    if one["kind"] == "JobSet":
        return one["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    return one.get("spec", {}).get("template")


def containers_of(one):
    pod = pod_of(one)
    if pod is None:
        return []
    return pod["spec"].get("initContainers", []) + pod["spec"]["containers"]


def _name_image(container, images):
    for image in images:
        if container["image"].split(":")[0] == image["name"]:
            container["image"] = f"{image['newName']}:{image['newTag']}"


def _place(one, namespace):
    if one["kind"] in CLUSTER_WIDE:
        if one["metadata"]["name"] != namespace:
            raise ValueError("a namespace of another name is made")
    else:
        one["metadata"]["namespace"] = namespace
