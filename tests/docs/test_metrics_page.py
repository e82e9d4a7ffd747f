"""docs/metrics.md is what the code says, and names every metric and label once."""

from __future__ import annotations

from collections import Counter

from healthd.telemetry.metrics import Metrics
from tests.docs.metrics_page import EXPORTED_BY, LABEL_VALUES, OPEN_LABELS, PAGE, page, rows


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text() == page(), "docs/metrics.md is out of date: run `make docs`"


def test_every_metric_has_one_process_that_sets_it() -> None:
    named = Counter(name for names in EXPORTED_BY.values() for name in names)

    assert named == Counter(rows(Metrics()).keys())


def test_every_label_is_explained_once() -> None:
    labels = {label for row in rows(Metrics()).values() for label in row.labels} | {"version"}

    assert labels == set(LABEL_VALUES) | set(OPEN_LABELS)
    assert not set(LABEL_VALUES) & set(OPEN_LABELS)
