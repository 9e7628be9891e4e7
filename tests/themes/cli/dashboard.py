# SPDX-License-Identifier: MIT
"""Looks whether a dashboard is what Grafana takes, and whether each metric and each label that it and the
alert rules ask for is among those that were served. Where promtool is, it reads the rules, too.

usage: dashboard.py DASHBOARD RULES METRICS
"""

import json
import re
import shutil
import subprocess
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    dashboard = json.load(file)
with open(sys.argv[2], encoding="utf-8") as file:
    rules = file.read()
with open(sys.argv[3], encoding="utf-8") as file:
    served = file.read()
wrong = []


def require(holds, what):
    if not holds:
        wrong.append(what)


# What can be asked for: samples, with the labels that they have, and metrics that have none just now.
labels = {}
for name, inner in re.findall(r"^(share_\w+)(?:\{(.*)\})? ", served, re.MULTILINE):
    labels.setdefault(name, set()).update(re.findall(r'(\w+)="', inner))
for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", served, re.MULTILINE):
    endings = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(kind, [""])
    for ending in endings:
        labels.setdefault(name + ending, None)

require(isinstance(dashboard["schemaVersion"], int) and dashboard["schemaVersion"] >= 36, "it is too old")
require(dashboard["title"] and re.fullmatch("[-a-z]{1,40}", dashboard["uid"]), "it has no title or uid")
require("id" not in dashboard and "__inputs" not in dashboard, "it is of one Grafana alone")

variables = {v["name"]: v for v in dashboard["templating"]["list"]}
require(variables["datasource"]["type"] == "datasource", "nobody says which Prometheus")
queries = [v["query"]["query"] for v in variables.values() if v["type"] == "query"]

panels = dashboard["panels"]
require(len({p["id"] for p in panels}) == len(panels), "two panels have one id")
taken = set()
for panel in panels:
    place = panel["gridPos"]
    cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
             for y in range(place["y"], place["y"] + place["h"])}
    require(place["x"] + place["w"] <= 24, f"{panel['title']} is too wide")
    require(not cells & taken, f"{panel['title']} lies on another panel")
    taken |= cells
    require(panel["type"] in ("row", "stat", "timeseries"), f"{panel['title']} is a {panel['type']}")
    if panel["type"] == "row":
        continue
    require(panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, f"{panel['title']} asks elsewhere")
    require(panel["targets"], f"{panel['title']} asks nothing")
    for target in panel["targets"]:
        queries.append(target["expr"])
        require(target["expr"].count("(") == target["expr"].count(")"), f"{target['expr']} is not closed")
        names = set(re.findall(r"share_\w+", target["expr"]))
        known = set().union(*(labels.get(n) or set() for n in names)) | {"instance", "job"}
        if all(labels.get(n) is not None for n in names):
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                require(label in known or label == "UUID", f"{panel['title']}: no metric of it has {label}")

# The rules, a member of each alert a line; they were written so that this is all that has to be known of YAML.
alerts = re.split(r"^      - alert: ", rules, flags=re.MULTILINE)[1:]
require(len(alerts) >= 10, "there are few alerts")
for alert in alerts:
    name = alert.split("\n", 1)[0]
    expression = re.search(r"^        expr: (.+)$", alert, re.MULTILINE)
    require(re.fullmatch("Share[A-Za-z]+", name), f"an alert is called {name}")
    require(expression, f"{name} asks nothing")
    require(re.search(r"severity: (critical|warning|info) }$", alert, re.MULTILINE), f"{name} has no severity")
    for part in "summary", "description":
        require(re.search(rf"^          {part}: .*\.\"?$", alert, re.MULTILINE), f"{name} has no {part}")
    if not expression:
        continue
    queries.append(expression[1])
    known = set().union(*(labels.get(n) or set() for n in re.findall(r"share_\w+", expression[1])))
    if all(labels.get(n) is not None for n in re.findall(r"share_\w+", expression[1])):
        for label in re.findall(r"\$labels\.(\w+)", alert):
            require(label in known | {"instance"}, f"{name}: no metric of it has {label}")
if shutil.which("promtool"):
    checked = subprocess.run(["promtool", "check", "rules", sys.argv[2]], capture_output=True, text=True)
    require(checked.returncode == 0, f"promtool: {checked.stdout}{checked.stderr}")

asked = set()
for query in queries:
    asked |= set(re.findall(r"share_\w+", query))
    for variable in re.findall(r"\$(\w+)", query):
        require(variable in variables or variable.startswith("__"), f"${variable} is not there: {query}")
    for name, inner in re.findall(r"(share_\w+)\{([^}]*)\}", query):
        for label in re.findall(r"(\w+)=", inner):
            require(labels.get(name, set()) is None or label in labels.get(name, set()) | {"instance"},
                    f"{name} has no {label}")
for name in sorted(asked - set(labels)):
    wrong.append(f"{name} is not served")

for line in wrong:
    print(line)
print(f"{len(panels)} panels and {len(alerts)} alerts ask for {len(asked)} metrics, {len(wrong)} things are wrong")
sys.exit(bool(wrong) or len(asked) < 20)
