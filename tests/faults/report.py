"""Outcomes as text, and as docs/faults.md."""

import textwrap

import catalogue
import instruments

WIDTH = 120
TITLE = "# Faults, and how long until they are named\n"
HEAD = """
Written by `sudo tests/faults/run --markdown docs/faults.md`. Two agents with tokens in network
namespaces, and a job of four ranks; the fault is at node 2 or its rank 3. Every instrument is asked
once a second: explain, status and the page at node 1, doctor at node 2, `/metrics` and logs (from
level warning on) of both. In "coordinator down" the fault is at node 1, and all are asked at node
2. With "DNS" and "TLS at one side", of which node 1 cannot know, explain and the page need only say
which ranks have not joined. The table has the seconds until an instrument named the culprit; `-`
where it did not. Alerts are those of `deploy/prometheus/alerts.yml`, whose times were divided by 30
("link at 1/100" and "few descriptors", where answers take seconds: by 6): when one's condition
first held, and when one fired. False words are lines that accuse what is healthy; each is listed
below.
"""
MESHES = "\n## Healthy meshes\n\n" + textwrap.fill(
    "Written by `sudo tests/faults/healthy --markdown docs/faults.md`: answers of `tutti explain "
    "--json` that accused anything, by nodes and load of the mesh, of eight ranks in all; beside "
    "whatever else ran there.", WIDTH) + "\n"


def seconds(value):
    return "-" if value is None else f"{value:.1f}"


def text_of(outcome):
    if outcome.not_done:
        return f"== {outcome.fault}: not done: {outcome.not_done}"
    lines = [f"== {outcome.fault}: {outcome.title}"]
    for name, seen in outcome.seen.items():
        lines.append(f"  {name:12} {seconds(seen.first_s):>5}  {seen.line[:300]}")
        lines += [f"       FALSE at {second:.1f}: {line[:300]}" for line, second in
                  seen.false.items()]
    lines.append(f"  {'pending':12} {seconds(outcome.pending_s):>5}")
    return "\n".join(lines)


def row(cells):
    return "| " + " | ".join(cells) + " |"


def table_of(outcomes):
    names = [name for name in instruments.NAMES if name != "alert"]
    lines = [row(["fault", *names, "alert is pending", "alert fires", "false words"]),
             "|" + "---|" * (len(names) + 4)]
    for one in outcomes:
        if one.not_done:
            lines.append(row([one.fault, "not done"] + [""] * (len(names) + 2)))
            continue
        false = sum(len(seen.false) for seen in one.seen.values())
        lines.append(row([one.fault, *(seconds(one.seen[name].first_s) for name in names),
                          seconds(one.pending_s), seconds(one.seen["alert"].first_s), str(false)]))
    return "\n".join(lines)


def said_of(outcome):
    """What `explain` and the alert said, else why there is nothing."""
    if outcome.not_done:
        return f"{outcome.fault}: not done: {outcome.not_done}"
    said = " ".join((outcome.seen["explain"].line or outcome.seen["explain JOB"].line).split())
    alert = outcome.seen["alert"].line.removeprefix("firing ")
    return (f"{outcome.fault}: {outcome.title}\n"
            f"  explain: {said or '-'}\n  alert:   {alert or '-'}")


def false_of(outcomes):
    return [f"{one.fault}, {name}, at {second:.1f} s: {' '.join(line.split())}"
            for one in outcomes for name, seen in one.seen.items()
            for line, second in seen.false.items()]


def fenced(lines):
    return "\n```\n" + "\n".join(lines) + "\n```\n" if lines else "\nNone.\n"


def answers_text(answers):
    """What explain said of a healthy mesh."""
    return "\n".join([f"{answers.mesh}: {answers.accusing} of {answers.questions} answers accuse, "
                      f"asked in {answers.seconds:.0f} s",
                      *(f"  {count} times: {line}" for line, count in answers.false.items())])


def replace_healthy(page, asked):
    """The last section of the page."""
    kept = page.read_text().split(MESHES)[0] if page.exists() else ""
    page.write_text(kept + MESHES + fenced(list(map(answers_text, asked))))


def page_of(outcomes):
    faults = [one for one in outcomes if one.fault != catalogue.HEALTHY]
    healthy = [one for one in outcomes if one.fault == catalogue.HEALTHY]
    page = TITLE + "\n" + textwrap.fill(" ".join(HEAD.split()), WIDTH) + "\n\n"
    page += table_of(faults) + "\n\n## What was said\n" + fenced(list(map(said_of, faults)))
    page += "\n## False words\n" + fenced(false_of(faults))
    for one in healthy:
        page += "\n## A healthy mesh\n\n" + textwrap.fill(
            f"False words in {one.observed_s} s beside 8 busy loops (nice 5) and "
            "whatever else ran there:", WIDTH) + "\n" + fenced(false_of([one]))
    return page
