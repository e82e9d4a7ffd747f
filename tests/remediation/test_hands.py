"""
Every shipped hand on a real API server, against the real definition of the kind that it writes.

The server checks strictly: a key that the definition does not know is an error. What the controller of the hand would
write then is written in its place, and the core reads it from the object that the server answers.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from msgspec import structs

from healthd.core.remediation.hands.description import Verb
from healthd.core.remediation.hands.requests import served_api
from healthd.core.remediation.hands.shipped import shipped_hands
from tests import quick_yaml
from tests.lab.control_plane import ControlPlane
from tests.remediation.conftest import Install
from tests.remediation.definitions import BUILT_IN, DEFINITIONS, UNPUBLISHED
from tests.remediation.results import PAGE, results_of, with_results
from tests.remediation.stage import Stage, refusal
from tests.remediation.trials import Trial, trials

PUBLISHED = [trial for trial in trials() if trial.is_published]
MANIFESTS = re.findall("```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
CREATING = [trial for trial in PUBLISHED if trial.hand.verb is Verb.CREATE]


def each(of: list[Trial]) -> pytest.MarkDecorator:
    """A test for each trial, named as its row."""
    return pytest.mark.parametrize("trial", [pytest.param(t, id=re.sub("[^a-z0-9.]+", "-", t.name)) for t in of])


@pytest.fixture
def stage(control_plane: ControlPlane, install: Install, trial: Trial) -> Stage:
    """The kinds of *trial* are served, and its node is there."""
    if trial.api:
        install(trial.api, trial.kind)
    return Stage(control_plane, trial)


@pytest.mark.lab
@pytest.mark.slow
@each(PUBLISHED)
def test_a_request_is_accepted_its_signs_are_read_and_it_is_taken_back(stage: Stage, trial: Trial) -> None:
    hand = trial.hand
    assert served_api(hand, stage.served(), stage.labels) == stage.api, "it is found by what its controller serves"
    assert stage.confirmation() == ""

    stage.write(stage.request())
    read = [stage.signs()]
    for status, _, _ in trial.said.course:
        stage.says(status)
        read.append(stage.signs())
    stage.take_back()

    assert read == [(False, ""), *((is_done, failed) for _, is_done, failed in trial.said.course)]
    assert not stage.exists() if hand.verb is Verb.CREATE else stage.signs() is None


@pytest.mark.lab
@pytest.mark.slow
@each(CREATING)
def test_a_misspelt_key_is_refused(stage: Stage, trial: Trial) -> None:
    request = stage.request()
    misspelt = replace(request, body={**request.body, "spec": {**request.body["spec"], "nodename": "n"}})

    assert 'unknown field "spec.nodename"' in refusal(stage, misspelt)


@pytest.mark.lab
@pytest.mark.slow
@each([trial for trial in PUBLISHED if trial.hand.confirm])
def test_an_object_of_another_node_is_not_taken_for_that_of_the_node(stage: Stage, trial: Trial) -> None:
    path, expected = next(iter(trial.hand.confirm.items()))
    other = replace(trial, hand=structs.replace(trial.hand, confirm={path: f"not-{expected}"}))

    assert Stage(stage.control_plane, other).confirmation().startswith(f"its {path} is ")


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.parametrize("manifest", MANIFESTS)
def test_the_rules_on_the_page_are_accepted(manifest: str, control_plane: ControlPlane, install: Install) -> None:
    rule = quick_yaml.load(manifest)
    install(rule["apiVersion"], rule["kind"])

    assert control_plane.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", input=manifest)


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_the_rules_on_the_page_name_the_condition_of_a_hand(manifest: str) -> None:
    conditions = {hand.body["type"] for hand in shipped_hands() if hand.verb is Verb.CONDITION}

    assert any(f"type: {condition}," in manifest for condition in conditions)


def test_every_kind_that_a_hand_writes_or_is_found_by_has_a_definition_or_is_known_to_have_none() -> None:
    known = DEFINITIONS.keys() | BUILT_IN | UNPUBLISHED

    assert {(trial.api, trial.kind) for trial in trials() if trial.api} <= known


def test_every_trial_has_its_row_in_the_page() -> None:
    page = PAGE.read_text()

    assert with_results(page, results_of(page)) == page


def test_a_row_that_was_not_tried_keeps_what_stands_there() -> None:
    page = with_results("", {})
    once = dict.fromkeys(list(results_of(page))[:1], "yes")

    assert results_of(with_results(page, once)) | once == results_of(with_results(page, once))
