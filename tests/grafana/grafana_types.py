"""
Grafana's own types of a dashboard, from its package `@grafana/schema`, and TypeScript to check the JSON against them.

Each literal is checked with nothing left over: a field that Grafana does not know is an error, and so is a value that
an enumeration does not have. What belongs to the data source alone (queries, a marker's expression) has no type there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

PACKAGES = ("@grafana/schema@12.3.0", "typescript@5.9.2")
PANELS = {
    "stat": "stat/panelcfg/x/StatPanelCfg_types.gen",
    "timeseries": "timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen",
    "table": "table/panelcfg/x/TablePanelCfg_types.gen",
    "bargauge": "bargauge/panelcfg/x/BarGaugePanelCfg_types.gen",
    "state-timeline": "statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen",
    "status-history": "statushistory/panelcfg/x/StatusHistoryPanelCfg_types.gen",
}
"""Kind of panel -> where its options are."""
_WITHOUT_FIELDS = ("stat", "bargauge")
"""Their fields have no settings of their own."""
_RAW = "./node_modules/@grafana/schema/dist/types/raw"
_HEAD = f"""\
import type * as grafana from "{_RAW}/dashboard/x/dashboard_types.gen";
type Plain<T> = unknown extends T ? T
  : T extends string ? `${{T}}`
  : T extends number ? (`${{T}}` extends `${{infer N extends number}}` ? N : T)
  : T extends (infer U)[] ? Plain<U>[]
  : T extends object ? {{ [K in keyof T]: Plain<T[K]> }}
  : T;
type OfPrometheus = {{ expr?: string; step?: string; titleFormat?: string; useValueForTime?: boolean }};
type Marker = grafana.AnnotationQuery & OfPrometheus;
type Variable = grafana.VariableModel & {{ definition?: string }};
"""
_OPTIONS = {
    "strict": True,
    "noEmit": True,
    "skipLibCheck": True,
    "target": "es2022",
    "module": "es2022",
    "moduleResolution": "bundler",
    "types": [],
}


class CannotCheck(Exception):
    """This machine has no Node.js, or no package registry."""


class GrafanaTypes:
    """The compiler and the types, installed in *folder*. Raises CannotCheck."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        if shutil.which("npm") is None:
            raise CannotCheck("npm is not installed")
        silent = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
        done = self._run("npm", "install", *silent, "--prefix", str(folder), *PACKAGES)
        if done.returncode:
            raise CannotCheck(f"npm install: {done.stderr.strip()[-300:]}")

    def complaints(self, name: str, dashboard: dict[str, Any]) -> str:
        """What does not fit, in the words of the compiler; empty: nothing."""
        file = self._folder / f"{name}.ts"
        file.write_text(as_typescript(dashboard))
        (self._folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": _OPTIONS, "files": [file.name]}))
        return self._run(str(self._folder / "node_modules" / ".bin" / "tsc"), "--project", str(self._folder)).stdout

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "NO_COLOR": "1"}
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=self._folder, env=env)


def as_typescript(dashboard: dict[str, Any]) -> str:
    """A program that compiles if the dashboard is one that Grafana knows."""
    frame = {**dashboard, "panels": [], "annotations": {}, "templating": {}}
    lines = [_HEAD, _literal("dashboard", "grafana.Dashboard", frame)]
    lines += [f'import type * as {_module(kind)} from "{_RAW}/composable/{where}";' for kind, where in PANELS.items()]
    lines += [_literal(f"marker{n}", "Marker", each) for n, each in enumerate(dashboard["annotations"]["list"])]
    lines += [_literal(f"variable{n}", "Variable", each) for n, each in enumerate(dashboard["templating"]["list"])]
    for panel in dashboard["panels"]:
        lines += _panel(panel)
    return "\n".join(lines)


def _panel(panel: dict[str, Any]) -> list[str]:
    name, kind = f"panel{panel['id']}", panel["type"]
    if kind == "row":
        return [_literal(name, "grafana.RowPanel", panel)]
    lines = [
        _literal(name, "grafana.Panel", panel),
        _literal(f"{name}Options", f"{_module(kind)}.Options", panel["options"]),
    ]
    custom = panel["fieldConfig"]["defaults"]["custom"]
    if kind in _WITHOUT_FIELDS:
        assert not custom, f"{panel['title']}: a {kind} has no settings of fields"
        return lines
    return [*lines, _literal(f"{name}Fields", f"Partial<{_module(kind)}.FieldConfig>", custom)]


def _module(kind: str) -> str:
    return kind.replace("-", "_")


def _literal(name: str, kind: str, value: Any) -> str:
    return f"export const {name}: Plain<{kind}> = {json.dumps(value)};"
