"""The configuration file: what it may say, and how every mistake in it is named."""

from __future__ import annotations

import re
import socket
from datetime import timedelta
from pathlib import Path

import pytest

from healthd.cli.configuration.checks import SOURCES
from healthd.cli.configuration.keys import ConfigKey, keys_of, sections_of, spell
from healthd.cli.configuration.reading import ConfigError, load, parse
from healthd.cli.configuration.reference import reference
from healthd.cli.errors import UserError
from healthd.cli.machine.probes import probes_of
from healthd.cli.main import main
from healthd.core.api.locations import VOLUMES_AT
from healthd.core.api.model import Blame
from healthd.core.checkpoint.poll_interval import LONGEST
from healthd.core.checkpoint.precheck import FIRST_WITHIN, LATE_FACTOR, LATE_FLOOR
from healthd.core.config import (
    REPLACED,
    Config,
    KernelLogSource,
    LogLevel,
    ProbesPolicy,
    StartFresh,
    format_duration,
    parse_duration,
)
from healthd.core.diagnosis.findings.ledger import APP_WINDOW
from healthd.core.recovery.breaker import MIN_UNHEALTHY_NODES, UNHEALTHY_WITHIN
from healthd.core.recovery.nodes.replacement_nodes import SPARE_AFTER
from healthd.core.recovery.progress import MIN_INTERVALS
from healthd.core.recovery.resume_point import FIRST_BACKOFF
from healthd.probes.host_root import HostRoot

ROOT = Path(__file__).parents[3]


def mistakes(text: str | bytes) -> list[str]:
    """What is wrong with a file of that text, one `line:column: …` each."""
    content = text.encode() if isinstance(text, str) else text
    with pytest.raises(ConfigError) as caught:
        parse(content, "f")
    return [f"{p.line}:{p.column}: {p.key}: {p.text}" for p in caught.value.problems]


def test_no_file_means_all_defaults() -> None:
    assert load(None) == Config()


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "quarantine:\n", "{}", "\ufeff"])
def test_an_empty_file_or_section_means_all_defaults(text: str) -> None:
    assert parse(text.encode(), "f") == Config()


def test_every_kind_of_value_is_read() -> None:
    text = """
        quarantine: {budget: 7, cordon: false, namespace: ops}
        recovery: {grace: 1m30s, fence_timeout: 1h, start_fresh: always}
        hang: {factor: 2.5}
        kernel_log: {source: file, path: "/var/log/no"}
        http: {address: ":9400"}
        log: {level: debug}
    """

    config = parse(text.encode(), "f")

    assert (config.quarantine.budget, config.quarantine.cordon, config.quarantine.namespace) == (7, False, "ops")
    assert config.recovery.grace == timedelta(seconds=90)
    assert config.recovery.fence_timeout == timedelta(hours=1)
    assert config.recovery.start_fresh is StartFresh.ALWAYS
    assert config.hang.factor == 2.5
    assert (config.kernel_log.source, config.kernel_log.path) == (KernelLogSource.FILE, "/var/log/no")
    assert (config.http.address, config.log.level) == (":9400", LogLevel.DEBUG)


def test_a_list_is_read_item_by_item_and_each_is_checked() -> None:
    text = """
        foreign:
          off: [gke-maintenance-soon]
          rows:
            - condition DiskFailing after 5m -> avoid
            - "taint example.com/broken -> restart"
        recovery: {spare_near: []}
    """

    config = parse(text.encode(), "f")

    assert config.foreign.off == ("gke-maintenance-soon",)
    assert config.foreign.rows == ("condition DiskFailing after 5m -> avoid", "taint example.com/broken -> restart")
    assert config.recovery.spare_near == ()


def test_what_is_wrong_with_a_list_or_an_item_of_it_is_said() -> None:
    assert mistakes("recovery: {spare_near: zone}") == [
        "1:24: recovery.spare_near: must be a list, each item of it text"
    ]
    assert mistakes("recovery: {spare_near: [[zone]]}")[0].endswith("must be a list, each item of it text, not a list")
    assert "there is no row 'nonsense'" in mistakes("foreign: {off: [nonsense]}")[0]
    assert "must be a row such as" in mistakes("foreign: {rows: [taint x]}")[0]


def test_every_wrong_item_of_a_list_is_named_where_it_stands() -> None:
    text = "judge:\n  limits:\n    - ib-link-flaps 0 in 3h\n    - nvml-temperature 92\n    - ib-link-flap 3 in 3h\n"

    assert [line.split(": ")[:2] for line in mistakes(text)] == [["3:7", "judge.limits"], ["5:7", "judge.limits"]]


def test_a_rule_has_one_limit() -> None:
    assert mistakes('judge: {limits: ["ib-link-flaps 3 in 3h", "ib-link-flaps 5 in 1h"]}') == [
        "1:43: judge.limits: ib-link-flaps is there already; the first is in line 1"
    ]


SITE_RULE = """
judge:
  tiers: [fs-read-only reboot]
  rules:
    - name: site-mydrv-fatal
      message: "mydrv <device>: fatal error *"
      example: "[  12.5] mydrv 0000:3b:00.0: fatal error 7"
      summary: the accelerator failed
      when: 3 in 1h
      blame: device
    - {name: site-symbols, reading: ib.symbol_error, when: grows 50 in 1h, summary: symbol errors, shadow: false}
"""


def test_rules_of_the_site_are_read() -> None:
    judge = parse(SITE_RULE.encode(), "f").judge

    assert [(rule.name, rule.shadow, rule.blame) for rule in judge.rules] == [
        ("site-mydrv-fatal", True, Blame.DEVICE),
        ("site-symbols", False, Blame.UNKNOWN),
    ]
    assert judge.tiers == ("fs-read-only reboot",)


def test_the_rules_on_the_page_about_the_kernel_log_are_good() -> None:
    example = (ROOT / "docs" / "klog.md").read_text().split("```yaml\n")[1].split("```")[0]

    assert [rule.name for rule in parse(example.encode(), "f").judge.rules] == [
        "site-mydrv-fatal",
        "site-symbol-errors",
    ]


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("site-mydrv-fatal", "mydrv-fatal", "5:13: judge.rules.name: must be `site-` and lower-case words"),
        ("message:", "massage:", '6:7: judge.rules.massage: there is no such key; did you mean "message"?'),
        ("fatal error *", "*", "6:16: judge.rules.message: fits nearly every line of mydrv"),
        ("fatal error 7", "fine", "5:7: judge.rules: site-mydrv-fatal: the example"),
        ("blame: device", "tier: awful", "10:13: judge.rules.tier: must be a tier (record, "),
        ("ib.symbol_error", "ib.symbol_eror", "11:37: judge.rules.reading: nothing reads 'ib.symbol_eror'; did you"),
        ("site-symbols", "site-mydrv-fatal", "11:14: judge.rules: site-mydrv-fatal is there already; the first is in "),
        ("fs-read-only reboot", "oom reboot", "3:11: judge.tiers: oom reports faults of the application"),
        ("    - {", "    -\n    - {", "11:6: judge.rules: a rule needs a name and a summary"),
        ("  rules:", "  rules: 7\n  x:", "4:10: judge.rules: must be a list, each item of it keys such as `name: …`"),
    ],
)
def test_what_is_wrong_with_a_rule_of_the_site_is_said_where_it_stands(right: str, wrong: str, said: str) -> None:
    assert mistakes(SITE_RULE.replace(right, wrong, 1))[0].startswith(said)


def test_null_takes_a_limit_away_only_where_that_is_allowed() -> None:
    assert parse(b"recovery: {fence_timeout: null}", "f").recovery.fence_timeout is None
    assert mistakes("recovery:\n  grace:\n")[0].startswith("2:9: recovery.grace: has no value; it must be a duration")


def test_an_unknown_key_is_refused_with_the_nearest_right_name() -> None:
    assert mistakes("quarantine:\n  budgt: 3\n") == [
        '2:3: quarantine.budgt: there is no such key; did you mean "budget"?'
    ]


def test_an_unknown_section_with_no_near_name_gets_the_list() -> None:
    sections = (
        "host_root, quarantine, remediation, recovery, breaker, hang, gangs, judge, kernel_log, probes, checkpoints, "
        "precheck, leader, http, web, log, foreign, alerts, heartbeat"
    )

    assert mistakes("zzz: 1\n") == [f"1:1: zzz: there is no such key; the file has {sections}"]


def test_all_mistakes_of_a_file_are_named_at_once_in_its_order() -> None:
    text = "log:\n  levl: info\nquarantine:\n  budget: -1\n  cordon: perhaps\nhang: 3\n"

    assert [line.split(": ")[:2] for line in mistakes(text)] == [
        ["2:3", "log.levl"],
        ["4:11", "quarantine.budget"],
        ["5:11", "quarantine.cordon"],
        ["6:7", "hang"],
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("quarantine: {budget: -1}", "must be a whole number, at least 0, not '-1'"),
        ("quarantine: {budget: 1.5}", "must be a whole number, at least 0, not '1.5'"),
        ("quarantine: {budget: '2'}", "must be a whole number, at least 0, not '2' in quotes"),
        ("quarantine: {budget: 1:30}", "must be a whole number, at least 0, not '1:30'"),
        ("quarantine: {budget: [2]}", "must be a whole number, at least 0, not a list"),
        ("quarantine: {budget: {a: 2}}", "must be a whole number, at least 0, not keys"),
        ("quarantine: {cordon: yes}", "must be `true` or `false`, not 'yes'"),
        ("quarantine: {domain_label: ''}", "must be text, not empty, not '' in quotes"),
        ("quarantine: {namespace: Ops}", "must be a Kubernetes namespace: up to 63 lower-case letters, digits and "),
        ("hang: {factor: 1}", "must be a number, at least 1.5, not '1'"),
        ("remediation: {attempts_per_week: 100}", "must be a whole number, at least 1, at most 32, not '100'"),
        ("hang: {factor: .nan}", "must be a number, at least 1.5, not '.nan'"),
        ("hang: {factor: inf}", "must be a number, at least 1.5, not 'inf'"),
        ("recovery: {grace: 30}", "'30' is not a duration; write a number with a unit"),
        ("recovery: {fence_timeout: 1s}", "must be a duration such as 250ms, 30s, 5m or 1h30m, at least 1m, or `null`"),
        ("recovery: {start_fresh: alway}", "not 'alway'; did you mean \"always\"?"),
        ("log: {level: chatty}", "must be `debug`, `info`, `warning` or `error`, not 'chatty'"),
        ("http: {address: localhost}", "'localhost' is not an address; write host:port"),
    ],
)
def test_a_bad_value_is_refused_with_what_it_must_be(text: str, expected: str) -> None:
    (mistake,) = mistakes(text)

    assert expected in mistake


def test_a_bucket_with_a_bracket_in_its_name_is_refused_and_one_below_it_is_not() -> None:
    (mistake,) = mistakes('checkpoints: {allowed: ["s3://[run for *"]}')

    assert "checkpoints.allowed: 's3://[run' is no absolute path, and no URL" in mistake
    below = ("s3://training/run[1] for a", "/runs/[2] for a, b", "az://training for *")
    assert parse(f"checkpoints: {{allowed: {list(below)}}}".encode(), "f").checkpoints.allowed == below


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("/shared", "does not say for whom: write `/shared for NAMESPACE, NAMESPACE`, or `/shared for *`"),
        ("/shared for Team_A", "'Team_A' is no namespace"),
        ("/shared for ", "'' is no namespace"),
        ("shared for a", "'shared' is no absolute path"),
        ("ftp://shared for a", "no URL such as s3://bucket/path"),
        ("/checkpoints/team-a for team-a", "one within the other"),
        ("/ for *", "one within the other"),
        ("/srv/../checkpoints for *", "one within the other"),
    ],
)
def test_a_row_of_checkpoints_that_allows_nothing_or_too_much_is_refused(row: str, expected: str) -> None:
    (mistake,) = mistakes(f'checkpoints: {{allowed: ["{row}"]}}')

    assert expected in mistake


def test_a_key_given_twice_is_refused() -> None:
    assert mistakes("quarantine:\n  budget: 1\n  budget: 1\n") == [
        "3:3: quarantine.budget: given twice; the first is in line 2"
    ]
    assert mistakes("log:\nhang:\nlog:\n") == ["3:1: log: given twice; the first is in line 1"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"- 1\n", "1:1: : must hold keys, such as `host_root: \u2026`"),
        (b"just words\n", "1:1: : must hold keys"),
        (b"log:\n\tlevel: info\n", "2:1: : a tab; YAML allows only spaces here"),
        (b"log:\n  level: \xff\n", "2:10: : byte 0xff is not UTF-8"),
        (b"log:\n  level: a\x00b\n", "2:11: : character '\\x00' is not allowed in YAML"),
        (b"log: [1\n", "2:1: : while parsing a flow sequence: expected ',' or ']'"),
        (b"log:\n---\nhang:\n", "2:1: : expected a single document in the stream"),
        (b"log: *nobody\n", "1:6: : found undefined alias"),
        (b"? [a]\n: 1\n", "1:3: : a key must be a plain word"),
        (b"<<: {log: 1}\n", "1:1: <<: there is no such key"),
        pytest.param(b"[" * 30_000, "1:1: : nested too deeply", marks=pytest.mark.slow),
        (b"#" * (2 << 20), "1:1: : larger than 1 MiB"),
    ],
)
def test_what_is_no_configuration_is_refused_where_it_breaks(content: bytes, expected: str) -> None:
    (mistake,) = mistakes(content)

    assert mistake.startswith(expected)


def test_an_error_names_the_file_as_an_editor_can_jump_to_it(tmp_path: Path) -> None:
    path = tmp_path / "healthd.yaml"
    path.write_text("quarantine:\n  budget: x\n")

    with pytest.raises(ConfigError) as caught:
        load(path)

    assert str(caught.value) == f"{path}:2:11: quarantine.budget: must be a whole number, at least 0, not 'x'"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no-such\.yaml: there is no such file"):
        load(tmp_path / "no-such.yaml")
    with pytest.raises(UserError, match="this is a directory"):
        load(tmp_path)


def test_a_file_that_is_no_file_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as endpoint:
        endpoint.bind(str(tmp_path / "endpoint"))

        with pytest.raises(UserError, match="endpoint: cannot read the configuration: No such device"):
            load(tmp_path / "endpoint")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("250ms", 250), ("30s", 30_000), ("1h30m", 5_400_000), ("2d1ms", 172_800_001), ("0s", 0)],
)
def test_durations_are_read_and_written_alike(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == timedelta(milliseconds=milliseconds)
    assert format_duration(parse_duration(text)) == text


@pytest.mark.parametrize("text", ["", "5", "s", "-3s", "1.5h", "1m1h", "1s1s", "5 s", "٣s", "99999d", "1" * 99 + "s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration|longer than ten years"):
        parse_duration(text)


ALL_KEYS = [(name, key) for name, section in sections_of(Config) for key in keys_of(section).values()]


@pytest.mark.parametrize(("section", "key"), ALL_KEYS, ids=[f"{name}.{key.name}" for name, key in ALL_KEYS])
def test_every_default_may_be_written_out(section: str, key: ConfigKey) -> None:
    assert parse(f"{section}: {{{key.name}: {spell(key.default)}}}".encode(), "f") == Config()


def test_every_field_of_every_section_is_a_documented_key() -> None:
    for name, section in sections_of(Config):
        assert list(keys_of(section)) == list(section.__struct_fields__), name
    assert all(len(key.meta.description or "") > 20 for _, key in ALL_KEYS)


def test_a_key_outside_of_all_sections_is_read_and_checked() -> None:
    assert parse(b"host_root: /host", "f").host_root == "/host"
    assert mistakes("host_root: host") == ["1:12: host_root: must be an absolute path, not 'host'"]
    assert list(keys_of(Config)) == ["host_root"]


@pytest.mark.parametrize(("key", "advice"), REPLACED.items())
def test_an_old_key_is_refused_with_what_to_do_instead(key: str, advice: str) -> None:
    section, _, name = key.rpartition(".")
    text, column = (f"{section}: {{{name}: 1}}", len(section) + 4) if section else (f"{name}: {{}}", 1)

    assert mistakes(text) == [f"1:{column}: {key}: {advice}"]


CONSTANTS: dict[str, timedelta | float | str] = {
    "recovery.breaker_nodes": MIN_UNHEALTHY_NODES,
    "recovery.breaker_fresh": UNHEALTHY_WITHIN,
    "recovery.backoff_base": FIRST_BACKOFF,
    "recovery.spare_after": SPARE_AFTER,
    "hang.min_intervals": MIN_INTERVALS,
    "judge.app_window": APP_WINDOW,
    "checkpoints.volumes_at": VOLUMES_AT,
    "checkpoints.look_by_pod_every": LONGEST,
    "precheck.late_factor": LATE_FACTOR,
    "precheck.late_floor": LATE_FLOOR,
    "precheck.first_within": FIRST_WITHIN,
}


@pytest.mark.parametrize("key", REPLACED)
def test_what_is_advised_instead_of_an_old_key_exists(key: str) -> None:
    keys = {*keys_of(Config), *(f"{name}.{key.name}" for name, key in ALL_KEYS)}
    named = {word for word in re.findall(r"`([a-z_.]+)`", REPLACED[key]) if word in keys or "." in word}

    assert key not in keys
    assert {word for word in named if not word.startswith(f"{key}.")} <= keys
    assert ("is a constant now" in REPLACED[key]) == (key in CONSTANTS)
    assert key in CONSTANTS or named & keys


@pytest.mark.parametrize("key", CONSTANTS)
def test_the_value_that_is_said_of_a_constant_is_its_value(key: str) -> None:
    assert REPLACED[key] == f"is a constant now ({spell(CONSTANTS[key])}): remove this line"


def test_a_log_file_without_its_path_is_refused() -> None:
    assert mistakes("kernel_log: {source: file}") == [
        "1:13: kernel_log: path is missing: the source `file` needs the path of a log file"
    ]


def test_a_path_that_the_source_does_not_read_is_refused() -> None:
    assert mistakes("kernel_log: {source: journal, path: /var/log/kern.log}") == [
        "1:13: kernel_log: path is /var/log/kern.log, and the source `journal` reads none"
    ]


def test_a_rate_in_megabits_is_refused() -> None:
    """Every port of the fleet would be too slow."""
    assert mistakes("probes: {port_rate_gbps: 400000}") == [
        "1:26: probes.port_rate_gbps: must be a number, at most 10000, or `null`, not '400000'"
    ]


def test_the_reference_page_is_what_the_code_says() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()

    assert page == reference(), "run `make docs`"


def test_the_example_on_the_reference_page_is_the_default_configuration() -> None:
    example = reference().split("```yaml\n")[1].split("```")[0]

    assert parse(example.encode(), "f") == Config()


def test_config_check_says_good_or_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("log: {level: info}")
    good = main(["config", "--check", str(path)])
    path.write_text("log: {lvl: info}")
    bad = main(["config", "--check", str(path)])

    assert (good, bad) == (0, 2)
    printed = capsys.readouterr()
    assert printed.out == f"{path}: good\n"
    assert printed.err == f'healthd: {path}:1:7: log.lvl: there is no such key; did you mean "level"?\n'


def test_config_reference_prints_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--reference"]) == 0
    assert capsys.readouterr().out == reference()


SINK = """\
alerts:
  sinks:
    - name: oncall
      kind: {kind}
      token_file: /etc/healthd/key
      severities: [{severities}]
      labels: [{label}]
    - name: {name}
      urls: ["https://chat.example/hook"]
"""


@pytest.mark.parametrize(
    ("changed", "mistake"),
    [
        ({"kind": "pagerdooty"}, 'did you mean "pagerduty"?'),
        ({"severities": "pages"}, 'did you mean "page"?'),
        ({"severities": ""}, "severities is empty"),
        ({"label": "cause"}, "'cause' is not of the form name=value"),
        ({"name": "oncall"}, "8:13: alerts.sinks: oncall is there already; the first is in line 3"),
        ({"name": '"On Call"'}, "lower-case letters"),
        ({"name": "chat\n      namespaces: [team-a]"}, "would go nowhere"),
    ],
)
def test_an_alert_service_that_would_not_work_is_refused(changed: dict[str, str], mistake: str) -> None:
    good = {"kind": "pagerduty", "severities": "page", "label": "cause=nodes", "name": "chat"}

    assert parse(SINK.format(**good).encode(), "f").alerts.sinks[0].severities == ("page",)
    assert mistake in "\n".join(mistakes(SINK.format(**{**good, **changed})))


@pytest.mark.parametrize(
    ("sink", "mistake"),
    [
        ("kind: pagerduty", "a sink of kind pagerduty needs token_file"),
        ("kind: slack, token_file: /t", "a sink of kind slack needs channel"),
        ("kind: incident-io", "a sink of kind incident-io needs urls and token_file"),
        ("kind: webhook", "a sink of kind webhook needs urls or url_file"),
        ("kind: webhook, urls: [https://a, https://b]", "only an alertmanager has several"),
        ("kind: webhook, urls: [http://a]", "http:// needs `insecure: true`"),
        ("kind: webhook, urls: [https://ann:secret@a/x]", "1:50: alerts.sinks.urls: the address"),
        ("kind: webhook, urls: [https://169.254.169.254/x]", "link-local or metadata address 169.254.169.254"),
        ("kind: webhook, urls: ['https://a:99999/x']", "the address of the service is not a URL"),
        ("kind: webhook, urls: [https://a], url_file: /u", "urls and url_file are both set"),
        ("kind: teams, url_file: relative", "url_file must be an absolute path"),
        ("kind: apprise, url_file: /u", "apprise is for notices, not for pages"),
    ],
)
def test_an_alert_service_without_what_its_kind_needs_is_refused(sink: str, mistake: str) -> None:
    assert mistake in "\n".join(mistakes(f"alerts: {{sinks: [{{name: a, {sink}}}]}}\n"))


def test_a_name_given_twice_is_named_beside_the_other_mistakes() -> None:
    good = {"kind": "pagerduty", "severities": "page", "label": "cause=nodes", "name": "chat"}
    both = mistakes(SINK.format(**{**good, "kind": "pagerdooty", "name": "oncall"}))

    assert [line.partition(": ")[0] for line in both] == ["4:13", "8:13"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('address: "0.0.0.0:9402"', "1:6: web: web.address 0.0.0.0:9402 is open to others, and web.access is local"),
        ('address: ":9402", access: proxy', "web.access is proxy without web.proxy_secret_file"),
    ],
)
def test_a_page_that_would_be_open_to_everyone_is_refused(text: str, said: str) -> None:
    (mistake,) = mistakes(f"web: {{{text}}}\n")

    assert said in mistake


@pytest.mark.parametrize(
    "text",
    [
        'address: "127.0.0.1:9402"',
        'address: "[::1]:9402", access: proxy',
        'address: ":9402", access: token',
        'address: ":9402", access: proxy, proxy_secret_file: /etc/healthd/proxy',
        "access: proxy",
    ],
)
def test_a_page_that_a_controller_serves_is_good(text: str) -> None:
    assert parse(f"web: {{{text}}}\n".encode(), "f").web


def test_a_source_that_there_is_not_is_refused() -> None:
    probes = probes_of(ProbesPolicy(dcgm_url="http://a/"), HostRoot(Path("/")))

    assert sorted(probe.source for probe in probes) == sorted(SOURCES)
    assert parse(f"probes: {{off: [{', '.join(SOURCES)}]}}".encode(), "f").probes.off == SOURCES
    assert (
        "1:16: probes.off: there is no source 'bogus'; the sources are clock," in mistakes("probes: {off: [bogus]}")[0]
    )


@pytest.mark.parametrize("url", ["ftp://x", "x:9400/metrics", "http://", "http://${NODE_IP}:94000/metrics"])
def test_an_exporter_at_no_web_address_is_refused(url: str) -> None:
    assert "is no web address" in mistakes(f"probes: {{dcgm_url: '{url}'}}")[0]


@pytest.mark.parametrize(
    "url", ["http://${NODE_IP}:9400/metrics", "http://[$NODE_IP]:9400/metrics", "http://a:${PORT}/metrics", "${DCGM}"]
)
def test_what_a_variable_stands_for_is_known_on_the_node(url: str) -> None:
    assert parse(f"probes: {{dcgm_url: '{url}'}}".encode(), "f").probes.dcgm_url == url


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hands: [kured-sentinell]", "there is no hand 'kured-sentinell'; there are cluster-api-remediate-machine,"),
        ("hands: [hyperpod-reboot, hyperpod-reboot]", "hands names hyperpod-reboot more than once"),
        ("at_once: 1", "at_once is above 0, and hands is empty"),
        ("hands_file: hands.yaml", "hands_file must be an absolute path"),
        ("check_spares_every: 1d", "check_spares_every needs check_by_pod: true"),
        ("{check_spares_every: 10m, check_by_pod: true}", "check_spares_every must be 0 (never) or at least 1h"),
        ("probation: 30d", "probation_max is shorter than probation"),
    ],
)
def test_a_remediation_that_cannot_work_is_refused(text: str, said: str) -> None:
    (mistake,) = mistakes(f"remediation:\n  {text}\n")

    assert said in mistake


def test_nodes_are_remediated_only_where_agents_wait_for_the_word() -> None:
    on = "remediation: {at_once: 1, hands: [hyperpod-reboot]}\n"

    assert "quarantine.give_back: repaired" in mistakes(on)[0]
    assert parse((on + "quarantine: {give_back: repaired}\n").encode(), "f").remediation.at_once == 1


def test_a_hand_of_an_unread_file_may_have_any_name() -> None:
    policy = parse(b"remediation: {hands: [acme-power], hands_file: /etc/healthd/hands.yaml}", "f").remediation

    assert policy.hands == ("acme-power",)
