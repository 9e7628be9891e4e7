# SPDX-License-Identifier: MIT
"""Reads metrics with the parser of Prometheus' own client library, which is strict about OpenMetrics,
and looks whether they keep to the conventions that it knows nothing of.

usage: openmetrics.py FILE [EXPECTATION...]

EXPECTATION: what a sample has to be, as name{label="value"}=number; other labels are of no concern.
"""

import re
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families

with open(sys.argv[1], newline="") as file:
    families = list(text_string_to_metric_families(file.read()))
wrong = []


def require(holds, what):
    if not holds:
        wrong.append(what)


for family in families:
    require(re.fullmatch("share_[a-z_]+", family.name), f"{family.name} is no name of ours")
    require(family.documentation.endswith("."), f"{family.name} is not told in a sentence")
    require(family.unit or not re.search("_(bytes|seconds)$", family.name), f"{family.name} lacks its unit")
    require(not re.search("_(ms|ns|kib|mib|count|sum|total)$", family.name), f"{family.name} ends badly")
    for sample in family.samples:
        labels = set(sample.labels) - {"le"}
        require(all(re.fullmatch("[a-z_]+|UUID|modelName", label) for label in labels),
                f"{sample.name} has odd labels: {labels}")
        require(sample.value >= 0, f"{sample.name} is below 0")

samples = [sample for family in families for sample in family.samples]
for expectation in sys.argv[2:]:
    name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})?=([\d.]+)", expectation, re.DOTALL).groups()
    labels = dict(re.findall(r'(\w+)="([^"]*)"', labels or ""))
    found = [s for s in samples if s.name == name and labels.items() <= s.labels.items()]
    require(len(found) == 1 and found[0].value == float(value), f"{expectation}: {found}")

for line in wrong:
    print(line)
print(f"{len(families)} metrics, {len(samples)} samples, {len(wrong)} of them wrong")
sys.exit(bool(wrong))
